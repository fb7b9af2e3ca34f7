//go:build faults

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/headgate/headgate/internal/servertest"
)

// sql runs statements directly on the database of the nodes.
func (b *faultBench) sql(statements ...string) {
	b.Helper()
	db, err := sql.Open("pgx", b.cluster.databaseURL)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.ExecContext(context.Background(), s); err != nil {
			b.Fatalf("%s: %v", s, err)
		}
	}
}

// edit tries to create a tenant on a node. It fails the test if the node does not answer.
func (b *faultBench) edit(node int, slug string) answer {
	a, err := tryCall(b.Context(), bootstrap, "POST", b.cluster.nodes[node].origin+"/v1/tenants",
		fmt.Sprintf(`{"slug": %q, "tenant": {"require_route": false, "name": "t"}}`, slug))
	if err != nil {
		b.Errorf("an edit is not answered: %v", err)
	}
	return a
}

// refusesEdits fails the test unless an edit gets status 503 with the problem type of an
// unavailable database, once the fault has started.
func refusesEdits(b *faultBench) {
	b.during.Go(func() {
		await(time.Now().Add(time.Second))
		a := b.edit(1, "refused")
		var p struct{ Type string }
		if a.status != http.StatusServiceUnavailable || json.Unmarshal([]byte(a.body), &p) != nil || !strings.HasSuffix(p.Type, "/unavailable") {
			b.Errorf("an edit is answered %d %s, want 503 with the problem type unavailable", a.status, a.body)
		}
		if a.header.Get("Retry-After") == "" || a.header.Get("Content-Type") != "application/problem+json" {
			b.Errorf("the answer to an edit has the headers %v", a.header)
		}
	})
}

