package main

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/internal/retry"
)

// headEvery is how often a node logs the head of the audit log.
const headEvery = time.Hour

// publishHead logs the position and the hash of the last audit entry: at the start, every hour, and
// after the last request. An attacker who rewrites the whole hash chain in the database cannot
// change log lines that are stored elsewhere, so the hashes in these lines then differ.
func (n *node) publishHead(work context.Context, tasks *errgroup.Group, log *slog.Logger) {
	publish := func(ctx context.Context) {
		head, err := n.store.AuditHead(ctx)
		if err != nil {
			log.Warn("the head of the audit log cannot be read", "error", err)
			return
		}
		n.auditLines.Store(head.Seq)
		log.Info("audit head", "head", head.String())
	}
	tasks.Go(func() error {
		for publish(work); retry.Wait(work, headEvery) == nil; publish(work) {
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(work), logTimeout)
		defer cancel()
		publish(ctx)
		return nil
	})
}
