package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
)

// RunAnalytics tests the methods of metrics.Store that read, and metrics.Analytics with this Store.
// open returns a new Fixture for each test.
func RunAnalytics(t *testing.T, open func(t *testing.T) Fixture) {
	for _, test := range []struct {
		name string
		run  func(*suite)
	}{
		{"counts are found by tenant, kind, name and time", testCountsFound},
		{"counts are summed by tenant and name", testCountsSummed},
		{"what is due of a span's days is told", testKept},
		{"answers are the sums of what was counted", testAnalyticsModel},
		{"an answer is whole at every edge", testAnalyticsEdges},
		{"many routes are ranked from a bounded number of rows", testManyRoutes},
		{"refusals are found and paged newest first", testRefusalPages},
		{"refusals are found by the attributes of a key", testRefusalAttributes},
		{"refusals of several reasons and degraded ones are found", testRefusalReasons},
		{"newer refusals are found", testRefusalsAfter},
		{"allowed requests are found by outcome and policy", testAllowedRequests},
		{"a tenant has a bound of allowed requests", testAllowedOfTenant},
		{"a refusal that cannot be read is left out", testRefusalBroken},
		{"the mark changes with each batch", testMark},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			test.run(&suite{T: t, Fixture: f, ctx: t.Context()})
		})
	}
}

func testCountsFound(s *suite) {
	route := func(at int64, tenant uint32, name string, n int64) metrics.CountRow {
		return countOf(metrics.KindRoute, name, count(at, tenant, n))
	}
	a, b, c, d := route(midday, 1, "/a", 10), route(midday, 1, "/b", 20), route(midday+aMinute, 1, "/a", 30), route(midday, 2, "/c", 40)
	s.add("n", 1, a, b, c, d, count(midday, 1, 60), countOf(metrics.KindPolicy, "/a", count(midday, 1, 70)))
	ask := func(what string, q metrics.CountQuery, want ...metrics.CountRow) {
		s.Helper()
		q.Step, q.Kind = metrics.Minute, metrics.KindRoute
		rows, err := s.Other.Counts(s.ctx, q)
		s.must(err)
		s.same(what, rows, want)
	}
	all := metrics.CountQuery{From: midday, To: midday + anHour, Tenant: 1}
	ask("newest first", all, c, b, a)
	all.Limit = 2
	ask("the newest", all, c, b)
	ask("by name", metrics.CountQuery{From: midday, To: midday + anHour, Tenant: 1, Names: []string{"/a", "/x"}}, c, a)
	ask("before a time", metrics.CountQuery{From: midday, To: midday + aMinute, Tenant: 1}, b, a)
	ask("from a time", metrics.CountQuery{From: midday + 1, To: midday + anHour, Tenant: 1}, c)
	ask("of tenants", metrics.CountQuery{From: midday, To: midday + aMinute, Tenant: 9, Tenants: []uint32{1, 2}, Names: []string{
		"/b",
		"/c",
	}}, d, b)
	if _, err := s.Store.Counts(s.ctx, metrics.CountQuery{Step: "week"}); err == nil {
		s.Error("counts of a week were found")
	}
	if _, err := s.Store.Counts(s.ctx, metrics.CountQuery{Step: metrics.Minute, Fields: []string{"ok", "ok; SELECT"}}); err == nil {
		s.Error("counts of what is not counted were found")
	}
	full := metrics.CountRow{CountKey: metrics.CountKey{At: midday, Tenant: 4, Kind: metrics.KindRoute, Name: "/f"}}
	for i, f := range full.Fields() {
		*f.(*int64) = int64(i + 1)
	}
	s.add("n", 2, full)
	narrow := metrics.CountRow{CountKey: full.CountKey, Counts: metrics.Counts{Forced: full.Forced, OK: full.OK}}
	q := metrics.CountQuery{From: midday, To: midday + anHour, Tenant: 4, Fields: []string{"forced", "ok"}}
	ask("some fields", q, narrow)
	q.Step, q.Kind = metrics.Minute, metrics.KindRoute
	rows, err := s.Store.SumCounts(s.ctx, q)
	s.must(err)
	s.same("some sums", rows, []metrics.CountRow{narrow})
}

