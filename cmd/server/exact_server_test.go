//go:build !quick

package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/internal/servertest"
)

// exactAlgorithms has the limits of the tests of exactness, without their quotas. The windows
// are so long that none ends during a test, and no bucket refills by one unit.
var exactAlgorithms = map[string]string{
	"fixed":   `"algorithm": "fixed_window", "window": "1d"`,
	"clock":   `"algorithm": "fixed_window", "window": "366d", "anchor": "clock"`,
	"log":     `"algorithm": "sliding_window_log", "window": "1d"`,
	"counter": `"algorithm": "sliding_window_counter", "window": "1d"`,
	"bucket":  `"algorithm": "token_bucket", "window": "366d"`,
	"gcra":    `"algorithm": "gcra", "window": "366d"`,
}

var (
	exactNames = []string{"fixed", "clock", "log", "counter", "bucket", "gcra"}
	exactModes = []string{"local", "open", "closed"}
)

// tenQuota is the smallest quota of the policies with ten limits.
const tenQuota = 500

// exactPlan has a policy for each failure mode, algorithm and quota (1 and 100),
// and for each failure mode one with ten limits. All count by user.
func exactPlan() string {
	var policies []string
	add := func(mode, name string, limits []string) {
		policies = append(policies, fmt.Sprintf(
			`{"slug": "%s-%s", "match": {"path": "/%[1]s/%[2]s"}, "count_by": ["user"], "on_failure": %[1]q, "limits": [%[3]s]}`,
			mode, name, strings.Join(limits, ",")))
	}
	for _, mode := range exactModes {
		var ten []string
		for i := range 10 {
			ten = append(ten, fmt.Sprintf(`{%s, "name": "l%d", "quota": %d}`, exactAlgorithms[exactNames[i%len(exactNames)]], i, tenQuota+i))
		}
		add(mode, "ten", ten)
		for _, name := range exactNames {
			for _, quota := range []int{1, 100} {
				add(mode, fmt.Sprintf("%s-%d", name, quota), []string{fmt.Sprintf(`{%s, "quota": %d}`, exactAlgorithms[name], quota)})
			}
		}
	}
	return "[" + strings.Join(policies, ",") + "]"
}

// A counter is one key of one policy of the exactness suite.
type counter struct {
	path, user string
	quota      int
}

func (c counter) check(tenant string) string {
	return fmt.Sprintf(`{"tenant": %q, "path": %q, "attributes": {"user": %q}}`, tenant, c.path, c.user)
}

// A storm is one load of the tests of exactness.
type storm struct {
	name               string
	nodes, connections int
	hogs               int // processes that keep the processors busy beside the nodes
	counters           []counter
	// calls are the requests in order. Each names the counters of its checks:
	// one for a check, several for a batch.
	calls  [][]int
	atomic bool
}

// A stormReport is a row of the table that make test-load prints.
type stormReport struct {
	storm
	checks, admitted, want int
	took                   time.Duration
}

// exactSuite has the nodes and the plan of the tests of exactness.
type exactSuite struct {
	t       *testing.T
	nodes   []*running
	users   int
	reports []stormReport
}

// newExactSuite starts real processes on a new Redis, with the default
// time-out of the limiter.
func newExactSuite(t *testing.T, nodes int) *exactSuite {
	t.Helper()
	return newExactSuiteOn(t, nodes, servertest.StartRedis(t).Prefer().URL())
}

func newExactSuiteOn(t *testing.T, nodes int, redisURL string) *exactSuite {
	t.Helper()
	f := startCluster(t, nodes, map[string]string{"HEADGATE_REDIS_URL": redisURL, "HEADGATE_LIMITER_TIMEOUT": ""})
	f.publish("exact", exactPlan())
	f.tenant("exact", "exact")
	s := &exactSuite{t: t}
	for _, node := range f.nodes {
		s.nodes = append(s.nodes, node.running)
	}
	return s
}

// counter returns a key that no other storm uses.
func (s *exactSuite) counter(mode, policy string, quota int) counter {
	s.users++
	return counter{path: "/" + mode + "/" + policy, user: fmt.Sprintf("u%d", s.users), quota: quota}
}

