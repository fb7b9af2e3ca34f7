package storetest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
)

// sevenID returns a UUIDv7 as the ID of a decision. It contains the time in milliseconds and the
// number n.
func sevenID(at time.Time, n uint16) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], uint64(at.UnixMilli())<<16|0x7000)
	id[8] = 0x80
	binary.BigEndian.PutUint16(id[14:], n)
	return id
}

// kept stores n kept denials, one per second, of tenant 1 and tenant 2 in turn.
func (s *suite) kept(n int) []metrics.Refusal {
	s.Helper()
	b := metrics.Batch{Node: "n", Seq: 1}
	for i := range n {
		at := s.Clock.Now().Add(time.Duration(i) * time.Second)
		r := refusal(0, uint32(1+i%2), at)
		r.ID = sevenID(at, uint16(i))
		r.Policy, r.Route = []string{"p", "q", "r"}[i%3], []string{"/a", "/b"}[i/2%2]
		r.Attributes = []enforcement.Attribute{{Name: "ip", Value: "192.0.2.1"}, {Name: "user", Value: fmt.Sprint("u", i%5)}}
		if i%7 == 0 {
			r.Reason = enforcement.ReasonBlocked
		}
		b.Refusals = append(b.Refusals, r)
	}
	s.must(s.Store.AddCounts(s.ctx, b))
	slices.Reverse(b.Refusals)
	return b.Refusals
}

func (s *suite) refusals(f metrics.RefusalFilter) []metrics.Refusal {
	s.Helper()
	list, err := s.Other.Refusals(s.ctx, f)
	s.must(err)
	return list
}

func testRefusalPages(s *suite) {
	all := s.kept(60)
	only := func(keep func(*metrics.Refusal) bool) (list []metrics.Refusal) {
		for i := range all {
			if keep(&all[i]) {
				list = append(list, all[i])
			}
		}
		return list
	}
	at := func(i int) time.Time { return s.Clock.Now().Add(time.Duration(i) * time.Second) }
	s.same("all", s.refusals(metrics.RefusalFilter{}), all)
	s.same("of a tenant", s.refusals(metrics.RefusalFilter{Tenant: 2}), only(func(r *metrics.Refusal) bool { return r.Tenant == 2 }))
	s.same("of a policy", s.refusals(metrics.RefusalFilter{Tenant: 2, Policy: "q"}),
		only(func(r *metrics.Refusal) bool { return r.Tenant == 2 && r.Policy == "q" }))
	s.same("of a route", s.refusals(metrics.RefusalFilter{Route: "/b"}), only(func(r *metrics.Refusal) bool { return r.Route == "/b" }))
	s.same("for a reason", s.refusals(metrics.RefusalFilter{Reason: enforcement.ReasonBlocked}),
		only(func(r *metrics.Refusal) bool { return r.Reason == enforcement.ReasonBlocked }))
	s.same("of a time", s.refusals(metrics.RefusalFilter{From: at(10), To: at(20)}), all[60-20:60-10])
	s.same("of nobody", s.refusals(metrics.RefusalFilter{Tenant: 3}), []metrics.Refusal{})

	// A page does not change while newer denials are stored.
	f := metrics.RefusalFilter{Tenant: 1, Limit: 7}
	var paged []metrics.Refusal
	for seq := int64(2); ; seq++ {
		page := s.refusals(f)
		if paged = append(paged, page...); len(page) < f.Limit {
			break
		}
		f.Before = page[len(page)-1].ID
		newer := refusal(0, 1, at(100+int(seq)))
		newer.ID = sevenID(newer.At, 1)
		s.must(s.Store.AddCounts(s.ctx, metrics.Batch{Node: "n", Seq: seq, Refusals: []metrics.Refusal{newer}}))
	}
	s.same("pages", paged, only(func(r *metrics.Refusal) bool { return r.Tenant == 1 }))

	one := all[3]
	r, err := s.Other.Refusal(s.ctx, one.ID, one.Tenant)
	s.must(err)
	s.same("by id", r, one)
	_, foreign := s.Other.Refusal(s.ctx, one.ID, 3-one.Tenant)
	_, unknown := s.Other.Refusal(s.ctx, [16]byte{1}, 1)
	s.wantKind(foreign, problem.NotFound, "")
	if foreign.Error() != unknown.Error() {
		s.Errorf("another tenant's: %q, an unknown one: %q", foreign, unknown)
	}
}

