package enforcement_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
)

// second in microseconds.
const second = int64(1_000_000)

// at returns a clock for an engine that shows the time in now, in microseconds.
func at(now *int64) func() time.Time {
	return func() time.Time { return time.UnixMicro(*now) }
}

// addExceptions returns a copy of s with the exceptions of spec. A fault fails the test.
func addExceptions(t testing.TB, s *enforcement.Subject, spec enforcement.ExceptionSpec) *enforcement.Subject {
	t.Helper()
	withExceptions := *s
	var faults []enforcement.ExceptionFault
	if withExceptions.Exceptions, faults = enforcement.CompileExceptions(spec, s.Plan, s.PlanRevision); len(faults) > 0 {
		t.Fatal(faults)
	}
	return &withExceptions
}

func asked(method, path string, pairs ...string) enforcement.Check {
	c := enforcement.Check{Method: method, Path: path, Cost: 1, Attributes: attributes(pairs...)}
	for _, a := range c.Attributes {
		if a.Name == "ip" {
			c.IP, _, _ = enforcement.CanonicalIP(a.Value)
		}
	}
	return c
}

// The order of precedence of lists, blocks and policies in every mode, and what they charge.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	now := start
	later := start + 10*second
	p := enforcement.RuleSpec{Policy: "p", Path: "/p", CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{window(1, 5)}}
	shadow := enforcement.RuleSpec{Policy: "s", Path: "/p", Mode: enforcement.PolicyShadow, CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{window(2, 5)}}
	denies := enforcement.RuleSpec{Policy: "d", Path: "/d", CountBy: []string{"user"}, Missing: enforcement.MissingDeny, Limits: []enforcement.RuleLimit{window(3, 5)}}
	plain := subject(t, p, shadow, denies)
	block := func(policy, user string) []enforcement.Block {
		return []enforcement.Block{{ID: "b", Policy: policy, Key: attributes("user", user), Until: later}}
	}
	entry := func(value string) []enforcement.ListEntry {
		return []enforcement.ListEntry{{ID: "e", Attribute: "user", Value: value, Until: later}}
	}
	for name, c := range map[string]struct {
		spec          enforcement.ExceptionSpec
		suspended     bool
		denyUnmatched bool
		path          string // /p
		noUser        bool
		enforced      string // the result of a check in mode enforce or peek
		forced        string
		charged       [2]int // the number of charges in mode enforce and in mode force
	}{
		"nothing":                  {enforced: "true ok 0", forced: "true ok 0", charged: [2]int{2, 2}},
		"denied":                   {spec: enforcement.ExceptionSpec{Deny: entry("u")}, enforced: "false denied_by_list -1 list e", forced: "true ok 0", charged: [2]int{0, 2}},
		"allowed":                  {spec: enforcement.ExceptionSpec{Allow: entry("u")}, enforced: "true allowed_by_list 0 list e", forced: "true allowed_by_list 0 list e"},
		"deny before allow":        {spec: enforcement.ExceptionSpec{Deny: entry("u"), Allow: entry("u")}, enforced: "false denied_by_list -1 list e", forced: "true ok 0", charged: [2]int{0, 2}},
		"another user's":           {spec: enforcement.ExceptionSpec{Deny: entry("v"), Allow: entry("w"), Blocks: block("p", "v")}, enforced: "true ok 0", forced: "true ok 0", charged: [2]int{2, 2}},
		"suspended before lists":   {spec: enforcement.ExceptionSpec{Allow: entry("u")}, suspended: true, enforced: "false tenant_suspended -1", forced: "true allowed_by_list 0 list e"},
		"allow before block":       {spec: enforcement.ExceptionSpec{Allow: entry("u"), Blocks: block("p", "u")}, enforced: "true allowed_by_list 0 list e", forced: "true allowed_by_list 0 list e"},
		"allow before no policy":   {spec: enforcement.ExceptionSpec{Allow: entry("u")}, denyUnmatched: true, path: "/n", enforced: "true allowed_by_list 0 list e", forced: "true allowed_by_list 0 list e"},
		"deny before no policy":    {spec: enforcement.ExceptionSpec{Deny: entry("u")}, path: "/n", enforced: "false denied_by_list -1 list e", forced: "true no_policy 0"},
		"blocked":                  {spec: enforcement.ExceptionSpec{Blocks: block("p", "u")}, enforced: "false blocked 10000 block b policy p", forced: "true ok 0", charged: [2]int{0, 2}},
		"another policy's block":   {spec: enforcement.ExceptionSpec{Blocks: block("d", "u")}, enforced: "true ok 0", forced: "true ok 0", charged: [2]int{2, 2}},
		"missing before block":     {spec: enforcement.ExceptionSpec{Blocks: []enforcement.Block{{ID: "b", Policy: "d", Until: later}}}, path: "/d", noUser: true, enforced: "false missing_attribute -1 policy d", forced: "true ok 0", charged: [2]int{0, 1}},
		"block of a missing value": {spec: enforcement.ExceptionSpec{Blocks: []enforcement.Block{{ID: "b", Policy: "p", Until: later}}}, noUser: true, enforced: "false blocked 10000 block b policy p", forced: "true ok 0", charged: [2]int{0, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := addExceptions(t, plain, c.spec)
			s.Suspended, s.DenyUnmatched = c.suspended, c.denyUnmatched
			path := c.path
			if path == "" {
				path = "/p"
			}
			check := asked("GET", path, "user", "u")
			if c.noUser {
				check.Attributes = nil
			}
			for _, mode := range []enforcement.Mode{enforcement.Enforce, enforcement.Peek, enforcement.Force} {
				l := newCounters()
				e := enforcement.NewEngine(l, enforcement.Config{Now: at(&now)})
				check.Mode = mode
				want, charged := c.enforced, c.charged[0]
				if mode == enforcement.Force {
					want, charged = c.forced, c.charged[1]
				}
				d := decide(e, s, check)
				if got := why(d); got != want {
					t.Errorf("%v: %s, want %s", mode, got, want)
				}
				if mode == enforcement.Peek {
					charged = 0
				}
				if len(l.states) != charged {
					t.Errorf("%v: %d counters charged, want %d", mode, len(l.states), charged)
				}
				if d.Reason == enforcement.ReasonAllowedByList && (l.calls != 0 || len(d.Limits) != 0) {
					t.Errorf("%v: an allow-listed check asked for %d limits in %d calls", mode, len(d.Limits), l.calls)
				}
				if want := map[string]string{"/p": "/p", "/d": "/d", "/n": "(none)"}[path]; d.Route != want {
					t.Errorf("%v: route %q", mode, d.Route)
				}
			}
		})
	}
}

