package limitertest

import (
	"iter"
	"maps"
	"math/big"
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// A model is a second implementation of the algorithms. It follows their definitions, and shares no arithmetic with
// package enforcement. Tests compare Limiters with it. It uses a map of counters, lists for logs, and rational
// numbers for levels and weights. It has no formulas for reset and retry times. Instead, it decides whether a cost
// fits at a given time, and checkTimes tries several times.
//
// It is not safe for concurrent use.
type model struct {
	counters map[enforcement.Key]*counter
}

// newModel returns a model without counters.
func newModel() *model { return &model{counters: map[enforcement.Key]*counter{}} }

// An answer is the result of the model for one request.
type answer struct {
	Verdict enforcement.Verdict
	Units   int64
	Charges []answered
}

// answered is the result of the model for one charge of a request.
type answered struct {
	Cost, Remaining int64
	Fits            bool
	counter         *counter // a copy of the counter after the charge
	before          *counter // a copy of the counter before the charges of the group, if they were made
	// units is the number of units that the group of the charge took in mode TakeUpTo.
	units int64
	// spent is by how much grants change the cost of the charge: above 0 for a grant, below 0 for its window.
	spent int64
}

// A counter has the usage of one key.
type counter struct {
	rev int64
	// open is set by the first charge. A counter that is not open is unused.
	open bool
	// start is the start of a window, the time of the newest log entry, or the time of
	// level. current and previous are the units of the current and the previous window.
	start             int64
	current, previous int64
	// length is the length of a calendar window. rolled is the number of units that were rolled over into the window.
	// idle is the number of windows since the last charge. If rolled or idle is not 0, length is in whole days.
	length, rolled, idle int64
	// entries has the entries of a log, oldest first.
	entries []enforcement.Entry
	// leases has the leases of a concurrency limit by their ID.
	leases map[[16]byte]enforcement.Holder
	// level is the level of a bucket at the time start. It is nil for other algorithms. For a leaky bucket, it is the
	// number of units that wait, as a number below 0.
	level *big.Rat
}

func (c *counter) clone() *counter {
	n := *c
	n.entries = slices.Clone(c.entries)
	n.leases = maps.Clone(c.leases)
	if c.level != nil {
		n.level = new(big.Rat).Set(c.level)
	}
	return &n
}

// countStops is the largest count after forced charges. logHolds is the largest number of log entries, and
// leasesHeld is the largest number of leases.
const (
	leasesHeld = 1_000
	countStops = 1_000_000_000_000_000
	logHolds   = 10_000
)

// A decision is the state of one request while the model decides it.
type decision struct {
	request *enforcement.Request
	answer  answer
	now     int64
	// counters has a copy of each key's counter at the time of the request. The charges that were applied so far are
	// included.
	counters map[enforcement.Key]*counter
	// changed has the keys whose counters must be stored.
	changed map[enforcement.Key]bool
	units   int64                     // that TakeUpTo grants of the current group
	taken   *big.Rat                  // the part of its largest cost that TakeUpTo granted of group 0
	spent   map[enforcement.Key]int64 // by how much grants change what the current group charges
}

// Take decides one request at the time now.
func (d *model) Take(r *enforcement.Request, now int64) answer {
	w := &decision{
		request: r, now: now, counters: map[enforcement.Key]*counter{}, changed: map[enforcement.Key]bool{},
		answer: answer{Verdict: enforcement.Granted, Charges: make([]answered, len(r.Charges))},
	}
	for i := range r.Charges {
		c := &r.Charges[i]
		if w.counters[c.Key] == nil {
			stored := d.counters[c.Key]
			if stored == nil {
				stored = new(counter)
			}
			w.counters[c.Key], w.changed[c.Key] = stored.at(c.Meter, c.Rev, now)
		}
	}
	for from, to := range groups(r.Charges) {
		d.group(w, from, to)
	}
	if r.Mode == enforcement.Peek {
		return w.answer
	}
	for key, c := range w.counters {
		switch {
		case r.Mode == enforcement.Reset:
			delete(d.counters, key)
		case w.changed[key]:
			d.counters[key] = c
		}
	}
	return w.answer
}

// group decides the charges with the indexes i for which from <= i < to. They are one group.
func (d *model) group(w *decision, from, to int) {
	charges, answers := w.reduced(from, to), w.answer.Charges[from:to]
	sum := map[enforcement.Key]int64{}
	for i := range charges {
		sum[charges[i].Key] += charges[i].Cost
	}
	w.spent = map[enforcement.Key]int64{}
	fits := w.fit(charges, answers, sum)
	forced := w.request.Mode == enforcement.Force
	if charges[0].Group == 0 && !fits && !forced {
		w.answer.Verdict = enforcement.Refused
	}
	if w.answer.Verdict == enforcement.Granted && (fits || forced) {
		for i := range charges {
			answers[i].units = w.units
			answers[i].before = w.counters[charges[i].Key].clone()
		}
		d.apply(w, charges, sum)
	} else {
		for i := range answers {
			answers[i].spent = 0
		}
	}
	for i := range charges {
		c := w.counters[charges[i].Key].clone()
		answers[i].counter = c
		for k := range charges { // without the reduction to what group 0 took
			if charges[k].Key == charges[i].Key && charges[k].Cost != w.request.Charges[from+k].Cost {
				answers[i].Cost += w.request.Charges[from+k].Cost - charges[k].Cost
			}
		}
		if charges[i].Grant {
			answers[i].Cost = answers[i].spent
		}
		if charges[i].Meter.Quota > 0 {
			answers[i].Remaining = max(c.left(charges[i].Meter, w.now), 0)
		}
	}
}

// apply charges the counters of a group that was granted, or refunds or resets them.
func (d *model) apply(w *decision, charges []enforcement.Charge, sum map[enforcement.Key]int64) {
	for key, cost := range sum {
		m, rev := meterOf(charges, key)
		switch w.request.Mode {
		case enforcement.Reset:
			w.counters[key], _ = new(counter).at(m, rev, w.now)
			continue
		case enforcement.Refund:
			w.changed[key] = w.changed[key] || cost > 0 && d.counters[key] != nil
			w.counters[key].refund(m, cost, w.request.Lease.ID)
			continue
		case enforcement.Release:
			places := w.counters[key].leases[w.request.Lease.ID].Units
			w.answer.Units += places
			w.changed[key] = w.changed[key] || places > 0
			w.counters[key].refund(m, places, w.request.Lease.ID)
			continue
		case enforcement.TakeUpTo:
			cost = shareOf(cost, w.units, charges)
		}
		cost += w.spent[key]
		w.changed[key] = w.changed[key] || cost > 0
		w.counters[key].charge(m, rev, w.now, cost, w.request.Lease)
	}
}

// groups returns the range [from, to) of each group of charges.
func groups(charges []enforcement.Charge) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for from, to := 0, 0; from < len(charges); from = to {
			for to < len(charges) && charges[to].Group == charges[from].Group {
				to++
			}
			if !yield(from, to) {
				return
			}
		}
	}
}

