package alerts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/usage"
)

// Figures measures the figures of rules.
type Figures struct {
	Analytics *metrics.Analytics
	Nodes     *nodes.Service
	Usage     *usage.Service
	// Tenant returns the number of a tenant by its ID or slug. found is false if the tenant is
	// unknown.
	Tenant func(idOrSlug string) (number uint32, found bool)
	// Tenants returns the slugs of all tenants in ascending order. Default: none; rules then
	// watch no tenant each.
	Tenants func() []string
}

// A measurement contains the data that all rules of one evaluation share. It reads the reports
// of the nodes, and the usage of a tenant, only once.
type measurement struct {
	*Figures
	now     time.Time
	nodes   *nodes.Overview
	usage   map[[2]string]usageRead // by tenant and policy
	windows []Maintenance           // maintenance windows of all owners
	turn    func() []string         // the tenants that this evaluation measures for rules that watch each tenant
}

type usageRead struct {
	usage usage.Usage
	err   error
}

// silent reports whether the rule announces no alerts now, because it is muted or in a
// maintenance window.
func (m *measurement) silent(r *Rule) bool {
	return m.now.Before(r.MutedUntil) || slices.ContainsFunc(m.windows, func(w Maintenance) bool { return w.silences(r, m.now) })
}

// errNoTenant is the error for a tenant that does not exist, or that this node has not loaded
// yet.
var errNoTenant = errors.New("the tenant does not exist")

// measure returns the figure of a rule. detail is a sentence about the figure, or "".
func (m *measurement) measure(ctx context.Context, r *Rule) (value float64, detail string, err error) {
	switch r.Metric {
	case SilentNodes, NodeAlarms, SnapshotsHeld:
		value, err = m.ofNodes(ctx, r.Metric)
		return value, "", err
	case QuotaUsed:
		return m.quotaUsed(ctx, r)
	case NearLimit:
		return m.nearLimit(ctx, r)
	case ExhaustedIn:
		return m.exhaustedIn(ctx, r)
	case LimiterLatency:
		l, err := m.Analytics.Latency(ctx, m.query(r, 0))
		return float64(l.P99) / 1000, "", err
	}
	tenant, err := m.tenant(r)
	if err != nil {
		return 0, "", err
	}
	t, err := m.Analytics.Total(ctx, m.query(r, tenant))
	if err != nil {
		return 0, "", err
	}
	n := &t.Total
	switch r.Metric {
	case Denials:
		return float64(n.Limited()), "", nil
	case DegradedShare:
		return percent(n.Degraded, n.Requests, r.MinRequests), "", nil
	}
	return percent(n.Limited(), n.Requests, r.MinRequests), "", nil
}

func percent(part, all, least int64) float64 {
	if all == 0 || all < least {
		return 0
	}
	return 100 * float64(part) / float64(all)
}

// query returns a query for the newest window of a rule. The query covers the current minute, and
// as many whole minutes before it as the window has. Because of these whole minutes, the figure
// does not drop at the start of a minute.
func (m *measurement) query(r *Rule, tenant uint32) metrics.Query {
	minute := m.now.Truncate(time.Minute)
	return metrics.Query{Tenant: tenant, Policy: r.Policy, From: minute.Add(-r.Window), To: minute.Add(time.Minute)}
}

// tenant returns the number of the tenant that the rule watches, or 0 if the rule watches all
// tenants together.
func (m *measurement) tenant(r *Rule) (uint32, error) {
	name := r.watched()
	if name == "" {
		return 0, nil
	}
	n, found := m.Tenant(name)
	if !found {
		return 0, errNoTenant
	}
	return n, nil
}

// watched returns the ID or the slug of the tenant that the rule watches, or "" if the rule
// watches all tenants together.
func (r *Rule) watched() string {
	if r.TenantID != "" {
		return r.TenantID
	}
	return r.Tenant
}

// verdictCodes maps a metric to the code of the verdicts that it counts. A verdict is a problem of
// a node that package nodes reports.
var verdictCodes = map[Metric]string{SilentNodes: "silent", SnapshotsHeld: "held"}

func (m *measurement) ofNodes(ctx context.Context, metric Metric) (float64, error) {
	if m.nodes == nil {
		o, err := m.Nodes.Overview(ctx)
		if err != nil {
			return 0, err
		}
		m.nodes = &o
	}
	n := 0
	for _, r := range m.nodes.Nodes {
		for _, v := range r.Verdicts {
			if v.Level == nodes.Alarm && (metric == NodeAlarms || v.Code == verdictCodes[metric]) {
				n++
			}
		}
	}
	return float64(n), nil
}