// why returns the reason of a decision with its details.
func why(d *enforcement.Decision) string {
	text := fmt.Sprintf("%v %s %d", d.Allowed, d.Reason, d.RetryAfter)
	if d.List != nil {
		text += " list " + d.List.ID
	}
	if d.Block != nil {
		text += " block " + d.Block.ID
	}
	if d.Policy != "" {
		text += " policy " + d.Policy
	}
	if d.Degraded {
		text += " degraded"
	}
	return text
}

// Lists and blocks work without a limiter. The nodes share the numbers of an override like
// those of the plan.
func TestExceptionsWithoutALimiter(t *testing.T) {
	t.Parallel()
	now := start
	s := addExceptions(t, subject(t, enforcement.RuleSpec{Policy: "p", CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{window(1, 2)}}), enforcement.ExceptionSpec{
		Deny:      []enforcement.ListEntry{{ID: "deny", Attribute: "user", Value: "denied"}},
		Allow:     []enforcement.ListEntry{{ID: "allow", Attribute: "user", Value: "allowed"}},
		Blocks:    []enforcement.Block{{ID: "b", Policy: "p", Key: attributes("user", "blocked"), Until: now + 1_500_001}},
		Overrides: []enforcement.Override{{ID: "o", Policy: "p", Attribute: "user", Value: "big", Factor: 4000, Revision: 9, From: now, Until: now + second}},
	})
	e := enforcement.NewEngine(away{enforcement.Failed}, enforcement.Config{Local: newCounters(), Nodes: 2, Now: at(&now)})
	for _, c := range []struct{ user, want string }{
		{"denied", "false denied_by_list -1 list deny"},
		{"allowed", "true allowed_by_list 0 list allow"},
		{"blocked", "false blocked 1501 block b policy p"},
		{"other", "true ok 0 degraded"},
		{"other", "false over_limit 60000 degraded"},
		{"big", "true ok 0 degraded"},
		{"big", "true ok 0 degraded"},
		{"big", "true ok 0 degraded"},
		{"big", "true ok 0 degraded"},
		{"big", "false over_limit 60000 degraded"},
	} {
		d := decide(e, s, asked("", "/", "user", c.user))
		if got := why(d); got != c.want {
			t.Errorf("%s: %s, want %s", c.user, got, c.want)
		}
		if c.user == "blocked" && len(d.Limits) > 0 {
			t.Error("a blocked check tells of limits that nobody was asked about")
		}
	}
	now += second // the override has ended: the share is 1 again, of which 4 are used
	if got := why(decide(e, s, asked("", "/", "user", "big"))); got != "false over_limit 60000 degraded" {
		t.Error(got)
	}
}

