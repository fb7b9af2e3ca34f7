package demo

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// The counts of the history are those of its decisions, by tenant, outcome, route, and
// policy, before and after roll-ups.
func TestHistoryIsExact(t *testing.T) {
	t.Parallel()
	h, l, now := newHouse(t), newLedger(), time.Now()
	s := h.demo(now, 8, l)
	key, err := s.Fill(h.ctx, h.node())
	h.must(err)
	if key.Token == "" || key.Tenant != tenantCobalt {
		t.Errorf("key: %+v", key)
	}
	info, err := s.Present(h.ctx)
	h.must(err)
	if !info.Present || info.Making || len(info.Tenants) != 3 {
		t.Fatalf("present: %+v", info)
	}
	for _, number := range append(info.numbers(), 0) {
		l.compare(t, number, sums(h.rows(number)))
	}

	// Every refusal of the part that is told by the minute is kept.
	boundary := now.Truncate(time.Second).Add(-2 * time.Hour).Truncate(time.Hour)
	recent := func(ids [][16]byte) (some [][16]byte) {
		for _, id := range ids {
			if int64(binary.BigEndian.Uint64(id[:])>>16) >= boundary.UnixMilli() {
				some = append(some, id)
			}
		}
		slices.SortFunc(some, compareIDs)
		return some
	}
	if got, want := recent(h.refusals()), recent(l.refused); len(want) < 100 || !slices.Equal(got, want) {
		t.Errorf("%d refusals of the last hours are kept, %d were made", len(got), len(want))
	}

	// Once rolled up, the hours say the same.
	h.must(metrics.NewRoller(h.store, metrics.RollerConfig{}).Turn(h.ctx))
	analytics := metrics.NewAnalytics(h.store, metrics.AnalyticsConfig{})
	for _, number := range append(info.numbers(), 0) {
		got, err := analytics.Traffic(h.ctx, metrics.Query{Tenant: number, From: now.Add(-9 * time.Hour), To: now, Step: metrics.Hour})
		h.must(err)
		got.Total.Cost = 0
		if want := l.tenants[number]["total "]; got.Total != want {
			t.Errorf("tenant %d over all hours: %+v, want %+v", number, got.Total, want)
		}
		busy := 0
		for _, p := range got.Points {
			if p.Requests > 0 {
				busy++
			}
		}
		if busy < 8 {
			t.Errorf("tenant %d has decisions in %d hours", number, busy)
		}
	}
	// Something of everything is there to be seen.
	for _, of := range []struct{ tenant, key, field string }{
		{tenantAcme, "total ", "listed"},
		{tenantAcme, "policy reports-per-user", "shadow"},
		{tenantAcme, "route /v1/exports/*", "limited"},
		{tenantBloom, "total ", "denied"},
		{tenantBloom, "total ", "unmatched"},
		{tenantBloom, "route /v1/login", "limited"},
		{tenantBloom, "policy api-per-address", "shadow"},
		{tenantBloom, "route /v1/beta/*", "requests"},
		{tenantCobalt, "total ", "blocked"},
		{tenantCobalt, "total ", "limited"},
	} {
		at := slices.IndexFunc(info.Tenants, func(m Made) bool { return m.Slug == of.tenant })
		c := l.tenants[info.Tenants[at].Number][of.key]
		if n := map[string]int64{"listed": c.Listed, "shadow": c.ShadowRefused, "limited": c.OverLimit, "denied": c.DeniedByList, "unmatched": c.Unmatched, "blocked": c.Blocked, "requests": c.Requests}[of.field]; n == 0 {
			t.Errorf("%s has no %q in %q: %+v", of.tenant, of.field, of.key, c)
		}
	}
}

// Plans, versions, and tenants have the dates of the history, and so do the lines of the
// log.
func TestWhatIsMadeIsDated(t *testing.T) {
	t.Parallel()
	h, now := newHouse(t), time.Now()
	_, err := h.demo(now, 2, nil).Fill(h.ctx, h.node())
	h.must(err)
	begin := now.Add(-2 * time.Hour)
	for _, slug := range planSlugs {
		p, err := h.plans.Plan(h.ctx, slug)
		h.must(err)
		versions, err := h.plans.Versions(h.ctx, p.ID, 0, 0)
		h.must(err)
		first := versions[len(versions)-1]
		if !p.CreatedAt.Before(begin) || !first.PublishedAt.Before(begin) {
			t.Errorf("plan %s is of %s, its first version of %s", p.Slug, p.CreatedAt, first.PublishedAt)
		}
		boundary := now.Add(-time.Hour / 2).Truncate(time.Hour)
		if at := versions[0].PublishedAt; len(versions) != 2 || !at.Equal(boundary.Add(-time.Minute)) {
			t.Errorf("plan %s has %d versions, the second of %s; want %s", p.Slug, len(versions), at, boundary.Add(-time.Minute))
		}
	}
	for _, of := range sampleTenants(now) {
		if tenant, err := h.tenants.Tenant(h.ctx, of.slug); err != nil || !tenant.CreatedAt.Before(begin) {
			t.Errorf("tenant %s is of %s, error %v", of.slug, tenant.CreatedAt, err)
		}
	}
	lines, err := h.store.AuditEntries(h.ctx, audit.Filter{})
	h.must(err)
	for _, l := range lines {
		if l.At.Before(now.Truncate(time.Second)) {
			t.Errorf("the line of %s of %s is dated %s", l.Action, l.ObjectName, l.At)
		}
	}
}

