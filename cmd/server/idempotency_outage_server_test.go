//go:build !quick

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/servertest"
)

// While Redis is away, a node keeps the idempotency keys of the checks that it charges. When Redis is back,
// a repetition on this node or on another one gets the decision, and each key is charged once.
func TestIdempotencyKeysSurviveAnOutageOfRedis(t *testing.T) {
	t.Parallel()
	server, database := servertest.StartRedis(t), servertest.Postgres(t)
	settings := map[string]string{"HEADGATE_DATABASE_URL": database, "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_REDIS_URL": server.URL()}
	first, second := start(t, settings), start(t, settings)
	made := call(t, bootstrap, "POST", first.origin+"/v1/plans",
		`{"slug": "pro", "draft": {"name": "Pro", "policies": [{"slug": "p", "count_by": ["user"], "limits": [{"algorithm": "fixed_window", "quota": 1000, "window": "1d"}]}]}}`).want(t, 201)
	call(t, bootstrap, "POST", first.origin+"/v1/plans/pro/publish", "", "If-Match", made.header.Get("ETag")).want(t, 200)
	call(t, bootstrap, "POST", first.origin+"/v1/tenants", `{"slug": "acme", "tenant": {"require_route": false, "name": "Acme", "plan": "pro"}}`).want(t, 201)
	check := func(node *running, key string) (id string, degraded, replayed bool) {
		t.Helper()
		a := call(t, bootstrap, "POST", node.origin+"/v1/check", `{"tenant": "acme", "path": "/", "cost": 3, "attributes": {"user": "u"}}`, "Idempotency-Key", key)
		var d struct {
			ID       string `json:"decision_id"`
			Degraded bool
		}
		if err := json.Unmarshal([]byte(a.body), &d); err != nil || a.status != 200 {
			t.Fatalf("%s: %d %s", key, a.status, a.body)
		}
		return d.ID, d.Degraded, a.header.Get("Idempotent-Replayed") == "true"
	}
	eventually(t, "the second node knows the tenant", func() bool {
		return call(t, bootstrap, "POST", second.origin+"/v1/check", `{"tenant": "acme", "path": "/", "mode": "peek"}`).status == 200
	})
	server.Kill()
	var ids []string
	for i := range 100 {
		id, degraded, replayed := check(first, fmt.Sprint("k", i))
		if !degraded || replayed {
			t.Fatalf("key %d: degraded %t, replayed %t", i, degraded, replayed)
		}
		ids = append(ids, id)
	}
	server.Restart()
	var again []string
	eventually(t, "Redis decides", func() bool { // the first repetitions come while the node finds Redis again
		id, degraded, replayed := check(first, "k0")
		if id != ids[0] || !replayed {
			t.Fatalf("a repetition has the decision %s, degraded %t, replayed %t; want %s", id, degraded, replayed, ids[0])
		}
		_, degraded, _ = check(first, "probe")
		return !degraded
	})
	eventually(t, "the journal is charged", func() bool {
		return strings.Contains(call(t, bootstrap, "GET", first.origin+"/metrics", "").body, "headgate_journal_counters 0\n")
	})
	// Until a node finds Redis again, it decides alone, and does not know the keys of the other one.
	eventually(t, "the second node finds Redis", func() bool {
		a := call(t, bootstrap, "POST", second.origin+"/v1/check", `{"tenant": "acme", "path": "/", "mode": "peek", "attributes": {"user": "u"}}`)
		return strings.Contains(a.body, `"degraded":false`)
	})
	for i := range ids {
		node := []*running{first, second}[i%2]
		id, degraded, _ := check(node, fmt.Sprint("k", i))
		if degraded {
			t.Fatalf("the repetition of key %d is degraded", i)
		}
		again = append(again, id)
	}
	if !slices.Equal(again, ids) {
		t.Errorf("repetitions have other decisions:\n%v\n%v", again, ids)
	}
	a := call(t, bootstrap, "POST", first.origin+"/v1/check", `{"tenant": "acme", "path": "/", "cost": 0, "attributes": {"user": "u"}}`).want(t, 200)
	if left := answerOf(t, a.body).Limits[0].Remaining; left != 1000-3*101 {
		t.Errorf("%d left after 100 keys and a probe, each charged once with 3, of 1000", left)
	}
}
