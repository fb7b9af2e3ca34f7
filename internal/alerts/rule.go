package alerts

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// A Metric is the kind of figure that a rule compares with its threshold.
type Metric string

// The metrics. Rates and counts of decisions cover the window of the rule.
const (
	DenialRate     Metric = "denial_rate"     // requests that limits denied, in percent of all requests
	Denials        Metric = "denials"         // number of requests denied by limits
	DegradedShare  Metric = "degraded_share"  // requests that were decided without the shared limiter, in percent of all requests
	LimiterLatency Metric = "limiter_latency" // 99th percentile of the duration of limiter calls on all nodes, in milliseconds
	QuotaUsed      Metric = "quota_used"      // the highest used part of a quota among the known keys, in percent
	NearLimit      Metric = "near_limit"      // the highest warning threshold of a limit that a known key has reached, in percent
	ExhaustedIn    Metric = "exhausted_in"    // hours until the first known key has used up a quota at the current pace
	SilentNodes    Metric = "silent_nodes"    // number of nodes that stopped reporting; see nodes.Keep
	NodeAlarms     Metric = "node_alarms"     // number of alarms on the System page; each silent node counts as an alarm
	SnapshotsHeld  Metric = "snapshots_held"  // number of nodes that keep an old snapshot because the new one looks wrong
)

// A metricTrait describes a metric: its unit, and which fields a rule with this metric has.
type metricTrait struct {
	metric   Metric
	unit     string  // text after the number, such as "%"
	most     float64 // the largest threshold
	window   bool    // set if a rule has a window
	tenant   need    // says whether a rule of the operator can or must name a tenant; a rule of a tenant always watches its owner
	policy   bool    // set if a rule can name a policy
	operator bool    // set if only rules of the operator can have the metric
	below    bool    // set if the alert begins when the figure is at most the threshold
}

type need uint8

const (
	never need = iota
	optional
	required
)

var metricTraits = []metricTrait{
	{metric: DenialRate, unit: "%", most: 100, window: true, tenant: optional, policy: true},
	{metric: Denials, most: 1e12, window: true, tenant: optional, policy: true},
	{metric: DegradedShare, unit: "%", most: 100, window: true, tenant: optional, operator: true},
	{metric: LimiterLatency, unit: " ms", most: 60_000, window: true, operator: true},
	{metric: QuotaUsed, unit: "%", most: 100, tenant: required, policy: true},
	{metric: NearLimit, unit: "%", most: 100, tenant: required, policy: true},
	{metric: ExhaustedIn, unit: " h", most: maxHours, tenant: required, policy: true, below: true},
	{metric: SilentNodes, most: 1000, operator: true},
	{metric: NodeAlarms, most: 1000, operator: true},
	{metric: SnapshotsHeld, most: 1000, operator: true},
}

// trait returns the trait of a metric. ok is false if the metric is unknown.
func (m Metric) trait() (t metricTrait, ok bool) {
	at := slices.IndexFunc(metricTraits, func(t metricTrait) bool { return t.metric == m })
	if at < 0 {
		return t, false
	}
	return metricTraits[at], true
}

// HasWindow reports whether the figure covers a window, so that a rule needs one.
func (m Metric) HasWindow() bool { t, _ := m.trait(); return t.window }

// IsRate reports whether the figure is a percentage of the requests of the window. Only such
// rules can have MinRequests.
func (m Metric) IsRate() bool { return m == DenialRate || m == DegradedShare }

// WatchesTenants says whether a rule of the operator can name a tenant or watch each tenant, and
// whether it must do one of the two. WatchesPolicies says whether a rule can name a policy.
func (m Metric) WatchesTenants() (can, must bool) {
	t, _ := m.trait()
	return t.tenant != never, t.tenant == required
}

func (m Metric) WatchesPolicies() bool { t, _ := m.trait(); return t.policy }

// Unit returns the text after the figure, such as "%" or " ms". It is "" if the figure is a
// plain number.
func (m Metric) Unit() string { t, _ := m.trait(); return t.unit }

// BeginsBelow reports whether an alert begins when the figure is at most the threshold. For
// other metrics, it begins when the figure is at least the threshold.
func (m Metric) BeginsBelow() bool { t, _ := m.trait(); return t.below }

// Metrics returns the metrics of rules of the operator. If operator is false, it returns the
// metrics of rules of a tenant.
func Metrics(operator bool) (list []Metric) {
	for _, t := range metricTraits {
		if operator || !t.operator {
			list = append(list, t.metric)
		}
	}
	return list
}

// maxHours is the value of ExhaustedIn if no quota will be used up within 90 days at the
// current pace.
const maxHours = 90 * 24

// Bounds of a rule.
const (
	MaxName     = 100 // characters
	MaxRules    = 200 // maximum number for the operator, and for each tenant
	MaxChannels = 20  // maximum number for the operator, and for each tenant; also the maximum number of channels of one rule
	MinWindow   = time.Minute
	MaxWindow   = 24 * time.Hour
	MaxFor      = 24 * time.Hour
)

// A Rule compares one figure with a threshold.
type Rule struct {
	ID       string // UUIDv7
	TenantID string // ID of the tenant that owns the rule; "" for the operator
	Version  int64  // 1 for a new rule; each change adds 1
	Document
	CreatedAt, UpdatedAt time.Time
}

