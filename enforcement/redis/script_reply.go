package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// The kinds of a cell's state in a reply. The first byte of a state is its kind. The kind
// determines the bytes that follow. The head of scripts/take.lua describes the format.
const (
	stateAbsent     = 0
	statePlain      = 1
	stateLog        = 2
	stateUnreadable = 4
	stateShared     = 5
	stateLeases     = 6

	recordSize  = 50 // size of a record in the reply, without its charges
	chargedSize = 28 // size of a charge in a record

	plainSize = 28 // size of a plain state, including the first byte
	entrySize = 14 // size of an entry of a log
	leaseSize = 27 // size of a lease of a concurrency limit
)

// Verdicts that only the scripts have. They correspond to no value of enforcement.Verdict.
const (
	verdictRepeated = 3
	verdictReused   = 4
	verdictStale    = 5
	verdictFull     = 6
)

// A reply is the script's reply, decoded. From it, the Go functions make the same decisions
// again.
type reply struct {
	done       bool
	full       bool  // the script did nothing, because a tenant is full: take.lua must decide
	lost       bool  // the script did nothing, because the durable counters are not restored
	clock      int64 // the clock of Redis, in microseconds since the epoch
	verdicts   []byte
	unreadable int  // number of values in Redis that were not valid counters
	shared     bool // a cell of the call uses an overflow counter
}

// readReply decodes the reply of the script. It stores the states of the cells in
// c.work.
func (c *call) readReply(b []byte) (r reply, err error) {
	if len(b) < 9 {
		return r, errors.New("redis: the reply is too short")
	}
	r.done, r.full, r.lost, r.clock, b = b[0] == 1, b[0] == 2, b[0] == 3, int64At(b, 1), b[9:]
	if !r.done {
		return r, nil
	}
	if len(b) < len(c.requests) {
		return r, errors.New("redis: the reply has no verdicts")
	}
	r.verdicts, b = b[:len(c.requests)], b[len(c.requests):]
	for range c.cells {
		c.work = append(c.work, enforcement.State{})
	}
	for sort := range cellSorts {
		for i := range c.cells {
			if c.cells[i].sort != sort {
				continue
			}
			if len(b) > 0 && b[0] == stateShared {
				c.cells[i].shared, r.shared, b = true, true, b[1:]
			}
			size, unreadable := readState(b, &c.work[i])
			if size == 0 {
				return r, errors.New("redis: the reply breaks off within a state")
			}
			if unreadable {
				r.unreadable++
			}
			b = b[size:]
		}
	}
	if b, err = c.readRecords(r.verdicts, b); err != nil {
		return r, err
	}
	if len(b) > 0 {
		return r, fmt.Errorf("redis: the reply has %d bytes too many", len(b))
	}
	if r.shared {
		c.join()
	}
	return r, nil
}

// readRecords reads the records at the start of b. It stores each record in the request that
// the record decides. It returns the rest of b.
func (c *call) readRecords(verdicts, b []byte) (rest []byte, err error) {
	for i := range c.requests {
		if verdicts[i] != verdictRepeated {
			continue
		}
		size := 0
		switch {
		case c.requests[i].request.Reservation != nil:
			if len(b) >= 4 {
				size, b = int(binary.LittleEndian.Uint32(b)), b[4:]
			}
		case len(b) >= recordSize:
			size = recordSize + chargedSize*int(binary.LittleEndian.Uint16(b[recordSize-2:]))
		}
		if size == 0 || len(b) < size {
			return nil, errors.New("redis: the reply breaks off within a record")
		}
		c.requests[i].repeated, b = b[:size], b[size:]
	}
	return b, nil
}

// join merges cells: all cells of one limit that use the overflow counter become one cell. The
// charges of one group on this cell become one charge. take.lua does the same.
func (c *call) join() {
	for i := range c.cells {
		if !c.cells[i].shared {
			continue
		}
		first := slices.IndexFunc(c.cells[:i+1], func(other cell) bool {
			same := &c.cells[i]
			return other.shared && other.home == same.home && other.key.Tenant == same.key.Tenant && other.key.Cell == same.key.Cell
		})
		for k := range c.charges {
			if c.charges[k].cell == uint16(i) {
				c.charges[k].cell = uint16(first)
			}
		}
	}
	for i := range c.requests {
		s := &c.requests[i]
		for k := s.from; k < s.to; k++ {
			if !c.cells[c.charges[k].cell].shared || s.mode == enforcement.TakeUpTo || s.mode == enforcement.Adjust {
				continue
			}
			for j := s.from; j < k; j++ {
				if c.charges[j].cell == c.charges[k].cell && c.charges[j].group == c.charges[k].group {
					c.charges[j].cost += c.charges[k].cost
					c.charges[k].cost = 0
					break
				}
			}
		}
	}
}

