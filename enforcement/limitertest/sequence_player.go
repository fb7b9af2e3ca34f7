package limitertest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// A player plays one sequence with the limiter, the model and the reference.
type player struct {
	w         *harness
	limits    []*limited
	grants    []granted // sorted by their ends
	model     *model
	reference *reference
	records   map[enforcement.Key]record
	// ended counts, for each idempotency key of a sequence, how often its record has ended. If the clock steps back after
	// that, a limiter may or may not have deleted the record. Therefore another key is used after each end.
	ended [3]byte
	// changes is set if the calendar of the tenant changes.
	changes bool
}

// player returns a player for the sequence, with unused counters.
func (s *sequence) player(w *harness) *player {
	w.renew()
	p := &player{
		w: w, model: newModel(), reference: &reference{states: map[enforcement.Key]enforcement.State{}},
		records: map[enforcement.Key]record{}, changes: s.calendar < 0,
	}
	for _, l := range s.limits {
		p.limits = append(p.limits, newLimited(l))
	}
	p.grants = s.grants
	return p
}

// playOn plays the sequence on unused counters.
func (s *sequence) playOn(w *harness) error {
	p := s.player(w)
	for i := range s.steps {
		if err := p.move(&s.steps[i]); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, &s.steps[i], err)
		}
	}
	return nil
}

func (p *player) move(m *move) error {
	p.w.clock.Set(Start + m.at)
	p.end()
	if m.change >= 0 {
		p.limits[m.change].change(m.to, Start+m.at)
	}
	requests := make([]enforcement.Request, len(m.requests))
	for i := range m.requests {
		requests[i] = p.request(&m.requests[i])
	}
	outcomes, err := p.take(requests)
	if err != nil {
		return err
	}
	last := len(requests) - 1
	if m.requests[last].follow && requests[last].Mode == enforce && outcomes[last].Verdict == enforcement.Refused {
		return p.follow(requests[last], &outcomes[last])
	}
	return nil
}

func (p *player) request(a *ask) enforcement.Request {
	var charges []enforcement.Charge
	for _, c := range a.charges {
		l := p.limits[c.limit]
		m := l.at(max(l.now().Rev-c.back, 1)).In(sequenceCalendars[a.calendar], p.w.clock.Now()+a.skew)
		charges = append(charges, enforcement.Charge{
			Key: p.w.key(uint32(c.limit)+1, c.partition), Meter: m, Rev: m.Rev, Cost: c.cost, Group: c.group,
		})
		charges = p.addGrants(charges, a, &c)
	}
	r := p.w.request(a.mode, charges...)
	r.Lease = enforcement.Lease{ID: [16]byte{a.lease, 12: 1}, TTL: a.ttl}
	if a.key != 0 {
		r = p.w.idempotent(r, p.keyOf(a.key), a.what)
		r.Idempotency.Charges = hashOf(charges)
	}
	return r
}

// keyOf returns the idempotency key that stands for key.
func (p *player) keyOf(key byte) byte { return key + 2*p.ended[key] }

// end notes which records have ended.
func (p *player) end() {
	for key := byte(1); key < 3; key++ {
		stored, ok := p.records[p.w.key(enforcement.IdempotencyCell, p.keyOf(key))]
		if ok && p.w.clock.Now() >= stored.outcome.At+enforcement.IdempotencyPeriod.Microseconds() {
			p.ended[key]++
		}
	}
}

// hashOf returns a hash of charges and their numbers.
func hashOf(charges []enforcement.Charge) [16]byte {
	text := ""
	for i := range charges {
		c := &charges[i]
		text += fmt.Sprintln(c.Key, c.Meter.Numbers, c.Meter.Edges, c.Rev, c.Cost, c.Group)
	}
	sum := sha256.Sum256([]byte(text))
	return [16]byte(sum[:16])
}

// take passes requests to the limiter, the model and the reference, and compares the
// results.
func (p *player) take(requests []enforcement.Request) ([]enforcement.Outcome, error) {
	p.end()
	outcomes := make([]enforcement.Outcome, len(requests))
	p.w.limiter.Take(context.Background(), requests, outcomes)
	for i := range requests {
		if err := p.verify(&requests[i], &outcomes[i]); err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
	}
	return outcomes, nil
}