// While the shared limiter is unavailable, a cost above the quota of an override is denied as
// such, and the result has the end of the override. A cost that is only above this node's share
// can be allowed when the shared limiter is available again.
func TestOverrideThatRefusesWithoutALimiter(t *testing.T) {
	t.Parallel()
	now := start
	none := func(id, user string, cost, until int64) enforcement.Override {
		return enforcement.Override{
			ID: id, Policy: "p", Attribute: "user", Value: user, Revision: until, From: start, Until: start + until*second,
			Limits: []enforcement.OverrideLimit{{Name: "l1", Quota: cost, Burst: enforcement.Keep}},
		}
	}
	s := addExceptions(t, subject(t, enforcement.RuleSpec{Policy: "p", CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{window(9, 5), window(1, 5)}}), enforcement.ExceptionSpec{
		Overrides: []enforcement.Override{none("1", "u", 0, 5), none("2", "twice", 1, 7), none("3", "twice", 0, 8), none("4", "brief", 0, 9)},
	})
	e := enforcement.NewEngine(away{enforcement.Failed}, enforcement.Config{Local: newCounters(), Nodes: 3, Now: at(&now)})
	for _, c := range []struct {
		user     string
		at, cost int64
		want     string
		until    int64 // seconds
	}{
		{"u", 0, 1, "false cost_exceeds_quota -1 degraded", 5},
		{"u", 0, 6, "false cost_exceeds_quota -1 degraded", 5},
		{"twice", 0, 2, "false cost_exceeds_quota -1 degraded", 8},
		{"brief", 9*second - 1, 1, "false cost_exceeds_quota -1 degraded", 9},
		{"brief", 9 * second, 4, "false over_limit 1000 degraded", 0}, // more than a share
		{"brief", 9 * second, 1, "true ok 0 degraded", 0},
	} {
		now = start + c.at
		check := asked("", "/", "user", c.user)
		check.Cost = c.cost
		d := decide(e, s, check)
		if got := why(d); got != c.want || d.NumbersUntil != 0 && d.NumbersUntil != start+c.until*second || (d.NumbersUntil == 0) != (c.until == 0) {
			t.Errorf("%s, %d units: %s until %d, want %s", c.user, c.cost, got, d.NumbersUntil, c.want)
		}
	}
}

