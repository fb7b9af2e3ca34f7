package preview_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// A maker makes random plans and requests.
type maker struct{ *rand.Rand }

func pick[T any](m maker, of ...T) T { return of[m.IntN(len(of))] }

func (m maker) limit(name string) enforcement.Limit {
	l := enforcement.Limit{
		Name:      name,
		Algorithm: enforcement.FixedWindow + enforcement.Algorithm(m.IntN(5)),
		Quota:     pick[int64](m, 0, 1, 2, 3, 5, 8, 13, 30),
		Window:    pick(m, 10*time.Second, time.Minute, time.Minute, 90*time.Second, 2*time.Minute, 5*time.Minute, 20*time.Minute),
	}
	if l.Quota == 0 && m.IntN(3) > 0 {
		l.Quota = 4
	}
	if l.Algorithm.Bucket() && m.IntN(2) == 0 {
		l.Burst = pick[int64](m, 1, 2, 5, 20)
	}
	if l.Algorithm.Windowed() && m.IntN(2) == 0 {
		l.Anchor = enforcement.Clock
	}
	return l
}

func (m maker) limits() []enforcement.Limit {
	list := []enforcement.Limit{m.limit("l1")}
	if m.IntN(4) == 0 {
		list = append(list, m.limit("l2"))
	}
	return list
}

func (m maker) policy(slug string) plans.Policy {
	p := plans.Policy{
		Slug:    slug,
		Match:   plans.Match{Path: pick(m, "*", "/a/*", "/b", "/{any}")},
		CountBy: pick(m, nil, []string{"user"}, []string{"user"}, []string{"user", "ip/64"}),
		Mode:    pick(m, enforcement.PolicyEnforce, enforcement.PolicyEnforce, enforcement.PolicyEnforce, enforcement.PolicyShadow, enforcement.PolicyOff),
		Missing: pick(m, enforcement.MissingShared, enforcement.MissingShared, enforcement.MissingSkip, enforcement.MissingDeny),
		Limits:  m.limits(),
	}
	if m.IntN(4) == 0 {
		p.Match.Methods = []string{pick(m, "GET", "POST")}
	}
	return p
}

func (m maker) document() plans.Content {
	d := plans.Content{Name: "p"}
	for i := range 1 + m.IntN(3) {
		d.Policies = append(d.Policies, m.policy(fmt.Sprintf("p%d", i)))
	}
	if len(d.Policies) > 1 && m.IntN(4) == 0 {
		d.Policies[0].Replaces = []string{"p1"}
	}
	return d
}

// change gives a document with some policies changed.
func (m maker) change(d plans.Content) plans.Content {
	d = plans.New(d).Content()
	for i := range d.Policies {
		p := &d.Policies[i]
		switch m.IntN(9) {
		case 0, 1, 2:
			p.Limits = m.limits()
		case 3:
			p.Limits[0].Quota = pick[int64](m, 1, 2, 4, 10)
		case 4:
			p.Mode = pick(m, enforcement.PolicyEnforce, enforcement.PolicyShadow, enforcement.PolicyOff)
		case 5:
			*p = m.policy(p.Slug)
		case 6:
			p.Slug = fmt.Sprintf("renamed%d", i)
			for k := range d.Policies {
				d.Policies[k].Replaces = nil
			}
		}
	}
	if m.IntN(4) == 0 {
		d.Policies = append(d.Policies, m.policy("added"))
	}
	if len(d.Policies) > 1 && m.IntN(5) == 0 {
		d.Policies = d.Policies[1:]
		for k := range d.Policies {
			d.Policies[k].Replaces = nil
		}
	}
	return d
}

// requests of some tenants and users: even, in bursts, and silent for a while.
func (m maker) requests(tenants int) (list []request) {
	users := pick(m, 1, 3, 8, 150)
	span := pick(m, 5, 30, 60)
	at := noon
	costs, forces := m.IntN(8) == 0, m.IntN(6) == 0
	for at.Before(noon.Add(time.Duration(span) * time.Minute)) {
		burst := 1
		switch m.IntN(12) {
		case 0:
			burst = 1 + m.IntN(40)
		case 1:
			at = at.Add(time.Duration(m.IntN(200)) * time.Second)
		}
		user := min(m.IntN(users), m.IntN(users))
		for range burst {
			at = at.Add(time.Duration(m.IntN(pick(m, 1, 30, 20_000))) * time.Millisecond)
			r := request{at: at, tenant: m.IntN(tenants), check: enforcement.Check{
				Method: pick(m, "GET", "POST"), Path: pick(m, "/a/x", "/a", "/b", "/c/d"), Cost: 1,
			}}
			if m.IntN(10) > 0 {
				if burst == 1 {
					user = min(m.IntN(users), m.IntN(users))
				}
				r.check.Attributes = append(r.check.Attributes, enforcement.Attribute{Name: "user", Value: fmt.Sprintf("u%d", user)})
			}
			if costs && m.IntN(20) == 0 {
				r.check.Cost = int64(m.IntN(6))
			}
			if forces && m.IntN(20) == 0 {
				r.check.Mode = enforcement.Force
			}
			list = append(list, r)
		}
	}
	return list
}

