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

// Config has the settings of a Limiter.
type Config struct {
	// Nodes is the number of nodes. The more nodes there are, the less quota this node draws. With a
	// wrong number, nodes never allow more than a limit, but may deny more checks too early. Default:
	// 1.
	Nodes int
	// Keys is the maximum number of counters for which this node leases quota. For all other counters,
	// the shared limiter decides the checks. Default: 100,000.
	Keys int
	// Timeout is the maximum time of a draw. Default: 250 ms.
	Timeout time.Duration
	// Clock replaces the node's monotonic clock and wall clock in tests. It returns
	// microseconds. Default: the clocks of time.Now.
	Clock func() (mono, wall int64)
}

// A Limiter decides checks with quota that it leased from a Drawer. It is safe for
// concurrent use.
type Limiter struct {
	shared enforcement.Drawer
	config Config
	base   time.Time
	shards [shards]shard
	pool   sync.Pool // of *work

	// answered and spent are parts of Stats.Answered and Stats.Spent. They count the requests that the
	// method take decided. Requests that the method spend decided are counted in each shard.
	answered, spent atomic.Int64

	nodes   atomic.Int64 // Config.Nodes, or the number of the last SetNodes
	running atomic.Bool
	stopped atomic.Bool
	wake    chan struct{} // has one element while the queue is not empty

	mu    sync.Mutex
	queue []*cell

	swept int64 // the difference of the node's two clocks at the last complete sweep
}

var _ enforcement.Limiter = (*Limiter)(nil)

// New returns a Limiter that leases quota from the shared limiter. It leases quota only
// while [Limiter.Run] runs.
func New(shared enforcement.Drawer, config Config) *Limiter {
	config.Keys = cmp.Or(config.Keys, 100_000)
	config.Timeout = cmp.Or(config.Timeout, 250*time.Millisecond)
	l := &Limiter{shared: shared, config: config, base: time.Now(), wake: make(chan struct{}, 1)}
	l.SetNodes(config.Nodes)
	if config.Clock == nil {
		l.config.Clock = l.clocks
	}
	for i := range l.shards {
		l.shards[i].cells = map[enforcement.Key]*cell{}
	}
	l.pool.New = func() any { return new(work) }
	return l
}

// SetNodes sets the number of nodes. A number below 1 counts as 1.
func (l *Limiter) SetNodes(n int) { l.nodes.Store(int64(max(n, 1))) }

func (l *Limiter) clocks() (mono, wall int64) {
	now := time.Now()
	return now.Sub(l.base).Microseconds(), now.UnixMicro()
}

func (l *Limiter) read() reading {
	mono, wall := l.config.Clock()
	return reading{mono: mono, skew: wall - mono}
}

// shard returns the shard of a key.
func (l *Limiter) shard(key *enforcement.Key) *shard {
	h := binary.LittleEndian.Uint64(key.Partition[:8]) ^ uint64(key.Tenant)<<32 ^ uint64(key.Cell)
	h *= 0x9e3779b97f4a7c15
	return &l.shards[h>>56]
}

// mostCharges is the largest number of charges of a request that may use leased quota.
const mostCharges = 64

// A work has the memory that one call of take needs. Later calls reuse it.
type work struct {
	now      reading
	asks     []ask
	holds    []hold
	charges  []enforcement.Charge
	requests []enforcement.Request
	outcomes []enforcement.Outcome

	answered, spent int64 // not yet added to the Limiter's fields of the same names
}

// An ask is a request, or the part of a request, that the shared limiter must decide.
type ask struct {
	index    int  // index in the caller's requests
	number   int  // position in work.requests
	holds    int  // index of its first hold in work.holds
	from, to int  // range of its charges in work.charges
	whole    bool // the shared limiter decides the complete request; then holds, from and to are unused
}

// Take implements enforcement.Limiter. It decides requests with leased quota, and sends only what
// this quota does not cover to the shared limiter.
func (l *Limiter) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	now, live := l.read(), !l.stopped.Load() && ctx.Err() == nil
	if len(requests) == 1 && live && l.spend(&requests[0], &outcomes[0], now) {
		return
	}
	if !l.take(ctx, requests, outcomes, now, live) {
		return
	}
	// A request may have been denied only because this node was drawing or returning quota. Wait for
	// the end of these draws, and decide the request again.
	for i := range requests {
		if outcomes[i].Verdict != enforcement.Refused {
			continue
		}
		if l.settled(ctx, &requests[i], &outcomes[i]) {
			_ = l.take(ctx, requests[i:i+1], outcomes[i:i+1], l.read(), !l.stopped.Load() && ctx.Err() == nil)
		}
	}
}

// take decides requests. If live is false, it uses no leased quota. retry says that a request was
// denied, and that a draw in flight may bring the missing units.
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

