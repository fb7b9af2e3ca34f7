package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/retry"
)

// RollerConfig configures a Roller. The zero value is usable.
type RollerConfig struct {
	// Holder identifies this process as the holder of the lease. Default: a new UUID.
	Holder string
	// Every is the time between two calls of Turn. Default: 10 s.
	Every time.Duration
	// Minutes, Hours and Days are how long the rows of each of these steps are kept. Refusals is
	// how long kept denials are kept. Defaults: 48 h, 90 days, 3 years, and 24 h.
	Minutes, Hours, Days, Refusals time.Duration
	// MaxRefusals is the maximum number of kept denials. If there are more, the oldest are deleted.
	// Default: 100,000.
	MaxRefusals int
	// Logger logs the first of several consecutive failures, and the first success after them.
	// Default: no logging.
	Logger *slog.Logger
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

// The name and the duration of a lease. Only the node that holds the lease rolls up counts. Because
// of clock skew, two nodes may hold the lease at the same time. The counts still stay correct,
// because RollUp does nothing if the other node has already done the roll-up.
const (
	rollUpLease     = "roll-up"
	rollUpLeaseLife = 30 * time.Second
)

// nodesKept is how long the store keeps the number of a node's last batch. If a node cannot reach
// the database for longer than this, the store could add the node's last batch twice.
const nodesKept = 30 * 24 * time.Hour

// A Roller computes the rows of hours and days from rows of finer steps, and deletes expired rows.
// Every node has a Roller, but only the Roller that holds the lease works.
type Roller struct {
	store   Store
	cfg     RollerConfig
	failing bool
}

// NewRoller returns a Roller for the rows in a store.
func NewRoller(s Store, c RollerConfig) *Roller {
	const day = 24 * time.Hour
	c.Holder, c.Every = cmp.Or(c.Holder, uuid.NewString()), cmp.Or(c.Every, 10*time.Second)
	c.Minutes, c.Hours, c.Days = cmp.Or(c.Minutes, 2*day), cmp.Or(c.Hours, 90*day), cmp.Or(c.Days, 3*365*day)
	c.Refusals, c.MaxRefusals = cmp.Or(c.Refusals, day), cmp.Or(c.MaxRefusals, 100_000)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Roller{store: s, cfg: c}
}

// Run calls Turn repeatedly until ctx ends. Between two calls, it waits for about Every.
func (r *Roller) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		r.note(ctx, r.Turn(ctx))
		_ = retry.Wait(ctx, retry.Jitter(r.cfg.Every))
	}
	return nil
}

// note logs the error err if the call before succeeded, and logs the first success after failures.
func (r *Roller) note(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && !r.failing:
		r.cfg.Logger.Warn("counts are not rolled up or pruned", "error", err)
	case err == nil && r.failing:
		r.cfg.Logger.Info("counts are rolled up and pruned again")
	}
	r.failing = err != nil
}

// Turn does all due roll-ups and deletes a bounded number of expired rows. It does nothing if
// another process holds the lease.
func (r *Roller) Turn(ctx context.Context) error {
	mine, err := r.lease(ctx)
	if err != nil || !mine {
		return err
	}
	// Turn deletes expired rows even if a roll-up has failed.
	return errors.Join(r.rollUp(ctx), r.prune(ctx))
}

func (r *Roller) lease(ctx context.Context) (bool, error) {
	mine, err := r.store.TakeLease(ctx, rollUpLease, r.cfg.Holder, rollUpLeaseLife)
	if err != nil {
		return false, fmt.Errorf("take the lease: %w", err)
	}
	return mine, nil
}

// rollUpPiece is the maximum number of due roll-ups that one query of rollUp reads from the store.
const rollUpPiece = 24

// rollUp does the due roll-ups, oldest first. It renews the lease before each roll-up, and stops if
// another node has the lease. If a roll-up fails, rollUp continues with the others. The next call
// of Turn tries the failed ones again.
func (r *Roller) rollUp(ctx context.Context) error {
	done := make(map[RollUp]bool)
	var errs []error
	for {
		due, err := r.store.RollUpsDue(ctx, r.cfg.Now(), rollUpPiece+len(done))
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		fresh := 0
		for _, u := range due {
			if done[u] {
				continue // either the roll-up failed in this call, or a late flush made it due again
			}
			fresh++
			done[u] = true
			mine, err := r.lease(ctx)
			if err != nil || !mine {
				return errors.Join(append(errs, err)...)
			}
			if err := r.store.RollUp(ctx, u, r.merge); err != nil {
				errs = append(errs, err)
			}
			if ctx.Err() != nil {
				return errors.Join(errs...)
			}
		}
		if fresh == 0 {
			return errors.Join(errs...)
		}
	}
}

// merge combines the stored forms of sketches with the same name into one stored form. It leaves
// out sketches that it cannot decode, such as those of a newer release. If it can decode none, it
// returns nil. For traces, it always returns nil.
func (r *Roller) merge(name string, docs [][]byte) ([]byte, error) {
	if name == SketchTrace {
		return nil, nil // replays need single requests
	}
	readable := make([][]byte, 0, len(docs))
	var unread error
	for _, doc := range docs {
		if _, err := decodeSketch(name, doc); err != nil {
			unread = err
			continue
		}
		readable = append(readable, doc)
	}
	if unread != nil {
		r.cfg.Logger.Warn("sketches are left out of a roll-up", "name", name, "documents", len(docs)-len(readable), "error", unread)
	}
	if len(readable) == 0 {
		return nil, nil
	}
	return mergeSketches(name, readable)
}

// prunePieces is the maximum number of calls of Store.Prune in one call of Turn.
const prunePieces = 50

func (r *Roller) prune(ctx context.Context) error {
	now := r.cfg.Now()
	before := func(kept time.Duration) int64 { return now.Add(-kept).Unix() }
	retention := Retention{
		Minutes: before(r.cfg.Minutes), Hours: before(r.cfg.Hours), Days: before(r.cfg.Days),
		Refusals: before(r.cfg.Refusals), MaxRefusals: r.cfg.MaxRefusals, Nodes: before(nodesKept),
	}
	for range prunePieces {
		mine, err := r.lease(ctx)
		if err != nil || !mine {
			return err
		}
		more, err := r.store.Prune(ctx, retention)
		if err != nil || !more {
			return err
		}
	}
	return nil
}
