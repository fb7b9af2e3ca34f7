package plans

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforcement"
)

// rule makes a policy of n limits that matches a path.
func rule(slug, path string, n int, edits ...func(*Policy)) Policy {
	p := Policy{Slug: slug, Match: Match{Path: path}, Limits: slices.Repeat([]enforcement.Limit{unnamed}, n)}
	for _, edit := range edits {
		edit(&p)
	}
	return canonical(Content{Policies: []Policy{p}}).Policies[0]
}

func methods(names ...string) func(*Policy)  { return func(p *Policy) { p.Match.Methods = names } }
func replaces(slugs ...string) func(*Policy) { return func(p *Policy) { p.Replaces = slugs } }
func mode(m enforcement.PolicyMode) func(*Policy) {
	return func(p *Policy) { p.Mode = m }
}

func having(name, value string) func(*Policy) {
	return func(p *Policy) { p.Match.Attributes = map[string]string{name: value} }
}

func skipping(names ...string) func(*Policy) {
	return func(p *Policy) { p.CountBy, p.Missing = names, enforcement.MissingSkip }
}

func TestHeaviest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		policies []Policy
		want     int
		of       string
	}{
		{"none", nil, 0, ""},
		{"one", []Policy{rule("a", "*", 3)}, 3, "a"},
		{"paths apart", []Policy{rule("a", "/a", 3), rule("b", "/b", 4)}, 4, "b"},
		{"paths that meet", []Policy{rule("a", "/a/*", 3), rule("b", "/{x}/b", 4)}, 7, "a b"},
		{"methods apart", []Policy{rule("a", "*", 3, methods("GET")), rule("b", "*", 4, methods("HEAD"))}, 4, "b"},
		{"methods that meet", []Policy{rule("a", "*", 3, methods("GET", "PUT")), rule("b", "*", 4, methods("PUT"))}, 7, "a b"},
		{"methods that meet two by two only", []Policy{
			rule("a", "*", 1, methods("GET", "PUT")), rule("b", "*", 1, methods("PUT", "POST")), rule("c", "*", 1, methods("POST", "GET")),
		}, 2, ""},
		{"attributes that contradict", []Policy{rule("a", "*", 3, having("tier", "free")), rule("b", "*", 4, having("tier", "pro"))}, 4, "b"},
		{"attributes of two names", []Policy{rule("a", "*", 3, having("tier", "free")), rule("b", "*", 4, having("zone", "eu"))}, 7, "a b"},
		{"off", []Policy{rule("a", "*", 3), rule("b", "*", 4, mode(enforcement.PolicyOff))}, 3, "a"},
		{"shadow counts", []Policy{rule("a", "*", 3), rule("b", "*", 4, mode(enforcement.PolicyShadow))}, 7, "a b"},
		{"replaced", []Policy{rule("a", "*", 3), rule("b", "/b", 4, replaces("a"))}, 4, "b"},
		{"replaced by less, but only there", []Policy{rule("a", "*", 3), rule("b", "/b", 1, replaces("a"))}, 3, "a"},
		{"replaced by less, wherever it is", []Policy{rule("a", "/b/c", 3), rule("b", "/b/*", 1, replaces("a"))}, 1, "b"},
		{"a shadow replaces nothing", []Policy{rule("a", "/b/c", 3), rule("b", "/b/*", 1, replaces("a"), mode(enforcement.PolicyShadow))}, 4, "a b"},
		{"what is skipped replaces nothing", []Policy{rule("a", "/b/c", 3), rule("b", "/b/*", 1, replaces("a"), skipping("user"))}, 3, "a"},
		{"what cannot be skipped replaces", []Policy{rule("a", "/b/c", 3, having("ip", "192.0.2.1")), rule("b", "/b/*", 1, replaces("a"), skipping("ip/64"))}, 1, "b"},
		{"exempt", []Policy{rule("a", "/b/c", 3), rule("b", "/b/*", 0, replaces("a"))}, 0, ""},
		{"the heavier of two crowds", []Policy{
			rule("all", "*", 2), rule("a1", "/a", 5), rule("a2", "/{x}", 5), rule("b1", "/b/c", 8), rule("b2", "/b/{x}", 1), rule("b3", "/b/*", 2),
		}, 13, "all b1 b2 b3"},
	} {
		got := heaviest(c.policies, 1000)
		if !got.exact || got.charges != c.want || c.of != "" && strings.Join(got.policies, " ") != c.of {
			t.Errorf("%s: %+v, want %d of %s", c.name, got, c.want, c.of)
		}
	}
}

