package simulation

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"strconv"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// home is the hash tag in the keys of all simulations. With Redis, it puts all of them into one
// hash slot.
const home = "simulation"

// chunk is the maximum number of repetitions of a step in one call of the limiter.
const chunk = 64

var errUndecided = errors.New("the limiter returned no reason")

// play plays a scenario on the limiter of s under a new tenant number. It returns one answer
// for each step. The error is a *problem.Problem, or the error of ctx if ctx has ended.
func (s *runner) play(ctx context.Context, scenario *scenario) ([]answer, error) {
	s.tenant++
	p := newPolicy(scenario)
	answers := make([]answer, len(scenario.steps))
	for i := range scenario.steps {
		step := &scenario.steps[i]
		now := (scenario.start + step.at) * 1000
		s.now.Store(now)
		s.counters += len(p.limits)
		if step.op == setLimits {
			p.set(step.limits, now)
			answers[i] = answer{at: step.at, allowed: true, allowedCount: step.repeat}
			continue
		}
		a, err := s.playStep(ctx, p, step)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, &problem.Problem{
				Kind: problem.Unavailable, Message: "the limiter did not decide", Cause: err,
				Fields: []problem.Field{{Pointer: "/steps/" + strconv.Itoa(i), Message: "the limiter did not decide: " + err.Error()}},
			}
		}
		answers[i] = a
	}
	return answers, nil
}

// playStep plays one step with the limiter or, if the limiter alone cannot, with the engine.
func (s *runner) playStep(ctx context.Context, p *policy, step *step) (answer, error) {
	if err := s.endReservations(ctx, p); err != nil {
		return answer{}, err
	}
	if p.needsEngine(step) {
		return s.engineStep(ctx, p, step)
	}
	return s.step(ctx, p, step)
}

// step sends the request of one step to the limiter as many times as the step says, all at the same
// simulated time. If a repetition changes no counter, all further repetitions have the same result,
// and step does not send them.
func (s *runner) step(ctx context.Context, p *policy, step *step) (answer, error) {
	s.request(p, step)
	a := answer{at: step.at}
	for left := step.repeat; left > 0; {
		if err := ctx.Err(); err != nil {
			return a, err
		}
		n := int(min(left, chunk))
		if idle(step) {
			n = 1
		}
		s.leases(step, n)
		s.limiter.Take(ctx, s.requests[:n], s.outcomes[:n])
		last := 0
		for i := range n {
			o := &s.outcomes[i]
			if !o.Verdict.Decided() {
				return a, cmp.Or(o.Err, errUndecided)
			}
			last, left = i, left-1
			if o.Verdict == enforcement.Refused {
				if p.mode.Soft() { // nothing is charged, so all further repetitions have the same result
					a.allowedCount, a.over = a.allowedCount+left+1, a.over+left+1
				}
				left = 0
				break
			}
			a.count(step, o, 1)
		}
		if left > 0 && idle(step) {
			a.count(step, &s.outcomes[0], left)
			left = 0
		}
		if left == 0 {
			a.fill(p, step, &s.outcomes[last], &s.requests[last].Lease)
		}
	}
	return a, nil
}

// idle reports whether the step never changes a counter, even if the request is granted.
func idle(s *step) bool { return s.op == peek || s.op == reset || s.cost == 0 }

// request prepares the charges and the requests in s for the repetitions of a step. All
// repetitions use the same request.
func (s *runner) request(p *policy, step *step) {
	sum := partition(step.key)
	s.charges = s.charges[:0]
	for _, c := range p.limits {
		c.now = c.meter.In(p.calendar, s.now.Load())
		s.charges = append(s.charges, enforcement.Charge{
			Key:   enforcement.Key{Tenant: s.tenant, Cell: c.cell, Partition: sum},
			Meter: c.now, Rev: c.meter.Rev, Cost: step.cost,
		})
	}
	for i := range s.requests {
		s.requests[i] = enforcement.Request{Mode: modes[step.op], Home: home, Charges: s.charges}
	}
}

