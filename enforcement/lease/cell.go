package lease

import (
	"sync"

	"github.com/headgate/headgate/enforcement"
)

// All times in this package are in microseconds. Those of the store are since
// the epoch, those of the node since the Limiter was made.

// A reading is the node's clocks at one instant.
type reading struct {
	mono int64
	skew int64 // of the wall clock, against mono
}

const (
	apart      = 5_000       // how far the wall clock may move against the monotonic one
	margin     = apart       // by which a lot ends early, since a suspension may be as short
	drift      = 1000        // a clock is wrong by less than one part in so many
	longest    = 150_000_000 // after which the store's clock must be read again
	burst      = 5_000_000   // for how long a large batch should last
	lifetime   = 60_000_000  // for how long a small batch should last, at most
	small      = 128         // units of a small batch at most
	least      = 16          // and at least
	share      = 8           // a batch is small up to the node's most divided by this
	slowness   = 120_000_000 // a cell that holds nothing and is idle is forgotten after so long
	pause      = 100_000     // between a draw that brought nothing and the next
	ramp       = 8           // by which a batch grows at most
	first      = 32          // units of the first batch at most
	returnSoon = 2 * sweepEvery
	sweepEvery = 100_000
	gather     = 2_000     // for how long draws wait for others to share a call
	idle       = 2_000_000 // after which a large batch is given back, at most
	atOnce     = 64        // draws in one call
	shards     = 256
)

// A shard is a part of the cells. Its lock protects them, too.
type shard struct {
	mu    sync.Mutex
	cells map[enforcement.Key]*cell
	due   int64 // when sweep has to visit the shard, by the node's clock
	count Stats // without Held and Counters
	_     [32]byte
}

// A cell is what this node holds of one counter.
type cell struct {
	in    *shard
	home  string
	key   enforcement.Key
	meter *enforcement.Meter
	rev   int64
	batch int64 // the most that the node holds
	epoch int64 // of a bucket's leases; of windows 0
	start int64 // of the window that lots belong to; of buckets 0

	lots  [2]lot            // the one that ends first, first
	state enforcement.State // as the store last told it: the lots are charged
	told  int64             // when, by its clock
	// At the store's instant at, the node's clocks showed sent or more.
	at   int64
	sent reading

	queued  bool          // a draw is queued or under way
	closing bool          // the next draw gives everything back
	gave    bool          // the draw under way does so
	refresh bool          // the next draw asks for nothing
	done    chan struct{} // closed when the draw has ended; nil: nothing waits for it
	reports uint32        // draws so far: what was taken of a bucket before one cannot be put back after it
	flight  uint32        // reports, as of the draw under way

	used, mark, wanted int64 // units since mark, by the node's clock; the last draw's Want
	checks             int64 // since mark
	last               int64 // when it was last used
	retry              int64 // when a draw may bring something again
	correct            int64 // when a denial by a bucket may be corrected again
}

// A lot is units that were drawn and not spent.
// Spent are those that the store was not told of; of windows it is not counted.
type lot struct{ until, units, spent int64 }

func (c *cell) held() int64 { return c.lots[0].units + c.lots[1].units }

// store is the store's clock at now, or a little later.
func (c *cell) store(now reading) int64 { return c.at + now.mono - c.sent.mono }

// sure reports whether the node can tell when lots end: nothing suspended the
// machine, and the store's clock was read not too long ago.
func (c *cell) sure(now reading) bool {
	moved := now.skew - c.sent.skew
	return moved <= apart && moved >= -apart && now.mono-c.sent.mono <= longest
}

// latest is the latest that the store's clock can show.
func (c *cell) latest(now reading) int64 {
	return c.store(now) + (now.mono-c.sent.mono)/drift + margin
}

// serves reports whether a charge has the numbers of the cell.
func (c *cell) serves(charge *enforcement.Charge, home string) bool {
	if c.rev != charge.Rev || c.home != home || c.closing {
		return false
	}
	m := charge.Meter
	return c.meter == m || c.meter.Numbers == m.Numbers && c.meter.Algorithm == m.Algorithm && c.meter.Anchor == m.Anchor
}

// A hold is what a charge took of a cell.
type hold struct {
	units   [2]int64
	until   [2]int64
	reports uint32
	asked   int // the place of the rest among what the shared limiter is asked; -1: there is none
}

func (h *hold) sum() int64 { return h.units[0] + h.units[1] }

