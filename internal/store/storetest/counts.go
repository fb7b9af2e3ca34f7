package storetest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
)

// countTests are those of metrics.Store's writing half.
var countTests = []struct {
	name string
	run  func(*suite)
}{
	{"counts add up, each batch once", testAddCounts},
	{"a batch that cannot be stored leaves nothing", testAddCountsFailed},
	{"large batches are added whole", testAddCountsLarge},
	{"two nodes add to the same rows", testAddCountsTogether},
	{"sketches are written whole, by node", testAddSketches},
	{"refusals are kept with their explanation", testAddRefusals},
	{"adding counts is no edit", testCountsNoEdit},
	{"hours and days are the sums of what is below", testRollUp},
	{"a late batch is rolled up again", testRollUpLate},
	{"many tenants are rolled up each", testRollUpManyTenants},
	{"a batch during a roll-up is rolled up again", testRollUpMeanwhile},
	{"a batch after another roll-up is rolled up again", testRollUpOvertaken},
	{"roll-ups and additions meet without loss", testRollUpConcurrent},
	{"a roll-up that cannot merge changes no counts", testRollUpFailed},
	{"nothing is pruned before it is rolled up", testPruneKeeps},
	{"what comes after pruning is added one step above", testPruneLate},
	{"old rows are pruned in pieces", testPrunePieces},
	{"refusals and marks are pruned", testPruneOthers},
	{"a lease has one holder until it ends", testLease},
}

// noon is an hour at which a test's counts begin: that of the clock.
var noon = time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC).Unix()

const (
	aMinute = int64(60)
	anHour  = 60 * aMinute
	aDay    = 24 * anHour
)

var (
	noCounts   []metrics.CountRow
	noSketches []metrics.SketchRow
	noneDue    []metrics.RollUp
)

// count is a row of n requests, a tenth of them refused, in total of a tenant.
func count(at int64, tenant uint32, n int64) metrics.CountRow {
	return metrics.CountRow{
		CountKey: metrics.CountKey{At: at, Tenant: tenant, Kind: metrics.KindTotal},
		Counts:   metrics.Counts{Requests: n, OK: n - n/10, OverLimit: n / 10, Cost: 3 * n},
	}
}

func countOf(kind metrics.Kind, name string, r metrics.CountRow) metrics.CountRow {
	r.Kind, r.Name = kind, name
	return r
}

// add adds a batch of a node.
func (s *suite) add(node string, seq int64, rows ...metrics.CountRow) {
	s.Helper()
	s.must(s.Store.AddCounts(s.ctx, metrics.Batch{Node: node, Seq: seq, Counts: rows}))
}

// counts gives the rows of a tenant and a kind at any time.
func (s *suite) counts(step metrics.Step, tenant uint32, kind metrics.Kind) []metrics.CountRow {
	s.Helper()
	rows, err := s.Store.Counts(s.ctx, metrics.CountQuery{Step: step, From: 0, To: noon + 1000*aDay, Tenant: tenant, Kind: kind})
	s.must(err)
	slices.SortFunc(rows, func(a, b metrics.CountRow) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

func (s *suite) sketches(step metrics.Step, tenant uint32, name string) []metrics.SketchRow {
	s.Helper()
	rows, err := s.Store.Sketches(s.ctx, metrics.SketchQuery{Step: step, From: 0, To: noon + 1000*aDay, Tenant: tenant, Name: name})
	s.must(err)
	slices.SortFunc(rows, func(a, b metrics.SketchRow) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Node, b.Node))
	})
	return rows
}

