package nodes

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Config configures a Beacon.
type Config struct {
	// Store stores the reports of the Beacon.
	Store Store
	// Report returns a report about this process. The Beacon then sets At and Database.Report in
	// it. Only Run calls Report. Report must not block.
	Report func(context.Context) Node
	// Every is the time between two reports. It varies randomly by up to a tenth. Default: the constant Every.
	Every time.Duration
	// Logger logs the first of several consecutive failures, and the first success after them.
	// Default: no logging.
	Logger *slog.Logger
}

// A Beacon writes a report about this process to the Store periodically.
type Beacon struct {
	cfg  Config
	soon chan struct{} // has room for one request to write a report now
	last atomic.Pointer[Node]

	// Only Run uses the following fields.
	id      string        // ID in the last report; "" before the first report
	took    time.Duration // duration of the last write; 0 if it failed
	failing bool
}

// NewBeacon returns a Beacon.
func NewBeacon(cfg Config) *Beacon {
	cfg.Every = cmp.Or(cfg.Every, Every)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Beacon{cfg: cfg, soon: make(chan struct{}, 1)}
}

// Unwritten returns the last report if the Store rejected it, and nil if the Store accepted it.
// Service adds the rejected report to the overview. Therefore the pages of this process show this
// node even while the database rejects writes.
func (b *Beacon) Unwritten() *Node { return b.last.Load() }

// Soon makes Run write the next report without waiting for the interval. It returns immediately.
func (b *Beacon) Soon() {
	select {
	case b.soon <- struct{}{}:
	default: // a report is already requested
	}
}

// Run writes reports until ctx ends, and then removes the report of this process. It logs
// errors and returns nil. If ctx ends during a write, Run waits for the write, at most for
// putTimeout. Otherwise the write could store the report again after its removal.
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
			b.cfg.Logger.WarnContext(ctx, "this node cannot write its report; other nodes will show it as silent", "error", err)
		}
	case b.failing:
		b.cfg.Logger.InfoContext(ctx, "this node writes its report again")
	}
	b.failing = err != nil
}

// leave removes the report of this process. If the report stayed, other nodes would show this
// node as silent.
func (b *Beacon) leave(ctx context.Context) {
	if b.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), putTimeout)
	defer cancel()
	if err := b.cfg.Store.RemoveNode(ctx, b.id); err != nil {
		b.cfg.Logger.WarnContext(ctx, "the report of this node could not be removed; other nodes will show it as silent for a day", "error", err)
	}
}
