package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/logging"
)

// Config of a Recorder; the zero value is usable.
type Config struct {
	// Version and Revision of the program, for headgate_build_info; default "unknown".
	Version, Revision string
	// Node is the name of this process in kept denials; default "".
	Node string
	// Tenants are the slugs of the tenants with their own series, at most maxTenantSeries;
	// default: none.
	Tenants []string
	// Snapshot returns the state of the snapshot; default: no such series.
	Snapshot func() SnapshotState
	// Redis returns the state of the shared limiter; default: no such series.
	Redis func() RedisState
	// Database tells whether the database refuses to write; default: no such series.
	Database func() Refusing
	// Admission returns the load of the queue in front of the limiter; default:
	// no such series.
	Admission func() AdmissionState
	// Connections returns the load of the listener; default: no such series.
	Connections func() ConnectionState
	// AuditLines returns the number of lines of the audit log when its head was
	// published last; default: no such series.
	AuditLines func() int64
	// Leases returns the quota that the node drew ahead; default: no such series.
	Leases func() LeaseState
	// Log returns the counts of log lines that were not written; default: no
	// such series.
	Log func() logging.Status
	// Flush returns the state of the Flusher; default: no such series.
	Flush func() FlushState
	// Now is the clock for everything but decisions; default: time.Now.
	Now func() time.Time
}

// SnapshotState is the state of the control plane's snapshot.
type SnapshotState struct {
	Loaded    bool
	Revision  int64
	Age       time.Duration // since the source last said that it is the newest
	Problems  int           // tenants, plans, keys and exceptions that cannot be used as stored
	FromDisk  bool          // it is that of the disk: the database has been away since the start
	Held      bool          // a newer world waits for an operator
	Listening bool          // notifications are listened for
	Swaps     int64
	Tenants   int
	Keys      int
	Plans     int
}

// RedisState is the state of the shared limiter.
type RedisState struct {
	Reachable   bool // the last call was answered
	BreakerOpen bool // calls are not tried, failure modes answer at once
	// Mismatches are requests that the script and the reference decided differently.
	Mismatches int64
	// Calls are answered script calls; concurrent checks share them.
	Calls int64
	// Recalled are requests denied without a call, because their counters denied a moment before.
	Recalled int64
	// Refusing is set while the shared limiter is reachable and refuses to write.
	Refusing Refusing
	// Losses is how often the shared limiter was found without data that it had.
	Losses int64
	// UsedMemory and MaxMemory in bytes; 0: not known, or no limit.
	UsedMemory, MaxMemory int64
	// Keys are the tenants with most of the keys that they may have, the fullest first.
	Keys []TenantKeys
}

// TenantKeys is about how many live counters a tenant has in the shared limiter, and
// how many it may have. If it is full, new counters of a limit share one.
type TenantKeys struct {
	Tenant    string // slug
	Live, Max int64
	Full      bool
}

// Refusing is since when a store refuses to write, and the class of its answer.
// The zero value: it does not refuse.
type Refusing struct {
	Since time.Time
	Code  string
}

// ConnectionState is the load of the listener.
type ConnectionState struct {
	Open, Limit      int
	Evicted, Refused int64
}

// AdmissionState is the load of the queue in front of the limiter.
type AdmissionState struct {
	InService, Waiting int64 // weights of the checks in service, and of those that wait
	Overloaded         int64 // checks that were turned away since the start
}

// LeaseState describes the quota that this node drew in advance for leased policies.
type LeaseState struct {
	// Drawn, Spent and Returned are units since the start.
	Drawn, Spent, Returned int64
	// Answered is how many checks needed no call of the shared limiter.
	Answered int64
	// Held is how many units the node holds now, of so many Counters.
	Held, Counters int64
}

// FlushState is the state of counts that are not in the database yet.
type FlushState struct {
	WaitingRows     int           // not in the database yet
	Waiting         time.Duration // age of the oldest count among them; 0 without one
	Flushed, Failed int64         // flushes by how they ended
	// WaitingRefusals are the denials among the waiting rows.
	WaitingRefusals int
	// FlushedAt is when a batch was last written (zero: never), FailingSince when writing began to
	// fail (zero: it does not).
	FlushedAt, FailingSince time.Time
	// Failure is the error with which writing fails.
	Failure error
	// Folded are counts that lost their row for want of memory; NotKept are denials that were
	// dropped.
	Folded, NotKept int64
}

// A Recorder counts decisions. It is an enforcement.Recorder and safe for concurrent use.
// NewRecorder makes one.
type Recorder struct {
	cfg      Config
	registry *prometheus.Registry
	shards   []*shard
	next     atomic.Uint32 // shard for the next newcomer
	pool     sync.Pool     // of *shard, so that a processor keeps to its own
	limiter  limiterCounts
	standIn  limiterCounts
	retry    histogram               // of refusals by limits and blocks, in milliseconds
	tenants  map[string]*tenantTally // by slug; fixed
	refusals sampler
	folded   atomic.Uint64 // decisions without rows of their own
	ring     ring
	drains   drainState
}

