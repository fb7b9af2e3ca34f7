package plans

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/nodes"
)

var start = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

// Nodes that are not heard of are told of and not waited for.
func TestRolloutOfSilentNodes(t *testing.T) {
	t.Parallel()
	node := func(name string, revision int64, ago time.Duration) nodes.Node {
		seen := start.Add(-ago)
		return nodes.Node{ID: name, Name: name, At: seen, SeenAt: seen, StartedAt: seen, Snapshot: nodes.Snapshot{Revision: revision, ConfirmedAt: seen}}
	}
	for name, c := range map[string]struct {
		nodes []nodes.Node
		done  bool
		says  string
	}{
		"none":      {nil, false, "No node has reported yet"},
		"the only":  {[]nodes.Node{node("a", 7, 0)}, true, "1 node: the only one"},
		"one is":    {[]nodes.Node{node("a", 7, 0), node("b", 6, time.Second)}, false, "1 of 2 nodes"},
		"one gone":  {[]nodes.Node{node("a", 8, 0), node("b", 6, time.Hour)}, true, "1 node: the only one"},
		"all gone":  {[]nodes.Node{node("b", 9, time.Hour)}, false, "No node has reported yet"},
		"both have": {[]nodes.Node{node("a", 8, 0), node("b", 7, time.Second)}, true, "2 nodes: all of them"},
	} {
		v := drawRollout(nodes.OverviewOf(nodes.Census{At: start, Revision: 9, Nodes: c.nodes}), 7)
		if v.Done != c.done || !strings.Contains(v.Summary, c.says) || (v.Silent != "") != strings.Contains(name, "gone") {
			t.Errorf("%s: %+v", name, v)
		}
	}
	held := node("a", 6, 0)
	held.Snapshot.Held = "too many were removed"
	if v := drawRollout(nodes.OverviewOf(nodes.Census{At: start, Revision: 9, Nodes: []nodes.Node{held}}), 7); v.Nodes[0].State != "held: too many were removed" {
		t.Errorf("held: %+v", v.Nodes)
	}
}
