package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/nodes"
)

// restoreWait is how long a starting node waits for the durable limits in Redis to be restored.
// Usually a restoration takes less time, even if it waits for nodes that crashed.
const restoreWait = 10 * time.Second

// restoreDurable starts the task that writes the states of the durable limits to the database. If
// the limiter has lost these states, restoreDurable restores them from the database. The in-process
// limiter of a node without Redis loses them at each end of the process. A node with Redis waits at
// most restoreWait for the restoration, and then starts anyway.
func (n *node) restoreDurable(ctx, work context.Context, tasks *errgroup.Group, log *slog.Logger) error {
	n.journal.Open(n.store)
	tasks.Go(func() error { return n.journal.Run(work) })
	if n.shared == nil {
		began := time.Now()
		restored, err := n.journal.Restore(ctx, n.local.Restore)
		if err != nil {
			return fmt.Errorf("restore the durable limits: %w", err)
		}
		log.Info("durable limits are restored", "counters", restored, "took", time.Since(began).Round(time.Millisecond).String())
		return nil
	}
	tasks.Go(func() error { return n.shared.KeepRestored(work, n.journal) })
	ctx, cancel := context.WithTimeout(ctx, restoreWait)
	defer cancel()
	n.shared.Restored(ctx)
	return nil
}

// liveNodes returns the IDs of the nodes whose last report is recent.
func (n *node) liveNodes(ctx context.Context) (ids []string, err error) {
	census, err := n.store.Census(ctx)
	for i := range census.Nodes {
		if node := &census.Nodes[i]; !node.Silent(census.At) {
			ids = append(ids, node.ID)
		}
	}
	return ids, err
}

func (n *node) durableState() metrics.DurableState {
	written := n.journal.Status()
	s := metrics.DurableState{
		Waiting: written.Waiting, WaitingFor: written.WaitingFor, Written: written.Written, NotKept: written.NotKept,
	}
	if n.shared != nil {
		status := n.shared.Status()
		s.Restoring, s.Restored = !status.Unrestored.IsZero(), status.Restored
	}
	return s
}

// durableReport returns the state of the durable limits for the dashboard.
func (n *node) durableReport() nodes.Durable {
	written := n.journal.Status()
	d := nodes.Durable{Waiting: written.Waiting, NotKept: written.NotKept}
	if written.Waiting > 0 {
		d.WaitingSince = time.Now().Add(-written.WaitingFor)
	}
	if n.shared != nil {
		d.LostSince = n.shared.Status().Unrestored
	}
	return d
}

// warnOfDurable adds warnings if the durable limits are lost, or if their states are not
// written to the database.
func (n *node) warnOfDurable(r *api.Readiness) {
	if n.shared != nil {
		if since := n.shared.Status().Unrestored; !since.IsZero() {
			r.Degraded = true
			r.Warnings = append(r.Warnings, "the durable limits have been lost since "+instant(since)+
				" and are not restored yet: the policies' on_failure answers")
		}
	}
	if s := n.journal.Status(); !s.FailingSince.IsZero() {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the states of durable limits have not been written since %s: %d wait, the oldest for %s",
			instant(s.FailingSince), s.Waiting, s.WaitingFor.Truncate(time.Second)))
	}
}
