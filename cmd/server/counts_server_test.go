//go:build !quick

package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/servertest"
)

// A ledger counts the answers that clients received, by tenant and reason. The counts in
// the database must agree with it.
type ledger struct {
	mu      sync.Mutex
	answers map[string]map[string]int64
}

func (l *ledger) note(tenant, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answers == nil {
		l.answers = map[string]map[string]int64{}
	}
	if l.answers[tenant] == nil {
		l.answers[tenant] = map[string]int64{}
	}
	l.answers[tenant][reason]++
	l.answers[tenant]["requests"]++
}

// reasonColumns maps a reason to the name of its count in the API, if that differs from the
// reason.
var reasonColumns = map[string]string{"no_policy": "allowed_no_policy"}

// check sends a check to one node and records the decision in the ledger.
func (l *ledger) check(t *testing.T, origin, tenant, body string) {
	t.Helper()
	a, err := tryCall(t.Context(), bootstrap, "POST", origin+"/v1/check", body)
	var v verdict
	if err == nil {
		err = json.Unmarshal([]byte(a.body), &v)
	}
	if err != nil || v.Reason == "" {
		t.Errorf("%s: %v %d %s", body, err, a.status, a.body)
		return
	}
	l.note(tenant, v.Reason)
}

// counted returns the counts of a tenant from a node's analytics API. If tenant is "", it
// returns the counts of all tenants.
func counted(t *testing.T, origin, tenant string, from time.Time) map[string]int64 {
	t.Helper()
	query := url.Values{"from": {from.Add(-time.Minute).UTC().Format(time.RFC3339)}}
	if tenant != "" {
		query.Set("tenant", tenant)
	}
	a, err := tryCall(t.Context(), bootstrap, "GET", origin+"/v1/analytics/traffic?"+query.Encode(), "")
	if err != nil || a.status != 200 {
		return nil // the database is away
	}
	var traffic struct {
		Total  map[string]json.Number
		Points []struct{ Counts map[string]json.Number }
	}
	a.into(t, &traffic)
	total, sum := map[string]int64{}, int64(0)
	for name, n := range traffic.Total {
		total[name], _ = n.Int64() // limited_rate is not a count
	}
	for _, p := range traffic.Points {
		n, _ := p.Counts["requests"].Int64()
		sum += n
	}
	if sum != total["requests"] {
		t.Errorf("the points of %q add up to %d, the total is %d", tenant, sum, total["requests"])
	}
	return total
}

// settled waits until the counts of a node equal those of the ledger.
func (l *ledger) settled(t *testing.T, origin string, from time.Time) {
	t.Helper()
	all := int64(0)
	for tenant, reasons := range l.answers {
		all += reasons["requests"]
		var got map[string]int64
		eventually(t, fmt.Sprintf("%s says what clients of %s were answered: %v", origin, tenant, reasons), func() bool {
			got = counted(t, origin, tenant, from)
			return got["requests"] >= reasons["requests"]
		})
		for reason, n := range reasons {
			if column := reasonColumns[reason]; column != "" {
				reason = column
			}
			if got[reason] != n {
				t.Errorf("tenant %s: %s counted %d, clients were answered %d; counts %v", tenant, reason, got[reason], n, got)
			}
		}
	}
	if got := counted(t, origin, "", from)["requests"]; got != all {
		t.Errorf("all tenants: counted %d, clients were answered %d", got, all)
	}
}

const countedPolicies = `[
	{"slug": "per-user", "match": {"path": "/v1/items/*"}, "count_by": ["user"], "limits": [{"algorithm": "fixed_window", "quota": 5, "window": "1d"}]},
	{"slug": "strict", "match": {"path": "/v1/strict"}, "count_by": ["user"], "missing": "deny", "limits": [{"algorithm": "token_bucket", "quota": 2, "window": "1d"}]}]`

// load sends checks from several clients to all nodes at the same time.
func (l *ledger) load(t *testing.T, nodes []*process, tenants []string, clients, checks int) {
	t.Helper()
	var wait sync.WaitGroup
	for client := range clients {
		wait.Go(func() {
			for i := range checks {
				tenant := tenants[(client+i)%len(tenants)]
				body := fmt.Sprintf(`{"tenant": %q, "path": "/v1/items/%d", "attributes": {"user": "u%d"}}`, tenant, i, i%7)
				switch i % 5 {
				case 3:
					body = fmt.Sprintf(`{"tenant": %q, "path": "/v1/strict"}`, tenant)
				case 4:
					body = fmt.Sprintf(`{"tenant": %q, "path": "/elsewhere"}`, tenant)
				}
				l.check(t, nodes[(client+i)%len(nodes)].origin, tenant, body)
			}
		})
	}
	wait.Wait()
}

