package storetest

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

func testPlanLife(s *suite) {
	first := document("Pro", policy("all", window(10)))
	p, err := s.Store.CreatePlan(s.ctx, plans.Plan{Slug: "pro", Draft: first}, entry("plan.create"))
	s.must(err)
	want := plans.Plan{
		ID: p.ID, Slug: "pro", Draft: first, DraftRevision: s.revision(), Revision: s.revision(),
		CreatedAt: s.Clock.stored(), UpdatedAt: s.Clock.stored(),
	}
	s.same("made", p, want)

	s.Clock.Add(time.Hour)
	second := document("Pro 2", policy("all", window(20)))
	p, err = s.Store.SaveDraft(s.ctx, p.ID, second, p.DraftRevision, entry("plan.save_draft"))
	s.must(err)
	want.Draft, want.DraftRevision, want.Revision, want.UpdatedAt = second, s.revision(), s.revision(), s.Clock.stored()
	s.same("saved", p, want)

	p = s.publish(p)
	want.Published, want.Latest, want.Revision = 1, 1, s.revision()
	s.same("published", p, want)
	acme := s.tenant("acme", "pro")
	want.Tenants = 1
	for _, name := range []string{"pro", p.ID} {
		got, err := s.Store.Plan(s.ctx, name)
		s.must(err)
		s.same("read by "+name, got, want)
	}
	s.wantKind(s.Store.DeletePlan(s.ctx, p.ID, p.Revision, entry("plan.delete")), problem.Conflict, "plan_in_use")
	s.must(s.Store.DeleteTenant(s.ctx, acme.ID, acme.Revision, entry("tenant.delete")))
	s.must(s.Store.DeletePlan(s.ctx, p.ID, p.Revision, entry("plan.delete")))
	_, err = s.Store.Plan(s.ctx, p.ID)
	s.wantKind(err, problem.NotFound, "")
	versions, err := s.Store.Versions(s.ctx, p.ID, 0, 0)
	s.must(err)
	s.same("versions of a deleted plan", versions, []plans.Version(nil))
	s.plan("pro", policy("all", window(1))) // the slug is free again
}

func testPlanRefusals(s *suite) {
	pro := s.plan("pro", policy("all", window(10)))
	before := s.revision()
	const nobody = "01900000-0000-7000-8000-000000000000"
	_, err := s.Store.CreatePlan(s.ctx, plans.Plan{Slug: "pro", Draft: document("Again")}, entry("plan.create"))
	s.wantKind(err, problem.Conflict, "slug_taken")
	_, err = s.Store.SaveDraft(s.ctx, nobody, document("N"), 1, entry("plan.save_draft"))
	s.wantKind(err, problem.NotFound, "")
	_, err = s.Store.SaveDraft(s.ctx, pro.ID, document("N"), pro.DraftRevision-1, entry("plan.save_draft"))
	s.wantKind(err, problem.Stale, "")
	_, _, err = s.Store.Publish(s.ctx, nobody, 1, entry("plan.publish"))
	s.wantKind(err, problem.NotFound, "")
	_, _, err = s.Store.Publish(s.ctx, pro.ID, pro.DraftRevision-1, entry("plan.publish"))
	s.wantKind(err, problem.Stale, "")
	_, _, err = s.Store.PublishVersion(s.ctx, pro.ID, 2, plans.AnyVersion, entry("plan.publish"))
	s.wantKind(err, problem.NotFound, "")
	_, err = s.Store.Version(s.ctx, pro.ID, 2)
	s.wantKind(err, problem.NotFound, "")
	s.wantKind(s.Store.DeletePlan(s.ctx, nobody, 1, entry("plan.delete")), problem.NotFound, "")
	s.wantKind(s.Store.DeletePlan(s.ctx, pro.ID, pro.Revision-1, entry("plan.delete")), problem.Stale, "")
	odd := policy("odd", enforcement.Limit{Algorithm: enforcement.GCRA, Quota: 1, Window: time.Microsecond})
	_, err = s.Store.SaveDraft(s.ctx, pro.ID, document("N", odd), pro.DraftRevision, entry("plan.save_draft"))
	s.wantKind(err, problem.Invalid, "")
	if n := s.revision(); n != before {
		s.Errorf("refusals took the revision from %d to %d", before, n)
	}

	free := s.plan("free", policy("all", window(1)))
	list, err := s.Store.Plans(s.ctx, plans.Filter{})
	s.must(err)
	s.same("all plans", ids(list, planID), []string{pro.ID, free.ID})
	list, err = s.Store.Plans(s.ctx, plans.Filter{After: pro.ID, Limit: 1})
	s.must(err)
	s.same("second page", ids(list, planID), []string{free.ID})
	list, err = s.Store.Plans(s.ctx, plans.Filter{Query: "FR"})
	s.must(err)
	s.same("found", ids(list, planID), []string{free.ID})
}

