package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/store"
)

// The counts of the benchmarks: 90 days by day and hour and 48 hours by minute,
// as three nodes leave them, seen at 14:23:37. 25 tenants are busy all the time
// with 5 routes and 4 policies; the others decide something each day, each
// eighth hour and each hour's first minute, on one route by one policy. All
// together have 20 routes and 20 policies.
//
// A test that only counts rows needs less of it: names and sketches as far back
// as any span reads them, and short lists.
type countedWorld struct {
	tenants, busy int
	sketched      int // tenants with sketches of their own, beside all together
	keys          int // of a list
	// Hours and minutes have routes and policies from so far back on.
	hours, minutes time.Duration
	now            time.Time
}

const day = 24 * time.Hour

var seenAt = time.Date(2026, 11, 21, 14, 23, 37, 0, time.UTC)

func fullWorld() countedWorld {
	return countedWorld{tenants: 1000, busy: 25, sketched: 10, keys: 100, hours: 90 * day, minutes: 2 * day, now: seenAt}
}

// series is a table of the numbers from 1 to n, in both engines' words.
func series(as string, n int) string {
	return fmt.Sprintf(`(WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < %d) SELECT n FROM r) AS %s`, n, as)
}

// kinds is a table of so many routes and policies, and the total.
func kinds(routes, policies int) string {
	rows := []string{`SELECT 'total' AS kind, '' AS name`}
	for i := range policies {
		rows = append(rows, fmt.Sprintf(`SELECT 'policy', 'policy-%02d'`, i))
	}
	for i := range routes {
		rows = append(rows, fmt.Sprintf(`SELECT 'route', 'GET /v1/resources-%02d/*'`, i))
	}
	return "(" + strings.Join(rows, " UNION ALL ") + ") AS k"
}

// fill writes the world directly to the database.
func (w countedWorld) fill(t testing.TB, db *sql.DB) {
	t.Helper()
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatalf("%.300s: %v", statement, err)
		}
	}
	today, hour, minute := w.now.Truncate(day), w.now.Truncate(time.Hour), w.now.Truncate(time.Minute)
	kept, end := hour.Add(-2*day), minute.Add(time.Minute)
	hours, minutes := hour.Add(-w.hours), hour.Add(-w.minutes)
	for _, g := range []struct {
		step          metrics.Step
		first, last   int // tenants
		kinds         string
		from, to      time.Time
		every, length int // in steps
	}{
		{metrics.Day, 0, 0, kinds(20, 20), today.Add(-90 * day), today, 1, 86400},
		{metrics.Day, 1, w.busy, kinds(5, 4), today.Add(-90 * day), today, 1, 86400},
		{metrics.Day, w.busy + 1, w.tenants, kinds(1, 1), today.Add(-90 * day), today, 1, 86400},
		{metrics.Hour, 0, w.busy, kinds(2, 0), hour.Add(-90 * day), hours, 1, 3600},
		{metrics.Hour, 0, 0, kinds(20, 20), hours, hour, 1, 3600},
		{metrics.Hour, 1, w.busy, kinds(5, 4), hours, hour, 1, 3600},
		{metrics.Hour, w.busy + 1, w.tenants, kinds(1, 1), hours, hour, 8, 3600},
		{metrics.Minute, 0, w.busy, kinds(2, 0), kept, minutes, 1, 60},
		{metrics.Minute, 0, 0, kinds(20, 20), minutes, end, 1, 60},
		{metrics.Minute, 1, w.busy, kinds(5, 4), minutes, end, 1, 60},
		{metrics.Minute, w.busy + 1, w.tenants, kinds(1, 1), minutes, end, 60, 60},
	} {
		if g.last < g.first || !g.from.Before(g.to) {
			continue
		}
		steps := (int(g.to.Sub(g.from)/time.Second)/g.length + g.every - 1) / g.every
		exec(fmt.Sprintf(`
			INSERT INTO counts_%ss (at, tenant, kind, name, %s)
			SELECT %d + (a.n - 1) * %d, t.n + %d, k.kind, k.name, m.n, m.n - m.n / 10, 0, 0, m.n / 10, %s m.n * 2
			FROM %s CROSS JOIN %s CROSS JOIN %s CROSS JOIN (SELECT 1000 AS n) AS m
			ORDER BY 2, 3, 1, 4`,
			g.step, strings.Join(metrics.Columns, ", "), g.from.Unix(), g.every*g.length, g.first-1,
			strings.Repeat("0, ", len(metrics.Columns)-6), series("t", g.last-g.first+1), series("a", steps), g.kinds))
	}
	w.fillSketches(exec, today, hour, minute)
	exec(`INSERT INTO pruned (step, before) VALUES ('minute', $1), ('hour', $2) ON CONFLICT (step) DO UPDATE SET before = excluded.before`,
		kept.Unix(), today.Add(-90*day).Unix())
	exec(`INSERT INTO roll_ups_due (step, at, n) VALUES ('hour', $1, 1), ('day', $2, 1)`, hour.Unix(), today.Unix())
	exec(fmt.Sprintf(`INSERT INTO flush_marks (node, seq, at) SELECT 'process-' || p.n, p.n, %d FROM %s`, minute.Unix(), series("p", 1000)))
	exec(`ANALYZE`)
}

