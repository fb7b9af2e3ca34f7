package snapshot

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/tenants"
)

// useStep is the precision of the stored time of a key's last use. A key that authenticates many
// requests writes the time only once per useStep. Otherwise all processors would write to the same
// memory all the time.
const useStep = time.Second

// Use records that the key authenticated a request at now. It acquires no lock and allocates no
// memory.
func (k *Key) Use(now time.Time) {
	if k.used == nil {
		return
	}
	if at := now.UnixMilli(); at-k.used.Load() >= useStep.Milliseconds() {
		k.used.Store(at)
	}
}

// KeyUses returns the time of the last use of each key. It leaves out keys that this node has not
// used since the given time. The result is ordered by key ID.
func (s *Snapshot) KeyUses(since time.Time) []tenants.KeyUse {
	var uses []tenants.KeyUse
	for _, k := range s.keys.All {
		if at := k.used.Load(); at != 0 && at >= since.UnixMilli() {
			uses = append(uses, tenants.KeyUse{ID: k.ID, At: time.UnixMilli(at).UTC()})
		}
	}
	slices.SortFunc(uses, func(a, b tenants.KeyUse) int { return strings.Compare(a.ID, b.ID) })
	return uses
}

// A KeyUseStore stores when keys were last used. store.Store implements it.
type KeyUseStore interface {
	// AddKeyUses stores the time of the last use of each key, unless the store has a later time
	// for the key.
	AddKeyUses(ctx context.Context, uses []tenants.KeyUse) error
}

// KeyUseConfig configures a KeyUseFlusher. The zero value is usable.
type KeyUseConfig struct {
	// Interval is the time between two flushes. Default: 1 minute.
	Interval time.Duration
	// Timeout is the maximum time of one flush. Default: 10 s.
	Timeout time.Duration
	// StopTimeout is the maximum duration of the last flush, which begins when the context of
	// Run ends. Default: 5 s.
	StopTimeout time.Duration
	// Logger logs the first of several consecutive failed flushes. Default: no logging.
	Logger *slog.Logger
	// Now returns the current time. It must use the same clock as the callers of Key.Use. Default:
	// time.Now.
	Now func() time.Time
}

// A KeyUseFlusher writes the last uses of keys to a KeyUseStore. Each flush writes one time for
// each key that was used since the previous flush. If the process crashes, the uses since the
// last flush are lost.
type KeyUseFlusher struct {
	current func() *Snapshot
	store   KeyUseStore
	cfg     KeyUseConfig
	since   time.Time // start of the last successful flush, less useOverlap
	failing bool
}

// useOverlap is how far the uses that a flush writes reach back before the start of the previous
// flush. A request may read the clock before a flush and call Key.Use after the flush. The next
// flush then writes this use. The store ignores uses that it already has.
const useOverlap = 5 * time.Second

// NewKeyUseFlusher returns a KeyUseFlusher for the keys of the snapshot that current returns.
func NewKeyUseFlusher(current func() *Snapshot, s KeyUseStore, c KeyUseConfig) *KeyUseFlusher {
	c.Interval = cmp.Or(c.Interval, time.Minute)
	c.Timeout, c.StopTimeout = cmp.Or(c.Timeout, 10*time.Second), cmp.Or(c.StopTimeout, 5*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	return &KeyUseFlusher{current: current, store: s, cfg: c}
}

// Run flushes every interval until ctx ends, and then once more.
func (f *KeyUseFlusher) Run(ctx context.Context) error {
	tick := time.NewTicker(f.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			f.flush(context.WithoutCancel(ctx), f.cfg.StopTimeout)
			return nil
		case <-tick.C:
			f.flush(ctx, f.cfg.Timeout)
		}
	}
}

// flush writes to the store the uses since the last successful flush.
func (f *KeyUseFlusher) flush(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	current, start := f.current(), f.cfg.Now()
	if current == nil {
		return
	}
	if uses := current.KeyUses(f.since); len(uses) > 0 {
		if err := f.store.AddKeyUses(ctx, uses); err != nil {
			if !f.failing {
				f.cfg.Logger.Warn("the last use of keys cannot be written; it waits in memory", "keys", len(uses), "error", err)
			}
			f.failing = true
			return
		}
	}
	f.since, f.failing = start.Add(-useOverlap), false
}
