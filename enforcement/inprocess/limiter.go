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

// Config has the settings of a Limiter. The zero value selects the defaults.
type Config struct {
	// Now returns the time in microseconds since the epoch. Default: the wall clock at
	// the call of New plus the monotonic time since then, which never steps back.
	Now func() int64
	// MaxCells bounds the memory for counters. A counter counts as one cell. In addition, four entries
	// of a sliding log count as one cell, and so do two leases of a concurrency limit. A cell takes
	// about 85 bytes. If the bound is reached, all new keys of one tenant and limit share an overflow
	// counter. Default: 4,000,000.
	MaxCells int
	// TenantCells bounds the counters of one tenant, so that many keys of one tenant do not use up the
	// memory of others. Request.MaxKeys replaces it, up to half of MaxCells. Limits with few keys may
	// exceed it by up to a quarter; see [enforcement.KeyRoom]. Tenants whose numbers are equal modulo
	// 4,096 share one bound. Limits whose hashes are equal modulo 4,096 share one number of keys.
	// Default: a quarter of MaxCells.
	TenantCells int
	// SeenCells bounds the number of stored states of shared counters, which do not count in MaxCells.
	// One tenant may use the same part of SeenCells as of MaxCells. If the state of a key is not
	// stored, this node's share of the key's quota starts full. Default: a quarter of MaxCells.
	SeenCells int
	// SweepEvery is the interval at which Run deletes counters that are as if unused.
	// Default: one second.
	SweepEvery time.Duration
}

const (
	defaultMaxCells   = 4_000_000
	defaultSweepEvery = time.Second

	shardBits  = 8
	shardCount = 1 << shardBits
	shareCount = 4096 // of budget.shares
)

// overflow is the value of Key.Partition that identifies an overflow counter.
var overflow = enforcement.Overflow

// A Limiter stores its counters in the memory of this process. It is safe for
// concurrent use.
type Limiter struct {
	now   func() int64
	every time.Duration
	seed  [3]uint64 // random seed of hash, so that clients cannot construct keys with equal hashes

	counted    budget       // bound for counters and for blocks of log entries
	remembered budget       // bound for the stored states of shared counters
	overflows  atomic.Int64 // number of overflow counters

	reservations reservations

	shards [shardCount]shard
}

var _ enforcement.Reserver = (*Limiter)(nil)

// New returns a Limiter without counters.
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