// readState decodes one state at the beginning of b. It returns the number of bytes of
// the state, or 0 if b is too short.
func readState(b []byte, s *enforcement.State) (size int, unreadable bool) {
	if len(b) == 0 {
		return 0, false
	}
	switch b[0] {
	case stateAbsent, stateUnreadable:
		return 1, b[0] == stateUnreadable
	case statePlain:
		if len(b) < plainSize {
			return 0, false
		}
		*s = enforcement.State{Rev: intAt(b, 1, 6), A: intAt(b, 7, 7), B: intAt(b, 14, 7), T: intAt(b, 21, 7)}
		return plainSize, false
	case stateLog:
		if len(b) < 43 {
			return 0, false
		}
		*s = enforcement.State{Rev: int64At(b, 1), A: int64At(b, 9), B: int64At(b, 17), T: int64At(b, 25)}
		sum, n := int64At(b, 33), int(binary.LittleEndian.Uint16(b[41:]))
		if size = 43 + entrySize*n; len(b) < size {
			return 0, false
		}
		s.Log = make([]enforcement.Entry, n)
		for i := range s.Log {
			at := 43 + entrySize*i
			next := intAt(b, at+7, 7)
			s.Log[i] = enforcement.Entry{T: intAt(b, at, 7), Units: next - sum}
			sum = next
		}
		return size, false
	case stateLeases:
		return readLeases(b, s), false
	}
	return 0, false
}

// readLeases decodes the state of a concurrency limit at the beginning of b. It returns the
// number of bytes of the state, or 0 if b is too short.
func readLeases(b []byte, s *enforcement.State) (size int) {
	const head = 2 + plainSize
	if len(b) < head {
		return 0
	}
	n := int(binary.LittleEndian.Uint16(b[1:]))
	if size = head + leaseSize*n; len(b) < size {
		return 0
	}
	*s = enforcement.State{Rev: intAt(b, 3, 6), A: intAt(b, 9, 7), B: intAt(b, 16, 7), T: intAt(b, 23, 7)}
	s.Holders = make([]enforcement.Holder, n)
	for i := range s.Holders {
		at := head + leaseSize*i
		s.Holders[i] = enforcement.Holder{
			ID: [16]byte(b[at+11:]), Until: intAt(b, at, 7), Units: int64(binary.LittleEndian.Uint32(b[at+7:])),
		}
	}
	return size
}

func int64At(b []byte, at int) int64 { return int64(binary.LittleEndian.Uint64(b[at:])) }

// intAt decodes a signed little-endian integer of size bytes.
func intAt(b []byte, at, size int) int64 {
	n := uint64(0)
	for i := size - 1; i >= 0; i-- {
		n = n<<8 | uint64(b[at+i])
	}
	unused := 64 - 8*size
	return int64(n<<unused) >> unused
}

// replay makes the decision for one request again in Go, from the states that the script read.
// It sets the outcome, except the verdict. It returns the verdict of the Go functions, which
// the caller compares with the verdict of the script.
func (c *call) replay(s *span, now int64, out *enforcement.Outcome) enforcement.Verdict {
	verdict, write := enforcement.Granted, true
	var taken enforcement.Taken
	c.used, c.saved = c.used[:0], c.saved[:0]
	if s.mode == enforcement.Adjust {
		c.adjust(s, now)
		return verdict
	}
	for k := s.from; k < s.to; k++ {
		c.used = append(c.used, charged{})
		if s.mode == enforcement.Peek {
			c.saved = append(c.saved, c.work[c.charges[k].cell])
		}
	}
	for from := s.from; from < s.to; {
		to := from + 1
		for to < s.to && c.charges[to].group == c.charges[from].group {
			to++
		}
		if taken.Units > 0 {
			c.reduce(from, to, taken)
		}
		fits, units := c.checkGroup(s, from, to, now)
		if c.charges[from].group == 0 && s.mode == enforcement.TakeUpTo {
			out.Units, taken = units, enforcement.Taken{Units: units, Most: c.largestCost(from, to)}
		}
		switch {
		case fits && write:
			c.apply(s, from, to, now, units, out)
		case !fits && c.charges[from].group == 0:
			verdict, write = enforcement.Refused, false
		}
		for k := from; k < to && (!fits || !write); k++ {
			c.used[k-s.from].spent = 0
		}
		from = to
	}
	// Restore the saved states in reverse order. If several groups charge a cell, it was saved
	// several times, and the first saved state is the original one.
	if s.mode == enforcement.Peek {
		for k := s.to - 1; k >= s.from; k-- {
			c.work[c.charges[k].cell] = c.saved[k-s.from]
		}
	}
	return verdict
}

