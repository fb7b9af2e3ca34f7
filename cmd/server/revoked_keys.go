package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/retry"
	"github.com/headgate/headgate/internal/snapshot"
)

// A revocationSource is a snapshot.Source that also records in list the API keys that the returned
// changes revoke.
type revocationSource struct {
	snapshot.Source
	list *revokedKeys
}

// Changes returns the changes of the Source, and records the API keys that they revoke.
func (r revocationSource) Changes(ctx context.Context, since int64) (snapshot.Changes, error) {
	changes, err := r.Source.Changes(ctx, since)
	if err == nil {
		r.list.note(&changes, time.Now())
	}
	return changes, err
}

// revokedKeys copies the IDs of revoked API keys from the database to Redis. If a node cannot read
// the database, its snapshot is old, or comes from the file on disk. Such a node reads the IDs from
// Redis, and rejects these keys.
type revokedKeys struct {
	limiter *redis.Limiter
	log     *slog.Logger
	changed chan struct{} // a signal that fresh has new elements; the channel has room for one signal

	mu     sync.Mutex
	loaded bool                 // set after the first call of note, which receives all keys
	ends   map[string]time.Time // times of revocation in the last redis.RevokedKept, by key ID
	fresh  map[string]time.Time // those elements of ends that are not in Redis yet
}

func newRevokedKeys(limiter *redis.Limiter, log *slog.Logger) *revokedKeys {
	return &revokedKeys{
		limiter: limiter, log: log, changed: make(chan struct{}, 1),
		ends: map[string]time.Time{}, fresh: map[string]time.Time{},
	}
}

// note records the API keys that changes revoke.
func (r *revokedKeys) note(changes *snapshot.Changes, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loaded = true
	oldest := now.Add(-redis.RevokedKept)
	maps.DeleteFunc(r.ends, func(_ string, at time.Time) bool { return at.Before(oldest) })
	add := func(id string, at time.Time) {
		if known, ok := r.ends[id]; at.Before(oldest) || ok && !at.Before(known) {
			return
		}
		r.ends[id], r.fresh[id] = at, at
	}
	for i := range changes.Keys {
		if k := &changes.Keys[i]; !k.RevokedAt.IsZero() {
			add(k.ID, k.RevokedAt)
		}
	}
	for _, t := range changes.Removed {
		if t.Kind == "key" || t.Kind == "operator_key" {
			add(t.ID, now) // the key's tenant was deleted
		}
	}
	if len(r.fresh) > 0 {
		select {
		case r.changed <- struct{}{}:
		default: // publish already has a signal
		}
	}
}

// take returns the revocations to publish, and empties fresh. If all is set, it returns all
// revocations in ends, otherwise those in fresh. If there is nothing to publish, it returns false.
func (r *revokedKeys) take(all bool) (sent map[string]time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.loaded || !all && len(r.fresh) == 0 {
		return nil, false
	}
	sent = r.fresh
	if all {
		sent = maps.Clone(r.ends)
	}
	r.fresh = map[string]time.Time{}
	return sent, true
}

const (
	revokedEvery   = time.Second
	revokedTimeout = time.Second
	// revokedAll is the interval at which a node publishes all revocations again. The list in Redis
	// expires later than that.
	revokedAll = time.Hour
)

// publish writes revocations to Redis until ctx ends. It writes a new revocation immediately. It
// writes all revocations in three cases: when the node starts, after Redis has lost data, and once
// an hour. If a write fails, publish tries again.
func (r *revokedKeys) publish(ctx context.Context) error {
	all, failed := true, false
	var epoch string // the epoch of Redis in which all revocations were last written
	var due time.Time
	for ctx.Err() == nil {
		now := r.limiter.Status().Epoch
		all = all || now != epoch || time.Now().After(due)
		if sent, ok := r.take(all); ok {
			writing, cancel := context.WithTimeout(ctx, revokedTimeout)
			err := r.limiter.AddRevoked(writing, sent, all)
			cancel()
			if err != nil && !failed {
				r.log.Warn("the list of revoked keys cannot be written to Redis; trying again", "error", err)
			}
			if err == nil && all {
				epoch, due = now, time.Now().Add(retry.Jitter(revokedAll))
			}
			all, failed = err != nil, err != nil
		}
		r.wait(ctx)
	}
	return nil
}

// wait returns when there is a new revocation, or after about revokedEvery.
func (r *revokedKeys) wait(ctx context.Context) {
	pause := time.NewTimer(retry.Jitter(revokedEvery))
	defer pause.Stop()
	select {
	case <-r.changed:
	case <-pause.C:
	case <-ctx.Done():
	}
}

// watchRevoked applies the list of revoked keys in Redis to the snapshot while the database is
// unavailable.
func (n *node) watchRevoked(ctx context.Context, log *slog.Logger) error {
	for retry.Wait(ctx, retry.Jitter(revokedEvery)) == nil {
		if n.watcher.Status().Err == nil {
			continue
		}
		reading, cancel := context.WithTimeout(ctx, revokedTimeout)
		found, err := n.shared.Revoked(reading)
		cancel()
		if err != nil {
			continue // the status of Redis has the reason
		}
		if revoked := n.watcher.Revoke(ctx, found.Ends); revoked > 0 {
			logRevoked(log, revoked)
		}
	}
	return nil
}

func logRevoked(log *slog.Logger, revoked int) {
	log.Warn("the database is away; keys that other nodes report as revoked are rejected", "keys", revoked)
}

// A savedSnapshot is the snapshot on disk. A node decides with it while the database is
// unavailable. It treats the API keys in Redis's list of revoked keys as invalid.
type savedSnapshot struct {
	limiter *redis.Limiter // nil without Redis
	saved   time.Time
	log     *slog.Logger
	current atomic.Pointer[snapshot.Snapshot]
	known   atomic.Bool // set if Redis has all revocations since the file was saved
}

// refresh reads the list of revoked keys from Redis once.
func (w *savedSnapshot) refresh(ctx context.Context) {
	if w.limiter == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, revokedTimeout)
	defer cancel()
	found, err := w.limiter.Revoked(ctx)
	if err != nil {
		return // the status of Redis has the reason; the next call may succeed
	}
	w.known.Store(!found.Since.IsZero() && !found.Since.After(w.saved))
	next, revoked := w.current.Load().Revoke(found.Ends)
	w.current.Store(next)
	if revoked > 0 {
		logRevoked(w.log, revoked)
	}
}

// run calls refresh until ctx ends.
func (w *savedSnapshot) run(ctx context.Context) error {
	if w.limiter == nil {
		return nil
	}
	for retry.Wait(ctx, retry.Jitter(revokedEvery)) == nil {
		w.refresh(ctx)
	}
	return nil
}

// warning returns a sentence for the operator. It says whether the node rejects keys that were
// revoked after the file was saved.
func (w *savedSnapshot) warning() string {
	if w.known.Load() {
		return "keys that were revoked since then are rejected, as other nodes report them in Redis"
	}
	return fmt.Sprintf("a key that was revoked after %s may be accepted: Redis has no list of the keys that were revoked since then",
		w.saved.UTC().Format(time.RFC3339))
}
