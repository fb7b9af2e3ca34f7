//go:build faults

package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/servertest"
)

// nodeFaults has the scenarios F-N, F-E and F-O of section 5.3 of the design.
var nodeFaults = []faultScenario{
	{
		goal: "F-N1", fault: "nodes are killed (-9) under load, 20 times, and start again", direct: true, lasts: 20 * time.Second,
		begin: func(b *faultBench) {
			for i := range 20 {
				n := 1 + i%2
				_ = b.cluster.nodes[n].command.Process.Kill()
				b.restart(n)
			}
		},
		holds: func(b *faultBench, m *faultMeasure) {
			// Each kill loses at most the counts of two seconds of one node.
			if most := int64(20 * 2 * faultRate / 3); m.answered-m.counted > most {
				m.fail(b, "%d counts lost, want at most %d", m.answered-m.counted, most)
			}
		},
	},
	{goal: "F-N2", fault: "SIGTERM under load, 20 rolling restarts behind a balancer that follows readiness", run: func(t *testing.T) (row faultRow) {
		requests, slowest := rollingRestart(t, 20)
		row.measure = fmt.Sprintf("%d requests, none failed; each stopped node ended with 0, the slowest %.1f s after SIGTERM", requests, slowest.Seconds())
		if slowest > 10*time.Second {
			row.failed = []string{"done within 10 s"}
		}
		return row
	}},
	{
		goal: "F-N3", fault: "a node stands still (SIGSTOP) for 5 s", short: true, direct: true, lasts: 5 * time.Second,
		begin: func(b *faultBench) { b.signal(2, syscall.SIGSTOP) },
		end:   func(b *faultBench) { b.signal(2, syscall.SIGCONT) },
		holds: awayNotDegraded,
	},
	{
		goal: "F-N3/60s", fault: "a node stands still (SIGSTOP) for 60 s", direct: true, lasts: 60 * time.Second, silent: true,
		begin: func(b *faultBench) { b.signal(2, syscall.SIGSTOP) },
		end:   func(b *faultBench) { b.signal(2, syscall.SIGCONT) },
		holds: awayNotDegraded,
	},
	{goal: "F-N5", fault: "a node of the release before runs beside a new one, on the new schema (also F-P10)", run: oldBesideNew},
	{goal: "F-N6", fault: "half load for a while (HEADGATE_TEST_SOAK, default 90 s)", run: soak},
	{goal: "F-E6", fault: "embedded: a backup (VACUUM INTO) while 4 writers edit", run: backupWhileRunning},
	{
		goal: "F-O3", fault: "one hot key has half of the load", direct: true, exact: true,
		begin: func(b *faultBench) {
			hot := startHot(b)
			b.during.Go(func() {
				<-b.ctx.Done()
				if admitted := hot(); admitted != int64(b.narrow) {
					b.Errorf("the hot key has %d admitted checks, want exactly its quota of %d", admitted, b.narrow)
				}
			})
		},
	},
	{
		goal: "F-O4", fault: "900 clients send a byte a second, 100 never read", direct: true, exact: true, lasts: 20 * time.Second,
		begin: slowClients,
	},
	{
		goal: "F-O5", fault: "3,000 idle connections", direct: true, exact: true,
		begin: func(b *faultBench) {
			b.during.Go(func() {
				conns := b.dial(3000)
				<-b.ctx.Done()
				for _, c := range conns {
					_ = c.Close()
				}
			})
		},
	},
	{
		goal: "F-O6", fault: "1,000 bodies of 1 MB at once, above the bound or never complete", direct: true, exact: true, lasts: 8 * time.Second,
		begin: largeBodies,
	},
	{
		goal: "F-O7", fault: "herd: Redis is away for 8 s, and two nodes start at once when it is back", direct: true, lasts: 8 * time.Second,
		begin: func(b *faultBench) { b.redis.Pause() },
		end: func(b *faultBench) {
			for _, n := range []int{1, 2} {
				_ = b.cluster.nodes[n].command.Process.Kill()
			}
			b.redis.Resume()
			for _, n := range []int{1, 2} {
				b.restart(n)
			}
		},
		seen: []string{saysDegraded},
		holds: func(b *faultBench, m *faultMeasure) {
			late, wrong := 0, 0
			for _, a := range m.ledger {
				if a.due.After(m.end.Add(faultAfter * 4 / 5)) {
					late++
					if a.status == 0 || a.degraded {
						wrong++
					}
				}
			}
			if wrong*100 > late {
				m.fail(b, "%d of %d checks fail 4 s after the recovery", wrong, late)
			}
		},
	},
	{
		goal: "F-O8", fault: "the sign-in page and the list of tenants are flooded (24 connections)", direct: true, exact: true,
		begin: func(b *faultBench) {
			for i := range 24 {
				b.during.Go(func() {
					origin := b.cluster.nodes[i%3].origin
					for b.ctx.Err() == nil {
						if i%2 == 0 {
							_, _ = tryCall(b.ctx, bootstrap, "GET", origin+"/v1/tenants?limit=100", "")
							continue
						}
						r, _ := http.NewRequestWithContext(b.ctx, "POST", origin+"/sign-in", strings.NewReader("email=ann@example.com&password=wrong-wrong-wrong"))
						r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
						r.Header.Set("Origin", origin)
						if response, err := client.Do(r); err == nil {
							_, _ = io.Copy(io.Discard, response.Body)
							_ = response.Body.Close()
						}
					}
				})
			}
		},
	},
}