func testRefusalAttributes(s *suite) {
	all := s.kept(1200) // the Store must read more than one piece of rows
	var want []metrics.Refusal
	for i := range all {
		if all[i].Tenant == 2 && all[i].Attributes[1].Value == "u3" {
			want = append(want, all[i])
		}
	}
	f := metrics.RefusalFilter{Tenant: 2, Limit: 1000, Attributes: []enforcement.Attribute{{Name: "user", Value: "u3"}}}
	s.same("of a user", s.refusals(f), want)
	for network, list := range map[string][]metrics.Refusal{
		"192.0.2.0/24": want, "192.0.2.1/32": want, "198.51.100.0/24": {},
		"2001:db8::/64": {}, "x/24": {},
	} {
		in := f
		in.Attributes = append(slices.Clone(f.Attributes), enforcement.Attribute{Name: "ip", Value: network})
		s.same("of a user in "+network, s.refusals(in), list)
		in.Attributes = []enforcement.Attribute{{Name: "user", Value: network}}
		s.same("of a user named "+network, s.refusals(in), []metrics.Refusal{})
	}
	f.Limit = 7
	var paged []metrics.Refusal
	for {
		page := s.refusals(f)
		if paged = append(paged, page...); len(page) < f.Limit {
			break
		}
		f.Before = page[len(page)-1].ID
	}
	s.same("pages", paged, want)
	f.Attributes = append(f.Attributes, enforcement.Attribute{Name: "ip", Value: "192.0.2.2"})
	s.same("of nobody", s.refusals(f), []metrics.Refusal{})
}

func testAllowedRequests(s *suite) {
	at := func(n int) time.Time { return s.Clock.Now().Add(time.Duration(n) * time.Second) }
	var all []metrics.Refusal
	for n := range 40 {
		r := refusal(byte(n+1), uint32(1+n%2), at(n))
		if n%4 < 2 {
			r.Allowed, r.Reason, r.RetryAfterMS, r.Degraded = true, enforcement.ReasonOK, 0, n%8 == 0
			r.Policies = append(r.Policies, metrics.RefusalPolicy{Policy: "other", Applies: n%8 < 4})
		}
		all = append(all, r)
	}
	s.must(s.Store.AddCounts(s.ctx, metrics.Batch{Node: "n", Seq: 1, Refusals: all}))
	slices.Reverse(all)
	ask := func(what string, f metrics.RefusalFilter, keep func(*metrics.Refusal) bool) {
		s.Helper()
		want := []metrics.Refusal{}
		for i := range all {
			if keep(&all[i]) {
				want = append(want, all[i])
			}
		}
		if len(want) == 0 {
			s.Errorf("%s: nothing is wanted", what)
		}
		s.same(what, s.refusals(f), want)
	}
	ask("by default", metrics.RefusalFilter{}, func(r *metrics.Refusal) bool { return !r.Allowed })
	ask("denied", metrics.RefusalFilter{Outcome: metrics.OutcomeDenied}, func(r *metrics.Refusal) bool { return !r.Allowed })
	ask("allowed", metrics.RefusalFilter{Outcome: metrics.OutcomeAllowed}, func(r *metrics.Refusal) bool { return r.Allowed })
	ask("any", metrics.RefusalFilter{Outcome: metrics.OutcomeAny}, func(*metrics.Refusal) bool { return true })
	ask("any of a tenant", metrics.RefusalFilter{Outcome: metrics.OutcomeAny, Tenant: 2},
		func(r *metrics.Refusal) bool { return r.Tenant == 2 })
	ask("allowed and degraded", metrics.RefusalFilter{Outcome: metrics.OutcomeAllowed, Degraded: true},
		func(r *metrics.Refusal) bool { return r.Allowed && r.Degraded })
	ask("allowed to which a policy applied", metrics.RefusalFilter{Outcome: metrics.OutcomeAllowed, Policy: "other"},
		func(r *metrics.Refusal) bool { return r.Allowed && r.Policies[1].Applies })
	ask("any of a policy", metrics.RefusalFilter{Outcome: metrics.OutcomeAny, Policy: "p"}, func(*metrics.Refusal) bool { return true })
	f := metrics.RefusalFilter{Outcome: metrics.OutcomeAny, Limit: 7}
	var paged []metrics.Refusal
	for {
		page := s.refusals(f)
		paged = append(paged, page...)
		if len(page) < 7 {
			break
		}
		f.Before = page[6].ID
	}
	s.same("pages of any", paged, all)
	for i := range all[:4] {
		r, err := s.Other.Refusal(s.ctx, all[i].ID, all[i].Tenant)
		s.must(err)
		s.same("by its id", r, all[i])
		if _, err := s.Other.Refusal(s.ctx, all[i].ID, 3-all[i].Tenant); !problem.Is(err, problem.NotFound) {
			s.Errorf("another tenant's: %v", err)
		}
	}
	s.must(s.Store.AddCounts(s.ctx, metrics.Batch{Node: "n", Seq: 2, Refusals: all})) // again: nothing is stored twice
	s.prune(metrics.Retention{MaxRefusals: 5})
	ask("the newest of each kind are left", metrics.RefusalFilter{Outcome: metrics.OutcomeAny}, func() func(r *metrics.Refusal) bool {
		left := map[bool]int{}
		return func(r *metrics.Refusal) bool { left[r.Allowed]++; return left[r.Allowed] <= 5 }
	}())
}