func TestExceptionsOfABatch(t *testing.T) {
	t.Parallel()
	now := start
	s := addExceptions(t, subject(t, enforcement.RuleSpec{Policy: "p", CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{window(1, 1)}}), enforcement.ExceptionSpec{
		Deny:   []enforcement.ListEntry{{ID: "deny", Attribute: "user", Value: "denied"}},
		Allow:  []enforcement.ListEntry{{ID: "allow", Attribute: "user", Value: "allowed"}},
		Blocks: []enforcement.Block{{ID: "b", Policy: "p", Key: attributes("user", "blocked"), Until: now + second}},
	})
	for _, c := range []struct {
		users   string
		atomic  bool
		want    string
		charged int
	}{
		{"denied u", true, "denied_by_list -1, batch_refused -1", 0},
		{"blocked u", true, "blocked 1000, batch_refused 1000", 0},
		{"allowed u", true, "allowed_by_list 0, ok 0", 1},
		{"allowed u u", true, "batch_refused -1, cost_exceeds_quota -1, cost_exceeds_quota -1", 0},
		{"allowed allowed", true, "allowed_by_list 0, allowed_by_list 0", 0},
		{"denied blocked allowed u u", false, "denied_by_list -1, blocked 1000, allowed_by_list 0, ok 0, over_limit 60000", 1},
	} {
		l := newCounters()
		// The window has started, so the retry time is that of a window.
		l.states[enforcement.Key{Tenant: 7, Cell: 1, Partition: s.Plan.Rules[0].PartitionOf(&enforcement.Check{Attributes: attributes("user", "u")})}] = enforcement.State{Rev: 1, T: start}
		before := fmt.Sprint(l.states)
		e := enforcement.NewEngine(l, enforcement.Config{Now: at(&now)})
		var items []enforcement.BatchItem
		for user := range strings.FieldsSeq(c.users) {
			check := asked("", "/", "user", user)
			items = append(items, enforcement.BatchItem{Subject: s, Check: &check, Decision: new(enforcement.Decision)})
		}
		e.DecideBatch(context.Background(), items, c.atomic)
		var got []string
		for _, i := range items {
			got = append(got, fmt.Sprint(i.Decision.Reason, " ", i.Decision.RetryAfter))
			if i.Decision.Reason == enforcement.ReasonBatchRefused && i.Decision.List != nil {
				t.Errorf("%s: refused with the batch, and by a list too", c.users)
			}
		}
		if diff := cmp.Diff(c.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.users, diff)
		}
		if (fmt.Sprint(l.states) != before) != (c.charged > 0) || l.calls > 1 {
			t.Errorf("%s: %v after %d calls", c.users, l.states, l.calls)
		}
	}
}

// Every exception with an end has an effect until this time, and not after it.
func TestExceptionsEnds(t *testing.T) {
	t.Parallel()
	end := start + 5*second
	spec := enforcement.RuleSpec{Policy: "p", CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{window(1, 3)}}
	s := addExceptions(t, subject(t, spec), enforcement.ExceptionSpec{
		Deny: []enforcement.ListEntry{
			{ID: "1", Attribute: "user", Value: "denied", Until: end},
			{ID: "2", Attribute: "user", Value: "denied", Until: end - 1},
			{ID: "3", Attribute: "user", Value: "always", Until: end},
			{ID: "4", Attribute: "user", Value: "always"},
		},
		Allow:     []enforcement.ListEntry{{ID: "5", Attribute: "user", Value: "allowed", Until: end}},
		Blocks:    []enforcement.Block{{ID: "6", Policy: "p", Key: attributes("user", "blocked"), Until: end - 1}, {ID: "7", Policy: "p", Key: attributes("user", "blocked"), Until: end}},
		Overrides: []enforcement.Override{{ID: "8", Policy: "p", Attribute: "user", Value: "big", Factor: 2000, Revision: 5, From: start, Until: end}},
	})
	now := start
	e := enforcement.NewEngine(newCounters(), enforcement.Config{Now: at(&now)})
	for _, c := range []struct {
		at   int64
		user string
		want string
		left int64
	}{
		{end - 1, "denied", "false denied_by_list -1 list 1", -1},
		{end, "denied", "true ok 0", 2},
		{end, "always", "false denied_by_list -1 list 4", -1},
		{end - 1, "allowed", "true allowed_by_list 0 list 5", -1},
		{end, "allowed", "true ok 0", 2},
		{end - 1, "blocked", "false blocked 1 block 7 policy p", -1},
		{end, "blocked", "true ok 0", 2},
		{end - 1, "big", "true ok 0", 5},
		{end, "big", "true ok 0", 1}, // the units that were used before are still used
	} {
		now = c.at
		d := decide(e, s, asked("", "/", "user", c.user))
		left := int64(-1)
		if len(d.Limits) > 0 {
			left = d.Limits[0].Remaining
		}
		if got := why(d); got != c.want || left != c.left {
			t.Errorf("%s at %d: %s, %d left; want %s, %d", c.user, c.at-end, got, left, c.want, c.left)
		}
	}
}