func testDocumentRoundTrip(s *suite) {
	full := plans.Policy{
		Slug: "login-per-ip", Description: "<b>&\u2028 \"quoted\" \\ äöü 😀",
		Match: plans.Match{
			Methods: []string{"POST", "PUT"}, Path: "/v1/{id}/*",
			Attributes: map[string]string{"tier": "free", "a b": "\t\n", "ü": ""},
		},
		CountBy: []string{"ip/64", "user"}, Missing: enforcement.MissingDeny, Replaces: []string{"all"},
		Mode: enforcement.PolicyShadow, OnFailure: enforcement.OnFailureClosed, Consistency: enforcement.Exact,
		Limits: []enforcement.Limit{
			{Name: "a", Algorithm: enforcement.FixedWindow, Quota: 0, Window: time.Millisecond, Anchor: enforcement.Clock},
			{Name: "b", Algorithm: enforcement.SlidingWindowLog, Quota: 10_000, Window: enforcement.MaxWindow},
			{Name: "c", Algorithm: enforcement.SlidingWindowCounter, Quota: enforcement.MaxQuota, Window: time.Hour},
			{Name: "d", Algorithm: enforcement.TokenBucket, Quota: 5, Burst: enforcement.MaxQuota, Window: time.Second},
			{Name: "e", Algorithm: enforcement.GCRA, Quota: 5, Window: time.Second},
		},
	}
	want := plans.New(plans.Content{Name: "Näme", Description: "two\nlines", Policies: []plans.Policy{full, {Slug: "all"}}})
	p, err := s.Store.CreatePlan(s.ctx, plans.Plan{Slug: "full", Draft: want}, entry("plan.create"))
	s.must(err)
	p = s.publish(p)
	s.same("the draft", p.Draft, want)
	v, err := s.Store.Version(s.ctx, p.ID, 1)
	s.must(err)
	s.same("the version", v.Document, want)
	world := s.world().Plans
	s.same("the published one", world[0].Document, want)
	var names []string
	for i, l := range world[0].Limits {
		names = append(names, l.Cell.Limit)
		if diff := l.Limit; diff != full.Limits[i] {
			s.Errorf("limit in force %+v, want %+v", diff, full.Limits[i])
		}
	}
	s.same("limits in the order of the document", names, []string{"a", "b", "c", "d", "e"})
}

