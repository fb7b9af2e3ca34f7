package preview_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

func onePolicy(slug, limits string, change func(*plans.Policy)) plans.Policy {
	p := plans.Policy{Slug: slug, Match: plans.Match{Path: "/a/*"}, Limits: []enforcement.Limit{limit(limits)}}
	if change != nil {
		change(&p)
	}
	return p
}

func document(policies ...plans.Policy) plans.Content {
	return plans.Content{Name: "p", Policies: policies}
}

func byUser(p *plans.Policy) { p.CountBy = []string{"user"} }
func inShadow(p *plans.Policy) {
	p.Mode = enforcement.PolicyShadow
}

// asks are requests of some users in turn, every second from noon on.
func asks(seconds, users int, path string) (list []request) {
	for i := range seconds {
		list = append(list, request{at: noon.Add(time.Duration(i) * time.Second), check: enforcement.Check{
			Method: "GET", Path: path, Cost: 1,
			Attributes: []enforcement.Attribute{{Name: "user", Value: fmt.Sprintf("u%d", i%users)}},
		}})
	}
	return list
}

// played returns a world with one tenant, after requests were decided with a plan.
func played(t *testing.T, published plans.Content, requests []request) *world {
	t.Helper()
	w := newWorld(t, nil)
	w.publish(t, "p", published)
	who := []tenants.Tenant{w.tenant(t, "acme", "p", tenants.Allow)}
	w.decide(t, w.store, published, who, 1, requests)
	w.set(noon.Add(2 * time.Hour))
	return w
}