// Lists match addresses by networks, the longest prefix first, and return the matching
// entry.
func TestListNetworks(t *testing.T) {
	t.Parallel()
	now := start
	s := addExceptions(t, subject(t), enforcement.ExceptionSpec{Deny: []enforcement.ListEntry{
		{ID: "v4", Attribute: "ip", Value: "192.0.2.0/24"},
		{ID: "longer", Attribute: "ip", Value: "192.0.2.128/25"},
		{ID: "ended", Attribute: "ip", Value: "192.0.2.192/26", Until: now},
		{ID: "one", Attribute: "ip", Value: "192.0.2.1"},
		{ID: "v6", Attribute: "ip", Value: "2001:db8::/32"},
		{ID: "name", Attribute: "country", Value: "xx"},
	}})
	e := enforcement.NewEngine(newCounters(), enforcement.Config{Now: at(&now)})
	for value, want := range map[string]string{
		"192.0.2.1": "one", "192.0.2.2": "v4", "192.0.2.129": "longer", "192.0.2.200": "longer", "192.0.3.1": "",
		"2001:db8:1::1": "v6", "2001:db9::": "", "c000:201::": "", "::ffff:192.0.2.2": "v4",
	} {
		d := decide(e, s, asked("", "/", "ip", value))
		got := ""
		if d.List != nil {
			got = d.List.ID
		}
		if got != want {
			t.Errorf("%s: entry %q, want %q", value, got, want)
		}
	}
	if d := decide(e, s, asked("", "/", "country", "xx")); d.List == nil || d.List.ID != "name" {
		t.Error("an exact value of another attribute is not found")
	}
	if d := decide(e, s, asked("", "/", "country", "xxx", "ip", "198.51.100.1")); d.List != nil {
		t.Errorf("entry %s", d.List.ID)
	}
}

// The override that applies to a key.
func TestOverrideChoice(t *testing.T) {
	t.Parallel()
	now := start
	end := start + second
	s := addExceptions(t, subject(t, enforcement.RuleSpec{Policy: "p", CountBy: []string{"user", "ip/64", "app"}, Limits: []enforcement.RuleLimit{window(1, 1)}}), enforcement.ExceptionSpec{Overrides: []enforcement.Override{
		{ID: "all", Policy: "p", Factor: 2000, Revision: 10, Until: end},
		{ID: "all-newer", Policy: "p", Factor: 2000, Revision: 11, Until: end},
		{ID: "user", Policy: "p", Attribute: "user", Value: "ann", Factor: 2000, Revision: 2, Until: end},
		{ID: "user-newer", Policy: "p", Attribute: "user", Value: "ann", Factor: 2000, Revision: 3, Until: end},
		{ID: "user-ended", Policy: "p", Attribute: "user", Value: "ann", Factor: 2000, Revision: 12, Until: now},
		{ID: "app", Policy: "p", Attribute: "app", Value: "web", Factor: 2000, Revision: 4, Until: end},
		{ID: "an", Policy: "p", Attribute: "user", Prefix: "an", Factor: 2000, Revision: 20, Until: end},
		{ID: "an-newer", Policy: "p", Attribute: "user", Prefix: "an", Factor: 2000, Revision: 21, Until: end},
		{ID: "anna", Policy: "p", Attribute: "user", Prefix: "anna", Factor: 2000, Revision: 5, Until: end},
		{ID: "/24", Policy: "p", Attribute: "ip", Prefix: "192.0.2.0/24", Factor: 2000, Revision: 6, Until: end},
		{ID: "/16", Policy: "p", Attribute: "ip", Prefix: "192.0.0.0/16", Factor: 2000, Revision: 22, Until: end},
		{ID: "/48", Policy: "p", Attribute: "ip", Prefix: "2001:db8:1::/48", Factor: 2000, Revision: 7, Until: end},
		{ID: "address", Policy: "p", Attribute: "ip", Value: "192.0.2.9", Factor: 2000, Revision: 1, Until: end},
	}})
	e := enforcement.NewEngine(newCounters(), enforcement.Config{Now: at(&now)})
	for key, want := range map[string]string{
		"":                         "all-newer",
		"user bob":                 "all-newer",
		"user ann":                 "user-newer",
		"user ann app web":         "app", // also an exact value, and newer
		"user an":                  "an-newer",
		"user andy":                "an-newer",
		"user anna":                "anna",
		"user annabel":             "anna",
		"user annabel app web":     "app",
		"ip 192.0.2.1":             "/24",
		"ip 192.0.2.9":             "address",
		"ip 192.0.9.9":             "/16",
		"user andy ip 192.0.9.9":   "/16", // both match 16 bits: the newest applies
		"user andy ip 192.0.2.1":   "/24",
		"user anna ip 192.0.2.1":   "anna", // both match 32 bits
		"ip 2001:db8:1:2::3":       "/48",
		"user ann ip 192.0.2.1":    "user-newer",
		"ip 2001:db8:2::1 user zz": "all-newer",
	} {
		d := decide(e, s, asked("", "/", strings.Fields(key)...))
		if got := d.Limits[0].Override; got == nil || got.ID != want || d.Limits[0].Limit.Quota != 2 {
			t.Errorf("%q: override %v with quota %d, want %s", key, got, d.Limits[0].Limit.Quota, want)
		}
	}
	now = end
	if d := decide(e, s, asked("", "/", "user", "zoe")); d.Limits[0].Override != nil || d.Limits[0].Limit.Quota != 1 {
		t.Error("an override holds after its end")
	}
}