// verify compares an outcome with the model and the reference, to which it also applies the request.
func (p *player) verify(r *enforcement.Request, o *enforcement.Outcome) error {
	if known, err := p.repeats(r, o); known || err != nil {
		return err
	}
	if _, err := p.decided(r, o); err != nil {
		return err
	}
	if r.Idempotent() && r.Mode != enforcement.Peek && o.Verdict == enforcement.Granted {
		p.records[r.Idempotency.Key] = record{*r.Idempotency, *o, r.ID}
	}
	return nil
}

// decided does the work of verify for a request that no record decides. It returns the answer of the model.
func (p *player) decided(r *enforcement.Request, o *enforcement.Outcome) (*answer, error) {
	now := p.w.clock.Now()
	modeled := p.model.Take(r, now)
	states := p.reference.take(r, &modeled, now)
	if err := check(r, o, now); err != nil {
		return nil, err
	}
	if o.Verdict != modeled.Verdict || o.Units != modeled.Units {
		return nil, fmt.Errorf("%s, %d units; the model says %s, %d", o.Verdict, o.Units, modeled.Verdict, modeled.Units)
	}
	for j := range r.Charges {
		if err := compare(r, o, j, &modeled.Charges[j], &states[j]); err != nil {
			return nil, fmt.Errorf("charge %d: %w", j, err)
		}
	}
	return &modeled, nil
}

// repeats reports whether the idempotency key of a request has a record. It returns an error if there is a record and
// the outcome differs from it, or if there is none and the outcome is a repetition.
func (p *player) repeats(r *enforcement.Request, o *enforcement.Outcome) (known bool, err error) {
	var want record
	if r.Idempotent() {
		want, known = p.records[r.Idempotency.Key]
		known = known && p.w.clock.Now() < want.outcome.At+enforcement.IdempotencyPeriod.Microseconds()
	}
	switch {
	case !known && (o.Replayed || o.Verdict == enforcement.Reused):
		return false, fmt.Errorf("replayed %t, verdict %s, but there is no record", o.Replayed, o.Verdict)
	case !known:
		return false, nil
	case want.Request == r.Idempotency.Request:
		return true, want.repeatedBy(r, o)
	case o.Verdict != enforcement.Reused || len(o.Charges) != 0:
		return true, fmt.Errorf("verdict %s for the key of another request", o.Verdict)
	}
	return true, nil
}

// repeatedBy returns an error unless the outcome o of the repetition r equals the outcome in the record.
func (want *record) repeatedBy(r *enforcement.Request, o *enforcement.Outcome) error {
	first := &want.outcome
	if o.Verdict != enforcement.Granted || !o.Replayed || o.First != want.first || o.At != first.At || o.Units != first.Units {
		return fmt.Errorf("verdict %s, replayed %t, at %d, %d units for a repetition; want granted, true, %d, %d",
			o.Verdict, o.Replayed, o.At, o.Units, first.At, first.Units)
	}
	charges := first.Charges
	if want.Charges != r.Idempotency.Charges {
		charges = nil
	}
	if len(o.Charges) != len(charges) {
		return fmt.Errorf("%d charges of a repetition, want %d", len(o.Charges), len(charges))
	}
	for i := range charges {
		got, want := o.Charges[i], charges[i]
		got.State.Holders, want.State.Holders = nil, nil
		if r.Charges[i].Grant { // its Cost is not set for a repetition
			got.Cost, want.Cost = 0, 0
		}
		if got.State.Log, want.State.Log = nil, nil; !reflect.DeepEqual(got, want) {
			return fmt.Errorf("charge %d of a repetition: %+v, the first had %+v", i, got, want)
		}
	}
	return nil
}

// compare compares the result of the Limiter for one charge with the results of the model and the reference.
func compare(r *enforcement.Request, o *enforcement.Outcome, j int, want *answered, state *enforcement.State) error {
	c, got := &r.Charges[j], &o.Charges[j]
	if got.Cost != want.Cost || got.Fits != want.Fits {
		return fmt.Errorf("cost %d, fits %t; the model says %d, %t", got.Cost, got.Fits, want.Cost, want.Fits)
	}
	if err := same(&got.State, state); err != nil {
		return err
	}
	if left := c.Meter.Remaining(got.State, o.At); left != want.Remaining {
		return fmt.Errorf("%d remaining, the model says %d", left, want.Remaining)
	}
	if err := want.checkDelay(r, o, j); err != nil || c.Grant {
		return err // a grant does not begin again, so it has no reset and retry times
	}
	if got.Fits && o.At%4 != 0 {
		return nil // checkTimes is slow, so it checks only a quarter of the charges that fit
	}
	retryAfter, possible := c.Meter.RetryAfterFor(got.State, o.At, got.Cost, &r.Lease)
	resetAfter := c.Meter.ResetAfter(got.State, o.At)
	return want.counter.checkTimes(c.Meter, c.Rev, o.At, got.Cost, resetAfter, retryAfter, possible, r.Lease.ID)
}

