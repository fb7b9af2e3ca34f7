package enforcement

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

// IdempotencyPeriod is the time for which a Limiter keeps the record of an idempotent request.
const IdempotencyPeriod = 10 * time.Minute

// IdempotencyCell is the number in Key.Cell of two kinds of keys: the records of idempotent requests, and the
// counter that bounds their number. The numbers of limits begin with 1.
const IdempotencyCell = 0

// Idempotency makes a request idempotent. If the request is granted and its mode is not
// Peek, the Limiter stores a record of the outcome in the same atomic step as the charges,
// for IdempotencyPeriod. While the record exists, a request with the same Key gets that
// outcome and charges nothing.
type Idempotency struct {
	// Key is the key of the record. Its partition is a hash of the Idempotency-Key of the caller.
	Key Key
	// Request is a hash of everything that the caller sent. If the record was stored with another hash, the verdict is
	// Reused.
	Request [16]byte
	// Charges is a hash of the charges and their limits. If the record was stored with another hash, for example
	// because the plan has changed since, the outcome of a repetition has no charges.
	Charges [16]byte
}

// Idempotent reports whether the Limiter looks for a record that decides the request. It does not for refunds,
// resets, adjustments and releases.
func (r *Request) Idempotent() bool {
	return r.Idempotency != nil && r.Mode != Refund && r.Mode != Reset && r.Mode != Adjust && r.Mode != Release
}

// An IdempotencyResult says what the Idempotency-Key of a check did.
type IdempotencyResult uint8

// The results.
const (
	// NotRepeated means that the check has no key, or that its key is new.
	NotRepeated IdempotencyResult = iota
	// Replayed means that the check repeats an earlier check with the same key. The decision is
	// the earlier one.
	Replayed
	// KeyReused means that the key belongs to another check. The check was not decided.
	KeyReused
	// TooManyKeys means that the tenant used too many new idempotency keys, or made too many
	// refundable checks. The check was not decided.
	TooManyKeys
	// TooManyReservations means that the tenant has too many outstanding reservations. The
	// check was not decided.
	TooManyReservations
)

// keyMeter returns the meter of the counter that bounds the number of new records of
// idempotent and refundable checks of a tenant.
func keyMeter(most int64) *Meter {
	l := Limit{Name: "idempotency-keys", Algorithm: FixedWindow, Quota: most, Window: IdempotencyPeriod}
	return l.Compile(1)
}

// chargesPerKey is the number of charges in a new record for which the counter of new records is charged one unit. A
// larger record has more charges and costs more units.
const chargesPerKey = 8

// chargeKey appends a charge on the counter that bounds how many records a tenant creates. It does nothing if the
// request charges no limit. It also does nothing if the request needs no record, because it has no idempotency key
// and is not for refundable checks. The caller calls it before it appends other charges: the charge must be the
// first one.
func (w *call) chargeKey(e *Engine, it *item, charged bool) {
	it.keyed = it.Check.IdempotencyKey != ""
	it.keyCharged = charged && (it.keyed || it.refundable())
	if !it.keyCharged {
		return
	}
	w.charges = append(w.charges, e.chargeOfKey(it.Subject))
	w.positions = append(w.positions, -1)
}

// chargeOfKey returns the charge on a tenant's counter of new records.
func (e *Engine) chargeOfKey(s *Subject) Charge {
	return Charge{Key: Key{Tenant: s.Number, Cell: IdempotencyCell}, Meter: e.keys, Rev: e.keys.Rev}
}

// idempotency returns the Idempotency of a request that decides items and has these charges. It also sets the cost
// of charges[0], which is on the counter of new records.
func idempotency(items []item, charges []Charge) *Idempotency {
	first := &items[0]
	if len(charges) > 0 {
		charges[0].Cost = int64(len(charges)-1+chargesPerKey-1) / chargesPerKey
		switch {
		case first.Check.Mode == Peek: // a peek leaves no record
			charges[0].Cost = 0
		case first.refundable():
			charges[0].Cost *= recordPeriods(charges)
		case first.Check.Mode == TakeUpTo: // Outcome.Units counts in units of the largest cost, so a limit must have the largest cost
			group := 1
			for group < len(charges) && charges[group].Group == 0 {
				group++
			}
			charges[0].Cost = min(charges[0].Cost, max(LargestCost(charges[1:group]), 1))
		}
	}
	key := sha256.Sum256([]byte(first.Check.IdempotencyKey))
	text := make([]byte, 0, 512)
	for i := range items {
		text = appendCheck(text, items[i].Check)
	}
	request := sha256.Sum256(text)
	text = text[:0]
	for i := range charges {
		text = appendCharge(text, &charges[i])
	}
	numbers := sha256.Sum256(text)
	id := &Idempotency{Key: Key{Tenant: first.Subject.Number, Cell: IdempotencyCell}}
	copy(id.Key.Partition[:], key[:])
	copy(id.Request[:], request[:])
	copy(id.Charges[:], numbers[:])
	return id
}

// MaxIdempotencyKey is the largest length of an idempotency key in bytes.
const MaxIdempotencyKey = 255

// ValidIdempotencyKey reports whether a key has only visible ASCII characters and at most MaxIdempotencyKey of them.
// It accepts "", which means that the check has no key.
func ValidIdempotencyKey(key string) bool {
	return len(key) <= MaxIdempotencyKey && !strings.ContainsFunc(key, func(r rune) bool { return r < '!' || r > '~' })
}