// meterOf returns the meter and the revision of the first charge on a key.
func meterOf(charges []enforcement.Charge, key enforcement.Key) (*enforcement.Meter, int64) {
	for i := range charges {
		if charges[i].Key == key {
			return charges[i].Meter, charges[i].Rev
		}
	}
	return nil, 0
}

// left returns the number of units that can be charged. c must be settled at now.
func (c *counter) left(m *enforcement.Meter, now int64) int64 {
	switch m.Algorithm {
	case enforcement.FixedWindow:
		return m.Quota + min(c.rolled, m.Rollover) - c.current
	case enforcement.SlidingWindowCounter:
		if c.previous == 0 {
			return m.Quota - c.current
		}
		weighted := new(big.Rat).SetFrac64(m.Window-max(now-c.start, 0), m.Window)
		weighted.Mul(weighted, new(big.Rat).SetInt64(c.previous))
		weighted.Add(weighted, new(big.Rat).SetInt64(c.current))
		return m.Quota - floor(weighted).Int64()
	case enforcement.Concurrency:
		left := m.Quota
		for _, h := range c.leases {
			left -= h.Units
		}
		return left
	case enforcement.SlidingWindowLog:
		left := m.Quota
		for _, e := range c.entries {
			left -= e.Units
		}
		return left
	default:
		return min(floor(c.level).Int64(), m.Capacity) + m.Queue // later numbers may have a larger capacity
	}
}

// leftFor returns the number of units that a request with a lease can be charged. The
// lease can always keep the places that it has.
func (c *counter) leftFor(m *enforcement.Meter, now int64, id [16]byte) int64 {
	left := c.left(m, now)
	if own := c.leases[id].Units; own > 0 {
		others := c.clone()
		delete(others.leases, id)
		return max(own, others.left(m, now))
	}
	return left
}