// A Document is the part of a rule that people edit. The database and the audit log contain it
// as this JSON.
type Document struct {
	Name   string `json:"name"`
	Metric Metric `json:"metric"`
	// Tenant is the slug of the tenant that a rule of the operator watches. If it is "", the rule
	// watches all tenants: together, or each of them if EachTenant is set. For a rule of a tenant,
	// Tenant is "", and the rule watches its owner.
	Tenant string `json:"tenant,omitempty"`
	// EachTenant says that a rule of the operator measures each tenant separately. Each tenant that
	// reaches the threshold then has its own incident. The document of this incident has the field
	// Tenant set.
	EachTenant bool   `json:"each_tenant,omitempty"`
	Policy     string `json:"policy,omitempty"` // slug; "" for all policies
	// Window is the length of the time that the figure covers, in addition to the current minute.
	// It is 0 for metrics without a window.
	Window time.Duration `json:"window_ns,omitempty"`
	// The alert begins when the figure has been at least Threshold for the duration For. It
	// ends when the figure has been below Recovery for the duration For. Recovery is at most
	// Threshold. For ExhaustedIn, the comparisons are reversed: the alert begins when the
	// figure is at most Threshold, and ends when the figure is above Recovery, which is at
	// least Threshold.
	Threshold float64       `json:"threshold"`
	Recovery  float64       `json:"recovery"`
	For       time.Duration `json:"for_ns,omitempty"`
	// MinRequests is the minimum number of requests in the window. With fewer requests, a rate
	// counts as 0.
	MinRequests int64    `json:"min_requests,omitempty"`
	Channels    []string `json:"channels"` // IDs
	Disabled    bool     `json:"disabled,omitempty"`
	// MutedUntil is the time until which the rule announces no alerts. If it is zero, the rule
	// is not muted.
	MutedUntil time.Time `json:"muted_until,omitzero"`
}

// validate adds the faults of the document to f. The pointers of the faults are those of the
// REST document. operator says whether the operator owns the rule.
func (d *Document) validate(f *problem.Fields, operator bool) {
	f.Line("/name", d.Name, 1, MaxName)
	t, ok := d.Metric.trait()
	if !ok || t.operator && !operator {
		f.Add("/metric", "must be one of %s", joined(Metrics(operator)))
		return
	}
	d.validateScope(f, t, operator)
	switch {
	case !t.window && d.Window != 0:
		f.Add("/window", "%s has no window; leave it out", d.Metric)
	case t.window && (d.Window < MinWindow || d.Window > MaxWindow || d.Window%time.Minute != 0):
		f.Add("/window", "must be whole minutes from 1m to 1d")
	}
	d.validateNumbers(f, t)
	if len(d.Channels) > MaxChannels {
		f.Add("/channels", "must be at most %d", MaxChannels)
	}
	for i, id := range d.Channels {
		if slices.Contains(d.Channels[:i], id) {
			f.Add(fmt.Sprintf("/channels/%d", i), "is there twice")
		}
	}
}

// validateNumbers adds the faults of the thresholds and the durations to f.
func (d *Document) validateNumbers(f *problem.Fields, t metricTrait) {
	if !(d.Threshold > 0 && d.Threshold <= t.most) {
		f.Add("/threshold", "must be above 0 and at most %v", t.most)
	}
	switch {
	case t.below && !(d.Recovery >= d.Threshold && d.Recovery <= t.most):
		f.Add("/recovery", "must be from the threshold to %v", t.most)
	case !t.below && !(d.Recovery >= 0 && d.Recovery <= d.Threshold):
		f.Add("/recovery", "must be from 0 to the threshold")
	}
	if d.For < 0 || d.For > MaxFor {
		f.Add("/for", "must be from 0s to 1d")
	}
	if d.MinRequests < 0 || d.MinRequests > 1e12 {
		f.Add("/min_requests", "must be from 0 to %d", int64(1e12))
	}
}

func (d *Document) validateScope(f *problem.Fields, t metricTrait, operator bool) {
	switch {
	case !operator && d.Tenant != "":
		f.Add("/tenant", "must be left out: the rule watches its own tenant")
	case !operator && d.EachTenant:
		f.Add("/each_tenant", "must be left out: the rule watches its own tenant")
	case t.tenant == never && d.Tenant != "":
		f.Add("/tenant", "%s is not of one tenant; leave it out", d.Metric)
	case t.tenant == never && d.EachTenant:
		f.Add("/each_tenant", "%s is not of one tenant; leave it out", d.Metric)
	case d.EachTenant && d.Tenant != "":
		f.Add("/tenant", "must be left out: the rule watches each tenant")
	case operator && t.tenant == required && d.Tenant == "" && !d.EachTenant:
		f.Add("/tenant", "is required for %s, unless the rule watches each tenant", d.Metric)
	}
	switch {
	case d.Policy == "":
	case !t.policy:
		f.Add("/policy", "%s is not of one policy; leave it out", d.Metric)
	default:
		f.Slug("/policy", d.Policy)
	}
	if d.Tenant != "" {
		f.Slug("/tenant", d.Tenant)
	}
}

func joined(list []Metric) string {
	words := make([]string, len(list))
	for i, m := range list {
		words[i] = string(m)
	}
	return strings.Join(words, ", ")
}
