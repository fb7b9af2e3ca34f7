package storetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/tenants"
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
	{"a tenant that opts out has no traces", testNoTrace},
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

// midday is the hour of the test's clock, at which the counts of a test begin.
var midday = time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC).Unix()

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

// count returns a row of the whole tenant with n requests, a tenth of which were denied.
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

// counts returns all rows of a tenant and a kind.
func (s *suite) counts(step metrics.Step, tenant uint32, kind metrics.Kind) []metrics.CountRow {
	s.Helper()
	rows, err := s.Store.Counts(s.ctx, metrics.CountQuery{Step: step, From: 0, To: midday + 1000*aDay, Tenant: tenant, Kind: kind})
	s.must(err)
	slices.SortFunc(rows, func(a, b metrics.CountRow) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

func (s *suite) sketches(step metrics.Step, tenant uint32, name string) []metrics.SketchRow {
	s.Helper()
	rows, err := s.Store.Sketches(s.ctx, metrics.SketchQuery{Step: step, From: 0, To: midday + 1000*aDay, Tenant: tenant, Name: name})
	s.must(err)
	slices.SortFunc(rows, func(a, b metrics.SketchRow) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Node, b.Node))
	})
	return rows
}

// joined merges sketches by joining their texts in order.
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

// due returns the roll-ups that are due at the time now.
func (s *suite) due(now int64) []metrics.RollUp {
	s.Helper()
	list, err := s.Store.RollUpsDue(s.ctx, time.Unix(now, 0), 100)
	s.must(err)
	return list
}

// rollUp does all roll-ups that are due at the time now.
func (s *suite) rollUp(now int64) {
	s.Helper()
	for list := s.due(now); len(list) > 0; list = s.due(now) {
		for _, r := range list {
			s.must(s.Store.RollUp(s.ctx, r, joined))
		}
	}
}

// prune calls Prune until it has nothing more to delete.
func (s *suite) prune(r metrics.Retention) {
	s.Helper()
	for more := true; more; {
		var err error
		more, err = s.Store.Prune(s.ctx, r)
		s.must(err)
	}
}

func testAddCounts(s *suite) {
	s.add("a", 1, count(midday, 1, 10), count(midday, 0, 10), countOf(metrics.KindRoute, "/v1/*", count(midday, 1, 10)))
	s.add("a", 2, count(midday, 1, 5), count(midday+aMinute, 1, 7))
	for _, again := range []int64{2, 1} { // sent again with other content, and late: the Store ignores both
		s.add("a", again, count(midday, 1, 1000))
	}
	s.add("b", 1, count(midday, 1, 100)) // the numbers of another node are independent
	s.add("b", 7, count(midday, 2, 1))   // and may have gaps
	s.add("b", 8)                        // and be empty
	want := count(midday, 1, 0)
	for _, n := range []int64{10, 5, 100} {
		r := count(midday, 1, n)
		want.Add(&r.Counts)
	}
	s.same("tenant 1", s.counts(metrics.Minute, 1, metrics.KindTotal), []metrics.CountRow{want, count(midday+aMinute, 1, 7)})
	s.same("its routes", s.counts(metrics.Minute, 1, metrics.KindRoute), []metrics.CountRow{countOf(metrics.KindRoute, "/v1/*", count(midday,
		1, 10))})
	s.same("tenant 2", s.counts(metrics.Minute, 2, metrics.KindTotal), []metrics.CountRow{count(midday, 2, 1)})
	s.same("all together", s.counts(metrics.Minute, 0, metrics.KindTotal), []metrics.CountRow{count(midday, 0, 10)})
	s.same("nobody", s.counts(metrics.Minute, 3, metrics.KindTotal), noCounts)
	// Every number has its column.
	every := metrics.CountRow{CountKey: metrics.CountKey{At: midday, Tenant: 4294967295, Kind: metrics.KindPolicy, Name: "p"}}
	for i, f := range every.Fields() {
		*f.(*int64) = 1<<40 + int64(i)
	}
	s.add("b", 9, every, every) // the same row twice in one batch: both count
	for _, f := range every.Fields() {
		*f.(*int64) *= 2
	}
	s.same("every column", s.counts(metrics.Minute, 4294967295, metrics.KindPolicy), []metrics.CountRow{every})
}

func testAddCountsFailed(s *suite) {
	bad := count(midday+1, 1, 1) // the time is not the start of a minute
	if err := s.Store.AddCounts(s.ctx, metrics.Batch{Node: "a", Seq: 1, Counts: []metrics.CountRow{count(midday, 1, 10), bad}}); err == nil {
		s.Error("a row in the middle of a minute was added")
	}
	s.same("counts", s.counts(metrics.Minute, 1, metrics.KindTotal), noCounts)
	s.same("due", s.due(midday+aDay), noneDue)
	s.add("a", 1, count(midday, 1, 10)) // the rejected batch has not used its number
	s.same("counts", s.counts(metrics.Minute, 1, metrics.KindTotal), []metrics.CountRow{count(midday, 1, 10)})
}