// one returns a storm of single checks on one counter.
func (s *exactSuite) one(mode, algorithm string, quota, nodes, connections, checks, hogs int) storm {
	return storm{
		name: fmt.Sprintf("%s %s, quota %d", mode, algorithm, quota), nodes: nodes, connections: connections, hogs: hogs,
		counters: []counter{s.counter(mode, fmt.Sprintf("%s-%d", algorithm, quota), quota)}, calls: make([][]int, checks),
	}
}

// mixed returns a storm of single checks on counters of every algorithm and failure mode.
func (s *exactSuite) mixed(nodes, connections, checks, hogs int) storm {
	m := storm{name: "every algorithm and mode", nodes: nodes, connections: connections, hogs: hogs}
	for _, mode := range exactModes {
		for _, name := range exactNames {
			for _, quota := range []int{1, 100} {
				m.counters = append(m.counters, s.counter(mode, fmt.Sprintf("%s-%d", name, quota), quota))
			}
		}
	}
	for i := range checks {
		m.calls = append(m.calls, []int{i % len(m.counters)})
	}
	return m
}

// batches returns a storm of batches with single checks between them. Each batch has size
// checks, which are distributed over keys counters.
func (s *exactSuite) batches(mode, policy string, quota, nodes, count, size, keys, singles, hogs int, atomic bool) storm {
	b := storm{
		name:  fmt.Sprintf("%d batches of %d, %s %s, %d keys, atomic %t", count, size, mode, policy, keys, atomic),
		nodes: nodes, connections: count + min(singles, 50), hogs: hogs, atomic: atomic,
	}
	for range keys {
		b.counters = append(b.counters, s.counter(mode, policy, quota))
	}
	for range count {
		batch := make([]int, size)
		for i := range batch {
			batch[i] = i % keys
		}
		b.calls = append(b.calls, batch)
	}
	for i := range singles {
		b.calls = append(b.calls, []int{i % keys})
	}
	return b
}

// requests returns the HTTP requests of a storm.
func (s *storm) requests(tenant string) [][]byte {
	requests := make([][]byte, len(s.calls))
	texts := make([]string, len(s.counters))
	for i, c := range s.counters {
		texts[i] = c.check(tenant)
	}
	for i, call := range s.calls {
		switch {
		case call == nil:
			requests[i] = post("/v1/check", texts[0])
		case len(call) == 1:
			requests[i] = post("/v1/check", texts[call[0]])
		default:
			checks := make([]string, len(call))
			for k, c := range call {
				checks[k] = texts[c]
			}
			requests[i] = post("/v1/check/batch", fmt.Sprintf(`{"checks": [%s], "atomic": %t}`, strings.Join(checks, ","), s.atomic))
		}
	}
	return requests
}

// run sends a storm. It fails the test unless each counter allowed exactly its quota, and no
// response was degraded or an error.
func (s *exactSuite) run(t *testing.T, m storm) {
	t.Helper()
	nodes := s.nodes[:m.nodes]
	origins := make([]string, m.nodes)
	for i, node := range nodes {
		origins[i] = node.origin
	}
	before := watch(t, nodes)
	requests := m.requests("exact")
	load := connect(t, origins, m.connections) // last: a node closes a connection on which no request comes
	stop := hog(t, m.hogs)
	began := time.Now()
	answers := load.send(requests)
	report := stormReport{storm: m, took: time.Since(began)}
	stop()
	load.close()

	asked, admitted := make([]int, len(m.counters)), make([]int, len(m.counters))
	strange := 0
	for i, a := range answers {
		call, whole := m.calls[i], 0
		if call == nil {
			call = []int{0}
		}
		results := a.results(t)
		if len(results) != len(call) {
			t.Errorf("%d results for %d checks: %d %.300s", len(results), len(call), a.status, a.body)
			continue
		}
		for k, r := range results {
			asked[call[k]]++
			if r.Allowed {
				admitted[call[k]]++
				whole++
			}
			if r.Degraded || (r.Status != http.StatusOK && r.Status != http.StatusTooManyRequests) {
				if strange++; strange <= 3 {
					t.Errorf("want 200 or 429, not degraded: %+v", r)
				}
			}
		}
		if m.atomic && len(call) > 1 && whole != 0 && whole != len(call) {
			t.Errorf("%d of %d checks of an atomic batch were admitted", whole, len(call))
		}
	}
	if strange > 0 {
		t.Errorf("%d answers were degraded or errors", strange)
	}
	for i, c := range m.counters {
		want := min(asked[i], c.quota)
		if m.atomic {
			size := len(m.calls[0])
			want = min(asked[i]/size, c.quota/size) * size
		}
		report.checks, report.admitted, report.want = report.checks+asked[i], report.admitted+admitted[i], report.want+want
		if admitted[i] != want {
			t.Errorf("%s %s admitted %d of %d checks, want %d", c.path, c.user, admitted[i], asked[i], want)
		}
	}
	for _, w := range before {
		w.unchanged()
	}
	s.reports = append(s.reports, report)
}

