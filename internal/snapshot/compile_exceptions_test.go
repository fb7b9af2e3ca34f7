package snapshot

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/plans"
)

// decide asks for one request of a user to a policy's path, at an instant.
func decide(t testing.TB, s *enforcement.Subject, policy int, user string, at time.Time) enforcement.Decision {
	t.Helper()
	return decideFor(t, s, policy, enforcement.Attribute{Name: "user", Value: user}, at)
}

func decideFor(t testing.TB, s *enforcement.Subject, policy int, who enforcement.Attribute, at time.Time) enforcement.Decision {
	t.Helper()
	limiter := inprocess.New(inprocess.Config{Now: at.UnixMicro})
	e := enforcement.NewEngine(limiter, enforcement.Config{Now: func() time.Time { return at }})
	c := enforcement.Check{
		Path: fmt.Sprintf("/api/%d/x", policy), Attributes: []enforcement.Attribute{who}, Cost: 1, Mode: enforcement.Peek,
	}
	if who.Name == "ip" {
		c.IP, _, _ = enforcement.CanonicalIP(who.Value)
	}
	var d enforcement.Decision
	e.Decide(t.Context(), s, &c, &d)
	return d
}

// quota returns the quota in force for a user and a policy, shortly after the start of the
// world.
func quota(t testing.TB, s *enforcement.Subject, policy int, user string) int64 {
	t.Helper()
	d := decide(t, s, policy, user, worldBegan.Add(time.Minute))
	if len(d.Limits) != 1 {
		t.Fatalf("%d limits: %+v", len(d.Limits), d)
	}
	return d.Limits[0].Limit.Quota
}

func TestExceptionsIncrement(t *testing.T) {
	t.Parallel()
	w := smallWorld(6)
	first := compile(t, nil, w.changes(), Options{})
	if !first.NextEnd().IsZero() {
		t.Errorf("a world without ends ends at %s", first.NextEnd())
	}
	for _, name := range []string{"tenant-1", "tenant-6"} {
		if subject(t, first, name).Exceptions != nil {
			t.Errorf("%s has exceptions", name)
		}
	}
	next := func(s *Snapshot, compiled int) *Snapshot {
		t.Helper()
		n, report := Compile(s, since(t, w, s), Options{})
		if report.Held != nil || report.ExceptionsCompiled != compiled || report.Tenants != 0 {
			t.Fatalf("compiled %+v, want %d compiled", report, compiled)
		}
		return n
	}

	// An override reaches its tenant and its keys, and nobody else.
	w.putOverride(anOverride("o1", 1, "policy-0"))
	s := next(first, 1)
	one := subject(t, s, "tenant-1")
	if got := quota(t, one, 0, "ann"); got != 20 {
		t.Errorf("quota %d, want 20", got)
	}
	if got := quota(t, one, 1, "ann"); got != 20 {
		t.Errorf("the other policy's quota is %d, want the plan's 20", got)
	}
	if k, _ := s.Key(keyHash("key-1")); k.Subject != one {
		t.Error("the key leads to the old tenant")
	}
	for n := 2; n <= 6; n++ {
		if id := tenantID(n); subject(t, s, id) != subject(t, first, id) {
			t.Errorf("tenant-%d was made anew", n)
		}
	}
	if subject(t, first, "tenant-1").Exceptions != nil {
		t.Error("the old snapshot changed")
	}
	if want := worldBegan.Add(24 * time.Hour); !s.NextEnd().Equal(want) {
		t.Errorf("next end %s, want %s", s.NextEnd(), want)
	}

	// Lists and a block, of two tenants.
	w.putEntry(anEntry("e1", 1, exceptions.Deny, "bob"))
	w.putEntry(anEntry("e2", 2, exceptions.Allow, "eve"))
	w.putBlock(aBlock("b1", 2, "policy-1", "kim"))
	s = next(s, 2)
	for _, c := range []struct {
		tenant, user string
		policy       int
		want         enforcement.Reason
	}{
		{"tenant-1", "bob", 0, enforcement.ReasonDeniedByList},
		{"tenant-1", "eve", 0, enforcement.ReasonOK},
		{"tenant-2", "bob", 0, enforcement.ReasonOK},
		{"tenant-2", "eve", 0, enforcement.ReasonAllowedByList},
		{"tenant-2", "kim", 1, enforcement.ReasonBlocked},
		{"tenant-2", "kim", 0, enforcement.ReasonOK},
		{"tenant-1", "kim", 1, enforcement.ReasonOK},
	} {
		if d := decide(t, subject(t, s, c.tenant), c.policy, c.user, worldBegan.Add(time.Minute)); d.Reason != c.want {
			t.Errorf("%s at policy %d of %s: %s, want %s", c.user, c.policy, c.tenant, d.Reason, c.want)
		}
	}
	if got := s.Counts(); got.Overrides != 1 || got.Entries != 2 || got.Blocks != 1 {
		t.Errorf("counts = %+v", got)
	}
	if want := worldBegan.Add(time.Hour); !s.NextEnd().Equal(want) {
		t.Errorf("next end %s, want %s", s.NextEnd(), want)
	}

	// What is removed is out of force; a tenant takes its rows along.
	before := s
	w.remove("override", "o1")
	w.remove("block", "b1")
	s = next(s, 2)
	if got := quota(t, subject(t, s, "tenant-1"), 0, "ann"); got != 10 {
		t.Errorf("without the override the quota is %d, want 10", got)
	}
	if !s.NextEnd().IsZero() {
		t.Errorf("next end %s, want none", s.NextEnd())
	}
	if got := quota(t, subject(t, before, "tenant-1"), 0, "ann"); got != 20 {
		t.Error("the old snapshot changed")
	}
	w.remove("tenant", tenantID(1))
	w.remove("tenant", tenantID(2))
	s = compile(t, s, since(t, w, s), Options{})
	if got := s.Counts(); got.Entries != 0 || s.size.all() != 0 || s.rows.Len() != 0 {
		t.Errorf("after their tenants went: %+v, %+v", got, s.size)
	}
	w.putTenant(aTenant(1, 1))
	s = compile(t, s, since(t, w, s), Options{})
	if subject(t, s, "tenant-1").Exceptions != nil {
		t.Error("a tenant of the same id has the exceptions of the one before")
	}
}