// An outcome is the part of a decision that is the same for all its rows.
type outcome struct {
	field field
	owner *enforcement.Rule // that the refusal belongs to; nil: none
	limit string            // of the owner, by its name
	key   [16]byte          // partition of the owner
	marks
}

// marks are counted in addition to the field.
type marks struct {
	forced   bool
	shadow   bool // a shadow policy would have refused
	degraded bool
	local    bool
	cost     int64 // that was charged
}

// Record counts a decision once. It ignores peeks. It does not keep d.
func (r *Recorder) Record(d *enforcement.Decision) {
	mode := modeEnforce
	switch d.Check.Mode {
	case enforcement.Enforce:
	case enforcement.Force:
		mode = modeForce
	default:
		return
	}
	o := outcomeOf(d)
	s := r.acquire()
	defer r.release(s)
	s.tally(d, &o, mode)
	at := millisecondsOf(d.ID) / 1000
	s.content.record(d, &o, at)
	if series := r.tenants[d.Subject.Tenant]; series != nil {
		series[outcomeIndex(d)].Add(1)
	}
	if d.Allowed {
		return
	}
	if hasRetry(d.Reason) && d.RetryAfter != enforcement.Never {
		r.retry.observe(d.RetryAfter, uint64(max(d.RetryAfter, 0)))
	}
	if r.refusals.admit(at, d.Subject.Number) {
		s.content.samples = append(s.content.samples, newSample(d, &o))
	}
}

func outcomeOf(d *enforcement.Decision) outcome {
	o := outcome{field: fieldOf(d)}
	o.forced, o.degraded = d.Check.Mode == enforcement.Force, d.Degraded
	o.local = d.Degraded && len(d.Limits) > 0 // of limits that nobody decided nothing is there
	if !d.Allowed {
		o.find(d)
		return o
	}
	if allFit(d.Limits) {
		if len(d.Limits) > 0 {
			o.cost = d.Check.Cost
		}
		return o
	}
	for limits := d.Limits; len(limits) > 0; {
		n := limitsOf(limits[0].Rule, limits)
		own := o.of(limits[0].Rule, limits[:n], d)
		o.shadow, o.cost = o.shadow || own.shadow, max(o.cost, own.cost)
		limits = limits[n:]
	}
	return o
}

// allFit reports whether every limit allows.
func allFit(limits []enforcement.LimitState) bool {
	for i := range limits {
		if !limits[i].Allowed {
			return false
		}
	}
	return true
}

// limitsOf returns how many of the first limits belong to a policy.
func limitsOf(rule *enforcement.Rule, limits []enforcement.LimitState) (n int) {
	for n < len(limits) && limits[n].Rule == rule {
		n++
	}
	return n
}

// find sets the policy that a denial belongs to. For a denial by limits, that is the
// policy of Decision.DenyingLimit.
func (o *outcome) find(d *enforcement.Decision) {
	switch d.Reason {
	case enforcement.ReasonOverLimit, enforcement.ReasonCostExceedsQuota:
		if longest := d.DenyingLimit(); longest != nil {
			o.owner, o.limit, o.key = longest.Rule, longest.Limit.Name, longest.Partition
		}
	case enforcement.ReasonBlocked, enforcement.ReasonMissingAttribute:
		if d.Subject.Plan == nil {
			return
		}
		if rule, known := d.Subject.Plan.Rule(d.Policy); known {
			o.owner = rule
			if d.Reason == enforcement.ReasonBlocked {
				o.key = partitionOf(rule, d)
			}
		}
	}
}

// partitionOf returns the key of a policy that applied. Its limits have the key, unless no counter
// was read.
func partitionOf(rule *enforcement.Rule, d *enforcement.Decision) [16]byte {
	for i := range d.Limits {
		if d.Limits[i].Rule == rule && d.Limits[i].Partition != ([16]byte{}) {
			return d.Limits[i].Partition
		}
	}
	return rule.PartitionOf(d.Check)
}

// record counts a decision at a second in all its rows.
func (c *content) record(d *enforcement.Decision, o *outcome, at int64) {
	p := c.page(minuteOf(at), d.Subject)
	if p == nil {
		c.folded++
		second(&c.together, at).count(o.field, &o.marks)
		return
	}
	second(&p.seconds, at).count(o.field, &o.marks)
	if route := c.onRoute(p, d.Route); route != nil {
		route.count(o.field, &o.marks)
	} else {
		c.folded++
	}
	c.policies(p, d, o)
	if hasRetry(d.Reason) {
		if d.RetryAfter == enforcement.Never {
			p.retry.never++
		} else {
			p.retry.histogram.add(d.RetryAfter, 1)
		}
		if o.owner != nil {
			c.key(p, &p.limited, o.owner, o.key, d)
		}
	}
}

