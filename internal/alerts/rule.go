package alerts

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// A Metric is a figure that a rule compares with its threshold.
type Metric string

// The metrics. Those with a window are of the decisions of the last window.
const (
	DenialRate     Metric = "denial_rate"     // denied by limits, in percent of all requests
	Denials        Metric = "denials"         // number of requests denied by limits
	DegradedShare  Metric = "degraded_share"  // decided without the shared limiter, in percent of all requests
	LimiterLatency Metric = "limiter_latency" // p99 of the limiter on all nodes, in milliseconds
	QuotaUsed      Metric = "quota_used"      // used quota of the fullest known key, in percent
	ExhaustedIn    Metric = "exhausted_in"    // hours until a known key has used up a quota at the present pace
	SilentNodes    Metric = "silent_nodes"    // nodes that stopped reporting less than an hour ago
	NodeAlarms     Metric = "node_alarms"     // alarms on the System page, silent nodes included
	SnapshotsHeld  Metric = "snapshots_held"  // nodes that hold back a suspicious snapshot
)

// A metricTrait says which members a rule with a metric has.
type metricTrait struct {
	metric   Metric
	unit     string  // after a number, such as "%"
	most     float64 // the largest threshold
	window   bool    // has a window
	tenant   need    // of a rule of the operator; a rule of a tenant watches that tenant
	policy   bool    // can have a policy, if it has a tenant
	operator bool    // not for rules of a tenant
	below    bool    // the alert begins when the figure is small
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
	{metric: ExhaustedIn, unit: " h", most: maxHours, tenant: required, policy: true, below: true},
	{metric: SilentNodes, most: 1000, operator: true},
	{metric: NodeAlarms, most: 1000, operator: true},
	{metric: SnapshotsHeld, most: 1000, operator: true},
}

// trait returns the trait of a metric; ok is false for an unknown metric.
func (m Metric) trait() (t metricTrait, ok bool) {
	at := slices.IndexFunc(metricTraits, func(t metricTrait) bool { return t.metric == m })
	if at < 0 {
		return t, false
	}
	return metricTraits[at], true
}

// HasWindow reports whether the figure covers a window.
func (m Metric) HasWindow() bool { t, _ := m.trait(); return t.window }

// IsRate reports whether the figure is a part of the requests of a window, so that a rule
// can have MinRequests.
func (m Metric) IsRate() bool { return m == DenialRate || m == DegradedShare }

// WatchesTenants reports whether a rule of the operator can name a tenant, and whether it
// must. WatchesPolicies reports whether a rule can name a policy.
func (m Metric) WatchesTenants() (can, must bool) {
	t, _ := m.trait()
	return t.tenant != never, t.tenant == required
}

func (m Metric) WatchesPolicies() bool { t, _ := m.trait(); return t.policy }

// Unit returns the unit of the figure, such as "%" or " ms"; "" for numbers.
func (m Metric) Unit() string { t, _ := m.trait(); return t.unit }

// BeginsBelow reports whether an alert begins when the figure is small.
func (m Metric) BeginsBelow() bool { t, _ := m.trait(); return t.below }

// Metrics returns all metrics, for the operator or for a tenant.
func Metrics(operator bool) (list []Metric) {
	for _, t := range metricTraits {
		if operator || !t.operator {
			list = append(list, t.metric)
		}
	}
	return list
}

// maxHours is the figure of ExhaustedIn if no quota is used up within 90 days at the
// present pace.
const maxHours = 90 * 24

// Bounds of a rule.
const (
	MaxName     = 100 // characters
	MaxRules    = 200 // of the operator, and of each tenant
	MaxChannels = 20  // of the operator, and of each tenant; also of one rule
	MinWindow   = time.Minute
	MaxWindow   = 24 * time.Hour
	MaxFor      = 24 * time.Hour
)

// A Rule compares one figure with a threshold.
type Rule struct {
	ID       string // UUIDv7
	TenantID string // the owner; "" for the operator
	Version  int64  // 1 for a new rule, and 1 more for each change
	Document
	CreatedAt, UpdatedAt time.Time
}

// A Document is the part of a rule that people edit. Its JSON is the form of the
// database and of the audit log.
type Document struct {
	Name   string `json:"name"`
	Metric Metric `json:"metric"`
	// Tenant is the slug of the watched tenant. "" watches all tenants together. A
	// tenant's own rule has no Tenant.
	Tenant string `json:"tenant,omitempty"`
	Policy string `json:"policy,omitempty"` // slug; "" for all
	// Window is the length of the time that is measured; the present minute is added to it. 0
	// for metrics without a window.
	Window time.Duration `json:"window_ns,omitempty"`
	// The alert begins when the figure is at least Threshold for the time For. It ends
	// when the figure is below Recovery for the time For. Recovery is at most Threshold.
	// ExhaustedIn is the other way round: the alert begins when the figure is at most
	// Threshold, and ends when it is above Recovery, which is at least Threshold.
	Threshold float64       `json:"threshold"`
	Recovery  float64       `json:"recovery"`
	For       time.Duration `json:"for_ns,omitempty"`
	// MinRequests is the number of requests in the window below which a rate counts as 0.
	MinRequests int64    `json:"min_requests,omitempty"`
	Channels    []string `json:"channels"` // IDs
	Disabled    bool     `json:"disabled,omitempty"`
	// MutedUntil is the time before which no message is sent. The zero time mutes nothing.
	MutedUntil time.Time `json:"muted_until,omitzero"`
}

// validate checks a document. Pointers are those of the REST document.
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

// validateNumbers checks the thresholds and the times.
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
	case operator && t.tenant == never && d.Tenant != "":
		f.Add("/tenant", "%s is not of one tenant; leave it out", d.Metric)
	case operator && t.tenant == required && d.Tenant == "":
		f.Add("/tenant", "is required for %s", d.Metric)
	}
	switch {
	case d.Policy == "":
	case !t.policy:
		f.Add("/policy", "%s is not of one policy; leave it out", d.Metric)
	case operator && d.Tenant == "":
		f.Add("/policy", "needs a tenant")
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
