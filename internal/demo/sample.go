package demo

import (
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// Slugs of what is made. All say that they are a demonstration; which rows are
// the demo's is told by their ids alone.
const (
	planFree       = "demo-free"
	planPro        = "demo-pro"
	planEnterprise = "demo-enterprise"

	tenantAcme   = "demo-acme"   // the largest: an enterprise with a nightly rhythm of jobs
	tenantBloom  = "demo-bloom"  // a shop: evenings, weekends, and somebody who guesses passwords
	tenantCobalt = "demo-cobalt" // a start-up on the free plan, often at its limits
)

var planSlugs = []string{planFree, planPro, planEnterprise}

// People and machines of whom something is set.
const (
	batchUser   = "batch-exporter"
	qaUser      = "qa-bot"
	heavyUser   = "kim.osei"
	blockedUser = "scraper-7"
	betaUser    = "noor.haddad"
)

// Addresses are of the networks that are for documentation.
const (
	abuserIP  = "203.0.113.66"
	readerIP  = "203.0.113.40"
	deniedNet = "198.51.100.0/24"
	deniedIP  = "198.51.100.23"
)

func login(quota int64, by string) plans.Policy {
	return plans.Policy{
		Slug:        "login-per-ip",
		Description: "Slows down guessing of passwords: exact, so that a burst at the end of a window helps nobody.",
		Match:       plans.Match{Methods: []string{"POST"}, Path: "/v1/login"},
		CountBy:     []string{by},
		OnFailure:   enforcement.OnFailureLocal,
		Limits:      []enforcement.Limit{{Algorithm: enforcement.SlidingWindowLog, Quota: quota, Window: time.Minute}},
	}
}

// freePlan in its first and second version.
func freePlan(version int) plans.Content {
	d := plans.Content{
		Name:        "Free (demo)",
		Description: "Enough to try the API: a small steady rate for each user, and a month's quota for all of them together.",
		Policies: []plans.Policy{
			login(5, "ip"),
			{
				Slug:        "api-per-user",
				Description: "A steady rate with a little room for a page that asks several things at once.",
				Match:       plans.Match{Path: "/v1/*"},
				CountBy:     []string{"user"},
				Limits:      []enforcement.Limit{{Algorithm: enforcement.GCRA, Quota: 30, Window: time.Minute, Burst: 10}},
			},
			{
				Slug:        "tenant-per-minute",
				Description: "The most that all users may call together.",
				Limits:      []enforcement.Limit{{Algorithm: enforcement.SlidingWindowCounter, Quota: 90, Window: time.Minute}},
			},
			{
				Slug:        "tenant-per-month",
				Description: "What the plan includes in thirty days.",
				Limits:      []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 400_000, Window: 30 * 24 * time.Hour, Anchor: enforcement.Clock}},
			},
		},
	}
	if version == 1 {
		d.Policies[3].Limits[0].Quota = 300_000
	}
	return d
}

// proPlan in its first and second version.
func proPlan(version int) plans.Content {
	d := plans.Content{
		Name:        "Pro (demo)",
		Description: "For a product with users of its own: limits by user, dear routes apart, and beta features with more room.",
		Policies: []plans.Policy{
			login(8, "ip"),
			{
				Slug:        "api-per-user",
				Description: "Two calls a second, and bursts for pages that load everything at once.",
				Match:       plans.Match{Path: "/v1/*"},
				CountBy:     []string{"user"},
				Limits:      []enforcement.Limit{{Algorithm: enforcement.TokenBucket, Quota: 120, Window: time.Minute, Burst: 30}},
			},
			{
				Slug:        "search-per-user",
				Description: "Searches are dear.",
				Match:       plans.Match{Methods: []string{"GET"}, Path: "/v1/search"},
				CountBy:     []string{"user"},
				Limits:      []enforcement.Limit{{Algorithm: enforcement.SlidingWindowCounter, Quota: 8, Window: time.Minute}},
			},
			{
				Slug:        "beta-per-user",
				Description: "Users of the beta have more room in it, and are not held to the common rate there.",
				Match:       plans.Match{Path: "/v1/beta/*", Attributes: map[string]string{"tier": "beta"}},
				CountBy:     []string{"user"},
				Replaces:    []string{"api-per-user"},
				Limits:      []enforcement.Limit{{Algorithm: enforcement.GCRA, Quota: 300, Window: time.Minute, Burst: 60}},
			},
			{
				Slug:        "orders-per-month",
				Description: "What a user may order in thirty days from the first order on.",
				Match:       plans.Match{Methods: []string{"POST"}, Path: "/v1/orders"},
				CountBy:     []string{"user"},
				OnFailure:   enforcement.OnFailureClosed,
				Limits:      []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 2_000, Window: 30 * 24 * time.Hour}},
			},
			{
				Slug:        "feeds-per-ip",
				Description: "Feeds change once an hour: whoever reads them every second waits.",
				Match:       plans.Match{Methods: []string{"GET"}, Path: "/feeds/*"},
				CountBy:     []string{"ip"},
				Limits:      []enforcement.Limit{{Algorithm: enforcement.SlidingWindowCounter, Quota: 20, Window: time.Minute}},
			},
		},
	}
	if version == 1 {
		d.Policies[2].Limits[0].Quota = 20
		return d
	}
	d.Policies = append(d.Policies, plans.Policy{
		Slug:        "api-per-address",
		Description: "Tried out in shadow: would one address be too many users at once?",
		Match:       plans.Match{Path: "/v1/*"},
		CountBy:     []string{enforcement.IPNetwork},
		Mode:        enforcement.PolicyShadow,
		Limits:      []enforcement.Limit{{Algorithm: enforcement.TokenBucket, Quota: 20, Window: time.Minute, Burst: 10}},
	})
	return d
}