func TestExceptionsOfATenantToCome(t *testing.T) {
	t.Parallel()
	w := smallWorld(1)
	w.putOverride(anOverride("o1", 9, "policy-0"))
	s := compile(t, nil, w.changes(), Options{})
	if _, ok := s.Subject(tenantID(9)); ok || s.ProblemCount() != 0 {
		t.Fatalf("a tenant that is not there: %t, problems %v", ok, s.Problems())
	}
	w.putTenant(aTenant(9, 1))
	s = compile(t, s, since(t, w, s), Options{})
	if got := quota(t, subject(t, s, "tenant-9"), 0, "ann"); got != 20 {
		t.Errorf("quota %d: the override has not found its tenant", got)
	}
}

func TestReloadDropsExceptionsThatVanished(t *testing.T) {
	t.Parallel()
	w := smallWorld(2)
	w.putOverride(anOverride("o1", 1, "policy-0"))
	w.putEntry(anEntry("e1", 2, exceptions.Deny, "bob"))
	s := compile(t, nil, w.changes(), Options{})
	clear(w.overrides)
	clear(w.entries)
	clear(w.changed)
	bad := aTenant(2, 1)
	bad.Home = "" // keeps its last good version, but not what is gone beside it
	w.putTenant(bad)
	s = compile(t, s, w.changes(), Options{Full: true})
	if got := subject(t, s, "tenant-1"); got.Exceptions != nil || s.size.all() != 0 || !s.NextEnd().IsZero() {
		t.Errorf("tenant-1 still has exceptions; %+v", s.size)
	}
	if got := subject(t, s, "tenant-2"); got.Exceptions != nil {
		t.Error("tenant-2 still has exceptions")
	}
}

func TestExceptionsGoesOnBesideABadTenant(t *testing.T) {
	t.Parallel()
	w := smallWorld(2)
	s := compile(t, nil, w.changes(), Options{})
	row := aTenant(1, 1)
	row.PlanID, row.RedactValues = "gone", true
	w.putTenant(row)
	s = compile(t, s, since(t, w, s), Options{})
	w.putEntry(anEntry("e1", 1, exceptions.Deny, "bob"))
	s = compile(t, s, since(t, w, s), Options{})
	one := subject(t, s, "tenant-1")
	if d := decide(t, one, 0, "bob", worldBegan); d.Reason != enforcement.ReasonDeniedByList {
		t.Errorf("bob: %s", d.Reason)
	}
	if got := quota(t, one, 0, "ann"); got != 10 || !one.Redact || s.ProblemCount() != 1 {
		t.Errorf("quota %d, redact %t, problems %v", got, one.Redact, s.Problems())
	}
}

