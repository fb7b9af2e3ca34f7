package enforcement

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
)

// A Limiter stores counters and charges the costs of requests to them. All
// implementations pass the tests of limitertest.Run.
type Limiter interface {
	// Take decides requests in order, each in one atomic step. It applies all enforced charges of a request, or none.
	// If it applied them, it then decides each other group of charges separately. If a request has several charges on
	// one key, Take adds their costs before it compares them with what is left.
	//
	// Take stores the outcome of requests[i] in outcomes[i]. Both slices have the same length. Take overwrites the
	// outcomes and may reuse their memory.
	//
	// A denial is not an error. If the verdict is not Granted or Refused, the Limiter could not decide the request, and
	// Outcome.Err is the reason. With the verdict Unknown, the request was charged once or not at all. With every other
	// verdict of this kind, it was not charged. Take sends a request again only if the store replied that it did
	// nothing.
	//
	// Take may wait for the store and for earlier calls. A Limiter in this process does not wait, and never fails
	// because of a timeout. Take checks ctx before it decides or sends a request. If ctx has ended, the verdict is
	// Failed. After a request is sent, it is decided even if ctx ends.
	//
	// Times are by the clock of the store that has the counters.
	Take(ctx context.Context, requests []Request, outcomes []Outcome)
}

// A Mode is the operation that a request performs on its counters.
type Mode uint8

// The modes. A check has Enforce, Peek or Force. The others are for refunds, resets and
// the simulation.
const (
	// Enforce applies all enforced charges if all of them fit. Otherwise it applies none.
	Enforce Mode = iota
	// Peek returns the same outcome as Enforce, but changes nothing.
	Peek
	// Force applies all charges, whether they fit or not.
	Force
	// Refund returns the costs of an earlier charge to the counters.
	Refund
	// Reset deletes the counters.
	Reset
	// TakeUpTo charges as much of the costs as fits. It finds the largest number of units n, at most the largest cost
	// of the group, for which the share of each charge fits on its counter. The share is cost * n / largest cost,
	// rounded up; see ShareOf. The charges of a group have different keys. If n of group 0 is 0, the verdict is
	// Refused. The costs of other groups are first reduced to the part that group 0 took; see Taken.
	TakeUpTo
	// Adjust changes what an earlier request charged, and the record of a reservation; see Reservation. Of each
	// counter, it changes only the window that the earlier request charged. Each charge has a Receipt, and the charges
	// have different keys.
	Adjust
	// Release ends the lease of the request on the counters of concurrency limits. It does not
	// change other counters. It ignores the costs of the charges.
	Release
)

var modeNames = [...]string{"enforce", "peek", "force", "refund", "reset", "take_up_to", "adjust", "release"}

// String returns the name of the mode in the API.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// A Request is an operation on the counters of one tenant that a Limiter decides in one
// step.
type Request struct {
	// ID is the ID of the decision, a UUIDv7.
	ID   [16]byte
	Mode Mode
	// Home is the Redis hash tag of all counters of the request. One atomic step can
	// only access counters with one tag.
	Home string
	// Idempotency is set if a repetition of the request must return the outcome of the first request.
	Idempotency *Idempotency
	// Reservation is set if the request creates, reads or changes a reservation.
	Reservation *Reservation
	// MaxKeys is the largest number of live counters that the tenant may have in the limiter. 0
	// selects the default of the limiter. If the tenant already has as many, all new counters of
	// one limit share one overflow counter.
	MaxKeys int64
	// Lease is the lease that holds the places of all concurrency limits among Charges. Other limits ignore it.
	Lease Lease
	// Charges are the costs that the request adds to counters, sorted by Group.
	Charges []Charge
}

// A Charge is the cost of a request for one counter.
type Charge struct {
	Key   Key
	Meter *Meter
	// Rev is the control-plane revision at which the quota came into force for this
	// tenant. That is Meter.Rev, or a later revision if the tenant was assigned the
	// plan later. It is at least 1.
	Rev  int64
	Cost int64
	// Group is 0 for enforced charges, which are applied together or not at all. Each soft policy and each shadow
	// policy has its own group number for its charges. A limiter does not distinguish soft from shadow policies; see
	// FirstShadowGroup.
	Group uint16
	// Leased is set if a node may serve the charge from quota that it leased. Only the lease package reads it.
	Leased bool
	// Grant is set if the charge is on the counter of a grant; see GrantMeter. Such charges follow the charge of a
	// fixed window in the same group, in the order in which the grants are spent. Their Cost is 0: the limiter charges
	// them with the part of the window's cost that the window does not have left. If several charges of a group are on
	// the same window, the same grants follow each of them. In mode Adjust, Cost and Receipt of such a charge are those
	// of the grant itself.
	Grant bool
	// Receipt is the earlier charge that Adjust changes. Other modes do not read it.
	Receipt *Receipt
}

// A Key identifies one counter. Its size does not depend on the values in the request.
type Key struct {
	// Tenant is the tenant's number in the database.
	Tenant uint32
	// Cell is a number that stands for the combination of policy slug, limit name, algorithm, count_by and anchor. A
	// combination has the same number in all plans.
	Cell uint32
	// Partition identifies the values of count_by; see type Partition.
	Partition [16]byte
}

