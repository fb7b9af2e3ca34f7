package plans

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/nodes"
)

var start = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

// Nodes that do not report are named, and the page does not wait for them.
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
		v := drawRollout(nodes.OverviewOf(nodes.Census{At: start, Revision: 9, Nodes: c.nodes}), 7, start.Add(-time.Minute))
		if v.Done != c.done || !strings.Contains(v.Summary, c.says) || (v.Silent != "") != strings.Contains(name, "gone") {
			t.Errorf("%s: %+v", name, v)
		}
	}
	held := node("a", 6, 0)
	held.Snapshot.Held = "too many were removed"
	if v := drawRollout(nodes.OverviewOf(nodes.Census{At: start, Revision: 9, Nodes: []nodes.Node{held}}), 7, start); v.Nodes[0].State != "held: too many were removed" {
		t.Errorf("held: %+v", v.Nodes)
	}
}

// Issue 13, 1.11: a page that was just published is neutral until the nodes report.
func TestRolloutIsNeutralUntilNodesReport(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seen time.Time // last report of a node that does not have the revision
		held string
		late bool
		tone string
	}{
		"reported before":      {start.Add(-time.Second), "", false, ""},
		"reported at once":     {start.Add(time.Second), "", false, ""},
		"reported after":       {start.Add(reportsWithin), "", true, "warn"},
		"held, and before":     {start.Add(-time.Second), "too many were removed", true, "warn"},
		"no report, just then": {time.Time{}, "", false, ""},
	} {
		var list []nodes.Node
		if !c.seen.IsZero() {
			list = []nodes.Node{{
				ID: "a", Name: "a", At: c.seen, SeenAt: c.seen, StartedAt: c.seen, Snapshot: nodes.Snapshot{Revision: 6, ConfirmedAt: c.seen, Held: c.held},
			}}
		}
		at := c.seen
		if at.Before(start) {
			at = start
		}
		v := drawRollout(nodes.OverviewOf(nodes.Census{At: at, Revision: 7, Nodes: list}), 7, start)
		if v.Done || v.Late != c.late || len(v.Nodes) == 1 && v.Nodes[0].Tone != c.tone {
			t.Errorf("%s: %+v", name, v)
		}
	}
}