// After a plan's change an override may wait for its policy to come back; that
// is no problem.
func TestPlanChangeAndOverrides(t *testing.T) {
	t.Parallel()
	w := smallWorld(3)
	w.putOverride(anOverride("o1", 1, "policy-1"))
	s := compile(t, nil, w.changes(), Options{})
	if got := quota(t, subject(t, s, "tenant-1"), 1, "ann"); got != 40 {
		t.Fatalf("quota %d, want 40", got)
	}
	step := func(version int, quotas ...int64) {
		t.Helper()
		w.putPlan(aPlan(2, version, quotas...)) // tenant-1's
		s = compile(t, s, since(t, w, s), Options{})
		if s.ProblemCount() != 0 || s.Counts().Overrides != 1 {
			t.Errorf("version %d: problems %v, %+v", version, s.Problems(), s.Counts())
		}
	}
	step(2, 10) // without the policy
	if got := quota(t, subject(t, s, "tenant-1"), 0, "ann"); got != 10 {
		t.Errorf("quota %d, want the plan's 10", got)
	}
	step(3, 10, 7)
	if got := quota(t, subject(t, s, "tenant-1"), 1, "ann"); got != 14 {
		t.Errorf("quota %d: the override has not come back to the new numbers", got)
	}
	row := aTenant(1, 1)
	row.PlanID, row.Plan = "", ""
	w.putTenant(row)
	w.putEntry(anEntry("e1", 1, exceptions.Deny, "bob"))
	s = compile(t, s, since(t, w, s), Options{})
	if d := decide(t, subject(t, s, "tenant-1"), 0, "bob", worldBegan); d.Reason != enforcement.ReasonDeniedByList {
		t.Errorf("without a plan: %s", d.Reason)
	}
}

// The worked example of docs/exceptions.md.
func TestWorkedExampleOfPrecedence(t *testing.T) {
	t.Parallel()
	w := newWorld()
	p := aPlan(1, 1, 5)
	policies(func(d *plans.Content) { d.Policies[0].CountBy = []string{"ip"} })(&p)
	p.Limits[0].Cell.CountBy = []string{"ip"}
	w.putPlan(p)
	w.putTenant(aTenant(1, 1))
	for _, o := range []struct {
		id, value, prefix string
		factor            int64
		limits            []enforcement.OverrideLimit
		ends              time.Duration
	}{
		{id: "D", value: "203.0.113.9", factor: 500, ends: time.Hour},
		{id: "B", prefix: "203.0.113.0/24", factor: 4000, ends: 2 * time.Hour},
		{id: "C", prefix: "203.0.0.0/16", limits: numbers("l1", 100, enforcement.Keep, 0), ends: 24 * time.Hour},
		{id: "A", factor: 2000, ends: 24 * time.Hour},
	} {
		row := anOverride(o.id, 1, "policy-0")
		row.Value, row.Prefix, row.Factor, row.Limits, row.ExpiresAt = o.value, o.prefix, o.factor, o.limits, worldBegan.Add(o.ends)
		if o.value+o.prefix != "" {
			row.Attribute = "ip"
		}
		w.putOverride(row)
	}
	s := compile(t, nil, w.changes(), Options{})
	ask := func(ip string, after time.Duration) enforcement.Decision {
		t.Helper()
		return decideFor(t, subject(t, s, "tenant-1"), 0, enforcement.Attribute{Name: "ip", Value: ip}, worldBegan.Add(after))
	}
	for _, c := range []struct {
		ip    string
		after time.Duration
		want  int64
		by    string
	}{
		{"198.51.100.1", time.Minute, 10, "A"},
		{"203.0.7.7", time.Minute, 100, "C"},
		{"203.0.113.8", time.Minute, 20, "B"},
		{"203.0.113.9", time.Minute, 2, "D"},
		{"203.0.113.9", time.Hour, 20, "B"},
		{"203.0.113.9", 2 * time.Hour, 100, "C"},
		{"203.0.113.9", 24 * time.Hour, 5, ""},
	} {
		d := ask(c.ip, c.after)
		by := ""
		if o := d.Limits[0].Override; o != nil {
			by = o.ID
		}
		if got := d.Limits[0].Limit.Quota; got != c.want || by != c.by {
			t.Errorf("%s after %s: %d by %q, want %d by %q", c.ip, c.after, got, by, c.want, c.by)
		}
	}
	n := anEntry("e", 1, exceptions.Deny, "203.0.113.0/24")
	n.Attribute = "ip"
	w.putEntry(n)
	s = compile(t, s, since(t, w, s), Options{})
	if d := ask("203.0.113.9", time.Minute); d.Reason != enforcement.ReasonDeniedByList {
		t.Errorf("on the deny list: %s", d.Reason)
	}
}

