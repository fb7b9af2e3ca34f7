package exceptions

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/retry"
)

// SweeperConfig of a Sweeper.
type SweeperConfig struct {
	Store Store
	// Due returns when the first exception that this node knows ends; the zero time: none ends.
	Due func() time.Time
	// Every is the interval between two calls of Due. Default 1 s.
	Every time.Duration
	// Jitter is the largest random addition to Every, so that nodes do not sweep at once. Default
	// a quarter of Every.
	Jitter time.Duration
	// Now tells the time; default time.Now.
	Now func() time.Time
	// Changed is called after a sweep, to load its changes; default nothing.
	Changed func(context.Context)
	// Logger reports failed sweeps. Default: none.
	Logger *slog.Logger
}

// A Sweeper removes ended exceptions from the Store. Every node runs one. Checks compare the end
// with the clock, so they do not wait for a sweep. But counters are converted to the numbers after
// an override only once its end has a revision.
type Sweeper struct {
	cfg SweeperConfig
	// failing is set after a failed sweep, and logged is when that was last logged. Only Run uses
	// them.
	failing bool
	logged  time.Time
}

// NewSweeper returns a Sweeper.
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

// Run sweeps until ctx ends. It logs errors, at most once a minute, retries, and returns nil.
func (s *Sweeper) Run(ctx context.Context) error {
	for retry.Wait(ctx, s.cfg.Every+rand.N(s.cfg.Jitter+1)) == nil {
		s.sweep(ctx)
	}
	return nil
}

// sweep removes what is due. If another node removed it first, it only loads the change.
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

// note logs a failure or the recovery.
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
