package web_test

import (
	"compress/gzip"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
)

// The first page is small, including its style sheet, scripts, font and icon, in the form in
// which they are sent.
func TestFirstPageIsSmall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(t)
	packed := func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") }
	page := w.send("GET", "/overview", "owner", nil, packed)
	if page.Header().Get("Content-Encoding") != "gzip" {
		t.Fatalf("the page is not packed: %v", page.Header())
	}
	z, err := gzip.NewReader(strings.NewReader(page.body))
	must(t, err)
	plain := new(strings.Builder)
	_, err = io.Copy(plain, z)
	must(t, err)
	sum, files := len(page.body), map[string]int{}
	for n := range (reply{body: plain.String()}).tree(t).Descendants() {
		for _, key := range []string{"src", "href"} {
			if address := attr(n, key); strings.HasPrefix(address, "/static/") {
				files[address] = len(w.send("GET", address, "", nil, packed).body)
			}
		}
	}
	for _, size := range files {
		sum += size
	}
	t.Logf("page %d, with %d files %d bytes: %v", len(page.body), len(files), sum, files)
	if len(files) < 8 || !strings.Contains(plain.String(), "Top limited keys") {
		t.Errorf("the page has not all of its parts: %v", files)
	}
	if sum > 150_000 {
		t.Errorf("the first page is %d bytes on the wire", sum)
	}
}

// countedDatabase has 1,000 tenants with 90 days of counts by day and hour, and two days by
// minute. Each day, each hour, and the minutes of the last hours have full rankings.
func countedDatabase(b *testing.B) fixture {
	b.Helper()
	f, err := populated()
	must(b, err)
	path := filepath.Join(b.TempDir(), "counted.db")
	must(b, os.WriteFile(path, f.database, 0o600))
	w := &world{t: b, fixture: f}
	w.now.Store(start.UnixMicro())
	must(b, w.open(b.Context(), path))
	for n := range 1000 {
		_, err := w.tenants.CreateTenant(b.Context(), fmt.Sprintf("tenant-%04d", n), tenants.Document{Name: fmt.Sprintf("Tenant %d", n)})
		must(b, err)
	}
	must(b, w.store.Close())
	db, err := sql.Open("sqlite", "file:"+path)
	must(b, err)
	fillCounts(b, db)
	must(b, db.Close())
	f.database, err = os.ReadFile(path)
	must(b, err)
	return f
}

func fillCounts(b *testing.B, db *sql.DB) {
	b.Helper()
	exec := func(statement string, args ...any) {
		b.Helper()
		if _, err := db.ExecContext(b.Context(), statement, args...); err != nil {
			b.Fatalf("%.200s: %v", statement, err)
		}
	}
	series := func(as string, n int) string {
		return fmt.Sprintf(`(WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < %d) SELECT n FROM r) AS %s`, n, as)
	}
	kinds := []string{`SELECT 'total' AS kind, '' AS name`}
	for i := range 20 {
		kinds = append(kinds, fmt.Sprintf(`SELECT 'policy', 'policy-%02d'`, i), fmt.Sprintf(`SELECT 'route', '/v1/resources-%02d/*'`, i))
	}
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprintf(`{"t":%d,"p":0,"v":["user-%05d"],"c":%d,"e":3}`, i+1, i, 10+1000/(i+1)))
	}
	ranking := `{"capacity":100,"total":100000,"floor":3,"policies":[{"policy":"policy-00","count_by":["user"]}],"keys":[` + strings.Join(keys, ",") + `]}`
	busiest := strings.NewReplacer(`"policy-00"`, `""`, `["user"]`, `[]`).Replace(ranking)
	for i := range 100 {
		busiest = strings.Replace(busiest, fmt.Sprintf(`["user-%05d"]`, i), `[]`, 1)
	}
	const buckets = `[[0,7],[3,70],[12,300],[20,90],[40,12],[80,3],[100,2]]`
	docs := map[string]string{
		metrics.SketchLimitedKeys: ranking, metrics.SketchAllowedKeys: ranking, metrics.SketchLimitedTenants: busiest, metrics.SketchBusyTenants: busiest,
		metrics.SketchRetryAfter: `{"buckets":` + buckets + `}`, metrics.SketchLatency: `{"shared":` + buckets + `,"local":[]}`,
	}
	today, hour := start.Truncate(web.Day), start.Truncate(time.Hour)
	for _, g := range []struct {
		step           metrics.Step
		tenants, every int
		from           time.Time
		to             time.Time
		kinds          []string
	}{
		{metrics.Day, 0, 1, today.Add(-90 * web.Day), today, kinds},
		{metrics.Day, 1000, 1, today.Add(-90 * web.Day), today, kinds[:3]},
		{metrics.Hour, 0, 1, hour.Add(-90 * web.Day), hour, kinds},
		{metrics.Hour, 1000, 8, hour.Add(-90 * web.Day), hour, kinds[:3]},
		{metrics.Minute, 0, 1, hour.Add(-2 * web.Day), hour, kinds},
		{metrics.Minute, 1000, 60, hour.Add(-2 * web.Day), hour, kinds[:3]},
	} {
		length := int(g.step.Duration()/time.Second) * g.every
		first, many := 0, 1
		if g.tenants > 0 {
			first, many = 1, g.tenants
		}
		exec(fmt.Sprintf(`INSERT INTO counts_%ss (at, tenant, kind, name, %s)
			SELECT %d + (a.n - 1) * %d, t.n + %d, k.kind, k.name, 1000, 900, 0, 0, 100, %s 2000
			FROM %s CROSS JOIN %s CROSS JOIN (%s) AS k ORDER BY 2, 3, 1, 4`,
			g.step, strings.Join(metrics.Columns, ", "), g.from.Unix(), length, first-1, strings.Repeat("0, ", len(metrics.Columns)-6),
			series("t", many), series("a", int(g.to.Sub(g.from)/time.Second)/length), strings.Join(g.kinds, " UNION ALL ")))
		if g.tenants > 0 {
			continue
		}
		from := g.from
		if g.step != metrics.Day {
			from = hour.Add(-map[metrics.Step]time.Duration{metrics.Hour: 9 * web.Day, metrics.Minute: 4 * time.Hour}[g.step])
		}
		for name, doc := range docs {
			exec(fmt.Sprintf(`INSERT INTO sketches_%ss (at, tenant, name, node, doc) SELECT %d + (a.n - 1) * %d, 0, $1, '', $2 FROM %s`,
				g.step, from.Unix(), length, series("a", int(g.to.Sub(from)/time.Second)/length)), name, doc)
		}
	}
	exec(`INSERT INTO pruned (step, before) VALUES ('minute', $1), ('hour', $2) ON CONFLICT (step) DO UPDATE SET before = excluded.before`,
		hour.Add(-2*web.Day).Unix(), today.Add(-90*web.Day).Unix())
	exec(`ANALYZE`)
}

