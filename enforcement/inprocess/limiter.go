package inprocess

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// Config of a Limiter. The zero value is usable.
type Config struct {
	// Now returns the time in microseconds since the epoch. Default: the wall clock at
	// the call of New plus the monotonic time since then, which never steps back.
	Now func() int64
	// MaxCells bounds memory: the number of counters plus a quarter of the number of
	// entries of sliding logs. Each counts about 85 bytes. Above it, new keys of one
	// tenant and limit share an overflow counter. Default: 4,000,000.
	MaxCells int
	// TenantCells is the same bound for one tenant, so that a flood of keys of one tenant
	// does not use the memory of others. Tenants whose numbers are equal modulo 4,096
	// share one bound. Default: a quarter of MaxCells.
	TenantCells int
	// SeenCells bounds the number of remembered states of shared counters, which do not
	// count for MaxCells. One tenant may use the same part of SeenCells as of MaxCells.
	// The share of a key that is not remembered starts full. Default: a quarter of MaxCells.
	SeenCells int
	// SweepEvery is the interval at which Run deletes counters that are in their initial
	// state. Default: one second.
	SweepEvery time.Duration
}

const (
	defaultMaxCells   = 4_000_000
	defaultSweepEvery = time.Second

	shardBits  = 8
	shardCount = 1 << shardBits
	shareCount = 4096 // of budget.shares
)

// overflow is the partition of the overflow counters. No key has it: the partition of a
// key is a hash, or zero for the whole tenant.
var overflow = [16]byte{
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
}

// A Limiter counts in this process. It is safe for use by many goroutines.
type Limiter struct {
	now   func() int64
	every time.Duration
	seed  [3]uint64 // random seed of hash, so that callers cannot choose keys that collide

	counted    budget       // counters, and blocks of log entries
	remembered budget       // states of shared counters
	overflows  atomic.Int64 // overflow counters

	shards [shardCount]shard
}

var _ enforcement.Limiter = (*Limiter)(nil)

// New makes a Limiter without counters.
func New(config Config) *Limiter {
	l := &Limiter{now: config.Now, every: config.SweepEvery}
	for i := range l.seed {
		l.seed[i] = rand.Uint64()
	}
	if l.now == nil {
		start := time.Now()
		base := start.UnixMicro()
		l.now = func() int64 { return base + time.Since(start).Microseconds() }
	}
	l.counted.max = int64(config.MaxCells)
	if l.counted.max <= 0 {
		l.counted.max = defaultMaxCells
	}
	if l.counted.share = int64(config.TenantCells); l.counted.share <= 0 {
		l.counted.share = max(l.counted.max/4, 1)
	}
	if l.remembered.max = int64(config.SeenCells); l.remembered.max <= 0 {
		l.remembered.max = max(l.counted.max/4, 1)
	}
	l.remembered.share = max(l.remembered.max*min(l.counted.share, l.counted.max)/l.counted.max, 1)
	if l.every <= 0 {
		l.every = defaultSweepEvery
	}
	return l
}

// Len returns the number of stored counters.
func (l *Limiter) Len() int {
	n := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.lock()
		n += int(s.live)
		s.unlock()
	}
	return n
}

// Take implements enforcement.Limiter. It does not wait and ignores the deadline of ctx:
// on a busy processor, the deadline may have passed before Take runs. If ctx is
// canceled, Take fails the requests that are not decided yet.
func (l *Limiter) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	for i := range requests {
		r, o := &requests[i], &outcomes[i]
		o.Units, o.Err = 0, nil
		if err := ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			o.Verdict, o.At, o.Charges = enforcement.Failed, 0, o.Charges[:0]
			o.Err = fmt.Errorf("%w: %w", enforcement.ErrNotReached, err)
			continue
		}
		o.Charges = slices.Grow(o.Charges[:0], len(r.Charges))[:len(r.Charges)]
		if simple(r) && l.takeOne(r, o) {
			continue
		}
		if !l.takeAll(r, o, false) {
			l.takeAll(r, o, true)
		}
	}
}

// simple reports whether takeOne may decide the request.
func simple(r *enforcement.Request) bool {
	return len(r.Charges) == 1 && r.Mode == enforcement.Enforce && r.Charges[0].Group == 0 &&
		r.Charges[0].Meter.Algorithm != enforcement.SlidingWindowLog
}

