package configuration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/configuration"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// A fixture is the Service on a fresh SQLite database, at a time that the test
// holds.
type fixture struct {
	*configuration.Service
	store      *store.Store
	tenants    *tenants.Service
	plans      *plans.Service
	exceptions *exceptions.Service
	now        time.Time
	ctx        context.Context
}

func setUp(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	clock := func() time.Time { return f.now }
	f.ctx = audit.With(t.Context(), audit.Actor{Kind: "user", ID: "u1", Name: "Ada"}, audit.Origin{})
	st, err := store.Open(f.ctx, store.Config{URL: "sqlite://" + filepath.Join(t.TempDir(), "h.db"), Now: clock, Timeout: time.Minute})
	must(t, err)
	t.Cleanup(func() { must(t, st.Close()) })
	must(t, st.Migrate(f.ctx))
	f.store, f.plans, f.tenants = st, plans.NewService(st, plans.Config{}), tenants.NewService(st, tenants.Config{Now: clock})
	f.exceptions = exceptions.NewService(st, f.tenants, f.plans, exceptions.Config{Now: clock})
	analytics := metrics.NewAnalytics(st, metrics.AnalyticsConfig{Now: clock})
	f.Service = configuration.NewService(configuration.Config{
		Store: st, Plans: f.plans, Tenants: f.tenants, Exceptions: f.exceptions, Now: clock,
		Preview: preview.NewService(preview.Config{
			Plans: f.plans, Tenants: f.tenants, Exceptions: f.exceptions, Analytics: analytics, Audit: st, Now: clock,
		}),
	})
	return f
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) apply(t testing.TB, d configuration.Document, how configuration.Options) configuration.Result {
	t.Helper()
	r, err := f.Apply(f.ctx, d, how)
	must(t, err)
	return r
}

func (f *fixture) export(t testing.TB) configuration.Document {
	t.Helper()
	d, err := f.Export(f.ctx)
	must(t, err)
	return d
}

// state is the revision and the number of audit entries.
func (f *fixture) state(t testing.TB) string {
	t.Helper()
	revision, err := f.store.Revision(f.ctx)
	must(t, err)
	lines, err := f.store.AuditEntries(f.ctx, audit.Filter{Limit: 100_000})
	must(t, err)
	return fmt.Sprint(revision, " ", len(lines))
}

func plan(name string, quota int64) plans.Document {
	return plans.New(plans.Content{Name: name, Policies: []plans.Policy{
		{
			Slug: "login", CountBy: []string{"user", "ip"},
			Limits: []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: quota, Window: time.Minute}},
		},
		{Slug: "total", Limits: []enforcement.Limit{{Algorithm: enforcement.TokenBucket, Quota: 1000, Window: time.Minute}}},
	}})
}

func tenant(plan string) configuration.Tenant {
	return configuration.Tenant{Document: tenants.Document{Name: "A", Plan: plan}}
}

func override(value string, factor int64, ends time.Time) exceptions.NewOverride {
	o := exceptions.NewOverride{Policy: "login", Factor: factor, Reason: "r", ExpiresAt: ends}
	if value != "" {
		o.Attribute, o.Value = "user", value
	}
	return o
}

// documents compares documents. Overrides that cannot apply to the same key have no
// order; that of others shows in a second application.
var documents = cmp.Options{
	cmpopts.EquateEmpty(), cmp.Comparer(func(a, b plans.Document) bool { return a.Equal(b) }),
	cmpopts.SortSlices(func(a, b exceptions.NewOverride) bool { return fmt.Sprint(a) < fmt.Sprint(b) }),
}

// Applying an exported document changes nothing. An applied document is exported as it was,
// for any earlier state.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	rapid.Check(t, func(rt *rapid.T) {
		d := drawDocument(rt, f.now)
		f.apply(t, d, configuration.Options{Prune: true})
		again := f.export(t)
		if diff := cmp.Diff(normalised(d), again, documents); diff != "" {
			rt.Fatalf("applied and exported (-applied +exported):\n%s", diff)
		}
		before := f.state(t)
		for _, d := range []configuration.Document{d, again} {
			if r := f.apply(t, d, configuration.Options{Prune: true}); len(r.Changes)+len(r.Unmanaged)+len(r.Expired) != 0 {
				rt.Fatalf("the second application: %+v", r)
			}
		}
		if after := f.state(t); after != before {
			rt.Fatalf("revision and audit entries %s, and after applications without changes %s", before, after)
		}
	})
}

