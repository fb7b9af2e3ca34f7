package enforcement

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/problem"
)

// Bounds of the lease of a check.
const (
	MaxLeaseID  = 128 // bytes
	MaxLeaseTTL = MaxWindow
)

// SetLeaseID sets the ID of the lease of a check. It returns an error if the ID is invalid.
func (c *Check) SetLeaseID(id string) error {
	printable := !strings.ContainsFunc(id, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) })
	if id == "" || len(id) > MaxLeaseID || !printable {
		return fmt.Errorf("must be 1 to %d bytes of printable text", MaxLeaseID)
	}
	c.Lease = id
	return nil
}

// lease returns the lease that the request for the check uses. decision is the ID of the
// decision. A check with a reservation holds places under the ID of the reservation, until the
// reservation ends.
func (c *Check) lease(decision [16]byte) Lease {
	l := Lease{ID: decision, TTL: c.LeaseTTL.Microseconds()}
	if name := c.leaseName(); name != "" {
		l.ID = LeaseID(name)
	}
	if c.Reservation != nil {
		l.TTL = c.Reservation.Life.Microseconds()
	}
	return l
}

// leaseName returns the ID under which a check holds places, in the form in which the caller
// sent it: the ID of the reservation, or of the lease. It returns "" if the check has neither.
func (c *Check) leaseName() string {
	if c.Reservation != nil {
		return c.Reservation.ID
	}
	return c.Lease
}

// LeaseID converts the ID of a lease that a caller wrote to Lease.ID. LeaseText is the reverse:
//
//   - A UUID in lower case, such as the ID of a decision, becomes its 16 bytes.
//   - A text of up to shortLease bytes becomes its bytes and its length.
//   - Another text becomes a part of its SHA-256 hash.
//
// The upper four bits of the byte at markedByte are all set only for a short text. No version of
// UUIDs sets all four.
func LeaseID(text string) (id [16]byte) {
	if parsed, ok := parseUUID(text); ok && parsed[markedByte] < shortMark {
		return parsed
	}
	if n := len(text); n > 0 && n <= shortLease {
		copied := copy(id[:markedByte], text)
		copy(id[markedByte+1:], text[copied:])
		id[markedByte] = shortMark | byte(n)
		return id
	}
	sum := sha256.Sum256([]byte(text))
	copy(id[:], sum[:])
	id[markedByte] &= 0x7f
	return id
}

const (
	markedByte = 8    // index in Lease.ID of the byte with the mark; in a UUID, its upper bits are the variant
	shortMark  = 0xf0 // in markedByte: the lower bits are the length of a short text
	shortLease = 15   // bytes
)

// LeaseText returns the ID of a lease as text. That is the text that the caller wrote. If this
// text was longer than shortLease, LeaseText returns a text in the form of a UUID instead.
// LeaseID returns the same ID for both texts.
func LeaseText(id [16]byte) string {
	n := int(id[markedByte]) - shortMark
	if n < 1 {
		return uuidText(id)
	}
	text := append(append(make([]byte, 0, shortLease), id[:markedByte]...), id[markedByte+1:]...)
	if short := string(text[:n]); utf8.ValidString(short) {
		return short
	}
	return uuidText(id)
}

// uuidText returns an ID in the form of a UUID.
func uuidText(id [16]byte) string {
	var b [36]byte
	for at, from := 0, 0; from < 16; from++ {
		if at == 8 || at == 13 || at == 18 || at == 23 {
			b[at] = '-'
			at++
		}
		at += hex.Encode(b[at:], id[from:from+1])
	}
	return string(b[:])
}

func parseUUID(text string) (id [16]byte, ok bool) {
	if len(text) != 36 {
		return id, false
	}
	digits := text[:8] + text[9:13] + text[14:18] + text[19:23] + text[24:]
	if n, err := hex.Decode(id[:], []byte(digits)); err != nil || n != 16 {
		return id, false
	}
	return id, uuidText(id) == text
}

