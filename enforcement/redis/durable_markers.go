package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
)

// Durable counters must not be used unless the server has all of them. If so, the server has a
// marker; on a cluster, each home has a marker. A script with a durable request decides nothing
// if the marker is absent (durable.lua). The marker is deleted, or was lost with the data:
//
//   - after FLUSHALL, a restart without persistence, or a failover to an empty replica;
//   - if a node connects to a server with another run_id than the marker names
//     (confirm.lua): after a restart, or after a failover to a replica that lags;
//   - if the pulse finds an older copy of the data (pulse.lua).
//
// KeepRestored then restores the counters from the journal and sets the marker.

var (
	confirmScript = newBody(scriptText("confirm.lua"))
	markScript    = newBody(scriptText("mark.lua"))
	restoreScript = newBody(scriptText("restore.lua"))
)

// These are the last characters in the names of keys that belong to a home. No other key has
// one of these names: the names of counters, counts of keys, and marks of full tenants end in
// another letter, or are longer or shorter.
const (
	markerKey = "d"
	lockKey   = "dl"
	flushKey  = "df" // followed by the ID of a node
)

func (l *Limiter) durableKey(home, end string) string {
	return l.config.Prefix + "{" + home + "}" + end
}

// markerHome returns the home that has the marker for the counters of another home. On a single
// server, one marker is for all homes.
func (l *Limiter) markerHome(home string) string {
	if !l.clocks.byHome {
		return "00"
	}
	return home
}

// durable records which homes have lost durable counters.
type durable struct {
	on      bool
	noticed chan struct{} // has one element if KeepRestored should check the markers
	count   atomic.Int32  // length of lost

	mu       sync.Mutex
	lost     map[string]bool // homes without a marker
	homes    map[string]bool // homes whose marker this node checks
	since    time.Time       // time at which the first home was added to lost; zero if lost is empty
	restored int64           // number of restorations that this node noticed
}

func (d *durable) open(on bool) {
	d.on, d.noticed = on, make(chan struct{}, 1)
	d.lost, d.homes = map[string]bool{}, map[string]bool{}
}

// suspect makes KeepRestored check the markers soon.
func (d *durable) suspect() {
	select {
	case d.noticed <- struct{}{}:
	default:
	}
}

// lose records that a home has no marker. Its durable counters are then lost.
func (d *durable) lose(home string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.homes[home] = true; d.lost[home] {
		return
	}
	if d.lost[home] = true; d.since.IsZero() {
		d.since = time.Now()
	}
	d.count.Store(int32(len(d.lost)))
	d.suspect()
}

// regain records that a home has its marker again. Its durable counters are then restored.
func (d *durable) regain(home string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.homes[home] = true; !d.lost[home] {
		return
	}
	delete(d.lost, home)
	d.restored++
	if d.count.Store(int32(len(d.lost))); len(d.lost) == 0 {
		d.since = time.Time{}
	}
}

func (d *durable) isLost(home string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost[home]
}

// known returns the homes whose markers this node checks. It begins with the homes in first.
func (d *durable) known(first []string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, home := range first {
		d.homes[home] = true
	}
	return slices.Sorted(maps.Keys(d.homes))
}

// errLost is the error of a durable request whose counters are not restored yet.
var errLost = errors.New("redis: the server lost data, and the durable limits are not restored yet")

// isLost reports whether a request is durable and its counters are known to be lost.
func (l *Limiter) isLost(r *enforcement.Request) bool {
	return l.durable.count.Load() > 0 && r.Durable() && l.durable.isLost(l.markerHome(r.Home))
}

// dropDurable removes the durable requests from a call, and sets their verdict to Lost.
func (c *call) dropDurable() {
	others := slices.DeleteFunc(slices.Clone(c.requests), func(s span) bool {
		durable := s.request.Durable()
		if durable {
			fail(s.outcome, enforcement.Lost, errLost)
		}
		return durable
	})
	c.clear()
	for _, s := range others {
		c.add(s.request, s.outcome)
	}
}

// confirmNew checks the markers on a new connection, before the first call uses this
// connection.
func (l *Limiter) confirmNew(ctx context.Context, cn *redis.Conn) error {
	commands, _ := cn.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, home := range l.durable.known(l.pulseHomes()) {
			p.Eval(ctx, confirmScript.text, l.confirmKeys(home))
		}
		return nil
	})
	for _, c := range commands {
		if err := c.Err(); err != nil && !(l.clocks.byHome && moved(err)) {
			return fmt.Errorf("redis: check the markers of the durable limits: %w", err)
		}
	}
	return nil
}

func (l *Limiter) confirmKeys(home string) []string {
	return []string{l.durableKey(home, markerKey), l.durableKey(home, "m")}
}

// moved reports whether an error reply says that another server has the keys.
func moved(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN")
}

// confirm runs confirm.lua, which deletes the marker of a home if the marker belongs to another
// server process. It returns whether a marker exists afterwards.
func (l *Limiter) confirm(ctx context.Context, home string) (bool, error) {
	n, err := l.probe.Eval(ctx, confirmScript.text, l.confirmKeys(home)).Int64()
	if err != nil {
		return false, fmt.Errorf("redis: check the marker of the durable limits: %w", err)
	}
	return n == 1, nil
}
