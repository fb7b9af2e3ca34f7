package exceptions

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// SweeperConfig of a Sweeper.
type SweeperConfig struct {
	Store Store
	// Due is when the first of what this node knows ends; the zero time: nothing
	// does.
	Due func() time.Time
	// Every is how often Due is asked. Default 1 s.
	Every time.Duration
	// Jitter is up to how much longer it waits each time, so that nodes do not
	// come at once. Default a quarter of Every.
	Jitter time.Duration
	// Now tells the time; default time.Now.
	Now func() time.Time
	// Changed is called after a sweep, to load what it changed; default nothing.
	Changed func(context.Context)
	// Logger hears of sweeps that went wrong. Default: silent.
	Logger *slog.Logger
}

// A Sweeper removes what has ended from the Store. Every node has one: a check
// asks its own clock, so nothing waits for a sweep, but counters are converted
// to the numbers that follow an override only when its end has a revision.
type Sweeper struct {
	cfg SweeperConfig
	// failing says that the last sweep went wrong, and logged when that was last
	// told. Only Run touches them.
	failing bool
	logged  time.Time
}

// NewSweeper makes a Sweeper; Run runs it.
func NewSweeper(cfg SweeperConfig) *Sweeper {
	cfg.Every = cmp.Or(cfg.Every, time.Second)
	cfg.Jitter = cmp.Or(cfg.Jitter, cfg.Every/4)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Changed == nil {
		cfg.Changed = func(context.Context) {}
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Sweeper{cfg: cfg}
}

const (
	// sweepLimit is how many rows one edit removes: few enough that other edits
	// do not wait long for their turn.
	sweepLimit = 100
	// logEvery is how often errors are told while they go on.
	logEvery = time.Minute
)

// Run sweeps until ctx ends. Its error is always nil: what goes wrong is logged,
// once a minute while it goes on, and tried again.
func (s *Sweeper) Run(ctx context.Context) error {
	timer := time.NewTimer(s.pause())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		s.sweep(ctx)
		timer.Reset(s.pause())
	}
}

func (s *Sweeper) pause() time.Duration { return s.cfg.Every + rand.N(s.cfg.Jitter+1) }

// sweep removes what is due. Where another node was quicker there is nothing
// left to remove, but still something to load.
func (s *Sweeper) sweep(ctx context.Context) {
	now := s.cfg.Now()
	due := s.cfg.Due()
	if due.IsZero() || due.After(now) {
		return
	}
	for ctx.Err() == nil {
		n, err := s.cfg.Store.EndExpired(ctx, now, sweepLimit)
		if err != nil {
			s.note(ctx, err)
			break
		}
		s.note(ctx, nil)
		if n < sweepLimit {
			break
		}
	}
	if !s.failing && ctx.Err() == nil {
		s.cfg.Changed(ctx)
	}
}

// note logs that sweeps go wrong, or are well again.
func (s *Sweeper) note(ctx context.Context, err error) {
	switch now := s.cfg.Now(); {
	case err == nil && s.failing:
		s.failing = false
		s.cfg.Logger.InfoContext(ctx, "exceptions: what has ended is removed again")
	case err == nil || ctx.Err() != nil:
	case !s.failing || now.Sub(s.logged) >= logEvery:
		s.failing, s.logged = true, now
		s.cfg.Logger.WarnContext(ctx, "exceptions: what has ended was not removed; trying again", "error", err)
	}
}