// badExceptions were written past the service.
var badExceptions = []struct {
	name string
	row  any
}{
	{"override without a policy", overrideWith(func(o *exceptions.Override) { o.Policy = "" })},
	{"override of a policy with a slash", overrideWith(func(o *exceptions.Override) { o.Policy = "a/b" })},
	{"override without an end", overrideWith(func(o *exceptions.Override) { o.ExpiresAt = time.Time{} })},
	{"override without a beginning", overrideWith(func(o *exceptions.Override) { o.CreatedAt = time.Time{} })},
	{"override that ends before it begins", overrideWith(func(o *exceptions.Override) { o.ExpiresAt = o.CreatedAt.Add(-time.Second) })},
	{"override that ends as it begins", overrideWith(func(o *exceptions.Override) { o.ExpiresAt = o.CreatedAt })},
	{"override beyond all years", overrideWith(func(o *exceptions.Override) { o.ExpiresAt = time.UnixMicro(math.MaxInt64) })},
	{"override of ip/64", overrideWith(func(o *exceptions.Override) { o.Attribute, o.Value = "ip/64", "2001:db8::" })},
	{"override of a name with a control character", overrideWith(func(o *exceptions.Override) { o.Attribute, o.Value = "us\ner", "ann" })},
	{"override of an attribute without a value", overrideWith(func(o *exceptions.Override) { o.Attribute = "user" })},
	{"override of a value and a prefix", overrideWith(func(o *exceptions.Override) { o.Attribute, o.Value, o.Prefix = "user", "ann", "a" })},
	{"override of a value without an attribute", overrideWith(func(o *exceptions.Override) { o.Value = "ann" })},
	{"override of an ip that is none", overrideWith(func(o *exceptions.Override) { o.Attribute, o.Value = "ip", "10.0.0" })},
	{"override of a network that is none", overrideWith(func(o *exceptions.Override) { o.Attribute, o.Prefix = "ip", "10.0.0.0/33" })},
	{"override of a value that is not UTF-8", overrideWith(func(o *exceptions.Override) { o.Attribute, o.Value = "user", "\xff" })},
	{"override of a value that is too long", overrideWith(func(o *exceptions.Override) { o.Attribute, o.Value = "user", strings.Repeat("x", 1025) })},
	{"negative factor", overrideWith(func(o *exceptions.Override) { o.Factor = -1 })},
	{"factor out of range", overrideWith(func(o *exceptions.Override) { o.Factor = enforcement.MaxFactor + 1 })},
	{"largest factor", overrideWith(func(o *exceptions.Override) { o.Factor = math.MaxInt64 })},
	{"neither factor nor limits", overrideWith(func(o *exceptions.Override) { o.Factor = 0 })},
	{"factor and limits", overrideWith(func(o *exceptions.Override) { o.Limits = numbers("l1", 5, 0, 0) })},
	{"limit without a name", overrideLimits(numbers("", 5, 0, 0))},
	{"limit twice", overrideLimits(append(numbers("l1", 5, 0, 0), numbers("l1", 6, 0, 0)...))},
	{"negative quota", overrideLimits(numbers("l1", -2, 0, 0))},
	{"huge quota", overrideLimits(numbers("l1", math.MaxInt64, 0, 0))},
	{"negative burst", overrideLimits(numbers("l1", 5, -2, 0))},
	{"huge burst", overrideLimits(numbers("l1", 5, enforcement.MaxQuota+1, 0))},
	{"negative window", overrideLimits(numbers("l1", 5, 0, -time.Second))},
	{"window of a microsecond", overrideLimits(numbers("l1", 5, 0, time.Microsecond))},
	{"window with a fraction", overrideLimits(numbers("l1", 5, 0, time.Second+1))},
	{"window of 367 days", overrideLimits(numbers("l1", 5, 0, 367*24*time.Hour))},
	{"list that is none", entryWith(func(n *exceptions.Entry) { n.List = "maybe" })},
	{"list without a name", entryWith(func(n *exceptions.Entry) { n.List = "" })},
	{"empty value", entryWith(func(n *exceptions.Entry) { n.Value = "" })},
	{"entry without an attribute", entryWith(func(n *exceptions.Entry) { n.Attribute = "" })},
	{"entry of ip/64", entryWith(func(n *exceptions.Entry) { n.Attribute, n.Value = "ip/64", "10.0.0.1" })},
	{"entry of a long attribute", entryWith(func(n *exceptions.Entry) { n.Attribute = strings.Repeat("x", 65) })},
	{"network that does not parse", entryWith(func(n *exceptions.Entry) { n.Attribute, n.Value = "ip", "10.0.0.0/" })},
	{"network with host bits", entryWith(func(n *exceptions.Entry) { n.Attribute, n.Value = "ip", "10.0.0.1/8" })},
	{"address with a zone", entryWith(func(n *exceptions.Entry) { n.Attribute, n.Value = "ip", "fe80::1%eth0" })},
	{"entry with a huge reason", entryWith(func(n *exceptions.Entry) { n.Reason = strings.Repeat("x", 1<<20) })},
	{"block without an end", blockWith(func(b *exceptions.Block) { b.ExpiresAt = time.Time{} })},
	{"block without a policy", blockWith(func(b *exceptions.Block) { b.Policy = "" })},
	{"block of an empty value", blockWith(func(b *exceptions.Block) { b.Key["user"] = "" })},
	{"block of an empty name", blockWith(func(b *exceptions.Block) { b.Key[""] = "x" })},
	{"block of an ip that is none", blockWith(func(b *exceptions.Block) { b.Key["ip"] = "localhost" })},
	{"block of too many values", blockWith(func(b *exceptions.Block) {
		for i := range 17 {
			b.Key[strconv.Itoa(i)] = "x"
		}
	})},
}

