//go:build !quick

package main

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const durablePolicies = `[{"slug": "monthly", "on_failure": "closed", "limits": [
	{"algorithm": "fixed_window", "quota": %d, "window": "month"}, {"algorithm": "gcra", "quota": %[1]d, "window": "366d", "durable": true}]}]`

// metric returns the value of a metric of a node, as text.
func metric(t *testing.T, node *process, name string) string {
	t.Helper()
	for line := range strings.Lines(call(t, "", "GET", node.origin+"/metrics", "").body) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// charge charges n units on each node at the same time, and returns how many checks passed.
// It repeats checks that were answered 503.
func (f *cluster) charge(n int) (passed int64) {
	f.t.Helper()
	var count atomic.Int64
	var all sync.WaitGroup
	for _, node := range f.nodes {
		for range 8 {
			all.Go(func() {
				for range n / 8 {
					status, began := http.StatusServiceUnavailable, time.Now()
					for status == http.StatusServiceUnavailable && time.Since(began) < patience {
						status = call(f.t, bootstrap, "POST", node.origin+"/v1/check", `{"tenant": "acme"}`).status
						runtime.Gosched()
					}
					switch status {
					case http.StatusOK:
						count.Add(1)
					case http.StatusTooManyRequests:
					default:
						f.t.Errorf("a check was answered %d", status)
						return
					}
				}
			})
		}
	}
	all.Wait()
	return count.Load()
}

// flushed waits until the states of all nodes are in the database.
func (f *cluster) flushed() {
	f.t.Helper()
	for _, node := range f.nodes {
		eventually(f.t, "the states are written", func() bool {
			return metric(f.t, node, "headgate_durable_waiting_states") == "0"
		})
	}
}

// After a kill and a restart, a node without Redis allows exactly the rest of the quota of
// durable limits. A reset stays in force.
func TestDurableLimitsAfterAKill(t *testing.T) {
	t.Parallel()
	const quota, first = 300, 200
	settings := map[string]string{"HEADGATE_SAMPLE": "false", "HEADGATE_SHUTDOWN_DELAY": "0s"}
	folder := t.TempDir()
	startNode := func() *cluster {
		return &cluster{t: t, nodes: []*process{launchIn(t, folder, settings, "serve").serving()}}
	}
	f := startNode()
	f.publish("plan", fmt.Sprintf(durablePolicies, quota))
	f.tenant("acme", "plan")
	if n := f.charge(first); n != first {
		t.Fatalf("%d of %d checks passed", n, first)
	}
	f.flushed()
	kill := func() {
		if err := f.nodes[0].command.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-f.nodes[0].ended
		f = startNode()
	}
	kill()
	if n := f.charge(160); n != quota-first {
		t.Errorf("%d more checks passed, want exactly %d", n, quota-first)
	}
	call(t, bootstrap, "POST", f.nodes[0].origin+"/v1/tenants/acme/reset", `{"policy": "monthly", "key": {}, "reason": "test"}`).want(t, http.StatusNoContent)
	kill()
	if n := f.charge(160); n != 160 {
		t.Errorf("%d of 160 checks passed after the reset", n)
	}
	f.flushed()
	// A node writes the states to the database at intervals. Units that are charged after the
	// last write may be allowed again after a kill.
	f.charge(80)
	kill()
	if n := f.charge(400); n < quota-240 || n > quota-160 {
		t.Errorf("%d more checks passed after a kill right after 80 checks, want %d to %d", n, quota-240, quota-160)
	}
}
