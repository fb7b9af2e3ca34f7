package simulation

import (
	"github.com/headgate/headgate/enforcement"
)

// maxFormers is the maximum number of former values that a limit keeps after changes. It is the
// same as for plans.
const maxFormers = 4

// A policy has the limits that are in force in a scenario, and the counters of all limits that were
// in force since its start.
type policy struct {
	revision int64
	counters map[identity]*counter
	limits   []*counter // in force, in the order of the scenario
	calendar *enforcement.Calendar
}

// An identity says which counter a limit uses. A limit keeps its counter if only the quota, the
// window or the burst changes. With another algorithm or anchor, it gets a new counter. A limit
// that is removed and added again gets its old counter back.
type identity struct {
	name      string
	algorithm enforcement.Algorithm
	anchor    enforcement.Anchor
}

// A counter is a limit with its compiled form and the number that identifies its counters in keys.
type counter struct {
	name  string
	cell  uint32
	meter *enforcement.Meter
	now   *enforcement.Meter // meter in the calendar of the scenario, at the time of the step
}

func newPolicy(limits []enforcement.Limit, calendar *enforcement.Calendar) *policy {
	p := &policy{counters: map[identity]*counter{}, calendar: calendar}
	p.set(limits, 0)
	return p
}

// set replaces the limits that are in force. now is in microseconds since the epoch.
func (p *policy) set(limits []enforcement.Limit, now int64) {
	p.revision++
	p.limits = make([]*counter, len(limits))
	for i, l := range limits {
		p.limits[i] = p.counter(l, now)
	}
}

func (p *policy) counter(l enforcement.Limit, now int64) *counter {
	id := identity{l.Name, l.Algorithm, l.Anchor}
	last, known := p.counters[id]
	switch {
	case !known:
		p.counters[id] = &counter{name: l.Name, cell: uint32(len(p.counters) + 1), meter: l.Compile(p.revision)}
	case last.meter.Numbers != l.Numbers():
		meter := l.Compile(p.revision)
		formers := last.meter.Formers
		formers = append(formers[:len(formers):len(formers)], enforcement.Former{
			Numbers: last.meter.Numbers, Rev: last.meter.Rev, Until: now,
		})
		meter.Formers = formers[max(0, len(formers)-maxFormers):]
		p.counters[id] = &counter{name: l.Name, cell: last.cell, meter: meter}
	}
	return p.counters[id]
}
