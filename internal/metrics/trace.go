package metrics

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/dchest/siphash"

	"github.com/headgate/headgate/enforcement"
)

// A trace is the sketch SketchTrace: the requests of a sample of the keys of one tenant in one minute.
// The sample contains a key with all of its requests, or with none. So the limits of a key in the
// sample can be replayed exactly. A request is kept if one of its keys is in the sample.
//
// The hash of a key decides whether the key is in the sample of a level: its first level bits must be
// 0. So the sample of a level contains those of all higher levels, and a key that is in the sample of
// the highest level of several minutes is complete in all of them. At level 0, all requests are kept.
//
// A trace has no attribute values, paths or methods: of each key, it has a hash that depends on the tenant
// and the policy (see TraceKey).
type trace struct {
	level    uint8
	policies []TracedPolicy
	seen     []int64 // by index in policies: number of counted requests, in the sample or not
	tracedRequests
}

// Bounds of the traces of one node in one minute. A trace that would have more than traceRequests
// requests gets a higher level. If all traces together would have more than nodeTraceRequests, the
// largest get a higher level.
const (
	traceRequests     = 600
	nodeTraceRequests = 1_200
	maxTraceLevel     = 64 // no key is in the sample
)

// A TracedPolicy is a policy whose requests a trace contains.
type TracedPolicy struct {
	Slug    string   `json:"slug"`
	CountBy []string `json:"count_by,omitempty"`
}

// A TracedKey is the key of a traced request for one policy.
type TracedKey struct {
	Policy int    // index in the list of policies
	Hash   uint64 // TraceKey.Hash of the partition; 0 if the policy has no count_by
	Cost   int64
	// Over is set if a limit of the policy did not allow the request. Overridden is set if an
	// override was in force for the key.
	Over, Overridden bool
}

// A tracedRequest is a request with keys keys[first:first+n] of its tracedRequests.
type tracedRequest struct {
	at    int64 // in microseconds since the epoch, by the clock of the limiter if it decided
	first uint32
	n     uint16
	flags uint8
}

// Flags of a tracedRequest. flagOther is set for requests that a replay cannot repeat: those that
// failure modes decided, and those that other requests correct or belong to.
const (
	flagForced = 1 << iota
	flagOther
	allTraceFlags = 1<<iota - 1
)

// tracedRequests are requests and their keys. They have no pointers, and are reused.
type tracedRequests struct {
	requests []tracedRequest
	keys     []TracedKey
}

func (t *tracedRequests) reset() { t.requests, t.keys = t.requests[:0], t.keys[:0] }

// inLevel reports whether a key with this hash is in the sample of a level. Policies without
// count_by have the hash 0 and are not keyed; only level 0 has all their requests.
func inLevel(hash uint64, level uint8) bool { return bits.LeadingZeros64(hash) >= int(level) }

// A TraceKey is the secret with which the keys of one policy of a tenant are hashed. So traces do not show
// that the same value is a key of two tenants or policies, and a client that does not know the ID of the tenant
// cannot choose a key that is in each sample.
type TraceKey [2]uint64

// NewTraceKey returns the TraceKey of a policy of the tenant with this ID. All nodes have the same.
func NewTraceKey(tenantID, policy string) TraceKey {
	sum := sha256.Sum256([]byte("trace\x00" + tenantID + "\x00" + policy))
	return TraceKey{binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16])}
}

// Hash returns the SipHash-2-4 of a partition.
func (k *TraceKey) Hash(partition *[16]byte) uint64 { return siphash.Hash(k[0], k[1], partition[:]) }

// traceHash returns the hash of the key of a limit with a count_by.
func (p *tenantMinute) traceHash(l *enforcement.LimitState, s *enforcement.Subject) uint64 {
	k := &p.traceKeys[l.Rule.Index]
	if *k == (TraceKey{}) {
		*k = NewTraceKey(s.TenantID, l.Rule.Policy)
	}
	return k.Hash(&l.Partition)
}

