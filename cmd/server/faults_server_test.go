//go:build faults

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/servertest"
)

// The tests of faults (make test-faults). Each scenario is a subtest with the name of its goal
// in docs/faults.md. A scenario fails if a bound on counts is exceeded, or if the node does not
// show the fault to the operator. Latencies depend on the machine, so they are only written to
// the table.
//
// HEADGATE_TEST_FAULTS=full runs all scenarios. Otherwise only the short ones run.
// HEADGATE_FAULTS_PAGE is the page whose table gets a row for each scenario.
var fullFaults = os.Getenv("HEADGATE_TEST_FAULTS") == "full"

// faultAlone is how long the load runs before the fault, and faultAfter after it.
const (
	faultAlone = 4 * time.Second
	faultAfter = 5 * time.Second
)

// A faultScenario is one fault.
type faultScenario struct {
	goal  string // of docs/faults.md; variants have a suffix: F-R6b/500ms
	fault string // what fails; shown in the table
	short bool   // part of the short run
	// run executes a scenario without the general load and returns what it measured. It is nil
	// if the fields below describe the scenario.
	run func(t *testing.T) faultRow

	lasts        time.Duration       // of the fault; default 6 s
	redisArgs    []string            // of redis-server
	settings     map[string]string   // of the nodes
	direct       bool                // the nodes reach Redis without a proxy
	fullLog      bool                // the nodes write their log to a full pipe that nobody reads
	ownPostgres  bool                // a private server, so that the fault can stop it
	prepare      func(b *faultBench) // before the load; may be nil
	begin        func(b *faultBench)
	end          func(b *faultBench)
	seen         []string      // what /readyz?verbose or /metrics of a node must contain while the fault lasts
	losesCharges bool          // Redis may lose charges: they are measured and have no bound
	exact        bool          // the fault must not degrade answers
	silent       bool          // a node may send no responses while the fault lasts
	recovers     time.Duration // the goal of the recovery; default 2 s
	holds        func(b *faultBench, m *faultMeasure)
}

// A faultBench is three nodes on a private Redis, each through a proxy.
type faultBench struct {
	*testing.T
	ctx      context.Context // ends with the fault
	cluster  *cluster
	redis    *servertest.RedisProcess
	raw      *redis.Client
	proxies  []*servertest.Proxy
	postgres *servertest.PostgresProcess
	settings []map[string]string // of the nodes
	narrow   int                 // quota of the narrow keys
	during   sync.WaitGroup
}

// restart starts a stopped node again at the same address.
func (b *faultBench) restart(i int) {
	b.Helper()
	<-b.cluster.nodes[i].ended
	b.settings[i]["HEADGATE_ADDR"] = strings.TrimPrefix(b.cluster.nodes[i].origin, "http://")
	b.cluster.nodes[i] = launch(b.T, b.settings[i]).serving()
}

// all calls do for each proxy.
func (b *faultBench) all(do func(*servertest.Proxy)) {
	for _, p := range b.proxies {
		do(p)
	}
}

// A faultMeasure holds the measurements of a scenario with a load.
type faultMeasure struct {
	ledger            []faultAnswer
	start, end        time.Time
	over              map[string]int // by failure mode: the most that a key exceeded its quota
	lost, double      int            // charges of the wide keys
	meanwhile, later  int            // units of the wide keys that failure modes admitted, and those of them that Redis has
	unknown           int            // responses about wide keys that do not show whether the check was charged
	degraded, errors  int
	unavailable       int // 503 of the failure mode closed
	answered, counted int64
	recovery          time.Duration
	seen              []string
	warnings          int // the most lines of level WARN or ERROR in the log of a node, from the fault on
	failed            []string
	notes             string // further measurements, for the table
}

// mostWarnings is the goal for the lines of level WARN or ERROR of a node within a minute.
const mostWarnings = 6

// warningsSince returns the number of lines of level WARN or ERROR in a log since an instant.
func warningsSince(log *output, at time.Time) (n int) {
	for _, text := range strings.Split(log.String(), "\n") {
		var l struct {
			Time  time.Time
			Level string
		}
		if json.Unmarshal([]byte(text), &l) == nil && (l.Level == "WARN" || l.Level == "ERROR") && !l.Time.Before(at) {
			n++
		}
	}
	return n
}

// fail records that a goal was not met, and fails the test.
func (m *faultMeasure) fail(b *faultBench, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	m.failed = append(m.failed, text)
	b.Error(text)
}

// miss records that a goal of latency was not met. It does not fail the test, because latencies
// depend on the machine.
func (m *faultMeasure) miss(format string, args ...any) {
	m.failed = append(m.failed, fmt.Sprintf(format, args...))
}