func overrideWith(change func(*exceptions.Override)) exceptions.Override {
	o := anOverride("bad", 1, "policy-0")
	change(&o)
	return o
}

func overrideLimits(limits []enforcement.OverrideLimit) exceptions.Override {
	return overrideWith(func(o *exceptions.Override) { o.Factor, o.Limits = 0, limits })
}

func numbers(name string, quota, burst int64, window time.Duration) []enforcement.OverrideLimit {
	return []enforcement.OverrideLimit{{Name: name, Quota: quota, Burst: burst, Window: window}}
}

func entryWith(change func(*exceptions.Entry)) exceptions.Entry {
	n := anEntry("bad", 1, exceptions.Deny, "ann")
	change(&n)
	return n
}

func blockWith(change func(*exceptions.Block)) exceptions.Block {
	b := aBlock("bad", 1, "policy-0", "ann")
	change(&b)
	return b
}

// put writes a row of any kind, past the service, and gives the kind.
func (w *world) put(row any) string {
	switch row := row.(type) {
	case exceptions.Override:
		w.edit(func(r int64) { row.Revision = r; w.overrides[row.ID] = row })
		return "override"
	case exceptions.Entry:
		w.putEntry(row)
		return "list_entry"
	case exceptions.Block:
		w.putBlock(row)
		return "block"
	}
	return ""
}

func TestBadExceptions(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{false, true} {
		for _, bad := range badExceptions {
			t.Run(fmt.Sprintf("%s/full=%t", bad.name, full), func(t *testing.T) {
				t.Parallel()
				w := smallWorld(3)
				w.putOverride(anOverride("good", 1, "policy-1"))
				s := compile(t, nil, w.changes(), Options{})
				kind := w.put(bad.row)
				w.putEntry(anEntry("good-entry", 1, exceptions.Deny, "bob"))
				c := since(t, w, s)
				if full {
					c = w.changes()
				}
				now := time.UnixMicro(5)
				s = compile(t, s, c, Options{Full: full, Now: func() time.Time { return now }})
				problems := s.Problems()
				if len(problems) != 1 || problems[0].Kind != kind || problems[0].ID != "bad" || problems[0].Name != "tenant-1" ||
					problems[0].Kept || problems[0].Err == nil || !problems[0].Since.Equal(now) {
					t.Fatalf("problems = %+v, want one of the %s", problems, kind)
				}
				// It is left out, and its neighbours are in force.
				one := subject(t, s, "tenant-1")
				if d := decide(t, one, 0, "ann", worldBegan.Add(time.Minute)); !d.Allowed || d.Limits[0].Limit.Quota != 10 {
					t.Errorf("ann: %s, quota %d", d.Reason, d.Limits[0].Limit.Quota)
				}
				if got := quota(t, one, 1, "ann"); got != 40 {
					t.Errorf("the good override: quota %d, want 40", got)
				}
				if d := decide(t, one, 0, "bob", worldBegan); d.Reason != enforcement.ReasonDeniedByList {
					t.Errorf("bob: %s", d.Reason)
				}
				if want := worldBegan.Add(24 * time.Hour); !s.NextEnd().Equal(want) {
					t.Errorf("next end %s, want %s", s.NextEnd(), want)
				}

				// A later change keeps the problem and its time; removing the row ends it.
				w.putOverride(anOverride("good-2", 1, "policy-0"))
				s = compile(t, s, since(t, w, s), Options{})
				if problems := s.Problems(); len(problems) != 1 || !problems[0].Since.Equal(now) {
					t.Errorf("problems = %+v", problems)
				}
				w.remove(kind, "bad")
				s = compile(t, s, since(t, w, s), Options{})
				if s.ProblemCount() != 0 || s.rows.Len() != 3 {
					t.Errorf("after it was removed: %v, %d rows", s.Problems(), s.rows.Len())
				}
			})
		}
	}
}