// A minuteTrace is the trace of a tenantMinute between two drains. Its keys have the indexes of rules
// in the plan of the tenantMinute. level only grows.
type minuteTrace struct {
	level uint8
	tracedRequests
}

// Estimated sizes in bytes of a traced request and of one of its keys.
const (
	tracedRequestSize = 24
	tracedKeySize     = 32
)

// trace adds a decision to the trace of its tenant, if the limits of policies decided it and one of its
// keys is in the sample.
func (c *content) trace(p *tenantMinute, d *enforcement.Decision) {
	t := &p.trace
	switch {
	case len(d.Limits) == 0 || p.plan == nil || d.Subject.NoTrace || d.Idempotency != enforcement.NotRepeated:
		return
	case d.Check.SentLimit != (enforcement.SentLimit{}): // it has a counter of its own
		return
	case t.level > 0 && !p.samples(d):
		return
	}
	if cap(t.requests) == len(t.requests) {
		grown := max(16, len(t.requests)) * (tracedRequestSize + 2*tracedKeySize)
		if !c.fits(grown) {
			t.level = maxTraceLevel
			t.reset()
			return
		}
		c.grow(p, grown)
		t.requests = slices.Grow(t.requests, max(16, len(t.requests)))
		t.keys = slices.Grow(t.keys, max(0, 2*cap(t.requests)-len(t.keys)))
	}
	r := tracedRequest{at: d.At, first: uint32(len(t.keys)), flags: traceFlags(d)}
	if r.at == 0 {
		r.at = millisecondsOf(d.ID) * 1000
	}
	for limits := d.Limits; len(limits) > 0; r.n++ {
		rule := limits[0].Rule
		n := limitsOf(rule, limits)
		k := TracedKey{Policy: rule.Index, Cost: limits[0].Cost, Over: !allFit(limits[:n])}
		if len(rule.CountBy) > 0 {
			k.Hash = p.traceHash(&limits[0], d.Subject)
		}
		for i := range limits[:n] {
			k.Overridden = k.Overridden || limits[i].Override != nil
		}
		t.keys = append(t.keys, k)
		limits = limits[n:]
	}
	t.requests = append(t.requests, r)
	if len(t.requests) > traceRequests {
		t.raise(p.plan)
	}
}

// samples reports whether a key of a decision is in the sample.
func (p *tenantMinute) samples(d *enforcement.Decision) bool {
	if p.trace.level >= maxTraceLevel {
		return false
	}
	last := -1
	for i := range d.Limits {
		l := &d.Limits[i]
		if len(l.Rule.CountBy) == 0 || l.Rule.Index == last {
			continue
		}
		if last = l.Rule.Index; inLevel(p.traceHash(l, d.Subject), p.trace.level) {
			return true
		}
	}
	return false
}

func (t *minuteTrace) raise(plan *enforcement.Plan) {
	for len(t.requests) > traceRequests {
		t.level++
		t.keep(t.level, func(policy int) bool { return len(plan.Rules[policy].CountBy) > 0 })
	}
}

// traceFlags returns the flags of a decision.
func traceFlags(d *enforcement.Decision) (flags uint8) {
	c := d.Check
	if c.Mode == enforcement.Force {
		flags |= flagForced
	}
	if d.Degraded || c.Mode == enforcement.TakeUpTo || c.Reservation != nil || c.Refundable || c.Requests > 1 ||
		d.Reason == enforcement.ReasonBatchRefused {
		flags |= flagOther
	}
	return flags
}

// keep removes the requests of which no key is in the sample of the level. keyed reports whether a
// policy has a count_by.
func (t *tracedRequests) keep(level uint8, keyed func(policy int) bool) {
	requests, keys := t.requests, t.keys
	t.requests, t.keys = requests[:0], keys[:0]
	for _, r := range requests {
		own := keys[r.first : r.first+uint32(r.n)]
		if !slices.ContainsFunc(own, func(k TracedKey) bool { return keyed(k.Policy) && inLevel(k.Hash, level) }) {
			continue
		}
		r.first = uint32(len(t.keys))
		t.keys = append(t.keys, own...) // never past own, because both lists are one array
		t.requests = append(t.requests, r)
	}
}