func testVersions(s *suite) {
	p := s.plan("pro", policy("all", window(1)))
	first, err := s.Store.Version(s.ctx, p.ID, 1)
	s.must(err)
	s.same("the first version", first, plans.Version{
		PlanID: p.ID, Number: 1, Document: p.Draft, PublishedAt: s.Clock.stored(), PublishedBy: entry("").Actor, Revision: p.Revision,
	})
	s.Clock.Add(time.Hour)
	before, lines := s.revision(), s.lines(audit.Filter{})
	unchanged, v, err := s.Store.Publish(s.ctx, p.ID, p.DraftRevision, entry("plan.publish"))
	s.must(err)
	s.same("the plan after an unchanged draft", unchanged, p)
	s.same("the version of an unchanged draft", v, first)
	s.same("the revision after an unchanged draft", s.revision(), before)
	s.same("the log after an unchanged draft", s.lines(audit.Filter{}), lines)
	p = s.revise(p, policy("all", window(2)))
	if p.Published != 2 || p.Latest != 2 {
		s.Errorf("published %d, latest %d; want 2 and 2", p.Published, p.Latest)
	}
	p = s.revise(p, policy("all", window(3)))
	again, err := s.Store.Version(s.ctx, p.ID, 1)
	s.must(err)
	s.same("the first version later", again, first)
	if err := s.Exec(`UPDATE plan_versions SET document = 'x'`); err == nil {
		s.Error("a version was changed past the store")
	}
	numbers := func(before, limit int) (list []int) {
		versions, err := s.Store.Versions(s.ctx, p.ID, before, limit)
		s.must(err)
		for _, v := range versions {
			list = append(list, v.Number)
		}
		return list
	}
	s.same("newest first", numbers(0, 2), []int{3, 2})
	s.same("next page", numbers(2, 2), []int{1})
}

func former(l enforcement.Limit, rev int64, until time.Time) enforcement.Former {
	return enforcement.Former{Numbers: l.Numbers(), Rev: rev, Until: until.UnixMicro()}
}

func testFormers(s *suite) {
	p := s.plan("pro", policy("changed", bucket(10, 20)), policy("same", window(5)), policy("dropped", window(7)))
	first := s.revision()
	for slug, l := range s.inForce(p.ID) {
		if l.Rev != first || len(l.Formers) != 0 || l.Cell.Number == 0 {
			s.Errorf("%s is in force since %d with formers %v, cell %d; want %d and none", slug, l.Rev, l.Formers, l.Cell.Number, first)
		}
	}
	s.Clock.Add(time.Hour)
	changedAt := s.Clock.Now()
	p = s.revise(p, policy("same", window(5)), policy("changed", bucket(10, 30)))
	second := s.revision()
	now := s.inForce(p.ID)
	if _, ok := now["dropped"]; ok || len(now) != 2 {
		s.Errorf("in force are %v", now)
	}
	if l := now["same"]; l.Rev != first || len(l.Formers) != 0 {
		s.Errorf("the unchanged limit: %+v", l)
	}
	if l := now["changed"]; l.Rev != second || l.Limit.Burst != 30 {
		s.Errorf("the changed limit: %+v", l)
	}
	s.same("formers", now["changed"].Formers, []enforcement.Former{former(bucket(10, 20), first, changedAt)})

	s.Clock.Add(time.Hour)
	back := s.Clock.Now()
	p = s.revise(p, policy("dropped", window(8)))
	l := s.inForce(p.ID)["dropped"]
	s.same("formers of a limit that came back", l.Formers, []enforcement.Former{former(window(7), first, back)})
	third := s.revision()

	s.Clock.Add(time.Hour)
	reset := window(9)
	reset.CarryOver = enforcement.CarryReset
	s.revise(p, policy("dropped", reset))
	last := former(window(8), third, s.Clock.Now())
	last.CarryOver = enforcement.CarryReset
	s.same("formers with a carry-over", s.inForce(p.ID)["dropped"].Formers, []enforcement.Former{former(window(7), first, back), last})
}

func testMaxFormers(s *suite) {
	p := s.plan("pro", policy("all", window(1)))
	revs := []int64{s.revision()}
	var ends []time.Time
	for i := range plans.MaxFormers + 2 {
		s.Clock.Add(time.Minute)
		ends = append(ends, s.Clock.Now())
		p = s.revise(p, policy("all", window(int64(i+2))))
		revs = append(revs, s.revision())
	}
	var want []enforcement.Former
	for i := 2; i < plans.MaxFormers+2; i++ {
		want = append(want, former(window(int64(i+1)), revs[i], ends[i]))
	}
	s.same("formers", s.inForce(p.ID)["all"].Formers, want)

	s.Clock.Add(-time.Hour) // even if the clock goes back, the ends stay in order
	p = s.revise(p, policy("all", window(100)))
	formers := s.inForce(p.ID)["all"].Formers
	if last := len(formers) - 1; formers[last].Until < formers[last-1].Until {
		s.Errorf("ends went back: %v", formers)
	}
}