// table prints the results, for make test-load.
func (s *exactSuite) table() {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "storm\tnodes\tconnections\thogs\tchecks\tadmitted\twant\ttook")
	for _, r := range s.reports {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n",
			r.name, r.nodes, r.connections, r.hogs, r.checks, r.admitted, r.want, r.took.Round(time.Millisecond))
	}
	_ = w.Flush()
	s.t.Logf("%d storms\n%s", len(s.reports), &text)
}

// Nodes with default settings allow exactly the limit under every load. No failure mode
// decides, because the time that a check waits inside a node does not count as time of Redis.
func TestExactUnderLoad(t *testing.T) {
	t.Parallel()
	nodes := 3
	if fullLoad {
		nodes = 9
	}
	s := newExactSuite(t, nodes)
	storms := s.fewStorms()
	if fullLoad {
		storms = s.allStorms()
	}
	for _, m := range storms {
		t.Run(m.name, func(t *testing.T) { s.run(t, m) })
	}
	s.table()
}

// fewStorms returns the storms of make test.
func (s *exactSuite) fewStorms() []storm {
	storms := []storm{
		s.one("closed", "fixed", 1, 1, 1000, 1000, 0),
		s.one("open", "bucket", 100, 3, 2000, 2000, 0),
		s.mixed(3, 300, 3000, 2),
		s.batches("local", "ten", tenQuota, 3, 3, 1000, 1, 300, 0, false),
		s.batches("open", "ten", tenQuota, 1, 2, 1000, 250, 250, 1, false),
		s.batches("closed", "ten", tenQuota, 3, 8, 100, 1, 0, 0, true),
	}
	for i, name := range exactNames {
		storms = append(storms, s.one(exactModes[i%3], name, 100, 1+2*(i%2), 100+100*i, 600, 0))
	}
	return storms
}

// allStorms returns the storms of make test-load.
func (s *exactSuite) allStorms() []storm {
	var storms []storm
	turn := 0
	mode := func() string { turn++; return exactModes[turn%len(exactModes)] }
	for _, nodes := range []int{1, 3, 9} {
		for _, name := range exactNames {
			for _, connections := range []int{20, 128, 400, 1000, 2000} {
				hogs := 4 * (turn % 2)
				storms = append(storms, s.one(mode(), name, 100, nodes, connections, max(connections, 1000), hogs))
			}
			for _, m := range exactModes {
				storms = append(storms, s.one(m, name, 1, nodes, 1000, 1000, 0))
			}
		}
		for _, hogs := range []int{0, 2, 4} {
			storms = append(storms, s.mixed(nodes, 1000, 10000, hogs))
		}
		for _, size := range []int{2, 3, 10, 63, 64, 65, 127, 128, 129, 255, 256, 257, 500, 999, 1000} {
			storms = append(storms, s.batches(mode(), "ten", tenQuota, nodes, 6, size, 1, 200, 0, false))
			storms = append(storms, s.batches(mode(), "ten", tenQuota, nodes, 3, size, size, 200, 2*(turn%2), false))
			storms = append(storms, s.batches(mode(), exactNames[turn%6]+"-100", 100, nodes, 20, size, max(size/20, 1), 500, 0, false))
		}
		for _, size := range []int{2, 7, 50, 64, 65, 99, 100} {
			storms = append(storms, s.batches(mode(), "ten", tenQuota, nodes, 700/size+2, size, 1, 0, 2*(turn%2), true))
		}
	}
	return storms
}

