//go:build faults

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// tenantFaults has faults that one tenant or a stranger causes, and two of the machine: a log that nobody reads, and a
// start without the database.
var tenantFaults = []faultScenario{
	{
		goal: "F-N8", fault: "nobody reads the full pipe of the nodes' logs, and Redis hangs", fullLog: true, lasts: 8 * time.Second,
		begin: func(b *faultBench) { b.redis.Pause() },
		end:   func(b *faultBench) { b.redis.Resume() },
		seen:  []string{saysDegraded, saysBreaker},
	},
	{
		goal: "F-P1b", fault: "Postgres is down while all nodes are restarted, one after the other", direct: true, ownPostgres: true, lasts: 12 * time.Second,
		settings: map[string]string{"HEADGATE_SHUTDOWN_TIMEOUT": "1s"},
		prepare:  snapshotsAreSaved,
		begin:    restartsWithoutPostgres,
		end: func(b *faultBench) {
			b.postgres.Start()
			for _, n := range b.cluster.nodes {
				eventually(b.T, "the node has the state of the database", func() bool {
					a, err := tryCall(b.Context(), "", "GET", n.origin+"/readyz?verbose", "")
					return err == nil && a.status == http.StatusOK && !strings.Contains(a.body, "snapshot on disk")
				})
			}
		},
		seen: []string{"snapshot on disk"},
		holds: func(b *faultBench, m *faultMeasure) {
			late, wrong := 0, 0
			for _, a := range m.ledger {
				if a.due.After(m.end.Add(-2*time.Second)) && a.due.Before(m.end) {
					late++
					if a.status == 0 || a.degraded || a.status == http.StatusServiceUnavailable {
						wrong++
					}
				}
			}
			if late == 0 || wrong*100 > late {
				m.fail(b, "%d of %d checks of the last 2 s without Postgres are not decided", wrong, late)
			}
		},
	},
	{
		goal: "D-12", fault: "a tenant makes counters for callers without end (Redis with `maxmemory 40mb`)", direct: true, exact: true, lasts: 12 * time.Second,
		redisArgs: []string{"--maxmemory", strconv.Itoa(smallRedis), "--maxmemory-policy", "noeviction"},
		begin:     fillRedis,
		seen:      []string{"tenant flood has"},
		holds: func(b *faultBench, m *faultMeasure) {
			used := b.usedMemory()
			m.notes = fmt.Sprintf("; the tenant made %d checks of new callers, Redis then uses %d%% of its memory", flooded.Load(), used*100/smallRedis)
			if used > smallRedis*95/100 {
				m.fail(b, "Redis uses %d of %d bytes", used, smallRedis)
			}
		},
	},
	{
		goal: "F-O8/streams", fault: "26 members of one tenant open 40 live pages each", direct: true, exact: true, lasts: 15 * time.Second,
		begin: takeAllStreams,
		holds: func(b *faultBench, m *faultMeasure) { m.notes = streamsSeen.Load().(string) },
	},
	{
		goal: "A-8/outside", fault: "strangers try passwords of the owner, 20 at a time, from other addresses each time", direct: true, exact: true, lasts: 15 * time.Second,
		settings: map[string]string{"HEADGATE_TRUSTED_PROXIES": "127.0.0.1/32"},
		begin:    lockOutTheOwner,
		holds:    func(b *faultBench, m *faultMeasure) { m.notes = signInsSeen.Load().(string) },
	},
}

// smallRedis is maxmemory of the scenario D-12.
const smallRedis = 40 << 20

// What the goroutines of scenarios measured, for the table.
var (
	flooded     atomic.Int64
	streamsSeen atomic.Value // string
	signInsSeen atomic.Value // string
)

// fullPipe returns a pipe that is full and that nobody reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = reader.Close(), writer.Close() })
	fill(t, writer)
	return writer
}

// launchLogging is launch with another standard error. If log is nil, it is launch.
func launchLogging(t testing.TB, settings map[string]string, log io.Writer) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return launchProgram(t, path, "", settings, log, "serve")
}

// snapshotsAreSaved waits until each node has the tenant of the load in the snapshot on its disk.
func snapshotsAreSaved(b *faultBench) {
	for i := range b.cluster.nodes {
		eventually(b.T, "the node has saved the tenant", func() bool {
			text, err := os.ReadFile(b.settings[i]["HEADGATE_SNAPSHOT_FILE"])
			return err == nil && bytes.Contains(text, []byte(`"faults"`))
		})
	}
}

// restartsWithoutPostgres stops Postgres and then each node, and starts it again with the snapshot on its disk.
func restartsWithoutPostgres(b *faultBench) {
	b.postgres.Stop()
	for i, n := range b.cluster.nodes {
		b.signal(i, syscall.SIGTERM)
		<-n.ended
		b.settings[i]["HEADGATE_ADDR"] = strings.TrimPrefix(n.origin, "http://")
		again := launch(b.T, b.settings[i])
		again.origin = n.origin
		b.cluster.nodes[i] = again
		eventually(b.T, "the node serves checks from the snapshot on its disk", func() bool {
			a, err := tryCall(b.Context(), "", "GET", n.origin+"/readyz", "")
			return err == nil && a.status == http.StatusOK
		})
	}
	await(time.Now().Add(3 * time.Second)) // the table and holds look at this time
}

