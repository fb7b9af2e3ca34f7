package enforcement

import (
	"context"
	"math"
	"slices"
)

// ReservationCell is the number in Key.Cell of the records of reservations. No limit has
// this number.
const ReservationCell = math.MaxUint32

// A Reservation makes a request create, read or change the record of a reservation. The limiter stores
// the record in the same atomic step as the charges.
//
// The mode of the request determines the operation:
//
//   - Enforce, Force: create the record, if the request is granted. The request has an
//     Idempotency. If Idempotency.Key is the key of the reservation, and there is a record
//     with the same Idempotency.Request, the request gets the outcome of the first request.
//     If Idempotency.Key is another key, the limiter also stores a record of an idempotent
//     request under that key, and a repetition gets the outcome of that record.
//   - Peek, without charges: read the record.
//   - Adjust: change each charge from Receipt.Cost to Cost, and change the record.
//
// The verdict is Stale if there is no record to read or to change, if the record does not have the
// version Version, or if the reservation has ended.
type Reservation struct {
	// Key is the key of the record. Its partition is a hash of the ID of the reservation.
	Key Key
	// Most is the largest number of outstanding reservations of the tenant. If the tenant
	// already has as many, the verdict is Full. A reservation with Most 0 is not listed:
	// Reserver does not return it, and it does not count.
	Most int64
	// Life is the time in microseconds from the request to the end of the reservation. Kept is the time in
	// microseconds for which the record of the reservation is stored after that end.
	Life, Kept int64
	// Data is stored with the record. The limiter does not read it.
	Data []byte
	// Version is the version of the record that Adjust changes. Forgotten is what Record.Forgotten
	// returns for this record.
	Version   uint32
	Forgotten int64
	// Ends says that Adjust ends the reservation. If Ends is false, Adjust extends the reservation. The
	// new end is then Life from now.
	Ends bool
	// Due says that Adjust ends a reservation whose time has passed. If Due is false, Adjust only
	// changes a reservation whose time has not passed.
	Due bool
}

// Changes reports whether Adjust with v changes a record at the time now.
func (v *Reservation) Changes(r *Record, now int64) bool {
	return r.Open && r.Version == v.Version && v.Due == (now >= r.Until)
}

// A Receipt says what an earlier request charged to a counter.
type Receipt struct {
	// Cost is the number of units that were charged. If it is 0, no window was charged.
	Cost int64
	// State is the state of the counter after the charge. It identifies the window.
	State State
	// Capacity is the capacity of the bucket at the time of the charge. It is 0 for other
	// algorithms.
	Capacity int64
	// Index is the index of the earlier charge in the request that made it.
	Index uint16
}

// A Record is what a Limiter stores for a reservation.
type Record struct {
	ID      [16]byte // Request.ID of the request that created it
	Request [16]byte // Idempotency.Request of that request
	Numbers [16]byte // Idempotency.Charges of that request
	At      int64    // Outcome.At of that request
	Version uint32   // 1 for a new record; each change increments it
	Open    bool     // false after Adjust with Ends
	Until   int64    // the end of the reservation; in the past if it is not Open
	Changed int64    // the time of the last change
	Kept    int64    // Reservation.Kept of the last request
	Data    []byte
	// Charged has the result of each charge of the request that created the record, without
	// its Cost and without the entries of logs.
	Charged []Charged
	// Applied has, for each charge, how many units more (above 0) or less (below 0) the counter was
	// charged than the cost of the request. It begins with what grants were charged in place of a window.
	// Requests with mode Adjust change it.
	Applied []int64
}

