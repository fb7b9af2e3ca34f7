package enforcement

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// A ReservationChange changes one reservation of a tenant.
type ReservationChange struct {
	ID string
	// State is the state after the change: ReservationSettled, ReservationReleased, or
	// ReservationActive to extend the reservation.
	State ReservationState
	// Cost is the actual cost, if the change settles the reservation; nil keeps the estimate.
	// Attributes replace the attributes of the check, for policies with cost_from.
	Cost       *int64
	Attributes []Attribute
	// Life is the time from now to the new end, for extending.
	Life time.Duration
	// IdempotencyKey is the caller's key of an extension, or "". If the last extension of the reservation had the same key,
	// the end does not move again.
	IdempotencyKey string

	repeat []byte // result of hash, if it is set
}

// hash returns the hash of a call that settles or releases a reservation. A repeated call has the same hash, and gets the
// first answer.
func (c *ReservationChange) hash() []byte {
	if c.repeat != nil {
		return c.repeat
	}
	check := Check{Attributes: c.Attributes, DefaultCost: c.Cost == nil}
	if c.Cost != nil {
		check.Cost = *c.Cost
	}
	sum := sha256.Sum256(appendCheck([]byte(c.State), &check))
	return sum[:16]
}

// extension returns what identifies an extension: a form of its idempotency key. It returns nil if the change has no key.
func (c *ReservationChange) extension() []byte {
	if c.State != ReservationActive || c.IdempotencyKey == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(c.IdempotencyKey))
	return sum[:16]
}

// cost returns the number of units that a rule charges after the change. estimate is the number that the rule charged
// before.
func (c *ReservationChange) cost(r *Rule, data *reservationData, estimate int64) int64 {
	switch {
	case c.State == ReservationReleased:
		return 0
	case c.State != ReservationSettled:
		return estimate
	}
	if r.CostFrom != "" {
		if value, ok := (&Check{Attributes: c.Attributes}).attribute(r.CostFrom); ok {
			if n, ok := ParseCost(value); ok {
				return n
			}
		}
		if _, ok := (&Check{Attributes: data.Attributes}).attribute(r.CostFrom); ok {
			return estimate
		}
	}
	if c.Cost != nil {
		return *c.Cost
	}
	return estimate
}

// errNoReservation is the error if the tenant has no reservation with the ID, or if the store has damaged its record.
var errNoReservation = problem.New(problem.NotFound,
	"no such reservation: it does not exist, was answered with degraded: true, or ended more than 10 minutes ago")

// changeAttempts is how often ChangeReservation tries to change a reservation that other calls
// change at the same time.
const changeAttempts = 8

// Reservation returns a reservation of a tenant.
func (e *Engine) Reservation(ctx context.Context, s *Subject, id string) (*Reserved, error) {
	record, data, at, err := e.readRecord(ctx, s, reservationKey(s, id))
	if err != nil {
		return nil, err
	}
	if record.Open && at >= record.Until {
		if err := e.expire(ctx, s, s.Home, reservationKey(s, id), record, data); err != nil {
			return nil, err
		}
		return e.Reservation(ctx, s, id)
	}
	return showReservation(record), nil
}

// ChangeReservation settles, releases or extends a reservation in one atomic step. replayed is set if an earlier equal
// call already ended the reservation, or if the last extension of the reservation was a call with the same idempotency
// key.
//
// Errors: problem.NotFound; problem.Conflict if the reservation has ended, or if the key was used for an extension by
// another time; problem.Unavailable if the limiter did not answer. After problem.Unavailable, the caller can repeat the
// call, because the change is applied at most once.
func (e *Engine) ChangeReservation(ctx context.Context, s *Subject, change *ReservationChange) (r *Reserved, replayed bool, err error) {
	key := reservationKey(s, change.ID)
	for range changeAttempts {
		record, data, at, err := e.readRecord(ctx, s, key)
		switch {
		case err != nil:
			return nil, false, err
		case !record.Open && data.State == change.State && bytes.Equal(data.Request, change.hash()):
			return showReservation(record), true, nil
		case !record.Open:
			return nil, false, hasEnded(showReservation(record))
		case at >= record.Until:
			if err := e.expire(ctx, s, s.Home, key, record, data); err != nil {
				return nil, false, err
			}
			continue
		case change.extension() != nil && bytes.Equal(data.Extension, change.extension()):
			if data.ExtendedBy != change.Life.Microseconds() {
				return nil, false, errExtensionKeyReused
			}
			return showReservation(record), true, nil
		}
		request := e.adjustment(s, s.Home, key, record, data, change)
		if change.State == ReservationActive {
			request.Reservation.Ends = false
			request.Reservation.Life, request.Reservation.Kept = change.Life.Microseconds(), reservationOverdue.Microseconds()
		}
		o, err := e.adjust(ctx, request)
		if err != nil {
			return nil, false, err
		}
		if o.Verdict == Granted {
			e.reserved.ended(change.State)
			return showReservation(record.After(&request, o)), false, nil
		}
	}
	return nil, false, errChangedMeanwhile
}

