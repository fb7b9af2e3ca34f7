package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/retry"
	"github.com/headgate/headgate/internal/usage"
)

func (n *node) redisState() func() metrics.RedisState {
	if n.shared == nil {
		return nil
	}
	return func() metrics.RedisState {
		status := n.shared.Status()
		return metrics.RedisState{
			Reachable: status.Reachable, BreakerOpen: !status.Reachable, Mismatches: status.Mismatches,
			Calls: status.Calls, Recalled: status.Recalled, Losses: status.Losses,
			UsedMemory: status.UsedMemory, MaxMemory: status.MaxMemory, Keys: n.keys(metrics.MostTenantKeys),
			Refusing: metrics.Refusing{Since: status.Refusal.Since, Code: status.Refusal.Code},
		}
	}
}

// mostKeysShown is the maximum number of tenants in a list of the tenants that are closest to their maximum number of
// counters. GET /readyz and the System page use this list.
const mostKeysShown = 20

// keys returns at most most tenants with their number of counters in Redis and their maximum
// number. It returns the tenants that are closest to their maximum.
func (n *node) keys(most int) (list []metrics.TenantKeys) {
	if n.watcher == nil { // nil while the node serves from the snapshot on disk
		return nil
	}
	world := n.watcher.Current()
	if world == nil {
		return nil
	}
	for _, k := range n.shared.Tenants(most) {
		if s, ok := world.SubjectByNumber(k.Tenant); ok {
			list = append(list, metrics.TenantKeys{Tenant: s.Tenant, Live: k.Live, Max: k.Bound, Full: k.Full})
		}
	}
	return list
}

// counters returns the number of live counters of a tenant in the limiter that decides its checks.
func (n *node) counters(ctx context.Context, s *enforcement.Subject) (c usage.Counters, err error) {
	if n.shared == nil {
		c.Live, c.Max = n.local.KeysOf(s.Number, s.MaxKeys)
		c.Full = c.Live >= c.Max
		return c, nil
	}
	var cells []uint32
	for _, r := range s.Plan.Rules {
		for i := range r.Limits {
			cells = append(cells, r.Limits[i].Cell)
		}
	}
	found, err := n.shared.KeysOf(ctx, s.Home, s.Number, cells, s.MaxKeys)
	return usage.Counters{Live: found.Live, Max: found.Bound, Full: found.Full}, err
}

// epochSetting is the name of the stored setting that holds the last known redis.Status.Epoch. If
// Redis loses data, its epoch changes.
const epochSetting = "redis_epoch"

// noteLosses writes an audit entry each time Redis has lost data, even if no node was running at
// that time. The first node that stores the new epoch writes the entry. If the database returns an
// error, noteLosses tries again.
func (n *node) noteLosses(ctx context.Context, log *slog.Logger) error {
	var noted string
	var losses int64 // number of losses of this process that an entry already covers
	for expected := false; retry.Wait(ctx, time.Second) == nil; {
		if !expected {
			was, err := n.store.Setting(ctx, epochSetting)
			if expected = err == nil && n.shared.Expect(was); !expected {
				continue
			}
			noted = was
		}
		status := n.shared.Status()
		if status.Epoch == noted {
			continue
		}
		entry := audit.Entry{Action: "redis.lost", Object: "redis", ObjectName: "Redis"}
		entry = audit.Complete(ctx, entry, nil, lossLine{status.Loss.String(), instant(status.Loss.At), max(status.Losses-losses, 1)})
		if err := n.store.NoteSetting(ctx, epochSetting, status.Epoch, entry); err != nil {
			log.Warn("the audit line of lost counts is not written; trying again", "error", err)
			continue
		}
		noted, losses = status.Epoch, status.Losses
	}
	return nil
}

// A lossLine is the document of the audit entry about lost data. If the entry covers several
// losses, What and NoticedAt describe the last one.
type lossLine struct {
	What      string `json:"what"`
	NoticedAt string `json:"noticed_at"`
	Losses    int64  `json:"losses"` // number since the entry before
}
