package snapshot

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/tenants"
)

func (b *builder) addKey(row *tenants.Key) {
	b.report.Keys++
	fail := func(format string, args ...any) {
		b.fault(row.Kind(), row.ID, row.Name, row.Revision, false, fmt.Errorf("key %s: %w", row.ID, fmt.Errorf(format, args...)))
	}
	if holder, ok := b.keys.Get(row.Hash); row.Hash == [32]byte{} || ok && holder.ID != row.ID {
		fail("its hash is empty or that of another key")
		b.removeKey(row.ID) // a key with an ambiguous row must not authenticate requests
		return
	}
	b.good(row.Kind(), row.ID)
	set, ok := ScopesOf(row.Scopes)
	if !ok {
		fail("an unknown scope in %q; it grants nothing", row.Scopes)
	}
	if ref, ok := b.keyIDs.Get(row.ID); ok && (ref.hash != row.Hash || ref.tenantID != row.TenantID) {
		b.removeKey(row.ID)
	}
	if _, ok := b.keyIDs.Get(row.ID); !ok {
		b.keyIDs.Put(b.by, row.ID, keyRef{hash: row.Hash, tenantID: row.TenantID})
		if !row.Operator() {
			t := b.record(row.TenantID)
			t.keys = append(t.keys, row.Hash)
		}
	}
	var subject *enforcement.Subject
	if !row.Operator() {
		t, _ := b.tenants.Get(row.TenantID)
		subject = t.subject
	}
	b.putKey(row.Hash, Key{
		ID: row.ID, Name: row.Name, Operator: row.Operator(), Scopes: set,
		ExpiresAt: micros(row.ExpiresAt), RevokedAt: micros(row.RevokedAt), Bounds: row.Bounds,
		AllowedIPs: row.AllowedIPs, used: b.useOf(row.Hash),
	}, subject)
}

// useOf returns the variable that holds the time of the last use of a key. If the previous snapshot
// has the key, useOf returns the variable of that snapshot. Otherwise it returns a new variable.
func (b *builder) useOf(hash [32]byte) *atomic.Int64 {
	if b.previous != nil {
		if k, ok := b.previous.keys.Get(hash); ok {
			return k.used
		}
	}
	return new(atomic.Int64)
}

func (b *builder) putKey(hash [32]byte, k Key, s *enforcement.Subject) {
	k.Subject = s
	b.keys.Put(b.by, hash, &k)
	if k.Operator {
		b.operators[k.ID] = &k
	}
}

// micros returns a time in microseconds since the epoch, or 0 for the zero time. For a time at or
// before the epoch it returns 1, because 0 would mean the zero time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(t.UnixMicro(), 1)
}