// SharedLease returns the ID under which a lease of the key is stored on an overflow counter, which several keys
// share. On this counter, leases of different keys have different IDs, even if callers gave them the same ID.
func (k *Key) SharedLease(id [16]byte) [16]byte {
	for i := range id {
		id[i] ^= k.Partition[i]
	}
	return id
}

// A Partition computes Key.Partition. The result is the first 128 bits of SHA-256 over the count_by values, each
// preceded by its length. Because of the lengths, different lists of values have different results, whatever bytes
// they contain. Without values the result is zero, which stands for the whole tenant.
type Partition struct{ text []byte }

// Add appends the next value of count_by.
func (p *Partition) Add(value string) {
	p.length(uint32(len(value)) + 1)
	p.text = append(p.text, value...)
}

// addMissing appends a marker for a missing value. The marker differs from every value,
// including "".
func (p *Partition) addMissing() { p.length(0) }

func (p *Partition) length(n uint32) {
	p.text = append(p.text, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// Sum returns Key.Partition for the values that were added, and resets p.
func (p *Partition) Sum() (sum [16]byte) {
	if len(p.text) == 0 {
		return sum
	}
	full := sha256.Sum256(p.text)
	p.text = p.text[:0]
	copy(sum[:], full[:])
	return sum
}

// A Verdict is the kind of result of a request.
type Verdict uint8

// The verdicts. Granted, Refused, Reused, Stale and Full mean that the request was decided. The others mean that it
// was not decided.
const (
	// Granted means that the request was charged. For Peek, it means that the request would be charged.
	Granted Verdict = iota + 1
	// Refused means that an enforced charge did not fit. Nothing was charged.
	Refused
	// Failed means that the store is unavailable. Nothing was charged.
	Failed
	// Fenced means that the request reached the store after its deadline. Nothing was
	// charged.
	Fenced
	// Lost means that the store lost its data and is not restored yet. Nothing was
	// charged.
	Lost
	// Unknown means that the store did not reply. The request was charged once or not
	// at all.
	Unknown
	// Reused means that another request was already sent with Idempotency.Key. Nothing was charged.
	Reused
	// Stale means that there is no record for Request.Reservation which the request can read or change. Nothing was
	// charged.
	Stale
	// Full means that the tenant already has its maximum number of outstanding reservations. Nothing was charged.
	Full
)

var verdictNames = [...]string{"", "granted", "refused", "failed", "fenced", "lost", "unknown", "reused", "stale", "full"}

// String returns the name of the verdict, for logs and metrics.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// Decided reports whether the request was decided. Otherwise Outcome.Err says why not.
func (v Verdict) Decided() bool {
	switch v {
	case Granted, Refused, Reused, Stale, Full:
		return true
	}
	return false
}

// hasCharges reports whether an outcome with this verdict has the result of each charge.
func (v Verdict) hasCharges() bool { return v == Granted || v == Refused }

// An Outcome is the result of one Request.
type Outcome struct {
	Verdict Verdict
	// At is the time of the decision by the store's clock, in microseconds since the
	// epoch.
	At int64
	// Units is the number of units n that a request with mode TakeUpTo charged in group 0. With mode Release, it is the
	// number of places that the lease held on all counters together.
	Units int64
	// Err is the reason why the request was not decided. It is nil if Verdict.Decided is true.
	Err error
	// Replayed is set if the request repeats an earlier one and was not charged. First is then the ID of the first
	// request. The rest of the outcome is a copy of the first outcome, with two exceptions: State.Log and State.Holders
	// of its charges are empty, and Charges is empty if Idempotency.Charges differs from that of the first request.
	Replayed bool
	First    [16]byte
	// Record is the record of Request.Reservation, if the request created, repeated or read it. Otherwise it is nil.
	Record *Record
	// Charges has one result for each charge of the request, in the same order.
	Charges []Charged
}

// made reports whether charge i of a granted request was applied. The caller handles mode Force, in which all
// charges are applied. Charges of a group other than 0 are applied together or not at all.
func (o *Outcome) made(charges []Charge, i int) bool {
	for k := range charges {
		if charges[k].Group == charges[i].Group && !o.Charges[k].Fits {
			return false
		}
	}
	return true
}

// Charged is the result of one Charge of a request.
type Charged struct {
	// State is the state of the counter, as of Outcome.At (see Meter.Settle). It includes the charge if the charge was
	// applied. In mode Peek, it includes the charge if the charge would be applied.
	State State
	// Cost is the sum of the costs that the charge's group has on this counter. It includes the part that grants were
	// charged. In mode Adjust, it is the number of units that the charge now has in the window of its Receipt. For a
	// charge on the counter of a grant, it is the number of units that the charge took from the grant.
	Cost int64
	// Fits reports whether Cost was at most the number of units left before the charge, including those of grants. If a
	// charge of group 0 does not fit, the verdict is Refused. In mode TakeUpTo, Fits reports whether a share of one
	// unit fits. Fits is always true in mode Adjust, and for a charge on the counter of a grant.
	Fits bool
	// Shared is set if an overflow counter replaced the counter; see Request.MaxKeys.
	Shared bool
}

// ErrNotReached is the error of a request that was not sent to the store. Outcome.Err
// wraps it.
var ErrNotReached = errors.New("limiter not reached")
