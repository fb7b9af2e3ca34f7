package api_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/nodes"
)

// The API returns the nodes of the System page with their warnings. A tenant key cannot read
// them.
func TestNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	revision, err := w.store.Revision(t.Context())
	must(t, err)
	now := time.Now() // seen by the database's clock
	report := nodes.Node{
		ID: "01939c1e-0000-7000-8000-0000000000aa", Name: "web-1:8080", Version: "v1.2.3", GoVersion: "go1.26",
		StartedAt: now.Add(-time.Hour), At: now, Limiter: nodes.LimiterRedis, Sharing: 1,
		Redis:    nodes.Redis{Since: now.Add(-time.Minute)},
		Snapshot: nodes.Snapshot{Revision: revision, ConfirmedAt: now, Listening: true},
	}
	must(t, w.store.PutNode(t.Context(), report))
	res := w.do(call{method: "GET", path: "/v1/nodes", key: w.operator})
	if res.status != http.StatusOK {
		t.Fatalf("%d %s", res.status, res.body)
	}
	var got struct {
		At       time.Time
		Revision int64
		Nodes    []struct {
			ID, Name, Level, Version, Limiter string
			Silent, Draining                  bool
			Revision                          int64
			Warnings                          []struct{ Level, Code, Text string }
		}
	}
	must(t, json.Unmarshal([]byte(res.body), &got))
	if got.At.IsZero() || got.Revision != revision || len(got.Nodes) != 1 {
		t.Fatalf("%+v", got)
	}
	n := got.Nodes[0]
	if n.ID != report.ID || n.Name != report.Name || n.Version != "v1.2.3" || n.Limiter != "redis" || n.Silent || n.Revision != revision {
		t.Errorf("%+v", n)
	}
	if n.Level != "alarm" && n.Level != "warning" || len(n.Warnings) == 0 || n.Warnings[0].Level != n.Level || n.Warnings[0].Code == "" {
		t.Errorf("an unreachable Redis: %+v", n)
	}
}
