package metrics

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// A node keeps some denials with their explanation. It also keeps one in Subject.SampleAllowed
// allowed requests. Record only copies the decision; the next drain computes the explanation. One
// sampler selects denials, and a second one selects allowed requests. The following describes the
// sampler of denials; the other one works in the same way.
//
// In each second, a sampler keeps the first commonRefusals denials of all tenants. After these, it
// keeps at most fairRefusals more denials in the same second. It selects them only from tenants of
// which it has kept fewer than fairShare denials in this second. Therefore one tenant cannot use up
// the samples of all others.
const (
	commonRefusals = 50
	fairRefusals   = 50
	fairShare      = 5
	// maxHeldRefusals is the maximum number of samples that wait for the next drain.
	maxHeldRefusals = 1_000
	// maxRefusalPath is the maximum length of the path of a kept denial, in bytes.
	maxRefusalPath = 1 << 10
)

// A sampler decides which denials are kept with their explanation. It is safe for concurrent use
// without a lock.
type sampler struct {
	// room packs three numbers into one word: a second, how many of the first commonRefusals
	// denials were kept in this second, and how many of the further fairRefusals.
	room atomic.Uint64
	// Each element of tenants packs a second, and the number of denials that were kept in this
	// second. Element i counts the denials of all tenants whose number modulo 512 is i. These
	// tenants share one fairShare.
	tenants [512]atomic.Uint64
	held    atomic.Int64 // number of samples that wait for the next drain
	notKept atomic.Uint64
}

// pack stores a second and two numbers of at most 8 bits in one word, so that one atomic operation
// replaces all three.
func pack(at, common, fair uint64) uint64       { return at<<16 | common<<8 | fair }
func unpack(v uint64) (at, common, fair uint64) { return v >> 16, v >> 8 & 0xff, v & 0xff }

// admit decides whether to keep a denial of a tenant in the second at, and counts the denial as
// kept or not kept. If an earlier call had a later second, admit uses that second in place of at.
func (s *sampler) admit(at int64, tenant uint32) bool {
	if s.held.Add(1) <= maxHeldRefusals && s.takeRoom(uint64(max(at, 0)), tenant) {
		return true
	}
	s.held.Add(-1)
	s.notKept.Add(1)
	return false
}

func (s *sampler) takeRoom(at uint64, tenant uint32) bool {
	own := &s.tenants[tenant%uint32(len(s.tenants))]
	for {
		before := s.room.Load()
		newest, common, fair := unpack(before)
		if newest < at {
			newest, common, fair = at, 0, 0
		}
		switch {
		case common < commonRefusals:
			common++
		case fair < fairRefusals && kept(own.Load(), newest) < fairShare:
			fair++
		default:
			return false
		}
		if s.room.CompareAndSwap(before, pack(newest, common, fair)) {
			keep(own, newest)
			return true
		}
	}
}

// kept returns the number of denials that were kept in the second at. v is an element of
// sampler.tenants. If v contains another second, the number is 0.
func kept(v, at uint64) uint64 {
	if second, n, _ := unpack(v); second == at {
		return n
	}
	return 0
}

// keep adds one to the number of denials that were kept in the second at. own is the element of
// sampler.tenants that counts for the tenant.
func keep(own *atomic.Uint64, at uint64) {
	for {
		before := own.Load()
		if own.CompareAndSwap(before, pack(at, min(kept(before, at)+1, 0xff), 0)) {
			return
		}
	}
}

// inSample reports whether an allowed decision is in the sample. On average, one in n decisions is.
// inSample uses only random bits of the decision ID, so that it takes little time.
func inSample(d *enforcement.Decision, n uint32) bool {
	return binary.BigEndian.Uint32(d.ID[12:])%n == 0
}

// A sample is a deep copy of a decision. Record must copy the decision, because the
// engine reuses its memory.
type sample struct {
	decision      enforcement.Decision
	policy, limit string // see Refusal
}

func newSample(d *enforcement.Decision, o *outcome) sample {
	s := sample{decision: *d, limit: o.limit}
	switch least := tightest(d); {
	case o.owner != nil:
		s.policy = o.owner.Policy
	case d.Allowed && least != nil:
		s.policy, s.limit = least.Rule.Policy, least.Limit.Name
	}
	check := *d.Check // the copy clones the strings, because they are slices of the request body
	check.Method, check.Path = strings.Clone(check.Method), strings.Clone(check.Path)
	check.Attributes = make([]enforcement.Attribute, len(d.Check.Attributes))
	for i, a := range d.Check.Attributes {
		check.Attributes[i] = enforcement.Attribute{Name: strings.Clone(a.Name), Value: strings.Clone(a.Value)}
	}
	s.decision.Check, s.decision.Limits = &check, slices.Clone(d.Limits)
	return s
}

