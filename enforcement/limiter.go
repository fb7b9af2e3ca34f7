package enforcement

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
)

// A Limiter charges the costs of requests to counters. Implementations pass
// limitertest.Run.
type Limiter interface {
	// Take decides each request by itself, in order, each in one atomic step: it
	// applies all enforced charges of the request, or none. If it applied them, it
	// then decides each shadow group by itself. Charges of one request on one key
	// are added up before they are compared with what is left.
	//
	// Take stores the outcome of requests[i] in outcomes[i]. Both slices have one
	// length. Take reuses or overwrites the contents of the outcomes.
	//
	// A denial is not an error. A verdict other than Granted and Refused means that
	// the Limiter could not decide the request, and Outcome.Err says why. With
	// Unknown, the request was charged once or not at all; with the other verdicts,
	// it was not charged. Take never sends a request twice, unless the store
	// replied that it did nothing.
	//
	// Take may wait for the store, and for earlier calls. A Limiter in this process
	// does not wait and never fails for lack of time. Take checks ctx before it
	// decides or sends a request. If ctx has ended, the request is Failed. After a request is sent, it is decided even if ctx ends.
	//
	// The store that holds the state supplies the clock.
	Take(ctx context.Context, requests []Request, outcomes []Outcome)
}

// A Mode is the operation of a request.
type Mode uint8

// The modes. A check has Enforce, Peek or Force. The others serve refunds, resets
// and the simulation.
const (
	// Enforce applies all enforced charges or none.
	Enforce Mode = iota
	// Peek returns the outcome of Enforce and changes nothing.
	Peek
	// Force applies every charge in full, whether it fits or not.
	Force
	// Refund returns the costs to the counters.
	Refund
	// Reset deletes the counters.
	Reset
	// TakeUpTo charges min(cost, the least left) on every charge. All charges have
	// one cost. If nothing is left, the verdict is Refused.
	TakeUpTo
)

var modeNames = [...]string{"enforce", "peek", "force", "refund", "reset", "take_up_to"}

// String returns the name on the wire.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// A Request is one decision of a Limiter.
type Request struct {
	// ID is the ID of the decision, a UUIDv7.
	ID   [16]byte
	Mode Mode
	// Home is the hash tag of all counters of the request. One atomic step can access
	// only the counters of one tag.
	Home string
	// IdempotencyKey is reserved for checks with idempotency keys. No Limiter reads it.
	IdempotencyKey string
	// MaxKeys is how many live counters the tenant may have in the shared store. 0: as
	// many as the store's default. Above it, new counters of a limit share one.
	MaxKeys int64
	// Charges are sorted by Group.
	Charges []Charge
}

// A Charge is a cost for one counter.
type Charge struct {
	Key   Key
	Meter *Meter
	// Rev is the control-plane revision at which the numbers came into force for this
	// tenant: Meter.Rev, or a later one if the tenant got the numbers later. It is at
	// least 1.
	Rev  int64
	Cost int64
	// Group is 0 for enforced charges, which are applied all or none. Each shadow policy
	// has another group.
	Group uint16
	// Leased allows a node to charge quota that it drew ahead. Only package lease reads it.
	Leased bool
	// Lease is reserved for limits on concurrency. No Limiter reads it.
	Lease string
}

// A Key identifies one counter. Its size is fixed, whatever the caller sends.
type Key struct {
	// Tenant is the tenant's number.
	Tenant uint32
	// Cell is the number of (policy slug, limit name, algorithm, count_by, anchor). It
	// is allocated once and is the same in all plans.
	Cell uint32
	// Partition is Partition.Sum of the values of count_by.
	Partition [16]byte
}

// A Partition computes Key.Partition from the values of count_by: the first 128
// bits of SHA-256 over each value and its length. Different lists of values have
// different sums, whatever bytes they contain. Without values, the sum is zero: the
// whole tenant.
type Partition struct{ text []byte }

// Add appends a value.
func (p *Partition) Add(value string) {
	p.length(uint32(len(value)) + 1)
	p.text = append(p.text, value...)
}

// addMissing appends a missing value. It differs from every value, including "".
func (p *Partition) addMissing() { p.length(0) }

func (p *Partition) length(n uint32) {
	p.text = append(p.text, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// Sum returns the partition and empties p.
func (p *Partition) Sum() (sum [16]byte) {
	if len(p.text) == 0 {
		return sum
	}
	full := sha256.Sum256(p.text)
	p.text = p.text[:0]
	copy(sum[:], full[:])
	return sum
}

// A Verdict is the result of a request.
type Verdict uint8

// The verdicts. After Failed and the following ones, the request is not decided.
const (
	// Granted: the request was charged, or for Peek, would be.
	Granted Verdict = iota + 1
	// Refused: an enforced charge did not fit. Nothing was charged.
	Refused
	// Failed: the store is unavailable. Nothing was charged.
	Failed
	// Fenced: the request reached the store after its deadline. Nothing was charged.
	Fenced
	// Lost: the store lost its data and is not reconciled. Nothing was charged.
	Lost
	// Unknown: the store did not reply. The request was charged once or not at all.
	Unknown
)

var verdictNames = [...]string{"", "granted", "refused", "failed", "fenced", "lost", "unknown"}

// String returns the name of the verdict, for logs and metrics.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// Decided reports whether the verdict is Granted or Refused.
func (v Verdict) Decided() bool { return v == Granted || v == Refused }

// An Outcome is the result of one Request.
type Outcome struct {
	Verdict Verdict
	// At is the instant of the decision by the store's clock, in microseconds since the
	// epoch.
	At int64
	// Units is the number of units that TakeUpTo charged.
	Units int64
	// Err says why the request was not decided.
	Err error
	// Charges has the results of the charges of the request, in their order.
	Charges []Charged
}

// Charged is the result of one Charge.
type Charged struct {
	// State is the state of the counter, settled at Outcome.At. It includes the charge
	// if that was applied, or for Peek, if it would be.
	State State
	// Cost is the sum of the costs of the charge's group on this key.
	Cost int64
	// Fits reports whether Cost was at most what was left before the charge. For
	// TakeUpTo, it reports whether anything was left. If a charge of group 0 does not
	// fit, the verdict is Refused.
	Fits bool
}

// ErrNotReached is wrapped in Outcome.Err of a request that was not sent.
var ErrNotReached = errors.New("limiter not reached")