func (w *world) look(t *testing.T, draft plans.Content) preview.Preview {
	t.Helper()
	w.draft(t, "p", draft)
	got, err := w.preview.Draft(t.Context(), "p", time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Each change of a policy has its certainty and its reason.
func TestCertainty(t *testing.T) {
	t.Parallel()
	published := document(
		onePolicy("all", "30/1m fixed_window clock", nil),
		onePolicy("users", "10/1m sliding_window_counter", byUser),
		onePolicy("trial", "20/1m fixed_window clock", func(p *plans.Policy) { p.Mode, p.Match.Path = enforcement.PolicyShadow, "/b/*" }),
		onePolicy("trial-users", "5/1m gcra", func(p *plans.Policy) { byUser(p); inShadow(p) }),
		onePolicy("asleep", "5/1m gcra", func(p *plans.Policy) { p.Mode, p.Match.Path = enforcement.PolicyOff, "/c/*" }),
	)
	requests := append(asks(600, 7, "/a/x"), asks(300, 7, "/b/x")...)
	w := played(t, published, requests)
	for _, test := range []struct {
		name, slug string
		change     func(*plans.Content)
		want       preview.Certainty
		kind       preview.Change
		why        string // part of it
	}{
		{"as published", "users", func(*plans.Content) {}, preview.Exact, preview.Same, "counted denials"},
		{"in shadow as published", "trial", func(*plans.Content) {}, preview.Exact, preview.Same, "live figure"},
		{"described anew", "users", func(d *plans.Content) { d.Policies[1].Description = "x" }, preview.Exact, preview.Same, "counted denials"},
		{"another mode of failure", "all", func(d *plans.Content) { d.Policies[0].OnFailure = enforcement.OnFailureOpen }, preview.Exact, preview.Changed, "counted denials"},
		{"off", "all", func(d *plans.Content) { d.Policies[0].Mode = enforcement.PolicyOff }, preview.Exact, preview.Changed, "off in the draft"},
		{"removed", "all", func(d *plans.Content) { d.Policies = d.Policies[1:] }, preview.Exact, preview.Removed, "removes"},
		{"out of shadow, alone", "trial", func(d *plans.Content) { d.Policies[2].Mode = enforcement.PolicyEnforce }, preview.Exact, preview.Changed, "no other enforced policy overlaps"},
		{"another number", "all", func(d *plans.Content) { d.Policies[0].Limits[0].Quota = 20 }, preview.Estimated, preview.Changed, "requests of each minute"},
		{"another number by key", "users", func(d *plans.Content) { d.Policies[1].Limits[0].Quota = 4 }, preview.Estimated, preview.Changed, "busiest keys"},
		{"another algorithm", "users", func(d *plans.Content) { d.Policies[1].Limits[0].Algorithm = enforcement.GCRA }, preview.Estimated, preview.Changed, "busiest keys"},
		{"another number in shadow", "trial", func(d *plans.Content) { d.Policies[2].Limits[0].Quota = 4 }, preview.Estimated, preview.Changed, "replayed"},
		{"another one beside it", "users", func(d *plans.Content) { d.Policies[0].Limits[0].Quota = 20 }, preview.Estimated, preview.Same, "another enforced policy does"},
		{"into shadow, not alone", "all", func(d *plans.Content) { d.Policies[0].Mode = enforcement.PolicyShadow }, preview.Estimated, preview.Changed, "replayed"},
		{"another name", "everyone", func(d *plans.Content) { d.Policies[0].Slug = "everyone" }, preview.Estimated, preview.Added, "as all:"},
		{"a short window", "all", func(d *plans.Content) { d.Policies[0].Limits[0].Window = 30 * time.Second }, preview.NeedsShadow, preview.Changed, "windows of 30s"},
		{"what is under way", "users", func(d *plans.Content) { d.Policies[1].Limits[0].Algorithm = enforcement.Concurrency }, preview.NeedsShadow, preview.Changed, "at the same time"},
		{"other keys", "users", func(d *plans.Content) { d.Policies[1].CountBy = []string{"ip"} }, preview.NeedsShadow, preview.Changed, "count_by is new"},
		{"other requests", "users", func(d *plans.Content) { d.Policies[1].Match.Methods = []string{"GET"} }, preview.NeedsShadow, preview.Changed, "other requests"},
		{"replaced", "users", func(d *plans.Content) { d.Policies[0].Replaces = []string{"users"} }, preview.NeedsShadow, preview.Same, "replaced by other"},
		{"awake", "asleep", func(d *plans.Content) { d.Policies[4].Mode = enforcement.PolicyEnforce }, preview.NeedsShadow, preview.Changed, "published policy is off"},
		{"keys in shadow", "trial-users", func(d *plans.Content) { d.Policies[3].Limits[0].Quota = 9 }, preview.NeedsShadow, preview.Changed, "not recorded for policies in mode shadow"},
		{"new", "new", func(d *plans.Content) {
			d.Policies = append(d.Policies, onePolicy("new", "5/1m gcra", func(p *plans.Policy) { p.Match.Path = "/d" }))
		}, preview.NeedsShadow, preview.Added, "no published policy applies"},
	} {
		draft := plans.New(published).Content()
		test.change(&draft)
		got := w.look(t, draft)
		found := false
		for _, p := range got.Policies {
			if p.Slug != test.slug {
				continue
			}
			found = true
			if p.Certainty != test.want || p.Change != test.kind || !strings.Contains(p.Why, test.why) {
				t.Errorf("%s: %s is %s and %s: %q", test.name, p.Slug, p.Change, p.Certainty, p.Why)
			}
			next := "Publish it in mode shadow: then it counts what it would deny, and denies nothing."
			if test.name == "keys in shadow" {
				next = "It is already in mode shadow and stays there: after the draft is published, its live figure shows what it would deny."
			}
			if (test.want == preview.NeedsShadow) != strings.HasSuffix(p.Why, next) {
				t.Errorf("%s: the advice of %q", test.name, p.Why)
			}
		}
		if !found {
			t.Errorf("%s: %s is not in %+v", test.name, test.slug, got.Policies)
		}
	}
}

// A window by the clock is known to the request, and so are its keys.
func TestFigures(t *testing.T) {
	t.Parallel()
	published := document(
		onePolicy("all", "30/1m fixed_window clock", nil),
		onePolicy("trial", "40/1m fixed_window clock", func(p *plans.Policy) { p.Mode, p.Match.Path = enforcement.PolicyShadow, "/b/*" }),
	)
	w := played(t, published, append(asks(600, 7, "/a/x"), asks(300, 7, "/b/x")...))
	draft := document(onePolicy("all", "50/1m fixed_window clock", nil), published.Policies[1])
	got := w.look(t, draft)
	all, trial := got.Policies[0], got.Policies[1]
	if all.Published.Refused != 300 || all.Draft.Refused != 100 || all.Draft.Low != 100 || all.Draft.High != 100 || all.Requests != 600 || all.Draft.Rate != 100./600 {
		t.Errorf("of %d requests %+v, %+v", all.Requests, all.Published, all.Draft)
	}
	if trial.Shadow.Refused != 100 || trial.Draft.Refused != 100 || trial.Published != nil || trial.Shadow.Tenants[0].Slug != "acme" || trial.Shadow.AllTenants != 1 {
		t.Errorf("in shadow %+v, %+v", trial.Shadow, trial.Draft)
	}
	want := preview.RouteFigure{Route: "/b/*", Refused: 100, Requests: 300, Exact: true}
	if len(trial.Shadow.Routes) != 1 || trial.Shadow.Routes[0] != want {
		t.Errorf("routes %+v", trial.Shadow.Routes)
	}
	if got.Total == nil || *got.Total != (preview.Bounds{Low: 100, High: 100}) || got.Refused != 300 || got.Requests != 900 || got.Active != 1 {
		t.Errorf("%+v of %d, in all %+v", got.Refused, got.Requests, got.Total)
	}
	if got.Clipped != "" || !got.To.Equal(noon.Add(2*time.Hour)) {
		t.Errorf("from %v to %v: %q", got.From, got.To, got.Clipped)
	}
}

func TestKeysThatWouldBeRefused(t *testing.T) {
	t.Parallel()
	published := document(onePolicy("users", "100/1m fixed_window clock", byUser))
	requests := asks(600, 3, "/a/x")
	for i := range 120 { // one of them twice as often, in the first two minutes
		requests = append(requests, request{at: noon.Add(time.Duration(i) * time.Second), check: requests[0].check})
	}
	w := played(t, published, requests)
	got := w.look(t, document(onePolicy("users", "30/1m fixed_window clock", byUser))).Policies[0]
	if f := got.Draft; f.Refused != 100 || f.Low != 100 || f.High != 100 || len(f.Keys) != 1 || f.Keys[0].Values[0] != "u0" || f.Keys[0].Refused != 100 || f.Keys[0].Tenant != "acme" {
		t.Errorf("%+v", f)
	}
}

// Keys that no ranking has room for are not taken for served.
func TestKeysThatNobodyNamed(t *testing.T) {
	t.Parallel()
	published, draft := document(onePolicy("users", "100/1m fixed_window clock", byUser)), document(onePolicy("users", "1/1m fixed_window clock", byUser))
	var requests []request
	for i := range 2400 { // 400 users, three times in each of two minutes
		requests = append(requests, request{at: noon.Add(time.Duration(i) * 50 * time.Millisecond), check: enforcement.Check{
			Method: "GET", Path: "/a/x", Cost: 1, Attributes: []enforcement.Attribute{{Name: "user", Value: fmt.Sprintf("u%d", i%400)}},
		}})
	}
	w := played(t, published, requests)
	if f := w.look(t, draft).Policies[0].Draft; f.Low > 1600 || f.High < 1600 {
		t.Errorf("from %d to %d, in truth 1600", f.Low, f.High)
	}
}

// Issue 13, 1.3: an override of some keys leaves the estimate of all other keys as it is.
func TestOverridesOfKeys(t *testing.T) {
	t.Parallel()
	w := played(t, document(onePolicy("users", "10/1m fixed_window clock", byUser)), asks(600, 7, "/a/x"))
	draft := document(onePolicy("users", "4/1m fixed_window clock", byUser))
	before := w.look(t, draft).Policies[0].Draft
	if before.Refused == 0 || before.Low != before.High {
		t.Fatalf("without overrides: %+v", before)
	}
	override := func(value, prefix string) preview.Policy {
		t.Helper()
		n := exceptions.NewOverride{Policy: "users", Attribute: "user", Value: value, Prefix: prefix, Factor: 2000, Reason: "more"}
		if _, err := w.exceptions.CreateOverride(t.Context(), "acme", n); err != nil {
			t.Fatal(err)
		}
		return w.look(t, draft).Policies[0]
	}
	for _, p := range []preview.Policy{override("x1", ""), override("", "vip-")} {
		if f := p.Draft; f.Refused != before.Refused || f.Low != before.Low || f.High != before.High || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "for some keys") {
			t.Errorf("overrides of keys without requests: %+v, want %+v, %q", f, before, p.Notes)
		}
	}
	// u0 made 86 requests, of which 10 or fewer a minute passed, and none was denied.
	one := before.Refused / 7
	if f := override("u0", "").Draft; f.Low > before.Low-one || f.Low < before.Low-one-20 || f.Refused != f.Low || f.High != f.Low+86 {
		t.Errorf("an override of a key with requests: %+v, before %+v", f, before)
	}
}

// If a policy needs shadow, the total is the sum of the known figures.
func TestTotalIsAtLeastWhatIsKnown(t *testing.T) {
	t.Parallel()
	published := document(onePolicy("all", "30/1m fixed_window clock", nil))
	w := played(t, published, asks(600, 7, "/a/x"))
	draft := document(published.Policies[0], onePolicy("ips", "5/1m gcra", func(p *plans.Policy) { p.CountBy = []string{"ip"} }))
	if got := w.look(t, draft); got.Total != nil || got.AtLeast != got.Refused || got.Refused == 0 {
		t.Errorf("with a new policy beside it: %+v, at least %d of %d", got.Total, got.AtLeast, got.Refused)
	}
	draft = document(onePolicy("all", "20/1m sliding_window_counter", nil))
	if got := w.look(t, draft); got.Total == nil || got.Estimate < got.Total.Low || got.Estimate > got.Total.High || got.Estimate <= got.Refused {
		t.Errorf("with a smaller quota: %+v, estimated %d of %d", got.Total, got.Estimate, got.Refused)
	}
}

// What tenants have that cannot be replayed widens the bounds, and is said.
func TestTenantsThatAreNotReplayed(t *testing.T) {
	t.Parallel()
	published, draft := document(onePolicy("all", "30/1m fixed_window clock", nil)), document(onePolicy("all", "50/1m fixed_window clock", nil))
	few := func(c *preview.Config) { c.Rows = 1 }
	w := newWorld(t, few)
	w.publish(t, "p", published)
	who := []tenants.Tenant{w.tenant(t, "busy", "p", tenants.Allow), w.tenant(t, "calm", "p", tenants.Allow)}
	requests := asks(600, 7, "/a/x")
	for _, r := range asks(40, 1, "/a/x") {
		r.tenant = 1
		requests = append(requests, r)
	}
	w.decide(t, w.store, published, who, 1, requests)
	w.set(noon.Add(2 * time.Hour))
	p := w.look(t, draft).Policies[0]
	if f := p.Draft; f.Low != 100 || f.High != 140 || f.Refused != 110 || f.Tenants[1].Unread == "" || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "1 other tenant with 6.25%") {
		t.Errorf("with few rows: %+v, %q", f, p.Notes)
	}
	if _, err := w.exceptions.CreateOverride(t.Context(), "busy", exceptions.NewOverride{Policy: "all", Factor: 2000, Reason: "more"}); err != nil {
		t.Fatal(err)
	}
	p = w.look(t, draft).Policies[0]
	if f := p.Draft; f.Refused != 300 || f.Low != 0 || !strings.Contains(strings.Join(p.Notes, " "), "overrides") {
		t.Errorf("with an override: %+v, %q", f, p.Notes)
	}
	requests[0].check.Cost = 3
	w = played(t, published, requests[:600])
	p = w.look(t, draft).Policies[0]
	if p.Certainty != preview.NeedsShadow || p.Draft != nil || !strings.Contains(p.Why, "cost other than 1") {
		t.Errorf("with costs: %s, %q", p.Certainty, p.Why)
	}
}