// The node and its clients are in one process, with goroutines that use all processors. Every
// goroutine of the node waits for a processor longer than the limiter's timeout.
func TestExactWithoutAProcessor(t *testing.T) {
	t.Parallel()
	s := &exactSuite{t: t, nodes: []*running{start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_SAMPLE": "false",
		"HEADGATE_REDIS_URL": servertest.StartRedis(t).Prefer().URL(), "HEADGATE_LOG_FORMAT": "json",
	})}}
	node := s.nodes[0].origin
	plan := `{"slug": "exact", "draft": {"name": "exact", "policies": ` + exactPlan() + `}}`
	made := call(t, bootstrap, "POST", node+"/v1/plans", plan).want(t, 201)
	call(t, bootstrap, "POST", node+"/v1/plans/exact/publish", "", "If-Match", made.header.Get("ETag")).want(t, 200)
	call(t, bootstrap, "POST", node+"/v1/tenants", `{"slug": "exact", "tenant": {"require_route": false, "name": "exact", "plan": "exact"}}`).want(t, 201)
	var end atomic.Bool
	var spinning sync.WaitGroup
	for range 4 {
		spinning.Go(func() {
			for !end.Load() { // keeps a processor busy
			}
		})
	}
	defer spinning.Wait()
	defer end.Store(true)
	s.run(t, s.mixed(1, 150, 450, 0))
	s.run(t, s.batches("local", "ten", tenQuota, 1, 1, 1000, 1, 20, 0, false))
}

// The load of one tenant does not change the decisions for another tenant.
func TestFloodOfOneTenantChangesNoOther(t *testing.T) {
	t.Parallel()
	s := newExactSuite(t, 1)
	node := s.nodes[0]
	call(t, bootstrap, "POST", node.origin+"/v1/tenants", `{"slug": "calm", "tenant": {"require_route": false, "name": "calm", "plan": "exact"}}`).want(t, 201)
	before := watch(t, s.nodes)

	rounds := 1
	if fullLoad {
		rounds = 10
	}
	const connections = 350
	flooded := s.counter("open", "bucket-100", 100)
	flood := startFlood(t, connect(t, []string{node.origin}, connections), post("/v1/check", flooded.check("exact")))
	calm := connect(t, []string{node.origin}, 1)
	for range rounds {
		for i, name := range exactNames {
			modes := exactModes
			if !fullLoad {
				modes = modes[i%3 : i%3+1]
			}
			for _, mode := range modes {
				c := s.counter(mode, name+"-100", 100)
				text := post("/v1/check", strings.Replace(c.check("calm"), `{"tenant"`, `{"cost": 20, "tenant"`, 1))
				for n := range 7 {
					a, err := calm.conns[0].ask(text)
					if err != nil {
						t.Fatal(err)
					}
					r := a.results(t)[0]
					want, left := http.StatusOK, 100-20*(n+1)
					if n >= 5 {
						want, left = http.StatusTooManyRequests, 0
					}
					if r.Status != want || r.Degraded || len(r.Limits) != 1 || r.Limits[0].Remaining != left {
						t.Errorf("%s, check %d: want %d with %d remaining, have %d %s", c.path, n, want, left, a.status, a.body)
					}
				}
			}
		}
	}
	flood.end()
	if n := flood.admitted.Load(); n != 100 || flood.strange.Load() != 0 || flood.overloaded.Load() != 0 {
		t.Errorf("the flood: %d of a quota of 100 admitted; of %d answers %d were degraded or errors and %d overloaded",
			n, flood.answered.Load(), flood.strange.Load(), flood.overloaded.Load())
	}
	if n := flood.answered.Load(); n < connections {
		t.Errorf("%d checks on %d connections are no flood", n, connections)
	}
	for _, w := range before {
		w.unchanged()
	}
}
