//go:build !quick

package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/servertest"
)

// interrupt ends a process as a signal does; it must end well.
func (p *process) interrupt() {
	p.t.Helper()
	if err := p.command.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.ended:
		if code := p.command.ProcessState.ExitCode(); code != 0 {
			p.t.Errorf("ended with %d\n%s", code, p.logs)
		}
	case <-time.After(patience):
		p.t.Fatalf("did not end within %s\n%s", patience, p.logs)
	}
}

// once runs the built binary in a folder to its end.
func once(t *testing.T, folder string, settings map[string]string, args ...string) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	command := exec.CommandContext(t.Context(), path, args...)
	command.Dir, command.Stdout, command.Stderr = folder, &out, &out
	command.Env = []string{}
	for name, value := range settings {
		command.Env = append(command.Env, name+"="+value)
	}
	if err := command.Run(); err != nil {
		t.Fatalf("headgate %s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

type traffic struct {
	Total  struct{ Requests, Limited int64 }
	Points []struct {
		At     time.Time
		Counts struct{ Requests int64 }
	}
}

// week asks a node for the traffic of eight days by the hour. Hours of a week that
// was written at once are there when they are rolled up: soon.
func (p *process) week(key, tenant string) (w traffic) {
	p.t.Helper()
	now := time.Now().UTC()
	url := fmt.Sprintf("%s/v1/analytics/traffic?step=hour&from=%s&to=%s", p.origin, now.Add(-8*24*time.Hour).Format(time.RFC3339), now.Format(time.RFC3339))
	if tenant != "" {
		url += "&tenant=" + tenant
	}
	eventually(p.t, "a week is rolled up", func() bool {
		a := call(p.t, key, "GET", url, "")
		if a.status != 200 {
			return false
		}
		a.into(p.t, &w)
		return true
	})
	return w
}

// Whoever starts the demo sees a week, and more from second to second; another
// process takes it out again.
func TestDemo(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	none := map[string]string{"HEADGATE_BOOTSTRAP_KEY": ""}
	node := launchIn(t, folder, none, "demo").serving()
	key := node.await(node.out, regexp.MustCompile(`operator key +(hg_op_\S+)`))[1]
	w := node.week(key, "")
	busy := 0
	for _, p := range w.Points {
		if p.Counts.Requests > 0 {
			busy++
		}
	}
	if busy < 7*24 || w.Total.Requests < 100_000 || w.Total.Limited < 1_000 {
		t.Errorf("%d busy hours, %+v", busy, w.Total)
	}
	sum := int64(0)
	for _, tenant := range []string{"demo-acme", "demo-bloom", "demo-cobalt"} {
		sum += node.week(key, tenant).Total.Requests
	}
	if after := node.week(key, "").Total.Requests; sum < w.Total.Requests || sum > after {
		t.Errorf("the three tenants had %d requests, all together %d before and %d after", sum, w.Total.Requests, after)
	}
	eventually(t, "live traffic is counted", func() bool { return node.week(key, "").Total.Requests > w.Total.Requests })

	// The call that is printed does what is said of it.
	tenant := node.await(node.out, regexp.MustCompile(`tenant key +(hg_tn_\S+) +\(tenant demo-cobalt\)`))[1]
	for i := range 6 {
		want := 200
		if i == 5 {
			want = 429
		}
		call(t, tenant, "POST", node.origin+"/v1/check", `{"method": "POST", "path": "/v1/login", "attributes": {"ip": "203.0.113.9"}}`).want(t, want)
	}

	before := node.week(key, "").Total.Requests
	node.interrupt()
	again := launchIn(t, folder, none, "demo").serving()
	if total := again.week(key, "").Total.Requests; total < before {
		t.Errorf("%d requests after it was started again, %d before", total, before)
	}
	out := once(t, folder, nil, "demo", "remove")
	for _, word := range []string{"demo-acme, demo-bloom, demo-cobalt", "demo-free, demo-pro, demo-enterprise", "kept refusals"} {
		if !strings.Contains(out, word) {
			t.Errorf("demo remove does not say %q:\n%s", word, out)
		}
	}
	again.await(again.logs, regexp.MustCompile(`its traffic has ended`))
	if total := again.week(key, "").Total.Requests; total != 0 {
		t.Errorf("%d requests are left", total)
	}
	again.interrupt()
}

// A dump is every row of every table as text.
func dump(t *testing.T, url string) map[string][]string {
	t.Helper()
	driver, source, tables := "pgx", url, `SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'`
	if path, embedded := strings.CutPrefix(url, "sqlite://"); embedded {
		driver, source, tables = "sqlite", "file:"+path, `SELECT name FROM sqlite_master WHERE type = 'table'`
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all := map[string][]string{}
	for _, table := range column(t, db, tables) {
		all[table] = rowsOf(t, db, table)
		slices.Sort(all[table])
	}
	return all
}

// rowsOf gives a table's rows, each as text.
func rowsOf(t *testing.T, db *sql.DB, table string) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT * FROM `+table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range into {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		list = append(list, strings.TrimSpace(fmt.Sprintln(values...)))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

func column(t *testing.T, db *sql.DB, query string) (list []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		list = append(list, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// notTheDemos are tables that a process which serves changes by itself, and
// those that keep what was: no row of them is of a tenant.
var notTheDemos = map[string]string{
	"revision": "every edit raises it", "counters": "numbers are never given twice", "cells": "the identity of a limit is kept for ever",
	"tombstones": "what was removed is told to the nodes", "audit_log": "lines are only added", "audit_head": "lines are only added",
	"leases": "of the roll-up", "nodes": "what nodes say of themselves", "flush_marks": "of processes that served",
	"invitations": "each start makes its set-up link anew", "roll_ups_due": "of hours in which others were counted, too",
	"schema_migrations": "it does not change",
}

// What is removed is all of the demo, in every table, and nothing of another
// tenant: on both engines, beside a running server.
func TestDemoRemovesAllOfItAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"sqlite":   "sqlite://" + filepath.Join(t.TempDir(), "headgate.db"),
		"postgres": servertest.Postgres(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := map[string]string{"HEADGATE_DATABASE_URL": url, "HEADGATE_SHUTDOWN_DELAY": "0s", "HEADGATE_SAMPLE": "false"}
			if name == "postgres" {
				settings["HEADGATE_REDIS_URL"], settings["HEADGATE_REDIS_PREFIX"] = servertest.Redis(t), fmt.Sprintf("hg-%x:", rand.Uint64())
				settings["HEADGATE_LIMITER_TIMEOUT"] = "30s"
			}
			others := launch(t, settings).serving()
			f := &cluster{t: t, nodes: []*process{others}}
			f.publish("pro", countedPolicies)
			f.tenant("acme", "pro")
			f.tenant("demo-not", "pro") // looks like the demo's, and is not
			call(t, bootstrap, "POST", others.origin+"/v1/tenants/acme/keys", `{"name": "k", "scopes": ["check"]}`).want(t, 201)
			call(t, bootstrap, "POST", others.origin+"/v1/tenants/acme/lists", `{"list": "deny", "attribute": "user", "value": "x"}`).want(t, 201)
			for i := range 40 {
				call(t, bootstrap, "POST", others.origin+"/v1/check", fmt.Sprintf(`{"tenant": %q, "path": "/v1/items/1", "attributes": {"user": "u%d"}}`, []string{"acme", "demo-not"}[i%2], i%3))
			}
			others.interrupt()
			// The next hour may begin meanwhile, and is rolled up then: minutes tell.
			before := dump(t, url)
			if len(before["counts_minutes"]) == 0 || len(before["recent_refusals"]) == 0 || len(before["sketches_minutes"]) == 0 {
				t.Fatalf("the others have no counts: %v", before)
			}

			node := launchIn(t, "", settings, "demo").serving()
			start := node.week(bootstrap, "").Total.Requests
			eventually(t, "live traffic is counted", func() bool { return node.week(bootstrap, "").Total.Requests > start })
			once(t, "", map[string]string{"HEADGATE_DATABASE_URL": url}, "demo", "remove")
			node.await(node.logs, regexp.MustCompile(`its traffic has ended`))
			node.interrupt()
			after := dump(t, url)

			latency := func(row string) bool { return strings.Contains(row, " latency ") } // of a node, not of a tenant
			for table := range after {
				if _, known := notTheDemos[table]; known {
					continue
				}
				if _, summed := map[string]bool{"counts_hours": true, "counts_days": true, "sketches_hours": true, "sketches_days": true}[table]; summed {
					if len(after[table]) > len(before["counts_minutes"])+len(before["sketches_minutes"]) {
						t.Errorf("%s has %d rows, more than the others' minutes", table, len(after[table]))
					}
					continue
				}
				if d := cmp.Diff(slices.DeleteFunc(before[table], latency), slices.DeleteFunc(after[table], latency)); d != "" {
					t.Errorf("%s is not what it was (-before +after):\n%s", table, d)
				}
			}
		})
	}
}