// spend decides a request that has one charge, if the charge is leased and the node holds units for
// its whole cost. Otherwise it changes nothing and returns false.
func (l *Limiter) spend(r *enforcement.Request, out *enforcement.Outcome, now reading) bool {
	if len(r.Charges) != 1 || r.Mode != enforcement.Enforce || !r.Charges[0].Leased || r.Idempotency != nil {
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
	out.Verdict, out.At, out.Units, out.Err, out.Replayed = enforcement.Granted, c.store(now), 0, nil, false
	out.Charges = append(out.Charges[:0], enforcement.Charged{State: c.view(now), Cost: charge.Cost, Fits: true})
	return true
}

func (l *Limiter) release(w *work) {
	if w.answered > 0 || w.spent > 0 {
		l.answered.Add(w.answered)
		l.spent.Add(w.spent)
		w.answered, w.spent = 0, 0
	}
	for i := range w.outcomes { // after a timeout, the shared limiter may still read w.requests
		if !w.outcomes[i].Verdict.Decided() {
			return
		}
	}
	clear(w.requests)
	clear(w.charges)
	w.asks, w.holds, w.charges, w.requests, w.outcomes = w.asks[:0], w.holds[:0], w.charges[:0], w.requests[:0], w.outcomes[:0]
	l.pool.Put(w)
}

// leased reports whether a request may use leased quota. An idempotent request may not, because the
// shared limiter must decide and record it in one step.
func leased(r *enforcement.Request) bool {
	if r.Idempotency != nil || r.Mode != enforcement.Enforce && r.Mode != enforcement.Peek || len(r.Charges) > mostCharges {
		return false
	}
	found := false
	for i := range r.Charges {
		if r.Charges[i].Grant {
			return false // only the shared limiter knows what the window of the grant has left
		}
		found = found || r.Charges[i].Leased
	}
	return found
}

// cover spends leased quota on the charges of a request, and sets their outcome. If the quota
// does not cover all charges, cover appends an ask for the rest to w.asks.
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

// hold reserves leased quota for one charge. covered says that the reserved quota is the whole
// cost.
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

// addUp combines the charges of a group that have the same key. It sets the cost of each of them to the
// sum of their costs. If a charge does not fit, addUp marks all charges with its key as not fitting.
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

// nextOutcome appends an outcome. It reuses the memory of an outcome from an earlier call.
func (w *work) nextOutcome() []enforcement.Outcome {
	n := len(w.outcomes)
	if n == cap(w.outcomes) {
		return append(w.outcomes, enforcement.Outcome{})
	}
	w.outcomes = w.outcomes[:n+1]
	w.outcomes[n] = enforcement.Outcome{Charges: w.outcomes[n].Charges[:0]}
	return w.outcomes
}

// ask sends w.asks to the shared limiter and completes their outcomes.
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

// merge completes the outcome of a request that needed the shared limiter. Before, the method take
// reserved units of this node for a part of the request, and the shared limiter decided the rest
// with the outcome o. If the request is not granted, merge returns the reserved units. retry is
// true if the request was denied, and a draw in flight may bring the missing units.
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

// mergeCharge completes the outcome of charge k of a request. kept says that the group of this
// charge was charged. retry is true if a draw in flight may bring the missing units.
func (l *Limiter) mergeCharge(
	w *work, r *enforcement.Request, k int, h *hold, out *enforcement.Outcome, kept bool,
) (retry bool) {
	charge := &r.Charges[k]
	switch {
	case !charge.Leased:
	case h.asked >= 0:
		retry = l.update(w, r, charge, h, out, k, kept)
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

// put returns the units of a hold to their cell. If the cell no longer exists, put does
// nothing.
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

// update updates the cell of a charge from the result of the shared limiter. To that limiter, the
// units that the node holds are charged, but they are still available. So update adds them to the
// state in out. retry is true if a draw in flight may bring the missing units.
func (l *Limiter) update(w *work, r *enforcement.Request, charge *enforcement.Charge, h *hold, out *enforcement.Outcome, k int,
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

// lagging reports whether a denied charge may fit after a draw that is queued or in flight. For a
// bucket, it queues a draw if there is none. While quota is leased, the known state of a bucket may
// have too few units (see limitertest.Outstanding), and a draw corrects the state.
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

// note creates or updates the cell of a charge that the shared limiter decided. charged says that
// the shared limiter charged the cost.
func (l *Limiter) note(s *shard, c *cell, r *enforcement.Request, charge *enforcement.Charge, told *enforcement.Charged,
	charged bool, at int64, sent reading,
) *cell {
	batch := charge.Meter.LeaseBatch(int(l.nodes.Load()))
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
		if c.queued || c.held() > 0 { // units drawn under the former quota must be returned first
			c.close(charge)
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

// room reports whether a shard may get another cell. If the shard is full, room first tries to
// delete a cell that has no units.
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

// forget discards the leased quota of the counters that a request resets.
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

// settled waits for draws in flight that affect the counters which deny a request. It returns false
// if there are no such draws, or if ctx ends first.
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
