package usage

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
)

// A Reservation is a reservation of a tenant that is outstanding or has ended a short time ago.
type Reservation struct {
	enforcement.Reserved
	// Place is the position in the list of outstanding reservations, or "".
	Place string
	// Places has one element for each element of Reserved.Limits. The element is true if the limit
	// is a concurrency limit. The cost is then the number of places that the reservation holds
	// until it ends.
	Places []bool
	// CostsFrom are the attributes from which policies of the reservation read a cost.
	CostsFrom []string
}

// Reservations returns at most most outstanding reservations of a tenant, ordered by their ends.
// after is the Place of the last reservation on the previous page, or "". The error is
// problem.NotFound, or problem.Unavailable if the limiter does not answer.
func (s *Service) Reservations(ctx context.Context, tenant, after string, most int) ([]Reservation, error) {
	subject, err := s.subject(tenant)
	if err != nil {
		return nil, err
	}
	found, err := s.cfg.Engine.Reservations(ctx, subject, after, most)
	list := make([]Reservation, len(found))
	for i := range found {
		list[i] = describe(subject, &found[i].Reserved)
		list[i].Place = found[i].Place
	}
	return list, err
}

// Reservation returns a reservation of a tenant. The errors are those of Reservations, and problem.NotFound if the
// tenant has no such reservation.
func (s *Service) Reservation(ctx context.Context, tenant, id string) (Reservation, error) {
	subject, err := s.subject(tenant)
	if err != nil {
		return Reservation{}, err
	}
	found, err := s.cfg.Engine.Reservation(ctx, subject, id)
	if err != nil {
		return Reservation{}, err
	}
	return describe(subject, found), nil
}

// describe adds to a reservation the data about its limits that the plan of the tenant contains.
func describe(s *enforcement.Subject, r *enforcement.Reserved) Reservation {
	out := Reservation{Reserved: *r, Places: make([]bool, len(r.Limits))}
	if s.Plan == nil {
		return out
	}
	for i, l := range r.Limits {
		rule, known := s.Plan.Rule(l.Policy)
		if !known {
			continue
		}
		out.Places[i] = slices.ContainsFunc(rule.Limits, func(of enforcement.RuleLimit) bool {
			return of.Name == l.Limit && of.Algorithm == enforcement.Concurrency
		})
		if rule.CostFrom != "" && !slices.Contains(out.CostsFrom, rule.CostFrom) {
			out.CostsFrom = append(out.CostsFrom, rule.CostFrom)
		}
	}
	return out
}

// A ReservationChange says how a person changes a reservation. If Extend is not 0, the reservation
// gets a new end, and Extend is the time from now to this end. Otherwise the reservation ends. If
// Settle is set, the actual cost is charged. If not, the reserved cost is given back.
type ReservationChange struct {
	ID     string
	Extend time.Duration
	Settle bool
	// Cost is the actual cost, for Settle; nil keeps the estimate. Attributes replace the attributes of the check,
	// for policies with cost_from.
	Cost       *int64
	Attributes map[string]string
	Reason     string
}

// ChangeReservation changes a reservation of a tenant. Like Reset, it writes the audit line first. The errors are those
// of Reservation, problem.Invalid at /ttl_ms, /cost, /attributes/name or /reason, and problem.Conflict if the
// reservation has ended.
func (s *Service) ChangeReservation(ctx context.Context, tenant string, c ReservationChange) (Reservation, error) {
	if s.cfg.Exceptions == nil {
		return Reservation{}, problem.New(problem.Unavailable, "this node does not manage exceptions")
	}
	subject, err := s.subject(tenant)
	if err != nil {
		return Reservation{}, err
	}
	change, note := &enforcement.ReservationChange{ID: c.ID, State: enforcement.ReservationReleased}, exceptions.ReservationNote{
		Action: "reservation.release", Reservation: c.ID, Reason: c.Reason,
	}
	switch {
	case c.Extend != 0:
		change.State, change.Life = enforcement.ReservationActive, c.Extend
		note.Action, note.TTL = "reservation.extend", c.Extend
	case c.Settle:
		change.State, change.Cost = enforcement.ReservationSettled, c.Cost
		note.Action, note.Cost, note.Attributes = "reservation.settle", c.Cost, c.Attributes
	}
	if change.Attributes, err = c.validate(subject); err != nil {
		return Reservation{}, err
	}
	was, err := s.cfg.Engine.Reservation(ctx, subject, c.ID)
	if err != nil {
		return Reservation{}, err
	}
	if was.State == enforcement.ReservationActive { // otherwise ChangeReservation returns the error
		if err := s.cfg.Exceptions.NoteReservation(ctx, subject.TenantID, note); err != nil {
			return Reservation{}, err
		}
	}
	changed, _, err := s.cfg.Engine.ChangeReservation(ctx, subject, change)
	if err != nil {
		return Reservation{}, err
	}
	return describe(subject, changed), nil
}

// validate returns the attributes with which a reservation is settled.
func (c *ReservationChange) validate(s *enforcement.Subject) ([]enforcement.Attribute, error) {
	var f problem.Fields
	if c.Extend != 0 && (c.Extend < enforcement.MinReservationLife || c.Extend > enforcement.MaxReservationLife) {
		f.Add("/ttl_ms", "must be from %d to %d", enforcement.MinReservationLife.Milliseconds(), enforcement.MaxReservationLife.Milliseconds())
	}
	if c.Cost != nil && (*c.Cost < 0 || *c.Cost > enforcement.MaxCost) {
		f.Add("/cost", "must be from 0 to %d", int64(enforcement.MaxCost))
	}
	var check enforcement.Check
	for _, name := range slices.Sorted(maps.Keys(c.Attributes)) {
		if err := check.AddAttribute(name, c.Attributes[name]); err != nil {
			f.Add("/attributes/"+problem.Escape(name), "%v", err)
		}
	}
	if name, fault := s.CostFault(&check); name != "" {
		f.Add("/attributes/"+problem.Escape(name), "%s", fault)
	}
	return check.Attributes, f.Err()
}
