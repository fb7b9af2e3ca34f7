package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/enforcement"
)

// longWindow is the shortest window whose usage is charged to the live limiter at the end of
// the history.
const longWindow = time.Hour

// A used is the number of units that the history has charged to a counter in the counter's current
// window.
type used struct {
	subject *enforcement.Subject
	limit   *enforcement.RuleLimit
	meter   *enforcement.Meter // meter of the limit; for a calendar window, in the time zone of the tenant
	cost    int64
}

// usage adds an element to the map into for each counter with a long window: the units that the
// history has charged to the counter, as of the end of the history.
func (h *history) usage(ctx context.Context, subjects map[string]*enforcement.Subject, into map[enforcement.Key]used) {
	h.now.Store(h.until.UnixMicro())
	seen := make(map[enforcement.Key]bool)
	ask := func(s *enforcement.Subject, u *user, r *route) {
		check := enforcement.Check{Method: r.method, Path: r.paths[0], Attributes: u.attributes, IP: u.ip, Mode: enforcement.Peek}
		h.engine.Decide(ctx, s, &check, &h.decision)
		for i := range h.decision.Limits {
			l := &h.decision.Limits[i]
			key := enforcement.Key{Tenant: s.Number, Cell: l.Limit.Cell, Partition: l.Partition}
			if l.Limit.Window < longWindow || l.Limit.Algorithm.Bucket() || l.Remaining >= l.Quota() || seen[key] {
				continue
			}
			seen[key] = true
			into[key] = used{s, l.Limit, l.Limit.Meter.In(s.Calendar, h.until.UnixMicro()), into[key].cost + l.Quota() - l.Remaining}
		}
	}
	for i := range h.users.crowds {
		c := &h.users.crowds[i]
		s := subjects[c.tenant]
		if s == nil {
			continue
		}
		for u := range c.users {
			for r := range c.routes {
				ask(s, &c.users[u], &c.routes[r])
			}
		}
		for m := range c.machines {
			ask(s, &c.machines[m].user, &c.machines[m].route)
		}
	}
}

// carry charges the live limiter with what the history has used. For example, the usage of the
// current month then continues. carry makes no decisions, so nothing is counted.
func carry(ctx context.Context, to enforcement.Limiter, all map[enforcement.Key]used) error {
	outcomes := make([]enforcement.Outcome, 1)
	for key, u := range all {
		to.Take(ctx, []enforcement.Request{{
			ID: uuid.Must(uuid.NewV7()), Mode: enforcement.Force, Home: u.subject.Home,
			Charges: []enforcement.Charge{{Key: key, Meter: u.meter, Rev: max(u.limit.Meter.Rev, u.subject.PlanRevision), Cost: u.cost}},
		}}, outcomes)
		if !outcomes[0].Verdict.Decided() {
			return fmt.Errorf("charge what limit %s of tenant %s was used: %s: %w", u.limit.Name, u.subject.Tenant, outcomes[0].Verdict,
				outcomes[0].Err)
		}
	}
	return nil
}
