package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/logging"
)

// Config configures a Recorder. The zero value is usable.
type Config struct {
	// Version and Revision of the program, for the metric headgate_build_info. Default: "unknown".
	Version, Revision string
	// Node is the ID of this process. It is stored with kept denials. Default: "".
	Node string
	// Tenants are the slugs of the tenants that have their own Prometheus series, at most maxTenantSeries. Default:
	// none.
	Tenants []string
	// Snapshot returns the state of the snapshot. If it is nil, there are no metrics about this.
	Snapshot func() SnapshotState
	// Redis returns the state of the shared limiter. If it is nil, there are no metrics about this.
	Redis func() RedisState
	// Database returns the time since which the database has rejected writes, or the zero value if
	// the database accepts writes. If it is nil, there are no metrics about this.
	Database func() Refusing
	// Admission returns the load of the queue in front of the limiter. If it is nil, there are no
	// metrics about this.
	Admission func() AdmissionState
	// Connections returns the load of the HTTP listener. If it is nil, there are no metrics about
	// this.
	Connections func() ConnectionState
	// DeniedRequests returns the number of API requests that Headgate denied because of the rate
	// limits of its own API. If it is nil, there are no metrics about this.
	DeniedRequests func() int64
	// AuditLines returns the number of lines that the audit log had when this node last logged the
	// newest hash of the audit log. If it is nil, there are no metrics about this.
	AuditLines func() int64
	// Leases returns the state of the leased quota: quota that this node charged ahead. If it is nil,
	// there are no metrics about this.
	Leases func() LeaseState
	// OutageJournal returns the state of the outage journal: the units that failure modes admitted
	// and that Redis is not charged with yet. If it is nil, there are no metrics about this.
	OutageJournal func() OutageJournalState
	// Reservations returns the number of outstanding reservations, and how many this node has created
	// and ended. If it is nil, there are no metrics about this.
	Reservations func() enforcement.ReservationCounts
	// ConcurrencyLeases returns how often leases of concurrency limits were held, released and
	// revoked since the start of the node. If it is nil, there are no metrics about this.
	ConcurrencyLeases func() enforcement.LeaseCounts
	// Log returns the number of log lines that could not be written. If it is nil, there are no
	// metrics about this.
	Log func() logging.Status
	// Durable returns the state of the durable counters. If it is nil, there are no metrics about
	// this.
	Durable func() DurableState
	// Flush returns the state of the Flusher that writes the counts of this Recorder. If it is nil,
	// there are no metrics about this.
	Flush func() FlushState
	// Now returns the current time. Record does not call it, because the ID of a decision contains
	// the time of the decision. Default: time.Now.
	Now func() time.Time
}

// SnapshotState describes the snapshot from which this node decides checks.
type SnapshotState struct {
	Loaded    bool
	Revision  int64
	Age       time.Duration // time since the database last confirmed that the node has the newest snapshot
	Problems  int           // number of tenants, plans, keys and exceptions in the database that are invalid
	FromDisk  bool          // the snapshot was read from the disk, and the database has been unavailable since the start of the node
	Held      bool          // the database has a newer state, and this state takes effect only after an operator confirms it
	Listening bool          // the node receives notifications of changes; if not, it only polls
	Swaps     int64
	Tenants   int
	Planless  int // tenants without a plan
	Keys      int
	Plans     int
}

// RedisState describes the limiter that all nodes share, and its memory.
type RedisState struct {
	Reachable   bool // the last call of Redis succeeded
	BreakerOpen bool // the node does not call Redis for a while, because earlier calls failed; failure modes decide immediately
	// Mismatches is the number of requests for which the script and the Go code made different
	// decisions.
	Mismatches int64
	// Calls is the number of successful script calls. Concurrent checks may share one call.
	Calls int64
	// Recalled is the number of requests that this node denied without a call of Redis, because
	// a recent call had denied a request for the same counter.
	Recalled int64
	// Refusing has a nonzero Since while the shared limiter rejects writes although it is
	// reachable.
	Refusing Refusing
	// Losses is the number of times that this node detected that the shared limiter had lost its
	// data, for example after a restart.
	Losses int64
	// UsedMemory and MaxMemory are numbers of bytes. UsedMemory is 0 if it is unknown. MaxMemory is
	// 0 if it is unknown or unlimited.
	UsedMemory, MaxMemory int64
	// Keys lists the tenants whose number of keys is closest to their maximum. The tenant that is
	// closest comes first.
	Keys []TenantKeys
}