// allFaults returns all scenarios in the order of the table.
func allFaults() []faultScenario {
	return slices.Concat(redisFaults, controlFaults, nodeFaults, clockFaults, timeFaults, tenantFaults)
}

func TestFaults(t *testing.T) {
	table := newFaultTable(t)
	for _, s := range allFaults() {
		t.Run(s.goal, func(t *testing.T) {
			if !s.short && !fullFaults {
				t.Skip("a scenario of the full run: make test-faults")
			}
			run := s.run
			if run == nil {
				run = s.underLoad
			}
			var row faultRow
			defer func() { // also when the test ends early
				row.goal, row.fault = s.goal, s.fault
				if t.Failed() && len(row.failed) == 0 {
					row.failed = []string{"the test fails"}
				}
				table.add(row)
			}()
			row = run(t)
		})
	}
}

// newFaultBench starts the servers, the proxies, and the nodes.
func newFaultBench(t *testing.T, s *faultScenario) *faultBench {
	t.Helper()
	b := &faultBench{T: t, redis: servertest.StartRedis(t, s.redisArgs...).Prefer()}
	b.raw = redisClient(t, b.redis.URL())
	settings := map[string]string{
		"HEADGATE_REDIS_PREFIX": "hg:", "HEADGATE_NODES": "3", "HEADGATE_SHUTDOWN_DELAY": "0s",
		"HEADGATE_ADMIN_EMAIL": "ann@example.com", "HEADGATE_ADMIN_PASSWORD": ownerPassword,
	}
	if s.ownPostgres {
		b.postgres = servertest.StartPostgres(t)
		settings["HEADGATE_DATABASE_URL"] = b.postgres.URL()
	} else {
		settings["HEADGATE_DATABASE_URL"] = servertest.Postgres(t)
	}
	for name, value := range s.settings {
		settings[name] = value
	}
	b.cluster = &cluster{t: t, databaseURL: settings["HEADGATE_DATABASE_URL"]}
	for i := range 3 {
		node := maps.Clone(settings)
		node["HEADGATE_REDIS_URL"] = b.redis.URL()
		if !s.direct {
			b.proxies = append(b.proxies, servertest.StartProxy(t, b.redis.URL()))
			node["HEADGATE_REDIS_URL"] = b.proxies[i].URL()
		}
		node["HEADGATE_SNAPSHOT_FILE"] = filepath.Join(t.TempDir(), "snapshot") // a node that starts again has it
		b.settings = append(b.settings, node)
		var log io.Writer
		if s.fullLog {
			log = fullPipe(t)
		}
		b.cluster.nodes = append(b.cluster.nodes, launchLogging(t, node, log))
	}
	for _, node := range b.cluster.nodes {
		node.serving()
	}
	perKey := float64(faultRate) / 2 / float64(len(exactModes)*narrowUsers)
	b.narrow = int(perKey * (faultAlone + s.duration()/2).Seconds())
	b.cluster.publish("faults", faultPolicies(b.narrow))
	b.cluster.tenant("faults", "faults")
	return b
}

func (s *faultScenario) duration() time.Duration {
	if s.lasts == 0 {
		return 6 * time.Second
	}
	return s.lasts
}