// charge charges cost, even if it does not fit.
func (c *counter) charge(m *enforcement.Meter, rev, now, cost int64, lease enforcement.Lease) {
	if cost == 0 {
		return
	}
	if !c.open {
		c.begin(m, rev, now)
	}
	switch {
	case m.Algorithm.Bucket():
		debt := big.NewInt(-m.Queue - max(m.Burst(), 1))
		units, part := floor(c.level), new(big.Rat)
		part.Sub(c.level, new(big.Rat).SetInt(units))
		if debt.Cmp(units) > 0 {
			debt.Set(units) // a change of the burst put it further into debt
		}
		if units.Sub(units, big.NewInt(cost)); units.Cmp(debt) < 0 {
			units = debt
		}
		c.level.Add(new(big.Rat).SetInt(units), part)
	case m.Algorithm == enforcement.Concurrency:
		if _, own := c.leases[lease.ID]; !own && len(c.leases) == leasesHeld {
			return
		}
		c.start = max(c.start, now)
		until := c.start + lease.TTL
		if lease.TTL == 0 {
			until = c.start + m.Window
		}
		if c.leases == nil {
			c.leases = map[[16]byte]enforcement.Holder{}
		}
		c.leases[lease.ID] = enforcement.Holder{ID: lease.ID, Until: until, Units: min(cost, 1<<31-1)}
	case m.Algorithm == enforcement.SlidingWindowLog:
		total := int64(0)
		for _, e := range c.entries {
			total += e.Units
		}
		cost = min(cost, countStops-total)
		if n := len(c.entries); n > 0 && (now <= c.start || n >= logHolds) {
			c.entries[n-1].Units += cost
			return
		}
		c.entries = append(c.entries, enforcement.Entry{T: now, Units: cost})
		c.start = now
	default:
		c.idle = 0
		c.current = min(c.current+cost, countStops)
	}
}

// begin opens an unused counter at the time now.
func (c *counter) begin(m *enforcement.Meter, rev, now int64) {
	c.open, c.rev, c.start = true, rev, now
	if m.IsGrant() {
		c.start, c.length = m.Edges[0], m.Edges[1]-m.Edges[0]
	} else if m.Period != enforcement.NoPeriod {
		c.setWindow(calendarWindow(m, now))
	}
	if m.Anchor == enforcement.Clock && m.Algorithm.Windowed() {
		edge := new(big.Int).Div(big.NewInt(now), big.NewInt(m.Window))
		c.start = edge.Mul(edge, big.NewInt(m.Window)).Int64()
	}
}

// refund returns cost to the counter. For a concurrency limit, it takes the places from the lease id.
func (c *counter) refund(m *enforcement.Meter, cost int64, id [16]byte) {
	if !c.open || cost == 0 {
		return
	}
	back := func(count *int64) {
		n := min(cost, *count)
		*count -= n
		cost -= n
	}
	switch {
	case m.Algorithm == enforcement.Concurrency:
		h, ok := c.leases[id]
		if h.Units -= cost; ok && h.Units > 0 {
			c.leases[id] = h
			return
		}
		if delete(c.leases, id); len(c.leases) == 0 {
			*c = counter{}
		}
	case m.Algorithm.Bucket():
		if full := new(big.Rat).SetInt64(m.Capacity); c.level.Cmp(full) < 0 { // later numbers may have a larger capacity
			c.level.Add(c.level, new(big.Rat).SetInt64(cost))
			c.cut(m.Capacity)
		}
	case m.Algorithm == enforcement.SlidingWindowLog:
		for n := len(c.entries); n > 0 && cost > 0; n = len(c.entries) {
			units := min(c.entries[n-1].Units, cost)
			c.entries[n-1].Units -= units
			cost -= units
			if c.entries[n-1].Units == 0 {
				c.entries = c.entries[:n-1]
			}
		}
		if len(c.entries) == 0 {
			*c = counter{}
			return
		}
		c.start = c.entries[len(c.entries)-1].T
	default:
		back(&c.current)
		if m.Algorithm == enforcement.SlidingWindowCounter {
			back(&c.previous)
		}
	}
}

// delay returns the time in which the units that wait in a leaky bucket drain.
func (c *counter) delay(m *enforcement.Meter) int64 {
	if m.Quota == 0 {
		return 0
	}
	wait := new(big.Rat).Mul(c.level, new(big.Rat).SetFrac64(-m.Window, m.Quota))
	micros := new(big.Int).Neg(floor(wait.Neg(wait))) // rounds up
	if !micros.IsInt64() || micros.Int64() > 1<<53 {
		return 1 << 53
	}
	return micros.Int64()
}
