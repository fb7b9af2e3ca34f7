package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"
	runtimemetrics "runtime/metrics"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/snapshot"
)

// tell starts the task that writes reports about this node to the database. The dashboard lists the
// nodes that report. wire calls tell last, so that a node that fails to start is not listed.
func (n *node) tell(work context.Context, tasks *errgroup.Group, s *serveCommand, g *gate, log *slog.Logger) {
	a := &account{
		node: n, gate: g,
		always: nodes.Node{
			ID: n.id, Name: nodeName(s.listensAt), Version: version, GoVersion: runtime.Version(),
			StartedAt: time.Now(), Limiter: n.limiterKind, Sharing: s.Nodes,
		},
	}
	a.counted = a.always.StartedAt.Truncate(time.Second)
	n.beacon = nodes.NewBeacon(nodes.Config{Store: n.store, Report: a.report, Logger: log})
	n.fleet.ShowOwn(n.beacon)
	tasks.Go(func() error { return n.beacon.Run(work) })
}

// nodeName returns the name of this node for the dashboard: the host name and the port. If the node
// listens on only one interface, the name also contains the address of the listener.
func nodeName(at net.Addr) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	address, port, err := net.SplitHostPort(at.String())
	if ip := net.ParseIP(address); err == nil && ip != nil && ip.IsUnspecified() {
		return host + ":" + port
	}
	return host + " (" + at.String() + ")"
}

// An account makes the reports about this node. Only the goroutine of nodes.Beacon uses it.
type account struct {
	*node
	gate    *gate
	always  nodes.Node // the fields that do not change
	counted time.Time  // end of the last second whose decisions were reported
}

func (a *account) report(context.Context) nodes.Node {
	n := a.always
	n.Draining = a.gate.draining.Load()
	if a.shared != nil {
		status := a.shared.Status()
		n.Redis = nodes.Redis{
			Reachable: status.Reachable, Since: status.Since, Refusal: nodes.Refusal(status.Refusal), LostAt: status.Loss.At,
			Version: status.Version, MaxMemoryPolicy: status.MaxMemoryPolicy,
			Mismatches: status.Mismatches, BreakerOpened: status.BreakerOpened, RoundTrips: a.trips.Lap(),
		}
		n.Redis.UsedMemory, n.Redis.MaxMemory = status.UsedMemory, status.MaxMemory
		for _, k := range a.keys(mostKeysShown) {
			n.Redis.Keys = append(n.Redis.Keys, nodes.TenantKeys(k))
		}
		if !status.Loss.At.IsZero() {
			n.Redis.Lost = status.Loss.String()
		}
		if status.Err != nil {
			n.Redis.Err = brief(status.Err)
		}
	}
	n.Durable = a.durableReport()
	status := a.watcher.Status()
	n.Snapshot = nodes.Snapshot{
		Revision: status.Revision, ConfirmedAt: status.ConfirmedAt, Listening: status.Listening,
		Problems: status.Problems, Failing: status.Err != nil,
	}
	if status.Held != nil {
		n.Snapshot.Held = brief(status.Held)
	}
	n.Database.Polls = a.polls.Lap()
	n.Database.Refusal = a.store.WriteRefusal()
	n.Counts = a.counts()
	n.Process = used()
	return n
}

// brief returns the text of an error, shortened to 300 bytes.
func brief(err error) string {
	const most = 300
	text := err.Error()
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// counts returns the number of decisions in the complete seconds since the last report, and the
// state of the counts that are not in the database yet.
func (a *account) counts() nodes.Counts {
	waiting := a.flusher.Status()
	c := nodes.Counts{
		WaitingRows: int64(waiting.WaitingRows), WaitingRefusals: int64(waiting.WaitingRefusals), Waiting: waiting.Waiting,
		FlushedAt: waiting.FlushedAt, FailingSince: waiting.FailingSince, Folded: waiting.Folded, NotKept: waiting.NotKept,
	}
	if waiting.Failure != nil {
		c.Failure = "the log has the error"
		if p := (*problem.Problem)(nil); errors.As(waiting.Failure, &p) {
			c.Failure = p.Message
		}
	}
	seconds := a.recorder.Seconds(0, a.counted)
	for i := range seconds {
		c.Decisions += seconds[i].Requests
		a.counted = seconds[i].At.Add(time.Second)
	}
	c.Interval = time.Duration(len(seconds)) * time.Second
	return c
}

// used returns the size of the heap and the number of goroutines. It reads runtime/metrics,
// which does not stop the program.
func used() nodes.Process {
	samples := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	runtimemetrics.Read(samples)
	return nodes.Process{Heap: int64(samples[0].Value.Uint64()), Goroutines: int64(samples[1].Value.Uint64())}
}

// A timed is a snapshot.Source that also measures how long its method Revision takes.
type timed struct {
	snapshot.Source
	polls *nodes.Stopwatch
}

// Revision calls the Source and records the latency of a successful call.
func (t timed) Revision(ctx context.Context) (int64, error) {
	began := time.Now()
	revision, err := t.Source.Revision(ctx)
	if err == nil {
		t.polls.Observe(time.Since(began))
	}
	return revision, err
}