// hash mixes the three words of a key with the seed by two multiplications to 128 bits,
// like wyhash. The first multiplication mixes the tenant and the cell, which differ
// little. The second adds the partition, which is part of a SHA-256 sum. The seed
// prevents callers from searching for values that collide.
func (l *Limiter) hash(key *enforcement.Key) uint64 {
	hi, lo := bits.Mul64((uint64(key.Tenant)|uint64(key.Cell)<<32)^l.seed[0], l.seed[1])
	first, second := binary.LittleEndian.Uint64(key.Partition[:8]), binary.LittleEndian.Uint64(key.Partition[8:])
	hi, lo = bits.Mul64(first^hi^lo, second^l.seed[2])
	return hi ^ lo
}

func shardOf(hash uint64) int { return int(hash >> (64 - shardBits)) }

// A budget bounds the number of cells of all tenants, and of each tenant.
type budget struct {
	max, share int64
	used       atomic.Int64
	shares     [shareCount]atomic.Int64 // by tenant
}

// add adds n cells to the counts of a tenant.
func (b *budget) add(tenant uint32, n int64) {
	b.used.Add(n)
	b.shares[tenant%shareCount].Add(n)
}

// full reports whether a tenant has no room for another cell.
func (b *budget) full(tenant uint32) bool {
	return b.used.Load() >= b.max || b.shares[tenant%shareCount].Load() >= b.share
}

// crowded reports whether a key without a cell may have to use an overflow counter.
func (l *Limiter) crowded(tenant uint32) bool {
	return l.counted.full(tenant) || l.overflows.Load() > 0
}

// takeOne is takeAll for the most frequent request: one enforced charge. It returns
// false without a change if takeAll must decide the request. It computes in the
// caller's State, so that it copies only the cell.
func (l *Limiter) takeOne(r *enforcement.Request, o *enforcement.Outcome) bool {
	c, out := &r.Charges[0], &o.Charges[0]
	m, hash, state := c.Meter, l.hash(&c.Key), &out.State
	s := &l.shards[shardOf(hash)]
	now := l.now() // read before the lock, so that the lock is held for half the time
	s.lock()
	i := s.find(&c.Key, uint32(hash))
	if i == none {
		if l.crowded(c.Key.Tenant) {
			s.unlock()
			return false
		}
		state.Rev, state.A, state.B, state.T = 0, 0, 0, 0
	} else {
		cell := s.cell(i)
		state.Rev, state.A, state.B, state.T = cell.rev, cell.a, cell.b, cell.t
		if state.T > now { // another request got the lock first and read the clock later
			now = l.now()
		}
	}
	state.Log = state.Log[:0]
	fits, write := m.Spend(state, c.Rev, now, c.Cost)
	if write {
		if i == none {
			i = s.insert(&c.Key, uint32(hash))
			l.counted.add(c.Key.Tenant, 1)
		}
		s.write(i, m, state, now)
	}
	s.unlock()

	o.Verdict, o.At = enforcement.Refused, now
	if fits {
		o.Verdict = enforcement.Granted
	}
	out.Cost, out.Fits = c.Cost, fits
	return true
}

// write stores a settled state in cell i, without the entries of a log.
func (t *table) write(i int32, m *enforcement.Meter, state *enforcement.State, now int64) {
	c := t.cell(i)
	// A charge with the same numbers never makes a bucket full sooner. Then due stays
	// correct if the bucket is full by the end of that tick.
	later := c.rev == state.Rev && c.a >= state.A && c.t <= state.T
	c.rev, c.a, c.b, c.t = state.Rev, state.A, state.B, state.T
	if stillDue(m, state, c.due, later) {
		return
	}
	c.due = due(m, state, now)
	if t.next == 0 || c.due < t.next {
		t.next = c.due
	}
}

// stillDue reports whether due would return the same tick for a bucket that is not full.
// It avoids the division of due: most charges of a busy bucket move the instant at which
// it is full within one tick. later reports that the bucket cannot be full sooner than
// at the time for which tick was computed.
func stillDue(m *enforcement.Meter, state *enforcement.State, tick uint32, later bool) bool {
	if !m.Algorithm.Bucket() || m.P == 0 || state.A >= m.Capacity || tick <= keepTicks || tick == lastTick {
		return false
	}
	begins := int64(tick-keepTicks) << dueBits
	return (later || !m.ResetBy(state, begins-1)) && m.ResetBy(state, begins+1<<dueBits-1)
}

