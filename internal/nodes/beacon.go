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
	// Report gives what the process says now. The Beacon adds At and
	// Database.Report. It is called by Run only, and must not block.
	Report func(context.Context) Node
	// Every is the time between two reports, a tenth more or less. Default
	// Every, five seconds.
	Every time.Duration
	// Logger hears when reports begin to fail and when they succeed again.
	// Default: silent.
	Logger *slog.Logger
}

// A Beacon reports of this process again and again, while it lives.
type Beacon struct {
	cfg  Config
	soon chan struct{} // holds one
	last atomic.Pointer[Node]

	// Only Run touches these.
	id      string        // as it reported last; "" when it never did
	took    time.Duration // the last write; 0 when it failed
	failing bool
}

// NewBeacon makes a Beacon; Run runs it.
func NewBeacon(cfg Config) *Beacon {
	cfg.Every = cmp.Or(cfg.Every, Every)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Beacon{cfg: cfg, soon: make(chan struct{}, 1)}
}

// Unwritten is the last report if it could not be written, otherwise nil: what
// this process shows of itself while the database takes no reports.
func (b *Beacon) Unwritten() *Node { return b.last.Load() }

// Soon asks for a report now: what others should know has changed. It does not
// wait for it.
func (b *Beacon) Soon() {
	select {
	case b.soon <- struct{}{}:
	default: // one is asked for already
	}
}

// Run reports at once, and then again and again until ctx ends; then it takes the
// node out. Its error is always nil: what goes wrong is logged once, and tried
// again with the next report. The end of ctx does not cut a write off, of which
// nobody would know whether it comes after the removal: both have putTimeout.
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

// leave takes the node out: it ended as it should, and is not to be missed.
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
