package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/nodes"
)

// nodeTests are those of nodes.Store.
var nodeTests = []struct {
	name string
	run  func(*suite)
}{
	{"a node's report comes back as it was", testNodeRoundTrip},
	{"a node's last report takes the place of the one before", testNodeReplaced},
	{"a node is removed", testNodeRemoved},
	{"a process takes the place of a silent one of its name", testNodeSuccessor},
	{"nodes that were not seen for a day go", testNodePrune},
	{"reports of other releases are read as far as they are understood", testNodeLenient},
	{"only so many nodes are shown", testNodeMax},
	{"when a node was seen is told by the database", testNodeSeen},
	{"a report is no edit", testNodeNoEdit},
	{"nodes that report at once do not stand in each other's way", testNodesTogether},
}

// node returns a report with every field set.
func (s *suite) node(name string) nodes.Node {
	now := s.Clock.stored()
	return nodes.Node{
		ID: uuid.NewString(), Name: name, Version: "1.2.3", GoVersion: "go1.99",
		StartedAt: now.Add(-time.Hour), At: now, Draining: true, Limiter: nodes.LimiterRedis, Sharing: 3,
		Redis: nodes.Redis{
			Reachable: true, Since: now.Add(-time.Minute), Err: "dial", Refusal: nodes.Refusal{
				Since: now.Add(-time.Second), Code: "OOM",
				Answer: "OOM no",
			},
			LostAt: now.Add(-time.Hour), Lost: "all", UsedMemory: 80, MaxMemory: 100,
			Keys:    []nodes.TenantKeys{{Tenant: "acme", Live: 5, Max: 10, Full: true}},
			Version: "7.2.5", MaxMemoryPolicy: "noeviction", Mismatches: 1, BreakerOpened: 2,
			RoundTrips: nodes.Latency{P50: 250 * time.Microsecond, P99: 4 * time.Millisecond, Calls: 1 << 40},
		},
		Snapshot: nodes.Snapshot{
			Revision: 1 << 50, ConfirmedAt: now.Add(-time.Second), Listening: true, Problems: 4,
			Held: "more than \"half\" <vanished>\x00\nü", Failing: true,
		},
		Database: nodes.Database{
			Refusal: nodes.Refusal{Since: now.Add(-time.Minute), Code: "full", Answer: "no space"},
			Report:  3 * time.Millisecond, Polls: nodes.Latency{P50: 1, P99: 999, Calls: 0},
		},
		Counts: nodes.Counts{
			Decisions: 10_000, Interval: 5 * time.Second, WaitingRows: 12_000, WaitingRefusals: 7, Waiting: 90 * time.Second,
			FlushedAt: now.Add(-2 * time.Minute), FailingSince: now.Add(-91 * time.Second), Failure: "no space", Folded: 8, NotKept: 9,
		},
		Process: nodes.Process{Heap: 1 << 30, Goroutines: 64},
	}
}

func (s *suite) put(n nodes.Node) {
	s.Helper()
	s.must(s.Store.PutNode(s.ctx, n))
}

// census reads all reports with the other Store, as another process does.
func (s *suite) census() nodes.Census {
	s.Helper()
	c, err := s.Other.Census(s.ctx)
	s.must(err)
	return c
}

// nodes gives the names, in order.
func (s *suite) nodeNames() []string {
	s.Helper()
	return ids(s.census().Nodes, func(n nodes.Node) string { return n.Name })
}

// age sets back the time at which a node was seen, independent of the clock of the
// database.
func (s *suite) age(id string, d time.Duration) {
	s.Helper()
	s.must(s.Exec(`UPDATE nodes SET seen_at_us = seen_at_us - $1 WHERE id = $2`, d.Microseconds(), id))
}

func testNodeRoundTrip(s *suite) {
	full := s.node("b:8080")
	full.Database.Polls = nodes.Latency{P50: time.Microsecond, P99: 2 * time.Microsecond, Calls: 3}
	empty := nodes.Node{ID: uuid.NewString(), Name: "a:8080"}
	s.put(full)
	s.put(empty)
	got := s.census()
	s.same("the newest revision", got.Revision, s.revision())
	if len(got.Nodes) != 2 {
		s.Fatalf("%d nodes, want 2", len(got.Nodes))
	}
	for i, want := range []nodes.Node{empty, full} {
		want.SeenAt = got.Nodes[i].SeenAt
		s.same(want.Name, got.Nodes[i], want)
	}
}

func testNodeReplaced(s *suite) {
	n := s.node("a:8080")
	s.put(n)
	s.age(n.ID, time.Hour)
	before := s.census().Nodes[0].SeenAt
	n.Name, n.Version, n.Draining = "b:8080", "1.2.4", false
	s.put(n)
	after := s.census().Nodes
	if len(after) != 1 || after[0].Name != "b:8080" || after[0].Version != "1.2.4" || after[0].Draining ||
		!after[0].SeenAt.After(before.Add(time.Minute)) {
		s.Errorf("nodes %+v, seen at %s before", after, before)
	}
}

func testNodeRemoved(s *suite) {
	a, b := s.node("a:8080"), s.node("b:8080")
	s.put(a)
	s.put(b)
	for range 2 { // the second call has nothing to do
		s.must(s.Store.RemoveNode(s.ctx, a.ID))
		s.same("left", s.nodeNames(), []string{"b:8080"})
	}
}