// world is small enough to try every request.
var world = struct{ paths, patterns, methods, tiers []string }{
	paths:    []string{"", "/", "/a", "/b", "/c", "/a/a", "/a/b", "/b/a", "/b/b", "/a/c", "/c/a", "/c/c", "/a/b/a", "/a/b/b", "/b/b/b", "/c/c/c", "/a/c/a", "/c/b/a"},
	patterns: []string{"*", "/*", "/", "/a", "/a/*", "/{x}", "/{x}/*", "/{x}/b", "/a/{x}", "/a/b", "/b/b/*", "/a/b/a"},
	methods:  []string{"GET", "PUT", "POST"},
	tiers:    []string{"", "free", "pro"},
}

func smallPlan() *rapid.Generator[[]Policy] {
	return rapid.Custom(func(t *rapid.T) []Policy {
		var out []Policy
		for i := range rapid.IntRange(1, 8).Draw(t, "policies") {
			p := rule(fmt.Sprintf("p%d", i), rapid.SampledFrom(world.patterns).Draw(t, "path"), rapid.IntRange(0, 10).Draw(t, "limits"),
				methods(rapid.SliceOfNDistinct(rapid.SampledFrom(world.methods), 0, 2, rapid.ID).Draw(t, "methods")...),
				mode(rapid.SampledFrom([]enforcement.PolicyMode{enforcement.PolicyEnforce, enforcement.PolicyEnforce, enforcement.PolicyShadow, enforcement.PolicyOff}).Draw(t, "mode")))
			if tier := rapid.SampledFrom(world.tiers).Draw(t, "tier"); tier != "" {
				p.Match.Attributes = map[string]string{"tier": tier}
			}
			if i > 0 && rapid.IntRange(0, 2).Draw(t, "replaces") == 0 {
				p.Replaces = []string{fmt.Sprintf("p%d", rapid.IntRange(0, i-1).Draw(t, "which"))}
			}
			out = append(out, p)
		}
		return out
	})
}

// charged counts the charges of one request as enforcement would.
func charged(policies []Policy, method, path, tier string) int {
	removed := map[string]bool{}
	var apply []Policy
	for _, p := range policies {
		pattern, err := enforcement.ParsePattern(p.Match.Path)
		want := p.Match.Attributes["tier"]
		if err != nil || !pattern.Match(path) || want != "" && want != tier || p.Mode == enforcement.PolicyOff ||
			len(p.Match.Methods) > 0 && !slices.Contains(p.Match.Methods, method) {
			continue
		}
		apply = append(apply, p)
		if p.Mode == enforcement.PolicyEnforce {
			for _, slug := range p.Replaces {
				removed[slug] = true
			}
		}
	}
	n := 0
	for _, p := range apply {
		if !removed[p.Slug] {
			n += len(p.Limits)
		}
	}
	return n
}

func mostCharged(policies []Policy) int {
	most := 0
	for _, path := range world.paths {
		for _, method := range append([]string{""}, world.methods...) {
			for _, tier := range append([]string{"other"}, world.tiers...) {
				most = max(most, charged(policies, method, path, tier))
			}
		}
	}
	return most
}

// No request is charged more than heaviest says, and where nothing replaces
// anything, one is charged exactly that.
func TestHeaviestAgainstEveryRequest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policies := smallPlan().Draw(t, "policies")
		most, got := mostCharged(policies), heaviest(policies, 1_000_000)
		if !got.exact || got.charges < most {
			t.Fatalf("%+v, and a request is charged %d", got, most)
		}
		if got.charges > most && !slices.ContainsFunc(policies, func(p Policy) bool { return len(p.Replaces) > 0 }) {
			t.Fatalf("%+v, and no request is charged more than %d", got, most)
		}
		rough := heaviest(policies, 1)
		if rough.charges < got.charges {
			t.Fatalf("with little work %+v, with much %+v", rough, got)
		}
	})
}

// What covers says of two patterns holds for every path.
func TestCoversPattern(t *testing.T) {
	t.Parallel()
	for _, wide := range world.patterns {
		for _, narrow := range world.patterns {
			w, _ := enforcement.ParsePattern(wide)
			n, _ := enforcement.ParsePattern(narrow)
			all := true
			for _, path := range world.paths {
				all = all && (!n.Match(path) || w.Match(path))
			}
			if got := coversPattern(wide, narrow); got != all {
				t.Errorf("coversPattern(%q, %q) = %v; of the paths here: %v", wide, narrow, got, all)
			}
		}
	}
}

