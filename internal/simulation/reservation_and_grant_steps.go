package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/strictjson"
)

// keyAttribute is the attribute by which the policy of a scenario counts. policySlug is the slug of
// this policy.
const (
	keyAttribute = "key"
	policySlug   = "simulation"
)

// partition returns the partition of a key. The rule of engineSubject computes the same partition.
func partition(key string) [16]byte {
	var p enforcement.Partition
	p.Add(attributeOf(key))
	return p.Sum()
}

// attributeOf returns the value of keyAttribute for a key. It is never empty, because an empty value is
// a missing attribute, which has another partition.
func attributeOf(key string) string { return "=" + key }

// readEngineMember reads a member of a step that only an engine can play.
func (s *step) readEngineMember(d *strictjson.Decoder, name string) {
	switch name {
	case "idempotency_key":
		if s.idempotencyKey = d.Text(); s.idempotencyKey == "" || !enforcement.ValidIdempotencyKey(s.idempotencyKey) {
			d.Fail("must be 1 to %d visible ASCII characters", enforcement.MaxIdempotencyKey)
		}
	case "reservation":
		if s.reservation = d.Text(); s.reservation == "" || len(s.reservation) > enforcement.MaxReservationID {
			d.Fail("must be 1 to %d bytes", enforcement.MaxReservationID)
		}
	case "limit":
		if s.limit = d.Text(); s.limit == "" {
			d.Fail("must not be empty")
		}
	case "units":
		s.units = d.Int(1, enforcement.MaxGrantUnits)
	default:
		d.Unknown()
	}
}

// validateEngineMembers adds a fault for each member of a reservation, an idempotent check or a
// grant that does not fit the operation of the step. at is the pointer of the step.
func (s *step) validateEngineMembers(d *strictjson.Decoder, at string) {
	op := opNames[s.op]
	if s.idempotencyKey != "" && !s.decides() {
		d.FailAt(at+"/idempotency_key", "%s takes no idempotency key", op)
	}
	switch named := s.reservation != ""; {
	case named && !s.ofReservation():
		d.FailAt(at+"/reservation", "%s takes no reservation", op)
	case !named && s.ofReservation():
		d.FailAt(at+"/reservation", "is required for %s", op)
	}
	least, most := enforcement.MinReservationLife.Milliseconds(), enforcement.MaxReservationLife.Milliseconds()
	if (s.op == reserve || s.op == extend) && (s.ttl < least || s.ttl > most) {
		d.FailAt(at+"/ttl_ms", "must be %d to %d for %s", least, most, op)
	}
	if s.repeat != 1 && s.op >= reserve {
		d.FailAt(at+"/repeat", "must be 1 for %s", op)
	}
	s.validateGrant(d, at)
}

func (s *step) validateGrant(d *strictjson.Decoder, at string) {
	switch granted := s.units != 0 || s.limit != ""; {
	case s.op != grant && granted:
		d.FailAt(at, "only grant takes limit and units")
	case s.op != grant:
	case s.ttl == 0:
		d.FailAt(at+"/ttl_ms", "is required for grant: the time until the grant ends")
	case s.units == 0:
		d.FailAt(at+"/units", "is required for grant")
	}
}

// decides reports whether the step is a check that may have an idempotency key.
func (s *step) decides() bool {
	return s.op == check || s.op == peek || s.op == force || s.op == takeUpTo
}

// ofReservation reports whether the step makes or changes a reservation.
func (s *step) ofReservation() bool { return s.op >= reserve && s.op != grant }

// needsEngine reports whether the limiter alone cannot play the step.
func (p *policy) needsEngine(s *step) bool {
	return s.op >= reserve || s.decides() && (s.idempotencyKey != "" || len(p.grants) > 0)
}