// The batch has one row more than one statement can write.
func testAddCountsLarge(s *suite) {
	const routes = 1500
	var rows, want []metrics.CountRow
	for i := range routes {
		r := countOf(metrics.KindRoute, fmt.Sprintf("/%04d", i), count(midday, 1, int64(i)))
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
					b.Counts = append(b.Counts, count(midday, tenant, 10), countOf(metrics.KindRoute, "/a", count(midday, tenant, 10)))
				}
				for range 2 { // concurrently with the other batches, and each batch twice
					if err := at.AddCounts(s.ctx, b); err != nil {
						s.Errorf("node %d, batch %d: %v", node, i, err)
					}
				}
			}
		})
	}
	wg.Wait()
	for tenant := range uint32(tenants) {
		want := []metrics.CountRow{count(midday, tenant, nodes*batches*10)}
		s.same(fmt.Sprintf("tenant %d", tenant), s.counts(metrics.Minute, tenant, metrics.KindTotal), want)
	}
	// One batch, sent by two at once.
	b := metrics.Batch{Node: "x", Seq: 1, Counts: []metrics.CountRow{count(midday, 1000, 1)}}
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
	write("a", 1, sketch(midday, 1, "a", `["x"]`), sketch(midday, 2, "a", `["other"]`))
	write("b", 1, sketch(midday, 1, "b", `["y"]`))
	write("a", 2, sketch(midday, 1, "a", `["x","z"]`))
	write("a", 2, sketch(midday, 1, "a", `["never"]`))
	s.same("sketches", s.sketches(metrics.Minute, 1, metrics.SketchLimitedKeys),
		[]metrics.SketchRow{sketch(midday, 1, "a", `["x","z"]`), sketch(midday, 1, "b", `["y"]`)})
	s.rollUp(midday + anHour) // a roll-up is due even if there are no counts
	s.same("rolled up", s.sketches(metrics.Hour, 1, metrics.SketchLimitedKeys), []metrics.SketchRow{sketch(midday, 1, "", `["x","y","z"]`)})
	s.same("of another", s.sketches(metrics.Hour, 2, metrics.SketchLimitedKeys), []metrics.SketchRow{sketch(midday, 2, "", `["other"]`)})
}

// refusal returns a kept denial with every field set.
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
		Policies: []metrics.RefusalPolicy{{
			Policy: "p", Mode: enforcement.PolicyEnforce, Matches: true, Applies: true,
			Why: enforcement.WhyApplies,
		}},
	}
}

func testAddRefusals(s *suite) {
	at := s.Clock.Now()
	b := metrics.Batch{Node: "a", Seq: 1, Refusals: []metrics.Refusal{refusal(1, 7, at), refusal(2, 8, at)}}
	s.must(s.Store.AddCounts(s.ctx, b))
	b.Seq = 2 // a denial that is already stored does not prevent the others from being stored
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
	s.add("a", 1, count(midday, 1, 1))
	s.rollUp(midday + 2*aDay)
	s.prune(metrics.Retention{Minutes: midday + aDay, Hours: midday + aDay, Days: midday + aDay})
	if after := s.revision(); after != before {
		s.Errorf("the revision rose from %d to %d", before, after)
	}
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

// The opt-out deletes the stored traces of the tenant and keeps what waits on nodes from being written.
// It touches no other sketch and no other tenant.
func testNoTrace(s *suite) {
	acme, other := s.tenant("acme", ""), s.tenant("other", "")
	write := func(seq, at int64) {
		var rows []metrics.SketchRow
		for _, tenant := range []uint32{acme.Number, other.Number} {
			for _, name := range []string{metrics.SketchTrace, metrics.SketchRetryAfter} {
				key := metrics.SketchKey{At: at, Tenant: tenant, Name: name, Node: "a"}
				rows = append(rows, metrics.SketchRow{SketchKey: key, Doc: []byte(`{"x":1}`)})
			}
		}
		s.must(s.Store.AddCounts(s.ctx, metrics.Batch{Node: "a", Seq: seq, Sketches: rows}))
	}
	stored := func(tenant uint32, name string) int {
		rows, err := s.Store.Sketches(s.ctx, metrics.SketchQuery{
			Step: metrics.Minute, From: midday, To: midday + anHour, Tenant: tenant, Name: name,
		})
		s.must(err)
		return len(rows)
	}
	write(1, midday)
	s.same("traces before", stored(acme.Number, metrics.SketchTrace), 1)
	d := acme.Document
	d.NoTrace = true
	_, err := s.Store.UpdateTenant(s.ctx, tenants.Tenant{ID: acme.ID, Document: d}, acme.Revision, entry("tenant.update"))
	s.must(err)
	s.same("traces after", stored(acme.Number, metrics.SketchTrace), 0)
	write(2, midday+aMinute)
	s.same("traces that waited", stored(acme.Number, metrics.SketchTrace), 0)
	s.same("other sketches", stored(acme.Number, metrics.SketchRetryAfter), 2)
	s.same("traces of another tenant", stored(other.Number, metrics.SketchTrace), 2)
}