// NewRecord returns the record that a request creates. o is the outcome of the request.
func NewRecord(r *Request, o *Outcome) *Record {
	v := r.Reservation
	record := &Record{
		ID: r.ID, Request: r.Idempotency.Request, Numbers: r.Idempotency.Charges, At: o.At,
		Version: 1, Open: true, Until: o.At + v.Life, Changed: o.At, Kept: v.Kept, Data: slices.Clone(v.Data),
		Charged: slices.Clone(o.Charges), Applied: make([]int64, len(o.Charges)),
	}
	window := 0 // index of the latest charge on a limit, whose cost is divided with the grants that follow
	for i := range record.Charged {
		if r.Charges[i].Grant {
			record.Applied[i] = o.Charges[i].Cost
			record.Applied[window] -= o.Charges[i].Cost
		} else {
			window = i
		}
		record.Charged[i].State.Log, record.Charged[i].State.Holders, record.Charged[i].Cost = nil, nil, 0
	}
	return record
}

// After returns the record as it is after a granted request with mode Adjust.
func (r *Record) After(request *Request, o *Outcome) *Record {
	v, after := request.Reservation, *r
	after.Version, after.Open, after.Changed, after.Kept, after.Data = r.Version+1, !v.Ends, o.At, v.Kept, slices.Clone(v.Data)
	if !v.Ends {
		after.Until = o.At + v.Life
	}
	after.Applied = slices.Clone(r.Applied)
	for i := range request.Charges {
		c, receipt := &request.Charges[i], request.Charges[i].Receipt
		change := o.Charges[i].Cost - receipt.Cost
		if c.Meter.Algorithm != Concurrency { // otherwise Receipt.Cost is that of the request
			change += r.Applied[receipt.Index]
		}
		after.Applied[receipt.Index] = change
	}
	return &after
}

// Forgotten returns the time after which the record no longer has an effect.
func (r *Record) Forgotten() int64 {
	if r.Open {
		return r.Until + r.Kept
	}
	return r.Changed + r.Kept
}

// A ReservationEntry is one outstanding reservation in the list of a Reserver.
type ReservationEntry struct {
	Home  string
	Key   Key // of the record
	Until int64
}

// A Reserver is a Limiter that lists reservations.
type Reserver interface {
	Limiter
	// Due returns up to most listed reservations that have not ended, although their time has passed by
	// the clock of the store.
	Due(ctx context.Context, most int) ([]ReservationEntry, error)
	// Outstanding returns up to most listed reservations of a tenant that have not ended, in the order of
	// Until and the partition of their keys. It begins after the position (until, partition).
	Outstanding(ctx context.Context, home string, tenant uint32, until int64, partition [16]byte, most int) ([]ReservationEntry, error)
	// OutstandingTotal returns the number of listed reservations of all tenants that have not
	// ended.
	OutstandingTotal(ctx context.Context) (int64, error)
}

// RepeatKey returns the key of the idempotency record that a request creates in addition to the record
// of a reservation. ok is false if the request creates no reservation, or if the record of the
// reservation also serves as the idempotency record.
func (r *Request) RepeatKey() (key Key, ok bool) {
	if r.Reservation == nil || !r.Idempotent() || r.Idempotency.Key == r.Reservation.Key {
		return Key{}, false
	}
	return r.Idempotency.Key, true
}

// RecordKey returns the key of the record that the request creates, reads or changes. ok is false if
// there is no such record.
func (r *Request) RecordKey() (key Key, ok bool) {
	switch {
	case r.Reservation != nil:
		return r.Reservation.Key, true
	case r.Idempotent():
		return r.Idempotency.Key, true
	}
	return Key{}, false
}