func TestBadExceptionsAlone(t *testing.T) {
	t.Parallel()
	for _, bad := range badExceptions {
		w := smallWorld(2)
		w.put(bad.row)
		s := compile(t, nil, w.changes(), Options{})
		if s.ProblemCount() != 1 || subject(t, s, "tenant-1").Exceptions != nil || !s.NextEnd().IsZero() {
			t.Errorf("%s: problems %v", bad.name, s.Problems())
		}
		w.remove("tenant", tenantID(1))
		if s = compile(t, s, since(t, w, s), Options{}); s.ProblemCount() != 0 || s.rows.Len() != 0 {
			t.Errorf("%s: after its tenant went: %v", bad.name, s.Problems())
		}
	}
}

func TestExceptionsRowsOfNobody(t *testing.T) {
	t.Parallel()
	w := smallWorld(2)
	w.edit(func(r int64) {
		w.overrides["a"] = exceptions.Override{ID: "a", Revision: r}
		w.entries["b"] = exceptions.Entry{TenantID: tenantID(1), Revision: r}
		w.blocks["c"] = exceptions.Block{Revision: r}
		w.changed["d"] = exceptions.Change{Revision: r}
		w.changed["e"] = exceptions.Change{TenantID: tenantID(1), Policy: "a:b", Revision: r}
		w.changed["f"] = exceptions.Change{TenantID: tenantID(1), Policy: "policy-0", Revision: -1}
	})
	s := compile(t, nil, w.changes(), Options{})
	if got := s.ProblemCount(); got != 6 {
		t.Errorf("%d problems: %v", got, s.Problems())
	}
	if subject(t, s, "tenant-1").Exceptions != nil {
		t.Error("tenant-1 has exceptions of rows that cannot be used")
	}
}

// A change of a policy that claims a revision to come would keep counters from
// being converted for ever.
func TestPolicyChangeOfTheFuture(t *testing.T) {
	t.Parallel()
	w := smallWorld(1)
	w.putChange(exceptions.Change{TenantID: tenantID(1), Policy: "policy-0"})
	s := compile(t, nil, w.changes(), Options{})
	good := subject(t, s, "tenant-1").Exceptions
	w.edit(func(int64) {
		w.changed[tenantID(1)+"policy-0"] = exceptions.Change{TenantID: tenantID(1), Policy: "policy-0", Revision: 1 << 60}
	})
	s = compile(t, s, since(t, w, s), Options{})
	if problems := s.Problems(); len(problems) != 1 || problems[0].Kind != "policy_change" || problems[0].Name != "tenant-1" {
		t.Errorf("problems = %+v", problems)
	}
	w.putChange(exceptions.Change{TenantID: tenantID(1), Policy: "policy-0"})
	s = compile(t, s, since(t, w, s), Options{})
	if s.ProblemCount() != 0 || good != nil && subject(t, s, "tenant-1").Exceptions == nil {
		t.Errorf("after the repair: %v", s.Problems())
	}
}

// A panic while the exceptions of one tenant are compiled affects only that tenant.
func TestExceptionsThatPanics(t *testing.T) {
	t.Parallel()
	w := smallWorld(3)
	w.putOverride(anOverride("o2", 2, "policy-0"))
	s := compile(t, nil, w.changes(), Options{})
	one, two := subject(t, s, "tenant-1"), subject(t, s, "tenant-2")
	one.Plan.Rules[0], two.Plan.Rules[0] = nil, nil // which no plan has
	w.putOverride(anOverride("o1", 1, "policy-0"))
	w.putOverride(anOverride("o2b", 2, "policy-0"))
	w.putOverride(anOverride("o3", 3, "policy-0"))
	s = compile(t, s, since(t, w, s), Options{})
	problems := s.Problems()
	if len(problems) != 2 || problems[0].Kind != "steering" || problems[0].ID != tenantID(1) || problems[0].Name != "tenant-1" ||
		problems[0].Kept || !problems[1].Kept || !strings.Contains(problems[0].Err.Error(), "panicked") {
		t.Fatalf("problems = %+v", problems)
	}
	if subject(t, s, "tenant-1").Exceptions != nil || subject(t, s, "tenant-2").Exceptions != two.Exceptions {
		t.Error("the last good exceptions are not kept")
	}
	if got := quota(t, subject(t, s, "tenant-3"), 0, "ann"); got != 20 {
		t.Errorf("tenant-3: quota %d, want 20", got)
	}
	w.putPlan(aPlan(2, 2, 10, 20))
	w.putPlan(aPlan(3, 2, 10, 20))
	s = compile(t, s, since(t, w, s), Options{})
	if got := quota(t, subject(t, s, "tenant-1"), 0, "ann"); got != 20 || s.ProblemCount() != 0 {
		t.Errorf("after the repair: quota %d, problems %v", got, s.Problems())
	}
}