// follow checks the retry time of a denied request, rounded up to a millisecond. A Peek
// of the request must be granted at that time, and denied a millisecond before.
func (p *player) follow(r enforcement.Request, o *enforcement.Outcome) error {
	var longest int64
	for i := range r.Charges {
		c, got := &r.Charges[i], &o.Charges[i]
		if c.Meter.Algorithm == enforcement.Concurrency && got.Fits {
			return nil // it may fit only as long as the lease of the request has not ended
		}
		if c.Meter.Rollover > 0 && p.rollsInexactly(&r, c, got, o.At) {
			return nil
		}
		if c.Group != 0 || got.Fits {
			continue
		}
		if c.Rev < got.State.Rev {
			return nil // for a caller with old numbers, the retry time is not exact
		}
		if slices.ContainsFunc(c.Meter.Formers, func(f enforcement.Former) bool { return o.At < f.Until }) {
			return nil // the clock stepped back before a change of numbers, so a former rate is in force
		}
		micros, ok := c.Meter.RetryAfterFor(got.State, o.At, got.Cost, &r.Lease)
		if n := grantsOf(r.Charges, i); n > 0 {
			if r.Mode != enforcement.Enforce || got.Cost != c.Cost || p.shareGrants(&r) {
				return nil // other charges of the request spend the same grants
			}
			micros, ok = enforcement.RetryWithGrants(r.Charges[i:i+n+1], o.Charges[i:i+n+1], o.At, 0, got.Cost)
		}
		if !ok || micros >= 1<<50 {
			return nil
		}
		longest = max(longest, (micros+999)/1000*1000)
	}
	enforced := slices.IndexFunc(r.Charges, func(c enforcement.Charge) bool { return c.Group != 0 })
	if enforced < 0 {
		enforced = len(r.Charges)
	}
	if p.shareGrants(&r) {
		return nil
	}
	longest, ok := enforcement.RetryOfAll(r.Charges[:enforced], o.Charges[:enforced], o.At, longest)
	if !ok {
		return nil
	}
	return p.peekAround(r, o.At, longest)
}

// peekAround makes two peeks of a request that was denied at the time at. After the retry time longest, the peek must be
// granted. A millisecond before, it must be denied.
func (p *player) peekAround(r enforcement.Request, at, longest int64) error {
	r.Mode = enforcement.Peek
	for _, try := range []struct {
		at   int64
		want enforcement.Verdict
	}{{at + longest - 1000, enforcement.Refused}, {at + longest, enforcement.Granted}} {
		p.w.clock.Set(try.at)
		for i := range r.Charges {
			r.Charges[i].Meter = nextMeter(r.Charges[i].Meter, try.at)
		}
		outcomes, err := p.take([]enforcement.Request{r})
		if err != nil {
			return fmt.Errorf("following the retry time of %d µs: %w", longest, err)
		}
		if outcomes[0].Verdict != try.want {
			return fmt.Errorf("%d µs after a denial with a retry time of %d µs: %s", try.at-at, longest, outcomes[0].Verdict)
		}
	}
	p.w.clock.Set(at)
	return nil
}

// rollsInexactly reports whether the retry time of a charge may be inexact, on a limit that rolls units over. This is so
// if the clock stepped back before the window, or if the cost only fits while units are rolled over. In the second case,
// another charge may deny for longer; and after a change of the calendar, the number of windows without a charge is
// inexact.
func (p *player) rollsInexactly(r *enforcement.Request, c *enforcement.Charge, got *enforcement.Charged, at int64) bool {
	return got.State.T > at || got.Cost > c.Meter.Quota && (len(r.Charges) > 1 || p.changes)
}
