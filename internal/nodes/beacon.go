package nodes

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Config of a Beacon.
type Config struct {
	// Store is where it reports to.
	Store Store
	// Report returns the current report. The Beacon adds At and Database.Report. Only Run calls
	// it; it must not block.
	Report func(context.Context) Node
	// Every is the interval, plus or minus a tenth. Default: the constant Every.
	Every time.Duration
	// Logger reports the first failure and the recovery. Default: none.
	Logger *slog.Logger
}

// A Beacon reports the state of this process periodically.
type Beacon struct {
	cfg  Config
	soon chan struct{} // holds one
	last atomic.Pointer[Node]

	// Only Run touches these.
	id      string        // as it reported last; "" when it never did
	took    time.Duration // the last write; 0 when it failed
	failing bool
}

// NewBeacon returns a Beacon.
func NewBeacon(cfg Config) *Beacon {
	cfg.Every = cmp.Or(cfg.Every, Every)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Beacon{cfg: cfg, soon: make(chan struct{}, 1)}
}

// Unwritten is the last report if it could not be written, otherwise nil: what
// this process shows of itself while the database takes no reports.
func (b *Beacon) Unwritten() *Node { return b.last.Load() }

// Soon requests a report now, without waiting for it.
func (b *Beacon) Soon() {
	select {
	case b.soon <- struct{}{}:
	default: // one is asked for already
	}
}

// Run reports periodically until ctx ends, and then removes the node. It logs errors and returns
// nil. A write continues after ctx has ended, for at most putTimeout, so that it cannot come after
// the removal.
func (b *Beacon) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			b.leave(ctx)
			return nil
		case <-b.soon:
		case <-timer.C:
		}
		b.report(ctx)
		timer.Reset(b.cfg.Every*9/10 + rand.N(b.cfg.Every/5+1))
	}
}

func (b *Beacon) report(ctx context.Context) {
	n := b.cfg.Report(ctx)
	n.Database.Report = b.took
	b.id = n.ID
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), putTimeout)
	defer cancel()
	n.At = time.Now()
	err := b.cfg.Store.PutNode(ctx, n)
	b.took = time.Since(n.At)
	b.last.Store(nil)
	switch {
	case err != nil:
		b.took = 0
		b.last.Store(&n)
		if !b.failing {
			b.cfg.Logger.WarnContext(ctx, "fleet: this node cannot report; others will call it silent", "error", err)
		}
	case b.failing:
		b.cfg.Logger.InfoContext(ctx, "fleet: this node reports again")
	}
	b.failing = err != nil
}

// leave removes the node, so that the others do not show it as silent.
func (b *Beacon) leave(ctx context.Context) {
	if b.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), putTimeout)
	defer cancel()
	if err := b.cfg.Store.RemoveNode(ctx, b.id); err != nil {
		b.cfg.Logger.WarnContext(ctx, "fleet: this node could not be taken out; others will call it silent for a day", "error", err)
	}
}