// awayNotDegraded fails if more than 1% of the answers are degraded.
func awayNotDegraded(b *faultBench, m *faultMeasure) {
	if m.degraded > len(m.ledger)/100 {
		m.fail(b, "%d degraded answers: the node was away, not Redis", m.degraded)
	}
}

func (b *faultBench) signal(node int, s syscall.Signal) {
	b.Helper()
	if err := b.cluster.nodes[node].command.Process.Signal(s); err != nil {
		b.Fatal(err)
	}
}

// dial opens connections to the nodes in turn.
func (b *faultBench) dial(n int) (conns []net.Conn) {
	for i := range n {
		c, err := net.Dial("tcp", strings.TrimPrefix(b.cluster.nodes[i%3].origin, "http://"))
		if err != nil {
			b.Error(err)
			return conns
		}
		conns = append(conns, c)
	}
	return conns
}

// oldBesideNew runs a node of the previous commit, without the newest migration, together with
// a new node that migrates the database. Both decide about the same keys.
func oldBesideNew(t *testing.T) (row faultRow) {
	tree := filepath.Join(t.TempDir(), "old")
	git := func(args ...string) string {
		out, err := exec.Command("git", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v (this scenario needs the history of the repository): %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	newest := git("log", "-1", "--diff-filter=A", "--format=%H", "--", "../../migrations")
	git("worktree", "add", "--detach", tree, newest+"^")
	defer git("worktree", "remove", "--force", tree)
	old := filepath.Join(tree, "headgate")
	build := exec.Command("go", "build", "-o", old, "./cmd/server")
	build.Dir, build.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the release before: %v\n%s", err, out)
	}
	server := servertest.StartRedis(t).Prefer()
	settings := map[string]string{
		"HEADGATE_DATABASE_URL": servertest.Postgres(t), "HEADGATE_REDIS_URL": server.URL(), "HEADGATE_NODES": "2",
		"HEADGATE_SHUTDOWN_DELAY": "0s", "HEADGATE_LIMITER_TIMEOUT": "30s",
	}
	first := launchBinary(t, old, "", settings, "serve").serving()
	f := &cluster{t: t, nodes: []*process{first}}
	f.publish("plan", `[{"slug": "all", "count_by": ["user"], "limits": [{"algorithm": "token_bucket", "window": "366d", "quota": 100}]}]`)
	call(t, bootstrap, "POST", first.origin+"/v1/tenants", `{"slug": "acme", "tenant": {"require_route": false, "name": "acme", "plan": "plan"}}`).want(t, 201)
	f.nodes = append(f.nodes, launch(t, settings).serving())
	admitted := make([]int, 10)
	for i := range 1500 {
		user := i % len(admitted)
		a := call(t, bootstrap, "POST", f.nodes[i/len(admitted)%2].origin+"/v1/check", fmt.Sprintf(`{"tenant": "acme", "attributes": {"user": "u%d"}}`, user))
		if a.status == http.StatusOK {
			admitted[user]++
		} else {
			a.want(t, http.StatusTooManyRequests)
		}
	}
	for user, n := range admitted {
		if n != 100 {
			t.Errorf("user %d has %d admitted checks, want exactly 100", user, n)
		}
	}
	call(t, bootstrap, "POST", first.origin+"/v1/tenants", `{"slug": "byold", "tenant": {"require_route": false, "name": "b", "plan": "plan"}}`).want(t, 201)
	call(t, bootstrap, "POST", f.nodes[1].origin+"/v1/tenants", `{"slug": "bynew", "tenant": {"require_route": false, "name": "b", "plan": "plan"}}`).want(t, 201)
	for _, slug := range []string{"byold", "bynew"} {
		f.everywhere(fmt.Sprintf(`{"tenant": %q, "mode": "peek"}`, slug), func(a answer) bool { return a.status != http.StatusNotFound })
	}
	row.measure = "1,500 checks on both nodes in turn admit exactly 10 × 100; tenants made on either node are known on both"
	return row
}

// soak compares the goroutines, file descriptors and heap of a node at the end of a long run at
// half load with those after a fifth of the run.
func soak(t *testing.T) (row faultRow) {
	lasts := 90 * time.Second
	if text := os.Getenv("HEADGATE_TEST_SOAK"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	b := newFaultBench(t, &faultScenario{direct: true})
	origins := []string{b.cluster.nodes[0].origin, b.cluster.nodes[1].origin, b.cluster.nodes[2].origin}
	names := []string{"go_goroutines", "process_open_fds", "go_memstats_heap_inuse_bytes"}
	read := func() (values []float64) {
		text := call(t, "", "GET", origins[0]+"/metrics", "").body
		for _, name := range names {
			v, err := strconv.ParseFloat(strings.TrimPrefix(line(text, name+" "), name+" "), 64)
			if err != nil {
				t.Fatal(name, err)
			}
			values = append(values, v)
		}
		return values
	}
	began := time.Now()
	load := startFaultLoad(t.Context(), origins, faultRate/2)
	await(began.Add(lasts / 5))
	early, firstEnd := read(), time.Now()
	await(began.Add(lasts))
	late, end := read(), time.Now()
	ledger := load.end()
	for i, name := range names {
		row.measure += fmt.Sprintf("%s %.0f → %.0f; ", name, early[i], late[i])
	}
	if late[0] > early[0]*1.5+20 || late[1] > early[1]*1.5+20 {
		t.Errorf("goroutines and descriptors grow: %s", row.measure)
	}
	row.healthy, row.p99 = quantile(ledger, began, firstEnd, 0.99), quantile(ledger, end.Add(-lasts/5), end, 0.99)
	row.measure += fmt.Sprintf("%d checks in %s", len(ledger), lasts)
	row.failed = []string{"24 h (1 h in CI) were not run"}
	return row
}

// backupWhileRunning: the backup of an embedded node is complete and contains each change that
// was confirmed before the backup started.
func backupWhileRunning(t *testing.T) (row faultRow) {
	folder := t.TempDir()
	node := launch(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(folder), "HEADGATE_SAMPLE": "false"}).serving()
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	var mu sync.Mutex
	var made []string
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				slug := fmt.Sprintf("w%d-%d", w, i)
				a, err := tryCall(t.Context(), bootstrap, "POST", node.origin+"/v1/tenants", fmt.Sprintf(`{"slug": %q, "tenant": {"require_route": false, "name": "t"}}`, slug))
				if err != nil || a.status != http.StatusCreated {
					t.Errorf("an edit during the backup: %d %v", a.status, err)
					return
				}
				mu.Lock()
				made = append(made, slug)
				mu.Unlock()
			}
		})
	}
	known := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), made...)
	}
	defer writers.Wait()
	defer cancel()
	db, err := sql.Open("sqlite", filepath.Join(folder, "headgate.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for round := range 5 {
		eventually(t, "the writers go on", func() bool { return len(known()) >= 50*(round+1) || t.Failed() })
		before, restored := known(), t.TempDir()
		if _, err := db.ExecContext(t.Context(), `PRAGMA busy_timeout = 10000; VACUUM INTO '`+filepath.Join(restored, "headgate.db")+`'`); err != nil {
			t.Fatal(err)
		}
		again := launch(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(restored), "HEADGATE_SAMPLE": "false"}).serving()
		for _, slug := range []string{before[0], before[len(before)/2], before[len(before)-1]} {
			call(t, bootstrap, "GET", again.origin+"/v1/tenants/"+slug, "").want(t, http.StatusOK)
		}
		row.measure = fmt.Sprintf("%d backups; the last has all %d tenants that were acknowledged before it; no edit fails", round+1, len(before))
	}
	return row
}