// BenchmarkOverviewPage measures the server time of the first page with 1,000 tenants and 90
// days of counts: without the cache (fresh), and with it. The rows marks and groups repeat fresh
// with 200 events in the charts, and with the charts grouped by policy. The metric x/fresh is their
// ratio to fresh.
func BenchmarkOverviewPage(b *testing.B) {
	w := over(b, countedDatabase(b))
	w.now.Store(start.Add(time.Second).UnixMicro())
	marked := over(b, w.fixture)
	marked.now.Store(w.now.Load())
	marked.publish("busy", busyPlan(), "acme")
	for i := range 200 {
		marked.now.Add(int64(time.Second / time.Microsecond))
		_, err := marked.exceptions.CreateBlock(b.Context(), "acme", exceptions.NewBlock{
			Policy: "login-per-ip", Key: map[string]string{"ip": fmt.Sprint("198.51.100.", i)}, Reason: "benchmark", ExpiresAt: start.Add(web.Day),
		})
		must(b, err)
	}
	must(b, marked.watcher.Refresh(b.Context()))
	for _, length := range []string{"15m", "1h", "24h", "7d", "90d"} {
		address := "/overview?range=" + length
		page := w.get(address, "owner")
		if page.Code != http.StatusOK || !strings.Contains(page.body, "user-00000") {
			b.Fatalf("%s: %d %.3000s", address, page.Code, page.body)
		}
		var plain float64
		fresh := func(b *testing.B, w *world, address string) {
			for b.Loop() {
				w.now.Add(time.Minute.Microseconds()) // a query that is not in the cache
				w.get(address, "owner")
			}
			per := float64(b.Elapsed()) / float64(b.N)
			if plain == 0 {
				plain = per
			}
			b.ReportMetric(per/plain, "x/fresh")
		}
		b.Run(length+"/fresh", func(b *testing.B) { plain = 0; fresh(b, w, address) })
		if length == "24h" || length == "90d" { // the clock moves less than that
			if page := marked.get(address, "owner"); !strings.Contains(page.body, "Key blocked") {
				b.Fatalf("%s: the charts have no marks: %d", address, page.Code)
			}
			b.Run(length+"/marks", func(b *testing.B) { fresh(b, marked, address) })
			b.Run(length+"/groups", func(b *testing.B) { fresh(b, w, address+"&by=policy") })
		}
		b.Run(length+"/shared", func(b *testing.B) {
			for b.Loop() {
				w.get(address, "owner")
			}
		})
	}
}

// Issue 13, 1.9: the server time of the list of 1,000 tenants, sorted by 429 rate.
func BenchmarkTenantsPage(b *testing.B) {
	w := over(b, countedDatabase(b))
	w.now.Store(start.Add(time.Second).UnixMicro())
	for _, address := range []string{"/tenants", "/tenants?sort=rate", "/tenants?sort=rate&page=20"} {
		if page := w.get(address, "owner"); page.Code != http.StatusOK || !strings.Contains(page.body, "tenants, 1 suspended: ") {
			b.Fatalf("%s: %d %.3000s", address, page.Code, page.body)
		}
		b.Run(address, func(b *testing.B) {
			for b.Loop() {
				w.now.Add(time.Minute.Microseconds())
				w.get(address, "owner")
			}
		})
	}
}