// traceOf returns the trace of a tenantMinute, with copies of its lists.
func traceOf(p *tenantMinute) *trace {
	t := &trace{level: p.trace.level}
	places := make([]int, len(p.rules))
	for i, row := range p.rules {
		places[i] = -1
		if row == nil || row.Requests == 0 {
			continue
		}
		places[i] = len(t.policies)
		t.policies = append(t.policies, TracedPolicy{Slug: p.plan.Rules[i].Policy, CountBy: p.plan.Rules[i].CountBy})
		t.seen = append(t.seen, row.Requests)
	}
	if slices.ContainsFunc(p.trace.keys, func(k TracedKey) bool { return places[k.Policy] < 0 }) {
		t.level = maxTraceLevel // the row of a policy had no room in memory
		return t
	}
	t.requests, t.keys = slices.Clone(p.trace.requests), slices.Clone(p.trace.keys)
	for i := range t.keys {
		t.keys[i].Policy = places[t.keys[i].Policy]
	}
	return t
}

func (t *trace) keyed(policy int) bool { return len(t.policies[policy].CountBy) > 0 }

// place returns the index of a policy in t, and adds it if needed.
func (t *trace) place(p TracedPolicy) int {
	at := slices.IndexFunc(t.policies, func(q TracedPolicy) bool { return p.Slug == q.Slug && slices.Equal(p.CountBy, q.CountBy) })
	if at < 0 {
		at = len(t.policies)
		t.policies, t.seen = append(t.policies, p), append(t.seen, 0)
	}
	return at
}

// absorb adds the requests of o, and raises the level to that of o and as far as the bound requires.
func (t *trace) absorb(o sketch) {
	other := o.(*trace)
	t.join(other)
	if t.level > 0 {
		t.keep(t.level, t.keyed)
	}
	t.bound(traceRequests)
}

// join adds the requests of other without a bound.
func (t *trace) join(other *trace) {
	t.level = max(t.level, other.level)
	places := make([]int, len(other.policies))
	for i, p := range other.policies {
		places[i] = t.place(p)
		t.seen[places[i]] += other.seen[i]
	}
	shift := uint32(len(t.keys))
	for _, k := range other.keys {
		k.Policy = places[k.Policy]
		t.keys = append(t.keys, k)
	}
	for _, r := range other.requests {
		r.first += shift
		t.requests = append(t.requests, r)
	}
}

func (t *trace) size() int {
	return 64 + tracedRequestSize*cap(t.requests) + tracedKeySize*cap(t.keys) + 64*len(t.policies)
}

// bound raises the level until t has at most most requests.
func (t *trace) bound(most int) {
	for len(t.requests) > most {
		t.level++
		t.keep(t.level, t.keyed)
	}
}

// A traceDoc is the stored form of a trace. Requests is base64 of the following numbers, in the format
// of encoding/binary. For each request, oldest first: the time since the request before, in
// microseconds; the number of keys times 4, plus the flags. For each key: the index of the policy times
// 8, plus 4 if Overridden, 2 if Over, and 1 if a cost follows because it is not 1; the cost; and, if the
// policy has a count_by, 8 bytes of the hash.
type traceDoc struct {
	Level    uint8          `json:"level"`
	Policies []TracedPolicy `json:"policies"`
	Seen     []int64        `json:"seen"`
	Requests string         `json:"requests"`
}

const (
	keyCosts = 1 << iota
	keyOver
	keyOverridden
	keyFlagBits = iota
)

const traceFlagBits = 2

// maxTracedPolicy is above every index of a policy in a trace: those of the versions that were in
// force in one minute.
const maxTracedPolicy = 1 << 20