// clockFaults has the scenarios F-C of section 5.3 of the design.
var clockFaults = []faultScenario{
	{goal: "F-C1", fault: "the clock of Redis steps by ±500 ms, ±1 h, ±1 day (windows of 1 h)", run: redisClock},
	{goal: "F-C2", fault: "the clocks of two of three nodes are 10 min ahead and 10 min behind", run: nodeClocks},
}

// clockShim is a C library that shifts the wall clock of one process. It reads the shift in
// milliseconds from a mapped file. It does not change timers.
const clockShim = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long long *ms;
static void add(struct timespec *t) {
	if (!ms) ms = mmap(0, 8, PROT_READ, MAP_SHARED, open(getenv("CLOCK_OFFSET"), O_RDONLY), 0);
	long long ns = t->tv_sec * 1000000000LL + t->tv_nsec + *ms * 1000000LL;
	t->tv_sec = ns / 1000000000LL;
	t->tv_nsec = ns % 1000000000LL;
}
int clock_gettime(clockid_t c, struct timespec *t) {
	int r = syscall(SYS_clock_gettime, c, t);
	if (c == CLOCK_REALTIME || c == CLOCK_REALTIME_COARSE) add(t);
	return r;
}
int gettimeofday(struct timeval *tv, void *zone) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	tv->tv_sec = t.tv_sec;
	tv->tv_usec = t.tv_nsec / 1000;
	return 0;
}
time_t time(time_t *p) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	if (p) *p = t.tv_sec;
	return t.tv_sec;
}
`

// startRedisWithClock starts a Redis whose clock the returned function moves.
func startRedisWithClock(t *testing.T) (*servertest.RedisProcess, func(time.Duration)) {
	t.Helper()
	folder, err := os.MkdirTemp("", "headgate-clock-") // not t.TempDir: Redis runs as another user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(folder, name) }
	offset := make([]byte, 8)
	script := fmt.Sprintf("#!/bin/sh\nexport LD_PRELOAD=%s CLOCK_OFFSET=%s\nexec %s \"$@\"\n", at("clock.so"), at("offset"), program)
	for name, text := range map[string][]byte{"clock.c": []byte(clockShim), "offset": offset, "redis-server": []byte(script)} {
		if err := os.WriteFile(at(name), text, 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // Redis runs as another user
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-O1", "-o", at("clock.so"), at("clock.c")).CombinedOutput(); err != nil {
		t.Fatalf("this scenario needs gcc: %v\n%s", err, out)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	return servertest.StartRedis(t).Prefer(), func(d time.Duration) {
		file, err := os.OpenFile(at("offset"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		text, ms := make([]byte, 0, 8), uint64(d.Milliseconds())
		for i := range 8 {
			text = append(text, byte(ms>>(8*i)))
		}
		if _, err := file.Write(text); err != nil {
			t.Fatal(err)
		}
	}
}

// redisClock: if the clock of Redis moves forward, at most one more quota is allowed. If it
// moves back, nothing more is allowed, and denials last at most one more window.
func redisClock(t *testing.T) (row faultRow) {
	server, move := startRedisWithClock(t)
	f := startCluster(t, 1, map[string]string{"HEADGATE_REDIS_URL": server.URL(), "HEADGATE_LIMITER_TIMEOUT": ""})
	const quota = 10
	var policies []string
	for _, name := range exactNames {
		limit := regexp.MustCompile(`"(1|366)d"`).ReplaceAllString(exactAlgorithms[name], `"1h"`)
		policies = append(policies, fmt.Sprintf(`{"slug": "%s", "match": {"path": "/%[1]s"}, "count_by": ["user"], "on_failure": "closed",
			"limits": [{%s, "quota": %d}]}`, name, limit, quota))
	}
	f.publish("clock", "["+strings.Join(policies, ",")+"]")
	f.tenant("clock", "clock")
	raw := redisClient(t, server.URL())
	ask := func(path, user string) (a answer) {
		body := fmt.Sprintf(`{"tenant": "clock", "path": "/%s", "attributes": {"user": %q}}`, path, user)
		eventually(t, "Redis decides", func() bool {
			a = call(t, bootstrap, "POST", f.nodes[0].origin+"/v1/check", body)
			return a.status != http.StatusServiceUnavailable
		})
		return a
	}
	var report bytes.Buffer
	w := bufio.NewWriter(&report)
	for _, step := range []time.Duration{500 * time.Millisecond, -500 * time.Millisecond, time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour} {
		move(0)
		user := step.String()
		for _, name := range exactNames {
			for range quota {
				ask(name, user).want(t, http.StatusOK)
			}
		}
		move(step)
		if off := raw.Time(t.Context()).Val().Sub(time.Now()) - step; off.Abs() > 30*time.Second {
			t.Fatalf("the clock of Redis did not step: it is off by %s", off)
		}
		most, longest, slowest := 0, 0, ""
		for _, name := range exactNames {
			admitted := 0
			for range 3 * quota {
				a := ask(name, user)
				if a.status == http.StatusOK {
					admitted++
					continue
				}
				after, _ := strconv.Atoi(a.header.Get("Retry-After"))
				if after > longest {
					longest, slowest = after, name
				}
			}
			most = max(most, admitted)
			allowed := 0
			if step > 0 {
				allowed = quota
			}
			if step == 500*time.Millisecond || step == -500*time.Millisecond {
				allowed = 1 // a bucket refills by one in 6 min, which may end now
			}
			if admitted > allowed {
				t.Errorf("%s: %d checks above the quota of %d after a step of %s, want at most %d", name, admitted, quota, step, allowed)
			}
		}
		// A state at most a window in the future is kept, so a caller waits for at most
		// one window more than without the step (docs/algorithms.md).
		if longest > 2*3600+1 {
			t.Errorf("a step of %s denies a key of %s for %d s, want at most two windows", step, slowest, longest)
		}
		fmt.Fprintf(w, "%s: %+d, denied for at most %d s; ", step, most, longest)
	}
	_ = w.Flush()
	row.measure = "most above a quota of 10 after the step: " + strings.TrimSuffix(report.String(), "; ")
	row.closed = "see answers"
	return row
}
