package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// RevokedKept is the time for which Redis keeps the end of a revoked API key.
	RevokedKept = 7 * 24 * time.Hour
	// mostRevoked bounds the list of revoked keys. A full list has about 220 kB, and the script
	// rewrites it within 2 ms.
	mostRevoked = 4096
)

var revokedScript = newBody(scriptText("revoked.lua"))

// errNoList is the error of AddRevoked if Redis has no list of revoked keys, and all is false.
var errNoList = errors.New("redis: there is no list of revoked keys")

// Revoked is the list of revoked API keys in Redis, which all nodes share.
type Revoked struct {
	// Ends has the time at which each key ends, by the ID of the key.
	Ends map[string]time.Time
	// Since is the time from which on the list is complete: it has all keys that were revoked later. It
	// is zero if Redis has no list.
	Since time.Time
}

// revokedKey returns the name of the list. It is not the name of a counter, because it has no hash
// tag.
func (l *Limiter) revokedKey() string { return l.config.Prefix + "revoked" }

// AddRevoked adds revoked API keys to the list in Redis. ends has the time at which each key ends,
// by the ID of the key. all is true if ends has all keys that were revoked in the last RevokedKept.
// If all is false and Redis has no list, for example because it lost its data, the error is
// errNoList. The caller must then call AddRevoked with all keys. AddRevoked uses the connection of
// the probes.
func (l *Limiter) AddRevoked(ctx context.Context, ends map[string]time.Time, all bool) error {
	whole := 0
	if all {
		whole = 1
	}
	oldest, life := time.Now().Add(-RevokedKept), 2*RevokedKept
	ids := slices.SortedFunc(maps.Keys(ends), func(a, b string) int { return ends[b].Compare(ends[a]) })
	if len(ids) > mostRevoked {
		if end := ends[ids[mostRevoked]]; end.After(oldest) {
			oldest = end
		}
		ids = ids[:mostRevoked]
	}
	args := []any{oldest.UnixMicro(), mostRevoked, life.Milliseconds(), whole}
	for _, id := range ids {
		args = append(args, id, ends[id].UnixMicro())
	}
	n, err := l.probe.Eval(ctx, revokedScript.text, []string{l.revokedKey()}, args...).Int()
	switch {
	case err != nil:
		return failedCall{fmt.Errorf("redis: add to the list of revoked keys: %w", err)}
	case n < 0:
		return errNoList
	}
	return nil
}

// Revoked reads the list of revoked API keys, with one call on the connection of the probes.
func (l *Limiter) Revoked(ctx context.Context) (Revoked, error) {
	text, err := l.probe.Get(ctx, l.revokedKey()).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return Revoked{}, nil
	case err != nil:
		return Revoked{}, fmt.Errorf("redis: read the list of revoked keys: %w", err)
	}
	fields := strings.Fields(text)
	if len(fields)%2 == 0 {
		return Revoked{}, errors.New("redis: the list of revoked keys is not valid")
	}
	since, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return Revoked{}, fmt.Errorf("redis: the list of revoked keys is not valid: %w", err)
	}
	found := Revoked{Ends: make(map[string]time.Time, len(fields)/2), Since: time.UnixMicro(since)}
	for i := 1; i < len(fields); i += 2 {
		at, err := strconv.ParseInt(fields[i+1], 10, 64)
		if err != nil {
			return Revoked{}, fmt.Errorf("redis: the list of revoked keys is not valid: %w", err)
		}
		found.Ends[fields[i]] = time.UnixMicro(at)
	}
	return found, nil
}