// reduce reduces the costs of c.charges[from:to] to the part that group 0 took.
func (c *call) reduce(from, to int, taken enforcement.Taken) {
	for k := from; k < to; k++ {
		c.charges[k].cost = taken.Of(c.charges[k].cost)
	}
}

// checkGroup settles the cells of c.charges[from:to], which form one group. fits says whether the
// group can be charged. units is the number of units to charge. Only in mode TakeUpTo can it be
// less than the largest cost.
func (c *call) checkGroup(s *span, from, to int, now int64) (fits bool, units int64) {
	most := c.largestCost(from, to)
	fits, units = true, most
	for k := from; k < to; k++ {
		m, u := &c.charges[k], &c.used[k-s.from]
		p := &c.params[m.param]
		if m.grant { // spendGrants sets u.spent
			u.fits = true
			u.state, _ = p.meter.Settle(c.work[m.cell], p.rev, now)
			continue
		}
		settled, clamped := c.settle(m, c.work[m.cell], now)
		u.state = settled
		if clamped && s.mode != enforcement.Peek {
			c.work[m.cell] = settled
		}
		lease := c.lease(s, m)
		left := p.meter.LeftFor(&settled, now, &lease)
		grants := c.grantsAfter(k, to)
		if grants > 0 {
			left = enforcement.WithGrants(left, c.grantsLeft(s, from, k+1, grants, now))
		}
		switch s.mode {
		case enforcement.Refund, enforcement.Reset, enforcement.Release:
			u.fits = true
		case enforcement.TakeUpTo:
			if u.fits = p.meter.TakesAny(left, m.cost, most); !u.fits {
				units = 0
			}
			units = min(units, enforcement.UnitsFor(left, m.cost, most))
		default:
			u.fits = p.meter.Admits(left, m.cost)
			if u.fits || s.mode == enforcement.Force {
				c.spendGrants(s, from, k, grants, m.cost, now)
			}
		}
		fits = fits && u.fits
	}
	switch s.mode {
	case enforcement.TakeUpTo:
		for k := from; k < to && units > 0; k++ {
			c.spendGrants(s, from, k, c.grantsAfter(k, to), enforcement.ShareOf(c.charges[k].cost, units, most), now)
		}
		return units > 0, units
	case enforcement.Force:
		return true, units
	}
	return fits, units
}

// settle settles the state of the cell of a charge.
func (c *call) settle(m *merged, s enforcement.State, now int64) (settled enforcement.State, clamped bool) {
	p := &c.params[m.param]
	if c.cells[m.cell].shared {
		return p.meter.SettleShared(s, p.rev, now)
	}
	return p.meter.Settle(s, p.rev, now)
}

// largestCost returns the largest cost of c.charges[from:to].
func (c *call) largestCost(from, to int) (most int64) {
	for k := from; k < to; k++ {
		most = max(most, c.charges[k].cost)
	}
	return most
}

// apply performs the mode of the request on the cells of one group: it charges,
// refunds, or resets them.
func (c *call) apply(s *span, from, to int, now, units int64, out *enforcement.Outcome) {
	most := c.largestCost(from, to)
	for k := from; k < to; k++ {
		m, u := &c.charges[k], &c.used[k-s.from]
		p := &c.params[m.param]
		cost, lease := m.cost, c.lease(s, m)
		held := p.meter.Algorithm == enforcement.Concurrency
		if c.cells[m.cell].shared && (s.mode == enforcement.Reset || s.mode == enforcement.Refund && !held) {
			continue // other keys are counted on the overflow counter too
		}
		switch s.mode {
		case enforcement.Reset:
			c.work[m.cell] = enforcement.State{}
			u.state, _ = p.meter.Settle(enforcement.State{}, p.rev, now)
			continue
		case enforcement.Refund:
			u.state = p.meter.RefundFor(u.state, cost, &lease)
			if c.work[m.cell].Rev == 0 {
				continue // no state is stored, so there is nothing to refund
			}
		case enforcement.Release:
			var released int64
			if u.state, released = p.meter.Release(u.state, lease.ID); released > 0 {
				c.work[m.cell] = u.state
				out.Units += released
			}
			continue
		case enforcement.TakeUpTo:
			cost = enforcement.ShareOf(cost, units, most)
			fallthrough
		default:
			if cost += u.spent; m.grant { // an earlier charge of the group may have changed the same grant
				u.state, _ = p.meter.Settle(c.work[m.cell], p.rev, now)
			}
			u.state = p.meter.ChargeFor(u.state, p.rev, now, cost, &lease)
		}
		if cost > 0 {
			c.work[m.cell] = u.state
		}
	}
	for k := from; k < to; k++ {
		if m := &c.charges[k]; m.grant {
			c.used[k-s.from].state, _ = c.params[m.param].meter.Settle(c.work[m.cell], c.params[m.param].rev, now)
		}
	}
}