// joined merges sketches by writing them one behind the other, in order.
func joined(_ string, docs [][]byte) ([]byte, error) {
	var all []string
	for _, doc := range docs {
		var list []string
		if err := json.Unmarshal(doc, &list); err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.Sort(all)
	return json.Marshal(all)
}

// due gives what is to be rolled up at an instant.
func (s *suite) due(now int64) []metrics.RollUp {
	s.Helper()
	list, err := s.Store.RollUpsDue(s.ctx, time.Unix(now, 0), 100)
	s.must(err)
	return list
}

// rollUp rolls up all that is due at an instant.
func (s *suite) rollUp(now int64) {
	s.Helper()
	for list := s.due(now); len(list) > 0; list = s.due(now) {
		for _, r := range list {
			s.must(s.Store.RollUp(s.ctx, r, joined))
		}
	}
}

// prune prunes until nothing is left to do.
func (s *suite) prune(r metrics.Retention) {
	s.Helper()
	for more := true; more; {
		var err error
		more, err = s.Store.Prune(s.ctx, r)
		s.must(err)
	}
}

func testAddCounts(s *suite) {
	s.add("a", 1, count(noon, 1, 10), count(noon, 0, 10), countOf(metrics.KindRoute, "/v1/*", count(noon, 1, 10)))
	s.add("a", 2, count(noon, 1, 5), count(noon+aMinute, 1, 7))
	for _, again := range []int64{2, 1} { // sent again, and late: others wrote what this one holds
		s.add("a", again, count(noon, 1, 1000))
	}
	s.add("b", 1, count(noon, 1, 100)) // another node's numbers are its own
	s.add("b", 7, count(noon, 2, 1))   // and may have gaps
	s.add("b", 8)                      // and be empty
	want := count(noon, 1, 0)
	for _, n := range []int64{10, 5, 100} {
		r := count(noon, 1, n)
		want.Add(&r.Counts)
	}
	s.same("tenant 1", s.counts(metrics.Minute, 1, metrics.KindTotal), []metrics.CountRow{want, count(noon+aMinute, 1, 7)})
	s.same("its routes", s.counts(metrics.Minute, 1, metrics.KindRoute), []metrics.CountRow{countOf(metrics.KindRoute, "/v1/*", count(noon, 1, 10))})
	s.same("tenant 2", s.counts(metrics.Minute, 2, metrics.KindTotal), []metrics.CountRow{count(noon, 2, 1)})
	s.same("all together", s.counts(metrics.Minute, 0, metrics.KindTotal), []metrics.CountRow{count(noon, 0, 10)})
	s.same("nobody", s.counts(metrics.Minute, 3, metrics.KindTotal), noCounts)
	// Every number has its column.
	every := metrics.CountRow{CountKey: metrics.CountKey{At: noon, Tenant: 4294967295, Kind: metrics.KindPolicy, Name: "p"}}
	for i, f := range every.Fields() {
		*f.(*int64) = 1<<40 + int64(i)
	}
	s.add("b", 9, every, every) // twice in one batch: both count
	for _, f := range every.Fields() {
		*f.(*int64) *= 2
	}
	s.same("every column", s.counts(metrics.Minute, 4294967295, metrics.KindPolicy), []metrics.CountRow{every})
}

func testAddCountsFailed(s *suite) {
	bad := count(noon+1, 1, 1) // not the beginning of a minute
	if err := s.Store.AddCounts(s.ctx, metrics.Batch{Node: "a", Seq: 1, Counts: []metrics.CountRow{count(noon, 1, 10), bad}}); err == nil {
		s.Error("a row in the middle of a minute was added")
	}
	s.same("counts", s.counts(metrics.Minute, 1, metrics.KindTotal), noCounts)
	s.same("due", s.due(noon+aDay), noneDue)
	s.add("a", 1, count(noon, 1, 10)) // the number was not used up
	s.same("counts", s.counts(metrics.Minute, 1, metrics.KindTotal), []metrics.CountRow{count(noon, 1, 10)})
}

// As many rows as do not fit into one statement, and one more.
func testAddCountsLarge(s *suite) {
	const routes = 1500
	var rows, want []metrics.CountRow
	for i := range routes {
		r := countOf(metrics.KindRoute, fmt.Sprintf("/%04d", i), count(noon, 1, int64(i)))
		rows = append(rows, r)
		double := r
		double.Add(&r.Counts)
		want = append(want, double)
	}
	slices.Reverse(rows)
	for seq := range int64(2) {
		s.add("a", seq+1, rows...)
	}
	s.same("rows", s.counts(metrics.Minute, 1, metrics.KindRoute), want)
}

func testAddCountsTogether(s *suite) {
	const nodes, batches, tenants = 4, 25, 20
	var wg sync.WaitGroup
	for node := range nodes {
		at := s.Store
		if node%2 == 1 {
			at = s.Other
		}
		wg.Go(func() {
			for i := range batches {
				b := metrics.Batch{Node: fmt.Sprint("node", node), Seq: int64(i) + 1}
				for k := range tenants {
					tenant := uint32((k + node*7) % tenants) // each in another order
					b.Counts = append(b.Counts, count(noon, tenant, 10), countOf(metrics.KindRoute, "/a", count(noon, tenant, 10)))
				}
				for range 2 { // at the same time as the others, and each twice
					if err := at.AddCounts(s.ctx, b); err != nil {
						s.Errorf("node %d, batch %d: %v", node, i, err)
					}
				}
			}
		})
	}
	wg.Wait()
	for tenant := range uint32(tenants) {
		want := []metrics.CountRow{count(noon, tenant, nodes*batches*10)}
		s.same(fmt.Sprintf("tenant %d", tenant), s.counts(metrics.Minute, tenant, metrics.KindTotal), want)
	}
	// One batch, sent by two at once.
	b := metrics.Batch{Node: "x", Seq: 1, Counts: []metrics.CountRow{count(noon, 1000, 1)}}
	for _, at := range []Store{s.Store, s.Other, s.Store, s.Other} {
		wg.Go(func() {
			if err := at.AddCounts(s.ctx, b); err != nil {
				s.Error(err)
			}
		})
	}
	wg.Wait()
	s.same("one batch", s.counts(metrics.Minute, 1000, metrics.KindTotal), b.Counts)
}

func sketch(at int64, tenant uint32, node, doc string) metrics.SketchRow {
	return metrics.SketchRow{
		SketchKey: metrics.SketchKey{At: at, Tenant: tenant, Name: metrics.SketchLimitedKeys, Node: node}, Doc: []byte(doc),
	}
}

func testAddSketches(s *suite) {
	write := func(node string, seq int64, rows ...metrics.SketchRow) {
		s.Helper()
		s.must(s.Store.AddCounts(s.ctx, metrics.Batch{Node: node, Seq: seq, Sketches: rows}))
	}
	write("a", 1, sketch(noon, 1, "a", `["x"]`), sketch(noon, 2, "a", `["other"]`))
	write("b", 1, sketch(noon, 1, "b", `["y"]`))
	write("a", 2, sketch(noon, 1, "a", `["x","z"]`))
	write("a", 2, sketch(noon, 1, "a", `["never"]`))
	s.same("sketches", s.sketches(metrics.Minute, 1, metrics.SketchLimitedKeys),
		[]metrics.SketchRow{sketch(noon, 1, "a", `["x","z"]`), sketch(noon, 1, "b", `["y"]`)})
	s.rollUp(noon + anHour) // without counts there is something to roll up all the same
	s.same("rolled up", s.sketches(metrics.Hour, 1, metrics.SketchLimitedKeys), []metrics.SketchRow{sketch(noon, 1, "", `["x","y","z"]`)})
	s.same("of another", s.sketches(metrics.Hour, 2, metrics.SketchLimitedKeys), []metrics.SketchRow{sketch(noon, 2, "", `["other"]`)})
}

// refusal is one with something in every field.
func refusal(n byte, tenant uint32, at time.Time) metrics.Refusal {
	return metrics.Refusal{
		ID: [16]byte{15: n}, At: at.UTC().Truncate(time.Microsecond), Tenant: tenant, TenantSlug: "acme", Plan: "pro", PlanVersion: 3,
		Route: "/v1/*", Reason: enforcement.ReasonOverLimit, Policy: "p", Limit: "l1", RetryAfterMS: 1500, Degraded: true,
		Method: "GET", Path: "/v1/<&>\u2028", Attributes: []enforcement.Attribute{{Name: "user", Value: "a\tb"}},
		Redacted: true, Cost: 2, Node: "a", ListEntry: "e", Block: "b",
		Limits: []metrics.RefusalLimit{{
			Policy: "p", Limit: "l1", Mode: enforcement.PolicyEnforce, Algorithm: "gcra", Quota: 1, Burst: 2,
			WindowMS: 1000, Cost: 2, Remaining: 0, ResetAfterMS: 3, RetryAfterMS: enforcement.Never, Override: "o",
		}},
		Policies: []metrics.RefusalPolicy{{Policy: "p", Mode: enforcement.PolicyEnforce, Matches: true, Applies: true, Why: enforcement.WhyApplies}},
	}
}

func testAddRefusals(s *suite) {
	at := s.Clock.Now()
	b := metrics.Batch{Node: "a", Seq: 1, Refusals: []metrics.Refusal{refusal(1, 7, at), refusal(2, 8, at)}}
	s.must(s.Store.AddCounts(s.ctx, b))
	b.Seq = 2 // one that is there already does not stop the others
	b.Refusals = []metrics.Refusal{refusal(1, 7, at.Add(time.Hour)), refusal(3, 7, at)}
	s.must(s.Store.AddCounts(s.ctx, b))
	for n, tenant := range map[byte]uint32{1: 7, 2: 8, 3: 7} {
		r, err := s.Other.Refusal(s.ctx, [16]byte{15: n}, tenant)
		s.must(err)
		s.same(fmt.Sprintf("refusal %d", n), r, refusal(n, tenant, at))
	}
}

func testCountsNoEdit(s *suite) {
	s.tenant("acme", "")
	before := s.revision()
	s.add("a", 1, count(noon, 1, 1))
	s.rollUp(noon + 2*aDay)
	s.prune(metrics.Retention{Minutes: noon + aDay, Hours: noon + aDay, Days: noon + aDay})
	if after := s.revision(); after != before {
		s.Errorf("the revision rose from %d to %d", before, after)
	}
}

func testRollUp(s *suite) {
	var rows []metrics.CountRow
	day := noon - noon%aDay
	for hour := range int64(3) {
		for minute := range int64(60) {
			at := day + hour*anHour + minute*aMinute
			rows = append(rows, count(at, 1, 10), count(at, 2, 1), countOf(metrics.KindRoute, "/a", count(at, 1, 4)), countOf(metrics.KindRoute, "/b", count(at, 1, 6)))
		}
	}
	s.add("a", 1, rows...)
	s.same("before an hour is over", s.due(day+anHour-1), noneDue)
	s.same("after an hour", s.due(day+anHour), []metrics.RollUp{{Step: metrics.Hour, At: day}})
	s.rollUp(day + 2*anHour)
	hour := func(at int64, tenant uint32, n int64) metrics.CountRow {
		var r metrics.CountRow
		for range 60 {
			one := count(at, tenant, n)
			r.CountKey = one.CountKey
			r.Add(&one.Counts)
		}
		return r
	}
	s.same("two hours", s.counts(metrics.Hour, 1, metrics.KindTotal), []metrics.CountRow{hour(day, 1, 10), hour(day+anHour, 1, 10)})
	s.same("no day yet", s.counts(metrics.Day, 1, metrics.KindTotal), noCounts)
	s.same("the day is not over", s.due(day+aDay-1), []metrics.RollUp{{Step: metrics.Hour, At: day + 2*anHour}})
	s.same("hours before days", s.due(day+aDay), []metrics.RollUp{{Step: metrics.Hour, At: day + 2*anHour}, {Step: metrics.Day, At: day}})
	for range 2 {
		s.rollUp(day + aDay)
		want := hour(day, 1, 10)
		for range 2 {
			more := hour(day, 1, 10)
			want.Add(&more.Counts)
		}
		s.same("the day", s.counts(metrics.Day, 1, metrics.KindTotal), []metrics.CountRow{want})
		s.same("routes of hours", s.counts(metrics.Hour, 1, metrics.KindRoute)[:2], []metrics.CountRow{
			countOf(metrics.KindRoute, "/a", hour(day, 1, 4)), countOf(metrics.KindRoute, "/b", hour(day, 1, 6)),
		})
		s.same("another tenant's hours", s.counts(metrics.Hour, 2, metrics.KindTotal)[:1], []metrics.CountRow{hour(day, 2, 1)})
		// The second time all of it is written anew from the same rows.
		for _, step := range []string{"hour", "day"} {
			s.must(s.Exec(`INSERT INTO roll_ups_due (step, at, n) VALUES ('`+step+`', $1, 1)`, day))
		}
	}
	s.rollUp(day + aDay)
	s.same("due in the end", s.due(day+10*aDay), noneDue)
}

func testRollUpLate(s *suite) {
	day := noon - noon%aDay
	s.add("a", 1, count(day, 1, 10))
	s.rollUp(day + 2*aDay)
	s.add("b", 1, count(day, 1, 100), count(day+5*anHour, 1, 1000)) // the database was away for this node
	s.same("due again", s.due(day+2*aDay), []metrics.RollUp{{Step: metrics.Hour, At: day}, {Step: metrics.Hour, At: day + 5*anHour}})
	s.rollUp(day + 2*aDay)
	want := count(day, 1, 110)
	s.same("hours", s.counts(metrics.Hour, 1, metrics.KindTotal), []metrics.CountRow{want, count(day+5*anHour, 1, 1000)})
	s.same("days", s.counts(metrics.Day, 1, metrics.KindTotal), []metrics.CountRow{count(day, 1, 1110)})
}

// More tenants than one transaction sums have their rows of every kind, and
// those of another hour stay out of them.
func testRollUpManyTenants(s *suite) {
	day := noon - noon%aDay
	var rows []metrics.CountRow
	for tenant := range uint32(130) {
		r := count(day+anHour-aMinute, tenant, 10+int64(tenant))
		rows = append(rows, r, count(day, tenant, 100), count(day+anHour, tenant, 1000),
			countOf(metrics.KindRoute, "/a", r), countOf(metrics.KindPolicy, "p", r))
	}
	s.add("a", 1, rows...)
	s.rollUp(day + 2*aDay)
	for tenant := range uint32(130) {
		n := 10 + int64(tenant)
		of := func(kind metrics.Kind) []metrics.CountRow { return s.counts(metrics.Hour, tenant, kind) }
		s.same("hours", of(metrics.KindTotal), []metrics.CountRow{count(day, tenant, n+100), count(day+anHour, tenant, 1000)})
		s.same("hours of a route", of(metrics.KindRoute), []metrics.CountRow{countOf(metrics.KindRoute, "/a", count(day, tenant, n))})
		s.same("hours of a policy", of(metrics.KindPolicy), []metrics.CountRow{countOf(metrics.KindPolicy, "p", count(day, tenant, n))})
		s.same("days", s.counts(metrics.Day, tenant, metrics.KindTotal), []metrics.CountRow{count(day, tenant, n+1100)})
	}
}

// What is added after a roll-up began is in its rows, or it is due again.
func testRollUpMeanwhile(s *suite) {
	r := metrics.RollUp{Step: metrics.Hour, At: noon}
	s.must(s.Store.AddCounts(s.ctx, metrics.Batch{
		Node: "a", Seq: 1, Counts: []metrics.CountRow{count(noon, 1, 10)}, Sketches: []metrics.SketchRow{sketch(noon, 1, "a", `["x"]`)},
	}))
	s.must(s.Store.RollUp(s.ctx, r, func(name string, docs [][]byte) ([]byte, error) {
		b := metrics.Batch{
			Node: "b", Seq: 1, Counts: []metrics.CountRow{count(noon, 1, 100)}, Sketches: []metrics.SketchRow{sketch(noon, 1, "b", `["y"]`)},
		}
		if err := s.Other.AddCounts(s.ctx, b); err != nil {
			return nil, err
		}
		return joined(name, docs)
	}))
	s.same("due", s.due(noon+anHour), []metrics.RollUp{r})
	s.rollUp(noon + anHour)
	s.same("counts", s.counts(metrics.Hour, 1, metrics.KindTotal), []metrics.CountRow{count(noon, 1, 110)})
	s.same("sketches", s.sketches(metrics.Hour, 1, metrics.SketchLimitedKeys), []metrics.SketchRow{sketch(noon, 1, "", `["x","y"]`)})
	// One that is not due is left alone.
	s.must(s.Exec(`UPDATE counts_hours SET requests = 1`))
	s.must(s.Store.RollUp(s.ctx, r, joined))
	if rows := s.counts(metrics.Hour, 1, metrics.KindTotal); len(rows) != 1 || rows[0].Requests != 1 {
		s.Errorf("an hour that was not due was written: %+v", rows)
	}
}

// A roll-up that another one overtakes does not remove the note of a batch that
// comes after that.
func testRollUpOvertaken(s *suite) {
	r := metrics.RollUp{Step: metrics.Hour, At: noon}
	s.must(s.Store.AddCounts(s.ctx, metrics.Batch{
		Node: "a", Seq: 1, Counts: []metrics.CountRow{count(noon, 1, 10)}, Sketches: []metrics.SketchRow{sketch(noon, 1, "a", `["x"]`)},
	}))
	s.must(s.Store.RollUp(s.ctx, r, func(name string, docs [][]byte) ([]byte, error) {
		merged, err := joined(name, docs)
		if err == nil {
			err = s.Other.RollUp(s.ctx, r, joined)
		}
		if err == nil {
			err = s.Other.AddCounts(s.ctx, metrics.Batch{
				Node: "b", Seq: 1, Counts: []metrics.CountRow{count(noon, 1, 100)}, Sketches: []metrics.SketchRow{sketch(noon, 1, "b", `["y"]`)},
			})
		}
		return merged, err
	}))
	s.same("due", s.due(noon+anHour), []metrics.RollUp{r})
	s.rollUp(noon + anHour)
	s.same("counts", s.counts(metrics.Hour, 1, metrics.KindTotal), []metrics.CountRow{count(noon, 1, 110)})
	s.same("sketches", s.sketches(metrics.Hour, 1, metrics.SketchLimitedKeys), []metrics.SketchRow{sketch(noon, 1, "", `["x","y"]`)})
}

// Two nodes add, two roll up, and one prunes, all at once: in the end each step
// has every request.
func testRollUpConcurrent(s *suite) {
	const batches = 60
	day := noon - noon%aDay
	now := day + 3*aDay
	var adding, others sync.WaitGroup
	done := make(chan struct{})
	until := func(turn func(at Store) error, at Store) {
		others.Go(func() {
			for {
				if err := turn(at); err != nil {
					s.Error(err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for node, at := range []Store{s.Store, s.Other} {
		adding.Go(func() {
			for i := range int64(batches) {
				b := metrics.Batch{Node: fmt.Sprint(node), Seq: i + 1}
				for tenant := range uint32(3) {
					b.Counts = append(b.Counts, count(day+i%4*anHour, tenant, 10), count(day+aDay+i%4*anHour, tenant, 10))
				}
				if err := at.AddCounts(s.ctx, b); err != nil {
					s.Error(err)
				}
			}
		})
		until(func(at Store) error {
			list, err := at.RollUpsDue(s.ctx, time.Unix(now, 0), 3)
			for _, r := range list {
				err = errors.Join(err, at.RollUp(s.ctx, r, joined))
			}
			return err
		}, at)
	}
	until(func(at Store) error {
		_, err := at.Prune(s.ctx, metrics.Retention{Minutes: day + aDay, Hours: day + aDay})
		return err
	}, s.Other)
	adding.Wait()
	close(done)
	others.Wait()
	s.rollUp(now)
	for tenant := range uint32(3) {
		var all int64
		for _, r := range s.counts(metrics.Day, tenant, metrics.KindTotal) {
			all += r.Requests
		}
		if want := int64(2 * batches * 2 * 10); all != want {
			s.Errorf("tenant %d: days have %d requests, want %d", tenant, all, want)
		}
	}
}

func testRollUpFailed(s *suite) {
	s.must(s.Store.AddCounts(s.ctx, metrics.Batch{
		Node: "a", Seq: 1, Counts: []metrics.CountRow{count(noon, 1, 10)}, Sketches: []metrics.SketchRow{sketch(noon, 1, "a", `["x"]`)},
	}))
	r := metrics.RollUp{Step: metrics.Hour, At: noon}
	err := s.Store.RollUp(s.ctx, r, func(string, [][]byte) ([]byte, error) { return nil, errors.New("no sketch") })
	if err == nil || !strings.Contains(err.Error(), "no sketch") {
		s.Errorf("error %v, want the merge's", err)
	}
	s.same("counts", s.counts(metrics.Hour, 1, metrics.KindTotal), noCounts)
	s.same("due", s.due(noon+anHour), []metrics.RollUp{r})
}

func testPruneKeeps(s *suite) {
	day := noon - noon%aDay
	s.must(s.Store.AddCounts(s.ctx, metrics.Batch{
		Node: "a", Seq: 1, Counts: []metrics.CountRow{count(day, 1, 10), count(day+anHour, 1, 20)},
		Sketches: []metrics.SketchRow{sketch(day, 1, "a", `["x"]`)},
	}))
	all := metrics.Retention{Minutes: day + 9*aDay, Hours: day + 9*aDay, Days: day}
	s.prune(all)
	s.same("minutes before they are rolled up", s.counts(metrics.Minute, 1, metrics.KindTotal), []metrics.CountRow{count(day, 1, 10), count(day+anHour, 1, 20)})
	s.must(s.Store.RollUp(s.ctx, metrics.RollUp{Step: metrics.Hour, At: day}, joined))
	s.prune(all)
	s.same("minutes of the hour that is not", s.counts(metrics.Minute, 1, metrics.KindTotal), []metrics.CountRow{count(day+anHour, 1, 20)})
	s.same("hours before they are rolled up", s.counts(metrics.Hour, 1, metrics.KindTotal), []metrics.CountRow{count(day, 1, 10)})
	s.rollUp(day + aDay)
	// By their age minutes go, hours and days stay.
	s.prune(metrics.Retention{Minutes: day + anHour + 1, Hours: day, Days: day})
	s.same("minutes of an hour that is not old enough", s.counts(metrics.Minute, 1, metrics.KindTotal), []metrics.CountRow{count(day+anHour, 1, 20)})
	s.prune(all)
	s.same("minutes", s.counts(metrics.Minute, 1, metrics.KindTotal), noCounts)
	s.same("hours", s.counts(metrics.Hour, 1, metrics.KindTotal), noCounts)
	s.same("sketches of hours", s.sketches(metrics.Hour, 1, metrics.SketchLimitedKeys), noSketches)
	s.same("days", s.counts(metrics.Day, 1, metrics.KindTotal), []metrics.CountRow{count(day, 1, 30)})
	s.same("sketches of days", s.sketches(metrics.Day, 1, metrics.SketchLimitedKeys), []metrics.SketchRow{sketch(day, 1, "", `["x"]`)})
	s.prune(metrics.Retention{Days: day + aDay})
	s.same("days that are old", s.counts(metrics.Day, 1, metrics.KindTotal), noCounts)
}

// An hour whose minutes are gone is not summed from those that come after, nor
// is a day.
func testPruneLate(s *suite) {
	day := noon - noon%aDay
	s.add("a", 1, count(day, 1, 10), count(day+aMinute, 1, 20))
	s.rollUp(day + 2*aDay)
	s.prune(metrics.Retention{Minutes: day + aDay})
	late := metrics.Batch{
		Node: "b", Seq: 1, Counts: []metrics.CountRow{count(day, 1, 100), count(day+aMinute, 1, 200)},
		Sketches: []metrics.SketchRow{sketch(day, 1, "b", `["late"]`)},
	}
	for range 2 {
		s.must(s.Store.AddCounts(s.ctx, late))
		s.same("the day is due, the hour is not", s.due(day+2*aDay), []metrics.RollUp{{Step: metrics.Day, At: day}})
	}
	s.rollUp(day + 2*aDay)
	s.same("minutes", s.counts(metrics.Minute, 1, metrics.KindTotal), noCounts)
	s.same("the hour", s.counts(metrics.Hour, 1, metrics.KindTotal), []metrics.CountRow{count(day, 1, 330)})
	s.same("the day", s.counts(metrics.Day, 1, metrics.KindTotal), []metrics.CountRow{count(day, 1, 330)})
	s.same("sketches that came too late", s.sketches(metrics.Hour, 1, metrics.SketchLimitedKeys), noSketches)
	s.prune(metrics.Retention{Minutes: day + aDay, Hours: day + aDay})
	s.add("b", 2, count(day+3*anHour, 1, 1000))
	s.rollUp(day + 2*aDay)
	s.same("no hour", s.counts(metrics.Hour, 1, metrics.KindTotal), noCounts)
	s.same("the day", s.counts(metrics.Day, 1, metrics.KindTotal), []metrics.CountRow{count(day, 1, 1330)})
	// A note that should not be there is ended, and nothing is lost by it.
	s.must(s.Exec(`INSERT INTO roll_ups_due (step, at, n) VALUES ('hour', $1, 1), ('day', $1, 1)`, day))
	s.rollUp(day + 2*aDay)
	s.same("the day", s.counts(metrics.Day, 1, metrics.KindTotal), []metrics.CountRow{count(day, 1, 1330)})
}

func testPrunePieces(s *suite) {
	const rows = 4500
	batch := make([]metrics.CountRow, rows)
	for i := range batch {
		batch[i] = countOf(metrics.KindRoute, fmt.Sprintf("/%04d", i), count(noon, 1, 10))
	}
	s.add("a", 1, batch...)
	s.rollUp(noon + anHour)
	calls := 0
	for more := true; more; calls++ {
		var err error
		more, err = s.Store.Prune(s.ctx, metrics.Retention{Minutes: noon + anHour})
		s.must(err)
		if calls == 0 {
			// What is half removed is not summed again.
			s.add("b", 1, countOf(metrics.KindRoute, "/0000", count(noon, 1, 10)))
			s.rollUp(noon + anHour)
		}
	}
	if calls < 3 {
		s.Errorf("%d rows went in %d calls", rows, calls)
	}
	s.same("minutes", s.counts(metrics.Minute, 1, metrics.KindRoute), noCounts)
	hours := s.counts(metrics.Hour, 1, metrics.KindRoute)
	if len(hours) != rows {
		s.Fatalf("%d rows of the hour, want %d", len(hours), rows)
	}
	s.same("the hour", hours[:2], []metrics.CountRow{
		countOf(metrics.KindRoute, "/0000", count(noon, 1, 20)), countOf(metrics.KindRoute, "/0001", count(noon, 1, 10)),
	})
}

func testPruneOthers(s *suite) {
	now := s.Clock.Now()
	b := metrics.Batch{Node: "a", Seq: 5, Counts: []metrics.CountRow{count(noon, 1, 10)}}
	for n := range byte(10) { // the first is the oldest
		b.Refusals = append(b.Refusals, refusal(n+1, 7, now.Add(time.Duration(n)*time.Minute)))
	}
	s.must(s.Store.AddCounts(s.ctx, b))
	left := func(what string, want ...byte) {
		s.Helper()
		var have []byte
		for n := range byte(10) {
			if _, err := s.Store.Refusal(s.ctx, [16]byte{15: n + 1}, 0); err == nil {
				have = append(have, n+1)
			}
		}
		s.same(what, have, want)
	}
	s.prune(metrics.Retention{Refusals: now.Unix(), MaxRefusals: 10})
	left("none too many", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	s.prune(metrics.Retention{Refusals: now.Add(3*time.Minute).Unix() + 1})
	left("by age", 5, 6, 7, 8, 9, 10)
	s.prune(metrics.Retention{MaxRefusals: 4})
	left("by number", 7, 8, 9, 10)
	s.prune(metrics.Retention{Nodes: now.Unix()})
	s.must(s.Store.AddCounts(s.ctx, b))
	s.same("the mark is kept", s.counts(metrics.Minute, 1, metrics.KindTotal), []metrics.CountRow{count(noon, 1, 10)})
	s.prune(metrics.Retention{Nodes: now.Unix() + 1})
	s.add("a", 1, count(noon, 1, 1)) // the node is forgotten: its numbers begin again
	s.same("the mark is gone", s.counts(metrics.Minute, 1, metrics.KindTotal)[0].Requests, int64(11))
}

func testLease(s *suite) {
	take := func(at Store, name, holder string, want bool) {
		s.Helper()
		got, err := at.TakeLease(s.ctx, name, holder, 30*time.Second)
		if err != nil || got != want {
			s.Errorf("%s takes %s: %t, error %v; want %t", holder, name, got, err, want)
		}
	}
	take(s.Store, "roll-up", "a", true)
	take(s.Other, "roll-up", "b", false)
	take(s.Other, "other", "b", true)
	s.Clock.Add(29 * time.Second)
	take(s.Store, "roll-up", "a", true) // renewed
	s.Clock.Add(29 * time.Second)
	take(s.Other, "roll-up", "b", false)
	s.Clock.Add(time.Second) // a died
	take(s.Other, "roll-up", "b", true)
	take(s.Store, "roll-up", "a", false)
	var wg sync.WaitGroup
	var mu sync.Mutex
	holders := 0
	for i := range 6 {
		at := []Store{s.Store, s.Other}[i%2]
		wg.Go(func() {
			got, err := at.TakeLease(s.ctx, "rush", fmt.Sprint(i), time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.Error(err)
			}
			if got {
				holders++
			}
		})
	}
	wg.Wait()
	if holders != 1 {
		s.Errorf("%d hold one lease", holders)
	}
}