// drawDocument makes a document with all its sections.
func drawDocument(rt *rapid.T, now time.Time) configuration.Document {
	d := configuration.Document{Plans: map[string]plans.Document{}, Tenants: map[string]configuration.Tenant{}}
	for i := range rapid.IntRange(1, 3).Draw(rt, "plans") {
		d.Plans[fmt.Sprint("plan-", i)] = plan(rapid.SampledFrom([]string{"A", "B"}).Draw(rt, "name"), rapid.Int64Range(1, 3).Draw(rt, "quota"))
	}
	slugs := append(slices.Sorted(maps.Keys(d.Plans)), "")
	for i := range rapid.IntRange(0, 3).Draw(rt, "tenants") {
		t := tenant(rapid.SampledFrom(slugs).Draw(rt, "plan"))
		t.Status = rapid.SampledFrom([]tenants.Status{"", tenants.Suspended}).Draw(rt, "status")
		if t.Plan != "" {
			t.Overrides = rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) exceptions.NewOverride {
				o := override(rapid.SampledFrom([]string{"", "u1", "u2"}).Draw(rt, "value"), 0, now.Add(rapid.SampledFrom([]time.Duration{time.Hour, 2 * time.Hour}).Draw(rt, "life")))
				if rapid.Bool().Draw(rt, "network") {
					o.Attribute, o.Value, o.Prefix = "ip", "", "2001:DB8::/32"
				}
				if o.Factor = rapid.Int64Range(0, 2).Draw(rt, "factor") * 500; o.Factor == 0 {
					o.Limits = []enforcement.OverrideLimit{{Name: "l1", Quota: 7, Burst: enforcement.Keep}}
				}
				return o
			}), 0, 5).Draw(rt, "overrides")
		}
		values := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"192.0.2.1", "10.0.0.0/8", "2001:DB8::1"}), 0, 3, rapid.ID).Draw(rt, "values")
		for _, v := range values {
			t.Lists = append(t.Lists, exceptions.NewEntry{List: exceptions.Deny, Attribute: "ip", Value: v, Reason: rapid.SampledFrom([]string{"", "x"}).Draw(rt, "reason")})
		}
		if t.Overrides == nil {
			t.Overrides = []exceptions.NewOverride{}
		}
		if t.Lists == nil {
			t.Lists = []exceptions.NewEntry{}
		}
		d.Tenants[fmt.Sprint("tenant-", i)] = t
	}
	return d
}

// normalised is a document as Export writes it.
func normalised(d configuration.Document) configuration.Document {
	out := configuration.Document{Plans: d.Plans, Tenants: map[string]configuration.Tenant{}}
	for slug, t := range d.Tenants {
		t.Document = tenants.Normalise(t.Document)
		t.Overrides, t.Lists = slices.Clone(t.Overrides), slices.Clone(t.Lists)
		for i := range t.Overrides {
			t.Overrides[i].Prefix = strings.ToLower(t.Overrides[i].Prefix)
		}
		for i := range t.Lists {
			t.Lists[i].Value = strings.ToLower(t.Lists[i].Value)
		}
		slices.SortFunc(t.Lists, func(a, b exceptions.NewEntry) int { return strings.Compare(a.Value, b.Value) })
		out.Tenants[slug] = t
	}
	return out
}