// The figures of a preview are compared with the truth: the real limiter decides the same
// requests again with the draft. Exact figures are equal to the truth, and bounds contain
// it, for policies that overlap, replace each other, and share requests.
func TestPreviewHoldsTheTruth(t *testing.T) {
	t.Parallel()
	seen := make(map[preview.Certainty]int)
	tight := 0
	for seed := range uint64(worlds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := maker{rand.New(rand.NewPCG(seed, 5))}
			var change func(*preview.Config)
			if seed%2 == 1 {
				change = replaying
			}
			w := newWorld(t, change)
			published := m.document()
			w.publish(t, "p", published)
			var who []tenants.Tenant
			for i := range 1 + m.IntN(3) {
				who = append(who, w.tenant(t, fmt.Sprintf("t%d", i), "p", pick(m, tenants.Allow, tenants.Allow, tenants.Deny)))
			}
			requests := m.requests(len(who))
			w.decide(t, w.store, published, who, 1+m.IntN(2), requests)
			draft := m.change(published)
			w.draft(t, "p", draft)
			w.set(noon.Add(3 * time.Hour))
			got, err := w.preview.Draft(t.Context(), "p", noon, time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			recorded, truth := w.counted(t, who), truth(t, draft, who, requests)
			if got.Requests != int64(len(requests)) || got.Tenants != len(who) {
				t.Errorf("%d requests of %d tenants, not %d of %d", got.Requests, got.Tenants, len(requests), len(who))
			}
			enforced := int64(0)
			for _, p := range got.Policies {
				seen[p.Certainty]++
				if p.Published != nil {
					check(t, p.Slug+" as published", p.Published, of(recorded[p.Slug], (*metrics.Counts).Limited), true)
				}
				if p.Shadow != nil {
					check(t, p.Slug+" in shadow", p.Shadow, of(recorded[p.Slug], func(c *metrics.Counts) int64 { return c.ShadowRefused }), true)
				}
				refused := (*metrics.Counts).Limited
				if p.Mode == enforcement.PolicyShadow {
					refused = func(c *metrics.Counts) int64 { return c.ShadowRefused }
				} else if p.Change != preview.Removed {
					for _, c := range truth[p.Slug] {
						enforced += c.Limited()
					}
				}
				if (p.Draft == nil) != (p.Certainty == preview.NeedsShadow) || p.Why == "" {
					t.Errorf("%s is %s with the figure %v: %q", p.Slug, p.Certainty, p.Draft, p.Why)
				}
				if p.Draft != nil {
					check(t, fmt.Sprintf("%s (%s, %s)", p.Slug, p.Certainty, p.Why), p.Draft, of(truth[p.Slug], refused), p.Certainty == preview.Exact)
					if p.Certainty == preview.Estimated && p.Draft.High-p.Draft.Low < p.Requests/4 {
						tight++
					}
				}
			}
			if b := got.Total; b != nil && (enforced < b.Low || enforced > b.High) {
				t.Errorf("the draft refuses %d in all, not within %+v", enforced, *b)
			}
			if t.Failed() {
				t.Logf("published %+v", published)
				t.Logf("draft %+v", draft)
			}
		})
	}
	t.Logf("%v, of the estimates %d are within a quarter of the requests", seen, tight)
	if seen[preview.Exact] == 0 || seen[preview.Estimated] == 0 || seen[preview.NeedsShadow] == 0 || tight == 0 {
		t.Errorf("the sequences show too little: %v, %d tight", seen, tight)
	}
}

// worlds is how many random worlds are made.
const worlds = 60

func of(counts map[uint32]metrics.Counts, refused func(*metrics.Counts) int64) map[uint32]int64 {
	out := make(map[uint32]int64)
	for tenant, c := range counts {
		out[tenant] = refused(&c)
	}
	return out
}

// check compares a figure with the truth of each tenant.
func check(t *testing.T, name string, f *preview.Figure, truth map[uint32]int64, exact bool) {
	t.Helper()
	total, some := int64(0), 0
	for _, n := range truth {
		total += n
		if n > 0 {
			some++
		}
	}
	if f.Low > total || f.High < total || f.Refused < f.Low || f.Refused > f.High {
		t.Errorf("%s: %d within %d and %d, in truth %d", name, f.Refused, f.Low, f.High, total)
	}
	if exact && (f.Refused != total || f.Low != total || f.High != total || f.AllTenants != some) {
		t.Errorf("%s: %d within %d and %d of %d tenants, in truth %d of %d", name, f.Refused, f.Low, f.High, f.AllTenants, total, some)
	}
	values := []int64{}
	for _, n := range f.Tenants {
		values = append(values, n.Refused)
	}
	if !slices.IsSortedFunc(values, func(a, b int64) int { return int(b - a) }) {
		t.Errorf("%s: tenants are in the order of %v", name, values)
	}
}
