//go:build !quick

package main

import (
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/store"
)

// overview returns a function that reads the state of all nodes from the database.
func overview(t *testing.T, url string) func() nodes.Overview {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: url, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	service := nodes.NewService(s)
	return func() nodes.Overview {
		t.Helper()
		o, err := service.Overview(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
}

// at returns the report of the node that listens on the port of a process.
func at(t *testing.T, o nodes.Overview, p *process) (nodes.Report, bool) {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(p.origin, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(o.Nodes, func(r nodes.Report) bool { return strings.HasSuffix(strings.TrimSuffix(r.Name, ")"), ":"+port) })
	if i < 0 {
		return nodes.Report{}, false
	}
	return o.Nodes[i], true
}

// Three processes report their state. A killed one becomes silent. A stopped one is not
// reported as missing.
func TestNodesTellOfThemselves(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, map[string]string{"HEADGATE_NODES": "3"})
	read := overview(t, f.databaseURL)
	f.publish("plan", `[{"slug": "all", "limits": [{"algorithm": "fixed_window", "quota": 1000, "window": "1d"}]}]`)
	f.tenant("acme", "plan")
	ids := map[string]bool{}
	for i, node := range f.nodes {
		var said nodes.Report
		eventually(t, fmt.Sprintf("node %d tells of what it timed", i), func() bool {
			said, _ = at(t, read(), node)
			return said.Database.Report > 0 && said.Database.Polls.Calls > 0 && said.Redis.RoundTrips.Calls > 0
		})
		if !said.Redis.Reachable || said.Limiter != nodes.LimiterRedis || said.Sharing != 3 || said.Version != version || said.Draining ||
			!said.Snapshot.Listening || said.Snapshot.ConfirmedAt.IsZero() || said.Redis.Version == "" || said.Process.Heap == 0 || said.Process.Goroutines == 0 {
			t.Errorf("node %d says %+v", i, said.Node)
		}
		if polls, trips := said.Database.Polls, said.Redis.RoundTrips; polls.P50 <= 0 || polls.P99 < polls.P50 || trips.P50 <= 0 || trips.P99 < trips.P50 {
			t.Errorf("node %d timed %+v and %+v", i, polls, trips)
		}
		eventually(t, fmt.Sprintf("node %d tells of what it decides", i), func() bool {
			call(t, bootstrap, "POST", node.origin+"/v1/check", `{"tenant": "acme"}`)
			said, _ = at(t, read(), node)
			return said.Counts.Decisions > 0 && said.Counts.Interval > 0
		})
		ids[said.ID] = true
	}
	eventually(t, "all have the newest revision", func() bool {
		o := read()
		return len(o.Nodes) == 3 && !slices.ContainsFunc(o.Nodes, func(r nodes.Report) bool { return r.Behind > 0 || r.Silent }) && o.OneVersion()
	})
	if len(ids) != 3 {
		t.Errorf("the processes have the ids %v", ids)
	}

	stays, killed, stopped := f.nodes[0], f.nodes[1], f.nodes[2]
	if err := killed.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := stopped.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-killed.ended
	<-stopped.ended
	if r, there := at(t, read(), stopped); there {
		t.Errorf("the stopped node is still shown: %+v", r)
	}
	eventually(t, "the killed node is silent", func() bool {
		r, there := at(t, read(), killed)
		return there && r.Silent && len(r.Verdicts) == 1 && r.Verdicts[0].Code == "silent"
	})
	eventually(t, "the other one is not", func() bool {
		r, there := at(t, read(), stays)
		return there && !r.Silent
	})
}

// A node reports that it drains. A node that is killed and started again at the same address is
// one node in the overview.
func TestNodeThatIsStartedAgain(t *testing.T) {
	t.Parallel()
	settings := map[string]string{
		"HEADGATE_ADDR": freeAddr(t), "HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()),
		"HEADGATE_SHUTDOWN_DELAY": "5m", "HEADGATE_SHUTDOWN_TIMEOUT": "10m",
	}
	first := launch(t, settings).serving()
	read := overview(t, settings["HEADGATE_DATABASE_URL"])
	var before nodes.Report
	eventually(t, "the node tells of itself", func() (there bool) {
		before, there = at(t, read(), first)
		return there
	})
	if before.Limiter != nodes.LimiterInProcess || !reflect.ValueOf(before.Redis).IsZero() || before.Draining {
		t.Errorf("the node says %+v", before.Node)
	}
	if err := first.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node says that it stops", func() bool {
		r, _ := at(t, read(), first)
		return r.Draining
	})
	if err := first.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.ended
	second := launch(t, settings).serving()
	eventually(t, "the new process takes the place of the old one", func() bool {
		o := read()
		r, there := at(t, o, second)
		return there && len(o.Nodes) == 1 && r.ID != before.ID && r.StartedAt.After(before.StartedAt)
	})
}