// keepTicks is the number of ticks for which a counter in its initial state is kept: at
// least two seconds, so that it still exists after a small step back of the clock.
const keepTicks = 2

const lastTick = 1<<32 - 1

// due returns the tick at which a counter may be deleted: it has been in its initial
// state for keepTicks ticks, the first of which may be partial.
func due(m *enforcement.Meter, state *enforcement.State, now int64) uint32 {
	after := m.ResetAfter(*state, now)
	if m.Quota == 0 {
		after = m.Window // this bucket never fills
	}
	return uint32(min(max((now+after)>>dueBits+keepTicks, 1), lastTick))
}

// A work is one charge of a request while it is decided.
type work struct {
	key    enforcement.Key // of the counter: the key of the charge, or of an overflow counter
	hash   uint64
	cell   int32
	leader int32 // the first charge on the same counter; only its work is used
	shared bool  // set if the charge uses an overflow counter
	write  bool
	state  enforcement.State // settled; its Log shares memory with the entries
	sum    int64             // of the group's costs
	count  int64             // of the group's charges
}

// few is the number of charges that takeAll decides without allocating.
const few = 8

// takeAll decides any request. With wide, it also locks the shards of the overflow
// counters. Without wide, it returns false and changes nothing if a key without a cell
// may have to use an overflow counter.
func (l *Limiter) takeAll(r *enforcement.Request, o *enforcement.Outcome, wide bool) bool {
	var some [few]work
	ws := some[:min(len(r.Charges), few)]
	if len(r.Charges) > few {
		ws = make([]work, len(r.Charges))
	}
	var locked shardSet
	for i := range ws {
		w := &ws[i]
		w.key = r.Charges[i].Key
		w.hash = l.hash(&w.key)
		locked.add(shardOf(w.hash))
		if wide {
			shared := w.key
			shared.Partition = overflow
			locked.add(shardOf(l.hash(&shared)))
		}
	}
	locked.lock(l)
	defer locked.unlock(l)
	now := l.now()
	for i := range ws {
		if !l.resolve(&ws[i], wide, now) {
			return false
		}
	}
	lead(ws)
	for i := range ws {
		if w := &ws[i]; w.leader == int32(i) {
			w.state, w.write = r.Charges[i].Meter.Settle(l.load(w), r.Charges[i].Rev, now)
			if w.write && r.Mode != enforcement.Peek {
				l.keepClamp(w, r.Charges[i].Meter, now)
			}
		}
	}
	o.Verdict, o.At = enforcement.Granted, now
	for from, to := 0, 0; from < len(ws); from = to {
		for to < len(ws) && r.Charges[to].Group == r.Charges[from].Group {
			to++
		}
		l.takeGroup(r, o, ws, from, to)
	}
	return true
}

// resolve finds the counter of a charge: its own or an overflow counter. It returns
// false if it needs the lock of an overflow counter, which only wide has.
func (l *Limiter) resolve(w *work, wide bool, now int64) bool {
	w.cell = l.shards[shardOf(w.hash)].find(&w.key, uint32(w.hash))
	if w.cell != none || !l.crowded(w.key.Tenant) {
		return true
	}
	if !wide {
		return false
	}
	shared := w.key
	shared.Partition = overflow
	hash := l.hash(&shared)
	s := &l.shards[shardOf(hash)]
	i := s.find(&shared, uint32(hash))
	// A key that was counted on the overflow counter stays there until that counter is in
	// its initial state, even if there is room again. Otherwise its count would be lost.
	if l.counted.full(w.key.Tenant) || i != none && s.cell(i).due > tick(now) {
		w.key, w.hash, w.cell, w.shared = shared, hash, i, true
	}
	return true
}

// lead sets the leader of each charge: the first charge on the same counter.
func lead(ws []work) {
	if len(ws) <= 4*few {
		for i := range ws {
			j := 0
			for ws[j].key != ws[i].key {
				j++
			}
			ws[i].leader = int32(j)
		}
		return
	}
	first := make(map[enforcement.Key]int32, len(ws))
	for i := range ws {
		j, ok := first[ws[i].key]
		if !ok {
			j = int32(i)
			first[ws[i].key] = j
		}
		ws[i].leader = j
	}
}

