package plans

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// valid is a document to break: two policies of one limit each.
func valid() Content {
	return canonical(Content{Name: "Pro", Policies: []Policy{
		{Slug: "a", Limits: []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 10, Window: time.Minute}}},
		{Slug: "b", Limits: []enforcement.Limit{{Algorithm: enforcement.TokenBucket, Quota: 10, Window: time.Minute}}},
	}})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	type edit = func(d *Content)
	first := func(change func(p *Policy)) edit { return func(d *Content) { change(&d.Policies[0]) } }
	limit := func(change func(l *enforcement.Limit)) edit {
		return func(d *Content) { change(&d.Policies[0].Limits[0]) }
	}
	names := func(n int) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf("N%d", i)
		}
		return out
	}
	attributes := func(n int) map[string]string {
		out := map[string]string{}
		for _, name := range names(n) {
			out[name] = "x"
		}
		return out
	}
	const p, l = "/policies/0", "/policies/0/limits/0"
	for _, c := range []struct {
		name string
		edit edit
		at   []string // none: it is valid
		says string   // part of the first message
	}{
		{"as it is", func(*Content) {}, nil, ""},
		{"no policies", func(d *Content) { d.Policies = nil }, nil, ""},

		{"name missing", func(d *Content) { d.Name = "" }, []string{"/name"}, "1 to 200"},
		{"name too long", func(d *Content) { d.Name = strings.Repeat("é", 201) }, []string{"/name"}, "1 to 200"},
		{"name with a line break", func(d *Content) { d.Name = "a\nb" }, []string{"/name"}, "control"},
		{"name not UTF-8", func(d *Content) { d.Name = "\xff" }, []string{"/name"}, "UTF-8"},
		{"description of two lines", func(d *Content) { d.Description = "a\n\tb" }, nil, ""},
		{"description with a bell", func(d *Content) { d.Description = "\a" }, []string{"/description"}, "control"},
		{"description too long", func(d *Content) { d.Description = strings.Repeat("a", 2001) }, []string{"/description"}, "2000"},
		{"1000 policies", func(d *Content) { d.Policies = many(1000) }, nil, ""},
		{"1001 policies", func(d *Content) { d.Policies = many(1001) }, []string{"/policies"}, "1000"},

		{"slug missing", first(func(p *Policy) { p.Slug = "" }), []string{p + "/slug"}, "must be"},
		{"slug in upper case", first(func(p *Policy) { p.Slug = "A" }), []string{p + "/slug"}, "lower-case"},
		{"slug like a UUID", first(func(p *Policy) { p.Slug = "0190f5c4-7e1a-7b3c-8d2e-0123456789ab" }), []string{p + "/slug"}, "UUID"},
		{"slug twice", first(func(p *Policy) { p.Slug = "b" }), []string{"/policies/1/slug"}, "policy 0"},
		{"policy's description", first(func(p *Policy) { p.Description = "\x1b[0m" }), []string{p + "/description"}, "control"},

		{"mode delay", first(func(p *Policy) { p.Mode, p.DelayMS = "delay", 60_000 }), nil, ""},
		{"mode degrade", first(func(p *Policy) { p.Mode = "degrade" }), nil, ""},
		{"unknown mode", first(func(p *Policy) { p.Mode = "degraded" }), []string{p + "/mode"}, "enforce, degrade, delay, shadow or off"},
		{"delay too long", first(func(p *Policy) { p.DelayMS = 60_001 }), []string{p + "/delay_ms"}, "1 to 60000 milliseconds"},
		{"delay in mode enforce", first(func(p *Policy) { p.Mode, p.DelayMS = "enforce", 2_000 }), []string{p + "/delay_ms"}, "no effect in mode enforce"},
		{"delay in mode degrade", first(func(p *Policy) { p.Mode, p.DelayMS = "degrade", 1_000 }), []string{p + "/delay_ms"}, "set the mode to delay"},
		{"cost above the quota", first(func(p *Policy) { p.Cost = new(int64(11)) }), []string{p + "/cost"}, "must be at most 10: the limit"},
		{"cost above the quota in shadow", first(func(p *Policy) { p.Cost, p.Mode = new(int64(11)), "shadow" }), nil, ""},
		{"cost above the quota, or from an attribute", first(func(p *Policy) { p.Cost, p.CostFrom = new(int64(11)), "tokens" }), nil, ""},
		{"cost and a quota of 0", first(func(p *Policy) { p.Cost, p.Limits[0].Quota = new(int64(2)), 0 }), nil, ""},
		{"a queue of 367 days", limit(func(l *enforcement.Limit) {
			l.Algorithm, l.Quota, l.Window, l.Burst = enforcement.LeakyBucket, 1, 24*time.Hour, 368
		}), []string{l + "/burst"}, "a request could wait for 367 days"},
		{"a queue of 366 days", limit(func(l *enforcement.Limit) {
			l.Algorithm, l.Quota, l.Window, l.Burst = enforcement.LeakyBucket, 1, 24*time.Hour, 367
		}), nil, ""},
		{"delay in shadow", first(func(p *Policy) { p.Mode, p.DelayMS = "shadow", 2_000 }), nil, ""},
		{"delay of a policy that is off", first(func(p *Policy) { p.Mode, p.DelayMS = "off", 1_000 }), nil, ""},
		{"delay below 0", first(func(p *Policy) { p.DelayMS = -1 }), []string{p + "/delay_ms"}, "1 to 60000 milliseconds"},

		{"16 methods", first(func(p *Policy) { p.Match.Methods = names(16) }), nil, ""},
		{"17 methods", first(func(p *Policy) { p.Match.Methods = names(17) }), []string{p + "/match/methods"}, "16"},
		{"method no token", first(func(p *Policy) { p.Match.Methods = []string{"GET", "GET POST"} }), []string{p + "/match/methods/1"}, "HTTP method"},
		{"method empty", first(func(p *Policy) { p.Match.Methods = []string{""} }), []string{p + "/match/methods/0"}, "HTTP method"},
		{"method not ASCII", first(func(p *Policy) { p.Match.Methods = []string{"GÉT"} }), []string{p + "/match/methods/0"}, "HTTP method"},
		{"method too long", first(func(p *Policy) { p.Match.Methods = []string{strings.Repeat("A", 33)} }), []string{p + "/match/methods/0"}, "HTTP method"},
		{"method twice", first(func(p *Policy) { p.Match.Methods = []string{"GET", "HEAD", "GET"} }), []string{p + "/match/methods/2"}, "twice"},

		{"path without a slash", first(func(p *Policy) { p.Match.Path = "api" }), []string{p + "/match/path"}, "begin with /"},
		{"star in the middle", first(func(p *Policy) { p.Match.Path = "/a/*/b" }), []string{p + "/match/path"}, "*"},
		{"path climbs", first(func(p *Policy) { p.Match.Path = "/../a" }), []string{p + "/match/path"}, "climbs"},
		{"path too long", first(func(p *Policy) { p.Match.Path = "/" + strings.Repeat("a", 2048) }), []string{p + "/match/path"}, "2048"},

		{"16 attributes", first(func(p *Policy) { p.Match.Attributes = attributes(16) }), nil, ""},
		{"17 attributes", first(func(p *Policy) { p.Match.Attributes = attributes(17) }), []string{p + "/match/attributes"}, "16"},
		{"attribute without a name", first(func(p *Policy) { p.Match.Attributes = map[string]string{"": "x"} }), []string{p + "/match/attributes/"}, "64 bytes"},
		{
			"attribute's name of 65 bytes", first(func(p *Policy) { p.Match.Attributes = map[string]string{strings.Repeat("n", 65): "x"} }),
			[]string{p + "/match/attributes/" + strings.Repeat("n", 65)},
			"64 bytes",
		},
		{"attribute's name with a line break", first(func(p *Policy) { p.Match.Attributes = map[string]string{"a\nb": "x"} }), []string{p + "/match/attributes/a\nb"}, "control"},
		{"attribute's name escaped", first(func(p *Policy) { p.Match.Attributes = map[string]string{"a/b~": ""} }), []string{p + "/match/attributes/a~1b~0"}, "missing"},
		{"attribute's value of 1024 bytes", first(func(p *Policy) { p.Match.Attributes = map[string]string{"a": strings.Repeat("v", 1024)} }), nil, ""},
		{"attribute's value of 1025 bytes", first(func(p *Policy) { p.Match.Attributes = map[string]string{"a": strings.Repeat("v", 1025)} }), []string{p + "/match/attributes/a"}, "1024"},
		{"attribute's value not UTF-8", first(func(p *Policy) { p.Match.Attributes = map[string]string{"a": "\xff"} }), []string{p + "/match/attributes/a"}, "UTF-8"},
		{"two attributes at fault, by name", first(func(p *Policy) { p.Match.Attributes = map[string]string{"b": "", "a": ""} }), []string{p + "/match/attributes/a", p + "/match/attributes/b"}, ""},
		{"ip", first(func(p *Policy) { p.Match.Attributes = map[string]string{"ip": "2001:DB8::1"} }), nil, ""},
		{"ip with a port", first(func(p *Policy) { p.Match.Attributes = map[string]string{"ip": "192.0.2.1:80"} }), []string{p + "/match/attributes/ip"}, "IP address"},
		{"ip with a zone", first(func(p *Policy) { p.Match.Attributes = map[string]string{"ip": "fe80::1%eth0"} }), []string{p + "/match/attributes/ip"}, "zone"},
		{"ip a network", first(func(p *Policy) { p.Match.Attributes = map[string]string{"ip": "192.0.2.0/24"} }), []string{p + "/match/attributes/ip"}, "prefix"},
		{"ip/64 matched", first(func(p *Policy) { p.Match.Attributes = map[string]string{"ip/64": "2001:db8::"} }), []string{p + "/match/attributes/ip~164"}, "count_by"},

		{"count_by 8", first(func(p *Policy) { p.CountBy = names(8) }), nil, ""},
		{"count_by 9", first(func(p *Policy) { p.CountBy = names(9) }), []string{p + "/count_by"}, "8"},
		{"count_by twice", first(func(p *Policy) { p.CountBy = []string{"user", "user"} }), []string{p + "/count_by/1"}, "twice"},
		{"count_by in two cases", first(func(p *Policy) { p.CountBy = []string{"user", "User"} }), nil, ""},
		{"count_by without a name", first(func(p *Policy) { p.CountBy = []string{""} }), []string{p + "/count_by/0"}, "64 bytes"},
		{"count_by ip/64", first(func(p *Policy) { p.CountBy = []string{"ip/64", "user"} }), nil, ""},
		{"count_by ip and ip/64", first(func(p *Policy) { p.CountBy = []string{"ip", "ip/64"} }), []string{p + "/count_by/1"}, "not both"},
		{"count_by ip/48", first(func(p *Policy) { p.CountBy = []string{"ip/48"} }), []string{p + "/count_by/0"}, "prefix length"},

		{"missing unknown", first(func(p *Policy) { p.Missing = "ignore" }), []string{p + "/missing"}, "skip"},
		{"mode unknown", first(func(p *Policy) { p.Mode = "Shadow" }), []string{p + "/mode"}, "shadow"},
		{"on_failure unknown", first(func(p *Policy) { p.OnFailure = "deny" }), []string{p + "/on_failure"}, "closed"},
		{"consistency leased", first(func(p *Policy) { p.Consistency = "leased" }), nil, ""},
		{"a log leased", first(func(p *Policy) {
			p.Consistency, p.Limits[0].Algorithm = "leased", enforcement.SlidingWindowLog
		}), []string{p + "/consistency"}, "sliding_window_log"},
		{"consistency leased, a leaky bucket", first(func(p *Policy) {
			p.Consistency, p.Limits[0].Algorithm = "leased", enforcement.LeakyBucket
		}), []string{p + "/consistency"}, "leaky_bucket"},
		{"consistency unknown", first(func(p *Policy) { p.Consistency = "eventual" }), []string{p + "/consistency"}, "exact"},

		{"replaces", first(func(p *Policy) { p.Replaces = []string{"b"} }), nil, ""},
		{"replaces itself", first(func(p *Policy) { p.Replaces = []string{"a"} }), []string{p + "/replaces/0"}, "itself"},
		{"replaces none of the plan", first(func(p *Policy) { p.Replaces = []string{"b", "z"} }), []string{p + "/replaces/1"}, "no policy"},
		{"replaces twice", first(func(p *Policy) { p.Replaces = []string{"b", "b"} }), []string{p + "/replaces/1"}, "twice"},
		{
			"circle of two", func(d *Content) { d.Policies[0].Replaces, d.Policies[1].Replaces = []string{"b"}, []string{"a"} },
			[]string{"/policies/1/replaces"},
			"a → b → a",
		},

		{"no limits", first(func(p *Policy) { p.Limits = nil }), []string{p + "/limits"}, "at least one"},
		{"no limits, but replaces", first(func(p *Policy) { p.Limits, p.Replaces = nil, []string{"b"} }), nil, ""},
		{"10 limits", first(func(p *Policy) { p.Limits = nameLimits(slices.Repeat([]enforcement.Limit{unnamed}, 10)) }), nil, ""},
		{"11 limits", first(func(p *Policy) { p.Limits = nameLimits(slices.Repeat([]enforcement.Limit{unnamed}, 11)) }), []string{p + "/limits"}, "10"},
		{"two limits of one name", first(func(p *Policy) { p.Limits = append(p.Limits, p.Limits[0]) }), []string{"/policies/0/limits/1/name"}, "limit 0"},

		{"limit's name missing", limit(func(l *enforcement.Limit) { l.Name = "" }), []string{l + "/name"}, "1 to 32"},
		{"limit's name of 32", limit(func(l *enforcement.Limit) { l.Name = strings.Repeat("-", 32) }), nil, ""},
		{"limit's name of 33", limit(func(l *enforcement.Limit) { l.Name = strings.Repeat("a", 33) }), []string{l + "/name"}, "32"},
		{"limit's name in upper case", limit(func(l *enforcement.Limit) { l.Name = "aBc" }), []string{l + "/name"}, "lower-case"},
		{"algorithm missing", limit(func(l *enforcement.Limit) { l.Algorithm = 0 }), []string{l + "/algorithm"}, "gcra"},
		{"algorithm unknown", limit(func(l *enforcement.Limit) { l.Algorithm = 99 }), []string{l + "/algorithm"}, "gcra"},
		{"quota 0", limit(func(l *enforcement.Limit) { l.Quota = 0 }), nil, ""},
		{"quota 1e12", limit(func(l *enforcement.Limit) { l.Quota = enforcement.MaxQuota }), nil, ""},
		{"quota above", limit(func(l *enforcement.Limit) { l.Quota = enforcement.MaxQuota + 1 }), []string{l + "/quota"}, "1000000000000"},
		{"quota below 0", limit(func(l *enforcement.Limit) { l.Quota = -1 }), []string{l + "/quota"}, "0 to"},
		{"log of 10,000", limit(func(l *enforcement.Limit) { l.Algorithm, l.Quota = enforcement.SlidingWindowLog, 10_000 }), nil, ""},
		{"log of 10,001", limit(func(l *enforcement.Limit) { l.Algorithm, l.Quota = enforcement.SlidingWindowLog, 10_001 }), []string{l + "/quota"}, "sliding_window_counter"},
		{"window 1 ms", limit(func(l *enforcement.Limit) { l.Window = time.Millisecond }), nil, ""},
		{"window 366 d", limit(func(l *enforcement.Limit) { l.Window = 366 * 24 * time.Hour }), nil, ""},
		{"window 0", limit(func(l *enforcement.Limit) { l.Window = 0 }), []string{l + "/window"}, "1ms"},
		{"window too long", limit(func(l *enforcement.Limit) { l.Window = 366*24*time.Hour + time.Millisecond }), []string{l + "/window"}, "366d"},
		{"window with a part of a millisecond", limit(func(l *enforcement.Limit) { l.Window = 1500 * time.Microsecond }), []string{l + "/window"}, "whole"},
		{"window without a text", limit(func(l *enforcement.Limit) { l.Window = 300*24*time.Hour + time.Millisecond }), []string{l + "/window"}, "ten digits"},
		{"burst of a window", limit(func(l *enforcement.Limit) { l.Burst = 1 }), []string{l + "/burst"}, "token_bucket"},
		{"anchor clock", limit(func(l *enforcement.Limit) { l.Anchor = enforcement.Clock }), nil, ""},
		{"anchor unknown", limit(func(l *enforcement.Limit) { l.Anchor = 9 }), []string{l + "/anchor"}, "first_hit"},
		{"burst", func(d *Content) { d.Policies[1].Limits[0].Burst = enforcement.MaxQuota }, nil, ""},
		{"burst below 0", func(d *Content) { d.Policies[1].Limits[0].Burst = -1 }, []string{"/policies/1/limits/0/burst"}, "1 to"},
		{"burst above", func(d *Content) { d.Policies[1].Limits[0].Burst = enforcement.MaxQuota + 1 }, []string{"/policies/1/limits/0/burst"}, "1 to"},
		{"anchor of a bucket", func(d *Content) { d.Policies[1].Limits[0].Anchor = enforcement.Clock }, []string{"/policies/1/limits/0/anchor"}, "fixed_window"},

		{"all at once", func(d *Content) {
			d.Name = ""
			d.Policies[0].Slug = "-"
			d.Policies[1].Limits[0].Quota = -1
			d.Policies[1].Replaces = []string{"z"}
		}, []string{"/name", p + "/slug", "/policies/1/limits/0/quota", "/policies/1/replaces/0"}, ""},
	} {
		d := valid()
		c.edit(&d)
		err := (Document{d}).Validate()
		if err == nil {
			if c.at != nil {
				t.Errorf("%s: taken", c.name)
			}
			continue
		}
		kind, places := at(t, err)
		if kind != problem.Invalid || !slices.Equal(places, c.at) {
			t.Errorf("%s: %v at %q, want it at %q", c.name, kind, places, c.at)
		}
		var pr *problem.Problem
		if errors.As(err, &pr) && !strings.Contains(pr.Fields[0].Message, c.says) {
			t.Errorf("%s: says %q, want %q in it", c.name, pr.Fields[0].Message, c.says)
		}
	}
}