// A quota of a month is live as far used as the history says, and nothing of
// that is counted as a decision.
func TestUseIsCarriedOver(t *testing.T) {
	t.Parallel()
	h, l, now := newHouse(t), newLedger(), time.Now()
	node, live := h.node(), inprocess.New(inprocess.Config{})
	node.Limiter = live
	s := h.demo(now, 8, l)
	var orders atomic.Int64 // of this user, that came through
	s.observe = func(d *enforcement.Decision) {
		l.note(d)
		if d.Allowed && d.Route == "/v1/orders" && d.Check.Attributes[0].Value == heavyUser {
			orders.Add(1)
		}
	}
	_, err := s.Fill(h.ctx, node)
	h.must(err)
	info, err := s.Present(h.ctx)
	h.must(err)
	engine := enforcement.NewEngine(live, enforcement.Config{})
	bloom := info.subjects(h.watcher.Current())[tenantBloom]
	var d enforcement.Decision
	engine.Decide(h.ctx, bloom, &enforcement.Check{
		Method: "POST", Path: "/v1/orders", Mode: enforcement.Peek, Attributes: []enforcement.Attribute{{Name: "user", Value: heavyUser}},
	}, &d)
	at := slices.IndexFunc(d.Limits, func(s enforcement.LimitState) bool { return s.Rule.Policy == "orders-per-month" })
	if at < 0 {
		t.Fatalf("limits: %+v", d.Limits)
	}
	used := d.Limits[at].Limit.Quota - d.Limits[at].Remaining
	if want := orders.Load(); used != want || want < 20 {
		t.Errorf("%d orders are used live, %d were made", used, want)
	}
	l.compare(t, bloom.Number, sums(h.rows(bloom.Number)))
}

// What people can look at beside the counts: two versions and a draft, exceptions,
// and a line of the audit log for each.
func TestWhatIsMade(t *testing.T) {
	t.Parallel()
	h, now := newHouse(t), time.Now()
	s := h.demo(now, 1, nil)
	_, err := s.Fill(h.ctx, h.node())
	h.must(err)
	p, err := h.plans.Plan(h.ctx, planPro)
	h.must(err)
	diff, err := h.plans.Diff(h.ctx, planPro)
	h.must(err)
	if p.Published != 2 || p.Latest != 2 || cmp.Equal(diff, p.Draft) || len(fmt.Sprint(diff)) < 10 {
		t.Errorf("plan %s: version %d of %d, diff %+v", planPro, p.Published, p.Latest, diff)
	}
	algorithms := map[string]bool{}
	for _, slug := range planSlugs {
		p, err := h.plans.Plan(h.ctx, slug)
		h.must(err)
		for _, policy := range p.Draft.Policies() {
			for _, l := range policy.Limits {
				algorithms[l.Algorithm.String()] = true
			}
		}
	}
	if len(algorithms) != 5 {
		t.Errorf("algorithms shown: %v", algorithms)
	}
	counts := h.watcher.Current().Counts()
	if counts.Overrides != 2 || counts.Entries != 2 || counts.Blocks != 1 || counts.Keys != 3 || counts.Tenants != 3 {
		t.Errorf("in force: %+v", counts)
	}
	if problems := h.watcher.Current().Problems(); len(problems) > 0 {
		t.Errorf("rows that cannot be used: %v", problems)
	}
	lines, err := h.store.AuditEntries(h.ctx, audit.Filter{Limit: 100})
	h.must(err)
	actions := map[string]int{}
	for _, line := range lines {
		actions[line.Action]++
		if line.Actor.ID != "demo" {
			t.Errorf("%s %s was done by %+v", line.Action, line.ObjectName, line.Actor)
		}
	}
	want := map[string]int{
		"demo.begin": 1, "demo.make": 1, "plan.create": 3, "plan.publish": 6, "plan.save_draft": 4, "tenant.create": 3, "key.create": 3,
		"override.create": 2, "list_entry.create": 2, "block.create": 1,
	}
	if d := cmp.Diff(want, actions); d != "" {
		t.Errorf("audited (-want +got):\n%s", d)
	}
}

