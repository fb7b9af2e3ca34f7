package plans

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforcement"
)

func TestNormaliseFillsDefaults(t *testing.T) {
	t.Parallel()
	limit := enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 5, Window: time.Second}
	given := Content{Name: "Pro", Description: "a\r\nb", Policies: []Policy{{Slug: "a", Limits: []enforcement.Limit{limit}}}}
	named := limit
	named.Name = "l1"
	want := Content{Name: "Pro", Description: "a\nb", Policies: []Policy{{
		Slug:    "a",
		Match:   Match{Methods: []string{}, Path: "*", Attributes: map[string]string{}},
		CountBy: []string{}, Missing: enforcement.MissingShared, Replaces: []string{}, Mode: enforcement.PolicyEnforce,
		OnFailure: enforcement.OnFailureLocal, Consistency: enforcement.Exact, Limits: []enforcement.Limit{named},
	}}}
	if diff := cmp.Diff(want, canonical(given)); diff != "" {
		t.Errorf("Normalise (-want +got):\n%s", diff)
	}
	if given.Policies[0].Limits[0].Name != "" || given.Policies[0].Mode != "" {
		t.Error("Normalise changed its argument")
	}
	if got := canonical(Content{}); got.Policies == nil {
		t.Error("no policies are null")
	}
}

func TestNormaliseSpelling(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, given, want string }{
		{"everything", "", "*"},
		{"star", "*", "*"},
		{"slashes", "//api///v1/", "/api/v1"},
		{"escapes", "/%7euser/caf\u00e9", "/~user/caf%C3%A9"},
		{"below", "/api/./*", "/api/*"},
		{"variable", "/users/{id}", "/users/{id}"},
		{"what cannot be", "/a/*/b", "/a/*/b"},
	} {
		d := canonical(Content{Policies: []Policy{{Match: Match{Path: c.given}}}})
		if got := d.Policies[0].Match.Path; got != c.want {
			t.Errorf("%s: %q becomes %q, want %q", c.name, c.given, got, c.want)
		}
	}
	d := canonical(Content{Policies: []Policy{{Match: Match{
		Methods:    []string{"get", "Post", "ärger"},
		Attributes: map[string]string{"ip": "::ffff:192.0.2.1", "IP": "::ffff:192.0.2.1", "host": "2001:DB8::1"},
	}}}})
	want := Match{
		Methods: []string{"GET", "POST", "äRGER"}, Path: "*",
		Attributes: map[string]string{"ip": "192.0.2.1", "IP": "::ffff:192.0.2.1", "host": "2001:DB8::1"},
	}
	if diff := cmp.Diff(want, d.Policies[0].Match); diff != "" {
		t.Errorf("match (-want +got):\n%s", diff)
	}
}

func TestLimitNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ given, want []string }{
		{[]string{"", ""}, []string{"l1", "l2"}},
		{[]string{"l2", "l1"}, []string{"l2", "l1"}}, // reordered: names stay
		{[]string{"", "l1"}, []string{"l2", "l1"}},
		{[]string{"l2", "", "", "burst"}, []string{"l2", "l1", "l3", "burst"}},
		{[]string{}, []string{}},
	} {
		limits := make([]enforcement.Limit, len(c.given))
		for i, name := range c.given {
			limits[i].Name = name
		}
		got := []string{}
		for _, l := range nameLimits(limits) {
			got = append(got, l.Name)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.given, diff)
		}
	}
}

