package enforcement

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// Bounds of a reservation.
const (
	MinReservationLife = time.Second
	MaxReservationLife = 24 * time.Hour
	// ReservationKept is how long the record of a reservation is kept after its end.
	ReservationKept = 10 * time.Minute
	// MaxReservationID is the largest length of an ID in bytes.
	MaxReservationID = 64

	// reservationOverdue is how long the record of a reservation is kept after the reservation's time has
	// passed, if no node ends the reservation.
	reservationOverdue = 24 * time.Hour
	// defaultReservations is the default of Config.Reservations.
	defaultReservations = 10_000
)

// A CheckReservation turns an allowed check into a reservation. The cost of the check is then an estimate.
// When the reservation is settled, the actual cost replaces the estimate.
type CheckReservation struct {
	// ID identifies the reservation within its tenant. "" stands for the ID of the decision. If a reservation
	// with the ID exists already, the check gets the decision of the check that made it.
	ID string
	// Life is the time until the reservation expires.
	Life time.Duration
}

// A ReservationState is the state of a reservation.
type ReservationState string

// The states.
const (
	ReservationActive   ReservationState = "active"
	ReservationSettled  ReservationState = "settled"
	ReservationReleased ReservationState = "released" // it was released, and its costs were returned
	ReservationExpired  ReservationState = "expired"  // its time has passed
)

// A Reserved is a reservation as the API shows it.
type Reserved struct {
	ID        string
	State     ReservationState
	Decision  [16]byte // the ID of the decision
	CreatedAt int64    // times are in microseconds since the epoch by the clock of the limiter
	ExpiresAt int64
	EndedAt   int64 // 0 while it is active
	Limits    []ReservedLimit
}

// A ReservedLimit is one limit that a reservation charged.
type ReservedLimit struct {
	Policy, Limit string
	// Estimate is the cost that was charged first. Cost is the cost that is charged now, in
	// the window that was charged first. If this window ended before the reservation was
	// settled, Cost is not the cost with which it was settled.
	Estimate, Cost int64
}

// reservationData is the content of Record.Data in JSON.
type reservationData struct {
	ID    string           `json:"id"`
	State ReservationState `json:"state"`
	// Attributes are the attributes of the check that are needed to compute the quotas and costs of its
	// limits.
	Attributes []Attribute `json:"attributes,omitempty"`
	// Request is a hash of the call that settled or released the reservation.
	Request []byte `json:"request,omitempty"`
	// Extension identifies the last extension by its idempotency key, and ExtendedBy is its Life in
	// microseconds. Both are empty if this extension had no key.
	Extension  []byte           `json:"extension,omitempty"`
	ExtendedBy int64            `json:"extended_by,omitempty"`
	Charges    []reservedCharge `json:"charges"`
}

// A reservedCharge is one charge of a reservation.
type reservedCharge struct {
	Policy    string `json:"policy"`
	Limit     string `json:"limit"`
	Cell      uint32 `json:"cell"`
	Partition []byte `json:"partition"`
	Group     uint16 `json:"group,omitempty"`
	Cost      int64  `json:"cost"`
	Capacity  int64  `json:"capacity,omitempty"`
}

// grant reports whether the charge is on the counter of a grant. Such a charge follows the charge of its
// limit. Its Cost is 0. Record.Applied has the units that the grant was charged, and for the charge of the
// limit the same number below 0.
func (c *reservedCharge) grant() bool { return c.Cell == GrantCell }

// reservationKey returns the key of the record of a reservation.
func reservationKey(s *Subject, id string) Key {
	sum := sha256.Sum256([]byte(id))
	return Key{Tenant: s.Number, Cell: ReservationCell, Partition: [16]byte(sum[:16])}
}

// reserve makes the request of an item create a reservation.
func (w *call) reserve(e *Engine, r *Request, it *item) {
	v := it.Check.Reservation
	id := cmp.Or(v.ID, uuidText(it.Decision.ID))
	text := w.reservationData(r, it, id)
	r.Idempotency = idempotency([]item{*it}, nil)
	var numbers []byte
	for k := range r.Charges {
		numbers = appendCharge(numbers, &r.Charges[k])
	}
	sum := sha256.Sum256(numbers)
	copy(r.Idempotency.Charges[:], sum[:])
	sum = sha256.Sum256(binary.LittleEndian.AppendUint64(r.Idempotency.Request[:], uint64(v.Life)))
	copy(r.Idempotency.Request[:], sum[:])
	r.Idempotency.Key = reservationKey(it.Subject, id)
	r.Reservation = &Reservation{
		Key: r.Idempotency.Key, Most: e.mostReservations, Life: v.Life.Microseconds(), Kept: reservationOverdue.Microseconds(), Data: text,
	}
}