// lease returns the lease of a request for one of its charges. On an overflow counter, the ID
// of the lease depends on the key of the charge.
func (c *call) lease(s *span, m *merged) enforcement.Lease {
	l := s.request.Lease
	if c.cells[m.cell].shared {
		l.ID = c.cells[m.key].key.SharedLease(l.ID)
	}
	return l
}

// fill sets the outcomes of the call's requests. mismatches is the number of requests for
// which the Go functions have another verdict than the script.
func (c *call) fill(r *reply, now int64) (mismatches int) {
	for i := range c.requests {
		s := &c.requests[i]
		out := s.outcome
		*out = enforcement.Outcome{At: now, Charges: out.Charges[:0]}
		switch r.verdicts[i] {
		case verdictReused:
			out.Verdict = enforcement.Reused
			continue
		case verdictStale:
			out.Verdict = enforcement.Stale
			continue
		case verdictFull:
			out.Verdict = enforcement.Full
			continue
		case verdictRepeated:
			if s.request.Reservation != nil {
				c.repeatReservation(s, out)
			} else {
				c.repeat(s, out)
			}
			continue
		}
		verdict := c.replay(s, now, out)
		out.Verdict = enforcement.Verdict(r.verdicts[i])
		if out.Verdict != verdict {
			mismatches++
		}
		for j := range s.request.Charges {
			at := int(c.where[s.where+j])
			m, u := &c.charges[s.from+at], &c.used[at]
			cost := m.sum
			if m.grant && s.mode != enforcement.Adjust {
				if cost = u.spent; slices.Contains(c.where[s.where:s.where+j], c.where[s.where+j]) {
					cost = 0 // the charge is merged with that of an earlier charge on the same window, which has the cost
				}
			}
			out.Charges = append(out.Charges, enforcement.Charged{State: u.state, Cost: cost, Fits: u.fits, Shared: c.cells[m.cell].shared})
		}
		if s.request.Reservation != nil && out.Verdict == enforcement.Granted && s.mode != enforcement.Adjust {
			out.Record = enforcement.NewRecord(s.request, out)
		}
	}
	return mismatches
}

// repeat sets the outcome of a request that was decided by the record of an earlier request
// with the same idempotency key.
func (c *call) repeat(s *span, out *enforcement.Outcome) {
	b := s.repeated
	out.Verdict, out.Replayed = enforcement.Granted, true
	copy(out.First[:], b[16:32])
	out.At, out.Units = int64At(b, 32), int64At(b, 40)
	same := [16]byte(b[:16]) == s.request.Idempotency.Charges
	if n := (len(b) - recordSize) / chargedSize; !same || n != s.to-s.from {
		return
	}
	for j := range s.request.Charges {
		at := int(c.where[s.where+j])
		charge := b[recordSize+chargedSize*at:]
		state := enforcement.State{Rev: intAt(charge, 1, 6), A: intAt(charge, 7, 7), B: intAt(charge, 14, 7), T: intAt(charge, 21, 7)}
		out.Charges = append(out.Charges, enforcement.Charged{State: state, Cost: c.charges[s.from+at].sum, Fits: charge[0] == 1})
	}
}

// fail sets the same undecided verdict and error for all requests of the call.
func (c *call) fail(verdict enforcement.Verdict, err error) {
	for i := range c.requests {
		fail(c.requests[i].outcome, verdict, err)
	}
}

func fail(out *enforcement.Outcome, verdict enforcement.Verdict, err error) {
	*out = enforcement.Outcome{Verdict: verdict, Err: err, Charges: out.Charges[:0]}
}
