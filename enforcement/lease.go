package enforcement

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// Bounds of the lease of a check.
const (
	MaxLeaseID  = 128 // bytes
	MaxLeaseTTL = MaxWindow
)

// SetLease sets the ID and the time to live of the check's lease. An empty ID stands for the ID
// of the decision. A ttl of 0 stands for the window of each limit. faultOfID and faultOfTTL are
// error messages, or "".
func (c *Check) SetLease(id string, ttl time.Duration) (faultOfID, faultOfTTL string) {
	if len(id) > MaxLeaseID {
		faultOfID = fmt.Sprintf("must be 1 to %d bytes", MaxLeaseID)
	}
	if ttl < 0 || ttl > MaxLeaseTTL {
		faultOfTTL = fmt.Sprintf("must be 1 to %d milliseconds", MaxLeaseTTL.Milliseconds())
	}
	c.Lease, c.LeaseTTL = id, ttl
	return faultOfID, faultOfTTL
}

// lease returns the lease of a request for the check. decision is the ID of the decision.
func (c *Check) lease(decision [16]byte) Lease {
	l := Lease{ID: decision, TTL: c.LeaseTTL.Microseconds()}
	if c.Lease != "" {
		l.ID = LeaseID(c.Lease)
	}
	return l
}

// LeaseID converts the ID of a lease that a caller wrote to Lease.ID. A UUID in lower case
// becomes its 16 bytes. Therefore the ID of a decision names the lease of that decision. Any
// other text becomes a part of its SHA-256 hash.
func LeaseID(text string) (id [16]byte) {
	if parsed, ok := parseUUID(text); ok {
		return parsed
	}
	sum := sha256.Sum256([]byte(text))
	copy(id[:], sum[:])
	return id
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

// Release ends the lease of a check on the counters of all concurrency limits of the
// policies that match the check, whatever their mode, in one call of the limiter. units is
// the number of places that the lease held on all counters together. It is 0 if the lease
// does not exist, for example because it has ended. Release records no decision.
//
// If the limiter of this node decided checks while the shared limiter was unavailable, the
// lease is released there too. Release returns an error if the shared limiter does not
// answer and this node has no such lease.
func (e *Engine) Release(ctx context.Context, s *Subject, c *Check) (units int64, err error) {
	now := e.now().UnixMicro()
	request := Request{ID: e.newIDAt(now), Mode: Release, Home: s.Home, MaxKeys: s.MaxKeys}
	request.Lease = c.lease(request.ID)
	local := request
	if s.Plan != nil {
		w := e.newCall(0)
		for _, i := range s.Plan.match(c, w.matching[:0]) {
			r := s.Plan.Rules[i]
			request.Charges = append(request.Charges, r.releases(s, r.partition(c, &w.partition))...)
		}
		e.release(w)
	}
	if len(request.Charges) == 0 {
		return 0, nil
	}
	outcomes := make([]Outcome, 1)
	takeFrom(ctx, e.limiter, []Request{request}, outcomes)
	undecided := !outcomes[0].Verdict.Decided()
	if undecided {
		err = outcomes[0].undecidedError("release a lease of tenant " + s.Tenant)
	} else if units = outcomes[0].Units; units > 0 {
		return units, nil
	}
	if e.local == nil {
		return 0, err
	}
	local.Charges = request.Charges
	takeFrom(context.WithoutCancel(ctx), e.local, []Request{local}, outcomes)
	if outcomes[0].Verdict.Decided() && outcomes[0].Units > 0 {
		return outcomes[0].Units, nil
	}
	return 0, err
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
