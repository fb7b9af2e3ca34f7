package demo

import (
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// The slugs of the sample plans and tenants. The prefix demo- tells people that they are
// samples. The code finds tenants by the IDs in Info, not by slug.
const (
	planFree       = "demo-free"
	planPro        = "demo-pro"
	planEnterprise = "demo-enterprise"

	tenantAcme   = "demo-acme"   // the largest tenant: an enterprise with batch jobs at night
	tenantBloom  = "demo-bloom"  // a shop with traffic in the evening and on weekends, and with an attacker who guesses passwords
	tenantCobalt = "demo-cobalt" // a start-up on the free plan that often reaches its limits
)

var planSlugs = []string{planFree, planPro, planEnterprise}

// The users that have an override, a list entry, a block, or special traffic.
const (
	batchUser   = "batch-exporter"
	qaUser      = "qa-bot"
	heavyUser   = "kim.osei"
	blockedUser = "scraper-7"
	betaUser    = "noor.haddad"
)

// IP addresses from the networks that are reserved for documentation.
const (
	abuserIP  = "203.0.113.66"
	readerIP  = "203.0.113.40"
	deniedNet = "198.51.100.0/24"
	deniedIP  = "198.51.100.23"
)

// limit, bucket and byClock return limits for the sample plans.
func limit(a enforcement.Algorithm, quota int64, window time.Duration) enforcement.Limit {
	return enforcement.Limit{Algorithm: a, Quota: quota, Window: window}
}

func bucket(a enforcement.Algorithm, quota, burst int64) enforcement.Limit {
	return enforcement.Limit{Algorithm: a, Quota: quota, Window: time.Minute, Burst: burst}
}

func byClock(quota int64, window time.Duration) enforcement.Limit {
	return enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: quota, Window: window, Anchor: enforcement.Clock}
}

// policy returns an enforced policy. match is "*", a path, or a method and a path. countBy is
// an attribute; if it is "", the policy counts the whole tenant as one key.
func policy(slug, description, match, countBy string, limits ...enforcement.Limit) plans.Policy {
	p := plans.Policy{Slug: slug, Description: description, Limits: limits}
	if method, path, both := strings.Cut(match, " "); both {
		p.Match = plans.Match{Methods: []string{method}, Path: path}
	} else {
		p.Match.Path = match
	}
	if countBy != "" {
		p.CountBy = []string{countBy}
	}
	return p
}

func shadowed(p plans.Policy) plans.Policy {
	p.Mode = enforcement.PolicyShadow
	return p
}

func onFailure(f enforcement.OnFailure, p plans.Policy) plans.Policy {
	p.OnFailure = f
	return p
}

func login(quota int64, by string) plans.Policy {
	return policy("login-per-ip", "Slows down guessing of passwords: exact, so that a burst at the end of a window passes no more requests.",
		"POST /v1/login", by, limit(enforcement.SlidingWindowLog, quota, time.Minute))
}

const month = 30 * 24 * time.Hour

// freePlan returns the given version, 1 or 2, of the free plan.
func freePlan(version int) plans.Content {
	monthly := int64(400_000)
	if version == 1 {
		monthly = 300_000
	}
	return plans.Content{
		Name:        "Free (demo)",
		Description: "Enough to try the API: a small steady rate for each user, and a month's quota for all of them together.",
		Policies: []plans.Policy{
			login(5, "ip"),
			policy("api-per-user", "A steady rate with a little room for a page that asks several things at once.",
				"/v1/*", "user", bucket(enforcement.GCRA, 30, 10)),
			policy("tenant-per-minute", "The most that all users may call together.",
				"*", "", limit(enforcement.SlidingWindowCounter, 90, time.Minute)),
			policy("tenant-per-month", "What the plan includes in thirty days.", "*", "", byClock(monthly, month)),
		},
	}
}

// proPlan returns the given version, 1 or 2, of the pro plan.
func proPlan(version int) plans.Content {
	searches := int64(8)
	if version == 1 {
		searches = 20
	}
	beta := policy("beta-per-user", "Users of the beta have more room in it, and are not held to the common rate there.",
		"/v1/beta/*", "user", bucket(enforcement.GCRA, 300, 60))
	beta.Match.Attributes, beta.Replaces = map[string]string{"tier": "beta"}, []string{"api-per-user"}
	d := plans.Content{
		Name:        "Pro (demo)",
		Description: "For a product that has users: limits by user, separate limits for expensive routes, and higher limits for beta features.",
		Policies: []plans.Policy{
			login(8, "ip"),
			policy("api-per-user", "Two calls a second, and bursts for pages that load everything at once.",
				"/v1/*", "user", bucket(enforcement.TokenBucket, 120, 30)),
			policy("search-per-user", "Searches are expensive.",
				"GET /v1/search", "user", limit(enforcement.SlidingWindowCounter, searches, time.Minute)),
			beta,
			onFailure(enforcement.OnFailureClosed, policy("orders-per-month", "What a user may order in thirty days from the first order on.",
				"POST /v1/orders", "user", limit(enforcement.FixedWindow, 2_000, month))),
			policy("feeds-per-ip", "Feeds change once an hour: a client that reads them every second waits.",
				"GET /feeds/*", "ip", limit(enforcement.SlidingWindowCounter, 20, time.Minute)),
		},
	}
	if version > 1 {
		d.Policies = append(d.Policies, shadowed(policy("api-per-address", "Tried out in shadow: would one address be too many users at once?",
			"/v1/*", enforcement.IPNetwork, bucket(enforcement.TokenBucket, 20, 10))))
	}
	return d
}