func TestTooMuchExceptionsIsHeld(t *testing.T) {
	t.Parallel()
	w := smallWorld(2)
	o := Options{MaxExceptions: 3}
	w.putEntry(anEntry("e1", 1, exceptions.Deny, "bob"))
	w.putOverride(anOverride("o1", 1, "policy-0")) // and the change of its policy
	s := compile(t, nil, w.changes(), o)
	w.put(blockWith(func(b *exceptions.Block) { b.Policy = "" })) // what is left out takes room too
	if next, report := Compile(s, since(t, w, s), o); next != s || !errors.Is(report.Held, errHeld) {
		t.Errorf("four rows of three: %v", report.Held)
	}
	w.remove("list_entry", "e1")
	compile(t, s, since(t, w, s), o)
}

func TestNumberRedactAndBound(t *testing.T) {
	t.Parallel()
	w := smallWorld(2)
	row := aTenant(2, 1)
	row.RedactValues, row.MaxKeys = true, 5000
	w.putTenant(row)
	s := compile(t, nil, w.changes(), Options{})
	for _, c := range []struct {
		number uint32
		want   string
		redact bool
		bound  int64
	}{{1, "tenant-1", false, 0}, {2, "tenant-2", true, 5000}} {
		if got, ok := s.SubjectByNumber(c.number); !ok || got.Tenant != c.want || got.Redact != c.redact || got.MaxKeys != c.bound {
			t.Errorf("number %d = %+v, %t", c.number, got, ok)
		}
	}
	for _, number := range []uint32{0, 3, math.MaxUint32} {
		if got, ok := s.SubjectByNumber(number); ok {
			t.Errorf("number %d is %s", number, got.Tenant)
		}
	}
}

// What another node set reaches this one by notification.
func TestOverrideByNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := smallWorld(3)
		watcher := watch(t, w, Config{Poll: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		r := w.putOverride(anOverride("o1", 1, "policy-0"))
		synctest.Wait() // no time passes
		if s := watcher.Status(); s.Revision != r || s.Learnt != byNotification {
			t.Fatalf("after a notification: %+v", s)
		}
		if got := quota(t, subject(t, watcher.Current(), "tenant-1"), 0, "ann"); got != 20 {
			t.Errorf("quota %d, want 20", got)
		}
	})
}