// What another version decided, or was counted under another plan, is left out.
func TestSpan(t *testing.T) {
	t.Parallel()
	first := document(onePolicy("all", "30/1m fixed_window clock", func(p *plans.Policy) { p.Match.Path = "*" }))
	second := document(onePolicy("all", "50/1m fixed_window clock", nil))
	w := newWorld(t, nil)
	w.publish(t, "p", first)
	w.publish(t, "other", first)
	who := []tenants.Tenant{w.tenant(t, "acme", "p", tenants.Allow), w.tenant(t, "mover", "other", tenants.Allow)}
	requests := asks(1200, 7, "/a/x")
	w.decide(t, w.store, first, who, 1, requests)
	w.set(noon.Add(9*time.Minute + 30*time.Second))
	w.publish(t, "p", second)
	w.set(noon.Add(15 * time.Minute))
	mover, err := w.tenants.UpdateTenant(t.Context(), "mover", tenants.Document{Name: "mover", Plan: "p"}, who[1].Revision)
	if err != nil || mover.Plan != "p" {
		t.Fatal(mover, err)
	}
	w.tenant(t, "newcomer", "p", tenants.Allow)
	w.set(noon.Add(2 * time.Hour))
	got, err := w.preview.Draft(t.Context(), "p", noon, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if !got.From.Equal(noon.Add(11*time.Minute)) || !strings.Contains(got.Clipped, "Version 2 was published at 20 November 12:10") {
		t.Errorf("from %v: %q", got.From, got.Clipped)
	}
	if got.Requests != 540 || got.Tenants != 2 || got.Joined != 1 {
		t.Errorf("%d requests of %d tenants, %d joined", got.Requests, got.Tenants, got.Joined)
	}
	for _, bad := range []struct {
		from, to time.Time
		pointer  string
	}{{noon, noon, "to"}, {noon, noon.Add(-time.Hour), "to"}, {noon, noon.Add(8 * 24 * time.Hour), "from"}} {
		_, err := w.preview.Draft(t.Context(), "p", bad.from, bad.to)
		var p *problem.Problem
		if !errors.As(err, &p) || p.Kind != problem.Invalid || p.Fields[0].Pointer != bad.pointer {
			t.Errorf("from %v to %v: %v", bad.from, bad.to, err)
		}
	}
	if _, err := w.preview.Draft(t.Context(), "none", noon, time.Time{}); !problem.Is(err, problem.NotFound) {
		t.Errorf("no such plan: %v", err)
	}
}

// A plan that was never published has counted nothing.
func TestUnpublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	if _, err := w.plans.CreatePlan(t.Context(), "p", plans.New(document(onePolicy("all", "30/1m gcra", nil)))); err != nil {
		t.Fatal(err)
	}
	got, err := w.preview.Draft(t.Context(), "p", time.Time{}, time.Time{})
	if p := got.Policies[0]; err != nil || p.Certainty != preview.NeedsShadow || p.Change != preview.Added || !strings.Contains(p.Why, "No version") || got.Total != nil {
		t.Errorf("%+v, %v", got, err)
	}
}