// reservationData returns Record.Data for the request of an item. If the request has a charge on the
// counter of new records, this charge has no policy in the data.
func (w *call) reservationData(r *Request, it *item, id string) []byte {
	data := reservationData{ID: id, State: ReservationActive, Charges: make([]reservedCharge, len(r.Charges))}
	for k := range r.Charges {
		position := w.positions[it.first+k]
		if position < 0 {
			continue
		}
		c, l := &r.Charges[k], &it.Decision.Limits[position]
		data.Charges[k] = reservedCharge{
			Policy: l.Rule.Policy, Limit: l.Limit.Name, Cell: c.Key.Cell, Partition: c.Key.Partition[:], Group: c.Group, Cost: c.Cost,
		}
		if r.Mode == Force && c.inForce() {
			data.Charges[k].Group = 0 // made whether it fits or not
		}
		if c.Meter.Algorithm.Bucket() {
			data.Charges[k].Capacity = c.Meter.Capacity
		}
	}
	for _, a := range it.Check.Attributes {
		if it.needs(a.Name) {
			data.Attributes = append(data.Attributes, a)
		}
	}
	text, err := json.Marshal(&data)
	if err != nil {
		panic(err) // all fields of the type have a JSON form
	}
	return text
}

// clampEstimates reduces each cost that is more than its limit can ever allow to the most that the limit
// allows. It does so for policies with reservation_estimate clamp.
func (d *Decision) clampEstimates() {
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Rule.ReservationEstimate == ClampEstimate {
			l.Cost = min(l.Cost, l.Limit.Capacity())
		}
	}
}

// needs reports whether the limits or the costs of the item depend on the value of an attribute.
func (it *item) needs(name string) bool {
	for i := range it.Decision.Limits {
		r := it.Decision.Limits[i].Rule
		if r.CostFrom == name || slices.ContainsFunc(r.slots, func(s slot) bool { return s.name == name }) {
			return true
		}
	}
	return false
}

// reserved completes the decision of a reservation from its outcome. It returns true if the
// decision is complete.
func (w *call) reserved(items []item, o *Outcome, base int) bool {
	switch {
	case o.Verdict == Full:
		refuseKeys(items, TooManyReservations)
		return true
	case o.Verdict != Reused && o.Record == nil:
		return false
	case o.Record != nil:
		items[0].Decision.Reservation = showReservation(o.Record)
	}
	return w.repeated(items, o, base)
}

// showReservation returns a reservation from its record, or nil if its data cannot be read.
func showReservation(r *Record) *Reserved {
	data, err := readReservation(r)
	if err != nil {
		return nil
	}
	shown := &Reserved{ID: data.ID, State: data.State, Decision: r.ID, CreatedAt: r.At, ExpiresAt: r.Until}
	if !r.Open {
		shown.EndedAt = r.Changed
	}
	for i := range data.Charges {
		switch c := &data.Charges[i]; {
		case c.Policy == "" || !data.charged(r, i):
		case c.grant():
			shown.Limits[len(shown.Limits)-1].Cost += r.Applied[i]
		default:
			shown.Limits = append(shown.Limits, ReservedLimit{
				Policy: c.Policy, Limit: c.Limit, Estimate: c.Cost, Cost: c.Cost + r.Applied[i],
			})
		}
	}
	return shown
}

func readReservation(r *Record) (*reservationData, error) {
	data := new(reservationData)
	if err := json.Unmarshal(r.Data, data); err != nil {
		return nil, fmt.Errorf("read the record of a reservation: %w", err)
	}
	if len(data.Charges) != len(r.Charged) || len(data.Charges) != len(r.Applied) {
		return nil, fmt.Errorf("read the record of a reservation: it has %d charges and %d states", len(data.Charges), len(r.Charged))
	}
	return data, nil
}

// charged reports whether charge i of a reservation was made. All charges of enforced policies were made.
// The charges of one soft or shadow policy were made together or not at all.
func (d *reservationData) charged(r *Record, i int) bool {
	if d.Charges[i].Group == 0 {
		return true
	}
	for k := range d.Charges {
		if d.Charges[k].Group == d.Charges[i].Group && !r.Charged[k].Fits {
			return false
		}
	}
	return true
}

// Reservations returns up to most outstanding reservations of a tenant, ordered by their ends. after is the
// Place of the last reservation on the previous page, or "".
func (e *Engine) Reservations(ctx context.Context, s *Subject, after string, most int) (list []ReservationPlace, err error) {
	var until int64
	var partition [16]byte
	if raw, err := hex.DecodeString(after); err == nil && len(raw) == 24 {
		until = int64(binary.BigEndian.Uint64(raw))
		copy(partition[:], raw[8:])
	}
	entries, err := e.reserver.Outstanding(ctx, s.Home, s.Number, until, partition, most)
	if err != nil {
		return nil, &problem.Problem{Kind: problem.Unavailable, RetryAfter: 1, Cause: err, Message: "the limiter did not answer: try again"}
	}
	requests := make([]Request, len(entries))
	for i := range entries {
		requests[i] = Request{Mode: Peek, Home: s.Home, Reservation: &Reservation{Key: entries[i].Key}}
	}
	outcomes := make([]Outcome, len(requests))
	takeFrom(ctx, e.limiter, requests, outcomes)
	for i := range outcomes {
		o, at := &outcomes[i], &entries[i]
		if !o.Verdict.Decided() {
			return nil, unavailable(o)
		}
		if o.Record == nil || !o.Record.Open || o.At >= o.Record.Until {
			continue
		}
		if shown := showReservation(o.Record); shown != nil {
			place := binary.BigEndian.AppendUint64(nil, uint64(at.Until))
			list = append(list, ReservationPlace{*shown, hex.EncodeToString(append(place, at.Key.Partition[:]...))})
		}
	}
	return list, nil
}

// A ReservationPlace is a reservation with its position in the list of outstanding
// reservations.
type ReservationPlace struct {
	Reserved
	Place string
}