// controlFaults has the scenarios of section 5.2 of the design.
var controlFaults = []faultScenario{
	{
		goal: "F-P2", fault: "Postgres is down", short: true, direct: true, ownPostgres: true, exact: true, lasts: 8 * time.Second,
		begin: func(b *faultBench) { b.postgres.Stop(); refusesEdits(b) },
		end:   func(b *faultBench) { b.postgres.Start() },
		seen:  []string{"the database is away"},
	},
	{
		goal: "F-P2/10min", fault: "Postgres is down for 10 min", direct: true, ownPostgres: true, exact: true, lasts: 10 * time.Minute,
		begin: func(b *faultBench) { b.postgres.Stop(); refusesEdits(b) },
		end:   func(b *faultBench) { b.postgres.Start() },
		seen:  []string{"the database is away"},
		holds: func(b *faultBench, m *faultMeasure) {
			if m.counted < m.answered {
				m.fail(b, "%d counts are lost", m.answered-m.counted)
			}
		},
	},
	{
		goal: "F-P3/hung", fault: "Postgres hangs (SIGSTOP)", direct: true, ownPostgres: true, exact: true, lasts: 12 * time.Second,
		begin: func(b *faultBench) { b.postgres.Pause(); refusesEdits(b) },
		end:   func(b *faultBench) { b.postgres.Resume() },
		seen:  []string{"the database is away"},
	},
	{
		goal: "F-P3/lock", fault: "another client locks the tables of tenants and counts", direct: true, exact: true, lasts: 12 * time.Second,
		begin: func(b *faultBench) {
			b.during.Go(func() {
				b.sql(`BEGIN; LOCK TABLE tenants, counts_minutes IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(11); COMMIT`)
			})
			refusesEdits(b)
		},
	},
	{
		goal: "F-P4", fault: "all connections to Postgres are cut, each second", direct: true, ownPostgres: true, exact: true,
		begin: func(b *faultBench) {
			b.repeat(time.Second, func() {
				b.sql(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'headgate' AND pid <> pg_backend_pid()`)
			})
		},
	},
	{
		goal: "F-P5", fault: "Postgres is read-only", direct: true, ownPostgres: true, exact: true, lasts: 12 * time.Second,
		begin: func(b *faultBench) {
			b.sql(`ALTER SYSTEM SET default_transaction_read_only = on`, `SELECT pg_reload_conf()`)
			refusesEdits(b)
		},
		end: func(b *faultBench) {
			b.sql(`ALTER SYSTEM SET default_transaction_read_only = off`, `SELECT pg_reload_conf()`)
		},
		seen: []string{"the database has refused writes"},
	},
	{goal: "F-P7", fault: "the connections that listen are cut during 300 edits and 10,000 changes at once", short: true, run: lostNotifications},
	{
		goal: "F-P8/document", fault: "a published plan is damaged in the database", direct: true, exact: true, lasts: 8 * time.Second,
		begin: func(b *faultBench) {
			b.sql(`ALTER TABLE plan_versions DISABLE TRIGGER plan_versions_immutable`,
				`UPDATE plan_versions SET document = '{"policies": [null, {"limits": -1}]}'`,
				`UPDATE revision SET n = n + 1`, `UPDATE plans SET revision = (SELECT n FROM revision)`, `UPDATE tenants SET revision = (SELECT n FROM revision)`)
		},
		seen: []string{"headgate_snapshot_problems"},
	},
	{
		goal: "F-P8/backup", fault: "the revision of the database goes back (a restored backup)", direct: true, exact: true, lasts: 8 * time.Second,
		begin: func(b *faultBench) { b.sql(`UPDATE revision SET n = 1`) },
		end:   func(b *faultBench) { b.sql(`UPDATE revision SET n = 1000`) },
		seen:  []string{"`headgate_snapshot_held 1`"},
	},
	{
		goal: "F-P9", fault: "10,000 tenants appear at once", direct: true, exact: true, lasts: 12 * time.Second,
		begin: func(b *faultBench) {
			b.sql(`INSERT INTO tenants SELECT (jsonb_populate_record(t, jsonb_build_object('id', gen_random_uuid()::text, 'slug', 's' || g,
					'number', 1000 + g, 'revision', t.revision + 1000))).* FROM tenants t, generate_series(1, 10000) g WHERE t.slug = 'faults'`,
				`UPDATE revision SET n = n + 2000`, `SELECT pg_notify('headgate_revision', '')`)
			b.during.Go(func() {
				began := time.Now()
				b.cluster.everywhere(`{"tenant": "s9999", "mode": "peek"}`, func(a answer) bool { return a.status != http.StatusNotFound })
				b.Logf("each node has 10,000 tenants after %s", time.Since(began).Round(time.Millisecond))
			})
		},
	},
	{goal: "F-P11", fault: "the reply to COMMIT is lost", run: lostCommit},
	{goal: "F-P12", fault: "node and Postgres are killed in the middle of 8 writers' edits", run: killedWhileWriting},
}

// lostNotifications: every node gets the newest revision within seconds, although the database
// notifications are cut off.
func lostNotifications(t *testing.T) (row faultRow) {
	f := startCluster(t, 3, nil)
	b := &faultBench{T: t, cluster: f}
	f.publish("plan", `[{"slug": "all", "limits": [{"algorithm": "fixed_window", "quota": 1000, "window": "1d"}]}]`)
	f.tenant("first", "plan")
	revision := func(node int) (n int64) {
		var r struct{ Snapshot struct{ Revision int64 } }
		call(t, "", "GET", f.nodes[node].origin+"/readyz?verbose", "").want(t, 200).into(t, &r)
		return r.Snapshot.Revision
	}
	for i := range 300 {
		if i%50 == 0 {
			b.sql(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()`)
		}
		b.edit(i%3, fmt.Sprintf("t%d", i)).want(t, http.StatusCreated)
	}
	// There are 10,000 changes at the same time, each with its own notification. The
	// connections that listen are cut at the same moment.
	b.sql(`DO $$
		DECLARE last BIGINT;
		BEGIN
			UPDATE revision SET n = n + 10000 RETURNING n INTO last;
			INSERT INTO tenants SELECT (jsonb_populate_record(t, jsonb_build_object('id', gen_random_uuid()::text, 'slug', 's' || g,
				'number', 1000 + g, 'revision', last - 10000 + g))).* FROM tenants t, generate_series(1, 10000) g WHERE t.slug = 'first';
			PERFORM pg_notify('headgate_revision', (last - 10000 + g)::text) FROM generate_series(1, 10000) g;
		END $$`,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()`)
	b.edit(0, "last").want(t, http.StatusCreated)
	newest := revision(0)
	began := time.Now()
	for node := range f.nodes {
		last := revision(node)
		eventually(t, "the node has the newest revision", func() bool {
			now := revision(node)
			if now < last {
				t.Errorf("node %d goes back from revision %d to %d", node, last, now)
			}
			last = now
			return now >= newest
		})
	}
	f.everywhere(`{"tenant": "s10000", "mode": "peek"}`, func(a answer) bool { return a.status != http.StatusNotFound })
	took := time.Since(began)
	if took > 5*time.Second { // a latency, which depends on the machine
		row.failed = append(row.failed, "the newest revision in 5 s")
	}
	row.recovery = fmt.Sprintf("%.1f s", took.Seconds())
	row.measure = "300 edits and 10,000 changes at once; every node has the newest revision; none goes back"
	row.seen = "`headgate_snapshot_listening 0` until the node listens again"
	return row
}

// lostCommit: the client gets status 503 although the change was stored. A repetition finds the
// object. There is one object and one entry in the audit log.
func lostCommit(t *testing.T) (row faultRow) {
	proxy := servertest.StartProxy(t, servertest.Postgres(t))
	node := launch(t, map[string]string{"HEADGATE_DATABASE_URL": proxy.URL(), "HEADGATE_SHUTDOWN_DELAY": "0s"}).serving()
	b := &faultBench{T: t, cluster: &cluster{t: t, nodes: []*process{node}}}
	statuses := map[int]int{}
	const tries = 20
	for i := range tries {
		slug := fmt.Sprintf("t%d", i)
		lost := proxy.Lose(servertest.Loss{Request: "commit", Silent: i%2 == 0})
		status := b.edit(0, slug).status
		eventually(t, "a reply to COMMIT is lost", func() bool {
			select {
			case <-lost:
				return true
			default:
				return false
			}
		})
		statuses[status]++
		eventually(t, "the repetition finds the tenant or makes it", func() bool {
			status = b.edit(0, slug).status
			return status == http.StatusConflict || status == http.StatusCreated
		})
	}
	var page struct{ Data []struct{ Slug string } }
	call(t, bootstrap, "GET", node.origin+"/v1/tenants?limit=100", "").want(t, 200).into(t, &page)
	lines := strings.Count(call(t, bootstrap, "GET", node.origin+"/v1/audit?limit=100&action=tenant.create", "").want(t, 200).body, `"tenant.create"`)
	if len(page.Data) != tries || lines != tries {
		t.Errorf("%d tenants and %d audit lines for %d names", len(page.Data), lines, tries)
	}
	row.measure = fmt.Sprintf("%d lost replies, answered %v (by status); %d tenants, %d audit lines", tries, statuses, len(page.Data), lines)
	return row
}

// killedWhileWriting: each change that was confirmed is stored, with its audit entry.
func killedWhileWriting(t *testing.T) (row faultRow) {
	postgres := servertest.StartPostgres(t)
	settings := map[string]string{"HEADGATE_DATABASE_URL": postgres.URL(), "HEADGATE_SHUTDOWN_DELAY": "0s"}
	var made sync.Map
	acknowledged := 0
	node := launch(t, settings).serving()
	for round := range 4 {
		var writers sync.WaitGroup
		var done atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		for w := range 8 {
			writers.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					slug := fmt.Sprintf("r%d-w%d-%d", round, w, i)
					a, err := tryCall(ctx, bootstrap, "POST", node.origin+"/v1/tenants", fmt.Sprintf(`{"slug": %q, "tenant": {"require_route": false, "name": "t"}}`, slug))
					if err == nil && a.status == http.StatusCreated {
						made.Store(slug, true)
						done.Add(1)
					} else if err != nil {
						return
					}
				}
			})
		}
		eventually(t, "250 edits are acknowledged", func() bool { return done.Load() >= 250 })
		if round%2 == 0 {
			postgres.Stop()
		}
		_ = node.command.Process.Kill()
		<-node.ended
		cancel()
		writers.Wait()
		acknowledged += int(done.Load())
		if round%2 == 0 {
			postgres.Start()
		}
		node = launch(t, settings).serving()
	}
	slugs, lines := map[string]bool{}, 0
	for path := "/v1/tenants?limit=100"; path != ""; {
		var page struct{ Data []struct{ Slug string } }
		a := call(t, bootstrap, "GET", node.origin+path, "").want(t, 200)
		a.into(t, &page)
		for _, d := range page.Data {
			slugs[d.Slug] = true
		}
		path = strings.TrimSuffix(strings.TrimPrefix(a.header.Get("Link"), "<"), `>; rel="next"`)
	}
	for path := "/v1/audit?limit=100&action=tenant.create"; path != ""; {
		a := call(t, bootstrap, "GET", node.origin+path, "").want(t, 200)
		lines += strings.Count(a.body, `"tenant.create"`)
		path = strings.TrimSuffix(strings.TrimPrefix(a.header.Get("Link"), "<"), `>; rel="next"`)
	}
	lost := 0
	made.Range(func(slug, _ any) bool {
		if !slugs[slug.(string)] {
			lost++
		}
		return true
	})
	if lost > 0 || lines != len(slugs) {
		t.Errorf("%d of %d acknowledged edits are lost; %d tenants have %d audit lines", lost, acknowledged, len(slugs), lines)
	}
	row.measure = fmt.Sprintf("%d acknowledged edits over 4 kills, %d lost; %d tenants, %d audit lines", acknowledged, lost, len(slugs), lines)
	return row
}