// A fault anywhere changes nothing, and every fault has its place.
func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	ends := f.now.Add(time.Hour)
	f.apply(t, configuration.Document{Plans: map[string]plans.Document{"pro": plan("Pro", 1)}}, configuration.Options{})
	before := f.state(t)
	wrong := tenant("pro")
	wrong.Overrides = []exceptions.NewOverride{override("u1", 2000, ends), {Policy: "nosuch", Factor: 1, Reason: "r", ExpiresAt: ends}, {Policy: "total", Factor: 2000, ExpiresAt: ends}}
	wrong.Lists = []exceptions.NewEntry{{List: exceptions.Deny, Attribute: "ip", Value: "192.0.2.1"}, {List: exceptions.Deny, Attribute: "ip", Value: "no"}}
	slow := plan("Pro", 2).Content()
	slow.Policies[0].DelayMS = 2000
	delayed := plans.New(slow)
	for name, c := range map[string]struct {
		d    configuration.Document
		want []string
	}{
		"tenants": {
			configuration.Document{Tenants: map[string]configuration.Tenant{"a": {Document: tenants.Document{}}, "b": {Document: tenants.Document{Name: "B", Status: "asleep"}}, "c": tenant("")}},
			[]string{"/tenants/a/name", "/tenants/b/status"},
		},
		"a slug":   {configuration.Document{Tenants: map[string]configuration.Tenant{"A": tenant("")}}, []string{"/tenants/A"}},
		"the plan": {configuration.Document{Tenants: map[string]configuration.Tenant{"a": tenant("nosuch"), "b": tenant("pro")}}, []string{"/tenants/a/plan"}},
		"plans": {
			configuration.Document{Plans: map[string]plans.Document{"pro": plan("Pro", 2), "x": plan("", 1)}, Tenants: map[string]configuration.Tenant{"a": tenant("x")}},
			[]string{"/plans/x/name"},
		},
		"a delay in mode enforce": {
			configuration.Document{Plans: map[string]plans.Document{"pro": delayed, "y": delayed}},
			[]string{"/plans/pro/policies/0/delay_ms", "/plans/y/policies/0/delay_ms"},
		},
		"exceptions": {
			configuration.Document{Plans: map[string]plans.Document{"pro": plan("Pro", 2)}, Tenants: map[string]configuration.Tenant{"a": wrong}},
			[]string{"/tenants/a/overrides/1/policy", "/tenants/a/overrides/2/reason", "/tenants/a/lists/1/value"},
		},
		"no end": {
			configuration.Document{Tenants: map[string]configuration.Tenant{"a": {
				Document: tenants.Document{Name: "A", Plan: "pro"}, Overrides: []exceptions.NewOverride{override("u1", 2000, time.Time{})},
				Lists: []exceptions.NewEntry{{List: exceptions.Deny, Attribute: "ip", Value: "2001:db8::1"}, {List: exceptions.Deny, Attribute: "ip", Value: "2001:DB8::1"}},
			}}},
			[]string{"/tenants/a/overrides/0/expires_at", "/tenants/a/lists/1/value"},
		},
		"a plan in use": {
			configuration.Document{Plans: map[string]plans.Document{}},
			nil,
		},
	} {
		_, err := f.Apply(f.ctx, c.d, configuration.Options{Prune: c.want != nil})
		if c.want == nil {
			must(t, err)
			continue
		}
		var got []string
		if p := problemOf(err); p != nil && p.Kind == problem.Invalid {
			for _, field := range p.Fields {
				got = append(got, field.Pointer)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
		if after := f.state(t); after != before {
			t.Errorf("%s: revision and audit entries were %s and are %s", name, before, after)
		}
	}
}

func problemOf(err error) *problem.Problem {
	var p *problem.Problem
	errors.As(err, &p)
	return p
}

// One application has one revision, and an audit entry for each object.
func TestOneRevision(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	a := tenant("pro")
	a.Overrides = []exceptions.NewOverride{override("u1", 2000, f.now.Add(time.Hour))}
	before, err := f.store.Revision(f.ctx)
	must(t, err)
	f.apply(t, configuration.Document{Plans: map[string]plans.Document{"pro": plan("Pro", 1)}, Tenants: map[string]configuration.Tenant{"a": a}}, configuration.Options{})
	lines, err := f.store.AuditEntries(f.ctx, audit.Filter{})
	must(t, err)
	var actions []string
	for _, l := range lines {
		actions = append(actions, l.Action)
		if l.Revision != before+1 || l.Actor.Name != "Ada" {
			t.Errorf("%s: revision %d after %d, by %s", l.Action, l.Revision, before, l.Actor.Name)
		}
	}
	slices.Sort(actions)
	if diff := cmp.Diff([]string{"override.create", "plan.create", "plan.publish", "tenant.create"}, actions); diff != "" {
		t.Error(diff)
	}
	if r, err := f.store.VerifyAudit(f.ctx, audit.Verification{}); err != nil {
		t.Errorf("the chain of the audit log: %+v, %v", r, err)
	}
}

// Objects that a document does not name stay until they are pruned, and are reported. A
// section that is missing is not managed.
func TestUnmanaged(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	ends := f.now.Add(time.Hour)
	a := tenant("pro")
	a.Overrides = []exceptions.NewOverride{override("u1", 2000, ends), override("u2", 2000, ends)}
	a.Lists = []exceptions.NewEntry{{List: exceptions.Deny, Attribute: "ip", Value: "192.0.2.1"}}
	f.apply(t, configuration.Document{
		Plans: map[string]plans.Document{"pro": plan("Pro", 1), "free": plan("Free", 1)}, Tenants: map[string]configuration.Tenant{"a": a, "b": tenant("free")},
	}, configuration.Options{})
	_, err := f.plans.CreatePlan(f.ctx, "idea", plan("Idea", 1))
	must(t, err)

	less := tenant("pro")
	less.Overrides, less.Lists = a.Overrides[:1], []exceptions.NewEntry{}
	d := configuration.Document{Plans: map[string]plans.Document{"pro": plan("Pro", 1)}, Tenants: map[string]configuration.Tenant{"a": less}}
	want := []string{"/tenants/a/overrides/-", "/tenants/a/lists/-", "/tenants/b", "/plans/free"}
	before := f.state(t)
	for name, how := range map[string]configuration.Options{"kept": {}, "kept, dry run": {DryRun: true}, "pruned, dry run": {DryRun: true, Prune: true}} {
		r := f.apply(t, d, how)
		got, none := r.Unmanaged, r.Changes
		if how.Prune {
			got, none = none, got
		}
		if diff := cmp.Diff(want, fields(got)); diff != "" || len(none) != 0 || f.state(t) != before {
			t.Errorf("%s: %s %v", name, diff, none)
		}
	}
	if r := f.apply(t, configuration.Document{Tenants: map[string]configuration.Tenant{"a": tenant("pro"), "b": tenant("free")}}, configuration.Options{Prune: true}); len(r.Changes)+len(r.Unmanaged) != 0 {
		t.Errorf("sections that are left out: %+v", r)
	}
	if r := f.apply(t, d, configuration.Options{Prune: true}); !slices.Equal(fields(r.Changes), want) {
		t.Errorf("pruned: %+v", r.Changes)
	}
	d.Tenants["a"] = less
	if diff := cmp.Diff(normalised(d), f.export(t), documents); diff != "" {
		t.Errorf("after pruning: %s", diff)
	}
	if _, err := f.plans.Plan(f.ctx, "idea"); err != nil {
		t.Errorf("a plan that was never published was deleted: %v", err)
	}
}

func fields(list []plans.Change) []string {
	var out []string
	for _, c := range list {
		out = append(out, c.Field)
	}
	return out
}

// The changes name what differs, field by field.
func TestChanges(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	ends := f.now.Add(time.Hour)
	a := tenant("pro")
	a.Overrides = []exceptions.NewOverride{override("u1", 2000, ends), override("u2", 2000, ends)}
	d := configuration.Document{Plans: map[string]plans.Document{"pro": plan("Pro", 1)}, Tenants: map[string]configuration.Tenant{"a": a}}
	if got := fields(f.apply(t, d, configuration.Options{}).Changes); !slices.Equal(got, []string{"/plans/pro", "/tenants/a", "/tenants/a/overrides/-", "/tenants/a/overrides/-"}) {
		t.Errorf("created: %v", got)
	}
	a.Name, a.NoPolicy = "B", tenants.Deny
	a.Overrides = []exceptions.NewOverride{override("u2", 2000, ends), override("u1", 3000, ends), override("u9", 1, f.now)}
	d = configuration.Document{Plans: map[string]plans.Document{"pro": plan("Pro", 5)}, Tenants: map[string]configuration.Tenant{"a": a}}
	r := f.apply(t, d, configuration.Options{DryRun: true})
	want := []string{"/plans/pro/policies/login/limits/l1/quota", "/tenants/a/name", "/tenants/a/no_policy", "/tenants/a/overrides/-", "/tenants/a/overrides/-"}
	if got := fields(r.Changes); !slices.Equal(got, want) {
		t.Errorf("changed: %v", got)
	}
	if c := r.Changes[0]; string(c.From) != "1" || string(c.To) != "5" {
		t.Errorf("%s -> %s", c.From, c.To)
	}
	if !slices.Equal(r.Expired, []string{"/tenants/a/overrides/2"}) {
		t.Errorf("expired: %v", r.Expired)
	}
	if len(r.Previews) != 1 || r.Previews[0].Plan.Slug != "pro" || len(r.Previews[0].Policies) != 2 {
		t.Errorf("previews: %+v", r.Previews)
	}
	exported := f.export(t).Tenants["a"].Overrides
	if len(exported) != 2 || exported[0].Factor != 2000 || exported[1].Factor != 2000 {
		t.Errorf("a dry run changed %+v", exported)
	}
}

// An override that follows a new one in the document gets precedence over it.
func TestPrecedenceIsTheOrderOfTheDocument(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	ends := f.now.Add(time.Hour)
	a := tenant("pro")
	apply := func(list ...exceptions.NewOverride) int {
		a.Overrides = list
		r := f.apply(t, configuration.Document{Plans: map[string]plans.Document{"pro": plan("Pro", 1)}, Tenants: map[string]configuration.Tenant{"a": a}}, configuration.Options{Prune: true})
		exported := f.export(t).Tenants["a"].Overrides
		for _, o := range list {
			if got, want := wider(exported, o), wider(list, o); got != want {
				t.Errorf("%d overrides of all keys come before %s, want %d", got, o.Value, want)
			}
		}
		return len(r.Changes)
	}
	one, two, all := override("u1", 1000, ends), override("u2", 2000, ends), override("", 3000, ends)
	apply(one, two)
	if n := apply(all, one, two); n != 5 {
		t.Errorf("%d changes: an override of all keys comes before two others, which are created again", n)
	}
	if n := apply(all, one, override("u3", 1, ends), two); n != 1 {
		t.Errorf("%d changes: an override of another value comes between two", n)
	}
	if n := apply(override("u3", 1, ends), all, one, two); n == 0 {
		t.Error("another order changes nothing")
	}
}

// wider counts the overrides of all keys before o.
func wider(list []exceptions.NewOverride, o exceptions.NewOverride) (n int) {
	for _, other := range list {
		switch {
		case other.Value == o.Value:
			return n
		case other.Value == "":
			n++
		}
	}
	return n
}
