package alerts

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
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
	// Logger logs the first of several consecutive failures, and the first success after them.
	// Default: no logging.
	Logger *slog.Logger
}

// The name and the duration of the lease. Only the node that holds the lease evaluates rules. If
// the node does not renew the lease, the lease ends, and another node takes over.
const (
	evaluationLease     = "alerts"
	evaluationLeaseLife = 18 * time.Second // with the interval of 10 s, another node takes over within 30 s
)

// An Evaluator evaluates all rules while its process holds the lease. Every node runs an
// Evaluator.
type Evaluator struct {
	cfg     EvaluatorConfig
	holds   bool // set if this process held the lease in the last evaluation
	failing bool
	pruned  time.Time
	last    string // the slug of the last tenant that nextTurn returned
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
	m := measurement{Figures: &e.cfg.Figures, now: now, windows: windows, turn: sync.OnceValue(e.nextTurn)}
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

// evaluate computes and stores the next state of one rule.
func (e *Evaluator) evaluate(ctx context.Context, m *measurement, w *Watched) error {
	a := Advance{RuleID: w.ID, Seq: w.Seq}
	own, each := w.State, w.State.Tenants
	own.Tenants = nil
	var err error
	switch {
	case w.EachTenant:
		a.State, err = e.stepEach(ctx, m, &w.Rule, own, each, &a)
	case len(each) > 0: // the rule watched each tenant until it was changed
		for slug, before := range each {
			err = errors.Join(err, e.end(ctx, m, ofTenant(&w.Rule, slug), before, &a))
		}
	default:
		a.State, err = e.step(ctx, m, &w.Rule, own, &a)
	}
	if err != nil || !a.State.worthWriting(&w.State) {
		return err
	}
	_, err = e.cfg.Store.Advance(ctx, a) // if Advance returns false, the rule was changed, or another node has evaluated it
	return err
}

// step returns the state of a rule that follows the state before. It adds the incidents and the
// messages of the change to a. If the figure cannot be measured, step changes only State.Err. If
// the rule watches each tenant and this tenant does not have the figure, step returns the zero
// State.
func (e *Evaluator) step(ctx context.Context, m *measurement, r *Rule, before State, a *Advance) (State, error) {
	value, detail := float64(0), ""
	if !r.Disabled {
		var err error
		value, detail, err = m.measure(ctx, r)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return before, err
		case r.EachTenant && (errors.Is(err, errNoTenant) || problem.Is(err, problem.NotFound)):
			return State{}, e.end(ctx, m, *r, before, a) // the tenant is deleted, or its plan does not have the policy
		default:
			before.Err = err.Error()
			return before, nil
		}
	}
	after, change := r.Step(before, value, m.now)
	after.Detail = detail
	return after, e.change(ctx, m, r, before, &after, change, a)
}

// end ends the alert of a rule whose figure is no longer measured.
func (e *Evaluator) end(ctx context.Context, m *measurement, r Rule, before State, a *Advance) error {
	r.Disabled = true
	_, err := e.step(ctx, m, &r, before, a)
	return err
}

// change adds the incident and the messages of a change to a. If the rule is muted or in a
// maintenance window, change does not announce the beginning of the alert. The first evaluation
// after this time announces it, if the alert is still firing. change announces the end of an alert
// only if its beginning was announced. In this case, it announces the end even if the rule is
// muted.
func (e *Evaluator) change(ctx context.Context, m *measurement, r *Rule, before State, s *State, change Change, a *Advance) error {
	now := m.now
	i := Incident{
		ID: s.Incident, TenantID: r.TenantID, RuleID: r.ID, Rule: r.Document, BeganAt: s.Since, Value: s.Value, Peak: s.Peak, Detail: s.Detail,
	}
	switch change {
	case Nothing:
	case Began:
		i.ID, i.BeganAt = audit.NewID(), now
		s.Incident, s.Announced, a.Began = i.ID, false, append(a.Began, i)
	case Resolved:
		i.ID, i.BeganAt, i.EndedAt = before.Incident, before.Since, now
		announced := s.Announced
		s.Incident, s.Announced, s.Peak, a.Ended = "", false, 0, append(a.Ended, i)
		if announced {
			return e.announce(ctx, r, s, a, EventResolved, &i, now)
		}
		return nil
	}
	if s.Phase != Firing || s.Announced || m.silent(r) {
		return nil
	}
	s.Announced = true
	return e.announce(ctx, r, s, a, EventBegan, &i, now)
}

// announce adds messages about the incident of to a, one for each channel of the rule. It skips
// deleted channels.
func (e *Evaluator) announce(ctx context.Context, r *Rule, s *State, a *Advance, event Event, of *Incident, now time.Time) error {
	for _, id := range r.Channels {
		c, err := e.cfg.Store.Channel(ctx, r.TenantID, id)
		if err != nil {
			if !isNotFound(err) {
				return err
			}
			continue // the channel was deleted
		}
		a.Deliveries = append(a.Deliveries, Delivery{
			ID: audit.NewID(), TenantID: r.TenantID, ChannelID: id, IncidentID: of.ID, Event: event,
			Body: e.cfg.Messenger.Body(c.Kind, event, of, s.Value, now), CreatedAt: now, DueAt: now, Status: Waiting,
		})
	}
	return nil
}