func (b *faultBench) usedMemory() int {
	b.Helper()
	for l := range strings.Lines(b.raw.Info(b.Context(), "memory").Val()) {
		if text, ok := strings.CutPrefix(l, "used_memory:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatal("Redis does not say how much memory it uses")
	return 0
}

// fillRedis makes a tenant send checks of callers that it has never seen, in batches on four connections, until the
// fault ends. Each caller has a log, the largest kind of counter.
func fillRedis(b *faultBench) {
	flooded.Store(0)
	b.cluster.publish("flood", `[{"slug": "all", "count_by": ["user"], "on_failure": "closed", "limits": [{"algorithm": "sliding_window_log", "window": "1d", "quota": 100}]}]`)
	b.cluster.tenant("flood", "flood")
	for i := range 4 {
		b.during.Go(func() {
			for n := 0; b.ctx.Err() == nil; n++ {
				var checks []string
				for k := range 100 {
					checks = append(checks, fmt.Sprintf(`{"tenant": "flood", "attributes": {"user": "c%d-%d-%d"}}`, i, n, k))
				}
				a, err := tryCall(b.ctx, bootstrap, "POST", b.cluster.nodes[i%3].origin+"/v1/check/batch", `{"checks": [`+strings.Join(checks, ",")+`]}`)
				if err != nil {
					continue // the fault has ended
				}
				if a.status != http.StatusOK {
					b.Errorf("a batch of the flood: %d %s", a.status, a.body)
					return
				}
				flooded.Add(int64(len(checks)))
			}
		})
	}
}

// streamStatus opens a live page and returns its status. The page stays open until the fault ends.
func streamStatus(b *faultBench, who *browser, path string) int {
	r, err := http.NewRequestWithContext(b.ctx, http.MethodGet, who.origin+path, http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	answer, err := who.client.Do(r)
	if err != nil {
		return 0
	}
	b.during.Go(func() {
		defer answer.Body.Close()
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); { //nolint:revive // until the stream ends
		}
	})
	return answer.StatusCode
}

// takeAllStreams lets the members of a tenant open as many live pages of one node as they can. Then the owner, and a
// member of another tenant, open one.
func takeAllStreams(b *faultBench) {
	streamsSeen.Store("")
	origin := b.cluster.nodes[0].origin
	b.cluster.tenant("calm", "faults")
	member := func(tenant, email string) *browser {
		var made struct{ Token string }
		call(b.T, bootstrap, "POST", origin+"/v1/tenants/"+tenant+"/members", fmt.Sprintf(`{"email": %q, "role": "tenant_viewer"}`, email)).want(b.T, http.StatusCreated).into(b.T, &made)
		who := newBrowser(b.T, origin)
		who.post("/invite/"+made.Token, "name", "M", "password", ownerPassword).want(b.T, http.StatusSeeOther)
		who.signIn(email, ownerPassword).want(b.T, http.StatusSeeOther)
		return who
	}
	owner, calm := newBrowser(b.T, origin), member("calm", "calm@example.com")
	owner.signIn("ann@example.com", ownerPassword).want(b.T, http.StatusSeeOther)
	opened, refused := 0, 0
	for i := range 26 {
		who := member("faults", fmt.Sprintf("m%d@example.com", i))
		for k := range 40 {
			switch status := streamStatus(b, who, fmt.Sprintf("/tenants/faults/live?path=/p%d-%d", i, k)); status {
			case http.StatusOK:
				opened++
			case http.StatusServiceUnavailable:
				refused++
			default:
				b.Errorf("a live page of a member: %d", status)
			}
		}
	}
	ofOwner, ofCalm := streamStatus(b, owner, "/overview/live"), streamStatus(b, calm, "/tenants/calm/live")
	if ofOwner != http.StatusOK || ofCalm != http.StatusOK || opened > 100 {
		b.Errorf("%d live pages of the tenant are open; one of the owner: %d, one of another tenant: %d", opened, ofOwner, ofCalm)
	}
	streamsSeen.Store(fmt.Sprintf("; %d live pages of the tenant opened and %d answered `503`; those of the owner and of another tenant: %d and %d", opened, refused, ofOwner, ofCalm))
}

// lockOutTheOwner lets strangers try passwords of the owner's account. Meanwhile the owner signs in again and again in the
// browser that was used before.
func lockOutTheOwner(b *faultBench) {
	signInsSeen.Store("")
	origin := b.cluster.nodes[0].origin
	owner := newBrowser(b.T, origin)
	owner.signIn("ann@example.com", ownerPassword).want(b.T, http.StatusSeeOther)
	var wrong, limited atomic.Int64
	attempt := func(ctx context.Context, n int, password string) int {
		form := url.Values{"email": {"ann@example.com"}, "password": {password}}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, origin+"/sign-in", strings.NewReader(form.Encode()))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", origin)
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.%d.%d", n/250%250, 1+n%250))
		a, err := client.Do(r)
		if err != nil {
			return 0
		}
		_ = a.Body.Close()
		return a.StatusCode
	}
	var number atomic.Int64
	for range 20 {
		b.during.Go(func() {
			for b.ctx.Err() == nil {
				switch status := attempt(b.ctx, int(number.Add(1)), "wrong-wrong-wrong"); status {
				case http.StatusTooManyRequests:
					limited.Add(1)
				case 0: // the fault has ended
				default:
					wrong.Add(1)
				}
			}
		})
	}
	eventually(b.T, "an unknown browser must wait, although its password is right", func() bool {
		return attempt(b.Context(), int(number.Add(1)), ownerPassword) == http.StatusTooManyRequests
	})
	signIns := 0
	for until := time.Now().Add(8 * time.Second); time.Now().Before(until); signIns++ {
		if a := owner.signIn("ann@example.com", ownerPassword); a.status != http.StatusSeeOther {
			b.Errorf("sign-in %d of the owner in a known browser: %d", signIns+1, a.status)
			break
		}
	}
	signInsSeen.Store(fmt.Sprintf("; %d tries of strangers were checked, %d had to wait; the owner signed in %d times in a known browser, and never had to wait",
		wrong.Load(), limited.Load(), signIns))
}