// A factor rounds down, keeps at least 1 of a positive number, and has an upper bound. An
// override changes only the numbers that it sets.
func TestOverrideNumbers(t *testing.T) {
	t.Parallel()
	now := start
	for name, c := range map[string]struct {
		algorithm           enforcement.Algorithm
		quota, burst        int64
		factor              int64
		limits              []enforcement.OverrideLimit
		wantQuota, wantTake int64 // and the capacity of a bucket
	}{
		"down":             {algorithm: enforcement.FixedWindow, quota: 9, factor: 1500, wantQuota: 13},
		"at least 1":       {algorithm: enforcement.FixedWindow, quota: 9, factor: 1, wantQuota: 1},
		"0 stays":          {algorithm: enforcement.FixedWindow, quota: 0, factor: enforcement.MaxFactor, wantQuota: 0},
		"cap":              {algorithm: enforcement.FixedWindow, quota: enforcement.MaxQuota, factor: enforcement.MaxFactor, wantQuota: enforcement.MaxQuota},
		"cap of a log":     {algorithm: enforcement.SlidingWindowLog, quota: 100, factor: enforcement.MaxFactor, wantQuota: enforcement.MaxLog},
		"burst as quota":   {algorithm: enforcement.TokenBucket, quota: 10, factor: 2500, wantQuota: 25, wantTake: 25},
		"burst":            {algorithm: enforcement.GCRA, quota: 10, burst: 3, factor: 500, wantQuota: 5, wantTake: 1},
		"limits":           {algorithm: enforcement.TokenBucket, quota: 10, burst: 3, limits: []enforcement.OverrideLimit{{Name: "l1", Quota: 7, Burst: enforcement.Keep}}, wantQuota: 7, wantTake: 3},
		"limits, no burst": {algorithm: enforcement.TokenBucket, quota: 10, burst: 3, limits: []enforcement.OverrideLimit{{Name: "l1", Quota: enforcement.Keep, Burst: 0}}, wantQuota: 10, wantTake: 10},
		"limits, window":   {algorithm: enforcement.FixedWindow, quota: 10, limits: []enforcement.OverrideLimit{{Name: "l1", Quota: 0, Window: time.Hour}}, wantQuota: 0},
	} {
		l := enforcement.Limit{Name: "l1", Algorithm: c.algorithm, Quota: c.quota, Burst: c.burst, Window: time.Minute}
		other := limit("l2", 2, enforcement.FixedWindow, 4, time.Minute)
		s := addExceptions(t, subject(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{{Limit: l, Cell: 1, Meter: l.Compile(1)}, other}}), enforcement.ExceptionSpec{
			Overrides: []enforcement.Override{{ID: "o", Policy: "p", Factor: c.factor, Limits: c.limits, Revision: 3, Until: now + 1}},
		})
		e := enforcement.NewEngine(newCounters(), enforcement.Config{Now: at(&now)})
		d := decide(e, s, enforcement.Check{Cost: 1})
		got := d.Limits[0].Limit
		if got.Quota != c.wantQuota || got.Meter.Quota != c.wantQuota || c.wantTake != 0 && got.Meter.Capacity != c.wantTake || got.HeaderName != "p.l1" {
			t.Errorf("%s: %+v with meter %+v", name, got.Limit, got.Meter)
		}
		if unchanged := d.Limits[1].Limit; len(c.limits) > 0 && (unchanged.Quota != 4 || unchanged.Meter.Rev != 3) {
			t.Errorf("%s: the other limit became %+v", name, unchanged)
		}
	}
}

