package alerts

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/retry"
)

// EvaluatorConfig configures an Evaluator. Store, Figures and Messenger are required.
type EvaluatorConfig struct {
	Store     Store
	Figures   Figures
	Messenger Messenger
	// Holder is the name of this process in the lease. Default: a new UUID.
	Holder string
	// Every is the time between two evaluations. Default: 10 s.
	Every time.Duration
	// Keep is how long incidents, deliveries and maintenance windows are kept after their end.
	// Default: 90 days.
	Keep time.Duration
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
	// Logger logs the first of several consecutive failures, and the recovery. Default: no
	// logging.
	Logger *slog.Logger
}

// The name and the duration of the lease. Only the node that holds it evaluates. When it ends
// without being renewed, another node takes over.
const (
	evaluationLease     = "alerts"
	evaluationLeaseLife = 18 * time.Second // together with the interval of 10 s, another node evaluates within 30 s
)

// An Evaluator evaluates all rules while its process holds the lease. Every node runs an
// Evaluator.
type Evaluator struct {
	cfg     EvaluatorConfig
	holds   bool // set if the last evaluation had the lease
	failing bool
	pruned  time.Time
}

// NewEvaluator returns an Evaluator.
func NewEvaluator(cfg EvaluatorConfig) *Evaluator {
	cfg.Holder = cmp.Or(cfg.Holder, audit.NewID())
	cfg.Every, cfg.Keep = cmp.Or(cfg.Every, 10*time.Second), cmp.Or(cfg.Keep, 90*24*time.Hour)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Evaluator{cfg: cfg}
}

// Run calls Evaluate at each interval until ctx ends.
func (e *Evaluator) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := e.Evaluate(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil && !e.failing:
			e.cfg.Logger.Warn("alert rules are not evaluated; trying again", "error", err)
		case err == nil && e.failing:
			e.cfg.Logger.Info("alert rules are evaluated again")
		}
		e.failing = err != nil
		_ = retry.Wait(ctx, retry.Jitter(e.cfg.Every))
	}
	return nil
}

// pruneEvery is the time between two removals of old rows.
const pruneEvery = time.Hour

// Evaluate evaluates every rule once, if this process holds the lease or can acquire it.
// Otherwise it does nothing.
func (e *Evaluator) Evaluate(ctx context.Context) error {
	mine, err := e.lease(ctx)
	if mine != e.holds && err == nil {
		e.holds = mine
		e.cfg.Logger.Info("alert rules: evaluation on this node", "begins", mine)
	}
	if err != nil || !mine {
		return err
	}
	rules, err := e.cfg.Store.Watched(ctx)
	if err != nil {
		return err
	}
	windows, err := e.cfg.Store.AllMaintenances(ctx)
	if err != nil {
		return err
	}
	now := e.cfg.Now().UTC().Truncate(time.Millisecond)
	m := measurement{Figures: &e.cfg.Figures, now: now, windows: windows}
	renewed := now
	var errs []error
	for i := range rules {
		if err := ctx.Err(); err != nil {
			return err
		}
		// The lease is renewed between two rules. Otherwise it could end during an evaluation
		// if the database is slow.
		if at := e.cfg.Now(); at.Sub(renewed) > evaluationLeaseLife/3 {
			if mine, err := e.lease(ctx); err != nil || !mine {
				return err
			}
			renewed = at
		}
		errs = append(errs, e.evaluate(ctx, &m, &rules[i]))
	}
	if now.Sub(e.pruned) >= pruneEvery {
		e.pruned = now
		errs = append(errs, e.cfg.Store.PruneAlerts(ctx, now.Add(-e.cfg.Keep)))
	}
	return errors.Join(errs...)
}

func (e *Evaluator) lease(ctx context.Context) (bool, error) {
	return e.cfg.Store.TakeLease(ctx, evaluationLease, e.cfg.Holder, evaluationLeaseLife)
}

// evaluate computes and stores the next state of one rule. If the figure cannot be measured, it
// changes only State.Err.
func (e *Evaluator) evaluate(ctx context.Context, m *measurement, w *Watched) error {
	value, detail, err := float64(0), "", error(nil)
	if !w.Disabled {
		value, detail, err = m.measure(ctx, &w.Rule)
	}
	a := Advance{RuleID: w.ID, Seq: w.Seq, State: w.State}
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		a.State.Err = err.Error()
	} else {
		var change Change
		a.State, change = w.Step(w.State, value, m.now)
		a.State.Detail = detail
		if err := e.change(ctx, w, &a, change, m); err != nil {
			return err
		}
	}
	if !a.State.worthWriting(&w.State) {
		return nil
	}
	_, err = e.cfg.Store.Advance(ctx, a) // false means that the rule was changed, or that another node has evaluated it
	return err
}

// change adds the incident and the messages of a change to a. If the rule is muted or in a
// maintenance window, change does not announce the begin of the alert. The first evaluation
// after that announces it if the alert still fires. change announces the end only if the begin
// was announced, even if the rule is muted then.
func (e *Evaluator) change(ctx context.Context, w *Watched, a *Advance, change Change, m *measurement) error {
	now := m.now
	i := Incident{
		ID: a.State.Incident, TenantID: w.TenantID, RuleID: w.ID, Rule: w.Document, BeganAt: a.State.Since,
		Value: a.State.Value, Peak: a.State.Peak, Detail: a.State.Detail,
	}
	switch change {
	case Nothing:
	case Began:
		i.ID, i.BeganAt = audit.NewID(), now
		a.State.Incident, a.State.Announced, a.Began = i.ID, false, &i
	case Resolved:
		i.ID, i.BeganAt, i.EndedAt = w.State.Incident, w.State.Since, now
		announced := a.State.Announced
		a.State.Incident, a.State.Announced, a.State.Peak, a.Ended = "", false, 0, &i
		if announced {
			return e.announce(ctx, w, a, EventResolved, &i, now)
		}
		return nil
	}
	if a.State.Phase != Firing || a.State.Announced || m.silent(&w.Rule) {
		return nil
	}
	a.State.Announced = true
	return e.announce(ctx, w, a, EventBegan, &i, now)
}

// announce adds a message about the incident of to a, one for each channel of the rule. It
// skips channels that were deleted.
func (e *Evaluator) announce(ctx context.Context, w *Watched, a *Advance, event Event, of *Incident, now time.Time) error {
	for _, id := range w.Channels {
		c, err := e.cfg.Store.Channel(ctx, w.TenantID, id)
		if err != nil {
			if !isNotFound(err) {
				return err
			}
			continue // the channel was deleted
		}
		a.Deliveries = append(a.Deliveries, Delivery{
			ID: audit.NewID(), TenantID: w.TenantID, ChannelID: id, IncidentID: of.ID, Event: event,
			Body: e.cfg.Messenger.Body(c.Kind, event, of, a.State.Value, now), CreatedAt: now, DueAt: now, Status: Waiting,
		})
	}
	return nil
}
