package simulation

import (
	"github.com/headgate/headgate/enforcement"
)

// maxFormers is how many former numbers of a limit are kept, as plans keep them.
const maxFormers = 4

// A policy is the limits in force, and the counters that its limits have had.
type policy struct {
	revision int64
	counters map[identity]*counter
	limits   []*counter // in force, in the order given
}

// identity is what makes a limit the same counter: other numbers keep it,
// another algorithm or anchor starts anew. A limit that left and comes back
// finds what it had.
type identity struct {
	name      string
	algorithm enforcement.Algorithm
	anchor    enforcement.Anchor
}

// A counter is a limit with its cell and compiled numbers.
type counter struct {
	name  string
	cell  uint32
	meter *enforcement.Meter
}

func newPolicy(limits []enforcement.Limit) *policy {
	p := &policy{counters: map[identity]*counter{}}
	p.set(limits, 0)
	return p
}

// set puts limits into force at an instant, in microseconds since the epoch.
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
