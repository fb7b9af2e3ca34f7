package enforcement

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/problem"
)

const (
	// MaxRefundable is the longest time for which a check can be refunded.
	MaxRefundable = 24 * time.Hour

	// refundOverdue is how long the record of a refundable check is kept after its windows have ended.
	// During this time, a refund fails with an error that says that they have ended. After a refund, the
	// record is kept for ReservationKept instead.
	refundOverdue = time.Minute
)

// refundable reports whether the charges of the item are recorded, so that RefundCheck can
// return them.
func (it *item) refundable() bool {
	c := it.Check
	return c.Refundable && c.Reservation == nil && c.Mode != Peek && !it.denied && !it.blocked
}

// keepForRefund makes the limiter store a record of an item's charges, which RefundCheck reads.
// The record has the form of a reservation, but is not listed with the reservations.
func (w *call) keepForRefund(r *Request, it *item) {
	key := refundKey(it.Subject, it.Decision.ID)
	if !it.keyed {
		r.Idempotency.Key = key
	}
	r.Reservation = &Reservation{
		Key: key, Life: refundLife(r.Charges), Kept: refundOverdue.Microseconds(), Data: w.reservationData(r, it, ""),
	}
}

// refundKey returns the key of the record of a refundable check. It derives the key from an ID that no
// reservation can have.
func refundKey(s *Subject, decision [16]byte) Key {
	return reservationKey(s, "refund "+string(decision[:]))
}

// refundLife returns the longest time in microseconds for which the windows of charges are
// open, at most MaxRefundable.
func refundLife(charges []Charge) int64 {
	life := MinReservationLife.Microseconds()
	for i := range charges {
		switch m := charges[i].Meter; {
		case charges[i].Key.Cell == IdempotencyCell || !charges[i].inForce() || m.Algorithm == Concurrency:
		case m.Algorithm == SlidingWindowCounter:
			life = max(life, 2*m.Window)
		default:
			life = max(life, m.horizon())
		}
	}
	return min(life, MaxRefundable.Microseconds())
}

// recordPeriods returns the number of units that a refundable check is charged on the counter of new
// records: one for each IdempotencyPeriod for which its record is stored. This bounds the number of such
// records of a tenant, whatever windows its plan has.
func recordPeriods(charges []Charge) int64 {
	period := IdempotencyPeriod.Microseconds()
	return (refundLife(charges) + refundOverdue.Microseconds() + period - 1) / period
}

// returns reports whether the refund of the charge returns units to its counter. It does not for shadow
// policies. It also does not for a concurrency limit, because the end of the lease frees its places.
func (c *Charge) returns() bool {
	return c.inForce() && c.Receipt.Cost > c.Cost && c.Meter.Algorithm != Concurrency
}

// openUntil returns the time at which the last window or grant of the charges ends, at most MaxRefundable
// after at. at is the time at which the charges were made. The result is 0 if no charge can be returned.
func openUntil(charges []Charge, at int64) (until int64) {
	for i := range charges {
		if c := &charges[i]; c.returns() {
			state, _ := c.Meter.Settle(c.Receipt.State, c.Rev, at)
			until = max(until, at+c.Meter.ResetAfter(state, at))
		}
	}
	return min(until, at+MaxRefundable.Microseconds())
}

// setRefundable sets RefundableUntil from the outcome of the item's request.
func (it *item) setRefundable(w *call, o *Outcome) {
	var charges []Charge
	var window *Receipt // receipt of the last charge that is not on the counter of a grant
	for i := it.enforced.from; i < it.soft.to && len(o.Charges) > 0; i++ {
		made := it.Check.Mode == Force || o.made(w.charges[it.first:it.shadow.to], i-it.first)
		c := w.charges[i]
		c.Receipt, c.Cost = &Receipt{Cost: c.Cost, State: o.Charges[i-it.first].State}, 0
		if c.Grant {
			c.Receipt.Cost = o.Charges[i-it.first].Cost
			window.Cost -= c.Receipt.Cost
		} else {
			window = c.Receipt
		}
		if made && (c.Grant || !it.Decision.Limits[w.positions[i]].Rule.leasedBucket(c.Meter)) {
			charges = append(charges, c)
		}
	}
	it.Decision.RefundableUntil = openUntil(charges, o.At)
}