// DurableState describes the durable counters of a node, and those of their states that are not in
// the database yet.
type DurableState struct {
	// Waiting is the number of states that are not in the database yet. WaitingFor is the time
	// since the oldest of these changes.
	Waiting    int
	WaitingFor time.Duration
	// Written is the number of states that were written to the database since the start of the
	// node. NotKept is the number of changes that were dropped because too many states waited.
	Written, NotKept int64
	// Restoring is set while the limiter has lost its counters and they are not restored yet.
	// Restored is the number of restorations since the start of the node.
	Restoring bool
	Restored  int64
}

// TenantKeys compares two numbers: the estimated number of live counters that a tenant has in the
// shared limiter (Live), and the maximum (Max). Full is set when the maximum is reached. All new
// partitions of a limit then share one counter.
type TenantKeys struct {
	Tenant    string // slug
	Live, Max int64
	Full      bool
}

// Refusing says since when a store has rejected writes, and which class its error has. The zero
// value means that the store accepts writes.
type Refusing struct {
	Since time.Time
	Code  string
}

// ConnectionState is the load of the HTTP listener.
type ConnectionState struct {
	Open, Limit      int
	Evicted, Refused int64
}

// AdmissionState is the load of the queue in front of the limiter.
type AdmissionState struct {
	// InService is the total weight of the checks that the limiter is deciding. Waiting is the
	// total weight of the checks in the queue.
	InService, Waiting int64
	Overloaded         int64 // number of checks rejected since the start of the node because the queue was full
}

// OutageJournalState counts the units that failure modes admitted while Redis was unavailable. Keys
// is the number of counters for which such units wait to be charged. Charged is the number of units
// that were charged later. Dropped is the number of units that will never be charged.
type OutageJournalState struct {
	Keys             int
	Charged, Dropped int64
}

// LeaseState describes the leased quota of this node: quota that the node charged ahead. The node
// can allow requests from it without a call of Redis.
type LeaseState struct {
	// Drawn, Spent and Returned are numbers of units since the start of the process: how many were
	// leased, used for allowed requests, and given back.
	Drawn, Spent, Returned int64
	// Answered is the number of checks that this node decided from leased quota, without a call of
	// Redis.
	Answered int64
	// Held is the number of leased units that are not spent yet. Counters is the number of counters
	// to which these units belong.
	Held, Counters int64
}

// FlushState describes the rows that are not in the database yet, and the recent flushes.
type FlushState struct {
	WaitingRows     int           // number of rows that are not in the database yet
	Waiting         time.Duration // age of the oldest count that is not in the database yet; 0 if there is none
	Flushed, Failed int64         // numbers of successful and failed flushes since the start
	// WaitingRefusals is the number of kept denials that are not in the database yet.
	WaitingRefusals int
	// FlushedAt is the time of the last successful write; zero if there was none. FailingSince
	// is the time of the first failure after that write; zero if no write has failed since.
	FlushedAt, FailingSince time.Time
	// Failure is the error of the last write; nil if it succeeded.
	Failure error
	// Folded is the number of rows that were combined with other rows, or dropped, to save memory.
	// NotKept is the number of sampled denials that were dropped, and AllowedNotKept is the number
	// of sampled allowed requests that were dropped. All three numbers count since the start.
	Folded, NotKept, AllowedNotKept int64
}