func testCountsSummed(s *suite) {
	s.add("n", 1, count(midday, 1, 10), count(midday+aMinute, 1, 20), count(midday, 2, 100), count(midday, 3, 1000), count(midday-aMinute, 1,
		500))
	q := metrics.CountQuery{Step: metrics.Minute, From: midday, To: midday + anHour, Tenants: []uint32{1, 2, 7}, Kind: metrics.KindTotal}
	rows, err := s.Store.SumCounts(s.ctx, q)
	s.must(err)
	s.same("sums", rows, []metrics.CountRow{count(midday, 2, 100), count(midday, 1, 30)})
	q.Limit = 1
	rows, err = s.Store.SumCounts(s.ctx, q)
	s.must(err)
	s.same("the first", rows, []metrics.CountRow{count(midday, 2, 100)})
}

func testKept(s *suite) {
	day := midday - midday%aDay
	s.add("n", 1, count(day-1*anHour, 1, 1), count(day, 1, 1), count(day+5*anHour, 1, 1), count(day+aDay, 1, 1))
	due := func(from, to int64) []metrics.RollUp {
		s.Helper()
		k, err := s.Store.Kept(s.ctx, from, to)
		s.must(err)
		slices.SortFunc(k.Due, func(a, b metrics.RollUp) int { return cmp.Or(cmp.Compare(b.Step, a.Step), cmp.Compare(a.At, b.At)) })
		return k.Due
	}
	hours := []metrics.RollUp{{Step: metrics.Hour, At: day}, {Step: metrics.Hour, At: day + 5*anHour}}
	s.same("of all of the day that a span touches", due(day+2*anHour, day+3*anHour), hours)
	s.same("to the end of the day", due(day, day+aDay), hours)
	s.same("of the next day too", due(day+anHour, day+aDay+1), append(hours, metrics.RollUp{Step: metrics.Hour, At: day + aDay}))
	s.rollUp(day + aDay)
	s.same("a day that is rolled up", due(day, day+aDay), []metrics.RollUp(nil))
	s.same("an open hour", due(day+aDay, day+2*aDay), []metrics.RollUp{{Step: metrics.Hour, At: day + aDay}})
	s.prune(metrics.Retention{Minutes: day + 2*aDay, Hours: day + 2*aDay})
	k, err := s.Store.Kept(s.ctx, day, day+1)
	s.must(err)
	s.same("from where on rows are kept", [2]int64{k.Minutes, k.Hours}, [2]int64{day + aDay, day + aDay})
}

// A counted is an independent model: all rows that were ever added, by minute.
type counted []metrics.CountRow

// over returns the sums that a query should return for a time range, by step and name.
func (c counted) over(q metrics.Query, kind metrics.Kind, span metrics.Span) (total metrics.Counts, points map[time.Time]metrics.Counts,
	names map[string]int64,
) {
	points, names = make(map[time.Time]metrics.Counts), make(map[string]int64)
	for i := range c {
		at := time.Unix(c[i].At, 0).UTC()
		name := cmp.Or(q.Policy, q.Route)
		if c[i].Tenant != q.Tenant || c[i].Kind != kind || name != "" && c[i].Name != name || at.Before(span.From) || !at.Before(span.To) {
			continue
		}
		total.Add(&c[i].Counts)
		p := points[at.Truncate(span.Step.Duration())]
		p.Add(&c[i].Counts)
		points[at.Truncate(span.Step.Duration())] = p
		names[c[i].Name] += c[i].Requests
	}
	return total, points, names
}

