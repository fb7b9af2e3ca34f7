package redis

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"github.com/headgate/headgate/enforcement"
)

// denials remember the counters of denied requests for at most denialAge, so that
// such a request is denied again without a call. The reference functions evaluate
// the states at the estimated time of the server.
//
// A count that only grows keeps denying, so the verdict is that of the server. It
// differs only if other nodes gave units back meanwhile (a refund, a reset, a
// returned lease): this node sees such units after at most denialAge. The state
// follows every answer that this node receives. A change of the numbers that this
// node has seen changes the meters or revisions of the request, which are then
// unknown here.
//
// Only requests with mode Enforce and without an idempotency key are answered.
// The memory is a table of fixed size; an entry replaces the one in its place.
type denials struct {
	slots    []atomic.Pointer[denial] // by cell
	mask     uint64
	answered atomic.Int64
}

const (
	denialAge     = 1_000_000 // microseconds
	denialSlots   = 1 << 14   // about 3 MB when every slot is used
	denialCharges = 32        // of a request that is remembered
)

// A denial is one counter as an answer of the server left it. It is immutable.
type denial struct {
	home  string
	key   enforcement.Key
	meter *enforcement.Meter // nil: the state is not known
	rev   int64
	at    int64 // of the state, by the server's clock
	cost  int64 // logs: up to which cost the state has the entries
	state enforcement.State
}

// open makes room for a number of counters; 0 is the default, and a negative
// number none.
func (ds *denials) open(slots int) {
	if slots < 0 {
		return
	}
	if slots == 0 {
		slots = denialSlots
	}
	n := 1 << bits.Len(uint(slots-1))
	ds.slots, ds.mask = make([]atomic.Pointer[denial], n), uint64(n-1)
}

// slot is where a counter is remembered. Partitions are hashes already.
func (ds *denials) slot(k *enforcement.Key) *atomic.Pointer[denial] {
	h := (binary.LittleEndian.Uint64(k.Partition[:]) ^ uint64(k.Tenant)<<32 ^ uint64(k.Cell)) * 0x9e3779b97f4a7c15
	return &ds.slots[h>>32&ds.mask]
}

// note remembers the counters of a denied request, and brings those of any other
// request up to date if they are remembered.
func (ds *denials) note(r *enforcement.Request, o *enforcement.Outcome) {
	if len(ds.slots) == 0 || r.Mode == enforcement.Peek {
		return
	}
	denied := o.Verdict == enforcement.Refused && r.Mode == enforcement.Enforce && len(r.Charges) <= denialCharges
	for i := range r.Charges {
		c, charged := &r.Charges[i], &o.Charges[i]
		slot := ds.slot(&c.Key)
		for was := slot.Load(); denied || was != nil && was.key == c.Key && was.home == r.Home; was = slot.Load() {
			d := &denial{home: r.Home, key: c.Key, at: o.At}
			log := c.Meter.Algorithm == enforcement.SlidingWindowLog
			// Of answers that are read in another order than they were given, or
			// across a step of the clock, none is known to be the last.
			ordered := was == nil || was.key != c.Key || was.home != r.Home || was.at <= o.At
			if ordered && settlesOn(c, &charged.State, o.At) && (denied || r.Mode == enforcement.Enforce && !log) {
				d.meter, d.rev, d.cost, d.state = c.Meter, c.Rev, charged.Cost, charged.State
				d.state.Log = append([]enforcement.Entry(nil), charged.State.Log...) // the caller reuses its outcome
			}
			if slot.CompareAndSwap(was, d) {
				break
			}
		}
	}
}

// drop forgets a counter that was changed at an instant otherwise than by a
// request: a draw may have given units back.
func (ds *denials) drop(home string, key *enforcement.Key, at int64) {
	if len(ds.slots) == 0 {
		return
	}
	slot := ds.slot(key)
	for was := slot.Load(); was != nil && was.key == *key && was.home == home; was = slot.Load() {
		if slot.CompareAndSwap(was, &denial{home: home, key: *key, at: at}) {
			return
		}
	}
}

// settlesOn tells whether a state that was settled at the instant at settles on
// from there as the stored state does. A bucket does not if it flowed at former
// numbers that hold beyond at, or if a caller of an older revision lost its
// fraction: a denial stores neither.
func settlesOn(c *enforcement.Charge, s *enforcement.State, at int64) bool {
	if !c.Meter.Algorithm.Bucket() {
		return true
	}
	for i := range c.Meter.Formers {
		if c.Meter.Formers[i].Until > at {
			return false
		}
	}
	return s.Rev <= c.Rev
}

// answer denies a request from the memory at the instant now, in microseconds of
// the server's clock. It returns false if the request has to be asked.
func (ds *denials) answer(r *enforcement.Request, now int64, out *enforcement.Outcome) bool {
	if len(ds.slots) == 0 || r.Mode != enforcement.Enforce || r.IdempotencyKey != "" || len(r.Charges) > denialCharges {
		return false
	}
	denied := false
	out.Charges = out.Charges[:0]
	for i := range r.Charges {
		c := &r.Charges[i]
		state, known := ds.state(r, i, now)
		if !known {
			return false
		}
		fits := c.Meter.Admits(c.Meter.Left(state, now), c.Cost)
		denied = denied || !fits && c.Group == 0
		out.Charges = append(out.Charges, enforcement.Charged{State: state, Cost: c.Cost, Fits: fits})
	}
	if !denied {
		return false
	}
	out.Verdict, out.At, out.Units, out.Err = enforcement.Refused, now, 0, nil
	ds.answered.Add(1)
	return true
}

// state returns the state of charge number i of a request at the instant now.
func (ds *denials) state(r *enforcement.Request, i int, now int64) (s enforcement.State, known bool) {
	c := &r.Charges[i]
	d := ds.slot(&c.Key).Load()
	if d == nil || d.key != c.Key || d.home != r.Home || d.meter != c.Meter || d.rev != c.Rev || now < d.at || now-d.at > denialAge {
		return s, false
	}
	for k := range i {
		if r.Charges[k].Key == c.Key {
			return s, false // the costs add up: rare, and left to the server
		}
	}
	s, clamped := c.Meter.Settle(d.state, c.Rev, now)
	if c.Meter.Algorithm == enforcement.SlidingWindowLog && (c.Cost > d.cost || s.B > 0 && len(s.Log) == 0) {
		return s, false // entries that the answer did not carry matter
	}
	return s, !clamped // the server has to store a state that it cuts
}