// If a process was killed and started again, the list shows only the new process, unless both still
// report.
func testNodeSuccessor(s *suite) {
	killed, twin, other := s.node("a:8080"), s.node("a:8080"), s.node("b:8080")
	for _, n := range []nodes.Node{killed, twin, other} {
		s.put(n)
	}
	s.age(killed.ID, nodes.Silence+time.Second)
	s.age(twin.ID, nodes.Silence/2)
	s.age(other.ID, nodes.Silence+time.Second)
	next := s.node("a:8080")
	next.StartedAt = next.StartedAt.Add(time.Minute)
	s.put(next)
	s.same("nodes", ids(s.census().Nodes, nodeID), []string{twin.ID, next.ID, other.ID})
}

func nodeID(n nodes.Node) string { return n.ID }

func testNodePrune(s *suite) {
	a, b, c := s.node("a:8080"), s.node("b:8080"), s.node("c:8080")
	for _, n := range []nodes.Node{a, b} {
		s.put(n)
	}
	s.age(a.ID, nodes.Keep+time.Minute)
	s.age(b.ID, nodes.Keep-time.Hour)
	s.put(c)
	s.same("nodes", s.nodeNames(), []string{"b:8080", "c:8080"})
}

// While nodes are upgraded one by one, each release reads the reports of the other.
func testNodeLenient(s *suite) {
	newer, older, broken := s.node("newer:8080"), s.node("older:8080"), s.node("broken:8080")
	for _, n := range []nodes.Node{newer, older, broken} {
		s.put(n)
	}
	docs := map[string]string{
		newer.ID:  `{"version": "2.0.0", "limiter": "leased", "snapshot": {"revision": 7, "shards": [1, 2]}, "moons": {"phobos": true}}`,
		older.ID:  `{"version": "0.9.0"}`,
		broken.ID: `{"version": 3`,
	}
	for id, doc := range docs {
		s.must(s.Exec(`UPDATE nodes SET doc = $1 WHERE id = $2`, doc, id))
	}
	got := s.census().Nodes
	for i := range got {
		if got[i].SeenAt.IsZero() {
			s.Errorf("%s was never seen", got[i].Name)
		}
		got[i].SeenAt = time.Time{}
	}
	s.same("nodes", got, []nodes.Node{
		{ID: broken.ID, Name: "broken:8080", Unreadable: true},
		{ID: newer.ID, Name: "newer:8080", Version: "2.0.0", Limiter: "leased", Snapshot: nodes.Snapshot{Revision: 7}},
		{ID: older.ID, Name: "older:8080", Version: "0.9.0"},
	})
}

func testNodeMax(s *suite) {
	doc, err := json.Marshal(map[string]string{"version": "1"})
	s.must(err)
	var rows strings.Builder
	for i := range nodes.MaxNodes + 1 {
		if i > 0 {
			rows.WriteString(", ")
		}
		fmt.Fprintf(&rows, "('%s', 'n%04d', %d, '%s')", uuid.NewString(), i, 1_000_000+i, doc)
	}
	s.must(s.Exec(`INSERT INTO nodes (id, name, seen_at_us, doc) VALUES ` + rows.String()))
	names := s.nodeNames()
	if len(names) != nodes.MaxNodes || names[0] != "n0001" { // the node with the oldest report is left out
		s.Errorf("%d nodes from %q on", len(names), names[0])
	}
}

// The clock of the Store stands still. It shows another time than the clock of the database.
func testNodeSeen(s *suite) {
	n := s.node("a:8080")
	s.put(n)
	first := s.census()
	s.Clock.Add(1000 * time.Hour)
	s.put(n)
	second := s.census()
	gone := second.At.Sub(first.At)
	if gone < 0 || gone > time.Hour {
		s.Errorf("from %s to %s: the clock of the node moved the database's", first.At, second.At)
	}
	for _, c := range []nodes.Census{first, second} {
		if seen := c.Nodes[0].SeenAt; seen.After(c.At) {
			s.Errorf("seen at %s, read at %s", seen, c.At)
		}
	}
	if second.Nodes[0].SeenAt.Before(first.Nodes[0].SeenAt) {
		s.Errorf("seen at %s, and later at %s", first.Nodes[0].SeenAt, second.Nodes[0].SeenAt)
	}
}

func testNodeNoEdit(s *suite) {
	s.tenant("acme", "")
	revision, lines := s.revision(), len(s.lines(audit.Filter{}))
	n := s.node("a:8080")
	s.put(n)
	s.must(s.Store.RemoveNode(s.ctx, n.ID))
	s.same("the revision", s.revision(), revision)
	s.same("audit lines", len(s.lines(audit.Filter{})), lines)
}

func testNodesTogether(s *suite) {
	gone := s.node("gone:8080")
	s.put(gone)
	s.age(gone.ID, 2*nodes.Keep)
	const nodes, times = 4, 8
	var wait sync.WaitGroup
	for i := range nodes {
		n := s.node(fmt.Sprintf("n%d:8080", i))
		store := s.Store
		if i%2 == 1 {
			store = s.Other
		}
		wait.Go(func() {
			for range times {
				if err := store.PutNode(s.ctx, n); err != nil {
					s.Error(err)
				}
			}
		})
	}
	wait.Wait()
	s.same("nodes", s.nodeNames(), []string{"n0:8080", "n1:8080", "n2:8080", "n3:8080"})
}