// leases sets the leases of the next n requests of a step.
func (s *runner) leases(step *step, n int) {
	for i := range n {
		l := &s.requests[i].Lease
		l.TTL = step.ttl * 1000
		if step.lease != "" {
			l.ID = enforcement.LeaseID(step.lease)
			continue
		}
		s.lease++
		binary.BigEndian.PutUint64(l.ID[:], s.lease)
	}
}

// count adds to the answer a the result of times repetitions, each with the outcome o: the number
// of granted repetitions, and the number of charged units.
func (a *answer) count(step *step, o *enforcement.Outcome, times int64) {
	a.allowedCount += times
	switch step.op {
	case check, acquire, force:
		a.granted += times * step.cost
	case takeUpTo:
		a.granted += times * o.Units
	}
}

// fill sets the fields of the answer a that describe the state after the step. o is the outcome
// of the last repetition.
func (a *answer) fill(p *policy, step *step, o *enforcement.Outcome, lease *enforcement.Lease) {
	over := o.Verdict == enforcement.Refused && p.mode.Soft()
	a.allowed, a.mode = o.Verdict == enforcement.Granted || over || step.op == force, p.mode
	if over {
		a.soften(p)
	}
	a.limits = make([]limitAnswer, len(p.limits))
	for i, c := range p.limits {
		m, charged := c.now, &o.Charges[i]
		l := &a.limits[i]
		*l = limitAnswer{
			name:       c.name,
			allowed:    charged.Fits,
			remaining:  m.Remaining(charged.State, o.At),
			rolledOver: m.RolledOver(&charged.State),
			resetAfter: enforcement.Milliseconds(m.ResetAfter(charged.State, o.At)),
		}
		l.nearLimit = c.near(l.remaining, l.rolledOver)
		a.delay = max(a.delay, delay(m, charged, step, o))
		if l.allowed {
			continue
		}
		if step.op == force {
			l.remaining = 0
		}
		l.retryAfter = retryAfter(m, charged.State, o.At, step, lease)
		if !a.allowed {
			a.retryAfter = later(a.retryAfter, l.retryAfter)
		}
	}
	if !a.allowed && a.retryAfter == 0 {
		a.retryAfter = enforcement.Never // a step take_up_to with cost 0 is never granted
	}
}

// soften sets what the mode of a soft policy changes in the answer to a request over its limits.
func (a *answer) soften(p *policy) {
	if p.mode == enforcement.PolicyDelay {
		a.delay = p.delay
	} else {
		a.cheap = true
	}
}

// delay returns the time in milliseconds for which a granted request waits because of a limit.
func delay(m *enforcement.Meter, charged *enforcement.Charged, step *step, o *enforcement.Outcome) int64 {
	cost := step.cost
	switch {
	case o.Verdict != enforcement.Granted:
		return 0
	case step.op == takeUpTo:
		cost = o.Units
	case step.op != check && step.op != acquire && step.op != peek:
		return 0
	}
	return enforcement.Milliseconds(m.Delay(&charged.State, cost))
}

// retryAfter returns the time in milliseconds after which the limit would grant the step. For
// take_up_to, that is the time until one unit is left. For other operations, it is the time
// until the whole cost is left. It returns enforcement.Never if waiting does not help.
func retryAfter(m *enforcement.Meter, state enforcement.State, now int64, step *step, lease *enforcement.Lease) int64 {
	cost := step.cost
	if step.op == takeUpTo {
		cost = 1
	}
	micros, ok := m.RetryAfterFor(state, now, cost, lease)
	if !ok {
		return enforcement.Never
	}
	return enforcement.Milliseconds(micros)
}

// later returns the longer of two durations. enforcement.Never is longer than all others.
func later(a, b int64) int64 {
	if a == enforcement.Never || b == enforcement.Never {
		return enforcement.Never
	}
	return max(a, b)
}