// samplePlans returns the documents of all plans in the given version, 1 or 2, in the order of
// planSlugs.
func samplePlans(version int) []plans.Document {
	return []plans.Document{plans.New(freePlan(version)), plans.New(proPlan(version)), plans.New(enterprisePlan(version))}
}

// proDraft returns the draft of the pro plan. The demo saves this draft and does not publish
// it.
func proDraft() plans.Document {
	d := proPlan(2)
	d.Policies[1].Limits[0].Burst = 15
	d.Policies[2].Limits[0].Quota = 6
	d.Policies[4].Description += " Under discussion with sales."
	d.Policies = append(d.Policies, policy("carts-per-address", "An idea: shops behind one address would share their carts' rate.",
		"POST /v1/carts", "ip", bucket(enforcement.GCRA, 60, 20)))
	return plans.New(d)
}

// enterprisePlan returns the given version, 1 or 2, of the enterprise plan.
func enterprisePlan(version int) plans.Content {
	hourly := int64(200_000)
	if version == 1 {
		hourly = 150_000
	}
	api := policy("api-per-user", "Ten calls a second and user, in the long run and at once.", "/v1/*", "user",
		bucket(enforcement.TokenBucket, 600, 60), limit(enforcement.SlidingWindowCounter, 3_000, time.Hour))
	api.Limits[0].Name, api.Limits[1].Name = "burst", "hour"
	return plans.Content{
		Name:        "Enterprise (demo)",
		Description: "A high ceiling for the whole company, with room for batch jobs and a brake on exports.",
		Policies: []plans.Policy{
			login(10, enforcement.IPNetwork),
			api,
			policy("exports", "Exports of all users together: they load the database.",
				"POST /v1/exports/*", "", limit(enforcement.SlidingWindowCounter, 60, time.Minute)),
			shadowed(policy("reports-per-user", "Tried out in shadow before it is enforced.",
				"GET /v1/reports/{report}", "user", limit(enforcement.SlidingWindowCounter, 2, time.Minute))),
			onFailure(enforcement.OnFailureOpen, policy("company-per-hour", "The most that the whole company may call.",
				"*", "", byClock(hourly, time.Hour))),
		},
	}
}

// A sampleTenant is a tenant of the demo with its exceptions.
type sampleTenant struct {
	slug      string
	document  tenants.Document
	overrides []exceptions.NewOverride
	entries   []exceptions.NewEntry
	blocks    []exceptions.NewBlock
}

func sampleTenants(now time.Time) []sampleTenant {
	return []sampleTenant{
		{
			slug:     tenantAcme,
			document: tenants.Document{Name: "Acme (demo)", SampleAllowed: 50, Plan: planEnterprise, TimeZone: "Europe/Berlin"},
			overrides: []exceptions.NewOverride{{
				Policy: "api-per-user", Attribute: "user", Value: batchUser, Factor: 3_000,
				Reason: "The quarter's export runs until the end of the week.", ExpiresAt: now.Add(5 * 24 * time.Hour),
			}},
			entries: []exceptions.NewEntry{{
				List: exceptions.Allow, Attribute: "user", Value: qaUser, Reason: "Our own tests of their integration.",
			}},
		},
		{
			slug:     tenantBloom,
			document: tenants.Document{Name: "Bloom (demo)", SampleAllowed: 50, Plan: planPro, TimeZone: "America/New_York", BillingAnchorDay: 15},
			overrides: []exceptions.NewOverride{{
				Policy: "search-per-user", Attribute: "user", Value: heavyUser,
				Limits: []enforcement.OverrideLimit{{Name: "l1", Quota: 30, Burst: enforcement.Keep}},
				Reason: "Support case: a catalogue import by hand.", ExpiresAt: now.Add(3 * time.Hour),
			}},
			entries: []exceptions.NewEntry{{
				List: exceptions.Deny, Attribute: "ip", Value: deniedNet, Reason: "Card testing.", ExpiresAt: now.Add(30 * 24 * time.Hour),
			}},
		},
		{
			slug:     tenantCobalt,
			document: tenants.Document{Name: "Cobalt (demo)", SampleAllowed: 50, Plan: planFree, TimeZone: "UTC"},
			blocks: []exceptions.NewBlock{{
				Policy: "api-per-user", Key: map[string]string{"user": blockedUser},
				Reason: "Reads the whole catalogue again and again; asked to stop.", ExpiresAt: now.Add(24 * time.Hour),
			}},
		},
	}
}
