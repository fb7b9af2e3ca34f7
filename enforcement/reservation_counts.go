package enforcement

import "sync/atomic"

// ReservationCounts has the number of outstanding reservations of all tenants on all nodes. Its
// other numbers count what this node did since it started.
type ReservationCounts struct {
	// Outstanding is the last number of outstanding reservations that this node read.
	// RunReservations reads it every 10 seconds.
	Outstanding int64
	// Created counts new reservations. Refused counts reservations that were not made because the
	// tenant had too many outstanding ones. Neither counts denials by limits.
	Created, Refused int64
	// Settled, Released and Expired count reservations by how they ended.
	Settled, Released, Expired int64
	// Refundable counts checks that can be refunded. Refunded counts refunds.
	Refundable, Refunded int64
}

// reservationCounters has the counters of ReservationCounts.
type reservationCounters struct {
	looks atomic.Int64 // calls of EndReservations

	outstanding, created, refused, settled, released, expired, refundable, refunded atomic.Int64
}

// made counts a request for a new reservation, by the outcome of the request.
func (r *reservationCounters) made(o *Outcome) {
	switch {
	case o.Verdict == Full:
		r.refused.Add(1)
	case o.Verdict == Granted && o.Record != nil && !o.Replayed:
		r.created.Add(1)
	}
}

// ended counts a reservation that has ended, by its last state.
func (r *reservationCounters) ended(state ReservationState) {
	switch state {
	case ReservationSettled:
		r.settled.Add(1)
	case ReservationReleased:
		r.released.Add(1)
	case ReservationExpired:
		r.expired.Add(1)
	}
}

// ReservationCounts returns what the node counted.
func (e *Engine) ReservationCounts() ReservationCounts {
	r := &e.reserved
	return ReservationCounts{
		Outstanding: r.outstanding.Load(), Created: r.created.Load(), Refused: r.refused.Load(),
		Settled: r.settled.Load(), Released: r.released.Load(), Expired: r.expired.Load(),
		Refundable: r.refundable.Load(), Refunded: r.refunded.Load(),
	}
}