func testCells(s *suite) {
	base := policy("api", window(10), "user", "ip")
	cells := make(map[uint32]string)
	number := func(plan string, p plans.Policy) uint32 {
		s.Helper()
		made := s.plan(plan, p)
		l := s.inForce(made.ID)[p.Slug]
		s.same("count_by of the cell", l.Cell.CountBy, p.CountBy)
		return l.Cell.Number
	}
	first := number("a", base)
	cells[first] = "base"
	if n := number("b", policy("api", window(99), "user", "ip")); n != first {
		s.Errorf("the same limit with other numbers has cell %d in another plan, want %d", n, first)
	}
	clocked := base
	clocked.Limits = []enforcement.Limit{{
		Name: "l1", Algorithm: enforcement.FixedWindow, Quota: 10, Window: time.Minute,
		Anchor: enforcement.Clock,
	}}
	named := window(10)
	named.Name = "l2"
	for i, p := range []plans.Policy{
		policy("other", window(10), "user", "ip"), policy("api", named, "user", "ip"),
		policy("api", bucket(10, 0), "user", "ip"), clocked,
		policy("api", window(10), "ip", "user"), policy("api", window(10), "user"),
		policy("api", window(10)), policy("api", window(10), `user","ip`),
	} {
		n := number(fmt.Sprintf("c%d", i), p)
		if what, taken := cells[n]; taken {
			s.Errorf("policy %d shares cell %d with %s", i, n, what)
		}
		cells[n] = fmt.Sprint("policy ", i)
	}
	// A calendar window has another counter. If the period comes back, its counter comes back too.
	monthly := base
	monthly.Limits = []enforcement.Limit{{
		Name: "l1", Algorithm: enforcement.FixedWindow, Quota: 10, Window: enforcement.Month.Longest(), Period: enforcement.Month,
		Anchor: enforcement.ByCalendar,
	}}
	if what, taken := cells[number("m", monthly)]; taken {
		s.Errorf("a month shares a cell with %s", what)
	}
	made := s.plan("m2", monthly)
	s.same("the limit in force", s.inForce(made.ID)["api"].Limit, monthly.Limits[0])
	s.same("the limit in the draft", made.Draft.Policies()[0].Limits[0], monthly.Limits[0])
	// A bucket has no anchor. An anchor that is left in the document has no effect.
	anchored := bucket(10, 0)
	anchored.Anchor = enforcement.Clock
	if n := number("d", policy("api", anchored, "user", "ip")); cells[n] != "policy 2" {
		s.Errorf("a bucket with an anchor has cell %d (%s)", n, cells[n])
	}
	// token_bucket and gcra have the same counters, independent of which was published first.
	spaced := bucket(30, 0)
	spaced.Algorithm = enforcement.GCRA
	if n := number("g", policy("api", spaced, "user", "ip")); cells[n] != "policy 2" {
		s.Errorf("gcra has cell %d (%s), not that of the token_bucket", n, cells[n])
	}
	first = number("h", policy("spaced", spaced, "user"))
	renamed := s.plan("i", policy("spaced", spaced, "user"))
	renamed = s.revise(renamed, policy("spaced", bucket(40, 0), "user"))
	limit := s.inForce(renamed.ID)["spaced"]
	kept := limit.Cell.Number == first && limit.Limit.Algorithm == enforcement.TokenBucket
	if !kept || len(limit.Formers) != 1 || limit.Formers[0].Quota != 30 {
		s.Errorf("a token_bucket that was gcra has %+v, want cell %d with the former quota 30", limit, first)
	}
	// The number of a cell is never used again, even if its plan was deleted.
	gone := s.plan("gone", policy("gone", window(1)))
	was := s.inForce(gone.ID)["gone"].Cell.Number
	s.must(s.Store.DeletePlan(s.ctx, gone.ID, gone.Revision, entry("plan.delete")))
	if n := number("next", policy("next", window(1))); n == was {
		s.Errorf("cell %d was given again", n)
	}
}

