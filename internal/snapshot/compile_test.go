package snapshot

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// compile calls Compile and fails the test if the snapshot is held back.
func compile(t testing.TB, previous *Snapshot, c Changes, o Options) *Snapshot {
	t.Helper()
	s, report := Compile(previous, c, o)
	if report.Held != nil {
		t.Fatalf("held: %v", report.Held)
	}
	return s
}

func since(t testing.TB, w *world, s *Snapshot) Changes {
	t.Helper()
	c, err := w.Changes(t.Context(), s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func subject(t testing.TB, s *Snapshot, name string) *enforcement.Subject {
	t.Helper()
	got, ok := s.Subject(name)
	if !ok {
		t.Fatalf("tenant %s is not in the snapshot; problems: %v", name, s.Problems())
	}
	return got
}

func TestWholeWorld(t *testing.T) {
	t.Parallel()
	w := smallWorld(5)
	s := compile(t, nil, w.changes(), Options{})
	if got, want := s.Counts(), (Counts{Plans: 3, Policies: 6, Tenants: 5, Keys: 6}); got != want {
		t.Errorf("counts = %+v, want %+v", got, want)
	}
	if s.ProblemCount() != 0 {
		t.Errorf("problems: %v", s.Problems())
	}
	one, four := subject(t, s, "tenant-1"), subject(t, s, tenantID(4))
	if one.Plan != four.Plan {
		t.Error("two tenants of one plan have two compiled plans")
	}
	if two := subject(t, s, "tenant-2"); two.Plan == one.Plan || two.Plan.Slug != "plan-3" {
		t.Errorf("tenant-2 is on %s", two.Plan.Slug)
	}
	k, ok := s.Key(keyHash("key-4"))
	if !ok || k.Subject != four || k.Operator || !k.Scopes.Has(tenants.ScopeCheck) || k.Scopes.Has(tenants.ScopeRead) {
		t.Errorf("key-4 = %+v, %t", k, ok)
	}
	op, ok := s.Key(keyHash("op"))
	if !ok || op.Subject != nil || !op.Operator || !op.Scopes.Has(tenants.ScopeRead) || op.Scopes.Has(tenants.ScopeCheck) {
		t.Errorf("operator key = %+v, %t", op, ok)
	}
	if _, ok := s.Key(keyHash("nobody")); ok {
		t.Error("an unknown hash has a key")
	}
	for _, name := range []string{"", "tenant-6", "TENANT-1", "tenant-1 ", tenantID(6)} {
		if _, ok := s.Subject(name); ok {
			t.Errorf("tenant %q exists", name)
		}
	}
	limit := one.Plan.Rules[1].Limits[0]
	if limit.Cell != 2 || limit.Meter.Quota != 20 || limit.Meter.Rev != 1 || limit.HeaderName != "policy-1" {
		t.Errorf("limit = %+v, meter = %+v", limit, limit.Meter)
	}
}

func TestHeaderNameAndFormers(t *testing.T) {
	t.Parallel()
	w := newWorld()
	p := aPlan(1, 2, 10)
	second := enforcement.Limit{Name: "slow", Algorithm: enforcement.TokenBucket, Quota: 100, Window: time.Hour}
	policies(func(d *plans.Content) { d.Policies[0].Limits = append(d.Policies[0].Limits, second) })(&p)
	former := enforcement.Former{Numbers: enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 7, Window: time.Second}.Numbers(), Rev: 2, Until: 99}
	p.Limits = append(p.Limits, plans.Published{
		Cell: plans.Cell{Number: 7, Policy: "policy-0", Limit: "slow", Algorithm: enforcement.TokenBucket, CountBy: []string{"user"}},
		Rev:  5, Limit: second, Formers: []enforcement.Former{former},
	})
	w.putPlan(p)
	w.putTenant(aTenant(1, 1))
	s := compile(t, nil, w.changes(), Options{})
	limits := subject(t, s, "tenant-1").Plan.Rules[0].Limits
	if limits[0].HeaderName != "policy-0.l1" || limits[1].HeaderName != "policy-0.slow" {
		t.Errorf("header names %q, %q", limits[0].HeaderName, limits[1].HeaderName)
	}
	if m := limits[1].Meter; m.Rev != 5 || len(m.Formers) != 1 || m.Formers[0] != former {
		t.Errorf("meter = %+v", m)
	}
}

func TestKeyValidity(t *testing.T) {
	t.Parallel()
	at := func(us int64) time.Time { return time.UnixMicro(us) }
	for _, c := range []struct {
		name             string
		expires, revoked time.Time
		now              int64
		valid            bool
	}{
		{"neither", time.Time{}, time.Time{}, 100, true},
		{"before expiry", at(101), time.Time{}, 100, true},
		{"at expiry", at(100), time.Time{}, 100, false},
		{"before revocation", time.Time{}, at(101), 100, true},
		{"at revocation", time.Time{}, at(100), 100, false},
		{"the earlier counts", at(200), at(50), 100, false},
		{"revoked before the epoch", time.Time{}, at(-5), 100, false},
		{"year 9999", at(253370764800000000), time.Time{}, 100, true},
	} {
		w := smallWorld(1)
		k := aKey("k", 1)
		k.ExpiresAt, k.RevokedAt = c.expires, c.revoked
		w.putKey(k)
		s := compile(t, nil, w.changes(), Options{})
		got, ok := s.Key(keyHash("k"))
		if !ok || got.Valid(c.now) != c.valid {
			t.Errorf("%s: found %t, valid %t, want %t", c.name, ok, got.Valid(c.now), c.valid)
		}
	}
}

func TestHasOperatorKey(t *testing.T) {
	t.Parallel()
	now := time.UnixMicro(1_000)
	o := Options{Now: func() time.Time { return now }}
	w := newWorld()
	s := compile(t, nil, w.changes(), o)
	if s.HasOperatorKey() {
		t.Error("an empty world has an operator key")
	}
	w.edit(func(r int64) {
		w.keys["a"] = tenants.Key{ID: "a", Hash: keyHash("a"), Revision: r, ExpiresAt: time.UnixMicro(2_000)}
		w.keys["b"] = tenants.Key{ID: "b", Hash: keyHash("b"), Revision: r, RevokedAt: time.UnixMicro(500)}
	})
	s = compile(t, s, since(t, w, s), o)
	if !s.HasOperatorKey() {
		t.Error("a valid operator key does not count")
	}
	now = time.UnixMicro(2_000)
	if s.HasOperatorKey() {
		t.Error("an expired operator key counts")
	}
	now = time.UnixMicro(1_000)
	w.remove("operator_key", "a")
	if s = compile(t, s, since(t, w, s), o); s.HasOperatorKey() {
		t.Error("a removed operator key counts")
	}
}

func TestIncrement(t *testing.T) {
	t.Parallel()
	w := smallWorld(6)
	first := compile(t, nil, w.changes(), Options{})
	next := func(s *Snapshot) (*Snapshot, Report) {
		n, report := Compile(s, since(t, w, s), Options{})
		if report.Held != nil {
			t.Fatal(report.Held)
		}
		return n, report
	}

	// A plan's new version reaches its tenants and their keys, and nobody else.
	w.putPlan(aPlan(2, 2, 99))
	s, report := next(first)
	if report.Plans != 1 || report.Tenants != 2 || report.Keys != 0 || report.Full {
		t.Errorf("a publish compiled %+v", report)
	}
	if got := subject(t, s, "tenant-1").Plan; got.Version != 2 || got.Rules[0].Limits[0].Quota != 99 {
		t.Errorf("tenant-1 is on version %d", got.Version)
	}
	if k, _ := s.Key(keyHash("key-1")); k.Subject != subject(t, s, "tenant-1") {
		t.Error("the key leads to the old tenant")
	}
	if subject(t, s, "tenant-2") != subject(t, first, "tenant-2") {
		t.Error("a tenant of another plan was made anew")
	}
	if subject(t, first, "tenant-1").Plan.Version != 1 {
		t.Error("the old snapshot changed")
	}

	// A tenant is suspended and loses a key.
	tenant := aTenant(3, 1)
	tenant.Status = tenants.Suspended
	w.putTenant(tenant)
	w.remove("key", "key-4")
	s2, report := next(s)
	if report.Tenants != 1 || report.Plans != 0 {
		t.Errorf("an edit of one tenant compiled %+v", report)
	}
	if k, _ := s2.Key(keyHash("key-3")); !k.Subject.Suspended {
		t.Error("the suspension has not reached the key")
	}
	if _, ok := s2.Key(keyHash("key-4")); ok {
		t.Error("a removed key is there")
	}
	if _, ok := s.Key(keyHash("key-4")); !ok {
		t.Error("the old snapshot lost a key")
	}

	// In one change: a key goes, another comes, the plan moves.
	w.remove("key", "key-1")
	w.putKey(aKey("key-1b", 1))
	w.putPlan(aPlan(2, 3, 5))
	s3, _ := next(s2)
	if k, ok := s3.Key(keyHash("key-1b")); !ok || k.Subject.Plan.Version != 3 {
		t.Errorf("key-1b = %+v, %t", k, ok)
	}

	// A tenant goes with its keys; its slug can be taken again.
	w.remove("tenant", tenantID(5))
	heir := aTenant(50, 1)
	heir.Slug = "tenant-5"
	w.putTenant(heir)
	s4, _ := next(s3)
	if _, ok := s4.Key(keyHash("key-5")); ok {
		t.Error("the key of a removed tenant is there")
	}
	if got := subject(t, s4, "tenant-5"); got.Number != 50 {
		t.Errorf("tenant-5 has number %d", got.Number)
	}
	if s4.ProblemCount() != 0 {
		t.Errorf("problems: %v", s4.Problems())
	}
	// What increments made is what the whole world makes.
	whole := compile(t, nil, w.changes(), Options{})
	if whole.Counts() != s4.Counts() {
		t.Errorf("increments: %+v, whole: %+v", s4.Counts(), whole.Counts())
	}
}

// The number of tenants without a plan follows changes of tenants and of their plans.
func TestPlanlessTenantsAreCounted(t *testing.T) {
	t.Parallel()
	w := smallWorld(3)
	s := compile(t, nil, w.changes(), Options{})
	bare := aTenant(2, 1)
	bare.Plan, bare.PlanID = "", ""
	for i, step := range []struct {
		edit func()
		want int
	}{
		{func() {}, 0},
		{func() { w.putTenant(bare) }, 1},
		{func() { w.putPlan(aPlan(1, 3, 5)) }, 1},
		{func() { w.putTenant(aTenant(2, 1)) }, 0},
		{func() { w.putTenant(bare) }, 1},
		{func() { w.remove("tenant", tenantID(2)) }, 0},
	} {
		step.edit()
		s = compile(t, s, since(t, w, s), Options{})
		whole := compile(t, nil, w.changes(), Options{})
		if got := s.Counts().Planless; got != step.want || whole.Counts().Planless != step.want {
			t.Errorf("step %d: %d, whole %d, want %d", i, got, whole.Counts().Planless, step.want)
		}
	}
}

// badRows were written past the service. Each makes plan 1 or tenant 1 unusable.
var badRows = []struct {
	name   string
	plan   func(*PublishedPlan)
	tenant func(*tenants.Tenant)
}{
	{name: "cannot be read", plan: func(p *PublishedPlan) { p.Broken = "unexpected end"; p.Document = plans.Document{} }},
	{name: "blank plan slug", plan: func(p *PublishedPlan) { p.Slug = "" }},
	{name: "version 0", plan: func(p *PublishedPlan) { p.Version = 0 }},
	{name: "blank policy", plan: policies(func(d *plans.Content) { d.Policies[0] = plans.Policy{} })},
	{name: "blank policy slug", plan: policies(func(d *plans.Content) { d.Policies[0].Slug = "" })},
	{name: "policy slug twice", plan: policies(func(d *plans.Content) { d.Policies[1].Slug = "policy-0" })},
	{name: "policy slug with a colon", plan: policies(func(d *plans.Content) { d.Policies[0].Slug = "a:b" })},
	{name: "unknown mode", plan: policies(func(d *plans.Content) { d.Policies[0].Mode = "maybe" })},
	{name: "unknown missing", plan: policies(func(d *plans.Content) { d.Policies[0].Missing = "guess" })},
	{name: "unknown on_failure", plan: policies(func(d *plans.Content) { d.Policies[0].OnFailure = "pray" })},
	{name: "unknown consistency", plan: policies(func(d *plans.Content) { d.Policies[0].Consistency = "eventual" })},
	{name: "empty count_by", plan: policies(func(d *plans.Content) { d.Policies[0].CountBy = []string{""} })},
	{name: "count_by twice", plan: policies(func(d *plans.Content) { d.Policies[0].CountBy = []string{"user", "user"} })},
	{name: "pattern that is none", plan: policies(func(d *plans.Content) { d.Policies[0].Match.Path = "no/slash" })},
	{name: "replaces a stranger", plan: policies(func(d *plans.Content) { d.Policies[0].Replaces = []string{"nobody"} })},
	{name: "replaces itself", plan: policies(func(d *plans.Content) { d.Policies[0].Replaces = []string{"policy-0"} })},
	{name: "replaces in a circle", plan: policies(func(d *plans.Content) {
		d.Policies[0].Replaces = []string{"policy-1"}
		d.Policies[1].Replaces = []string{"policy-0"}
	})},
	{name: "blank limit", plan: policies(func(d *plans.Content) { d.Policies[0].Limits[0] = enforcement.Limit{} })},
	{name: "limit name twice", plan: policies(func(d *plans.Content) {
		d.Policies[0].Limits = append(d.Policies[0].Limits, d.Policies[0].Limits[0])
	})},
	{name: "unknown algorithm", plan: limit(func(l *enforcement.Limit) { l.Algorithm = 200 })},
	{name: "no algorithm", plan: limit(func(l *enforcement.Limit) { l.Algorithm = 0 })},
	{name: "negative quota", plan: limit(func(l *enforcement.Limit) { l.Quota = -1 })},
	{name: "least quota", plan: limit(func(l *enforcement.Limit) { l.Quota = math.MinInt64 })},
	{name: "huge quota", plan: limit(func(l *enforcement.Limit) { l.Quota = math.MaxInt64 })},
	{name: "no window", plan: limit(func(l *enforcement.Limit) { l.Window = 0 })},
	{name: "negative window", plan: limit(func(l *enforcement.Limit) { l.Window = -time.Minute })},
	{name: "window of a microsecond", plan: limit(func(l *enforcement.Limit) { l.Window = time.Microsecond })},
	{name: "window of 367 days", plan: limit(func(l *enforcement.Limit) { l.Window = 367 * 24 * time.Hour })},
	{name: "window with a fraction", plan: limit(func(l *enforcement.Limit) { l.Window = time.Second + 1 })},
	{name: "burst of a window", plan: limit(func(l *enforcement.Limit) { l.Burst = 5 })},
	{name: "negative burst", plan: limit(func(l *enforcement.Limit) { l.Algorithm, l.Burst = enforcement.TokenBucket, -5 })},
	{name: "huge log", plan: limit(func(l *enforcement.Limit) { l.Algorithm, l.Quota = enforcement.SlidingWindowLog, 10_001 })},
	{name: "unknown anchor", plan: limit(func(l *enforcement.Limit) { l.Anchor = 9 })},
	{name: "no cells", plan: func(p *PublishedPlan) { p.Limits = nil }},
	{name: "cell 0", plan: func(p *PublishedPlan) { p.Limits[0].Cell.Number = 0 }},
	{name: "one cell for two limits", plan: func(p *PublishedPlan) { p.Limits[1].Cell.Number = 1 }},
	{name: "revision 0", plan: func(p *PublishedPlan) { p.Limits[0].Rev = 0 }},
	{name: "other numbers in force", plan: func(p *PublishedPlan) { p.Limits[0].Limit.Quota = 11 }},
	{name: "former rate by zero", plan: func(p *PublishedPlan) {
		d := p.Document.Content()
		l := &d.Policies[0].Limits[0]
		l.Algorithm = enforcement.TokenBucket
		p.Document = plans.New(d)
		p.Limits[0].Cell.Algorithm, p.Limits[0].Limit, p.Limits[0].Rev = l.Algorithm, *l, 5
		f := enforcement.Former{Numbers: l.Numbers(), Rev: 2}
		f.Q = 0
		p.Limits[0].Formers = []enforcement.Former{f}
	}},
	{name: "former later than now", plan: func(p *PublishedPlan) {
		p.Limits[0].Formers = []enforcement.Former{{Numbers: p.Limits[0].Limit.Numbers(), Rev: 9}}
	}},
	{name: "blank tenant slug", tenant: func(t *tenants.Tenant) { t.Slug = "" }},
	{name: "tenant slug with a slash", tenant: func(t *tenants.Tenant) { t.Slug = "a/b" }},
	{name: "another's slug", tenant: func(t *tenants.Tenant) { t.Slug = "tenant-2" }},
	{name: "number 0", tenant: func(t *tenants.Tenant) { t.Number = 0 }},
	{name: "another's number", tenant: func(t *tenants.Tenant) { t.Number = 2 }},
	{name: "no home", tenant: func(t *tenants.Tenant) { t.Home = "" }},
	{name: "home with a brace", tenant: func(t *tenants.Tenant) { t.Home = "a}b" }},
	{name: "blank status", tenant: func(t *tenants.Tenant) { t.Status = "" }},
	{name: "unknown no_policy", tenant: func(t *tenants.Tenant) { t.NoPolicy = "maybe" }},
	{name: "unknown plan", tenant: func(t *tenants.Tenant) { t.PlanID = "gone" }},
	{name: "negative plan revision", tenant: func(t *tenants.Tenant) { t.PlanRevision = -1 }},
}

// policies changes the policies of the document.
func policies(change func(*plans.Content)) func(*PublishedPlan) {
	return func(p *PublishedPlan) {
		d := p.Document.Content()
		change(&d)
		p.Document = plans.New(d)
	}
}

// limit changes the first limit, in the document and as it is in force.
func limit(change func(*enforcement.Limit)) func(*PublishedPlan) {
	return func(p *PublishedPlan) {
		d := p.Document.Content()
		change(&d.Policies[0].Limits[0])
		p.Document = plans.New(d)
		p.Limits[0].Limit = d.Policies[0].Limits[0]
		p.Limits[0].Cell.Algorithm = p.Limits[0].Limit.Algorithm
		p.Limits[0].Cell.Anchor = p.Limits[0].Limit.Anchor
	}
}

func TestBadRows(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{false, true} {
		for _, bad := range badRows {
			t.Run(fmt.Sprintf("%s/full=%t", bad.name, full), func(t *testing.T) {
				t.Parallel()
				w := newWorld()
				w.putPlan(aPlan(1, 1, 10, 20))
				w.putPlan(aPlan(2, 1, 10))
				for i, on := range []int{1, 2, 1} {
					w.putTenant(aTenant(i+1, on))
					w.putKey(aKey(fmt.Sprintf("key-%d", i+1), i+1))
				}
				s := compile(t, nil, w.changes(), Options{})
				good := *subject(t, s, "tenant-1")

				// The bad row and a good one, in one change.
				var kind string
				if bad.plan != nil {
					kind = "plan"
					p := aPlan(1, 2, 10, 20)
					bad.plan(&p)
					w.putPlan(p)
				} else {
					kind = "tenant"
					row := aTenant(1, 1)
					bad.tenant(&row)
					w.putTenant(row)
				}
				w.putPlan(aPlan(2, 2, 77))
				c := since(t, w, s)
				if full {
					c = w.changes()
				}
				now := time.UnixMicro(5)
				s2 := compile(t, s, c, Options{Full: full, Now: func() time.Time { return now }})

				problems := s2.Problems()
				if len(problems) != 1 || problems[0].Kind != kind || !problems[0].Kept || problems[0].Err == nil || !problems[0].Since.Equal(now) {
					t.Fatalf("problems = %+v, want one of a %s with its last good version kept", problems, kind)
				}
				for _, name := range []string{"tenant-1", "tenant-3"} {
					if got := subject(t, s2, name); got.Plan.Version != 1 || len(got.Plan.Rules) != 2 {
						t.Errorf("%s is on version %d", name, got.Plan.Version)
					}
				}
				if kind == "tenant" && *subject(t, s2, "tenant-1") != good && !full {
					t.Errorf("tenant-1 = %+v, want %+v", *subject(t, s2, "tenant-1"), good)
				}
				if k, ok := s2.Key(keyHash("key-1")); !ok || k.Subject.Tenant != "tenant-1" {
					t.Errorf("key-1 = %+v, %t", k, ok)
				}
				if got := subject(t, s2, "tenant-2"); got.Plan.Version != 2 {
					t.Errorf("tenant-2 has not got the new version, but %d", got.Plan.Version)
				}

				// A later change of others keeps the problem and its time.
				w.putTenant(aTenant(4, 2))
				s3 := compile(t, s2, since(t, w, s2), Options{})
				if problems := s3.Problems(); len(problems) != 1 || !problems[0].Since.Equal(now) {
					t.Errorf("problems = %+v", problems)
				}
				// Repairing it ends the problem.
				w.putPlan(aPlan(1, 3, 10, 20))
				w.putTenant(aTenant(1, 1))
				s4 := compile(t, s3, since(t, w, s3), Options{})
				if s4.ProblemCount() != 0 || subject(t, s4, "tenant-1").Plan.Version != 3 {
					t.Errorf("after the repair: %v", s4.Problems())
				}
			})
		}
	}
}

func TestBadRowsAtStart(t *testing.T) {
	t.Parallel()
	for _, bad := range badRows {
		t.Run(bad.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			p, row := aPlan(1, 1, 10, 20), aTenant(3, 1)
			if bad.plan != nil {
				bad.plan(&p)
			} else {
				bad.tenant(&row)
			}
			w.putPlan(p)
			w.putPlan(aPlan(2, 1, 10))
			w.putTenant(aTenant(2, 2))
			w.putTenant(row)
			w.putKey(aKey("key-3", 3))
			s := compile(t, nil, w.changes(), Options{})
			if problems := s.Problems(); len(problems) != 1 || problems[0].Kept {
				t.Fatalf("problems = %+v", problems)
			}
			subject(t, s, "tenant-2")
			k, ok := s.Key(keyHash("key-3"))
			if bad.tenant != nil {
				if ok {
					t.Errorf("the key of a tenant that never was good: %+v", k.Subject)
				}
				return
			}
			// Nobody knows what its plan allows: nothing passes, but it is known.
			if !ok || !k.Subject.DenyUnmatched || len(k.Subject.Plan.Rules) != 0 {
				t.Errorf("key-3 = %+v, %t", k, ok)
			}
			w.putPlan(aPlan(1, 2, 10))
			s = compile(t, s, since(t, w, s), Options{})
			if k, _ := s.Key(keyHash("key-3")); s.ProblemCount() != 0 || k.Subject.DenyUnmatched || len(k.Subject.Plan.Rules) != 1 {
				t.Errorf("after the repair: %+v, problems %v", k.Subject, s.Problems())
			}
		})
	}
}