func testAllowedOfTenant(s *suite) {
	const most = 10_000
	var b metrics.Batch
	for i := range most + 3 {
		tenant := uint32(7)
		if i == 1 {
			tenant = 8
		}
		b.Refusals = append(b.Refusals, metrics.Refusal{
			ID: sevenID(s.Clock.Now(), uint16(i)), At: s.Clock.Now(), Tenant: tenant, Allowed: true, Reason: enforcement.ReasonOK,
			Attributes: []enforcement.Attribute{}, Limits: []metrics.RefusalLimit{}, Policies: []metrics.RefusalPolicy{},
		})
	}
	b.Node, b.Seq = "n", 1
	s.must(s.Store.AddCounts(s.ctx, b))
	s.prune(metrics.Retention{})
	for i, want := range map[int]bool{0: false, 1: true, 2: false, 3: true, most + 2: true} {
		if _, err := s.Store.Refusal(s.ctx, b.Refusals[i].ID, 0); (err == nil) != want {
			s.Errorf("row %d: %v, kept is %t", i, err, want)
		}
	}
}

func testRefusalReasons(s *suite) {
	b := metrics.Batch{Node: "n", Seq: 1}
	reasons := []enforcement.Reason{enforcement.ReasonOverLimit, enforcement.ReasonBlocked, enforcement.ReasonTenantSuspended}
	for i := range 1300 { // the degraded denials are in more than one piece of rows
		at := s.Clock.Now().Add(time.Duration(i) * time.Second)
		r := refusal(0, uint32(1+i%2), at)
		r.ID, r.Reason, r.Degraded = sevenID(at, uint16(i)), reasons[i%3], i%10 == 7
		r.RetryAfterMS = int64(i % 50)
		if i%50 == 49 {
			r.RetryAfterMS = enforcement.Never
		}
		b.Refusals = append(b.Refusals, r)
	}
	s.must(s.Store.AddCounts(s.ctx, b))
	slices.Reverse(b.Refusals)
	ask := func(what string, f metrics.RefusalFilter, keep func(*metrics.Refusal) bool) {
		s.Helper()
		var want []metrics.Refusal
		for i := range b.Refusals {
			if keep(&b.Refusals[i]) {
				want = append(want, b.Refusals[i])
			}
		}
		var got []metrics.Refusal
		for {
			page := s.refusals(f)
			if got = append(got, page...); len(page) < f.Limit {
				break
			}
			f.Before = page[len(page)-1].ID
		}
		s.same(what, got, want)
	}
	two := []enforcement.Reason{enforcement.ReasonTenantSuspended, enforcement.ReasonBlocked, enforcement.ReasonTenantSuspended}
	of := func(r *metrics.Refusal) bool { return slices.Contains(two, r.Reason) }
	ask("of two reasons", metrics.RefusalFilter{Reasons: two, Limit: 170}, of)
	ask("of two reasons and a tenant", metrics.RefusalFilter{Reasons: two, Tenant: 2, Limit: 170},
		func(r *metrics.Refusal) bool { return of(r) && r.Tenant == 2 })
	ask("of one of two reasons", metrics.RefusalFilter{Reasons: two, Reason: enforcement.ReasonBlocked, Limit: 170},
		func(r *metrics.Refusal) bool { return r.Reason == enforcement.ReasonBlocked })
	ask("of none of two reasons", metrics.RefusalFilter{Reasons: two, Reason: enforcement.ReasonOverLimit, Limit: 170},
		func(*metrics.Refusal) bool { return false })
	ask("degraded", metrics.RefusalFilter{Degraded: true, Limit: 20}, func(r *metrics.Refusal) bool { return r.Degraded })
	ask("with a retry time", metrics.RefusalFilter{RetryAfter: &metrics.Bucket{From: 10, To: 12}, Limit: 30},
		func(r *metrics.Refusal) bool { return r.RetryAfterMS == 11 || r.RetryAfterMS == 12 })
	ask("without wait", metrics.RefusalFilter{RetryAfter: &metrics.Bucket{From: -1, To: 0}, Limit: 20},
		func(r *metrics.Refusal) bool { return r.RetryAfterMS == 0 })
	ask("for which waiting does not help", metrics.RefusalFilter{RetryAfter: &metrics.Bucket{To: enforcement.Never}, Limit: 20},
		func(r *metrics.Refusal) bool { return r.RetryAfterMS == enforcement.Never })
	ask("degraded, of two reasons", metrics.RefusalFilter{Degraded: true, Reasons: two, Limit: 20},
		func(r *metrics.Refusal) bool { return of(r) && r.Degraded })
}