// engineSubject returns a tenant whose plan has one policy with the limits in force. number
// identifies the tenant in the keys of counters.
func (p *policy) engineSubject(number uint32) (*enforcement.Subject, error) {
	if p.subject != nil {
		return p.subject, nil
	}
	spec := enforcement.RuleSpec{
		Policy: policySlug, CountBy: []string{keyAttribute}, Mode: p.mode, DelayMS: p.delay, ReservationExpiry: p.expiry,
	}
	for _, c := range p.limits {
		spec.Limits = append(spec.Limits, enforcement.RuleLimit{Limit: c.limit, Cell: c.cell, Meter: c.meter})
	}
	plan, err := enforcement.CompilePlan(policySlug, 1, []enforcement.RuleSpec{spec})
	if err != nil {
		return nil, err
	}
	s := &enforcement.Subject{
		TenantID: policySlug, Tenant: policySlug, Number: number, Home: home, Plan: plan, Calendar: p.calendar,
	}
	if len(p.grants) > 0 {
		var faults []enforcement.ExceptionFault
		if s.Exceptions, faults = enforcement.CompileExceptions(enforcement.ExceptionSpec{Grants: p.grants}, plan, 0); len(faults) > 0 {
			return nil, faults[0].Err
		}
	}
	p.subject = s
	return s, nil
}

// endReservations ends the reservations whose end has passed. It is called before each read, so
// that a reservation ends exactly at its end. Nodes do this in the background, some time later.
func (s *runner) endReservations(ctx context.Context, p *policy) error {
	for id, until := range p.outstanding {
		if s.now.Load() < until {
			continue
		}
		subject, err := p.engineSubject(s.tenant)
		if err != nil {
			return err
		}
		if _, err := s.engine.Reservation(ctx, subject, id); err != nil && !problem.Is(err, problem.NotFound) {
			return err
		}
		delete(p.outstanding, id)
	}
	return nil
}

// keep stores the end of a reservation. endReservations reads it later.
func (p *policy) keep(r *enforcement.Reserved) {
	if p.outstanding == nil {
		p.outstanding = map[string]int64{}
	}
	if p.outstanding[r.ID] = r.ExpiresAt; r.State != enforcement.ReservationActive {
		delete(p.outstanding, r.ID)
	}
}

// engineStep plays one step with the engine.
func (s *runner) engineStep(ctx context.Context, p *policy, step *step) (answer, error) {
	if step.op == grant {
		return p.topUp(step, s.now.Load()), nil
	}
	subject, err := p.engineSubject(s.tenant)
	if err != nil {
		return answer{}, err
	}
	if step.op <= reserve {
		return s.decide(ctx, p, subject, step)
	}
	change := &enforcement.ReservationChange{ID: step.reservation, Life: time.Duration(step.ttl) * time.Millisecond}
	switch step.op {
	case settle:
		if change.State = enforcement.ReservationSettled; step.costGiven {
			change.Cost = &step.cost
		}
	case extend:
		change.State = enforcement.ReservationActive
	case giveBack:
		change.State = enforcement.ReservationReleased
	}
	changed, replayed, err := s.engine.ChangeReservation(ctx, subject, change)
	told := problem.Is(err, problem.NotFound) || problem.Is(err, problem.Conflict)
	if err != nil && !told {
		return answer{}, err
	}
	look := *step // the answer has the limits as a read returns them
	look.op, look.cost, look.repeat = peek, 0, 1
	a, failed := s.playStep(ctx, p, &look)
	if failed != nil {
		return a, failed
	}
	if a.allowed, a.allowedCount, a.retryAfter, a.replayed = !told, 1, 0, replayed; told {
		a.allowedCount, a.problem = 0, messageOf(err)
	} else {
		a.state = string(changed.State)
		p.keep(changed)
		a.charge(changed)
	}
	return a, nil
}

// charge sets what a reservation that has ended stays charged on each limit.
func (a *answer) charge(r *enforcement.Reserved) {
	if r.State == enforcement.ReservationActive {
		return
	}
	for i := range a.limits {
		for k := range r.Limits {
			if a.limits[i].name == r.Limits[k].Limit {
				a.limits[i].charged = &r.Limits[k].Cost
			}
		}
	}
}

// messageOf returns the message of a problem.
func messageOf(err error) string {
	var p *problem.Problem
	if errors.As(err, &p) {
		return p.Message
	}
	return err.Error()
}