func testRollback(s *suite) {
	p := s.plan("pro", policy("all", window(1)), policy("old", window(5)))
	first := s.revision()
	p = s.revise(p, policy("all", window(2)))
	second := s.revision()
	s.Clock.Add(time.Hour)
	draft := p.Draft
	for _, other := range []int{0, 1, 3} {
		_, _, err := s.Store.PublishVersion(s.ctx, p.ID, 1, other, entry("plan.publish"))
		s.wantKind(err, problem.Stale, "")
	}
	if now := s.revision(); now != second {
		s.Errorf("what is stale makes revision %d after %d", now, second)
	}
	again, _, err := s.Store.PublishVersion(s.ctx, p.ID, 2, 2, entry("plan.publish"))
	if s.must(err); again.Published != 2 {
		s.Errorf("published %d, want 2", again.Published)
	}
	p, v, err := s.Store.PublishVersion(s.ctx, p.ID, 1, plans.AnyVersion, entry("plan.publish"))
	s.must(err)
	if p.Published != 1 || p.Latest != 2 || v.Number != 1 || p.Revision != s.revision() {
		s.Errorf("published %d, latest %d, version %d, revision %d", p.Published, p.Latest, v.Number, p.Revision)
	}
	s.same("the draft is left alone", p.Draft, draft)
	now := s.inForce(p.ID)
	if l := now["all"]; l.Limit.Quota != 1 || l.Rev != s.revision() || len(l.Formers) != 2 || l.Formers[1].Rev != second {
		s.Errorf("after the rollback: %+v", l)
	}
	if l := now["old"]; l.Limit.Quota != 5 || l.Rev != first {
		s.Errorf("the limit that only the old version has: %+v", l)
	}
	p = s.publish(p)
	if p.Published != 3 || p.Latest != 3 {
		s.Errorf("the next version is %d, latest %d; want 3", p.Published, p.Latest)
	}
}

func testDated(s *suite) {
	now, then := s.Clock.stored(), s.Clock.stored().AddDate(0, 0, -7)
	dated := audit.Dated(s.ctx, then.Add(300*time.Nanosecond))
	p, err := s.Store.CreatePlan(dated, plans.Plan{Slug: "pro", Draft: document("Pro", policy("all", window(1)))}, entry("plan.create"))
	s.must(err)
	p, v, err := s.Store.Publish(dated, p.ID, p.DraftRevision, entry("plan.publish"))
	s.must(err)
	t, err := s.Store.CreateTenant(dated, tenants.Tenant{Slug: "acme", Document: tenantDocument("acme", "pro")}, entry("tenant.create"))
	s.must(err)
	s.same("when all is made", []time.Time{p.CreatedAt, v.PublishedAt, t.CreatedAt, t.UpdatedAt}, []time.Time{then, then, then, then})
	if v.Revision != p.Revision || t.Revision != s.revision() {
		s.Errorf("revisions: version %d, plan %d, tenant %d", v.Revision, p.Revision, t.Revision)
	}
	lines, err := s.Store.AuditEntries(s.ctx, audit.Filter{})
	s.must(err)
	if len(lines) != 3 {
		s.Errorf("%d lines", len(lines))
	}
	for _, l := range lines {
		if !l.At.Equal(now) {
			s.Errorf("the line of %s is of %s, not of %s", l.Action, l.At, now)
		}
	}
	s.revise(p, policy("all", window(2)))
	if v, err = s.Store.Version(s.ctx, p.ID, 2); err != nil || !v.PublishedAt.Equal(now) {
		s.Errorf("what is not told of is dated %s, error %v", v.PublishedAt, err)
	}
}