// take spends up to cost of the lots that have not ended.
func (c *cell) take(cost int64, now reading) (h hold) {
	h.reports = c.reports
	if cost > 0 && c.held() == 0 || !c.sure(now) {
		return h
	}
	latest := c.latest(now)
	for i := range c.lots {
		lot := &c.lots[i]
		if latest >= lot.until {
			if c.epoch > 0 {
				lot.units, lot.spent = 0, 0 // it lapsed: nothing of it can be settled
			}
			continue
		}
		units := min(lot.units, cost)
		lot.units -= units
		if c.epoch > 0 {
			lot.spent += units
		}
		cost -= units
		h.units[i], h.until[i] = units, lot.until
	}
	return h
}

// spend takes cost of the lots: all of it, or nothing. A lot that has ended is left
// to take.
func (c *cell) spend(cost int64, now reading) bool {
	if cost == 0 || c.held() < cost || !c.sure(now) {
		return false
	}
	latest := c.latest(now)
	for i := range c.lots {
		if c.lots[i].units > 0 && latest >= c.lots[i].until {
			return false
		}
	}
	early := min(c.lots[0].units, cost)
	c.lots[0].units -= early
	c.lots[1].units -= cost - early
	if c.epoch > 0 {
		c.lots[0].spent += early
		c.lots[1].spent += cost - early
	}
	return true
}

// live reports whether a lot with units has not ended.
func (c *cell) live(now reading) bool {
	latest := c.latest(now)
	return c.sure(now) && (c.lots[0].units > 0 && latest < c.lots[0].until || c.lots[1].units > 0 && latest < c.lots[1].until)
}

// put returns what was taken to its lots. Of a bucket a draw may have told
// meanwhile that it was spent; then it is lost until its lot lapses.
func (c *cell) put(h *hold) {
	for k, units := range h.units {
		if units == 0 || c.epoch > 0 && h.reports != c.reports {
			continue
		}
		for i := range c.lots {
			if lot := &c.lots[i]; lot.until == h.until[k] {
				lot.units += units
				if c.epoch > 0 {
					lot.spent -= units
				}
				break
			}
		}
	}
}

// view is the counter as this node knows it: what it holds is not charged.
func (c *cell) view(now reading) enforcement.State {
	s := c.state
	if c.meter.Algorithm.Bucket() {
		s.A += c.held()
	} else {
		s.A = max(s.A-c.held(), 0)
	}
	s, _ = c.meter.Settle(s, c.rev, c.store(now))
	return s
}

// begin gives the cell the numbers of a charge.
func (c *cell) begin(charge *enforcement.Charge, home string, batch int64, now reading) {
	*c = cell{
		in: c.in, home: home, key: charge.Key, meter: charge.Meter, rev: charge.Rev, batch: batch,
		queued: c.queued, done: c.done, reports: c.reports + 1, mark: now.mono, last: now.mono,
	}
	if charge.Meter.Algorithm.Bucket() {
		c.epoch = charge.Meter.LeaseEpoch()
	}
}

// learn takes over what the store told of the counter at an instant. Answers may
// come in another order than that in which the store gave them; one from long
// before the last means that its clock went back.
func (c *cell) learn(s *enforcement.State, at int64, sent reading) {
	if at >= c.told || at < c.told-1_000_000 {
		c.state, c.told = *s, at
	}
	if sent.mono >= c.sent.mono {
		c.at, c.sent = at, sent
	}
}

// count adds a check of this cost to the rate of the cell. After a lull longer than
// a batch lasts, the rate starts again.
func (c *cell) count(cost int64, now reading) {
	if now.mono-c.mark > c.life() && c.held() == 0 && !c.queued {
		c.mark, c.used, c.checks = now.mono, 0, min(c.checks, 1)
	}
	c.used += cost
	c.checks++
	c.last = now.mono
}

// horizon is for how long a large batch should last.
func (c *cell) horizon() int64 { return min(c.life(), burst) }

// life is for how long a small batch should last: a lot lives no longer.
func (c *cell) life() int64 {
	if c.epoch > 0 {
		return c.epoch
	}
	return min(c.meter.Window/4, lifetime)
}

// want is how many units the cell should have besides those that it holds: what
// is used within the horizon, or within the life of a lot if that is few units.
// So a key with some checks in a second needs a draw every minute, and a key
// with many holds no more than it soon uses.
func (c *cell) want(now reading) int64 {
	elapsed, rest := max(now.mono-c.mark, 1000), int64(1<<62)
	if c.epoch == 0 {
		rest = max(c.start+c.meter.Window-c.latest(now), 0)
	}
	used := min(c.used, 1<<32) // the bound keeps the products in range
	large := used * min(c.horizon(), rest) / elapsed
	few := min(max(used*min(c.life(), rest)/elapsed, least), small, c.batch/share)
	return min(max(large, few), max(first, ramp*c.wanted), c.batch) - c.held()
}