// underLoad starts the load and starts the fault in the middle of it. After the fault has
// ended, it compares the ledger with what Redis and the database counted.
func (s *faultScenario) underLoad(t *testing.T) faultRow {
	b := newFaultBench(t, s)
	origins := make([]string, len(b.cluster.nodes))
	for i, node := range b.cluster.nodes {
		origins[i] = node.origin
	}
	people := newBrowser(t, origins[0])
	people.signIn("ann@example.com", ownerPassword).want(t, 303)
	if s.prepare != nil {
		s.prepare(b)
	}
	m := &faultMeasure{over: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.ctx = ctx
	began := time.Now()
	load := startFaultLoad(t.Context(), origins, faultRate)
	await(time.Now().Add(faultAlone))

	m.start = time.Now()
	watching, seen := watchFault(ctx, origins, s.seen)
	s.begin(b)
	await(m.start.Add(s.duration()))
	if len(s.seen) > 0 {
		select {
		case <-seen:
		case <-time.After(faultTimeout):
		}
	}
	system := systemSummary(people)
	cancel()
	b.during.Wait()
	if s.end != nil {
		s.end(b)
	}
	m.end = time.Now()
	m.seen = append(watching(), system)
	for _, want := range s.seen {
		if !strings.Contains(strings.Join(m.seen, "\n"), want) {
			m.fail(b, "the operator does not see %q", want)
		}
	}
	await(m.end.Add(faultAfter))
	m.ledger = load.end()
	for _, node := range b.cluster.nodes {
		m.warnings = max(m.warnings, warningsSince(node.logs, m.start))
	}
	m.settle(b, began)
	if s.holds != nil {
		s.holds(b, m)
	}
	s.bounds(b, m)
	return m.row()
}

// bounds checks the bounds that apply to every scenario.
func (s *faultScenario) bounds(b *faultBench, m *faultMeasure) {
	if m.double > 0 {
		m.fail(b, "%d double charges", m.double)
	}
	if m.lost > 0 && !s.losesCharges {
		m.fail(b, "%d lost charges", m.lost)
	}
	if m.over["closed"] > 0 && !s.losesCharges {
		m.fail(b, "closed: a key exceeds its quota by %d", m.over["closed"])
	}
	most := b.narrow
	if s.losesCharges {
		most += len(b.cluster.nodes) // the shares of the nodes while Redis was unavailable
	}
	for _, mode := range []string{"closed", "local"} {
		if n := m.over[mode]; n > most {
			m.fail(b, "%s: a key exceeds its quota of %d by %d, want at most %d", mode, b.narrow, n, most)
		}
	}
	// On a busy machine, Redis can sometimes take longer than its timeout.
	if few := len(m.ledger) / 100; s.exact && (m.degraded > few || m.errors > 0) {
		m.fail(b, "%d degraded answers of %d, %d errors", m.degraded, m.answered, m.errors)
	}
	if most := max(s.recovers, 2*time.Second); m.recovery > most {
		m.miss("recovery in %s", most)
	}
	if most := mostWarnings * (1 + int(s.duration()/time.Minute)); m.warnings > most {
		m.fail(b, "%d warnings in the log of a node", m.warnings)
	}
	for _, a := range m.ledger {
		if a.took >= faultTimeout && (!s.silent || a.due.After(m.end)) {
			m.fail(b, "a check hangs for %s", a.took)
			break
		}
	}
}

// await waits until a point in time.
func await(at time.Time) {
	timer := time.NewTimer(time.Until(at))
	<-timer.C
}

// settle compares the ledger with the counters in Redis and with the counts in the
// database.
func (m *faultMeasure) settle(b *faultBench, began time.Time) {
	b.Helper()
	type sums struct{ admitted, charged, unknown int }
	keys := map[faultKey]*sums{}
	for i := range m.ledger {
		a := &m.ledger[i]
		k := keys[a.key]
		if k == nil {
			k = &sums{}
			keys[a.key] = k
		}
		charged, unknown := a.charged()
		if a.allowed {
			k.admitted++
		}
		if charged {
			k.charged++
		}
		if unknown {
			k.unknown++
		}
		switch {
		case a.status == 0:
			m.errors++
		case a.degraded:
			m.degraded++
			if a.status == http.StatusServiceUnavailable {
				m.unavailable++
			}
		case a.status != http.StatusOK && a.status != http.StatusTooManyRequests:
			m.errors++
		}
		if a.status != 0 {
			m.answered++
		}
	}
	m.recovery = recovery(m.ledger, m.end)
	for k, sum := range keys {
		if k.narrow {
			m.over[k.mode] = max(m.over[k.mode], sum.admitted-b.narrow)
			continue
		}
		m.unknown += sum.unknown
		used := wideQuota - b.left(k)
		m.meanwhile += sum.admitted - sum.charged
		m.later += min(max(0, used-sum.charged), sum.admitted-sum.charged)
		m.lost += max(0, sum.charged-used)
		m.double += max(0, used-sum.charged-sum.unknown)
	}
	m.settleCounts(b, began)
}

// recovery returns the time from the end of the fault until one second of checks has no
// degraded response. It ignores single late responses, which occur on a busy machine.
func recovery(ledger []faultAnswer, end time.Time) time.Duration {
	ledger = slices.SortedFunc(slices.Values(ledger), func(a, b faultAnswer) int { return a.due.Compare(b.due) })
	last := end
	for _, a := range ledger {
		if a.due.After(last.Add(time.Second)) {
			break
		}
		if a.due.After(end) && (a.status == 0 || a.degraded) {
			last = a.due
		}
	}
	return last.Sub(end)
}

// settleCounts waits until the counts in the database equal those of the ledger, or stop
// growing.
func (m *faultMeasure) settleCounts(b *faultBench, began time.Time) {
	deadline := time.Now().Add(15 * time.Second)
	for time.Now().Before(deadline) {
		m.counted = counted(b.T, b.cluster.nodes[0].origin, "faults", began)["requests"]
		if m.counted >= m.answered {
			break
		}
		await(time.Now().Add(100 * time.Millisecond))
	}
	if most := m.answered + int64(m.errors); m.counted > most {
		m.fail(b, "%d decisions are counted, %d were answered", m.counted, m.answered)
	}
}

// left returns the remaining units of a counter in Redis.
func (b *faultBench) left(k faultKey) int {
	b.Helper()
	body := strings.Replace(k.check(), `{"tenant"`, `{"mode": "peek", "cost": 0, "tenant"`, 1)
	for _, node := range b.cluster.nodes {
		a, err := tryCall(b.Context(), bootstrap, "POST", node.origin+"/v1/check", body)
		if err != nil {
			continue // this node was killed
		}
		if r := a.results(b)[0]; a.status == http.StatusOK && !r.Degraded && len(r.Limits) == 1 {
			return r.Limits[0].Remaining
		}
	}
	b.Fatalf("no node tells what %+v has left", k)
	return 0
}

// faultSeries maps the series of /metrics that show faults to their values on a healthy
// node.
var faultSeries = map[string]string{
	"headgate_redis_reachable": "1", "headgate_redis_breaker_open": "0", "headgate_redis_writable": "1", "headgate_redis_data_lost_total": "0",
	"headgate_degraded_total": "0", "headgate_database_writable": "1", "headgate_snapshot_listening": "1", "headgate_snapshot_held": "0",
	"headgate_snapshot_problems": "0", "headgate_overloaded_total": "0", "headgate_log_lines_dropped_total": "0",
}

var instants = regexp.MustCompile(`\d+( rows)? wait\b|\babout \d+|\d{4}-\d{2}-\d{2}T[0-9:.]+Z|[0-9.]+(ms|s)\b|127\.0\.0\.1:\d+`)

// cause is the error in a warning, of which there are many forms.
var cause = regexp.MustCompile(` \([^)]*\)$`)

// watchFault polls the state of the nodes until the context ends. The returned function
// returns each statement with the time of its first appearance. all is closed once every text
// of want appeared in a statement.
func watchFault(ctx context.Context, origins, want []string) (said func() []string, all chan struct{}) {
	began, done := time.Now(), make(chan struct{})
	all = make(chan struct{})
	first := map[string]time.Duration{}
	var order []string
	note := func(text string) {
		if _, known := first[text]; !known {
			first[text] = time.Since(began)
			order = append(order, text)
		}
	}
	look := func(origin string) {
		var r struct {
			Degraded bool
			Status   string
			Warnings []string
		}
		if a, err := tryCall(ctx, "", "GET", origin+"/readyz?verbose", ""); err != nil {
			if !errors.Is(err, context.Canceled) {
				note("a node does not answer")
			}
		} else if json.Unmarshal([]byte(a.body), &r) == nil {
			if r.Degraded {
				note("`degraded`")
			}
			if r.Status == "not_ready" {
				note("`not_ready`")
			}
			for _, w := range r.Warnings {
				note("“" + cause.ReplaceAllString(instants.ReplaceAllString(w, "…"), "") + "”")
			}
		}
		if a, err := tryCall(ctx, "", "GET", origin+"/metrics", ""); err == nil {
			for _, name := range slices.Sorted(maps.Keys(faultSeries)) {
				if value, ok := strings.CutPrefix(line(a.body, name+" "), name+" "); ok && value != faultSeries[name] {
					if strings.HasSuffix(name, "_total") {
						value = "rises"
					}
					note("`" + name + " " + value + "`")
				}
			}
		}
	}
	go func() {
		defer close(done)
		missing := true
		for ctx.Err() == nil {
			for _, origin := range origins {
				look(origin)
			}
			text := strings.Join(order, "\n")
			if missing && !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(text, w) }) {
				missing = false
				close(all)
			}
			await(time.Now().Add(100 * time.Millisecond))
		}
	}()
	return func() (texts []string) {
		<-done
		for _, text := range order {
			texts = append(texts, fmt.Sprintf("%s after %s", text, first[text].Round(100*time.Millisecond)))
		}
		return texts
	}, all
}

var summary = regexp.MustCompile(`\d+ nodes?, (?:all healthy|healthy|\d+ with problems)`)

// systemSummary returns the sentence of the System page about all nodes.
func systemSummary(b *browser) string {
	response, err := b.client.Get(b.origin + "/system")
	if err != nil {
		return "the System page does not answer"
	}
	defer response.Body.Close()
	text := readText(response.Body)
	if found := summary.FindString(text); found != "" {
		return "System page: " + found
	}
	return fmt.Sprintf("System page: status %d", response.StatusCode)
}