// Nodes add counts at random times, also late. Hours and days are rolled up and deleted at random
// times. The result of every query must equal the sum of everything that was added.
func testAnalyticsModel(s *suite) {
	random := rand.New(rand.NewPCG(1, uint64(len(s.Name()))))
	begin := midday - midday%aDay - 3*aDay
	now := begin + 20*anHour
	a := metrics.NewAnalytics(s.Other, metrics.AnalyticsConfig{Now: func() time.Time { return time.Unix(now, 0) }})
	var all counted
	for seq := int64(1); seq <= 60; seq++ {
		now += random.Int64N(3 * anHour)
		b := randomBatch(random, now, seq)
		s.must(s.Store.AddCounts(s.ctx, b))
		all = append(all, b.Counts...)
		if random.IntN(2) == 0 {
			s.rollUp(now)
		}
		if random.IntN(6) == 0 {
			s.prune(metrics.Retention{Minutes: now - aDay, Hours: now - 3*aDay})
		}
		for range 4 {
			s.compareAnswers(a, all, randomQuery(random, now))
		}
	}
}

// randomBatch returns a batch. Most of its decisions are from the last minutes, and some are from
// the last two days.
func randomBatch(random *rand.Rand, now, seq int64) metrics.Batch {
	b := metrics.Batch{Node: "n", Seq: seq}
	for range 1 + random.IntN(8) {
		back := random.Int64N(3 * aMinute)
		if random.IntN(4) == 0 {
			back = random.Int64N(2 * aDay)
		}
		at := now - back
		n := 10 * (1 + random.Int64N(20))
		for _, tenant := range []uint32{0, uint32(1 + random.IntN(2))} {
			r := count(at-at%aMinute, tenant, n)
			name := string(rune('a' + random.IntN(4)))
			b.Counts = append(b.Counts, r, countOf(metrics.KindRoute, "/"+name, r), countOf(metrics.KindPolicy, name, r))
		}
	}
	return b
}

func randomQuery(random *rand.Rand, now int64) metrics.Query {
	length := []int64{10 * aMinute, 5 * anHour, aDay, 5 * aDay}[random.IntN(4)]
	to := now + random.Int64N(2*anHour) - random.Int64N(aDay)
	q := metrics.Query{
		Tenant: uint32(random.IntN(4)), From: time.Unix(to-1-random.Int64N(length), 0), To: time.Unix(to, random.Int64N(2)),
		Step: []metrics.Step{"", "", metrics.Minute, metrics.Hour, metrics.Day}[random.IntN(5)],
	}
	switch random.IntN(4) {
	case 0:
		q.Policy = string(rune('a' + random.IntN(4)))
	case 1:
		q.Route = "/" + string(rune('a'+random.IntN(4)))
	}
	return q
}

func (s *suite) compareAnswers(a *metrics.Analytics, all counted, q metrics.Query) {
	s.Helper()
	kind := metrics.KindTotal
	switch {
	case q.Policy != "":
		kind = metrics.KindPolicy
	case q.Route != "":
		kind = metrics.KindRoute
	}
	t, err := a.Traffic(s.ctx, q)
	var refused *problem.Problem
	if q.Step != "" && errors.As(err, &refused) && refused.Fields[0].Pointer == "step" {
		if strings.Contains(refused.Fields[0].Message, string(q.Step)) {
			s.Errorf("%+v was refused: %v", q, err)
		}
		return
	}
	s.must(err)
	total, points, _ := all.over(q, kind, t.Span)
	s.same(fmt.Sprintf("total of %+v over %+v", q, t.Span), t.Total, total)
	for i, p := range t.Points {
		if want := t.From.Add(time.Duration(i) * t.Step.Duration()); p.At != want || p.Counts != points[want] {
			s.Fatalf("point %d of %+v: %+v, want at %v %+v", i, q, p, want, points[want])
		}
	}
	if q.Step != "" && t.Step != q.Step {
		s.Errorf("%+v was answered by %s", q, t.Step)
	}
	q.Policy, q.Route, q.Step = "", "", ""
	routes, err := a.Routes(s.ctx, q)
	s.must(err)
	_, _, names := all.over(q, metrics.KindRoute, routes.Span)
	got := make(map[string]int64)
	for _, r := range routes.Routes {
		got[r.Name] = r.Total.Requests
		var sum metrics.Counts
		for i := range r.Points {
			sum.Add(&r.Points[i].Counts)
		}
		if sum != r.Total {
			s.Errorf("route %s of %+v: its points sum up to %+v, its total is %+v", r.Name, q, sum, r.Total)
		}
	}
	s.same(fmt.Sprintf("routes of %+v", q), got, names)
}