// A Recorder counts decisions in memory. It implements enforcement.Recorder and is safe for concurrent use.
// NewRecorder creates one.
type Recorder struct {
	cfg      Config
	registry *prometheus.Registry
	shards   []*shard
	next     atomic.Uint32 // index of the shard that the next new element of pool will contain
	pool     sync.Pool     // elements are *shard; a sync.Pool lets each processor keep using the same shard
	limiter  limiterCounts
	standIn  limiterCounts
	retry    histogram               // retry times of denials by limits and blocks, in milliseconds
	tenants  map[string]*tenantTally // by slug; no tenants are added or removed after the start
	refusals sampler
	allowed  sampler       // sampler of the allowed requests that tenants record
	folded   atomic.Uint64 // number of decisions that had no room in the rows of their tenant, route or policy
	ring     ring
	drains   drainState
}

// An outcome has properties of a decision that every row of counts needs which counts the decision.
// Record computes it once for all these rows.
type outcome struct {
	field field
	owner *enforcement.Rule // the policy that denied; nil if no policy denied
	limit string            // name of the owner's limit that denied; "" if no limit denied
	key   [16]byte          // partition of the counter of owner's limit for this check
	marks
}

// marks are properties of a decision, such as degraded. Each mark is counted in a field of its own,
// in addition to the field for the reason of the decision.
type marks struct {
	forced   bool
	shadow   bool // the request was over a limit of a shadow policy
	degrade  bool // the request was over a limit of a policy in mode degrade
	delay    bool // the request was over a limit of a policy in mode delay
	degraded bool
	local    bool
	cost     int64 // cost that was charged
	requests int64 // number of requests that the decision allowed; 1 if it denied
}

