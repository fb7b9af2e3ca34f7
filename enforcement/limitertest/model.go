package limitertest

import (
	"fmt"
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

// at returns a copy of the counter, settled at the time now. clamped is true if the
// time of the counter was further in the future than maxAhead.
func (c *counter) at(m *enforcement.Meter, rev, now int64) (n *counter, clamped bool) {
	n = c.clone()
	if m.IsGrant() {
		n.endGrant(m, rev, now)
		return n, false
	}
	if !n.open {
		if m.Algorithm.Bucket() {
			n.open, n.rev, n.start, n.level = true, rev, now, new(big.Rat).SetInt64(m.Capacity)
		}
		return n, false
	}
	if !n.carry(m, rev) {
		return new(counter), false
	}
	if m.Period == enforcement.NoPeriod && n.start > now+maxAhead(m) {
		clamped = true
		n.shift(now - n.start)
		n.start = now
		for i := range n.entries {
			n.entries[i].T = min(n.entries[i].T, now)
		}
	}
	switch m.Algorithm {
	case enforcement.FixedWindow:
		if m.Period != enforcement.NoPeriod {
			if !n.align(m, now) {
				return n.next(m, rev, now), false
			}
			clamped = n.clampWindow(m, now)
			break
		}
		if now-n.start >= m.Window {
			return new(counter), false
		}
	case enforcement.SlidingWindowCounter:
		for now-n.start >= m.Window {
			n.start += m.Window
			n.previous, n.current = n.current, 0
			if n.previous == 0 {
				return new(counter), false
			}
		}
	case enforcement.Concurrency:
		seen := max(now, n.start)
		maps.DeleteFunc(n.leases, func(_ [16]byte, h enforcement.Holder) bool { return h.Until <= seen })
		if len(n.leases) == 0 {
			return new(counter), false
		}
	case enforcement.SlidingWindowLog:
		seen := max(now, n.start)
		n.entries = slices.DeleteFunc(n.entries, func(e enforcement.Entry) bool { return seen-e.T >= m.Window })
		if len(n.entries) == 0 {
			return new(counter), false
		}
	default:
		n.flow(m, rev, now)
	}
	n.rev = max(n.rev, rev)
	return n, clamped
}

// endGrant uses up all units of a grant that has ended at the time now.
func (c *counter) endGrant(m *enforcement.Meter, rev, now int64) {
	if now >= m.Edges[1] {
		c.open, c.rev, c.start, c.length, c.current = true, max(c.rev, rev), m.Edges[0], m.Edges[1]-m.Edges[0], m.Quota
	}
}

// clampWindow moves a calendar window that begins too far in the future to the time now, and reports whether it did.
func (c *counter) clampWindow(m *enforcement.Meter, now int64) bool {
	if c.start <= now+m.Window {
		return false
	}
	c.idle = 0
	c.setWindow(calendarWindow(m, now))
	return true
}

// shift adds micros to the ends of all leases.
func (c *counter) shift(micros int64) {
	for id, h := range c.leases {
		h.Until += micros
		c.leases[id] = h
	}
}

// align moves a counter to the calendar window that contains the middle of its present window. It returns false if
// the former has ended.
func (c *counter) align(m *enforcement.Meter, now int64) bool {
	from, till := calendarWindow(m, c.middle(m))
	if now >= till {
		return false
	}
	c.setWindow(from, till)
	return true
}

// middle returns the middle of the calendar window of the counter.
func (c *counter) middle(m *enforcement.Meter) int64 {
	if c.length > m.Window { // the counter is of a longer period
		return c.start + m.Window/2
	}
	return c.start + c.length/2
}

// calendarWindow returns the start and the end of the calendar window that contains a
// time. It walks from the windows that the caller passed.
func calendarWindow(m *enforcement.Meter, at int64) (from, till int64) {
	from, till = m.Edges[0], m.Edges[1]
	for at < from {
		from, till = from-(m.Edges[1]-m.Edges[0]), from
	}
	for at >= till {
		from, till = till, till+m.Edges[2]-m.Edges[1]
	}
	return from, till
}

// maxAhead returns how far in the future the time of a counter may be without being
// clamped: one window, or the time in which a bucket fills.
func maxAhead(m *enforcement.Meter) int64 {
	if !m.Algorithm.Bucket() || m.Quota == 0 {
		return m.Window
	}
	fill := new(big.Int).Mul(big.NewInt(m.Burst()), big.NewInt(m.Window))
	fill.Add(fill, big.NewInt(m.Quota-1))
	fill.Quo(fill, big.NewInt(m.Quota))
	if !fill.IsInt64() || fill.Int64() > 1<<53 {
		return 1 << 53
	}
	return fill.Int64()
}

// flow refills a bucket until now. It uses each former rate for the time while that rate was in force, and then the
// present rate. It rounds the fraction of a unit down to a multiple that the present numbers can store. It drops a
// fraction that was stored with unknown numbers.
func (c *counter) flow(m *enforcement.Meter, rev, now int64) {
	written, charged := c.rev, c.start
	if c.rev < rev && rev == m.Rev {
		for i, f := range m.Formers {
			next, nextRev := m.Numbers, m.Rev
			if i+1 < len(m.Formers) {
				next, nextRev = m.Formers[i+1].Numbers, m.Formers[i+1].Rev
			}
			if nextRev <= c.rev {
				continue
			}
			if written != f.Rev {
				c.whole()
			}
			c.cut(f.Capacity)
			if until := min(f.Until, now); until > c.start {
				c.fill(f.Numbers, until-c.start)
				c.start = until
			}
			c.carryLevel(&f, next.Capacity, charged)
			c.round(next)
			written = nextRev
		}
	}
	if written != rev {
		c.whole()
	}
	if c.rev <= rev {
		c.cut(m.Capacity)
	}
	if now > c.start {
		c.fill(m.Numbers, now-c.start)
		c.start = now
	}
	if c.rev > rev {
		c.whole() // the later revision has another denominator for fractions
	}
}

// fill adds the units that refill in elapsed microseconds.
func (c *counter) fill(n enforcement.Numbers, elapsed int64) {
	if n.Quota == 0 || c.level.Cmp(new(big.Rat).SetInt64(n.Capacity)) >= 0 { // later numbers may have a larger capacity
		return
	}
	c.level.Add(c.level, new(big.Rat).SetFrac(
		new(big.Int).Mul(big.NewInt(elapsed), big.NewInt(n.Quota)), big.NewInt(n.Window)))
	c.cut(n.Capacity)
}

func (c *counter) cut(capacity int64) {
	if full := new(big.Rat).SetInt64(capacity); c.level.Cmp(full) > 0 {
		c.level = full
	}
}

// round rounds the level down to the nearest fraction that can be stored with the
// numbers n.
func (c *counter) round(n enforcement.Numbers) {
	if n.Quota == 0 {
		c.whole()
		return
	}
	unit := new(big.Rat).SetFrac64(n.Quota, n.Window).Denom()
	scaled := new(big.Rat).Mul(c.level, new(big.Rat).SetInt(unit))
	c.level = new(big.Rat).SetFrac(floor(scaled), unit)
}

// whole rounds the level down to whole units.
func (c *counter) whole() { c.level = new(big.Rat).SetInt(floor(c.level)) }

func floor(r *big.Rat) *big.Int {
	return new(big.Int).Div(r.Num(), r.Denom()) // rounds down, because Denom is positive
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

// initial reports whether the counter is as if unused.
func (c *counter) initial(m *enforcement.Meter) bool {
	if m.Algorithm.Bucket() {
		return m.Quota == 0 || c.level.Cmp(new(big.Rat).SetInt64(m.Capacity)) >= 0
	}
	return !c.open
}

// later returns the counter as it is after micros microseconds without a charge.
func (c *counter) later(m *enforcement.Meter, rev, now, micros int64) *counter {
	m = nextMeter(m, now+micros)
	n, _ := c.at(m, max(rev, c.rev), now+micros)
	return n
}

// largest returns the largest cost that a limit allows without units that were rolled over.
func largest(m *enforcement.Meter) int64 {
	if m.Algorithm.Bucket() {
		return m.Burst()
	}
	return m.Quota
}

// everFits reports whether a cost fits now or at a later time. fits says whether it fits now.
func (c *counter) everFits(m *enforcement.Meter, rev, now, cost int64, fits bool) bool {
	return m.Quota > 0 && (cost <= largest(m) || m.Rollover > 0 && (fits || c.fitsLater(m, rev, now, cost)))
}

// checkTimes checks the reset and retry times that a Limiter returned against their
// definitions. The reset time is the first time at which the counter is as if unused.
// The retry time is the first time at which cost fits. possible reports whether the
// Limiter returned a retry time.
func (c *counter) checkTimes(m *enforcement.Meter, rev, now, cost, resetAfter, retryAfter int64, possible bool, lease [16]byte) error {
	const forever = 1 << 53 // the largest reset or retry time
	if m.Rollover > 0 && c.start > now {
		return nil // the clock stepped back, so the ends of the windows that the caller passed may not be exact
	}
	initial := func(micros int64) bool {
		n := c.later(m, rev, now, micros)
		return n.initial(m) || m.Rollover > 0 && n.start != c.start // units may be rolled over when the window has ended
	}
	if resetAfter < 0 || resetAfter < forever && !initial(resetAfter) || resetAfter > 0 && initial(resetAfter-1) {
		return fmt.Errorf("reset after %d µs is not the first instant at which the counter is in its initial state", resetAfter)
	}
	fits := func(micros int64) bool {
		return m.Quota > 0 && cost <= c.later(m, rev, now, micros).leftFor(m, now+micros, lease)
	}
	ever := c.everFits(m, rev, now, cost, fits(0))
	switch {
	case ever != possible:
		return fmt.Errorf("cost %d can ever fit: %t; the limiter returned %t", cost, ever, possible)
	case !ever:
		return nil
	case retryAfter < 0 || retryAfter < forever && !fits(retryAfter) || retryAfter > 0 && fits(retryAfter-1):
		return fmt.Errorf("retry after %d µs is not the first instant at which %d fits", retryAfter, cost)
	}
	return nil
}