// A RefundedCheck is the result of a refund: a check, and the units that its limits got back.
type RefundedCheck struct {
	Decision              [16]byte
	CheckedAt, RefundedAt int64 // microseconds since the epoch by the clock of the limiter
	Limits                []RefundedLimit
}

// A RefundedLimit is one limit that a refunded check had charged. Refunded is less than Charged
// if the window has ended, or, for a bucket, if units have refilled since.
type RefundedLimit struct {
	Policy, Limit     string
	Charged, Refunded int64
}

// ErrNotRefundable is the error if the limiter has no record of the check to refund.
var ErrNotRefundable = problem.New(problem.NotFound, "no check with this decision id can be refunded: it is unknown, "+
	"was not made with refundable: true, charged nothing, was answered with degraded: true, or its windows ended more than a minute ago")

// RefundCheck returns what a refundable check charged to the same windows that the check charged. A check
// can be refunded only once. idempotencyKey must not be "". replayed is set if an earlier call with the
// same key refunded the check.
//
// Errors: problem.NotFound; problem.Conflict if the check was already refunded or its windows have ended;
// problem.Unavailable if the limiter did not answer. After problem.Unavailable, the caller can repeat the
// call, because the refund is applied at most once.
func (e *Engine) RefundCheck(
	ctx context.Context, s *Subject, decision [16]byte, idempotencyKey string,
) (r *RefundedCheck, replayed bool, err error) {
	key, change := refundKey(s, decision), ReservationChange{State: ReservationReleased}
	if idempotencyKey == "" {
		id := e.newIDAt(e.now().UnixMicro())
		change.repeat = id[:]
	} else {
		sum := sha256.Sum256([]byte(idempotencyKey))
		change.repeat = sum[:16]
	}
	for range changeAttempts {
		record, data, at, err := e.readRecord(ctx, s, key)
		switch {
		case problem.Is(err, problem.NotFound):
			return nil, false, ErrNotRefundable
		case err != nil:
			return nil, false, err
		case !record.Open && string(data.Request) == string(change.repeat):
			return showRefund(decision, record, data), true, nil
		case !record.Open:
			return nil, false, wasRefunded(showRefund(decision, record, data))
		}
		request := e.adjustment(s, s.Home, key, record, data, &change)
		request.Reservation.Most = 0
		request.Charges = slices.DeleteFunc(request.Charges, func(c Charge) bool { return c.Meter.Algorithm == Concurrency })
		end := min(openUntil(request.Charges, record.At), record.Until)
		if at >= end {
			return nil, false, s.refundTooLate(decision, record, data, &request, at)
		}
		o, err := e.adjust(ctx, request)
		switch {
		case err != nil:
			return nil, false, err
		case o.Verdict == Granted && o.At >= end: // the windows ended before the limiter made the refund, so nothing was returned
			return nil, false, s.refundTooLate(decision, record, data, &request, o.At)
		case o.Verdict == Granted:
			e.reserved.refunded.Add(1)
			return showRefund(decision, record.After(&request, o), data), false, nil
		}
	}
	return nil, false, errChangedMeanwhile
}

// wasRefunded returns the error for a check that was already refunded.
func wasRefunded(r *RefundedCheck) error {
	what := Instant(r.RefundedAt).Format(InstantLayout)
	for i := range r.Limits {
		l := &r.Limits[i]
		what += fmt.Sprintf("; policy %s, limit %s: %d of %d given back", l.Policy, l.Limit, l.Refunded, l.Charged)
	}
	return problem.WithCode(problem.Conflict, "check_refunded", "check %s was refunded at %s", uuidText(r.Decision), what)
}

// showRefund returns the result of a refund. record is the record of the check after the
// refund.
func showRefund(decision [16]byte, record *Record, data *reservationData) *RefundedCheck {
	r := &RefundedCheck{Decision: decision, CheckedAt: record.At, RefundedAt: record.Changed}
	for i := range data.Charges {
		switch c := &data.Charges[i]; {
		case c.Policy == "" || !data.charged(record, i):
		case c.grant():
			r.Limits[len(r.Limits)-1].Refunded -= record.Applied[i]
		default:
			r.Limits = append(r.Limits, RefundedLimit{Policy: c.Policy, Limit: c.Limit, Charged: c.Cost, Refunded: -record.Applied[i]})
		}
	}
	return r
}
