package snapshot

import (
	"hash/maphash"
	"maps"
)

// buckets is how many maps a table is made of. At 100,000 entries one has about
// a hundred, so that an edit copies microseconds' worth.
const buckets = 1024

// A table is an immutable map that a new version of it shares most of its
// memory with.
type table[K comparable, V any] struct {
	at     func(K) uint64 // which bucket; the same in all versions
	bucket [buckets]map[K]V
	n      int
}

func (t *table[K, V]) get(k K) (V, bool) {
	v, ok := t.bucket[t.at(k)%buckets][k]
	return v, ok
}

// all calls yield with every entry, in no order.
func (t *table[K, V]) all(yield func(K, V) bool) {
	for _, b := range t.bucket {
		for k, v := range b {
			if !yield(k, v) {
				return
			}
		}
	}
}

// An edit is a table that is being written: buckets are copied when they are
// first touched. The table it began with does not change.
type edit[K comparable, V any] struct {
	table[K, V]
	changed bool
	owned   [buckets]bool
	base    *table[K, V]
}

func editOf[K comparable, V any](base *table[K, V]) *edit[K, V] {
	return &edit[K, V]{table: *base, base: base}
}

func (e *edit[K, V]) own(k K) map[K]V {
	i := e.at(k) % buckets
	if !e.owned[i] {
		e.owned[i], e.changed = true, true
		if e.bucket[i] = maps.Clone(e.bucket[i]); e.bucket[i] == nil {
			e.bucket[i] = make(map[K]V)
		}
	}
	return e.bucket[i]
}

func (e *edit[K, V]) put(k K, v V) {
	b := e.own(k)
	before := len(b)
	b[k] = v
	e.n += len(b) - before
}

func (e *edit[K, V]) drop(k K) {
	if _, ok := e.get(k); !ok {
		return
	}
	delete(e.own(k), k)
	e.n--
}

// done gives the table, the old one if nothing was written. The edit must not
// be used afterwards.
func (e *edit[K, V]) done() *table[K, V] {
	if !e.changed {
		return e.base
	}
	t := e.table
	return &t
}

func newStringTable[V any]() *table[string, V] {
	seed := maphash.MakeSeed()
	return &table[string, V]{at: func(k string) uint64 { return maphash.String(seed, k) }}
}

// newHashTable is for keys that are SHA-256 sums: their first bytes are as good
// as any hash of them.
func newHashTable[V any]() *table[[32]byte, V] {
	return &table[[32]byte, V]{at: func(k [32]byte) uint64 { return uint64(k[0])<<8 | uint64(k[1]) }}
}

func newNumberTable[V any]() *table[uint32, V] {
	return &table[uint32, V]{at: func(k uint32) uint64 { return uint64(k) }}
}

func newObjectTable[V any]() *table[object, V] {
	seed := maphash.MakeSeed()
	return &table[object, V]{at: func(k object) uint64 { return maphash.String(seed, k.id) }}
}