func (t *trace) encode() []byte {
	order := make([]int, len(t.requests))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return int(min(max(t.requests[a].at-t.requests[b].at, -1), 1))
	})
	out := make([]byte, 0, 24*len(t.requests))
	last := int64(0)
	for _, i := range order {
		r := &t.requests[i]
		out = binary.AppendUvarint(out, uint64(max(0, r.at-last)))
		last = max(last, r.at)
		out = binary.AppendUvarint(out, uint64(r.n)<<traceFlagBits|uint64(r.flags))
		for _, k := range t.keys[r.first : r.first+uint32(r.n)] {
			out = t.appendKey(out, &k)
		}
	}
	return mustJSON(traceDoc{
		Level: t.level, Policies: append([]TracedPolicy{}, t.policies...), Seen: append([]int64{}, t.seen...),
		Requests: base64.StdEncoding.EncodeToString(out),
	})
}

func (t *trace) appendKey(out []byte, k *TracedKey) []byte {
	v := uint64(k.Policy) << keyFlagBits
	if k.Cost != 1 {
		v |= keyCosts
	}
	if k.Over {
		v |= keyOver
	}
	if k.Overridden {
		v |= keyOverridden
	}
	out = binary.AppendUvarint(out, v)
	if k.Cost != 1 {
		out = binary.AppendUvarint(out, uint64(k.Cost))
	}
	if t.keyed(k.Policy) {
		out = binary.BigEndian.AppendUint64(out, k.Hash)
	}
	return out
}

// decodeTrace decodes the stored form of a trace.
func decodeTrace(text []byte) (*trace, error) {
	var doc traceDoc
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, errDocument
	}
	list, err := base64.StdEncoding.DecodeString(doc.Requests)
	if err != nil || doc.Level > maxTraceLevel || len(doc.Seen) != len(doc.Policies) ||
		slices.ContainsFunc(doc.Seen, func(n int64) bool { return !within(n) }) {
		return nil, errDocument
	}
	t := &trace{level: doc.Level, policies: doc.Policies, seen: doc.Seen}
	r := traceReader{left: list}
	at := uint64(0)
	for len(r.left) > 0 && !r.broken {
		at += r.uvarint(math.MaxInt64)
		n := r.uvarint(enforcement.MaxRules<<traceFlagBits | allTraceFlags)
		one := tracedRequest{at: int64(at), first: uint32(len(t.keys)), n: uint16(n >> traceFlagBits), flags: uint8(n & allTraceFlags)}
		for range one.n {
			t.keys = append(t.keys, r.key(t))
			if r.broken {
				break
			}
		}
		t.requests = append(t.requests, one)
	}
	if r.broken || at > math.MaxInt64 || len(t.requests) > traceRequests {
		return nil, fmt.Errorf("its requests are invalid")
	}
	return t, nil
}

// A traceReader reads the numbers of a traceDoc. broken is set after an invalid number.
type traceReader struct {
	left   []byte
	broken bool
}

func (r *traceReader) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(r.left)
	if n <= 0 || v > most {
		r.broken = true
		return 0
	}
	r.left = r.left[n:]
	return v
}

func (r *traceReader) key(t *trace) TracedKey {
	v := r.uvarint(maxTracedPolicy << keyFlagBits)
	k := TracedKey{Policy: int(v >> keyFlagBits), Cost: 1, Over: v&keyOver != 0, Overridden: v&keyOverridden != 0}
	if v&keyCosts != 0 {
		k.Cost = int64(r.uvarint(math.MaxInt64))
	}
	if k.Policy >= len(t.policies) {
		r.broken = true
		return k
	}
	if t.keyed(k.Policy) {
		if len(r.left) < 8 {
			r.broken = true
			return k
		}
		k.Hash = binary.BigEndian.Uint64(r.left)
		r.left = r.left[8:]
	}
	return k
}