func TestSuspensionCountsInABadRow(t *testing.T) {
	t.Parallel()
	w := smallWorld(2)
	s := compile(t, nil, w.changes(), Options{})
	row := aTenant(1, 1)
	row.PlanID, row.Status = "gone", tenants.Suspended
	w.putTenant(row)
	s = compile(t, s, since(t, w, s), Options{})
	if got := subject(t, s, "tenant-1"); !got.Suspended || got.Plan == nil {
		t.Errorf("tenant-1 = %+v", got)
	}
}

func TestBadKeys(t *testing.T) {
	t.Parallel()
	w := smallWorld(2)
	s := compile(t, nil, w.changes(), Options{})
	same := aKey("thief", 2)
	same.Hash = keyHash("key-1")
	w.putKey(same)
	blank := aKey("blank", 2)
	blank.Hash = [32]byte{}
	w.putKey(blank)
	odd := aKey("odd", 2)
	odd.Scopes = []tenants.Scope{"check", "everything"}
	w.putKey(odd)
	orphan := aKey("orphan", 9)
	w.putKey(orphan)
	s = compile(t, s, since(t, w, s), Options{})
	if k, _ := s.Key(keyHash("key-1")); k.ID != "key-1" || k.Subject.Tenant != "tenant-1" {
		t.Errorf("key-1's token now is %+v", k)
	}
	if k, _ := s.Key(keyHash("odd")); k.Scopes != scopeCheck {
		t.Errorf("odd has %b", k.Scopes)
	}
	if _, ok := s.Key(keyHash("orphan")); ok {
		t.Error("a key without a tenant is usable")
	}
	if got := s.ProblemCount(); got != 3 {
		t.Errorf("%d problems: %v", got, s.Problems())
	}
	// The orphan's tenant comes: so does its key.
	w.putTenant(aTenant(9, 1))
	s = compile(t, s, since(t, w, s), Options{})
	if k, ok := s.Key(keyHash("orphan")); !ok || k.Subject.Tenant != "tenant-9" {
		t.Error("the key has not found its tenant")
	}
}

