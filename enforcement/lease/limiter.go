package lease

import (
	"cmp"
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// Config of a Limiter.
type Config struct {
	// Nodes is among how many nodes a limit is shared. A wrong number never allows
	// more; it moves the bound of what is denied early. Default: 1.
	Nodes int
	// Keys is how many counters the node holds quota of at most. Checks of others
	// are decided exactly. Default: 100,000.
	Keys int
	// Timeout of a draw. Default: 250 ms.
	Timeout time.Duration
	// Clock replaces the node's clocks, for tests: the monotonic one and the one on
	// the wall, in microseconds. Default: those of time.Now.
	Clock func() (mono, wall int64)
}

// A Limiter spends quota that it drew from a Drawer. It is safe for use by many
// goroutines.
type Limiter struct {
	shared enforcement.Drawer
	config Config
	base   time.Time
	shards [shards]shard
	pool   sync.Pool // of *work

	// Of requests that are not decided by spend.
	answered, spent atomic.Int64

	running atomic.Bool
	stopped atomic.Bool
	wake    chan struct{} // holds one token while the queue has cells

	mu    sync.Mutex
	queue []*cell

	swept int64 // the skew of the clocks when sweep last visited all cells
}

var _ enforcement.Limiter = (*Limiter)(nil)

// New makes a Limiter in front of a shared one. Until [Limiter.Run] runs it
// draws nothing.
func New(shared enforcement.Drawer, config Config) *Limiter {
	config.Nodes = max(config.Nodes, 1)
	config.Keys = cmp.Or(config.Keys, 100_000)
	config.Timeout = cmp.Or(config.Timeout, 250*time.Millisecond)
	l := &Limiter{shared: shared, config: config, base: time.Now(), wake: make(chan struct{}, 1)}
	if config.Clock == nil {
		l.config.Clock = l.clocks
	}
	for i := range l.shards {
		l.shards[i].cells = map[enforcement.Key]*cell{}
	}
	l.pool.New = func() any { return new(work) }
	return l
}

func (l *Limiter) clocks() (mono, wall int64) {
	now := time.Now()
	return now.Sub(l.base).Microseconds(), now.UnixMicro()
}

func (l *Limiter) read() reading {
	mono, wall := l.config.Clock()
	return reading{mono: mono, skew: wall - mono}
}

// shard gives the part of the cells that a key is in.
func (l *Limiter) shard(key *enforcement.Key) *shard {
	h := binary.LittleEndian.Uint64(key.Partition[:8]) ^ uint64(key.Tenant)<<32 ^ uint64(key.Cell)
	h *= 0x9e3779b97f4a7c15
	return &l.shards[h>>56]
}

// mostCharges of a request of which some may be leased.
const mostCharges = 64

// work is what one call needs and the next can use again.
type work struct {
	now      reading
	asks     []ask
	holds    []hold
	charges  []enforcement.Charge
	requests []enforcement.Request
	outcomes []enforcement.Outcome

	answered, spent int64 // of Stats, not yet added
}

// An ask is a request that the shared limiter has to decide, in part or, without
// holds, as a whole.
type ask struct {
	index    int // among the requests of the caller
	number   int // among those that are asked
	holds    int // where its holds begin
	from, to int // its charges
	whole    bool
}

// Take decides requests. It asks the shared limiter only what the quota that the
// node holds does not cover.
func (l *Limiter) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	now, live := l.read(), !l.stopped.Load() && ctx.Err() == nil
	if len(requests) == 1 && live && l.spend(&requests[0], &outcomes[0], now) {
		return
	}
	if !l.take(ctx, requests, outcomes, now, live) {
		return
	}
	// What this node was drawing, or giving back, was missing.
	for i := range requests {
		if outcomes[i].Verdict != enforcement.Refused {
			continue
		}
		if l.settled(ctx, &requests[i], &outcomes[i]) {
			_ = l.take(ctx, requests[i:i+1], outcomes[i:i+1], l.read(), !l.stopped.Load() && ctx.Err() == nil)
		}
	}
}

// take decides requests. retry: one was denied, and this node may have quota of
// it on the way. live: the node may spend what it holds.
func (l *Limiter) take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome, now reading, live bool) (
	retry bool,
) {
	w := l.pool.Get().(*work)
	defer l.release(w)
	w.now = now
	for i := range requests {
		r := &requests[i]
		switch {
		case r.Mode == enforcement.Reset:
			l.forget(r)
			w.asks = append(w.asks, ask{index: i, whole: true})
		case live && l.spend(r, &outcomes[i], now):
		case live && leased(r):
			l.cover(w, i, r, &outcomes[i])
		default:
			w.asks = append(w.asks, ask{index: i, whole: true})
		}
	}
	if len(w.asks) == 0 {
		return false
	}
	l.ask(ctx, w, requests, outcomes)
	for i := range w.asks {
		a := &w.asks[i]
		r, out, o := &requests[a.index], &outcomes[a.index], &w.outcomes[i]
		if a.whole {
			*out, *o = *o, *out
			continue
		}
		retry = l.merge(w, a, r, o, out) || retry
	}
	return retry
}

