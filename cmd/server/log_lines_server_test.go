//go:build !quick

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/logging"
	"github.com/headgate/headgate/internal/servertest"
)

// mostLogLines is the goal for the lines that a node writes within a minute of a fault.
const mostLogLines = 6

// logPolicies has a policy of each failure mode, and one with a durable limit.
const logPolicies = `[
	{"slug": "open", "match": {"path": "/open"}, "on_failure": "open", "limits": [{"algorithm": "fixed_window", "quota": 1000000, "window": "1d"}]},
	{"slug": "closed", "match": {"path": "/closed"}, "on_failure": "closed", "limits": [{"algorithm": "token_bucket", "quota": 1000000, "window": "1h"}]},
	{"slug": "local", "match": {"path": "/local"}, "on_failure": "local", "limits": [{"algorithm": "sliding_window_counter", "quota": 1000000, "window": "1h"}]},
	{"slug": "durable", "match": {"path": "/durable"}, "on_failure": "closed", "limits": [{"algorithm": "fixed_window", "quota": 1000000, "window": "1d", "durable": true}]}
]`

// A logMinute is a node whose log has a clock of the test. All that the node does between two calls
// of next happens in one minute of the log.
type logMinute struct {
	*testing.T
	node     *running
	browser  *browser
	redis    *servertest.RedisProcess
	postgres *servertest.PostgresProcess
	edits    int // number of calls of lines
	read     int // number of bytes of the log that lines has read

	mu     sync.Mutex
	now    time.Time
	timers []logTimer
}

type logTimer struct {
	at time.Time
	do func()
}

func startLogMinute(t *testing.T) *logMinute {
	t.Helper()
	m := &logMinute{T: t, redis: servertest.StartRedis(t), postgres: servertest.StartPostgres(t), now: time.Unix(1_800_000_000, 0)}
	m.node = launchWithLogClock(t, map[string]string{
		"HEADGATE_DATABASE_URL": m.postgres.URL(), "HEADGATE_REDIS_URL": m.redis.URL(), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_SHUTDOWN_DELAY": "0s",
		"HEADGATE_ADMIN_EMAIL": "ann@example.com", "HEADGATE_ADMIN_PASSWORD": ownerPassword,
	}, logging.Clock{
		Now: func() time.Time {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.now
		},
		AfterFunc: func(d time.Duration, do func()) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.timers = append(m.timers, logTimer{m.now.Add(d), do})
		},
	})
	m.node.origin = m.node.await(m.node.out, servesAt)[1]
	f := &cluster{t: t, nodes: []*process{{running: m.node}}}
	f.publish("plan", logPolicies)
	f.tenant("acme", "plan")
	m.browser = newBrowser(t, m.node.origin)
	m.browser.signIn("ann@example.com", ownerPassword).want(t, http.StatusSeeOther)
	m.healthy()
	m.next()
	m.lines()
	return m
}

// next ends the minute of the log.
func (m *logMinute) next() {
	m.mu.Lock()
	m.now = m.now.Add(time.Minute)
	due := m.timers
	m.timers = nil
	m.mu.Unlock()
	for _, timer := range due {
		timer.do()
	}
}

// lines returns the lines that the node has written since the last call, without those of edits. It makes an edit,
// because the line of the edit follows all lines before it.
func (m *logMinute) lines() (lines []string) {
	m.Helper()
	m.edits++
	slug := fmt.Sprintf("mark-%d", m.edits)
	call(m.T, bootstrap, "POST", m.node.origin+"/v1/tenants", `{"slug": "`+slug+`", "tenant": {"require_route": false, "name": "Mark"}}`).want(m.T, http.StatusCreated)
	eventually(m.T, "the edit is in force", func() bool {
		return call(m.T, bootstrap, "POST", m.node.origin+"/v1/check", `{"tenant": "`+slug+`", "mode": "peek"}`).status != http.StatusNotFound
	})
	var r struct{ Snapshot struct{ Revision int64 } }
	call(m.T, "", "GET", m.node.origin+"/readyz?verbose", "").want(m.T, http.StatusOK).into(m.T, &r)
	m.node.await(m.node.logs, regexp.MustCompile(fmt.Sprintf(`"snapshot: swapped","revision":%d,`, r.Snapshot.Revision)))
	text := m.node.logs.String()
	for l := range strings.Lines(text[m.read:]) {
		if !strings.Contains(l, `"snapshot: swapped"`) {
			lines = append(lines, strings.TrimSpace(l))
		}
	}
	m.read = len(text)
	return lines
}

// use does what clients and people do all the time: checks of each policy, an edit, and pages.
func (m *logMinute) use() {
	m.Helper()
	for _, path := range []string{"open", "closed", "local", "durable"} {
		for range 5 {
			call(m.T, bootstrap, "POST", m.node.origin+"/v1/check", `{"tenant": "acme", "method": "GET", "path": "/`+path+`"}`)
		}
		call(m.T, bootstrap, "POST", m.node.origin+"/v1/check/batch",
			`{"checks": [{"tenant": "acme", "method": "GET", "path": "/`+path+`"}, {"tenant": "acme", "method": "GET", "path": "/open"}]}`)
	}
	call(m.T, bootstrap, "PATCH", m.node.origin+"/v1/tenants/acme", `{"name": "Acme"}`, "If-Match", `"0"`)
	call(m.T, "hg_tk_unknown", "GET", m.node.origin+"/v1/tenants/acme", "")
	for _, page := range []string{"/overview", "/system", "/tenants/acme"} {
		m.browser.get(page)
	}
}