// topUp adds a grant for a limit. If the limit cannot have grants, the answer says so.
func (p *policy) topUp(step *step, now int64) answer {
	a := answer{at: step.at, mode: p.mode}
	i := slices.IndexFunc(p.limits, func(c *counter) bool {
		return (step.limit == "" || c.name == step.limit) && c.limit.Grantable() && c.limit.Quota > 0
	})
	if i < 0 || !p.mode.Denies() {
		what := "no limit with this name"
		if step.limit == "" {
			what = "no limit of the scenario"
		}
		a.problem = what + " can have grants: only a fixed_window with a quota above 0, in mode enforce, can"
		return a
	}
	g := enforcement.Grant{
		ID: fmt.Sprintf("00000000-0000-7000-8000-%012d", len(p.grants)+1), Policy: policySlug, Limit: p.limits[i].name, Units: step.units,
		Revision: int64(len(p.grants) + 1), From: now, Until: now + step.ttl*1000,
	}
	if step.key != "" {
		g.Key = []enforcement.Attribute{{Name: keyAttribute, Value: attributeOf(step.key)}}
	}
	p.grants, p.subject = append(p.grants, g), nil
	a.allowed, a.allowedCount = true, 1
	return a
}

// decide decides the repetitions of a step with the engine.
func (s *runner) decide(ctx context.Context, p *policy, subject *enforcement.Subject, step *step) (answer, error) {
	check := enforcement.Check{
		Attributes: []enforcement.Attribute{{Name: keyAttribute, Value: attributeOf(step.key)}},
		Cost:       step.cost, Mode: enforcement.Enforce, IdempotencyKey: step.idempotencyKey, Lease: step.lease,
	}
	if step.op < reserve {
		check.Mode, check.LeaseTTL = modes[step.op], time.Duration(step.ttl)*time.Millisecond
	} else {
		check.Reservation = &enforcement.CheckReservation{ID: step.reservation, Life: time.Duration(step.ttl) * time.Millisecond}
	}
	a := answer{at: step.at, mode: p.mode}
	var d enforcement.Decision
	for range step.repeat {
		if err := ctx.Err(); err != nil {
			return a, err
		}
		d.Reset()
		s.engine.Decide(ctx, subject, &check, &d)
		if d.Degraded || d.Reason == enforcement.ReasonLimiterUnavailable {
			return a, errUndecided
		}
		a.add(&check, &d)
		if d.Reservation != nil {
			p.keep(d.Reservation)
		}
	}
	a.describe(p, &d)
	return a, nil
}

// add adds one repetition with the decision d to the answer.
func (a *answer) add(check *enforcement.Check, d *enforcement.Decision) {
	if !d.Allowed {
		return
	}
	a.allowedCount++
	over := a.mode.Soft() && slices.ContainsFunc(d.Limits, func(l enforcement.LimitState) bool { return !l.Allowed })
	switch {
	case over:
		a.over++
	case d.Idempotency == enforcement.Replayed || check.Mode == enforcement.Peek:
	case check.Mode == enforcement.TakeUpTo:
		a.granted += d.Taken
	default:
		a.granted += check.Cost
	}
}

// describe sets those fields of the answer that describe the last repetition.
func (a *answer) describe(p *policy, d *enforcement.Decision) {
	a.allowed, a.retryAfter, a.delay, a.cheap = d.Allowed, d.RetryAfter, d.Delay, d.ServeCheap
	a.replayed = d.Idempotency == enforcement.Replayed
	switch d.Idempotency {
	case enforcement.KeyReused:
		a.problem = "the idempotency key, or the ID of the reservation, belongs to another request"
	case enforcement.TooManyKeys, enforcement.TooManyReservations:
		a.problem = "the tenant has too many idempotency keys or reservations"
	}
	if d.Reservation != nil {
		a.state = string(d.Reservation.State)
	}
	for i := range d.Limits {
		l := &d.Limits[i]
		a.limits = append(a.limits, limitAnswer{
			name: l.Limit.Name, allowed: l.Allowed, remaining: l.Remaining, rolledOver: l.RolledOver,
			nearLimit: l.NearLimit(), resetAfter: l.ResetAfter, retryAfter: l.RetryAfter,
		})
	}
}

// near returns the highest warning threshold that the limit has reached, in percent, or 0 if there
// is none.
func (c *counter) near(remaining, rolledOver int64) int {
	l := enforcement.LimitState{
		Limit: &enforcement.RuleLimit{Limit: c.limit}, Remaining: remaining, RolledOver: rolledOver, Shared: true,
	}
	return l.NearLimit()
}