func TestTooManyCharges(t *testing.T) {
	t.Parallel()
	s := NewService(nil, Config{})
	crowd := func(n int) Content {
		d := Content{Name: "Pro"}
		for i := range n {
			d.Policies = append(d.Policies, rule(fmt.Sprintf("p%d", i), "*", 1, having(fmt.Sprintf("a%d", i), "x")))
		}
		return d
	}
	if r := s.Inspect(New(crowd(32))); len(r.Faults) > 0 || r.Charges != 32 {
		t.Errorf("32 charges: %+v", r)
	}
	r := s.Inspect(New(crowd(33)))
	if len(r.Faults) != 1 || r.Faults[0].Pointer != "/policies" || !strings.Contains(r.Faults[0].Message, "33 limits") ||
		!strings.Contains(r.Faults[0].Message, "p0, p1, p2") || !strings.Contains(r.Faults[0].Message, "and 21 more") {
		t.Errorf("33 charges: %+v", r)
	}
	if err := (Document{crowd(33)}).Validate(); err != nil {
		t.Errorf("a draft of 33 charges cannot be saved: %v", err)
	}
}

// A plan built against the search ends in a refusal that says so, within the
// work allowed.
func TestHeaviestGivesUp(t *testing.T) {
	t.Parallel()
	var policies []Policy
	for i := range 90 { // each contradicts only its neighbour: 2 of every 5 in a ring
		at := func(n int) string { return fmt.Sprintf("g%d-e%d", i/5, n%5) }
		policies = append(policies, rule(fmt.Sprintf("p%d", i), "*", 1, func(p *Policy) {
			p.Match.Attributes = map[string]string{at(i): "x", at(i + 1): "y"}
		}))
	}
	d := Content{Name: "Pro", Policies: policies}
	r := NewService(nil, Config{SearchWork: 200}).Inspect(New(d))
	if len(r.Faults) != 1 || !strings.Contains(r.Faults[0].Message, "too many policies overlap") {
		t.Errorf("with little work: %+v", r)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	s := NewService(nil, Config{})
	sample := Sample().Content()
	edge := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 1000, Window: 60_000_000_000}
	for _, c := range []struct {
		name     string
		policies []Policy
		at, says string
	}{
		{"a fixed window", []Policy{rule("a", "*", 1, func(p *Policy) { p.Limits[0] = edge })}, "/policies/0/limits/0/algorithm", "2 × 1,000"},
		{"nothing", nil, "/policies", "no policies"},
		{"off", []Policy{rule("a", "*", 1, mode(enforcement.PolicyOff))}, "/policies/0/mode", "off"},
		{"always replaced", []Policy{rule("a", "/a", 1), rule("b", "*", 1, replaces("a"))}, "/policies/0", "never counts"},
		{"shadow with replaces", []Policy{rule("a", "/a", 1), rule("b", "*", 1, replaces("a"), mode(enforcement.PolicyShadow))}, "/policies/1/replaces", "does not replace"},
		{"missing without count_by", []Policy{rule("a", "/a", 1, skipping())}, "/policies/0/missing", "no effect"},
		{"quota 0", []Policy{rule("a", "/a", 1, func(p *Policy) { p.Limits[0].Quota = 0 })}, "/policies/0/limits/0/quota", "every request"},
		{"a delay without an effect, stored before it was rejected", []Policy{rule("a", "/a", 1, func(p *Policy) { p.DelayMS = 2000 })}, "/policies/0/delay_ms", "no effect in mode enforce"},
		{"a long delay", []Policy{rule("a", "/a", 1, func(p *Policy) {
			p.Limits[0] = enforcement.Limit{Algorithm: enforcement.LeakyBucket, Quota: 60, Window: 60_000_000_000, Burst: 90}
		})}, "/policies/0/limits/0/burst", "up to 89 seconds"},
		{"burst above quota", []Policy{rule("a", "/a", 1, func(p *Policy) { p.Limits[0].Burst = 2500 })}, "/policies/0/limits/0/burst", "2,501"},
	} {
		r := s.Inspect(New(Content{Name: "Pro", Policies: c.policies}))
		if len(r.Faults) > 0 || len(r.Warnings) != 1 || r.Warnings[0].Pointer != c.at || !strings.Contains(r.Warnings[0].Message, c.says) {
			t.Errorf("%s: %+v, want a warning at %s with %q", c.name, r, c.at, c.says)
		}
	}
	if r := s.Inspect(New(Content{Name: "Pro", Policies: []Policy{sample.Policies[0]}})); len(r.Warnings) != 0 {
		t.Errorf("warnings without a reason: %+v", r.Warnings)
	}
}
