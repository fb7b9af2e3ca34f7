package snapshot

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Revoke ends keys of tenants and of the operator in a new snapshot of the same revision. It never
// extends the life of a key, and the former snapshot does not change.
func TestRevoke(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	now, before := at.UnixMicro(), at.Add(-time.Minute)
	w := smallWorld(3)
	rotated := aKey("rotated", 1)
	rotated.RevokedAt = at.Add(time.Hour)
	w.putKey(rotated)
	old := aKey("old", 1)
	old.RevokedAt = at.Add(-time.Hour)
	w.putKey(old)
	s := compile(t, nil, w.changes(), Options{Now: func() time.Time { return at }})
	if !s.HasOperatorKey() {
		t.Fatal("there is no operator key")
	}

	next, revoked := s.Revoke(map[string]time.Time{"key-2": before, "op": before, "rotated": before, "old": before, "of another database": before})
	if revoked != 3 || next.Revision() != s.Revision() || next.HasOperatorKey() {
		t.Errorf("%d keys are revoked at revision %d, operator key: %t", revoked, next.Revision(), next.HasOperatorKey())
	}
	for id, want := range map[string]bool{"key-1": true, "key-2": false, "key-3": true, "op": false, "rotated": false, "old": false} {
		k, ok := next.Key(keyHash(id))
		if !ok || k.Valid(now) != want {
			t.Errorf("%s is valid: %t, want %t", id, ok && k.Valid(now), want)
		}
	}
	if k, _ := next.Key(keyHash("old")); k.RevokedAt != old.RevokedAt.UnixMicro() {
		t.Error("a key that was revoked earlier has a later end")
	}
	if k, _ := s.Key(keyHash("key-2")); !k.Valid(now) || !s.HasOperatorKey() {
		t.Error("the former snapshot changed")
	}
	if again, n := next.Revoke(map[string]time.Time{"key-2": at, "op": before}); again != next || n != 0 {
		t.Error("revoking again makes a new snapshot")
	}
}

// A node whose source is away ends keys that others report. When the source is back, its rows
// count: also those of a restored backup in which a key is not revoked.
func TestRevokeWhileTheSourceIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := smallWorld(3)
		watcher := watch(t, w, Config{Poll: time.Second, FullReload: time.Hour})
		w.with(func() { w.away = errors.New("connection refused") })
		pass(2 * time.Second)
		if n := watcher.Revoke(t.Context(), map[string]time.Time{"key-1": time.Now(), "key-2": time.Now()}); n != 2 {
			t.Fatalf("%d keys are revoked", n)
		}
		valid := func(id string) bool {
			k, ok := watcher.Current().Key(keyHash(id))
			return ok && k.Valid(time.Now().UnixMicro())
		}
		if valid("key-1") || valid("key-2") || !valid("key-3") {
			t.Error("other keys than the revoked ones ended")
		}
		revoked := aKey("key-1", 1)
		revoked.RevokedAt = time.Now()
		w.putKey(revoked)
		w.with(func() { w.away = nil })
		pass(2 * time.Second)
		if watcher.Status().Err != nil || valid("key-1") || valid("key-2") {
			t.Error("a key is valid again")
		}
		pass(2 * time.Hour)
		if valid("key-1") || !valid("key-2") {
			t.Error("a full reload does not use the stored keys")
		}
	})
}