// Release ends the lease of a check on the counters of all concurrency limits of the policies
// that match the check, in any mode. It calls the limiter once. units is the number of places
// that the lease held on all counters together. It is 0 if the lease does not exist, for example
// because it has ended. Release records no decision.
//
// If this node decided checks while the shared limiter was unavailable, Release also releases
// the lease in the limiter and the journal of this node. It returns an error if the shared
// limiter does not answer and this node has no such lease.
func (e *Engine) Release(ctx context.Context, s *Subject, c *Check) (units int64, err error) {
	if s.Plan == nil {
		return 0, nil
	}
	w := e.newCall(0)
	var charges []Charge
	for _, i := range s.Plan.match(c, w.matching[:0]) {
		r := s.Plan.Rules[i]
		charges = append(charges, r.releases(s, r.partition(c, &w.partition))...)
	}
	e.release(w)
	units, err = e.endLease(ctx, s, c.lease([16]byte{}), charges)
	e.leases.ended(&e.leases.released, units)
	return units, err
}

// ReleaseHolder is like Release, for the concurrency limits of one key of one policy. text is
// the ID of the lease.
func (e *Engine) ReleaseHolder(ctx context.Context, s *Subject, r *Rule, partition [16]byte, text string) (units int64, err error) {
	units, err = e.endLease(ctx, s, Lease{ID: LeaseID(text)}, r.releases(s, partition))
	e.leases.ended(&e.leases.revoked, units)
	return units, err
}

// endLease ends a lease in the counters of charges. units is the number of places that it held.
func (e *Engine) endLease(ctx context.Context, s *Subject, lease Lease, charges []Charge) (units int64, err error) {
	if len(charges) == 0 {
		return 0, nil
	}
	request := Request{
		ID: e.newIDAt(e.now().UnixMicro()), Mode: Release, Home: s.Home, MaxKeys: s.MaxKeys, Lease: lease, Charges: charges,
	}
	if e.outage != nil {
		e.outage.forgetLease(charges, lease.ID)
	}
	outcomes := make([]Outcome, 1)
	takeFrom(ctx, e.limiter, []Request{request}, outcomes)
	if !outcomes[0].Verdict.Decided() {
		err = &problem.Problem{
			Kind: problem.Unavailable, Code: "limiter_unavailable", RetryAfter: 1,
			Cause:   outcomes[0].undecidedError("release a lease of tenant " + s.Tenant),
			Message: "the limiter did not answer: repeat the call, which is applied at most once",
		}
	} else if units = outcomes[0].Units; units > 0 {
		return units, nil
	}
	if e.local == nil {
		return 0, err
	}
	takeFrom(context.WithoutCancel(ctx), e.local, []Request{request}, outcomes)
	if outcomes[0].Verdict.Decided() && outcomes[0].Units > 0 {
		return outcomes[0].Units, nil
	}
	return 0, err
}

// LeaseCounts counts what a node did with leases of concurrency limits since its start.
type LeaseCounts struct {
	Held     int64 // checks that hold places, including renewals and reservations
	Released int64 // leases that their holders released, not those that ended by themselves
	Revoked  int64 // leases that an operator ended
}

// leaseCounters has the counters of LeaseCounts.
type leaseCounters struct{ holds, released, revoked atomic.Int64 }

// held adds 1 to holds if a decision holds places.
func (c *leaseCounters) held(d *Decision) {
	if d.Lease != "" {
		c.holds.Add(1)
	}
}

// ended adds 1 to counter if a lease that was released or revoked held places.
func (*leaseCounters) ended(counter *atomic.Int64, units int64) {
	if units > 0 {
		counter.Add(1)
	}
}

// LeaseCounts returns the counts since the start of the node.
func (e *Engine) LeaseCounts() LeaseCounts {
	return LeaseCounts{Held: e.leases.holds.Load(), Released: e.leases.released.Load(), Revoked: e.leases.revoked.Load()}
}

// releases returns a charge for each concurrency limit of the rule, for a request with mode
// Release.
func (r *Rule) releases(s *Subject, partition [16]byte) (charges []Charge) {
	rev := s.PlanRevision
	if exceptions := s.Exceptions.of(r); exceptions != nil {
		rev = max(rev, exceptions.rev)
	}
	for k := range r.Limits {
		if l := &r.Limits[k]; l.Algorithm == Concurrency {
			charges = append(charges, Charge{
				Key: Key{Tenant: s.Number, Cell: l.Cell, Partition: partition}, Meter: l.Meter, Rev: max(l.Meter.Rev, rev),
			})
		}
	}
	return charges
}