// The counts of three nodes equal the decisions that their clients received, by tenant and
// reason. Every node returns the same counts.
func TestFleetCountsEveryDecisionOnce(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, nil)
	from := time.Now()
	f.publish("plan", countedPolicies)
	tenants := []string{"acme", "globex", "initech"}
	for _, tenant := range tenants {
		f.tenant(tenant, "plan")
	}
	var l ledger
	l.load(t, f.nodes, tenants, 6, 150)
	for _, node := range f.nodes {
		l.settled(t, node.origin, from)
	}
	// Peeks are not counted.
	call(t, bootstrap, "POST", f.nodes[0].origin+"/v1/check", `{"tenant": "acme", "mode": "peek"}`).want(t, 200)
	l.load(t, f.nodes, tenants[:1], 1, 10)
	l.settled(t, f.nodes[1].origin, from)
	f.topKeys(from)
}

// topKeys checks that the busiest keys of the clients rank first, and that the true counts
// are within the bounds.
func (f *cluster) topKeys(from time.Time) {
	t := f.t
	t.Helper()
	path := "/v1/analytics/keys?outcome=limited&tenant=acme&policy=per-user&from=" + from.Add(-time.Minute).UTC().Format(time.RFC3339)
	var top struct {
		Keys []struct {
			Policy       string
			Count, Error int64
			Key          map[string]string
		}
	}
	eventually(t, "the top limited keys are there", func() bool {
		a := call(t, bootstrap, "GET", f.nodes[2].origin+path, "").want(t, 200)
		top.Keys = nil
		a.into(t, &top)
		return len(top.Keys) == 7
	})
	for _, key := range top.Keys {
		if key.Policy != "per-user" || !strings.HasPrefix(key.Key["user"], "u") || key.Error != 0 {
			t.Errorf("key %+v", key)
		}
	}
}

// A node that gets SIGTERM first writes its last counts. A node that is killed loses at
// most the counts since its last flush. No count is written twice.
func TestCountsSurviveTheirNode(t *testing.T) {
	t.Parallel()
	settings := map[string]string{
		"HEADGATE_DATABASE_URL": servertest.Postgres(t), "HEADGATE_LIMITER_TIMEOUT": "30s", "HEADGATE_SHUTDOWN_DELAY": "0s", "HEADGATE_SHUTDOWN_TIMEOUT": "60s",
	}
	node := launch(t, settings).serving()
	f := &cluster{t: t, nodes: []*process{node}}
	from := time.Now()
	f.publish("plan", countedPolicies)
	f.tenant("acme", "plan")
	var l ledger
	for range 3 { // SIGTERM right after the last response
		l.load(t, []*process{node}, []string{"acme"}, 4, 50)
		if err := node.command.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-node.ended
		if code := node.command.ProcessState.ExitCode(); code != 0 {
			t.Fatalf("ended with %d:\n%s", code, node.logs)
		}
		node = launch(t, settings).serving()
		if got, want := counted(t, node.origin, "acme", from)["requests"], l.answers["acme"]["requests"]; got != want {
			t.Fatalf("after SIGTERM %d decisions are counted, %d were answered", got, want)
		}
	}

	l.load(t, []*process{node}, []string{"acme"}, 4, 50)
	l.settled(t, node.origin, from) // everything until here is flushed
	flushed := l.answers["acme"]["requests"]
	l.load(t, []*process{node}, []string{"acme"}, 4, 50)
	if err := node.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-node.ended
	node = launch(t, settings).serving()
	got, answered := counted(t, node.origin, "acme", from)["requests"], l.answers["acme"]["requests"]
	if got < flushed || got > answered {
		t.Errorf("after kill -9 %d decisions are counted: %d were flushed, %d answered", got, flushed, answered)
	}
}

// Checks are counted while the database is unavailable, and all counts are in the database
// after it returns.
func TestCountsWaitForTheDatabase(t *testing.T) {
	t.Parallel()
	server := servertest.StartPostgres(t)
	node := launch(t, map[string]string{"HEADGATE_DATABASE_URL": server.URL(), "HEADGATE_SHUTDOWN_DELAY": "0s"}).serving()
	f := &cluster{t: t, nodes: []*process{node}}
	from := time.Now()
	f.publish("plan", countedPolicies)
	f.tenant("acme", "plan")
	var l ledger
	l.load(t, f.nodes, []string{"acme"}, 2, 50)
	server.Stop()
	l.load(t, f.nodes, []string{"acme"}, 2, 50)
	eventually(t, "/metrics says that counts wait and that a flush failed", func() bool {
		shown := call(t, "", "GET", node.origin+"/metrics", "").body
		return strings.Contains(shown, "headgate_counts_waiting_rows ") && !strings.Contains(shown, "headgate_counts_waiting_rows 0\n") &&
			!strings.Contains(shown, `headgate_count_flushes_total{result="failed"} 0`)
	})
	l.load(t, f.nodes, []string{"acme"}, 2, 50)
	server.Start()
	l.settled(t, node.origin, from)
}
