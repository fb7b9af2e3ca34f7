//go:build !quick

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/servertest"
)

// redisClient returns a client for the Redis of a test.
func redisClient(t *testing.T, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	options.ReadTimeout = patience
	c := redis.NewClient(options)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// scriptCalls returns the number of script calls that a Redis has executed.
func scriptCalls(t *testing.T, c *redis.Client) (n int) {
	t.Helper()
	text, err := c.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	if _, rest, found := strings.Cut(text, "cmdstat_evalsha:calls="); found {
		_, _ = fmt.Sscanf(rest, "%d", &n)
	}
	return n
}

// left returns the remaining units of a counter according to its node.
func (s *exactSuite) left(t *testing.T, c counter) int {
	t.Helper()
	body := strings.Replace(c.check("exact"), `{"tenant"`, `{"cost": 0, "tenant"`, 1)
	r := call(t, bootstrap, "POST", s.nodes[0].origin+"/v1/check", body).want(t, 200).results(t)[0]
	if r.Degraded || len(r.Limits) != 1 {
		t.Fatalf("not decided by Redis: %+v", r)
	}
	return r.Limits[0].Remaining
}

// If Redis does not answer, the failure modes decide after a few calls, so that not every check
// waits. Calls that were not answered are not charged when Redis continues. Checks that the
// failure modes allowed are charged then. Afterwards the limits are exact again without a
// restart.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t).Prefer()
	s := newExactSuiteOn(t, 1, server.URL())
	raw := redisClient(t, server.URL())
	counters := map[string]counter{}
	var all storm
	for i, mode := range exactModes {
		c := s.counter(mode, "gcra-100", 100)
		counters[mode] = c
		all.counters = append(all.counters, c)
		for range 10 {
			all.calls = append(all.calls, []int{i})
		}
	}
	for _, a := range connect(t, []string{s.nodes[0].origin}, 1).send(all.requests("exact")) {
		if r := a.want(t, 200).results(t)[0]; r.Degraded {
			t.Fatalf("degraded before the fault: %s", a.body)
		}
	}
	known := scriptCalls(t, raw)

	server.Pause()
	all.calls = nil
	for i := range 900 {
		all.calls = append(all.calls, []int{i % len(exactModes)})
	}
	admitted := map[string]int{}
	for i, a := range connect(t, []string{s.nodes[0].origin}, 300).send(all.requests("exact")) {
		mode, r := exactModes[i%len(exactModes)], a.results(t)[0]
		if r.Allowed {
			admitted[mode]++
		}
		fits := r.Degraded
		switch mode {
		case "closed":
			fits = fits && r.Status == http.StatusServiceUnavailable && r.Reason == "limiter_unavailable" && a.header.Get("Retry-After") == "1"
		case "open":
			fits = fits && r.Status == http.StatusOK
		case "local":
			fits = fits && (r.Status == http.StatusOK || r.Status == http.StatusTooManyRequests)
		}
		if !fits {
			t.Errorf("%s: %d %s", mode, a.status, a.body)
		}
	}
	if n := admitted["local"]; n != 90 {
		t.Errorf("local admitted %d of the 90 that the shared counter had left", n)
	}
	if text := call(t, "", "GET", s.nodes[0].origin+"/metrics", "").body; !strings.Contains(text, "headgate_redis_breaker_open 1\n") {
		t.Error("the breaker did not open")
	}

	server.Resume()
	eventually(t, "Redis decides again", func() bool {
		body := strings.Replace(counters["closed"].check("exact"), `{"tenant"`, `{"cost": 0, "tenant"`, 1)
		return call(t, bootstrap, "POST", s.nodes[0].origin+"/v1/check", body).status == 200
	})
	eventually(t, "the journal is charged", func() bool {
		text := call(t, "", "GET", s.nodes[0].origin+"/metrics", "").body
		return strings.Contains(text, "headgate_journal_counters 0\n") && !strings.Contains(text, "headgate_journal_charged_units_total 0\n")
	})
	// The circuit breaker opens after five calls, or after one call and a probe. A few calls
	// can be in progress at that time. The journal needs one or two.
	if n := scriptCalls(t, raw) - known; n > 22 {
		t.Errorf("%d calls for 900 checks during the hang, one after it, and the journal", n)
	}
	for mode, c := range counters {
		// 300 of 100 were admitted with open, so that the bucket may be in debt: status 429.
		body := strings.Replace(c.check("exact"), `{"tenant"`, `{"cost": 0, "tenant"`, 1)
		r := call(t, bootstrap, "POST", s.nodes[0].origin+"/v1/check", body).results(t)[0]
		if r.Degraded || len(r.Limits) != 1 {
			t.Fatalf("%s: not decided by Redis: %+v", mode, r)
		}
		left := r.Limits[0].Remaining
		switch {
		case mode == "closed" && left != 90:
			t.Errorf("closed: %d of 100 left after 10 checks before the hang", left)
		case mode != "closed" && (left >= 90 || left < 90-admitted[mode]):
			// The checks of the calls that were sent are not charged, the others are.
			t.Errorf("%s: %d of 100 left after 10 checks before the hang and %d admitted meanwhile", mode, left, admitted[mode])
		}
	}
}