func testRefusalsAfter(s *suite) {
	all := s.kept(60)
	newer := all[:20]
	f := metrics.RefusalFilter{After: all[20].ID}
	s.same("newer than one", s.refusals(f), newer)
	f.Limit = 5
	s.same("the newest of them", s.refusals(f), newer[:5])
	f.Before = newer[4].ID
	s.same("their next page", s.refusals(f), newer[5:10])
	f = metrics.RefusalFilter{After: all[20].ID, Tenant: 2, Attributes: []enforcement.Attribute{{Name: "user", Value: "u3"}}}
	var want []metrics.Refusal
	for i := range newer {
		if newer[i].Tenant == 2 && newer[i].Attributes[1].Value == "u3" {
			want = append(want, newer[i])
		}
	}
	s.same("of a tenant's user", s.refusals(f), want)
	s.same("newer than the newest", s.refusals(metrics.RefusalFilter{After: all[0].ID}), []metrics.Refusal{})
}

func testMark(s *suite) {
	seen := map[metrics.Mark]string{}
	is := func(what string, known bool) {
		s.Helper()
		m, err := s.Other.Mark(s.ctx)
		s.must(err)
		before, found := seen[m]
		if found != known {
			s.Errorf("after %s the mark is %+v, known: %t (%s)", what, m, found, before)
		}
		seen[m] = what
	}
	is("nothing", false)
	is("nothing again", true)
	s.add("n", 1, count(midday, 1, 1))
	is("a batch", false)
	s.add("n", 1, count(midday, 1, 1))
	is("the same batch", true)
	s.add("n", 2, count(midday, 1, 1))
	is("the next batch", false)
	s.add("other", 1, count(midday, 1, 1))
	is("another node's", false)
	s.must(s.Store.AddCounts(s.ctx, metrics.Batch{Node: "other", Seq: 2, Refusals: []metrics.Refusal{refusal(7, 1, s.Clock.Now())}}))
	is("a refusal", false)
}

// A row that cannot be decoded is left out, in each of these cases, and the other rows of the page
// stay.
func testRefusalBroken(s *suite) {
	all := s.kept(6)
	for i, change := range []string{
		`doc = '{'`,
		`doc = '{"Unknown":1}'`,
		`doc = doc || '{}'`,
		`tenant = 9`,
	} {
		s.must(s.Exec(`UPDATE recent_refusals SET `+change+` WHERE id = $1`, all[i].ID[:]))
		if _, err := s.Store.Refusal(s.ctx, all[i].ID, 0); err == nil || problem.Is(err, problem.NotFound) {
			s.Errorf("%s: error %v", change, err)
		}
	}
	s.same("those that can be read", s.refusals(metrics.RefusalFilter{}), all[4:])
	s.same("a page", s.refusals(metrics.RefusalFilter{Limit: 1}), all[4:5])
}
