//go:build !quick

package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A killed node does not return the units of its leases. The other nodes then allow at most the
// limit, and at least the limit minus the units that one node can lease. The whole limit is
// available when the lease has ended: in the next window, or for a bucket once it is full.
func TestKilledNodeHoldsLeases(t *testing.T) {
	t.Parallel()
	const nodes, cost = 3, 5
	f := startCluster(t, nodes, map[string]string{"HEADGATE_NODES": "3"})
	f.publish("plan", `[
		{"slug": "window", "match": {"path": "/window"}, "consistency": "leased",
			"limits": [{"algorithm": "fixed_window", "quota": 6000, "window": "1d"}]},
		{"slug": "bucket", "match": {"path": "/bucket"}, "consistency": "leased",
			"limits": [{"algorithm": "token_bucket", "quota": 1000, "window": "10s", "burst": 1000}]}]`)
	f.tenant("acme", "plan")
	f.everywhere(`{"tenant": "acme", "path": "/window", "cost": 0}`, func(a answer) bool { return a.status == 200 })

	killed := f.nodes[0]
	s := &leaseFlood{t: t, cost: cost, killed: killed}
	var all sync.WaitGroup
	began := time.Now()
	for i := range 4 * nodes {
		all.Go(func() { s.flood(f.nodes[i%nodes]) })
	}
	eventually(t, "the node that will be killed holds quota", func() bool {
		return leaseMetric(t, killed, "headgate_leases_held_units") > 0 && leaseMetric(t, killed, "headgate_leases_checks_total") > 0 || s.over.Load()
	})
	if err := killed.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-killed.ended
	all.Wait()
	took := time.Since(began)

	// A call that was in progress may have been charged without a response, so a second batch
	// can be missing.
	window, bucket := s.window.Load(), s.bucket.Load()
	if least := 6000 - 2*6000/(10*nodes); window > 6000 || window < int64(least) {
		t.Errorf("%d units of the window were admitted, want %d to 6000", window, least)
	}
	if most := 1000 + took.Milliseconds()/10 + 1; bucket > most {
		t.Errorf("%d units of the bucket were admitted in %s, want at most %d", bucket, took, most)
	}
	t.Logf("%d of 6000 units of the window and %d of the bucket were admitted in %s", window, bucket, took)

	for _, node := range f.nodes[1:] {
		drawn, spent := leaseMetric(t, node, "headgate_leases_drawn_units_total"), leaseMetric(t, node, "headgate_leases_spent_units_total")
		returned, held := leaseMetric(t, node, "headgate_leases_returned_units_total"), leaseMetric(t, node, "headgate_leases_held_units")
		if drawn == 0 || spent > drawn || spent+returned > drawn {
			t.Errorf("a node drew %d units, spent %d, returned %d and holds %d", drawn, spent, returned, held)
		}
	}
	eventually(t, "the bucket is full", func() bool {
		return s.remaining(f.nodes[1], "/bucket") == 1000
	})
}

// A leaseFlood sends checks to nodes until the limits are used up.
type leaseFlood struct {
	t              *testing.T
	cost           int
	killed         *process
	window, bucket atomic.Int64 // units that were allowed
	over           atomic.Bool  // a caller was denied often enough
}

// flood sends checks for both limits to a node until each of them denied ten checks, or the
// node is killed.
func (s *leaseFlood) flood(node *process) {
	paths := []struct {
		path     string
		admitted *atomic.Int64
		denied   int
	}{{"/window", &s.window, 0}, {"/bucket", &s.bucket, 0}}
	for paths[0].denied < 10 || paths[1].denied < 10 {
		for i := range paths {
			p := &paths[i]
			a, err := tryCall(s.t.Context(), bootstrap, "POST", node.origin+"/v1/check",
				fmt.Sprintf(`{"tenant": "acme", "path": %q, "cost": %d}`, p.path, s.cost))
			switch {
			case err != nil && node == s.killed:
				return
			case err != nil:
				s.t.Error(err)
				return
			case a.status == 200:
				p.admitted.Add(int64(s.cost))
			case a.status == 429:
				p.denied++
			default:
				s.t.Errorf("status %d: %s", a.status, a.body)
				return
			}
		}
	}
	s.over.Store(true)
}

// remaining returns the remaining units of the limit for a path.
func (s *leaseFlood) remaining(node *process, path string) int64 {
	a := call(s.t, bootstrap, "POST", node.origin+"/v1/check", fmt.Sprintf(`{"tenant": "acme", "path": %q, "mode": "peek", "cost": 0}`, path)).want(s.t, 200)
	var decision struct {
		Limits []struct{ Remaining int64 }
	}
	if err := json.Unmarshal([]byte(a.body), &decision); err != nil || len(decision.Limits) != 1 {
		s.t.Fatalf("%v: %s", err, a.body)
	}
	return decision.Limits[0].Remaining
}

// leaseMetric reads a metric of a node.
func leaseMetric(t *testing.T, node *process, name string) int64 {
	t.Helper()
	text := call(t, "", "GET", node.origin+"/metrics", "").want(t, 200).body
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("/metrics has no %s", name)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(n)
}
