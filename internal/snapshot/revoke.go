package snapshot

import (
	"context"
	"time"
)

// Revoke returns a snapshot of the same revision in which some API keys end. ends maps the ID of a
// key to the time of its end. A key that already ends earlier keeps its end. Revoke ignores IDs of
// unknown keys. revoked is the number of changed keys. If it is 0, Revoke returns s.
func (s *Snapshot) Revoke(ends map[string]time.Time) (next *Snapshot, revoked int) {
	var b *builder
	for id, at := range ends {
		ref, ok := s.keyIDs.Get(id)
		if !ok {
			continue
		}
		k, ok := s.keys.Get(ref.hash)
		if !ok || k.ID != id || k.RevokedAt != 0 && k.RevokedAt <= micros(at) {
			continue
		}
		if b == nil {
			b = newBuilder(s, Changes{Revision: s.revision}, Options{Now: s.now})
		}
		ended := *k
		ended.RevokedAt = micros(at)
		b.putKey(ref.hash, ended, k.Subject)
		revoked++
	}
	if b == nil {
		return s, 0
	}
	b.finish()
	return &b.Snapshot, revoked
}

// Revoke ends keys of the current snapshot; see [Snapshot.Revoke]. It is for a node whose database
// is unavailable. When the database is available again, its next changes contain the same
// revocations. Revoke returns the number of changed keys.
func (w *Watcher) Revoke(ctx context.Context, ends map[string]time.Time) (revoked int) {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	defer func() { <-w.turn }()
	current := w.current.Load()
	if current == nil {
		return 0
	}
	next, revoked := current.Revoke(ends)
	w.current.Store(next)
	return revoked
}
