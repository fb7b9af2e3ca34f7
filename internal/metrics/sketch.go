package metrics

import (
	"errors"
	"fmt"
	"slices"
)

// The names of sketches. Sketches are stored as JSON. topkeys_json.go encodes, decodes and merges
// sketches of top keys. histogram.go does the same for histograms.
const (
	SketchLimitedKeys    = "limited_keys"    // top keys by denials; only denials by limits of the policy to which the key belongs
	SketchAllowedKeys    = "allowed_keys"    // top keys by allowed decisions; only keys of enforced policies with a count_by
	SketchLimitedTenants = "limited_tenants" // only for tenant 0: top tenants by denials by limits
	SketchBusyTenants    = "busy_tenants"    // only for tenant 0: top tenants by decisions
	SketchRetryAfter     = "retry_after"     // histogram of retry_after_ms of denials by limits and blocks
	// For each policy: histogram of remaining divided by quota at the time of the decision,
	// from a sample of the decisions.
	SketchRemaining = "remaining"
	// Only for tenant 0: two histograms of the durations of limiter calls in µs. One is for the
	// shared limiter, the other for the node's own limiter.
	SketchLatency = "latency"
	SketchTrace   = "trace" // requests of a sample of the keys, from which a replay is computed; only for minutes
)

// A SketchKey identifies a stored sketch.
type SketchKey struct {
	At     int64 // start of the step, in seconds since the epoch
	Tenant uint32
	Name   string
	// Node is the ID of the node that wrote the row. It is "" if a roll-up made the row from the
	// rows of all nodes.
	Node string
}

// A SketchRow is a stored sketch with the key that identifies it.
type SketchRow struct {
	SketchKey
	Doc []byte // JSON
}

// A sketch is a summary that is stored under one of the names Sketch…. The method encode returns
// the stored form; decodeSketch reads it.
type sketch interface {
	// absorb adds the counts of o, which must have the same name. The sketch may keep the memory of
	// o, so the caller must not use o after the call.
	absorb(o sketch)
	encode() []byte
	// size returns the estimated memory of the sketch in bytes.
	size() int
}

func (t *topKeys) absorb(o sketch) { t.merge(o.(*topKeys)) }

// retryTimes is the sketch SketchRetryAfter. Its values are in milliseconds.
type retryTimes struct {
	histogram logHistogram
	never     int64 // number of denials for which waiting does not help; they are not in the histogram
}

type retryDoc struct {
	Buckets pairs `json:"buckets"`
	Never   int64 `json:"never,omitempty"`
}

func (r *retryTimes) absorb(o sketch) {
	other := o.(*retryTimes)
	r.histogram.merge(&other.histogram)
	r.never += other.never
}

func (r *retryTimes) encode() []byte { return mustJSON(retryDoc{r.histogram.pairs(), r.never}) }

func decodeRetryTimes(text []byte) (*retryTimes, error) {
	doc, ok := scanRetryTimes(string(text))
	if !ok {
		return nil, errDocument
	}
	if !within(doc.Never) {
		return nil, fmt.Errorf("never %d", doc.Never)
	}
	h, err := doc.Buckets.histogram()
	return &retryTimes{h, doc.Never}, err
}

// latencies is the sketch SketchLatency. Its values are in microseconds. shared has the calls of
// the limiter that all nodes share. On a single node without Redis, shared has the calls of the
// node's only limiter. local has the calls of the node's own limiter, which decides while the
// shared limiter is unavailable.
type latencies struct{ shared, local logHistogram }

type latencyDoc struct {
	Shared pairs `json:"shared"`
	Local  pairs `json:"local"`
}

func (l *latencies) absorb(o sketch) {
	other := o.(*latencies)
	l.shared.merge(&other.shared)
	l.local.merge(&other.local)
}

func (l *latencies) encode() []byte { return mustJSON(latencyDoc{l.shared.pairs(), l.local.pairs()}) }

func decodeLatencies(text []byte) (*latencies, error) {
	doc, ok := scanLatencies(string(text))
	if !ok {
		return nil, errDocument
	}
	shared, err := doc.Shared.histogram()
	if err != nil {
		return nil, err
	}
	local, err := doc.Local.histogram()
	return &latencies{shared, local}, err
}

// remainingBuckets is the number of buckets of the remaining quota. One bucket is for no quota
// left, and one is for each 5% up to 100%.
const remainingBuckets = 21

type remainingCounts = [remainingBuckets]int64

// remainingBucket returns the index of the bucket for a decision that left remaining units of the
// quota.
func remainingBucket(remaining, quota int64) int {
	if remaining <= 0 || quota <= 0 {
		return 0
	}
	if remaining >= quota {
		return remainingBuckets - 1
	}
	const steps = remainingBuckets - 1
	return int((remaining*steps + quota - 1) / quota) // the product does not overflow, because quota is at most 10^12
}

// remainingShares is the sketch SketchRemaining: a histogram for each policy slug.
type remainingShares map[string]*remainingCounts

type remainingDoc struct {
	Policies map[string][]int64 `json:"policies"`
}

func (r remainingShares) add(policy string, counts *remainingCounts) {
	mine := r[policy]
	if mine == nil {
		mine = new(remainingCounts)
		r[policy] = mine
	}
	for i, n := range counts {
		mine[i] += n
	}
}

func (r remainingShares) absorb(o sketch) {
	for policy, counts := range o.(remainingShares) {
		r.add(policy, counts)
	}
}

func (r remainingShares) encode() []byte {
	doc := remainingDoc{Policies: make(map[string][]int64, len(r))}
	for policy, counts := range r {
		doc.Policies[policy] = counts[:]
	}
	return mustJSON(doc)
}

func decodeRemaining(text []byte) (remainingShares, error) {
	doc, ok := scanRemaining(string(text))
	if !ok {
		return nil, errDocument
	}
	r := make(remainingShares, len(doc.Policies))
	for policy, counts := range doc.Policies {
		if len(counts) != remainingBuckets || slices.ContainsFunc(counts, func(n int64) bool { return !within(n) }) {
			return nil, fmt.Errorf("policy %q: %d buckets, or a number out of bounds", policy, len(counts))
		}
		r.add(policy, (*remainingCounts)(counts))
	}
	return r, nil
}

// decodeSketch decodes the stored form of the sketch with the given name. It returns an error for
// any text that the method encode of this release cannot return.
func decodeSketch(name string, doc []byte) (s sketch, err error) {
	switch name {
	case SketchLimitedKeys, SketchAllowedKeys, SketchLimitedTenants, SketchBusyTenants:
		s, err = decodeTopKeys(doc)
	case SketchRetryAfter:
		s, err = decodeRetryTimes(doc)
	case SketchRemaining:
		s, err = decodeRemaining(doc)
	case SketchLatency:
		s, err = decodeLatencies(doc)
	case SketchTrace:
		s, err = decodeTrace(doc)
	default:
		err = errors.New("its name is unknown")
	}
	if err != nil {
		return nil, fmt.Errorf("sketch %q: %w", name, err)
	}
	return s, nil
}

// mergeSketches combines the stored forms of sketches with the same name into one stored form.
// It returns an error if it cannot decode one of them.
func mergeSketches(name string, docs [][]byte) ([]byte, error) {
	var all sketch
	for _, doc := range docs {
		s, err := decodeSketch(name, doc)
		switch {
		case err != nil:
			return nil, err
		case all == nil:
			all = s
		default:
			all.absorb(s)
		}
	}
	if all == nil {
		return nil, fmt.Errorf("sketch %q: nothing to merge", name)
	}
	return all.encode(), nil
}
