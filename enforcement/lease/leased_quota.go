package lease

import (
	"sync"

	"github.com/headgate/headgate/enforcement"
)

// All times in this package are in microseconds. The store is the shared limiter, from which this node leases
// quota. Times of the store count from the epoch. Times of the node count from the call of New.

// A reading has the values of both clocks of this node at the same moment.
type reading struct {
	mono int64 // monotonic clock
	skew int64 // the wall clock minus the monotonic clock
}

const (
	apart      = 5_000       // if reading.skew changes by more, the machine was suspended
	margin     = apart       // a lot ends this much earlier, because a shorter suspension than apart is not detected
	drift      = 1000        // clocks differ in rate by less than 1/drift
	longest    = 150_000_000 // longest time for which a reading of the store's clock can be used
	burst      = 5_000_000   // time for which a large batch of units should last
	lifetime   = 60_000_000  // longest time for which a small batch of units should last
	small      = 128         // largest number of units of a small batch
	least      = 16          // smallest number of units of a small batch
	share      = 8           // a small batch has at most 1/share of the largest batch
	slowness   = 120_000_000 // a cell without units is deleted after this time without checks
	pause      = 100_000     // time between a draw that brought no units and the next draw
	ramp       = 8           // a batch has at most this many times the units of the batch before it
	first      = 32          // largest number of units of the first batch
	returnSoon = 2 * sweepEvery
	sweepEvery = 100_000
	gather     = 2_000     // a call of Draw waits for this time, so that it can make more draws
	idle       = 2_000_000 // a large batch is returned after this time without checks, or earlier
	atOnce     = 64        // largest number of draws in one call
	shards     = 256
)

// A shard has a part of the cells. Its mutex also protects the fields of these cells.
type shard struct {
	mu    sync.Mutex
	cells map[enforcement.Key]*cell
	due   int64 // when sweep must visit the shard, by the node's clock
	count Stats // sums for Stats, except Held and Counters
	_     [32]byte
}

// A cell has the quota of one counter that this node has drawn and not spent yet.
type cell struct {
	in    *shard
	home  string
	key   enforcement.Key
	meter *enforcement.Meter
	rev   int64
	// kept is the latest revision of the limit to which the store carried over the used units of the counter.
	// Returned units are sent with this revision. kept is 0 if the quota and the window have not changed since the
	// node began to lease.
	kept  int64
	batch int64 // largest number of units that the node may hold for this counter
	epoch int64 // only for buckets: length of a lease epoch; 0 for windows
	start int64 // only for windows: start of the window from which the lots were drawn; 0 for buckets

	lots  [2]lot            // in the order of their ends
	state enforcement.State // last state from the store; units of the lots count as charged in it
	told  int64             // the store's time of state
	// at and sent relate the clocks of the store and the node. When the store's clock had the value
	// at, the clocks of the node had the values in sent, or later ones.
	at   int64
	sent reading

	queued  bool          // a draw is queued or in flight
	closing bool          // the next draw returns all units
	gave    bool          // the draw in flight returns all units
	refresh bool          // the next draw only reads the state
	done    chan struct{} // closed when the draw ends; nil if no check waits for it
	reports uint32        // number of draws and resets so far; put compares it with hold.reports
	flight  uint32        // value of reports when the draw in flight began

	used, mark, wanted int64 // units used since mark (a time of the node's clock); units requested by the last draw
	checks             int64 // number of checks since the time mark
	last               int64 // time of the last check
	retry              int64 // no draw begins before this time
	correct            int64 // before this time, a denial starts no draw that corrects the state
}

// A lot has the units of one draw. They may be spent before the time until of the store's clock. units is the
// number of unspent units. spent is the number of spent units that were not yet reported to the store; for
// windows, it is always 0.
type lot struct{ until, units, spent int64 }

func (c *cell) held() int64 { return c.lots[0].units + c.lots[1].units }

// store returns an estimate of the store's clock. The estimate may be slightly ahead of that clock, but is never
// behind it.
func (c *cell) store(now reading) int64 { return c.at + now.mono - c.sent.mono }

// sure reports whether the node knows reliably when lots end. For this, the last reading of the store's clock must
// be recent, and the machine must not have been suspended since.
func (c *cell) sure(now reading) bool {
	moved := now.skew - c.sent.skew
	return moved <= apart && moved >= -apart && now.mono-c.sent.mono <= longest
}

// latest returns the latest time that the store's clock can show now.
func (c *cell) latest(now reading) int64 {
	return c.store(now) + (now.mono-c.sent.mono)/drift + margin
}

// serves reports whether the cell has the same limit and hash tag as a charge, so that its units can be used.
func (c *cell) serves(charge *enforcement.Charge, home string) bool {
	if c.rev != charge.Rev || c.home != home || c.closing {
		return false
	}
	m := charge.Meter
	return c.meter == m || c.meter.Numbers == m.Numbers && c.meter.Algorithm == m.Algorithm && c.meter.Anchor == m.Anchor
}

// A hold has the units that were taken out of a cell for a request. It exists until the request is decided.
type hold struct {
	units   [2]int64
	until   [2]int64
	reports uint32
	asked   int // index of the charge in the request to the store that has the missing units; -1: none are missing
}

func (h *hold) sum() int64 { return h.units[0] + h.units[1] }

// take takes up to cost units out of the lots that have not ended.
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
				lot.units, lot.spent = 0, 0 // the lot has ended, and the store no longer accepts reports about it
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

// spend takes exactly cost units out of the lots and returns true. If the lots have fewer units, or if a lot has
// ended, it takes nothing and returns false. The caller then uses take, which handles lots that have ended.
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