// Setting is an environment variable that is a number.
func Setting(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

// For every sequence of edits, the incremental snapshots equal a snapshot of the whole
// world. HEADGATE_FUZZ_SEQUENCES, by default 100, is the number of sequences, and
// HEADGATE_FUZZ_SEED their seed.
func TestIncrementsEqualTheWhole(t *testing.T) {
	t.Parallel()
	n, seed := Setting(t, "HEADGATE_FUZZ_SEQUENCES", 100), Setting(t, "HEADGATE_FUZZ_SEED", rand.Uint64())
	for i := range n {
		if err := editAtRandom(t, rand.New(rand.NewPCG(seed, i))); err != nil {
			t.Fatalf("sequence %d: %v\nreplay with HEADGATE_FUZZ_SEED=%d HEADGATE_FUZZ_SEQUENCES=%d", i, err, seed, i+1)
		}
	}
}

func editAtRandom(t *testing.T, r *rand.Rand) error {
	w := smallWorld(6)
	s := compile(t, nil, w.changes(), Options{})
	for step := range 30 {
		for range 1 + r.IntN(3) {
			w.editAtRandom(r)
		}
		s = compile(t, s, since(t, w, s), Options{})
		whole := compile(t, nil, w.changes(), Options{})
		if err := equal(s, whole); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return nil
}

func (w *world) editAtRandom(r *rand.Rand) {
	tenant, on := 1+r.IntN(6), 1+r.IntN(3)
	if _, ok := w.tenants[tenantID(tenant)]; !ok {
		w.putTenant(aTenant(tenant, on))
		w.putKey(aKey(fmt.Sprintf("key-%d", tenant), tenant))
		return
	}
	id, policy, user := fmt.Sprintf("%d-%d", tenant, r.IntN(4)), fmt.Sprintf("policy-%d", r.IntN(4)), fmt.Sprintf("u%d", r.IntN(3))
	later := worldBegan.Add(time.Duration(1+r.IntN(1000)) * time.Second)
	switch r.IntN(14) {
	case 0:
		w.putPlan(aPlan(on, int(w.revision)+1, []int64{10, 20, 30, 40}[:1+r.IntN(4)]...))
	case 1:
		row := aTenant(tenant, on)
		row.RedactValues = r.IntN(2) == 0
		w.putTenant(row)
	case 2:
		w.remove("tenant", tenantID(tenant))
	case 3: // of something that never was
		w.remove([]string{"override", "list_entry", "block"}[r.IntN(3)], "x"+id)
	case 4:
		w.remove("override", "o"+id)
	case 5:
		w.remove("list_entry", "e"+id)
	case 6:
		w.remove("block", "b"+id)
	case 7, 8:
		o := anOverride("o"+id, tenant, policy)
		o.ExpiresAt = later
		if r.IntN(2) == 0 {
			o.Attribute, o.Value = "user", user
		}
		if r.IntN(8) == 0 {
			o.Factor = -o.Factor // written past the service
		}
		w.putOverride(o)
	case 9, 10:
		n := anEntry("e"+id, tenant, []exceptions.List{exceptions.Deny, exceptions.Allow, "maybe"}[min(r.IntN(9)/4, 2)], user)
		if r.IntN(2) == 0 {
			n.ExpiresAt = later
		}
		w.putEntry(n)
	case 11, 12:
		b := aBlock("b"+id, tenant, policy, user)
		b.ExpiresAt = later
		w.putBlock(b)
	default:
		w.putChange(exceptions.Change{TenantID: tenantID(tenant), Policy: policy})
	}
}

// equal returns an error with the difference of two snapshots of one world.
func equal(got, want *Snapshot) error {
	if got.Counts() != want.Counts() || got.size != want.size || got.rows.Len() != want.rows.Len() {
		return fmt.Errorf("counts %+v, %+v, want %+v, %+v", got.Counts(), got.size, want.Counts(), want.size)
	}
	if !got.NextEnd().Equal(want.NextEnd()) {
		return fmt.Errorf("next end %s, want %s", got.NextEnd(), want.NextEnd())
	}
	for id, t := range want.tenants.All {
		g, ok := got.tenants.Get(id)
		if !ok || !reflect.DeepEqual(g.subject, t.subject) || !reflect.DeepEqual(g.rows, t.rows) {
			return fmt.Errorf("tenant %s: %+v with %+v, want %+v with %+v", id, g.subject, g.rows, t.subject, t.rows)
		}
	}
	for hash, k := range got.keys.All {
		if k.Operator {
			continue
		}
		if s, _ := got.Subject(k.Subject.TenantID); s != k.Subject {
			return fmt.Errorf("key %s leads to an old tenant", k.ID)
		}
		if _, ok := want.keys.Get(hash); !ok {
			return fmt.Errorf("key %s is too much", k.ID)
		}
	}
	for _, p := range slices.Concat(got.Problems(), want.Problems()) {
		g, w := got.faults[object{p.Kind, p.ID}], want.faults[object{p.Kind, p.ID}]
		if g.Name != w.Name || g.Kept != w.Kept || fmt.Sprint(g.Err) != fmt.Sprint(w.Err) {
			return fmt.Errorf("problem %+v, want %+v", g, w)
		}
	}
	return nil
}

// A node holds as many rows of one tenant as it may have, and each is in force.
// The full size is BenchmarkFullTenant's; this is a fiftieth.
func TestManyRowsOfOneTenant(t *testing.T) {
	t.Parallel()
	const n = exceptions.MaxOverrides / 50
	w := fullTenant(n)
	s := compile(t, nil, w.changes(), Options{})
	if got := s.Counts(); got.Overrides != n || got.Entries != n || got.Blocks != n || s.ProblemCount() != 0 {
		t.Fatalf("%+v, %d problems", got, s.ProblemCount())
	}
	for _, at := range []int{0, 1, n / 2, n - 1} {
		user := fmt.Sprintf("user-%d", at)
		if got := quota(t, subject(t, s, "tenant-1"), 0, user); got != 20 {
			t.Errorf("%s: quota %d, want the override's 20", user, got)
		}
	}
	if got := quota(t, subject(t, s, "tenant-1"), 0, "nobody"); got != 10 {
		t.Errorf("quota %d, want the plan's 10", got)
	}
}