// The test queries one day before and after the roll-ups of its hours and of the day, and after a
// late count.
func testAnalyticsEdges(s *suite) {
	day := midday - midday%aDay
	now := day + 2*anHour + 30*aMinute
	a := metrics.NewAnalytics(s.Other, metrics.AnalyticsConfig{Now: func() time.Time { return time.Unix(now, 0) }})
	want, seq := int64(0), int64(0)
	add := func(at, n int64) {
		s.Helper()
		seq++
		want += n
		s.add("n", seq, count(at, 1, n))
	}
	steps := []metrics.Step{"", metrics.Hour, metrics.Day}
	check := func(what string) {
		s.Helper()
		for _, step := range steps {
			t, err := a.Traffic(s.ctx, metrics.Query{Tenant: 1, From: time.Unix(day-aDay, 0), To: time.Unix(day+2*aDay, 0), Step: step})
			s.must(err)
			if t.Total.Requests != want {
				s.Errorf("%s, by %q: %d requests, want %d", what, step, t.Total.Requests, want)
			}
		}
	}
	check("nothing")
	add(day-aMinute, 10)
	add(day, 20)
	add(day+anHour-aMinute, 40)
	add(day+2*anHour+29*aMinute, 80)
	check("two hours that are over, and an open one")
	s.rollUp(now)
	check("hours rolled up, and the day before")
	add(day-aMinute, 160)
	check("late in a day that was rolled up")
	add(day+anHour-aMinute, 320)
	check("late in an hour that was rolled up")
	s.rollUp(now)
	check("rolled up anew")
	now = day + 2*aDay
	check("a day that is over and not rolled up")
	s.rollUp(now)
	check("all rolled up")
	s.prune(metrics.Retention{Minutes: now})
	check("without minutes")
	add(day+5*anHour, 640)
	check("late where minutes were given up")
	s.prune(metrics.Retention{Minutes: now, Hours: now})
	steps = steps[2:]
	check("late, and hours are not given up while they are due")
	s.rollUp(now)
	s.prune(metrics.Retention{Minutes: now, Hours: now})
	steps = []metrics.Step{""}
	check("without hours")
}

// There are more routes than a query reads at once. The result must contain the busiest routes with
// exact counts.
func testManyRoutes(s *suite) {
	const routes, minutes = 400, 20
	var rows []metrics.CountRow
	for minute := range int64(minutes) {
		for i := range int64(routes) {
			rows = append(rows, countOf(metrics.KindRoute, fmt.Sprintf("/%03d", i), count(midday+minute*aMinute, 1, 1+i)))
		}
	}
	s.add("n", 1, rows...)
	a := metrics.NewAnalytics(s.Other, metrics.AnalyticsConfig{Now: func() time.Time { return time.Unix(midday+minutes*aMinute-1, 0) }})
	r, err := a.Routes(s.ctx, metrics.Query{Tenant: 1, From: time.Unix(midday, 0), To: time.Unix(midday+anHour, 0)})
	s.must(err)
	if len(r.Routes) != 10 || !r.More {
		s.Fatalf("%d routes, more: %t; want 10 and more", len(r.Routes), r.More)
	}
	for i, route := range r.Routes {
		n := int64(routes - i)
		if want := fmt.Sprintf("/%03d", n-1); route.Name != want || route.Total.Requests != n*minutes || len(route.Points) != minutes {
			s.Errorf("place %d: %s with %d requests and %d points, want %s with %d", i, route.Name, route.Total.Requests, len(route.Points), want,
				n*minutes)
		}
	}
}