// live reports whether at least one lot has units and has not ended.
func (c *cell) live(now reading) bool {
	latest := c.latest(now)
	return c.sure(now) && (c.lots[0].units > 0 && latest < c.lots[0].until || c.lots[1].units > 0 && latest < c.lots[1].until)
}

// put returns the units of a hold to their lots. If the counter is a bucket and a draw has reported these units as
// spent in the meantime, put does not return them. They stay unused until their lot ends.
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

// view returns the state that the counter would have if the units that the node holds were not charged.
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

// close makes the next draw return all units, because charge has a later quota, window or burst. The store accepts
// the units if the change keeps the used units of the counter.
func (c *cell) close(charge *enforcement.Charge) {
	if c.closing = true; !charge.Meter.Algorithm.Bucket() && !charge.Meter.Carried(c.rev, charge.Rev) {
		c.kept = charge.Rev
	}
}

// begin resets the cell for a charge that has another limit or hash tag than the cell.
func (c *cell) begin(charge *enforcement.Charge, home string, batch int64, now reading) {
	*c = cell{
		in: c.in, home: home, key: charge.Key, meter: charge.Meter, rev: charge.Rev, batch: batch,
		queued: c.queued, done: c.done, reports: c.reports + 1, mark: now.mono, last: now.mono,
	}
	if charge.Meter.Algorithm.Bucket() {
		c.epoch = charge.Meter.LeaseEpoch()
	}
}

// learn stores a state from a reply of the store. at is the time of the state by the store's clock. Replies can
// arrive out of order, so learn ignores a state that is older than the stored one. But if the state is older by
// more than a second, the store's clock stepped back, and learn stores the state.
func (c *cell) learn(s *enforcement.State, at int64, sent reading) {
	if at >= c.told || at < c.told-1_000_000 {
		c.state, c.told = *s, at
	}
	if sent.mono >= c.sent.mono {
		c.at, c.sent = at, sent
	}
}

// count adds the cost of a check to the usage of the cell, from which want computes how many units to draw. If the
// cell had no checks for longer than a batch lasts, the usage starts again at 0.
func (c *cell) count(cost int64, now reading) {
	if now.mono-c.mark > c.life() && c.held() == 0 && !c.queued {
		c.mark, c.used, c.checks = now.mono, 0, min(c.checks, 1)
	}
	c.used += cost
	c.checks++
	c.last = now.mono
}

// horizon returns the time for which a large batch of units should last.
func (c *cell) horizon() int64 { return min(c.life(), burst) }

// life returns the time for which a small batch of units should last. It is not longer than a lot lasts.
func (c *cell) life() int64 {
	if c.epoch > 0 {
		return c.epoch
	}
	return min(c.meter.Window/4, lifetime)
}

// want returns the number of units to draw, in addition to those in the cell. It is based on the expected usage
// within horizon. If this is a small number, it is based on the usage within life. So a key with few checks draws
// about once a minute, and a key with many checks does not hold units that it needs much later.
func (c *cell) want(now reading) int64 {
	elapsed, rest := max(now.mono-c.mark, 1000), int64(1<<62)
	if c.epoch == 0 {
		rest = max(c.start+c.meter.Window-c.latest(now), 0)
	}
	used := min(c.used, 1<<32) // the bound prevents an overflow of the products
	large := used * min(c.horizon(), rest) / elapsed
	few := min(max(used*min(c.life(), rest)/elapsed, least), small, c.batch/share)
	return min(max(large, few), max(first, ramp*c.wanted), c.batch) - c.held()
}

// soon returns how long before the end of a lot the cell returns its units. Lots of many buckets can end at the
// same time. Therefore soon differs between cells: they return their units at different times in a quarter of the
// epoch.
func (c *cell) soon() int64 {
	soon := min(c.horizon()/2, returnSoon)
	if c.epoch > 0 {
		soon += c.epoch / 4 * int64(c.key.Partition[15]) / 256
	}
	return soon
}

// patience returns the time without checks after which a cell returns its units.
func (c *cell) patience() int64 {
	if c.held() <= min(small, c.batch/share) {
		return 2 * c.life()
	}
	return min(c.horizon(), idle)
}

// due returns the time of the node's clock at which sweep must visit the cell next.
func (c *cell) due() int64 {
	if c.held() == 0 && c.lots[0].spent+c.lots[1].spent == 0 {
		return c.last + slowness
	}
	due := min(c.last+c.patience(), c.sent.mono+longest/2)
	if c.meter.Algorithm == enforcement.FixedWindow {
		return due
	}
	for i := range c.lots {
		if c.lots[i].units > 0 { // latest is at most longest/drift and margin ahead of the store's clock
			due = min(due, c.lots[i].until-c.soon()-margin-longest/drift-c.at+c.sent.mono)
		}
	}
	return due
}

// low reports whether the cell has so few units that a draw should start.
func (c *cell) low(now reading) bool {
	if c.queued || c.closing || c.checks < 2 || now.mono < c.retry {
		return false
	}
	return 4*c.held() < max(c.wanted, 1) && c.want(now) >= enforcement.LeaseLeast
}

// draw returns the next draw of the cell. The draw is sent at the time now. It reports the units that were spent,
// and requests more units.
func (c *cell) draw(now reading, part int64) enforcement.Draw {
	d := enforcement.Draw{
		Home: c.home, Key: c.key, Meter: c.meter, Rev: max(c.rev, c.kept), Start: c.start,
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
		c.used, c.mark = c.used/2, now.mono-(now.mono-c.mark)/2 // halve the usage so far, so that later checks count more
	}
	return d
}

// drew stores a, the result of the draw d, in the cell.
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
	case c.reports != c.flight || c.start != d.Start: // after the draw was sent, begin or a new window emptied the cell
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

// ending reports whether the cell needs a draw even if it has enough units, because a lot ends soon
// or the last reading of the store's clock is too old.
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
