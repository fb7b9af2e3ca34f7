package alerts

import "time"

// A Template is a suggested rule. People start from it when they create a rule.
type Template struct {
	Slug    string
	Summary string // one sentence that says when the alert begins
	// NeedsPolicy says that the rule watches one policy, which the person must name. If NeedsPolicy
	// is not set, the person only needs to choose channels.
	NeedsPolicy bool
	Document
}

var templates = []Template{
	{"denial-rate", "A fifth of all requests is denied for two minutes.", false, Document{
		Name: "Many requests are denied", Metric: DenialRate, Window: 5 * time.Minute, Threshold: 20, Recovery: 10, For: 2 * time.Minute,
		MinRequests: 100,
	}},
	{"denials", "A policy denied 100 requests within five minutes.", true, Document{
		Name: "A policy denies requests", Metric: Denials, Window: 5 * time.Minute, Threshold: 100, Recovery: 50, For: time.Minute,
	}},
	{"quota-80", "A key has used 80% of a quota.", false, Document{
		Name: "80% of a quota is used", Metric: QuotaUsed, Threshold: 80, Recovery: 75,
	}},
	{"quota-95", "A key has used 95% of a quota.", false, Document{
		Name: "95% of a quota is used", Metric: QuotaUsed, Threshold: 95, Recovery: 90,
	}},
	{"quota-100", "A quota is used up.", false, Document{Name: "A quota is used up", Metric: QuotaUsed, Threshold: 100, Recovery: 95}},
	{"near-limit", "A key has reached a warning threshold of a limit (warn_at).", false, Document{
		Name: "A warning threshold is reached", Metric: NearLimit, Threshold: 1, Recovery: 1,
	}},
	{"exhausted-in", "At the present pace, a quota of an hour or longer is used up within a day.", false, Document{
		Name: "A quota will be used up", Metric: ExhaustedIn, Threshold: 24, Recovery: 36, For: 5 * time.Minute,
	}},
	{"degraded-share", "Nodes decide without the shared limiter.", false, Document{
		Name: "Decisions are degraded", Metric: DegradedShare, Window: 5 * time.Minute, Threshold: 1, Recovery: 0.5, For: time.Minute,
		MinRequests: 100,
	}},
	{"limiter-latency", "The limiter is slow: the p99 is 50 ms or more.", false, Document{
		Name: "The limiter is slow", Metric: LimiterLatency, Window: 5 * time.Minute, Threshold: 50, Recovery: 25, For: 2 * time.Minute,
	}},
	{"silent-nodes", "A node has stopped reporting.", false, Document{
		Name: "A node is silent", Metric: SilentNodes, Threshold: 1, Recovery: 1,
		For: 30 * time.Second,
	}},
	{"node-alarms", "The System page shows an alarm for a minute.", false, Document{
		Name: "A node has an alarm", Metric: NodeAlarms, Threshold: 1, Recovery: 1, For: time.Minute,
	}},
	{"snapshots-held", "A node holds back a suspicious snapshot of tenants and plans.", false, Document{
		Name: "A snapshot is held back", Metric: SnapshotsHeld, Threshold: 1, Recovery: 1,
	}},
}

// Templates returns the templates for rules of the operator. If operator is false, it returns the
// templates for rules of a tenant. The operator's rules about quotas watch each tenant.
func Templates(operator bool) []Template {
	var list []Template
	for _, t := range templates {
		trait, _ := t.Metric.trait()
		if trait.operator && !operator {
			continue
		}
		t.EachTenant = operator && trait.tenant == required
		list = append(list, t)
	}
	return list
}