// sampledOf: one of so many decisions is sampled for the remaining quota.
const sampledOf = 16

// policies counts a decision for each policy that applied.
func (c *content) policies(p *page, d *enforcement.Decision, o *outcome) {
	sampled := d.ID[15]%sampledOf == 0 // random bits of the id
	limits := d.Limits
	for rule := range d.Applied {
		n := limitsOf(rule, limits)
		mine := limits[:n]
		limits = limits[n:]
		if d.Allowed && n > 0 && rule.Mode == enforcement.PolicyEnforce && len(rule.CountBy) > 0 {
			c.key(p, &p.allowed, rule, mine[0].Partition, d)
		}
		row := c.ofRule(p, rule)
		if row == nil {
			c.folded++
			continue
		}
		f, own := o.field, o.of(rule, mine, d)
		if o.owner != nil && o.owner != rule {
			f = fieldOtherPolicy
		}
		row.count(f, &own)
		if sampled && n > 0 {
			row.remaining[leastRemaining(mine)]++
			row.sampled = true
		}
	}
}

// of returns the marks of one policy with its limits.
func (o *outcome) of(rule *enforcement.Rule, limits []enforcement.LimitState, d *enforcement.Decision) marks {
	own := o.marks
	own.local = o.local && len(limits) > 0
	own.shadow, own.cost = false, 0
	if !d.Allowed || len(limits) == 0 {
		return own
	}
	if o.forced || rule.Mode == enforcement.PolicyEnforce || allFit(limits) {
		own.cost = d.Check.Cost
		return own
	}
	own.shadow = true
	return own
}

// leastRemaining returns the bucket of the limit with the least left.
func leastRemaining(limits []enforcement.LimitState) int {
	least := remainingBuckets - 1
	for i := range limits {
		l := limits[i].Limit
		capacity := l.Quota
		if l.Algorithm.Bucket() && l.Burst > 0 {
			capacity = l.Burst
		}
		least = min(least, remainingBucket(limits[i].Remaining, capacity))
	}
	return least
}

// A field is one of the fields of Counts that every decision is in once.
type field func(*Counts) *int64

// fieldsByReason has the fields of the reasons that only allow or only deny.
var fieldsByReason = map[enforcement.Reason]field{
	enforcement.ReasonAllowedByList:    func(c *Counts) *int64 { return &c.Listed },
	enforcement.ReasonOverLimit:        func(c *Counts) *int64 { return &c.OverLimit },
	enforcement.ReasonCostExceedsQuota: func(c *Counts) *int64 { return &c.NeverFits },
	enforcement.ReasonBlocked:          func(c *Counts) *int64 { return &c.Blocked },
	enforcement.ReasonDeniedByList:     func(c *Counts) *int64 { return &c.DeniedByList },
	enforcement.ReasonMissingAttribute: func(c *Counts) *int64 { return &c.MissingAttribute },
	enforcement.ReasonTenantSuspended:  func(c *Counts) *int64 { return &c.Suspended },
	enforcement.ReasonBatchRefused:     func(c *Counts) *int64 { return &c.BatchRefused },
}

func fieldOK(c *Counts) *int64          { return &c.OK }
func fieldOtherPolicy(c *Counts) *int64 { return &c.OtherPolicy }

// fieldOf returns the field that counts a decision. A denial with an unknown reason
// counts as unavailable, so that the fields add up to Requests.
func fieldOf(d *enforcement.Decision) field {
	switch {
	case d.Allowed && d.Reason == enforcement.ReasonOK:
		return fieldOK
	case d.Reason == enforcement.ReasonNoPolicy && d.Allowed:
		return func(c *Counts) *int64 { return &c.Unmatched }
	case d.Reason == enforcement.ReasonNoPolicy:
		return func(c *Counts) *int64 { return &c.DeniedUnmatched }
	}
	if f := fieldsByReason[d.Reason]; f != nil {
		return f
	}
	if d.Allowed {
		return fieldOK
	}
	return func(c *Counts) *int64 { return &c.Unavailable }
}

// hasRetry reports whether a denial counts in SketchRetryAfter.
func hasRetry(r enforcement.Reason) bool {
	return r == enforcement.ReasonOverLimit || r == enforcement.ReasonCostExceedsQuota || r == enforcement.ReasonBlocked
}

// count counts one decision.
func (c *Counts) count(f field, m *marks) {
	c.Requests++
	*f(c)++
	c.Cost += m.cost
	if m.forced {
		c.Forced++
	}
	if m.shadow {
		c.ShadowRefused++
	}
	if m.degraded {
		c.Degraded++
		if m.local {
			c.Local++
		}
	}
}