// validLimit draws limits that Validate takes.
func validLimit() *rapid.Generator[enforcement.Limit] {
	return rapid.Custom(func(t *rapid.T) enforcement.Limit {
		l := enforcement.Limit{
			Algorithm: rapid.SampledFrom([]enforcement.Algorithm{
				enforcement.FixedWindow, enforcement.SlidingWindowLog, enforcement.SlidingWindowCounter, enforcement.TokenBucket, enforcement.GCRA,
			}).Draw(t, "algorithm"),
			Quota: rapid.Int64Range(0, enforcement.MaxQuota).Draw(t, "quota"),
			Window: rapid.OneOf(
				rapid.Map(rapid.Int64Range(1, 9_999_999_999), func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }),
				rapid.Map(rapid.Int64Range(1, 366*24*3600), func(n int64) time.Duration { return time.Duration(n) * time.Second }),
			).Draw(t, "window"),
		}
		switch {
		case l.Algorithm == enforcement.SlidingWindowLog:
			l.Quota %= enforcement.MaxLog + 1
		case l.Algorithm.Bucket():
			l.Burst = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, enforcement.MaxQuota)).Draw(t, "burst")
		default:
			l.Anchor = rapid.SampledFrom([]enforcement.Anchor{enforcement.FirstHit, enforcement.Clock}).Draw(t, "anchor")
		}
		return l
	})
}

// validDocument draws documents that Validate takes once they are normalised.
// Replaces only point back, so that there are no circles.
func validDocument() *rapid.Generator[Content] {
	return rapid.Custom(func(t *rapid.T) Content {
		d := Content{
			Name:        "Plan " + rapid.StringMatching(`[ -~äöü東京"\\<&]{0,20}`).Draw(t, "name"),
			Description: rapid.StringMatching("[ -~\n\té]{0,40}").Draw(t, "description"),
		}
		slugs := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?`), 0, 6, rapid.ID).Draw(t, "slugs")
		for i, slug := range slugs {
			p := Policy{
				Slug:        slug,
				Description: rapid.StringMatching("[ -~\n]{0,10}").Draw(t, "about"),
				Match: Match{
					Methods:    rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"GET", "post", "DELETE", "M-SEARCH"}), 0, 3, strings.ToUpper).Draw(t, "methods"),
					Path:       rapid.SampledFrom([]string{"", "*", "/", "/api/*", "/api/{x}", "//a//b/", "/%7e", "/é;v=1"}).Draw(t, "path"),
					Attributes: map[string]string{},
				},
				CountBy:   rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"user", "ip", "Ünï/~", "x"}), 0, 3, rapid.ID).Draw(t, "count_by"),
				Missing:   rapid.SampledFrom([]enforcement.Missing{"", enforcement.MissingShared, enforcement.MissingSkip, enforcement.MissingDeny}).Draw(t, "missing"),
				Mode:      rapid.SampledFrom([]enforcement.PolicyMode{"", enforcement.PolicyEnforce, enforcement.PolicyShadow, enforcement.PolicyOff}).Draw(t, "mode"),
				OnFailure: rapid.SampledFrom([]enforcement.OnFailure{"", enforcement.OnFailureLocal, enforcement.OnFailureOpen, enforcement.OnFailureClosed}).Draw(t, "on_failure"),
				Limits:    rapid.SliceOfN(validLimit(), 1, 4).Draw(t, "limits"),
			}
			for _, name := range []string{"tier", "ip", "a/b~c"} {
				if rapid.Bool().Draw(t, "has "+name) {
					p.Match.Attributes[name] = rapid.SampledFrom([]string{"192.0.2.7", "::ffff:192.0.2.7", "2001:DB8::1"}).Draw(t, name)
				}
			}
			if i > 0 {
				p.Replaces = rapid.SliceOfNDistinct(rapid.SampledFrom(slugs[:i]), 0, 2, rapid.ID).Draw(t, "replaces")
			}
			d.Policies = append(d.Policies, p)
		}
		return d
	})
}

func TestNormaliseIsStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		once := canonical(validDocument().Draw(t, "document"))
		if diff := cmp.Diff(once, canonical(once)); diff != "" {
			t.Fatalf("a second time (-once +twice):\n%s", diff)
		}
		if err := (Document{once}).Validate(); err != nil {
			t.Fatalf("Validate: %v", err)
		}
	})
}
