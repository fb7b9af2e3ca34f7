package simulation

import (
	"github.com/headgate/headgate/enforcement"
)

// maxFormers is the maximum number of former values that a limit keeps after changes, as in
// plans.
const maxFormers = 4

// A policy contains the limits that are in force in a scenario, and a counter for each limit
// that was in force since the start of the scenario.
type policy struct {
	revision    int64
	counters    map[identity]*counter
	limits      []*counter // the limits in force, in the order of the scenario
	calendar    *enforcement.Calendar
	mode        enforcement.PolicyMode
	delay       int64 // in milliseconds; the delay of requests that are over the limits in mode delay
	expiry      enforcement.ReservationExpiry
	grants      []enforcement.Grant
	subject     *enforcement.Subject // result of engineSubject; nil after a change of the limits or the grants
	outstanding map[string]int64     // the ends of reservations by their IDs, in microseconds since the epoch
}

// An identity says which counter a limit uses. If only the quota, the window or the burst of a
// limit changes, it keeps its counter. If the algorithm or the anchor changes, it gets a new
// counter. A limit that is removed and added again gets its old counter back.
type identity struct {
	name      string
	algorithm enforcement.Algorithm
	anchor    enforcement.Anchor
}

// A counter contains the compiled form of a limit, and the number that identifies the limit in
// the keys of counters.
type counter struct {
	name  string
	cell  uint32
	limit enforcement.Limit
	meter *enforcement.Meter
	now   *enforcement.Meter // meter in the calendar of the scenario, for the time of the current step
}

func newPolicy(s *scenario) *policy {
	p := &policy{counters: map[identity]*counter{}, calendar: s.calendar, mode: s.mode, delay: s.delay, expiry: s.expiry}
	p.set(s.limits, 0)
	return p
}

// set replaces the limits that are in force. now is the time of the change, in microseconds
// since the epoch.
func (p *policy) set(limits []enforcement.Limit, now int64) {
	p.revision++
	p.subject = nil
	p.limits = make([]*counter, len(limits))
	for i, l := range limits {
		p.limits[i] = p.counter(l, now)
	}
}

func (p *policy) counter(l enforcement.Limit, now int64) *counter {
	id := identity{l.Name, l.Algorithm.CountsAs(), l.Anchor}
	last, known := p.counters[id]
	switch {
	case !known:
		p.counters[id] = &counter{name: l.Name, cell: uint32(len(p.counters) + 1), limit: l, meter: l.Compile(p.revision)}
	case last.meter.Numbers != l.Numbers():
		meter := l.Compile(p.revision)
		formers := last.meter.Formers
		formers = append(formers[:len(formers):len(formers)], enforcement.Former{
			Numbers: last.meter.Numbers, Rev: last.meter.Rev, Until: now, CarryOver: l.CarryOver,
		})
		meter.Formers = formers[max(0, len(formers)-maxFormers):]
		p.counters[id] = &counter{name: l.Name, cell: last.cell, limit: l, meter: meter}
	case last.meter.Rollover != l.MaxRollover || last.meter.Algorithm != l.Algorithm:
		meter := l.Compile(last.meter.Rev)
		meter.Formers = last.meter.Formers
		p.counters[id] = &counter{name: l.Name, cell: last.cell, limit: l, meter: meter}
	}
	p.counters[id].limit = l // the change may concern only the thresholds of the limit, not its numbers
	return p.counters[id]
}
