package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/enforcement"
)

// longWindow is the shortest window whose usage in the history still matters live.
const longWindow = time.Hour

// A used is what a counter was charged in the history.
type used struct {
	subject *enforcement.Subject
	limit   *enforcement.RuleLimit
	cost    int64
}

// usage adds what the long windows of every user's counters hold at the end of the history.
func (h *history) usage(ctx context.Context, subjects map[string]*enforcement.Subject, into map[enforcement.Key]used) {
	h.now.Store(h.until.UnixMicro())
	seen := make(map[enforcement.Key]bool)
	ask := func(s *enforcement.Subject, u *user, r *route) {
		check := enforcement.Check{Method: r.method, Path: r.paths[0], Attributes: u.attributes, IP: u.ip, Mode: enforcement.Peek}
		h.engine.Decide(ctx, s, &check, &h.decision)
		for i := range h.decision.Limits {
			l := &h.decision.Limits[i]
			key := enforcement.Key{Tenant: s.Number, Cell: l.Limit.Cell, Partition: l.Partition}
			if l.Limit.Window < longWindow || l.Limit.Algorithm.Bucket() || l.Remaining >= l.Limit.Quota || seen[key] {
				continue
			}
			seen[key] = true
			into[key] = used{s, l.Limit, into[key].cost + l.Limit.Quota - l.Remaining}
		}
	}
	for i := range h.world.crowds {
		c := &h.world.crowds[i]
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

// carry charges the usage of the history to the live limiter, so that a monthly quota is used as
// the history says. It is not a decision and is not counted.
func carry(ctx context.Context, to enforcement.Limiter, all map[enforcement.Key]used) error {
	outcomes := make([]enforcement.Outcome, 1)
	for key, u := range all {
		to.Take(ctx, []enforcement.Request{{
			ID: uuid.Must(uuid.NewV7()), Mode: enforcement.Force, Home: u.subject.Home,
			Charges: []enforcement.Charge{{Key: key, Meter: u.limit.Meter, Rev: max(u.limit.Meter.Rev, u.subject.PlanRevision), Cost: u.cost}},
		}}, outcomes)
		if !outcomes[0].Verdict.Decided() {
			return fmt.Errorf("charge what limit %s of tenant %s was used: %s: %w", u.limit.Name, u.subject.Tenant, outcomes[0].Verdict,
				outcomes[0].Err)
		}
	}
	return nil
}