// configure changes a setting of Redis.
func (m *logMinute) configure(name, value string) {
	m.Helper()
	if err := redisClient(m.T, m.redis.URL()).ConfigSet(m.Context(), name, value).Err(); err != nil {
		m.Fatal(err)
	}
}

// useUntil calls use until ok returns true.
func (m *logMinute) useUntil(what string, ok func() bool) {
	m.Helper()
	eventually(m.T, what, func() bool {
		m.use()
		return ok()
	})
}

func (m *logMinute) ready() string {
	m.Helper()
	return call(m.T, "", "GET", m.node.origin+"/readyz?verbose", "").body
}

// healthy waits until the node is healthy.
func (m *logMinute) healthy() {
	m.Helper()
	m.useUntil("the node is healthy", func() bool {
		text := m.ready()
		return strings.Contains(text, `"degraded":false`) && strings.Contains(text, `"warnings":[]`)
	})
}

// metric returns the value of a series without labels.
func (m *logMinute) metric(name string) float64 {
	m.Helper()
	text := call(m.T, "", "GET", m.node.origin+"/metrics", "").body
	value, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimPrefix(line(text, name+" "), name+" ")), 64)
	if err != nil {
		m.Fatal(err)
	}
	return value
}

// folded returns how many lines of the log were folded.
func (m *logMinute) folded() int { m.Helper(); return int(m.metric("headgate_log_lines_folded_total")) }

// A node writes at most 6 lines a minute to its log while Redis or Postgres has a fault, and when the fault ends,
// however many operations fail and however often the fault comes and goes. Repeated lines are folded: a line at the end of
// the minute has their number and names the others.
func TestLogLinesOfAFault(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		begin, end func(m *logMinute)
		seen       string // in /readyz?verbose during the fault
		times      int    // how often the fault comes and goes within the minute
		folds      int    // number of lines that are folded at least while the fault lasts, so that it lasts long enough
		also       int    // number of kinds of failures that the folded lines name at least
		lasts      bool   // the node reports the loss of data for an hour
		age        int    // how old the snapshot is at least when the fault ends, in seconds, so that each background task has failed
	}{
		"Redis is down": {
			begin: func(m *logMinute) { m.redis.Kill() }, end: func(m *logMinute) { m.redis.Restart() },
			seen: "Redis has been away since", times: 1, folds: 3, lasts: true,
		},
		"Redis hangs": {
			begin: func(m *logMinute) { m.redis.Pause() }, end: func(m *logMinute) { m.redis.Resume() },
			seen: "Redis has been away since", times: 1, folds: 3,
		},
		"Redis refuses writes": {
			begin: func(m *logMinute) { m.configure("min-replicas-to-write", "1") },
			end:   func(m *logMinute) { m.configure("min-replicas-to-write", "0") },
			seen:  "Redis has refused writes since", times: 1, folds: 3,
		},
		"Redis loses its data": {
			begin: func(m *logMinute) {
				if err := redisClient(m.T, m.redis.URL()).FlushAll(m.Context()).Err(); err != nil {
					m.Fatal(err)
				}
			},
			end:  func(*logMinute) {},
			seen: "Redis lost counts", times: 1, lasts: true,
		},
		"Redis comes and goes": {
			begin: func(m *logMinute) { m.redis.Kill() }, end: func(m *logMinute) { m.redis.Restart() },
			seen: "Redis has been away since", times: 8, lasts: true,
		},
		"Postgres is down": {
			begin: func(m *logMinute) { m.postgres.Stop() }, end: func(m *logMinute) { m.postgres.Start() },
			seen: "counts have not been written since", times: 1, folds: 6, also: 6, age: 12,
		},
		"Postgres comes and goes": {
			begin: func(m *logMinute) { m.postgres.Stop() }, end: func(m *logMinute) { m.postgres.Start() },
			seen: "counts have not been written since", times: 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startLogMinute(t)
			before := m.folded()
			for range fault.times {
				fault.begin(m)
				m.useUntil("the node reports the fault", func() bool { return strings.Contains(m.ready(), fault.seen) })
				m.useUntil("repeated lines are folded", func() bool { return m.folded()-before >= fault.folds })
				m.useUntil("the fault lasts", func() bool { return m.metric("headgate_snapshot_age_seconds") >= float64(fault.age) })
				fault.end(m)
				if fault.lasts {
					m.useUntil("the node is not degraded", func() bool { return strings.Contains(m.ready(), `"degraded":false`) })
				} else {
					m.healthy()
				}
			}
			first := m.lines()
			m.next()
			second := m.lines()
			t.Logf("in the minute of the fault, %d lines:\n%s\nin the next one, %d lines:\n%s", len(first), strings.Join(first, "\n"), len(second), strings.Join(second, "\n"))
			if len(first) == 0 || max(len(first), len(second)) > mostLogLines {
				t.Errorf("the node writes %d lines in the minute of the fault and %d in the next one, want at most %d", len(first), len(second), mostLogLines)
			}
			also := 0
			for _, text := range second {
				var l struct {
					Also     string
					Repeated int
				}
				if err := json.Unmarshal([]byte(text), &l); err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				if l.Also != "" {
					also += 1 + len(strings.Split(l.Also, "; "))
				}
			}
			if also < fault.also {
				t.Errorf("the folded lines name %d kinds of failures, want %d", also, fault.also)
			}
		})
	}
}