func TestHeldWorlds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		tenants int
		change  func(*world)
		held    string
	}{
		{"all tenants vanish", 3, func(w *world) { clear(w.tenants) }, "all 3 tenants"},
		{"everything vanishes", 3, func(w *world) { clear(w.tenants); clear(w.plans); clear(w.keys) }, "all 3 tenants"},
		{"all plans vanish", 3, func(w *world) { clear(w.plans) }, "all 3 plans"},
		{"11 of 20 vanish", 20, vanish(11), "11 of 20 tenants"},
		{"10 of 20 vanish", 20, vanish(10), ""},
		{"18 of 19 vanish", 19, vanish(18), ""},
		{"all 20 removed by somebody", 20, func(w *world) {
			for i := 1; i <= 20; i++ {
				w.remove("tenant", tenantID(i))
			}
		}, ""},
		{"the revision goes back", 3, func(w *world) { w.revision-- }, "went back"},
		{"every quota becomes 0", 20, func(w *world) {
			for i := 1; i <= 3; i++ {
				w.putPlan(aPlan(i, 2, 0, 0))
			}
		}, "every quota"},
		{"most quotas become 0", 20, func(w *world) { w.putPlan(aPlan(1, 2, 0, 0)) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := smallWorld(c.tenants)
			w.revision = 7
			s := compile(t, nil, w.changes(), Options{})
			c.change(w)
			next, report := Compile(s, w.changes(), Options{Full: true})
			if c.held == "" {
				if report.Held != nil || next == s {
					t.Fatalf("held: %v", report.Held)
				}
				return
			}
			if next != s || !errors.Is(report.Held, errHeld) || !strings.Contains(report.Held.Error(), c.held) {
				t.Fatalf("held = %v, the old one %t, want %q", report.Held, next == s, c.held)
			}
		})
	}
}

func vanish(n int) func(*world) {
	return func(w *world) {
		for i := 1; i <= n; i++ {
			delete(w.tenants, tenantID(i))
		}
	}
}

func TestTooLargeIsHeld(t *testing.T) {
	t.Parallel()
	w := smallWorld(5)
	s := compile(t, nil, w.changes(), Options{MaxTenants: 5})
	w.putTenant(aTenant(6, 1))
	if next, report := Compile(s, since(t, w, s), Options{MaxTenants: 5}); next != s || !errors.Is(report.Held, errHeld) {
		t.Errorf("six tenants of five: %v", report.Held)
	}
}
