package redis

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/headgate/headgate/enforcement"
)

// denials remembers the counters of denied requests. For at most denialAge, this node denies
// such a request again without a call to Redis. It computes the decision from the remembered
// states at the estimated time of the server.
//
// As long as a counter only grows, it still denies the request, so the decision is the same as
// that of the server. It differs only if another node returned units: by a refund, a reset, or
// a returned lease. This node notices such units after at most denialAge. Every reply to this
// node updates the remembered states. After a change of a limit, its requests have another
// meter or revision, for which nothing is remembered.
//
// Only requests with mode Enforce and without Idempotency are decided from memory. The memory
// is a hash table of fixed size. A new entry replaces the entry in its slot.
type denials struct {
	slots    []atomic.Pointer[denial] // by a hash of the counter's key
	mask     uint64
	answered atomic.Int64
}

const (
	denialAge     = 1_000_000 // microseconds
	denialSlots   = 1 << 14   // about 3 MB when every slot is used
	denialCharges = 32        // most charges of a remembered request
)

// A denial is the remembered state of one counter, from a reply of the server. It is immutable.
type denial struct {
	home  string
	key   enforcement.Key
	meter *enforcement.Meter // nil if the state is not known
	rev   int64
	at    int64 // time of the state by the server's clock
	cost  int64 // only for a log: the largest cost for which the state has all entries that it needs
	state enforcement.State
}

// open allocates the table. slots is the number of counters that can be remembered. 0 selects
// the default; a negative number disables the memory.
func (ds *denials) open(slots int) {
	if slots < 0 {
		return
	}
	slots = cmp.Or(slots, denialSlots)
	n := 1 << bits.Len(uint(slots-1))
	ds.slots, ds.mask = make([]atomic.Pointer[denial], n), uint64(n-1)
}

// slot returns the slot of a counter in the hash table. The partition is already a part of a
// SHA-256 sum. Therefore a simple combination with the tenant and the cell is enough to spread
// the counters evenly.
func (ds *denials) slot(k *enforcement.Key) *atomic.Pointer[denial] {
	h := (binary.LittleEndian.Uint64(k.Partition[:]) ^ uint64(k.Tenant)<<32 ^ uint64(k.Cell)) * 0x9e3779b97f4a7c15
	return &ds.slots[h>>32&ds.mask]
}

// note remembers the counters of a denied request. For any other request, it only updates
// counters that are already remembered.
func (ds *denials) note(r *enforcement.Request, o *enforcement.Outcome) {
	if len(ds.slots) == 0 || r.Mode == enforcement.Peek {
		return
	}
	// A request with grants is not remembered, because answer does not know what its grants have
	// left.
	denied := o.Verdict == enforcement.Refused && r.Mode == enforcement.Enforce && len(r.Charges) <= denialCharges && !hasGrants(r.Charges)
	for i := range r.Charges {
		c, charged := &r.Charges[i], &o.Charges[i]
		slot := ds.slot(&c.Key)
		for was := slot.Load(); denied || was.isOf(&c.Key, r.Home); was = slot.Load() {
			d := &denial{home: r.Home, key: c.Key, at: o.At}
			log := c.Meter.Algorithm == enforcement.SlidingWindowLog
			// If replies arrive out of order, or if the server's clock stepped back, it is unknown which
			// of the two states is newer. The entry then gets no state.
			ordered := !was.isOf(&c.Key, r.Home) || was.at <= o.At
			held := c.Meter.Algorithm == enforcement.Concurrency // any holder can release its places at any time
			if ordered && !held && settlesOn(c, &charged.State, o.At) && (denied || r.Mode == enforcement.Enforce && !log) {
				d.meter, d.rev, d.cost, d.state = c.Meter, c.Rev, charged.Cost, charged.State
				d.state.Log = append([]enforcement.Entry(nil), charged.State.Log...) // a copy: the caller reuses it
			}
			if slot.CompareAndSwap(was, d) {
				break
			}
		}
	}
}

func hasGrants(charges []enforcement.Charge) bool {
	return slices.ContainsFunc(charges, func(c enforcement.Charge) bool { return c.Grant })
}

// isOf reports whether a slot has the state of a counter. d is nil if the slot is empty.
func (d *denial) isOf(key *enforcement.Key, home string) bool {
	return d != nil && d.key == *key && d.home == home
}

// drop removes the remembered state of a counter that a draw changed at the time at. The draw
// may have returned units, so the counter may no longer deny requests.
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

// settlesOn reports whether a state that was settled at the time at can be settled again later
// with exact results. For a bucket, it returns false in two cases. After at, a former quota,
// window or burst still determines the refill rate. Or the caller has an older revision than
// the state, because settling then drops the fraction of a unit.
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

// answer denies a request from the memory at the time now, in microseconds of the
// server's clock. It returns false if the memory cannot decide the request.
func (ds *denials) answer(r *enforcement.Request, now int64, out *enforcement.Outcome) bool {
	if len(ds.slots) == 0 || r.Mode != enforcement.Enforce || r.Idempotency != nil || len(r.Charges) > denialCharges {
		return false
	}
	denied := false
	out.Charges = out.Charges[:0]
	for i := range r.Charges {
		c := &r.Charges[i]
		if c.Grant {
			return false
		}
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

// state returns the state of the counter of charge i of a request at the time now. known is
// false if the memory does not have this state.
func (ds *denials) state(r *enforcement.Request, i int, now int64) (s enforcement.State, known bool) {
	c := &r.Charges[i]
	d := ds.slot(&c.Key).Load()
	if d == nil || d.key != c.Key || d.home != r.Home || d.meter != c.Meter || d.rev != c.Rev || now < d.at || now-d.at > denialAge {
		return s, false
	}
	for k := range i {
		if r.Charges[k].Key == c.Key {
			return s, false // rare: the costs of several charges on one counter add up, so the server decides
		}
	}
	s, clamped := c.Meter.Settle(d.state, c.Rev, now)
	if c.Meter.Algorithm == enforcement.SlidingWindowLog && (c.Cost > d.cost || s.B > 0 && len(s.Log) == 0) {
		return s, false // the remembered reply did not have enough log entries for this cost
	}
	return s, !clamped // a clamped state must be stored, which only the server can do
}