// appendCheck appends an encoding of everything that the caller sent. Different checks have different encodings. The
// order of the attributes does not change the encoding.
func appendCheck(b []byte, c *Check) []byte {
	b = append(b, byte(c.Mode), boolByte(c.DefaultCost)|boolByte(c.Refundable)<<1)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Cost))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.LeaseTTL))
	b = appendText(appendText(appendText(b, c.Lease), c.Method), c.Path)
	var space [MaxAttributes]Attribute
	attributes := append(space[:0], c.Attributes...)
	slices.SortFunc(attributes, func(a, b Attribute) int { return cmp.Compare(a.Name, b.Name) })
	b = append(b, byte(len(attributes)))
	for _, a := range attributes {
		b = appendText(appendText(b, a.Name), a.Value)
	}
	if sent := c.SentLimit; sent != (SentLimit{}) {
		b = binary.LittleEndian.AppendUint64(b, uint64(sent.Quota))
		b = binary.LittleEndian.AppendUint64(b, uint64(sent.Window))
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func boolByte(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// appendCharge appends an encoding of the counter, the limit and the cost of a charge.
func appendCharge(b []byte, c *Charge) []byte {
	m := c.Meter
	b = binary.LittleEndian.AppendUint32(b, c.Key.Tenant)
	b = binary.LittleEndian.AppendUint32(b, c.Key.Cell)
	b = append(b, c.Key.Partition[:]...)
	b = append(b, byte(m.Algorithm), byte(m.Anchor), byte(m.Period))
	for _, n := range [...]int64{c.Rev, c.Cost, int64(c.Group), m.Quota, m.Window, m.Capacity, m.Queue, m.P, m.Q} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	if m.Period != NoPeriod && !m.IsGrant() { // the edges are those at the time of the call, and a repetition comes later
		b = appendText(append(b, byte(m.Calendar.AnchorDay)), m.Calendar.Zone.String())
	} else {
		for _, edge := range m.Edges {
			b = binary.LittleEndian.AppendUint64(b, uint64(edge))
		}
	}
	if m.Rollover > 0 {
		b = binary.LittleEndian.AppendUint64(b, uint64(m.Rollover))
	}
	return b
}

// repeated fills in the decisions of items whose idempotency key has a record. It returns false
// if the key is new. base is the index in w.charges of the first charge of the outcome.
func (w *call) repeated(items []item, o *Outcome, base int) bool {
	if !markRepeated(items, o) {
		return false
	}
	if o.Verdict == Reused {
		return true
	}
	for i := range items {
		it, d := &items[i], items[i].Decision
		if it.Check.Mode == TakeUpTo {
			if d.Taken = o.Units; it.enforced.len() == 0 && len(o.Charges) > 0 {
				d.Taken = it.Subject.SentCost(it.Check)
			}
		}
		if !d.Allowed || len(o.Charges) == 0 {
			d.Allowed, d.Reason, d.RetryAfter, d.NumbersUntil = true, ReasonOK, 0, 0
			d.Missing, d.Policy, d.List, d.Block = "", "", nil, nil
		}
		if d.At = o.At; len(o.Charges) > 0 {
			metersAt(w.charges[it.enforced.from:it.shadow.to], it.Subject.Calendar, o.At)
			w.fillLimits(it, o, base)
		} else {
			d.nameLease(&it.lease)
			d.Limits = d.Limits[:0]
		}
	}
	return true
}

// metersAt replaces the meters of charges on calendar windows by those at the time at. A repetition can
// come in a later window than the first decision, whose states are of the earlier one.
func metersAt(charges []Charge, c *Calendar, at int64) {
	for i := range charges {
		charges[i].Meter = charges[i].Meter.In(c, at)
	}
}

// markRepeated marks the items of an outcome as repeated or, if the verdict is Reused, as not decided. It returns
// false if the idempotency key of the items is new.
func markRepeated(items []item, o *Outcome) bool {
	if o.Verdict == Reused {
		refuseKeys(items, KeyReused)
		return true
	}
	if !o.Replayed {
		return false
	}
	for i := range items {
		d := items[i].Decision
		items[i].lease = items[0].Check.lease(o.First)
		if d.ID = o.First; i > 0 {
			d.ID = followingID(o.First, i)
		}
		d.Idempotency, items[i].unrecorded = Replayed, true
	}
	return true
}

// tooManyKeys reports whether items were denied only because the tenant has too many new records. In this case it
// also marks the items as not decided. base is the index in w.charges of the first charge of the outcome.
func (w *call) tooManyKeys(items []item, o *Outcome, base int) bool {
	if o.Verdict != Refused || !items[0].keyCharged || o.Charges[0].Fits {
		return false
	}
	for i := range items {
		for k := items[i].enforced.from; k < items[i].enforced.to; k++ {
			if !o.Charges[k-base].Fits {
				return false
			}
		}
	}
	refuseManyKeys(items, w.charges[base].Meter, o)
	return true
}

// refuseManyKeys marks items as not decided, because the counter of new records is used up.
func refuseManyKeys(items []item, m *Meter, o *Outcome) {
	refuseKeys(items, TooManyKeys)
	wait, _ := m.RetryAfter(o.Charges[0].State, o.At, o.Charges[0].Cost)
	for i := range items {
		items[i].Decision.RetryAfter = Milliseconds(wait)
	}
}

// refuseKeys marks items as not decided, with result as the reason.
func refuseKeys(items []item, result IdempotencyResult) {
	for i := range items {
		d := items[i].Decision
		d.Allowed, d.Reason, d.RetryAfter, d.Idempotency, d.Limits = false, "", 0, result, d.Limits[:0]
		items[i].unrecorded = true
	}
}

// followingID returns the ID of check i, for i above 0, of an atomic batch with an idempotency key. first is the ID
// of check 0. The result is a UUIDv7 with the time of first. It depends only on first and i, so a repetition of the
// batch has the same IDs.
func followingID(first [16]byte, i int) (id [16]byte) {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint32(first[:], uint32(i)))
	copy(id[:6], first[:6])
	copy(id[6:], sum[:10])
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}