// quotaUsed returns the highest used part of a quota among the known keys and limits of the tenant,
// in percent. detail says when this quota is used up at the current pace.
func (m *measurement) quotaUsed(ctx context.Context, r *Rule) (value float64, detail string, err error) {
	err = m.eachLimit(ctx, r, func(u *usage.Usage, p *usage.PolicyUsage, l *usage.LimitUsage) {
		if l.Capacity <= 0 {
			return
		}
		if v := min(100, 100*float64(l.Used)/float64(l.Capacity)); v > value {
			value, detail = v, forecast(u, p.Policy, l)
		}
	})
	return value, detail, err
}

// nearLimit returns the highest warning threshold that a known key of the tenant has reached, in
// percent. Decisions contain the same number as near_limit.
func (m *measurement) nearLimit(ctx context.Context, r *Rule) (value float64, detail string, err error) {
	err = m.eachLimit(ctx, r, func(u *usage.Usage, p *usage.PolicyUsage, l *usage.LimitUsage) {
		if v := float64(l.NearLimit()); p.Mode.InForce() && v > value {
			value, detail = v, forecast(u, p.Policy, l)
		}
	})
	return value, detail, err
}

// minForecast is the shortest window of the limits that ExhaustedIn reads. A limit of a few minutes
// is often used up and soon free again, so no forecast can announce this in time.
const minForecast = time.Hour

// exhaustedIn returns the hours until a known key of the tenant has used up a quota at the current
// pace. If several keys or quotas will be used up, it returns the shortest time. If none will be
// used up within 90 days, it returns maxHours.
func (m *measurement) exhaustedIn(ctx context.Context, r *Rule) (value float64, detail string, err error) {
	value = maxHours
	err = m.eachLimit(ctx, r, func(u *usage.Usage, p *usage.PolicyUsage, l *usage.LimitUsage) {
		if l.Window < minForecast || l.ExhaustedAfter == nil {
			return
		}
		if v := l.ExhaustedAfter.Hours(); v < value {
			value, detail = v, forecast(u, p.Policy, l)
		}
	})
	return value, detail, err
}

// eachLimit calls do for each limit of each key with counts of the watched tenant. If the rule
// names a policy, eachLimit calls do only for the limits of this policy.
func (m *measurement) eachLimit(ctx context.Context, r *Rule, do func(*usage.Usage, *usage.PolicyUsage, *usage.LimitUsage)) error {
	read := m.usageOf(ctx, r)
	u := &read.usage
	for i := range u.Policies {
		p := &u.Policies[i]
		for k := range p.Keys {
			for j := range p.Keys[k].Limits {
				do(u, p, &p.Keys[k].Limits[j])
			}
		}
	}
	return read.err
}

// usageOf returns the usage of the tenant that the rule watches, or of the policy that the rule
// names. Rules with the same tenant and policy share the result.
func (m *measurement) usageOf(ctx context.Context, r *Rule) usageRead {
	key := [2]string{r.watched(), r.Policy}
	read, found := m.usage[key]
	if found {
		return read
	}
	if r.Policy != "" {
		read.usage, read.err = m.Usage.Policy(ctx, r.watched(), r.Policy)
	} else {
		read.usage, read.err = m.Usage.Tenant(ctx, r.watched())
	}
	if m.usage == nil {
		m.usage = make(map[[2]string]usageRead)
	}
	m.usage[key] = read
	return read
}

// forecast returns a sentence that says how much of a limit is left, and when it is used up at
// the current pace. The time is in the zone of the tenant, which the sentence names.
func forecast(u *usage.Usage, policy string, l *usage.LimitUsage) string {
	text := fmt.Sprintf("Limit %s of policy %s has %d of %d left", l.Limit.Name, policy, l.Remaining, l.Capacity)
	switch {
	case l.ExhaustedAfter == nil:
		return text + "."
	case *l.ExhaustedAfter == 0:
		return text + " and denies requests now."
	}
	at := u.At.Add(*l.ExhaustedAfter).In(u.Zone)
	return text + "; at this pace it is used up on " + at.Format("Monday 2 January, 15:04 ") + u.Zone.String() + "."
}