// A node that was stopped reads the replies of Redis late, when it continues. It does not count
// them as failures of Redis.
func TestPausedNodeKeepsRedis(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t).Prefer()
	f := startCluster(t, 1, map[string]string{"HEADGATE_REDIS_URL": server.URL(), "HEADGATE_LIMITER_TIMEOUT": ""})
	f.publish("exact", exactPlan())
	f.tenant("exact", "exact")
	s := &exactSuite{t: t, nodes: []*running{f.nodes[0].running}}
	raw, before := redisClient(t, server.URL()), watch(t, s.nodes)
	c := s.counter("open", "fixed-100", 100)
	text := post("/v1/check", c.check("exact"))
	load := connect(t, []string{s.nodes[0].origin}, 100)
	flood := startFlood(t, load, text)

	process := f.nodes[0].command.Process
	stops := 4
	if fullLoad {
		stops = 40
	}
	for range stops {
		if err := process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		began := raw.Time(t.Context()).Val()
		eventually(t, "some deadlines pass by Redis' clock", func() bool { return raw.Time(t.Context()).Val().Sub(began) > 300*time.Millisecond })
		if err := process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		answered := flood.answered.Load()
		eventually(t, "the node goes on", func() bool { return flood.answered.Load() > answered+200 || t.Failed() })
	}
	flood.end()
	if n := flood.admitted.Load(); n != 100 || flood.strange.Load() != 0 {
		t.Errorf("%d of a quota of 100 admitted; %d of %d answers degraded or errors", n, flood.strange.Load(), flood.answered.Load())
	}
	for _, w := range before {
		w.unchanged()
	}
}

// Clients that disconnect before their response do not count as failures of Redis, and do not
// affect other clients.
func TestClientsThatLeave(t *testing.T) {
	t.Parallel()
	s := newExactSuite(t, 1)
	before := watch(t, s.nodes)
	staying, leaving := s.counter("open", "log-100", 100), s.counter("open", "bucket-100", 100)
	flood := startFlood(t, connect(t, []string{s.nodes[0].origin}, 20), post("/v1/check", staying.check("exact")))
	text := post("/v1/check", leaving.check("exact"))
	const rounds, each = 5, 100
	for range rounds {
		load := connect(t, []string{s.nodes[0].origin}, each)
		var wait sync.WaitGroup
		for _, c := range load.conns {
			wait.Go(func() {
				if _, err := c.Write(text); err != nil {
					t.Error(err)
				}
				_ = c.Conn.(*net.TCPConn).SetLinger(0) // a reset, at once
				_ = c.Close()
			})
		}
		wait.Wait()
		answered := flood.answered.Load()
		eventually(t, "the others are answered", func() bool { return flood.answered.Load() > answered+100 || t.Failed() })
	}
	flood.end()
	if n := flood.admitted.Load(); n != 100 || flood.strange.Load() != 0 {
		t.Errorf("%d of a quota of 100 admitted; %d of %d answers degraded or errors", n, flood.strange.Load(), flood.answered.Load())
	}
	for _, w := range before {
		w.unchanged()
	}
	if left := s.left(t, leaving); left < 0 || left > 100 {
		t.Errorf("%d left", left)
	}
}

// A flood is a set of connections that repeat one check until the flood ends.
type flood struct {
	answered, admitted, strange, overloaded atomic.Int64
	ctx                                     context.Context
	over                                    context.CancelFunc
	flooding                                sync.WaitGroup
}

// startFlood starts a flood. It stops when end is called or the test ends.
func startFlood(t *testing.T, load *loader, text []byte) *flood {
	ctx, cancel := context.WithCancel(context.Background())
	f := &flood{ctx: ctx, over: cancel}
	for _, c := range load.conns {
		f.flooding.Go(func() {
			for ctx.Err() == nil {
				a, err := c.ask(text)
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("a flood: %v", err)
					}
					return
				}
				var r struct {
					result
					Type string
				}
				if err := json.Unmarshal([]byte(a.body), &r); err != nil {
					t.Errorf("a flood: %v: %s", err, a.body)
					return
				}
				switch {
				case r.Degraded || (a.status != http.StatusOK && a.status != http.StatusTooManyRequests && r.Type != "/docs/problems/overloaded"):
					if f.strange.Add(1) == 1 {
						t.Errorf("a flood: %d %s", a.status, a.body)
					}
				case r.Type == "/docs/problems/overloaded":
					f.overloaded.Add(1)
					if after := a.header.Get("Retry-After"); a.status != http.StatusServiceUnavailable || (after != "1" && after != "2") {
						t.Errorf("overloaded: %d, Retry-After %q", a.status, after)
					}
				case r.Allowed:
					f.admitted.Add(1)
				}
				f.answered.Add(1)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		load.close()
		f.flooding.Wait()
	})
	return f
}

// addBatches adds connections that repeat one batch until the flood ends. Its
// checks have no cost.
func (f *flood) addBatches(t *testing.T, load *loader, text []byte) {
	for _, c := range load.conns {
		f.flooding.Go(func() {
			for f.ctx.Err() == nil {
				a, err := c.ask(text)
				switch {
				case err != nil:
					if f.ctx.Err() == nil {
						t.Errorf("a flood: %v", err)
					}
					return
				case a.status == http.StatusServiceUnavailable:
					f.overloaded.Add(1)
				case a.status != http.StatusOK:
					f.strange.Add(1)
				}
			}
		})
	}
	t.Cleanup(func() {
		load.close()
		f.end()
	})
}

// end stops the flood and waits for the last responses.
func (f *flood) end() {
	f.over()
	f.flooding.Wait()
}