// spend decides a request with one leased charge if the node holds the whole cost. It
// reports whether it did; if not, nothing has changed.
func (l *Limiter) spend(r *enforcement.Request, out *enforcement.Outcome, now reading) bool {
	if len(r.Charges) != 1 || r.Mode != enforcement.Enforce || !r.Charges[0].Leased {
		return false
	}
	charge := &r.Charges[0]
	s := l.shard(&charge.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cells[charge.Key]
	if c == nil || !c.serves(charge, r.Home) || !c.spend(charge.Cost, now) {
		return false
	}
	s.count.Answered++
	s.count.Spent += charge.Cost
	c.count(charge.Cost, now)
	if c.low(now) {
		l.enqueue(c)
	}
	out.Verdict, out.At, out.Units, out.Err = enforcement.Granted, c.store(now), 0, nil
	out.Charges = append(out.Charges[:0], enforcement.Charged{State: c.view(now), Cost: charge.Cost, Fits: true})
	return true
}

func (l *Limiter) release(w *work) {
	if w.answered > 0 || w.spent > 0 {
		l.answered.Add(w.answered)
		l.spent.Add(w.spent)
		w.answered, w.spent = 0, 0
	}
	for i := range w.outcomes { // a limiter that ran out of time may still read the request
		if !w.outcomes[i].Verdict.Decided() {
			return
		}
	}
	clear(w.requests)
	clear(w.charges)
	w.asks, w.holds, w.charges, w.requests, w.outcomes = w.asks[:0], w.holds[:0], w.charges[:0], w.requests[:0], w.outcomes[:0]
	l.pool.Put(w)
}

// leased reports whether the node may hold quota that a request can spend.
func leased(r *enforcement.Request) bool {
	if r.Mode != enforcement.Enforce && r.Mode != enforcement.Peek || len(r.Charges) > mostCharges {
		return false
	}
	for i := range r.Charges {
		if r.Charges[i].Leased {
			return true
		}
	}
	return false
}

// cover takes what the node holds of a request's charges, and fills the outcome.
// What is missing it leaves to be asked.
func (l *Limiter) cover(w *work, index int, r *enforcement.Request, out *enforcement.Outcome) {
	a := ask{index: index, holds: len(w.holds), from: len(w.charges)}
	*out = enforcement.Outcome{Verdict: enforcement.Granted, Charges: out.Charges[:0]}
	for k := range r.Charges {
		charge := &r.Charges[k]
		out.Charges = append(out.Charges, enforcement.Charged{Cost: charge.Cost, Fits: true})
		var h hold
		covered := false
		if charge.Leased {
			h, covered = l.hold(w, r, charge, out, k)
		}
		if h.asked = -1; !covered {
			h.asked = len(w.charges) - a.from
			w.charges = append(w.charges, *charge)
			w.charges[len(w.charges)-1].Cost -= h.sum()
		}
		w.holds = append(w.holds, h)
	}
	if a.to = len(w.charges); a.to > a.from {
		w.asks = append(w.asks, a)
		return
	}
	if r.Mode == enforcement.Enforce {
		w.answered++
		for i := a.holds; i < len(w.holds); i++ {
			w.spent += w.holds[i].sum()
		}
	}
	w.holds = w.holds[:a.holds]
	if len(r.Charges) > 1 {
		addUp(r, out)
	}
}

// hold takes what the node holds of one charge. covered: that is all of it.
func (l *Limiter) hold(w *work, r *enforcement.Request, charge *enforcement.Charge, out *enforcement.Outcome, k int) (
	h hold, covered bool,
) {
	s := l.shard(&charge.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cells[charge.Key]
	if c == nil || !c.serves(charge, r.Home) || !charge.Meter.Possible(charge.Cost) {
		return h, false
	}
	h = c.take(charge.Cost, w.now)
	covered = h.sum() == charge.Cost && (charge.Cost > 0 || c.live(w.now))
	if covered {
		out.Charges[k].State = c.view(w.now)
		out.At = max(out.At, c.store(w.now))
	}
	if r.Mode == enforcement.Peek {
		c.put(&h)
		return h, covered
	}
	c.count(charge.Cost, w.now)
	if c.low(w.now) {
		l.enqueue(c)
	}
	return h, covered
}

// addUp gives the charges of a request on one counter the sum of their costs,
// and what becomes of one becomes of all.
func addUp(r *enforcement.Request, out *enforcement.Outcome) {
	for i := range r.Charges {
		sum, fits := int64(0), true
		for k := range r.Charges {
			if r.Charges[k].Key == r.Charges[i].Key && r.Charges[k].Group == r.Charges[i].Group {
				sum += r.Charges[k].Cost
				fits = fits && out.Charges[k].Fits
			}
		}
		out.Charges[i].Cost = sum
		if !fits {
			out.Charges[i].Fits = false
		}
	}
}

// nextOutcome appends an outcome that keeps the room of the one that was there.
func (w *work) nextOutcome() []enforcement.Outcome {
	n := len(w.outcomes)
	if n == cap(w.outcomes) {
		return append(w.outcomes, enforcement.Outcome{})
	}
	w.outcomes = w.outcomes[:n+1]
	w.outcomes[n] = enforcement.Outcome{Charges: w.outcomes[n].Charges[:0]}
	return w.outcomes
}

// ask has the shared limiter decide what is left of the requests.
func (l *Limiter) ask(ctx context.Context, w *work, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	for i := range w.asks {
		a := &w.asks[i]
		r := requests[a.index]
		w.outcomes = w.nextOutcome()
		if a.whole {
			w.outcomes[i].Charges = outcomes[a.index].Charges
		} else {
			r.Charges = w.charges[a.from:a.to:a.to]
		}
		a.number = i
		w.requests = append(w.requests, r)
	}
	l.shared.Take(ctx, w.requests, w.outcomes)
}

// merge makes the outcome of a request of what the node took and of what the
// shared limiter decided. If that did not grant it, the node keeps what it took.
// retry: it was denied, and this node may have quota of it on the way.
func (l *Limiter) merge(w *work, a *ask, r *enforcement.Request, o, out *enforcement.Outcome) (retry bool) {
	holds := w.holds[a.holds : a.holds+len(r.Charges)]
	if !o.Verdict.Decided() || len(o.Charges) != len(w.requests[a.number].Charges) {
		for k := range r.Charges {
			if r.Mode == enforcement.Enforce {
				l.put(&r.Charges[k], &holds[k])
			}
		}
		*out = enforcement.Outcome{Verdict: o.Verdict, At: o.At, Err: o.Err, Charges: out.Charges[:0]}
		return false
	}
	out.Verdict, out.At = o.Verdict, o.At
	for from, to := 0, 0; from < len(r.Charges); from = to {
		kept := o.Verdict == enforcement.Granted
		for ; to < len(r.Charges) && r.Charges[to].Group == r.Charges[from].Group; to++ {
			if h := &holds[to]; h.asked >= 0 {
				out.Charges[to].State, out.Charges[to].Fits = o.Charges[h.asked].State, o.Charges[h.asked].Fits
				kept = kept && out.Charges[to].Fits
			}
		}
		for k := from; k < to; k++ {
			retry = l.mergeCharge(w, r, k, &holds[k], out, kept) || retry
		}
	}
	if len(r.Charges) > 1 {
		addUp(r, out)
	}
	return retry && o.Verdict == enforcement.Refused
}

// mergeCharge completes the outcome of charge k. kept reports whether the group of
// the charge was charged. retry is as in merge.
func (l *Limiter) mergeCharge(
	w *work, r *enforcement.Request, k int, h *hold, out *enforcement.Outcome, kept bool,
) (retry bool) {
	charge := &r.Charges[k]
	switch {
	case !charge.Leased:
	case h.asked >= 0:
		retry = l.told(w, r, charge, h, out, k, kept)
	case !kept:
		if r.Mode == enforcement.Enforce {
			l.put(charge, h)
		}
		out.Charges[k].State = charge.Meter.Refund(out.Charges[k].State, charge.Cost)
	}
	if kept && r.Mode == enforcement.Enforce {
		w.spent += h.sum()
	}
	return retry
}

// put returns what was taken of a charge.
func (l *Limiter) put(charge *enforcement.Charge, h *hold) {
	if h.sum() == 0 {
		return
	}
	s := l.shard(&charge.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.cells[charge.Key]; c != nil {
		c.put(h)
		s.due = min(s.due, c.due())
	}
}

// told takes over what the shared limiter said of a charge, whose state becomes
// that with what the node holds. retry: the charge was denied, and a draw is
// under way that may bring or give back what it lacks.
func (l *Limiter) told(w *work, r *enforcement.Request, charge *enforcement.Charge, h *hold, out *enforcement.Outcome, k int,
	kept bool,
) (retry bool) {
	s := l.shard(&charge.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c, told, asked := s.cells[charge.Key], &out.Charges[k], charge.Cost-h.sum()
	if r.Mode == enforcement.Enforce {
		if !kept && c != nil {
			c.put(h)
			s.due = min(s.due, c.due())
		}
		if c = l.note(s, c, r, charge, told, kept && asked > 0, out.At, w.now); c != nil && !told.Fits {
			c.retry = w.now.mono + pause
			retry = l.lagging(c, charge, w.now)
		}
	}
	if c == nil || !c.serves(charge, r.Home) {
		return retry
	}
	units := c.held()
	if r.Mode == enforcement.Peek {
		units -= h.sum()
	}
	if charge.Meter.Algorithm.Bucket() {
		told.State.A = min(told.State.A+units, charge.Meter.Capacity)
	} else if told.State.Rev != 0 && told.State.T == c.start {
		told.State.A = max(told.State.A-units, 0)
	}
	return retry
}

// lagging reports whether a denial may be for what this node has on the way, or
// for what the state of a bucket lags while quota is drawn of it: see
// limitertest.Outstanding. A draw corrects it.
func (l *Limiter) lagging(c *cell, charge *enforcement.Charge, now reading) bool {
	if !l.running.Load() || !charge.Meter.Possible(charge.Cost) {
		return false
	}
	if !c.queued && c.epoch > 0 && now.mono >= c.correct {
		c.refresh, c.correct = true, now.mono+pause
		l.enqueue(c)
	}
	return c.queued
}

// note makes or updates the cell of a charge that the shared limiter decided.
// charged: it was charged there.
func (l *Limiter) note(s *shard, c *cell, r *enforcement.Request, charge *enforcement.Charge, told *enforcement.Charged,
	charged bool, at int64, sent reading,
) *cell {
	batch := charge.Meter.LeaseBatch(l.config.Nodes)
	fresh := c == nil
	switch {
	case fresh && (batch == 0 || !charged && !charge.Meter.Algorithm.Bucket() || !l.room(s)):
		return nil
	case fresh:
		c = &cell{in: s}
		s.cells[charge.Key] = c
		c.begin(charge, r.Home, batch, sent)
		s.due = min(s.due, c.due())
		c.count(charge.Cost, sent)
	case !c.serves(charge, r.Home):
		if c.rev > charge.Rev || c.closing {
			return nil
		}
		if c.queued || c.held() > 0 { // of other numbers
			c.closing = true
			l.enqueue(c)
			return nil
		}
		if batch == 0 {
			delete(s.cells, charge.Key)
			return nil
		}
		c.begin(charge, r.Home, batch, sent)
	}
	if charged && charge.Meter.Algorithm.Windowed() && told.State.T != c.start && sent.mono >= c.sent.mono {
		c.start, c.lots, c.retry = told.State.T, [2]lot{}, 0
	}
	c.learn(&told.State, at, sent)
	if !fresh && c.low(sent) && charged {
		l.enqueue(c)
	}
	return c
}

// room reports whether a shard has room for another cell, for which it may forget a
// random one that holds nothing.
func (l *Limiter) room(s *shard) bool {
	if len(s.cells) < max(l.config.Keys/shards, 1) {
		return true
	}
	looked := 0
	for key, c := range s.cells {
		if c.held() == 0 && !c.queued && c.lots[0].spent+c.lots[1].spent == 0 {
			delete(s.cells, key)
			return true
		}
		if looked++; looked == 8 {
			break
		}
	}
	return false
}

// forget drops what the node holds of counters that are reset.
func (l *Limiter) forget(r *enforcement.Request) {
	for k := range r.Charges {
		s := l.shard(&r.Charges[k].Key)
		s.mu.Lock()
		if c := s.cells[r.Charges[k].Key]; c != nil {
			c.lots, c.start, c.state = [2]lot{}, 0, enforcement.State{}
			c.reports++
		}
		s.mu.Unlock()
	}
}

// settled waits for the draws that a denied request lacks; false: there is none
// any more, or ctx ends.
func (l *Limiter) settled(ctx context.Context, r *enforcement.Request, o *enforcement.Outcome) bool {
	waited := false
	for k := range r.Charges {
		charge := &r.Charges[k]
		if !charge.Leased || o.Charges[k].Fits {
			continue
		}
		s := l.shard(&charge.Key)
		s.mu.Lock()
		var done chan struct{}
		if c := s.cells[charge.Key]; c != nil && c.queued {
			if c.done == nil {
				c.done = make(chan struct{})
			}
			done = c.done
		}
		s.mu.Unlock()
		if done == nil {
			continue
		}
		select {
		case <-done:
			waited = true
		case <-ctx.Done():
			return false
		}
	}
	return waited
}