// Rows that do not fit the plan have no effect, are reported, and do not change the others.
func TestExceptionsFaults(t *testing.T) {
	t.Parallel()
	counted := enforcement.RuleSpec{Policy: "p", CountBy: []string{"user", "ip/64"}, Limits: []enforcement.RuleLimit{window(1, 1)}}
	shadow := enforcement.RuleSpec{Policy: "s", CountBy: []string{"ip"}, Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{limit("log", 2, enforcement.SlidingWindowLog, 1, time.Minute)}}
	s := subject(t, counted, shadow)
	until := start + second
	limits := func(names ...string) (list []enforcement.OverrideLimit) {
		for _, n := range names {
			list = append(list, enforcement.OverrideLimit{Name: n, Quota: 5, Burst: enforcement.Keep})
		}
		return list
	}
	spec := enforcement.ExceptionSpec{
		Deny: []enforcement.ListEntry{{ID: "network", Attribute: "ip", Value: "192.0.2.1/24"}},
		Blocks: []enforcement.Block{
			{ID: "block", Policy: "gone", Until: until},
			{ID: "shadow", Policy: "s", Until: until},
			{ID: "part", Policy: "p", Key: attributes("app", "x"), Until: until},
		},
		Overrides: []enforcement.Override{
			{ID: "policy", Policy: "gone", Factor: 1, Until: until},
			{ID: "limit", Policy: "p", Limits: limits("gone"), Until: until},
			{ID: "attribute", Policy: "p", Attribute: "app", Value: "x", Factor: 1, Until: until},
			{ID: "half", Policy: "p", Attribute: "ip", Value: "2001:db8::1", Factor: 1, Until: until},
			{ID: "long", Policy: "p", Attribute: "ip", Prefix: "2001:db8::/65", Factor: 1, Until: until},
			{ID: "bits", Policy: "p", Attribute: "ip", Prefix: "2001:db8::1/32", Factor: 1, Until: until},
			{ID: "exact", Policy: "p", Attribute: "ip", Value: "192.0.2.0/24", Factor: 1, Until: until},
			{ID: "both", Policy: "p", Factor: 1, Limits: limits("l1"), Until: until},
			{ID: "neither", Policy: "p", Until: until},
			{ID: "value", Policy: "p", Attribute: "user", Factor: 1, Until: until},
			{ID: "log", Policy: "s", Limits: []enforcement.OverrideLimit{{Name: "log", Quota: enforcement.MaxLog + 1}}, Until: until},
			{ID: "window", Policy: "p", Limits: []enforcement.OverrideLimit{{Name: "l1", Quota: 1, Window: time.Microsecond}}, Until: until},
		},
	}
	got, faults := enforcement.CompileExceptions(spec, s.Plan, s.PlanRevision)
	if got != nil {
		t.Error("something is left of what cannot be used")
	}
	var ids []string
	for _, f := range faults {
		ids = append(ids, f.ID)
		if f.Err == nil || f.Partial {
			t.Errorf("%s: %v, partial %v", f.ID, f.Err, f.Partial)
		}
	}
	want := "network block shadow part policy limit attribute half long bits exact both neither value log window"
	if diff := cmp.Diff(want, strings.Join(ids, " ")); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}

	// Whole overrides and parts of overrides.
	spec.Overrides = append(spec.Overrides,
		enforcement.Override{ID: "partial", Policy: "p", Limits: limits("gone", "l1"), Revision: 4, Until: until},
		enforcement.Override{ID: "address", Policy: "s", Attribute: "ip", Value: "2001:db8::1", Factor: 2000, Revision: 5, Until: until},
		enforcement.Override{ID: "longer", Policy: "s", Attribute: "ip", Prefix: "2001:db8::/100", Factor: 3000, Revision: 5, Until: until})
	got, faults = enforcement.CompileExceptions(spec, s.Plan, s.PlanRevision)
	if !slices.ContainsFunc(faults, func(f enforcement.ExceptionFault) bool { return f.ID == "partial" && f.Partial }) || len(faults) != 17 {
		t.Errorf("faults %v", faults)
	}
	s.Exceptions = got
	now := start
	e := enforcement.NewEngine(newCounters(), enforcement.Config{Now: at(&now)})
	d := decide(e, s, asked("", "/", "ip", "2001:db8::1"))
	if d.Limits[0].Override.ID != "partial" || d.Limits[0].Limit.Quota != 5 || d.Limits[1].Override.ID != "address" {
		t.Error(summary(d))
	}
	if d := decide(e, s, asked("", "/", "ip", "2001:db8::2")); d.Limits[1].Override.ID != "longer" {
		t.Error(summary(d))
	}
}

