package exceptions

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/retry"
)

// SweeperConfig configures a Sweeper.
type SweeperConfig struct {
	Store Store
	// Due returns the earliest time at which an exception in this node's snapshot expires, or
	// the zero time if none expires.
	Due func() time.Time
	// Every is the time between two calls of Due, without Jitter. Default: 1 s.
	Every time.Duration
	// Jitter is the maximum random time that is added to Every, so that not all nodes sweep at
	// the same time. Default: a quarter of Every.
	Jitter time.Duration
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
	// A Sweeper calls Changed after each sweep, so that the node loads the changes. Default: none.
	Changed func(context.Context)
	// Logger logs failed sweeps, at most once a minute, and the first success after them. Default:
	// no logging.
	Logger *slog.Logger
}

// A Sweeper deletes expired exceptions from the Store. Every node has one. An exception ends in
// time even without the Sweeper, because checks compare its end with the clock. The deletion is
// needed because it raises the revision. Otherwise the counters of a policy with an expired
// override would not be converted back to the limits of the plan.
type Sweeper struct {
	cfg SweeperConfig
	// failing is set after a failed sweep and cleared after a successful one. logged is the
	// time of the last log line about a failed sweep. Only Run uses these fields.
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
	// sweepLimit is the maximum number of exceptions that one edit deletes. It is small,
	// because other edits must wait for this edit.
	sweepLimit = 100
	// logEvery is the time between two log lines while sweeps fail.
	logEvery = time.Minute
)

// Run deletes expired exceptions until ctx ends. After an error, it tries again with the next
// sweep. It always returns nil.
func (s *Sweeper) Run(ctx context.Context) error {
	for retry.Wait(ctx, s.cfg.Every+rand.N(s.cfg.Jitter+1)) == nil {
		s.sweep(ctx)
	}
	return nil
}

// sweep deletes expired exceptions and calls Changed, if the time that Due returns has passed. If
// another node has already deleted the exceptions, sweep only calls Changed.
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

// note logs the error err of a sweep, at most once per logEvery. It also logs the first success
// after that.
func (s *Sweeper) note(ctx context.Context, err error) {
	switch now := s.cfg.Now(); {
	case err == nil && s.failing:
		s.failing = false
		s.cfg.Logger.InfoContext(ctx, "expired exceptions are deleted again")
	case err == nil || ctx.Err() != nil:
	case !s.failing || now.Sub(s.logged) >= logEvery:
		s.failing, s.logged = true, now
		s.cfg.Logger.WarnContext(ctx, "expired exceptions could not be deleted; trying again", "error", err)
	}
}