// Adjust changes what an earlier request charged to the counter from receipt.Cost to cost. It changes
// only the window that this request charged. If that window has ended, it changes nothing. s is
// settled. delta is the number of units by which the charge changed.
//
//   - In a log, Adjust changes the entry that the request made.
//   - A bucket has no windows. Some of the charged units may have refilled since, and must not
//     be returned a second time. So Adjust computes the level that the bucket would now have
//     without later charges, and the level of a bucket that was full at the time of the charge.
//     It returns at most the difference. Both levels are carried over to the numbers in force.
//     Additional units can put the bucket into debt.
//   - If receipt.Cost is 0, the request charged no window. Adjust charges the cost now.
//   - If the counter was reset or scaled since (CarryReset, CarryProportional), Adjust returns
//     nothing. It also returns nothing if the caller has an older revision than the state,
//     because the caller cannot say how the counter was carried over.
//   - A concurrency limit has no windows. The lease of the request gets cost places and is
//     renewed. If cost is 0, the lease ends. If it has ended already, nothing changes.
func (m *Meter) Adjust(s State, rev, now, cost int64, receipt *Receipt, lease *Lease) (after State, delta int64) {
	delta = cost - receipt.Cost
	switch {
	case m.Algorithm == Concurrency:
		return m.adjustLease(s, rev, now, cost, receipt, lease)
	case delta == 0 || m.Period == grantPeriod && now >= m.Edges[1]:
		return s, 0
	case receipt.Cost == 0:
		return m.Charge(s, rev, now, delta), delta
	case delta < 0 && (s.Rev > rev && receipt.State.Rev < s.Rev || m.Carried(receipt.State.Rev, rev)):
		return s, 0
	case m.Algorithm.Bucket() && delta > 0:
		after = m.Charge(s, rev, now, delta)
		return after, s.A - after.A
	case m.Algorithm.Bucket():
		alone, _ := m.Settle(receipt.State, rev, now)
		full, _ := m.Settle(State{Rev: receipt.State.Rev, A: receipt.Capacity, T: receipt.State.T}, rev, now)
		room := min(full.A, m.Capacity) - alone.A // full.A can be above the capacity if the charge had later numbers
		after = m.Refund(s, min(-delta, max(room, 0)))
		return after, s.A - after.A
	case s.Rev == 0:
		return s, 0
	case m.Algorithm == SlidingWindowLog:
		return adjustLog(s, delta, receipt.State.T)
	}
	count := m.charged(&s, &receipt.State)
	if count == nil {
		return s, 0
	}
	was := *count
	*count = min(max(was+delta, 0), maxCount)
	return s, *count - was
}

// adjustLease is Adjust for a concurrency limit.
func (m *Meter) adjustLease(s State, rev, now, cost int64, receipt *Receipt, lease *Lease) (after State, delta int64) {
	own := s.unitsOf(lease.ID)
	switch {
	case own == 0 && receipt.Cost != 0:
		return s, 0
	case cost == 0:
		after, _ = m.Release(s, lease.ID)
	default:
		after = m.ChargeFor(s, rev, now, cost, lease)
	}
	return after, after.unitsOf(lease.ID) - own
}

// charged returns the count in s of the window that an earlier request charged. receipt is the state
// after that charge. The result is nil if that window no longer has an effect.
func (m *Meter) charged(s, receipt *State) *int64 {
	switch {
	case m.Period != NoPeriod:
		// The zone of the tenant may have changed since, which moves windows. The charge then counts in the
		// window that contains the middle of the former window, as in settleCalendar.
		if middle := receipt.T + min(receipt.window().length, m.Window)/2; middle >= s.T && middle < m.end(s) {
			return &s.A
		}
	case s.T == receipt.T:
		return &s.A
	case m.Algorithm == SlidingWindowCounter && s.T == receipt.T+m.Window:
		return &s.B
	}
	return nil
}

// adjustLog changes the log entry with the time at by delta units.
func adjustLog(s State, delta, at int64) (after State, changed int64) {
	i := len(s.Log) - 1
	for i >= 0 && s.Log[i].T != at {
		i--
	}
	if i < 0 {
		return s, 0
	}
	delta = min(max(delta, -s.Log[i].Units), maxCount-s.A)
	s.Log = append([]Entry(nil), s.Log...)
	s.Log[i].Units += delta
	s.A += delta
	if s.Log[i].Units == 0 {
		s.Log = append(s.Log[:i], s.Log[i+1:]...)
		s.B--
	}
	if s.B == 0 {
		return State{}, delta
	}
	s.T = s.Log[len(s.Log)-1].T
	return s, delta
}