// samplePlans are all plans, in the order of planSlugs.
func samplePlans(version int) []plans.Document {
	return []plans.Document{plans.New(freePlan(version)), plans.New(proPlan(version)), plans.New(enterprisePlan(version))}
}

// proDraft is what is being edited and not published.
func proDraft() plans.Document {
	d := proPlan(2)
	d.Policies[1].Limits[0].Burst = 15
	d.Policies[2].Limits[0].Quota = 6
	d.Policies[4].Description = "What a user may order in thirty days from the first order on. Under discussion with sales."
	d.Policies = append(d.Policies, plans.Policy{
		Slug:        "carts-per-address",
		Description: "An idea: shops behind one address would share their carts' rate.",
		Match:       plans.Match{Methods: []string{"POST"}, Path: "/v1/carts"},
		CountBy:     []string{"ip"},
		Limits:      []enforcement.Limit{{Algorithm: enforcement.GCRA, Quota: 60, Window: time.Minute, Burst: 20}},
	})
	return plans.New(d)
}

// enterprisePlan in its first and second version.
func enterprisePlan(version int) plans.Content {
	d := plans.Content{
		Name:        "Enterprise (demo)",
		Description: "A high ceiling for the whole company, with room for batch jobs and a brake on exports.",
		Policies: []plans.Policy{
			login(10, enforcement.IPNetwork),
			{
				Slug:        "api-per-user",
				Description: "Ten calls a second and user, in the long run and at once.",
				Match:       plans.Match{Path: "/v1/*"},
				CountBy:     []string{"user"},
				Limits: []enforcement.Limit{
					{Name: "burst", Algorithm: enforcement.TokenBucket, Quota: 600, Window: time.Minute, Burst: 60},
					{Name: "hour", Algorithm: enforcement.SlidingWindowCounter, Quota: 3_000, Window: time.Hour},
				},
			},
			{
				Slug:        "exports",
				Description: "Exports of all users together: they load the database.",
				Match:       plans.Match{Methods: []string{"POST"}, Path: "/v1/exports/*"},
				Limits:      []enforcement.Limit{{Algorithm: enforcement.SlidingWindowCounter, Quota: 60, Window: time.Minute}},
			},
			{
				Slug:        "reports-per-user",
				Description: "Tried out in shadow before it is enforced.",
				Match:       plans.Match{Methods: []string{"GET"}, Path: "/v1/reports/{report}"},
				CountBy:     []string{"user"},
				Mode:        enforcement.PolicyShadow,
				Limits:      []enforcement.Limit{{Algorithm: enforcement.SlidingWindowCounter, Quota: 2, Window: time.Minute}},
			},
			{
				Slug:        "company-per-hour",
				Description: "The most that the whole company may call.",
				OnFailure:   enforcement.OnFailureOpen,
				Limits:      []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 200_000, Window: time.Hour, Anchor: enforcement.Clock}},
			},
		},
	}
	if version == 1 {
		d.Policies[4].Limits[0].Quota = 150_000
	}
	return d
}

// A sampleTenant is a tenant with what is set for it.
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
			document: tenants.Document{Name: "Acme (demo)", Plan: planEnterprise, TimeZone: "Europe/Berlin"},
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
			document: tenants.Document{Name: "Bloom (demo)", Plan: planPro, TimeZone: "America/New_York", BillingAnchorDay: 15},
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
			document: tenants.Document{Name: "Cobalt (demo)", Plan: planFree, TimeZone: "UTC"},
			blocks: []exceptions.NewBlock{{
				Policy: "api-per-user", Key: map[string]string{"user": blockedUser},
				Reason: "Reads the whole catalogue again and again; asked to stop.", ExpiresAt: now.Add(24 * time.Hour),
			}},
		},
	}
}