// errExtensionKeyReused is the error for an extension that has the idempotency key of the last extension, but extends by
// another time.
var errExtensionKeyReused = problem.WithCode(problem.Conflict, "idempotency_key_reused",
	"this Idempotency-Key belongs to an extension of the reservation with another ttl_ms: send a new key; the reservation was not changed")

// errChangedMeanwhile is the error if, at each attempt, another call changed the record between the read and the change.
var errChangedMeanwhile = &problem.Problem{
	Kind: problem.Unavailable, RetryAfter: 1, Message: "other calls change this reservation or check at the same time: try again",
}

// hasEnded returns the error for the change of a reservation that has ended.
func hasEnded(r *Reserved) error {
	at := Instant(r.EndedAt).Format(InstantLayout)
	what := map[ReservationState]string{
		ReservationSettled:  "was settled at " + at,
		ReservationReleased: "was given back at " + at,
		ReservationExpired:  "ended by itself at " + Instant(r.ExpiresAt).Format(InstantLayout),
	}[r.State]
	for i := range r.Limits {
		l := &r.Limits[i]
		what += fmt.Sprintf("; policy %s, limit %s: %d of %d charged", l.Policy, l.Limit, l.Cost, l.Estimate)
	}
	return problem.WithCode(problem.Conflict, "reservation_ended", "reservation %s %s", r.ID, what)
}

// expire ends a reservation whose time has passed. s is nil if its tenant was deleted; in this case no cost is returned.
// If another node has already ended the reservation, expire returns no error.
func (e *Engine) expire(ctx context.Context, s *Subject, home string, key Key, record *Record, data *reservationData) error {
	request := e.adjustment(s, home, key, record, data, &ReservationChange{State: ReservationExpired})
	request.Reservation.Due = true
	o, err := e.adjust(ctx, request)
	if err == nil && o.Verdict == Granted {
		e.reserved.ended(ReservationExpired)
	}
	return err
}

// adjust passes a request with mode Adjust to the limiter.
func (e *Engine) adjust(ctx context.Context, request Request) (*Outcome, error) {
	outcomes := make([]Outcome, 1)
	takeFrom(ctx, e.limiter, []Request{request}, outcomes)
	if !outcomes[0].Verdict.Decided() {
		return nil, unavailable(&outcomes[0])
	}
	return &outcomes[0], nil
}

func unavailable(o *Outcome) error {
	return &problem.Problem{
		Kind: problem.Unavailable, RetryAfter: 1, Cause: o.undecidedError("change a reservation"),
		Message: "the limiter did not answer: repeat the call, which is applied at most once",
	}
}

// readRecord reads the record of a reservation. at is the time of the read by the limiter's
// clock.
func (e *Engine) readRecord(ctx context.Context, s *Subject, key Key) (record *Record, data *reservationData, at int64, err error) {
	read := Request{ID: e.newIDAt(e.now().UnixMicro()), Mode: Peek, Home: s.Home, Reservation: &Reservation{Key: key}}
	o, err := e.adjust(ctx, read)
	switch {
	case err != nil:
		return nil, nil, 0, err
	case o.Record == nil:
		return nil, nil, 0, errNoReservation
	}
	if data, err = readReservation(o.Record); err != nil {
		e.logger.LogAttrs(ctx, slog.LevelWarn, "a reservation or a refundable check cannot be used: its record is invalid", slog.Any("err", err))
		return nil, nil, 0, errNoReservation
	}
	return o.Record, data, o.At, nil
}