// The same seed and time create the same history, to the byte. Only the keys that a full
// sketch drops depend on the number of processors.
func TestHistoryIsTheSame(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var houses [2]*house
	for i := range houses {
		houses[i] = newHouse(t)
		_, err := houses[i].demo(now, 2, nil).Fill(houses[i].ctx, houses[i].node())
		houses[i].must(err)
	}
	a, b := houses[0], houses[1]
	for number := range uint32(4) {
		if rows := a.rows(number); len(rows) == 0 || !cmp.Equal(rows, b.rows(number)) {
			t.Errorf("tenant %d: %d rows of counts differ", number, len(rows))
		}
		// Not the latency: it is that of this machine.
		for _, name := range []string{
			metrics.SketchLimitedKeys, metrics.SketchAllowedKeys, metrics.SketchLimitedTenants, metrics.SketchBusyTenants,
			metrics.SketchRetryAfter, metrics.SketchRemaining,
		} {
			q := metrics.SketchQuery{Step: metrics.Minute, To: now.Add(24*time.Hour).Unix() / 60 * 60, Tenant: number, Name: name}
			ours, err := a.store.Sketches(a.ctx, q)
			a.must(err)
			theirs, err := b.store.Sketches(b.ctx, q)
			b.must(err)
			full := func(doc []byte) bool { return bytes.Contains(doc, []byte(`"floor"`)) }
			if !slices.EqualFunc(ours, theirs, func(x, y metrics.SketchRow) bool {
				return x.At == y.At && (full(x.Doc) && full(y.Doc) || bytes.Equal(x.Doc, y.Doc))
			}) {
				t.Errorf("tenant %d: sketches %s differ", number, name)
			}
		}
	}
	if ids := a.refusals(); len(ids) == 0 || !slices.Equal(ids, b.refusals()) {
		t.Errorf("%d kept refusals differ", len(ids))
	}
}

// A restarted demo fills only the time in which it did not run, and only once.
func TestFillGoesOn(t *testing.T) {
	t.Parallel()
	h, now := newHouse(t), time.Now()
	before, gap := newLedger(), newLedger()
	_, err := h.demo(now.Add(-90*time.Minute), 1, before).Fill(h.ctx, h.node())
	h.must(err)
	first := h.rows(0)
	last := slices.MaxFunc(first, func(a, b metrics.CountRow) int { return int(a.At - b.At) }).At
	s := h.demo(now, 6, gap)
	key, err := s.Fill(h.ctx, h.node())
	h.must(err)
	if key != (Key{}) {
		t.Errorf("a second start makes a key of %s", key.Tenant)
	}
	if gap.n == 0 {
		t.Fatal("the gap is not told")
	}
	all := newLedger()
	for _, l := range []*ledger{before, gap} {
		for number, each := range l.tenants {
			if all.tenants[number] == nil {
				all.tenants[number] = map[string]metrics.Counts{}
			}
			for k, c := range each {
				sum := all.tenants[number][k]
				sum.Add(&c)
				all.tenants[number][k] = sum
			}
		}
	}
	for number := range uint32(4) {
		all.compare(t, number, sums(h.rows(number)))
	}
	var older []metrics.CountRow
	for _, r := range h.rows(0) {
		if r.At <= last {
			older = append(older, r)
		}
	}
	if d := cmp.Diff(first, older); d != "" {
		t.Errorf("what was there is not what it was (-before +after):\n%s", d)
	}
	n := gap.n
	_, err = s.Fill(h.ctx, h.node()) // at the same instant
	h.must(err)
	if gap.n != n {
		t.Errorf("started at the same instant, %d decisions are told", gap.n-n)
	}
	list, err := h.tenants.Tenants(h.ctx, tenants.Filter{})
	h.must(err)
	if len(list) != 3 {
		t.Errorf("%d tenants", len(list))
	}
}

// A database with other data is refused and left as it is.
func TestFillRefusesOtherData(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	_, err := h.tenants.CreateTenant(h.ctx, "bloom", tenants.Document{Name: "Bloom"})
	h.must(err)
	s := h.demo(time.Now(), 1, nil)
	if _, err := s.Fill(h.ctx, h.node()); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "did not make") {
		t.Errorf("error %v, want a conflict", err)
	}
	if info, err := s.Present(h.ctx); err != nil || info.Present {
		t.Errorf("present: %+v, error %v", info, err)
	}
	for _, slug := range planSlugs {
		if _, err := h.plans.Plan(h.ctx, slug); !problem.Is(err, problem.NotFound) {
			t.Errorf("plan %s: error %v", slug, err)
		}
	}
	list, err := h.tenants.Tenants(h.ctx, tenants.Filter{})
	h.must(err)
	if len(list) != 1 || list[0].Name != "Bloom" {
		t.Errorf("tenants: %+v", list)
	}
}

// A demo database in which people added tenants stays a demo database. One that
// was not completed is refused.
func TestFillRefusesAnIncompleteDemo(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s := h.demo(time.Now(), 1, nil)
	_, err := s.Fill(h.ctx, h.node())
	h.must(err)
	_, err = h.tenants.CreateTenant(h.ctx, "added", tenants.Document{Name: "Added"})
	h.must(err)
	if _, err := s.Fill(h.ctx, h.node()); err != nil {
		t.Errorf("with a tenant that was added: %v", err)
	}
	info, err := s.Present(h.ctx)
	h.must(err)
	info.Making = true
	h.must(s.note(h.ctx, info, "demo.begin"))
	if _, err := s.Fill(h.ctx, h.node()); !problem.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "incomplete") {
		t.Errorf("incomplete: error %v, want a conflict", err)
	}
}
