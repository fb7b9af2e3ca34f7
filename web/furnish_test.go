package web_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// furnish gives acme a plan with many kinds of policies, a key, an override, a list entry,
// a block, and an hour of requests with some denials. The draft of the plan has changes.
func (w *world) furnish(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	limit := func(a enforcement.Algorithm, quota int64, window time.Duration, burst int64) enforcement.Limit {
		return enforcement.Limit{Algorithm: a, Quota: quota, Window: window, Burst: burst}
	}
	document := plans.Content{Name: "Pro", Description: "For teams.", Policies: []plans.Policy{
		{Slug: "api", CountBy: []string{"user"}, Limits: []enforcement.Limit{limit(enforcement.TokenBucket, 120, time.Minute, 20)}},
		{
			Slug: "login-per-ip", Match: plans.Match{Methods: []string{"POST"}, Path: "/v1/login"}, CountBy: []string{"ip/64"},
			OnFailure: enforcement.OnFailureClosed, Limits: []enforcement.Limit{limit(enforcement.SlidingWindowLog, 5, time.Minute, 0)},
		},
		{Slug: "monthly", Limits: []enforcement.Limit{limit(enforcement.FixedWindow, 100_000, 24*time.Hour, 0)}},
		{Slug: "search", Match: plans.Match{Path: "/v1/search/{index}"}, Mode: enforcement.PolicyShadow, Limits: []enforcement.Limit{limit(enforcement.SlidingWindowCounter, 10, time.Minute, 0)}},
	}}
	w.publish("pro", document, "acme")
	p, err := w.plans.Plan(ctx, "pro")
	must(t, err)
	document.Policies[0].Limits[0].Quota = 60
	document.Policies[2].Mode = enforcement.PolicyOff
	_, err = w.plans.SaveDraft(ctx, p.ID, plans.New(document), p.DraftRevision)
	must(t, err)
	k, _, err := w.tenants.CreateKey(ctx, w.ids["acme"], tenants.NewKey{Name: "gateway", Scopes: []tenants.Scope{tenants.ScopeCheck}})
	must(t, err)
	o, err := w.exceptions.CreateOverride(ctx, "acme", exceptions.NewOverride{
		Policy: "api", Attribute: "user", Value: "u7", Factor: 2000, Reason: "launch week", ExpiresAt: w.clock().Add(48 * time.Hour),
	})
	must(t, err)
	n, err := w.exceptions.CreateEntry(ctx, "acme", exceptions.NewEntry{List: exceptions.Deny, Attribute: "ip", Value: "203.0.113.0/24", Reason: "scrapers"})
	must(t, err)
	b, err := w.exceptions.CreateBlock(ctx, "acme", exceptions.NewBlock{Policy: "api", Key: map[string]string{"user": "u9"}, Reason: "abuse", ExpiresAt: w.clock().Add(24 * time.Hour)})
	must(t, err)
	w.addGrant()
	w.addReservation("job")
	w.ids["policy"], w.ids["key"], w.ids["override"], w.ids["entry"], w.ids["block"] = "api", k.ID, o.ID, n.ID, b.ID
	must(t, w.watcher.Refresh(ctx))
	for minute := range 40 {
		for i := range 12 {
			user := fmt.Sprintf("u%d", i%4)
			checks := []enforcement.Check{
				{Method: "GET", Path: "/v1/items", Attributes: attributes("user", user, "ip", "198.51.100.7"), Cost: 1},
				{Method: "GET", Path: "/v1/search/all", Attributes: attributes("user", user), Cost: 1},
			}
			if minute%3 == 0 {
				checks = append(checks, enforcement.Check{Method: "POST", Path: "/v1/login", Attributes: attributes("user", user, "ip", "2001:db8::1"), Cost: 1})
			}
			w.decide("acme", checks...)
		}
		if minute%10 == 0 {
			for _, f := range folk {
				w.get("/account", f.name) // otherwise their sessions would end
			}
			w.decide("acme", enforcement.Check{Path: "/v1/items", Attributes: attributes("user", "u9"), Cost: 1},
				enforcement.Check{Path: "/v1/items", Attributes: attributes("user", "u1", "ip", "203.0.113.9"), Cost: 1})
		}
		w.flush()
	}
}

// attributes returns the attributes of a check from a list of names and values in turn.
func attributes(pairs ...string) []enforcement.Attribute {
	var list []enforcement.Attribute
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, enforcement.Attribute{Name: pairs[i], Value: pairs[i+1]})
	}
	return list
}