// load returns the stored state.
func (l *Limiter) load(w *work) (state enforcement.State) {
	if w.cell == none {
		return state
	}
	s := &l.shards[shardOf(w.hash)]
	c := s.cell(w.cell)
	state.Rev, state.A, state.B, state.T = c.rev, c.a, c.b, c.t
	if c.log != 0 {
		state.Log = s.logs[c.log-1].live()
	}
	return state
}

// takeGroup decides the charges [from, to), which are one group.
func (l *Limiter) takeGroup(r *enforcement.Request, o *enforcement.Outcome, ws []work, from, to int) {
	charges, now := r.Charges, o.At
	for i := from; i < to; i++ {
		w := &ws[ws[i].leader]
		w.sum, w.count = 0, 0
	}
	for i := from; i < to; i++ {
		w := &ws[ws[i].leader]
		w.sum += charges[i].Cost
		w.count++
	}
	fits, units := true, int64(1<<62)
	for i := from; i < to; i++ {
		c, w, out := &charges[i], &ws[ws[i].leader], &o.Charges[i]
		left := c.Meter.Left(w.state, now)
		out.Cost = w.sum
		switch r.Mode {
		case enforcement.Refund, enforcement.Reset:
			out.Fits = true
		case enforcement.TakeUpTo:
			out.Fits = c.Meter.Admits(left, 1)
			units = min(units, c.Cost, max(left, 0)/w.count)
		default:
			out.Fits = c.Meter.Admits(left, w.sum)
		}
		fits = fits && out.Fits
	}
	if r.Mode == enforcement.TakeUpTo {
		if fits = fits && units > 0; charges[from].Group == 0 && fits {
			o.Units = units
		}
	}
	if r.Mode == enforcement.Force {
		fits = true
	}
	if !fits && charges[from].Group == 0 {
		o.Verdict = enforcement.Refused
	}
	if fits && o.Verdict == enforcement.Granted {
		l.apply(r, ws, from, to, units, now)
	}
	for i := from; i < to; i++ {
		handOut(&o.Charges[i], &charges[i], &ws[ws[i].leader].state, now)
	}
}

// apply changes each counter of a granted group once, as the mode requires.
func (l *Limiter) apply(r *enforcement.Request, ws []work, from, to int, units, now int64) {
	for i := from; i < to; i++ {
		c, w := &r.Charges[i], &ws[ws[i].leader]
		if w.count == 0 {
			continue // done at an earlier charge of the group
		}
		cost := w.sum
		if r.Mode == enforcement.TakeUpTo {
			cost = units * w.count
		}
		w.count = 0
		switch r.Mode {
		case enforcement.Reset:
			l.reset(w, c, now)
		case enforcement.Refund:
			l.refund(w, c, cost, now)
		case enforcement.Peek:
			w.state = peeked(w.state, c, cost, now)
		default:
			l.charge(w, c, cost, now)
		}
	}
}

// handOut copies a state to the outcome. Of a log, it copies the oldest entries that
// RetryAfter needs for the cost, and at least those for one unit: after a TakeUpTo that
// granted nothing, the caller computes when one unit fits.
func handOut(out *enforcement.Charged, c *enforcement.Charge, state *enforcement.State, now int64) {
	log := out.State.Log[:0]
	if len(state.Log) > 0 {
		missing := max(out.Cost, 1) - c.Meter.Left(*state, now)
		for i := 0; i < len(state.Log) && missing > 0; i++ {
			log = append(log, state.Log[i])
			missing -= state.Log[i].Units
		}
	}
	out.State = *state
	out.State.Log = log
}

// A shardSet is a set of shards.
type shardSet [shardCount / 64]uint64

func (set *shardSet) add(i int) { set[i/64] |= 1 << (i % 64) }

// lock locks the shards in ascending order, so that no two requests wait for
// each other.
func (set *shardSet) lock(l *Limiter) {
	for i, word := range set {
		for ; word != 0; word &= word - 1 {
			l.shards[i*64+bits.TrailingZeros64(word)].lock()
		}
	}
}

func (set *shardSet) unlock(l *Limiter) {
	for i, word := range set {
		for ; word != 0; word &= word - 1 {
			l.shards[i*64+bits.TrailingZeros64(word)].unlock()
		}
	}
}