// topDoc is a sketch of so many keys: every second one is in all sketches, the
// others, with the @, are made to be of one row only.
func topDoc(keys int, tenantsOnly bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"capacity":100,"total":%d,"floor":3,"policies":[`, keys*1000)
	if tenantsOnly {
		b.WriteString(`{"policy":"","count_by":[]}],"keys":[`)
	} else {
		b.WriteString(`{"policy":"policy-00","count_by":["user"]}],"keys":[`)
	}
	for i := range keys {
		if i > 0 {
			b.WriteString(",")
		}
		value := fmt.Sprintf(`"user-%s%08d"`, []string{"", "@-"}[i%2], i)
		if tenantsOnly {
			value = ""
		}
		fmt.Fprintf(&b, `{"t":%d,"p":0,"v":[%s],"c":%d,"e":3}`, i+1, value, 10+1000/(i+1))
	}
	return b.String() + "]}"
}

func sketchDocs(keys int) map[string]string {
	var buckets []string
	for i := range 30 {
		buckets = append(buckets, fmt.Sprintf("[%d,%d]", 1<<i, 100+i))
	}
	list := "[" + strings.Join(buckets, ",") + "]"
	return map[string]string{
		metrics.SketchLimitedKeys:    topDoc(keys, false),
		metrics.SketchAllowedKeys:    topDoc(keys, false),
		metrics.SketchLimitedTenants: topDoc(keys, true),
		metrics.SketchBusyTenants:    topDoc(keys, true),
		metrics.SketchRetryAfter:     `{"buckets":` + list + `}`,
		metrics.SketchRemaining:      `{"policies":{"policy-00":[` + strings.TrimSuffix(strings.Repeat("7,", 21), ",") + `]}}`,
		metrics.SketchLatency:        `{"shared":` + list + `,"local":[]}`,
	}
}

// fillSketches writes those of all together and of some tenants: full ones of
// days and hours, and smaller ones of minutes, by three nodes.
func (w countedWorld) fillSketches(exec func(string, ...any), today, hour, minute time.Time) {
	write := func(step metrics.Step, from, to time.Time, nodes int, docs map[string]string) {
		steps := int(to.Sub(from) / step.Duration())
		for name, doc := range docs {
			exec(fmt.Sprintf(`
				INSERT INTO sketches_%ss (at, tenant, name, node, doc)
				SELECT %d + (a.n - 1) * %d, t.n - 1, $1, CASE WHEN %d = 1 THEN '' ELSE 'node-' || b.n END,
					replace(CAST($2 AS TEXT), '@', '%s-' || a.n || '-' || b.n)
				FROM %s CROSS JOIN %s CROSS JOIN %s`,
				step, from.Unix(), int(step.Duration()/time.Second), nodes, step,
				series("t", w.sketched+1), series("a", steps), series("b", nodes)), name, doc)
		}
	}
	full, small := sketchDocs(w.keys), sketchDocs((w.keys+2)/3)
	write(metrics.Day, today.Add(-90*day), today, 1, full)
	write(metrics.Hour, hour.Add(-9*day), hour, 1, full)
	write(metrics.Minute, hour.Add(-24*time.Hour), hour.Add(-23*time.Hour), 3, small)
	write(metrics.Minute, hour.Add(-4*time.Hour), minute.Add(time.Minute), 3, small)
}

// counting counts the rows that are read through it: of a sum as many as it could
// be made from, if each tenant has decided in every step.
type counting struct {
	metrics.Store
	rows atomic.Int64
}

func (c *counting) Counts(ctx context.Context, q metrics.CountQuery) ([]metrics.CountRow, error) {
	rows, err := c.Store.Counts(ctx, q)
	c.rows.Add(int64(len(rows)))
	return rows, err
}

func (c *counting) SumCounts(ctx context.Context, q metrics.CountQuery) ([]metrics.CountRow, error) {
	c.rows.Add(int64(len(q.Tenants)) * (q.To - q.From) / int64(q.Step.Duration()/time.Second))
	return c.Store.SumCounts(ctx, q)
}

func (c *counting) Sketches(ctx context.Context, q metrics.SketchQuery) ([]metrics.SketchRow, error) {
	rows, err := c.Store.Sketches(ctx, q)
	c.rows.Add(int64(len(rows)))
	return rows, err
}

// A question is one that a page asks.
type question struct {
	name string
	ask  func(ctx context.Context, a *metrics.Analytics, q metrics.Query) error
}

func asked[T any](ask func(*metrics.Analytics, context.Context, metrics.Query) (T, error)) func(context.Context, *metrics.Analytics, metrics.Query) error {
	return func(ctx context.Context, a *metrics.Analytics, q metrics.Query) error {
		_, err := ask(a, ctx, q)
		return err
	}
}

var questions = []question{
	{"Overview", asked((*metrics.Analytics).Overview)},
	{"traffic", asked((*metrics.Analytics).Traffic)},
	{"total of the period before", func(ctx context.Context, a *metrics.Analytics, q metrics.Query) error {
		q.From, q.To = q.From.Add(-q.To.Sub(q.From)), q.From
		_, err := a.Total(ctx, q)
		return err
	}},
	{"limited keys", func(ctx context.Context, a *metrics.Analytics, q metrics.Query) error {
		_, err := a.Keys(ctx, q, metrics.LimitedKeys)
		return err
	}},
	{"allowed keys", func(ctx context.Context, a *metrics.Analytics, q metrics.Query) error {
		_, err := a.Keys(ctx, q, metrics.AllowedKeys)
		return err
	}},
	{"routes", asked((*metrics.Analytics).Routes)},
	{"retry-after", asked((*metrics.Analytics).RetryAfter)},
	{"latency", asked((*metrics.Analytics).Latency)},
	{"tenants by rate", func(ctx context.Context, a *metrics.Analytics, q metrics.Query) error {
		_, err := a.Tenants(ctx, q, metrics.ByRate)
		return err
	}},
	{"policies", asked((*metrics.Analytics).Policies)},
	{"remaining", asked((*metrics.Analytics).Remaining)},
	{"traffic of a route", func(ctx context.Context, a *metrics.Analytics, q metrics.Query) error {
		q.Route = "GET /v1/resources-01/*"
		_, err := a.Traffic(ctx, q)
		return err
	}},
	{"a key", func(ctx context.Context, a *metrics.Analytics, q metrics.Query) error {
		key := metrics.TopKey{Tenant: 1, Policy: "policy-00", Names: []string{"user"}, Values: []string{"user-00000000"}}
		_, err := a.Key(ctx, q, key, metrics.LimitedKeys)
		return err
	}},
}

var spans = []struct {
	name   string
	length time.Duration
}{
	{"15min", 15 * time.Minute},
	{"24h", 24 * time.Hour},
	{"7d", 7 * 24 * time.Hour},
	{"90d", 90 * 24 * time.Hour},
}

// counted returns an Analytics of the world that counts the rows that it reads.
func (w countedWorld) counted(s *store.Store) (*metrics.Analytics, *counting) {
	c := &counting{Store: s}
	return metrics.NewAnalytics(c, metrics.AnalyticsConfig{Now: func() time.Time { return w.now }}), c
}

// over is the query of the time up to now.
func (w countedWorld) over(length time.Duration) metrics.Query {
	return metrics.Query{From: w.now.Add(-length), To: w.now}
}

// benchmark asks each question of a page, and all of the Overview, of all together
// and of a busy tenant: of an Analytics that has read the same sketches before,
// and of a new one (cold).
func (w countedWorld) benchmark(b *testing.B, s *store.Store) {
	fresh := func() *metrics.Analytics {
		a, _ := w.counted(s)
		return a
	}
	run := func(name string, q metrics.Query, each question, next func() *metrics.Analytics) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			a, counting := w.counted(s)
			if err := each.ask(b.Context(), a, q); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := each.ask(b.Context(), next(), q); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/op")
			b.ReportMetric(float64(counting.rows.Load()), "rows")
		})
	}
	for _, span := range spans {
		all := w.over(span.length)
		tenant := all
		tenant.Tenant = 1
		for _, q := range questions {
			warm := fresh()
			run(span.name+"/"+q.name, all, q, func() *metrics.Analytics { return warm })
		}
		warm, overview := fresh(), questions[0]
		run(span.name+"/Overview cold", all, overview, fresh)
		run(span.name+"/Overview of a tenant", tenant, overview, func() *metrics.Analytics { return warm })
		run(span.name+"/Overview of a tenant cold", tenant, overview, fresh)
	}
	b.Run("mark", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Mark(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkAnalyticsSQLite(b *testing.B) {
	url, path := newFile(b)
	s := migrated(b, store.Config{URL: url})
	w := fullWorld()
	began := time.Now()
	w.fill(b, file(b, path))
	b.Logf("filled in %v", time.Since(began).Round(time.Second))
	w.benchmark(b, s)
}

// benchmarkRefusals reads a page of kept refusals by what only the oldest hundred
// of 100,000 have. Their documents, of 1 kB, are found and cannot be read.
func benchmarkRefusals(b *testing.B, s *store.Store, db *sql.DB, blob string) {
	const kept = 100_000
	newest := [16]byte([]byte(fmt.Sprintf("%016d", kept)))
	_, err := db.ExecContext(b.Context(), fmt.Sprintf(`
		INSERT INTO recent_refusals (id, at_us, tenant, policy, route, reason, node, doc)
		SELECT %s, n, 1 + n / 101,
			CASE WHEN n <= 100 THEN 'rare' ELSE 'usual' END, CASE WHEN n <= 100 THEN '/rare' ELSE '/usual' END,
			CASE WHEN n <= 100 THEN 'blocked' ELSE 'over_limit' END, 'n', '%s'
		FROM %s`, blob, strings.Repeat("x", 1000), series("t", kept)))
	if err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]metrics.RefusalFilter{
		"tenant": {Tenant: 1}, "policy": {Policy: "rare"}, "route": {Route: "/rare"}, "reason": {Reason: "blocked"},
		"two reasons": {Reasons: []enforcement.Reason{"blocked", "batch_refused"}},
		"nothing new": {After: newest}, "nothing new of a tenant": {After: newest, Tenant: 1},
		"nothing new for two reasons": {After: newest, Reasons: []enforcement.Reason{"blocked", "over_limit"}},
	} {
		f.Limit = 50
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Refusals(b.Context(), f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRefusalsSQLite(b *testing.B) {
	url, path := newFile(b)
	s := migrated(b, store.Config{URL: url})
	benchmarkRefusals(b, s, file(b, path), `CAST(printf('%016d', n) AS BLOB)`)
}