// adjustment returns the request that changes a reservation. It uses the limits that are in force now. If a limit is no
// longer in the tenant's plan, its charge does not change, because no check reads its counter. If the reservation ends,
// the request releases the places of concurrency limits. If the reservation is extended, the request keeps them until the
// new end.
func (e *Engine) adjustment(s *Subject, home string, key Key, record *Record, data *reservationData, change *ReservationChange) Request {
	now := e.now().UnixMicro()
	after := *data
	if after.State = change.State; change.State != ReservationActive {
		after.Request = change.hash()
	} else {
		after.Extension, after.ExtendedBy = change.extension(), 0
		if after.Extension != nil {
			after.ExtendedBy = change.Life.Microseconds()
		}
	}
	text, err := json.Marshal(&after)
	if err != nil {
		panic(err) // all fields of the type have a JSON form
	}
	request := Request{ID: e.newIDAt(now), Mode: Adjust, Home: home}
	request.Reservation = &Reservation{
		Key: key, Most: e.mostReservations, Kept: ReservationKept.Microseconds(), Data: text,
		Version: record.Version, Forgotten: record.Forgotten(), Ends: true,
	}
	if s == nil || s.Plan == nil {
		return request
	}
	request.MaxKeys = s.MaxKeys
	request.Lease = Lease{ID: LeaseID(data.ID), TTL: change.Life.Microseconds()}
	check := withIP(&Check{Attributes: data.Attributes})
	for i := range data.Charges {
		c := &data.Charges[i]
		if c.grant() {
			continue // adjusted with its limit
		}
		if r, known := s.Plan.Rule(c.Policy); known && data.charged(record, i) {
			charge, ok := s.adjustedCharge(r, check, c, now)
			holds := ok && charge.Meter.Algorithm == Concurrency
			if ok && (holds || change.State != ReservationActive) {
				charge.Cost = change.cost(r, data, c.Cost)
				if holds && change.State != ReservationActive || change.State == ReservationExpired && r.ReservationExpiry == RefundExpired {
					charge.Cost = 0
				}
				if r.leasedBucket(charge.Meter) {
					charge.Cost = max(charge.Cost, c.Cost) // do not return units: with the units that other nodes hold, the bucket could exceed its burst
				}
				charge.Receipt = &Receipt{Cost: c.Cost, State: record.Charged[i].State, Capacity: c.Capacity, Index: uint16(i)}
				request.Charges = append(request.Charges, charge)
				if !holds {
					request.Charges = s.adjustGrants(request.Charges, r, record, data, i, now)
				}
			}
		}
	}
	return request
}

// adjustGrants divides the cost of a changed charge between its limit and the grants of the limit. The last charge in
// list is this charge; in the reservation, it is charge i, and the charges on the grants follow it. adjustGrants appends
// their changed charges to list.
//
// Units are returned first to the grant that was charged last, and to the window last. A grant that is void or has ended
// gets nothing back. Additional units are in the cost of the window; see AdjustedCosts.
func (s *Subject) adjustGrants(list []Charge, r *Rule, record *Record, data *reservationData, i int, now int64) []Charge {
	window := &list[len(list)-1]
	window.Receipt.Cost += record.Applied[i]
	cost := window.Cost
	left := min(cost, window.Receipt.Cost)
	window.Cost = left
	left = cost - left // the part of the cost that is for the grants
	at := len(list) - 1
	var live []*grant
	for k := i + 1; k < len(data.Charges) && data.Charges[k].grant(); k++ {
		c, charged := &data.Charges[k], record.Applied[k]
		units := min(left, charged)
		left -= units
		if live == nil {
			limit := slices.IndexFunc(r.Limits, func(l RuleLimit) bool { return l.Cell == data.Charges[i].Cell })
			live = s.Exceptions.of(r).grantsOf(limit, [16]byte(data.Charges[i].Partition), now, []*grant{})
		}
		g := slices.IndexFunc(live, func(g *grant) bool { return string(g.key[:]) == string(c.Partition) })
		if g < 0 {
			continue
		}
		charge := live[g].charge(s)
		charge.Cost, charge.Group = units, c.Group
		charge.Receipt = &Receipt{Cost: charged, State: record.Charged[k].State, Index: uint16(k)}
		list = append(list, charge)
	}
	list[at].Cost += left
	return list
}

// leasedBucket reports whether other nodes can hold units of a bucket of the rule.
func (r *Rule) leasedBucket(m *Meter) bool { return r.Consistency == Leased && m.Algorithm.Bucket() }

// adjustedCharge returns a charge of a rule on the counter of the earlier charge was. The charge has the limit that is in
// force now, and no cost yet. ok is false if the rule no longer has this limit.
func (s *Subject) adjustedCharge(r *Rule, c *Check, was *reservedCharge, now int64) (charge Charge, ok bool) {
	n := s.numbers(r, c, now)
	for k := range n.limits {
		if l := &n.limits[k]; l.Cell == was.Cell {
			key := Key{Tenant: s.Number, Cell: l.Cell}
			copy(key.Partition[:], was.Partition)
			return Charge{Key: key, Meter: l.Meter.In(s.Calendar, now), Rev: n.revision(k), Group: was.Group}, true
		}
	}
	return charge, false
}