// The field Changes of a tenant stays after an override ended, while the numbers of the plan
// are older.
func TestExceptionsLeftovers(t *testing.T) {
	t.Parallel()
	s := subject(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{window(1, 1)}})
	for _, c := range []struct {
		changed, planRevision int64
		left                  bool
	}{{1, 1, false}, {2, 1, true}, {2, 2, false}, {2, 3, false}} {
		spec := enforcement.ExceptionSpec{Changed: map[string]int64{"p": c.changed, "gone": 99}}
		got, faults := enforcement.CompileExceptions(spec, s.Plan, c.planRevision)
		if got != nil != c.left || len(faults) > 0 {
			t.Errorf("%+v: %v, %v", c, got, faults)
		}
		if got == nil {
			continue
		}
		l, now := newCounters(), start
		withExceptions := *s
		withExceptions.Exceptions = got
		decide(enforcement.NewEngine(l, enforcement.Config{Now: at(&now)}), &withExceptions, enforcement.Check{Cost: 1})
		if rev := l.asked[0].Charges[0].Rev; rev != 2 {
			t.Errorf("charged at revision %d", rev)
		}
	}
	if got, _ := enforcement.CompileExceptions(enforcement.ExceptionSpec{Allow: []enforcement.ListEntry{{Attribute: "a", Value: "b"}}}, nil, 0); got == nil {
		t.Error("lists need no plan")
	}
	if got, _ := enforcement.CompileExceptions(enforcement.ExceptionSpec{}, s.Plan, 1); got != nil {
		t.Error("nothing is something")
	}
}

// A decision allocates nothing, with and without exceptions.
func TestExceptionsDecideAllocatesNothing(t *testing.T) {
	now := start
	plain := subject(t, enforcement.RuleSpec{Policy: "p", CountBy: []string{"user", "ip/64"}, Limits: []enforcement.RuleLimit{window(1, 9), window(2, 9)}})
	withExceptions := addExceptions(t, plain, enforcement.ExceptionSpec{
		Deny:      []enforcement.ListEntry{{ID: "e", Attribute: "ip", Value: "192.0.2.0/24"}, {ID: "f", Attribute: "user", Value: "denied"}},
		Blocks:    []enforcement.Block{{ID: "b", Policy: "p", Key: attributes("user", "blocked"), Until: start + second}},
		Overrides: []enforcement.Override{{ID: "o", Policy: "p", Attribute: "user", Prefix: "u", Factor: 2000, Revision: 4, Until: start + second}},
	})
	unasked := enforcement.Config{
		Now:   func() time.Time { t.Error("the clock is asked"); return time.Time{} },
		NewID: func() [16]byte { return [16]byte{} },
	}
	clocked := enforcement.Config{Now: at(&now)}
	for name, c := range map[string]struct {
		config enforcement.Config
		s      *enforcement.Subject
		user   string
	}{
		"plain":    {unasked, plain, "u1"},
		"override": {clocked, withExceptions, "u1"},
		"other":    {clocked, withExceptions, "x"},
		"denied":   {clocked, withExceptions, "denied"},
		"blocked":  {clocked, withExceptions, "blocked"},
	} {
		e := enforcement.NewEngine(inprocess.New(inprocess.Config{}), c.config)
		check := asked("", "/a", "user", c.user)
		var d enforcement.Decision
		ctx := context.Background()
		if n := testing.AllocsPerRun(200, func() { e.Decide(ctx, c.s, &check, &d) }); n > 0 && !raced {
			t.Errorf("%s: %v allocations a check", name, n)
		}
	}
}
