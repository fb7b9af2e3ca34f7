package enforcement

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
)

// A Limiter spends quota. Implementations pass limitertest.Run.
type Limiter interface {
	// Take decides each request on its own and in order, each in one atomic
	// step: all enforced charges are applied, or none; then, if they were, each
	// shadow group by itself. It fills outcomes[i] for requests[i]; the slices
	// have one length, and what the outcomes held is reused or overwritten.
	// Charges of one request on one key add up before they are compared.
	//
	// A refusal is not an error: Outcome.Verdict tells. A verdict other than
	// Granted and Refused means that the Limiter could not decide that request;
	// Outcome.Err says why, and it has then been charged at most once (Unknown)
	// or not at all (the others). Take never sends one request twice, except
	// after an explicit answer that nothing was done.
	//
	// Take may wait for the store that holds the state, and for its turn to ask
	// it. A Limiter in this process does not wait: it never fails for lack of
	// time. Take reads ctx at most once for each request, before the request is
	// decided or sent. A request of a canceled context is then Failed. Once sent,
	// a request is decided whatever becomes of ctx.
	//
	// The clock is that of the store that holds the state.
	Take(ctx context.Context, requests []Request, outcomes []Outcome)
}

// A Mode is what a request wants of its counters.
type Mode uint8

// The modes. Enforce, Peek and Force are those of a check; the others serve
// refunds, resets and the simulation.
const (
	// Enforce charges everything or nothing.
	Enforce Mode = iota
	// Peek answers as Enforce would and changes nothing.
	Peek
	// Force charges every enforced and shadow charge its full cost, whatever is left.
	Force
	// Refund gives the costs back.
	Refund
	// Reset forgets the counters.
	Reset
	// TakeUpTo charges min(cost, the smallest left) on every charge; its charges
	// have one cost. Granting nothing is a refusal.
	TakeUpTo
)

var modeNames = [...]string{"enforce", "peek", "force", "refund", "reset", "take_up_to"}

// String gives the name on the wire.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// A Request is one decision that a Limiter is asked for.
type Request struct {
	// ID is the decision's id: 16 bytes of a UUIDv7.
	ID   [16]byte
	Mode Mode
	// Home is the hash tag under which all charges of the request lie: the part
	// of the state that one atomic step can reach.
	Home string
	// IdempotencyKey is unused until checks may carry one.
	IdempotencyKey string
	// Charges in ascending order of Group.
	Charges []Charge
}

// A Charge is a cost on one counter.
type Charge struct {
	Key   Key
	Meter *Meter
	// Rev is the revision at which the numbers came into force for this
	// tenant: Meter.Rev, or later when the tenant came to them later. At least 1.
	Rev  int64
	Cost int64
	// Group is 0 for the enforced set, which is charged whole or not at all; each
	// shadow policy has a group of its own above.
	Group uint16
	// Leased: a node may spend quota that it drew ahead. Only enforcement/lease reads it.
	Leased bool
	// Lease is unused until limits may count concurrency.
	Lease string
}

// A Key is the identity of one counter. It is fixed-size, so that it costs the
// same whatever the caller sends.
type Key struct {
	// Tenant is the tenant's number.
	Tenant uint32
	// Cell is the number of (policy slug, limit name, algorithm, count_by,
	// anchor), allocated once and the same in all plans.
	Cell uint32
	// Partition is made by a Partition of the values of count_by.
	Partition [16]byte
}

// A Partition makes Key.Partition from the values of count_by: the first 128
// bits of SHA-256 over each value with its length before it, so that no two
// lists of values share a counter, whatever bytes they hold. The whole tenant
// (no values) is the zero partition.
type Partition struct{ text []byte }

// Add appends a value.
func (p *Partition) Add(value string) {
	p.length(uint32(len(value)) + 1)
	p.text = append(p.text, value...)
}

// AddMissing appends the place of a value that is missing: it differs from
// every value, the empty one too.
func (p *Partition) AddMissing() { p.length(0) }

func (p *Partition) length(n uint32) {
	p.text = append(p.text, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// Sum gives the partition and empties p for the next one.
func (p *Partition) Sum() (sum [16]byte) {
	if len(p.text) == 0 {
		return sum
	}
	full := sha256.Sum256(p.text)
	p.text = p.text[:0]
	copy(sum[:], full[:])
	return sum
}

// A Verdict is how a request ended.
type Verdict uint8

// The verdicts. Above Refused the request was not decided.
const (
	// Granted: charged (or would be, for Peek).
	Granted Verdict = iota + 1
	// Refused: an enforced charge did not fit; nothing was charged.
	Refused
	// Failed: the state could not be reached; nothing was charged.
	Failed
	// Fenced: the request came to the state too late; nothing was charged.
	Fenced
	// Lost: the store lost its data and has not been reconciled; nothing was charged.
	Lost
	// Unknown: sent and not answered; charged once or not at all.
	Unknown
)

var verdictNames = [...]string{"", "granted", "refused", "failed", "fenced", "lost", "unknown"}

// String names the verdict, for logs and metrics.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// Decided reports whether the verdict is the limiter's own.
func (v Verdict) Decided() bool { return v == Granted || v == Refused }

// An Outcome is a Limiter's answer to one Request.
type Outcome struct {
	Verdict Verdict
	// At is the instant of the decision by the clock of whoever holds the
	// state, in microseconds since the epoch.
	At int64
	// Units is what TakeUpTo granted.
	Units int64
	// Err says why the request was not decided.
	Err error
	// Charges has one for each charge of the request, in its order.
	Charges []Charged
}

// Charged is what became of one charge.
type Charged struct {
	// State of the counter, settled at Outcome.At: after the charge if it was
	// made (for Peek: would be), else as it is. With its T it is the receipt
	// that a refund or a settlement names.
	State State
	// Cost is the sum of the costs of this charge's group on this key.
	Cost int64
	// Fits tells whether Cost was within what was left (Force: before it was
	// charged; TakeUpTo: whether anything was left). A request is Refused when a
	// charge of group 0 does not fit.
	Fits bool
}

// ErrNotReached is in Outcome.Err of a request that never left this node.
var ErrNotReached = errors.New("limiter not reached")