// Take implements enforcement.Limiter. It does not wait, and it ignores the deadline of
// ctx: on a busy machine, the deadline may have passed before Take runs. If ctx is
// canceled, the requests that are not decided yet are Failed.
func (l *Limiter) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	for i := range requests {
		r, o := &requests[i], &outcomes[i]
		o.Units, o.Err, o.Replayed, o.Record = 0, nil, false, nil
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

// simple reports whether takeOne may decide the request, because it has only one charge, which is
// enforced, and mode Enforce.
func simple(r *enforcement.Request) bool {
	return len(r.Charges) == 1 && r.Mode == enforcement.Enforce && r.Charges[0].Group == 0 && r.Idempotency == nil &&
		r.Reservation == nil && r.Charges[0].Meter.Algorithm != enforcement.SlidingWindowLog &&
		r.Charges[0].Meter.Algorithm != enforcement.Concurrency
}

// hash returns the hash of a key: the three words of the key and the seed, combined by
// two multiplications to 128 bits, like wyhash. The first multiplication spreads the
// tenant and the cell, which are small numbers. The second adds the partition, which is
// already a part of a SHA-256 sum. Because of the seed, clients cannot search for
// values with equal hashes.
func (l *Limiter) hash(key *enforcement.Key) uint64 {
	hi, lo := bits.Mul64((uint64(key.Tenant)|uint64(key.Cell)<<32)^l.seed[0], l.seed[1])
	first, second := binary.LittleEndian.Uint64(key.Partition[:8]), binary.LittleEndian.Uint64(key.Partition[8:])
	hi, lo = bits.Mul64(first^hi^lo, second^l.seed[2])
	return hi ^ lo
}

func shardOf(hash uint64) int { return int(hash >> (64 - shardBits)) }

// A budget counts cells and bounds their number: for all tenants together, for each tenant, and
// for each limit of a tenant.
type budget struct {
	max, share int64
	used       atomic.Int64
	shares     [shareCount]atomic.Int64 // cells of each tenant, by the tenant's number modulo shareCount
	limits     [shareCount]atomic.Int64 // cells of each limit of a tenant, by limitIndex
}

// limitIndex returns the index in budget.limits of the limit of a key.
func limitIndex(key *enforcement.Key) uint32 { return (key.Tenant + 0x9E3779B1*key.Cell) % shareCount }

// add adds n to the number of cells of the tenant and of the limit of a key. n may be negative.
func (b *budget) add(key *enforcement.Key, n int64) {
	b.used.Add(n)
	b.shares[key.Tenant%shareCount].Add(n)
	b.limits[limitIndex(key)].Add(n)
}

// full reports whether the limit of a key may not have another cell. If bound is not 0, the tenant
// may have bound cells instead of b.share, but at most half of all cells, so that the rest is left
// for other tenants.
func (b *budget) full(key *enforcement.Key, bound int64) bool {
	if b.used.Load() >= b.max {
		return true
	}
	tenant, share := b.shares[key.Tenant%shareCount].Load(), b.shareOf(bound)
	if tenant < share {
		return false
	}
	limit := b.limits[limitIndex(key)].Load()
	room, _ := enforcement.KeyRoom(share, tenant-limit)
	return limit >= room
}

// shareOf returns the number of cells that a tenant may have. bound is the tenant's own bound
// (Request.MaxKeys), or 0.
func (b *budget) shareOf(bound int64) int64 {
	if bound > 0 {
		return min(bound, max(b.max/2, b.share))
	}
	return b.share
}

// KeysOf returns the number of live keys of a tenant, and how many it may have. own is the tenant's
// own bound (Request.MaxKeys), or 0. Entries of sliding logs count as in Config.MaxCells. Tenants
// whose numbers are equal modulo 4,096 are counted together.
func (l *Limiter) KeysOf(tenant uint32, own int64) (live, bound int64) {
	return max(l.counted.shares[tenant%shareCount].Load(), 0), l.counted.shareOf(own)
}

// crowded reports whether a new key of a limit may need an overflow counter.
func (l *Limiter) crowded(key *enforcement.Key, bound int64) bool {
	return l.counted.full(key, bound) || l.overflows.Load() > 0
}

// takeOne decides the most frequent form of request faster than takeAll: a request with one
// enforced charge. If takeAll must decide the request, takeOne changes nothing and returns false.
// It computes in the memory of the caller's outcome, so that it copies only the cell.
func (l *Limiter) takeOne(r *enforcement.Request, o *enforcement.Outcome) bool {
	c, out := &r.Charges[0], &o.Charges[0]
	m, hash, state := c.Meter, l.hash(&c.Key), &out.State
	s := &l.shards[shardOf(hash)]
	now := l.now() // read the clock before the lock, which halves the time for which the lock is held
	s.lock()
	i := s.find(&c.Key, uint32(hash))
	if i == none {
		if l.crowded(&c.Key, r.MaxKeys) {
			s.unlock()
			return false
		}
		state.Rev, state.A, state.B, state.T = 0, 0, 0, 0
	} else {
		cell := s.cell(i)
		state.Rev, state.A, state.B, state.T = cell.rev, cell.a, cell.b, cell.t
		if state.T > now { // another request read the clock after this one, but got the lock before it
			now = l.now()
		}
	}
	state.Log, state.Holders = state.Log[:0], nil
	fits, write := m.Spend(state, c.Rev, now, c.Cost)
	if write {
		if i == none {
			i = s.insert(&c.Key, uint32(hash))
			l.counted.add(&c.Key, 1)
		}
		s.write(i, m, state, now)
	}
	s.unlock()

	o.Verdict, o.At = enforcement.Refused, now
	if fits {
		o.Verdict = enforcement.Granted
	}
	out.Cost, out.Fits, out.Shared = c.Cost, fits, false
	return true
}

// write stores a settled state in cell i. It does not store the entries of a log.
func (t *table) write(i int32, m *enforcement.Meter, state *enforcement.State, now int64) {
	c := t.cell(i)
	// If the quota, window and burst are the same, a charge only delays the time at which a bucket is
	// full. The stored due tick then stays right if the bucket is still full by the end of that tick.
	later := c.rev == state.Rev && c.a >= state.A && c.t <= state.T
	c.rev, c.a, c.b, c.t = state.Rev, state.A, state.B, state.T
	if stillDue(m, state, c.due, later) {
		return
	}
	c.due = due(m, state, now)
	if m.Rollover > 0 && c.key.Partition == overflow { // nothing rolls over to it
		c.due = dueTick(now + m.ResetAfter(*state, now))
	}
	if t.next == 0 || c.due < t.next {
		t.next = c.due
	}
}

// stillDue reports whether due would return the same tick for a bucket that is not full. It is
// faster than due, because it needs no division. Most charges of a busy bucket move the time at
// which the bucket is full by less than a tick. later says that this time is not earlier than the
// time for which tick was computed.
func stillDue(m *enforcement.Meter, state *enforcement.State, tick uint32, later bool) bool {
	if !m.Algorithm.Bucket() || m.P == 0 || state.A >= m.Capacity || tick <= keepTicks || tick == lastTick {
		return false
	}
	begins := int64(tick-keepTicks) << dueBits
	return (later || !m.ResetBy(state, begins-1)) && m.ResetBy(state, begins+1<<dueBits-1)
}

// keepTicks is the number of ticks for which an unused counter is kept before Run
// deletes it. That is at least two seconds, so that the counter still exists if the
// clock steps back a little.
const keepTicks = 2

const lastTick = 1<<32 - 1

// due returns the tick at which a counter may be deleted. At this tick, the counter has been as if
// unused for keepTicks ticks, of which the first may be partial.
func due(m *enforcement.Meter, state *enforcement.State, now int64) uint32 {
	after := m.UnusedAfter(state, now)
	if m.Quota == 0 && m.Algorithm.Bucket() {
		after = m.Window // this bucket never fills
	}
	return dueTick(now + after)
}

// dueTick returns the tick at which a counter may be deleted if it is as if unused from the time
// at.
func dueTick(at int64) uint32 { return uint32(min(max(at>>dueBits+keepTicks, 1), lastTick)) }

// A work has the data of one charge of a request while the request is decided.
type work struct {
	key    enforcement.Key // key of the counter: the key of the charge, or that of an overflow counter
	hash   uint64
	cell   int32
	leader int32 // index of the first charge on the same counter; fields of the counter are used only in the work of that charge
	shared bool  // set if an overflow counter replaces the counter
	bound  int64 // Request.MaxKeys
	grant  bool  // the counter belongs to a grant, and is stored even if the tenant has too many keys
	write  bool
	state  enforcement.State // the settled state; its Log shares memory with the stored entries
	total  int64             // sum of the costs that the group has on this counter
	sum    int64             // the part of total that is charged to this counter; grants are charged the rest
	count  int64             // number of charges that the group has on this counter
	lease  enforcement.Lease // lease of the request; on an overflow counter, its ID also depends on the key
}

// few is the largest number of charges for which takeAll needs no memory allocation.
const few = 8

// takeAll decides any request. If wide is true, it also locks the shards of the overflow counters.
// They are needed if a key without a cell may have to use an overflow counter. If they are needed
// and wide is false, takeAll changes nothing and returns false.
func (l *Limiter) takeAll(r *enforcement.Request, o *enforcement.Outcome, wide bool) bool {
	var some [few]work
	ws := some[:min(len(r.Charges), few)]
	if len(r.Charges) > few {
		ws = make([]work, len(r.Charges))
	}
	_, recorded := r.RepeatKey()
	recorded = recorded || r.Idempotent() && r.Reservation == nil
	var locked shardSet
	l.addShards(&locked, r, ws, wide)
	if recorded {
		locked.add(shardOf(l.hash(&r.Idempotency.Key)))
	}
	locked.lock(l)
	defer locked.unlock(l)
	if r.Reservation != nil {
		l.reservations.mu.Lock()
		defer l.reservations.mu.Unlock()
	}
	now := l.now()
	switch {
	case recorded && l.repeat(r, o, now):
		return true
	case r.Reservation != nil && l.reserveFirst(r, o, now):
		return true
	}
	o.Charges = o.Charges[:len(r.Charges)]
	for i := range ws {
		if !l.resolve(&ws[i], wide, now) {
			return false
		}
	}
	lead(ws)
	l.settleAll(r, ws, now)
	o.Verdict, o.At = enforcement.Granted, now
	if r.Mode == enforcement.Adjust {
		l.adjustAll(r, o, ws)
	} else {
		l.takeGroups(r, o, ws)
	}
	if o.Verdict != enforcement.Granted || r.Mode == enforcement.Peek {
		return true
	}
	if recorded {
		l.record(r, o)
	}
	if r.Reservation != nil {
		l.reserveLast(r, o)
	}
	return true
}

// addShards sets the keys and leases of ws, and adds the shards of their counters to locked. If
// wide is true, it also adds the shards of the overflow counters.
func (l *Limiter) addShards(locked *shardSet, r *enforcement.Request, ws []work, wide bool) {
	for i := range ws {
		w := &ws[i]
		w.key, w.bound, w.lease, w.grant = r.Charges[i].Key, r.MaxKeys, r.Lease, r.Charges[i].Grant
		w.hash = l.hash(&w.key)
		locked.add(shardOf(w.hash))
		if wide {
			shared := w.key
			shared.Partition = overflow
			locked.add(shardOf(l.hash(&shared)))
		}
	}
}

// settleAll settles each counter once. If Settle moved a state back from the future, settleAll
// stores the state.
func (l *Limiter) settleAll(r *enforcement.Request, ws []work, now int64) {
	for i := range ws {
		w := &ws[i]
		if w.leader != int32(i) {
			continue
		}
		c := &r.Charges[i]
		if w.shared {
			w.state, w.write = c.Meter.SettleShared(l.load(w), c.Rev, now)
		} else {
			w.state, w.write = c.Meter.Settle(l.load(w), c.Rev, now)
		}
		if w.write && r.Mode != enforcement.Peek {
			l.keepClamp(w, c.Meter, now)
		}
	}
}

// takeGroups decides the groups of a request in order.
func (l *Limiter) takeGroups(r *enforcement.Request, o *enforcement.Outcome, ws []work) {
	for from, to := 0, 0; from < len(ws); from = to {
		for to < len(ws) && r.Charges[to].Group == r.Charges[from].Group {
			to++
		}
		l.takeGroup(r, o, ws, from, to)
	}
}

// resolve sets the counter of a charge: the counter of the charge's key, or an overflow counter. If
// it needs an overflow counter and wide is false, it returns false, because the shard of that
// counter is not locked.
func (l *Limiter) resolve(w *work, wide bool, now int64) bool {
	w.cell = l.shards[shardOf(w.hash)].find(&w.key, uint32(w.hash))
	if w.cell != none || w.grant || !l.crowded(&w.key, w.bound) {
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
	// A key that was counted on the overflow counter continues to use the overflow counter until that
	// is as if unused, even if memory is available again. A new counter would not have the earlier
	// count of the key.
	if l.counted.full(&w.key, w.bound) || i != none && s.cell(i).due > tick(now) {
		w.lease.ID = w.key.SharedLease(w.lease.ID)
		w.key, w.hash, w.cell, w.shared = shared, hash, i, true
	}
	return true
}

// lead sets work.leader of each charge to the index of the first charge on the same counter.
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

// load returns the stored state of a counter. If there is none, it returns the zero State.
func (l *Limiter) load(w *work) (state enforcement.State) {
	if w.cell == none {
		return state
	}
	s := &l.shards[shardOf(w.hash)]
	c := s.cell(w.cell)
	state.Rev, state.A, state.B, state.T = c.rev, c.a, c.b, c.t
	if c.log != 0 {
		e := s.logs[c.log-1]
		state.Log, state.Holders = e.live(), e.holders
	}
	return state
}

// apply changes the counters of a group that was granted, as the mode requires. It
// changes each counter once.
func (l *Limiter) apply(r *enforcement.Request, o *enforcement.Outcome, ws []work, from, to int) {
	now := o.At
	for i := from; i < to; i++ {
		c, w := &r.Charges[i], &ws[ws[i].leader]
		if w.count == 0 {
			continue // the counter was changed for the first charge on it
		}
		cost := w.sum
		w.count = 0
		switch r.Mode {
		case enforcement.Reset:
			l.reset(w, c, now)
		case enforcement.Refund:
			l.refund(w, c, cost, now)
		case enforcement.Release:
			o.Units += l.release(w, c, now)
		case enforcement.Peek:
			w.state = peeked(w.state, c, cost, now, &w.lease)
		default:
			l.charge(w, c, cost, now)
		}
	}
}

// handOut copies a state to the outcome. For a log, it copies only the oldest entries: as many as
// RetryAfter needs for the cost, and at least as many as it needs for one unit. After TakeUpTo
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

// A shardSet is a set of shards to lock.
type shardSet [shardCount / 64]uint64

func (set *shardSet) add(i int) { set[i/64] |= 1 << (i % 64) }

// lock locks the shards of the set in ascending order. All requests use this order, so they cannot
// deadlock.
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