// tightest returns the limit that has the smallest part of its quota left. It considers only limits
// of policies in force, and returns nil if there is none.
func tightest(d *enforcement.Decision) (least *enforcement.LimitState) {
	part := func(l *enforcement.LimitState) float64 {
		return float64(l.Remaining) / float64(max(1, l.Capacity()))
	}
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Rule.Mode.InForce() && (least == nil || part(l) < part(least)) {
			least = l
		}
	}
	return least
}

// refusal converts a sample to a kept denial and computes the explanation. node is the ID of
// this process.
func (s *sample) refusal(node string) Refusal {
	d := &s.decision
	subject, check := d.Subject, d.Check
	r := Refusal{
		ID: d.ID, At: time.UnixMilli(millisecondsOf(d.ID)).UTC(),
		Tenant: subject.Number, TenantSlug: subject.Tenant,
		Route: d.Route, Allowed: d.Allowed, Reason: d.Reason, Policy: s.policy, Limit: s.limit,
		RetryAfterMS: d.RetryAfter, Degraded: d.Degraded,
		Method: check.Method, Path: cut(check.Path, maxRefusalPath), Attributes: check.Attributes,
		Redacted: subject.Redact, Cost: check.Cost, Node: node,
		Limits: refusalLimits(d.Limits), Policies: refusalPolicies(subject, check, millisecondsOf(d.ID)*1000),
	}
	if subject.Plan != nil {
		r.Plan, r.PlanVersion = subject.Plan.Slug, subject.Plan.Version
	}
	if d.List != nil {
		r.ListEntry = d.List.ID
	}
	if d.Block != nil {
		r.Block = d.Block.ID
	}
	if subject.Redact {
		for i := range r.Attributes {
			r.Attributes[i].Value = ""
		}
	}
	return r
}

func refusalLimits(limits []enforcement.LimitState) []RefusalLimit {
	list := make([]RefusalLimit, len(limits))
	for i := range limits {
		l := &limits[i]
		list[i] = RefusalLimit{
			Policy: l.Rule.Policy, Limit: l.Limit.Name, Mode: l.Rule.Mode, Algorithm: l.Limit.Algorithm.String(),
			Quota: l.Quota(), RolledOver: l.RolledOver, Burst: l.Limit.Burst, WindowMS: l.WindowMS(), Cost: l.Cost,
			Remaining: l.Remaining, ResetAfterMS: l.ResetAfter, RetryAfterMS: l.RetryAfter, Allowed: l.Allowed,
		}
		if l.Override != nil {
			list[i].Override = l.Override.ID
		}
	}
	return list
}

// refusalPolicies explains for each policy of the tenant's plan whether it applied to the check
// at the time at, which is in microseconds since the epoch.
func refusalPolicies(s *enforcement.Subject, c *enforcement.Check, at int64) []RefusalPolicy {
	explained := enforcement.ExplainPolicies(s, c, at)
	list := make([]RefusalPolicy, len(explained))
	for i := range explained {
		x := &explained[i]
		list[i] = RefusalPolicy{
			Policy: x.Rule.Policy, Mode: x.Rule.Mode, Matches: x.Matches, Applies: x.Applies, Why: x.Why,
			Attribute: x.Attribute, ReplacedBy: x.ReplacedBy,
		}
		if x.Override != nil {
			list[i].Override = x.Override.ID
		}
		if x.Block != nil {
			list[i].Block = x.Block.ID
		}
	}
	return list
}

// millisecondsOf returns the time in a UUIDv7, in milliseconds since the epoch.
func millisecondsOf(id [16]byte) int64 { return int64(binary.BigEndian.Uint64(id[:8]) >> 16) }

// cut shortens a text to a maximum of most bytes. A shortened text ends with "…".
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const mark = "…"
	return strings.ToValidUTF8(text[:most-len(mark)], "") + mark
}

// PendingRefusal returns the kept denial with this decision ID, if this process has recorded the
// denial and not drained it yet. The Flusher has the denials that are drained and not written yet
// (see Flusher.PendingRefusal).
func (r *Recorder) PendingRefusal(id [16]byte) (Refusal, bool) {
	for _, s := range r.shards {
		if found, ok := s.sampleOf(id); ok {
			return found.refusal(r.cfg.Node), true
		}
	}
	return Refusal{}, false
}

// sampleOf returns a copy of the sample with this decision ID, if the shard has it. The copy
// has its own attributes, because sample.refusal clears the attribute values if the tenant
// redacts them.
func (s *shard) sampleOf(id [16]byte) (sample, bool) {
	s.take()
	defer s.busy.Store(false)
	for i := range s.content.samples {
		if found := s.content.samples[i]; found.decision.ID == id {
			check := *found.decision.Check
			check.Attributes = slices.Clone(check.Attributes)
			found.decision.Check = &check
			return found, true
		}
	}
	return sample{}, false
}