// soon is how long before its end a lot is given back. Lots of many buckets end at
// one instant. The cells give them back one after another, over a quarter of a lot's life.
func (c *cell) soon() int64 {
	soon := min(c.horizon()/2, returnSoon)
	if c.epoch > 0 {
		soon += c.epoch / 4 * int64(c.key.Partition[15]) / 256
	}
	return soon
}

// patience is for how long a cell keeps what it does not use.
func (c *cell) patience() int64 {
	if c.held() <= min(small, c.batch/share) {
		return 2 * c.life()
	}
	return min(c.horizon(), idle)
}

// due is when sweep has to visit the cell, by the node's clock.
func (c *cell) due() int64 {
	if c.held() == 0 && c.lots[0].spent+c.lots[1].spent == 0 {
		return c.last + slowness
	}
	due := min(c.last+c.patience(), c.sent.mono+longest/2)
	if c.meter.Algorithm == enforcement.FixedWindow {
		return due
	}
	for i := range c.lots {
		if c.lots[i].units > 0 { // c.latest runs ahead of the clock by at most longest/drift
			due = min(due, c.lots[i].until-c.soon()-margin-longest/drift-c.at+c.sent.mono)
		}
	}
	return due
}

// low reports whether a draw should begin.
func (c *cell) low(now reading) bool {
	if c.queued || c.closing || c.checks < 2 || now.mono < c.retry {
		return false
	}
	return 4*c.held() < max(c.wanted, 1) && c.want(now) >= enforcement.LeaseLeast
}

// draw settles the lots and asks for more. It is sent at now.
func (c *cell) draw(now reading, part int64) enforcement.Draw {
	d := enforcement.Draw{
		Home: c.home, Key: c.key, Meter: c.meter, Rev: c.rev, Start: c.start,
		Least: enforcement.LeaseLeast, Part: part,
	}
	soon := c.latest(now) + c.soon()
	for i := range c.lots {
		lot := &c.lots[i]
		d.Lots[i] = enforcement.Lot{Until: lot.until, Spent: lot.spent}
		lot.spent = 0
		if c.closing || lot.until <= soon && c.meter.Algorithm != enforcement.FixedWindow {
			d.Lots[i].Back, lot.units = lot.units, 0
		}
	}
	c.reports++
	c.flight = c.reports
	if c.gave = c.closing; c.closing || c.refresh {
		return d
	}
	if d.Want = max(c.want(now), 0); d.Want > 0 {
		c.wanted = d.Want + c.held()
		c.used, c.mark = c.used/2, now.mono-(now.mono-c.mark)/2 // half of the past counts on
	}
	return d
}

// drew takes over the answer to d.
func (c *cell) drew(d *enforcement.Draw, a *enforcement.Drawn, sent, now reading) {
	c.queued, c.refresh = false, false
	if c.done != nil {
		close(c.done)
		c.done = nil
	}
	if c.gave {
		c.gave, c.closing = false, false
		c.wanted, c.checks, c.used, c.mark = 0, min(c.checks, 1), 0, now.mono
	}
	if a.Err == nil {
		c.in.count.Drawn += a.Units
		c.in.count.Returned += d.Lots[0].Back + d.Lots[1].Back
	}
	switch {
	case c.reports != c.flight || c.start != d.Start: // the numbers, the window or the counter changed meanwhile
		return
	case a.Err != nil:
		c.retry = now.mono + pause
		return
	}
	if a.State.Rev != 0 {
		c.learn(&a.State, a.At, sent)
	}
	if a.Units == 0 {
		c.retry = now.mono + pause
		return
	}
	last := &c.lots[1]
	if last.until != a.Until {
		if last.units > 0 || last.spent > 0 {
			c.lots[0] = *last
		}
		*last = lot{until: a.Until}
	}
	last.units += a.Units
}

// ending reports whether a lot with units is about to end and takes them back, or
// the store's clock has to be read again.
func (c *cell) ending(now reading) bool {
	if now.mono-c.sent.mono > longest/2 {
		return true
	}
	if c.meter.Algorithm == enforcement.FixedWindow {
		return false
	}
	soon := c.latest(now) + c.soon()
	return c.lots[0].units > 0 && c.lots[0].until <= soon || c.lots[1].units > 0 && c.lots[1].until <= soon
}