// Record counts a decision. It ignores decisions of checks in mode peek. It keeps no reference
// to d.
func (r *Recorder) Record(d *enforcement.Decision) {
	mode := modeEnforce
	switch d.Check.Mode {
	case enforcement.Enforce, enforcement.TakeUpTo:
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
		series.decisions[outcomeIndex(d)].Add(uint64(o.requests))
		if d.Reason == enforcement.ReasonNoPolicy {
			series.unmatched.Add(1)
		}
	}
	if d.Allowed {
		if n := d.Subject.SampleAllowed; n != 0 && inSample(d, n) && r.allowed.admit(at, d.Subject.Number) {
			s.content.samples = append(s.content.samples, newSample(d, &o))
		}
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
	o.requests = 1
	if d.Allowed {
		o.requests = max(d.Check.Requests, 1)
	}
	o.forced, o.degraded = d.Check.Mode == enforcement.Force, d.Degraded
	o.local = d.Degraded && len(d.Limits) > 0 // a degraded decision without limits was made without a limiter
	if !d.Allowed {
		o.find(d)
		return o
	}
	if allFit(d.Limits) {
		if len(d.Limits) > 0 {
			o.cost = largestCost(d.Limits)
		}
		return o
	}
	for limits := d.Limits; len(limits) > 0; {
		n := limitsOf(limits[0].Rule, limits)
		own := o.of(limits[0].Rule, limits[:n], d)
		o.shadow, o.degrade, o.delay = o.shadow || own.shadow, o.degrade || own.degrade, o.delay || own.delay
		o.cost = max(o.cost, own.cost)
		limits = limits[n:]
	}
	return o
}

// largestCost returns the largest cost in limits. One decision can have different costs, because
// each policy computes its own cost.
func largestCost(limits []enforcement.LimitState) (largest int64) {
	for i := range limits {
		largest = max(largest, limits[i].Cost)
	}
	return largest
}

// allFit reports whether every limit allows the request.
func allFit(limits []enforcement.LimitState) bool {
	for i := range limits {
		if !limits[i].Allowed {
			return false
		}
	}
	return true
}

// limitsOf returns how many elements at the start of limits belong to the policy rule. Elements of
// one policy are adjacent.
func limitsOf(rule *enforcement.Rule, limits []enforcement.LimitState) (n int) {
	for n < len(limits) && limits[n].Rule == rule {
		n++
	}
	return n
}

// find sets owner, limit and key to the policy, the limit and the partition that caused a denial.
// If several limits denied the request, find uses the limit that Decision.DenyingLimit returns.
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

// partitionOf returns the partition that a decision has for the policy rule. It reads the partition
// from the limits in the decision. If the limiter was not called, the decision has no partition,
// and partitionOf computes the partition from the check.
func partitionOf(rule *enforcement.Rule, d *enforcement.Decision) [16]byte {
	for i := range d.Limits {
		if d.Limits[i].Rule == rule && d.Limits[i].Partition != ([16]byte{}) {
			return d.Limits[i].Partition
		}
	}
	return rule.PartitionOf(d.Check)
}

// record adds a decision of the second at to all rows that count it: the rows of the tenant, the
// route and the policies. If there is no room for the tenant, record adds the decision only to
// c.together, the sum over such tenants.
func (c *content) record(d *enforcement.Decision, o *outcome, at int64) {
	p := c.minute(minuteOf(at), d.Subject)
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
	c.trace(p, d)
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

// sampledOf says how many decisions are sampled for the remaining quota: one in sampledOf.
const sampledOf = 16

// policies adds a decision to the row of each policy that applied. p contains these rows.
func (c *content) policies(p *tenantMinute, d *enforcement.Decision, o *outcome) {
	sampled := d.ID[15]%sampledOf == 0 // the last byte of the ID is random
	limits := d.Limits
	for rule := range d.Applied {
		n := limitsOf(rule, limits)
		mine := limits[:n]
		limits = limits[n:]
		if d.Allowed && n > 0 && rule.Mode.InForce() && len(rule.CountBy) > 0 {
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

// of returns the marks of a decision for the row of the policy rule. The marks cost, shadow,
// degrade and delay apply only to this policy, unlike those in o.marks. limits are the limits of
// this policy in the decision.
func (o *outcome) of(rule *enforcement.Rule, limits []enforcement.LimitState, d *enforcement.Decision) marks {
	own := o.marks
	own.local = o.local && len(limits) > 0
	own.shadow, own.degrade, own.delay, own.cost = false, false, false, 0
	if !d.Allowed || len(limits) == 0 {
		return own
	}
	if o.forced || rule.Mode.Denies() || allFit(limits) {
		own.cost = limits[0].Cost // all limits of a policy have the same cost
		return own
	}
	own.degrade, own.delay = rule.Mode == enforcement.PolicyDegrade, rule.Mode == enforcement.PolicyDelay
	own.shadow = !rule.Mode.Soft()
	return own
}

// leastRemaining returns the bucket of the remaining quota. It uses the limit that has the smallest
// part of its quota left.
func leastRemaining(limits []enforcement.LimitState) int {
	least := remainingBuckets - 1
	for i := range limits {
		least = min(least, remainingBucket(limits[i].Remaining, limits[i].Capacity()))
	}
	return least
}

// A field returns a pointer to the field of Counts that counts decisions with a certain reason.
type field func(*Counts) *int64

// fieldsByReason maps a reason to its field. It contains the reasons that occur either only in
// allowed decisions or only in denials. fieldOf handles the other reasons, ok and no_policy.
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

// fieldOf returns the field in which a decision is counted. A denial with an unknown reason is
// counted as Unavailable, so that the fields always add up to Requests.
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

// hasRetry reports whether SketchRetryAfter counts the retry times of denials with this reason.
func hasRetry(r enforcement.Reason) bool {
	return r == enforcement.ReasonOverLimit || r == enforcement.ReasonCostExceedsQuota || r == enforcement.ReasonBlocked
}

// count adds one decision to Requests, to the field f, and to the fields for its marks.
func (c *Counts) count(f field, m *marks) {
	c.Requests += m.requests
	*f(c) += m.requests
	c.Cost += m.cost
	if m.forced {
		c.Forced += m.requests
	}
	if m.shadow || m.degrade || m.delay {
		c.ShadowRefused += m.requests
	}
	if m.degraded {
		c.Degraded += m.requests
		if m.local {
			c.Local += m.requests
		}
	}
}