var unnamed = enforcement.Limit{Algorithm: enforcement.GCRA, Quota: 1, Window: time.Second}

// many policies that cannot meet.
func many(n int) []Policy {
	out := make([]Policy, n)
	for i := range out {
		out[i] = Policy{Slug: fmt.Sprintf("p%d", i), Match: Match{Path: fmt.Sprintf("/p/%d", i)}, Limits: []enforcement.Limit{unnamed}}
	}
	return canonical(Content{Policies: out}).Policies
}

func TestLongCircle(t *testing.T) {
	t.Parallel()
	d := Content{Name: "Pro", Policies: many(5)}
	for from, to := range map[int]string{0: "p3", 3: "p1", 1: "p4", 4: "p3", 2: "p0"} {
		d.Policies[from].Replaces = []string{to}
	}
	var p *problem.Problem
	if err := (Document{d}).Validate(); !errors.As(err, &p) || len(p.Fields) != 1 {
		t.Fatalf("%v, want one fault", err)
	}
	if want := "p3 → p1 → p4 → p3"; p.Fields[0].Pointer != "/policies/4/replaces" || !strings.HasSuffix(p.Fields[0].Message, want) {
		t.Errorf("%+v, want %q", p.Fields[0], want)
	}
}

func TestSampleIsValid(t *testing.T) {
	t.Parallel()
	d := Sample().Content()
	r := NewService(nil, Config{}).Inspect(New(d))
	if len(r.Faults) > 0 {
		t.Errorf("faults: %+v", r.Faults)
	}
	if r.Charges != 2 { // one of the three routes, and the whole tenant
		t.Errorf("%d charges, want 2", r.Charges)
	}
	var got []string
	for _, p := range d.Policies {
		got = append(got, fmt.Sprintf("%s %v %s %v %s", p.Slug, p.Match.Methods, p.Match.Path, p.CountBy, Describe(p.Limits[0])))
	}
	want := []string{
		"login-per-ip [POST] /v1/login [ip] 5 per minute, exact",
		"api-per-user [] /api/* [user] 120 per minute, sliding",
		"search-per-user [] /search [user] 10 per second, bursts of 20",
		"tenant-total [] * [] 100,000 per hour",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the sample is\n%s", strings.Join(got, "\n"))
	}
}
