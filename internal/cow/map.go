// Package cow has a hash map with copy-on-write. Versions of a map share memory: an edit copies
// only the parts that it changes, and older versions stay unchanged.
//
// A snapshot consists of such maps.
package cow

import (
	"hash/maphash"
	"maps"
	"slices"
)

// perChunk is the maximum average number of entries in a chunk. If there are more, the Map gets
// more chunks. An edit of one entry copies one chunk and the list of all chunks. With 100,000
// entries, the edit copies up to 128 entries and a list of 50 kB.
const perChunk = 128

// An Owner identifies an edit. When an edit first changes a part of a Map, the Map copies this
// part. Later changes with the same Owner change the copy in place. Each edit uses a new Owner. The
// Owner must not be used after the new version is published.
type Owner struct{ _ byte } // not empty, because all pointers to empty structs may be equal

// A Map is a hash map that is divided into chunks. The zero value is an empty Map. A copy of the
// struct is a new version: if both are changed with different Owners, neither change affects the
// other version. Several goroutines may read a Map at the same time if no goroutine changes it.
type Map[K comparable, V any] struct {
	chunks []chunk[K, V] // the number of chunks is a power of two; nil without entries
	owner  *Owner        // the Owner that may change the slice chunks in place
	n      int
}

type chunk[K comparable, V any] struct {
	entries map[K]V
	owner   *Owner // the Owner that may change entries in place
}

var seed = maphash.MakeSeed()

func (m *Map[K, V]) at(k K) int {
	if len(m.chunks) == 1 {
		return 0
	}
	return int(maphash.Comparable(seed, k) & uint64(len(m.chunks)-1)) //nolint:gosec // at most the mask
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int { return m.n }

// Get returns the value for a key. ok is false if the key does not exist.
func (m *Map[K, V]) Get(k K) (v V, ok bool) {
	if m.n == 0 {
		return v, false
	}
	v, ok = m.chunks[m.at(k)].entries[k]
	return v, ok
}

// All calls yield for each entry, in any order.
func (m *Map[K, V]) All(yield func(K, V) bool) {
	for i := range m.chunks {
		for k, v := range m.chunks[i].entries {
			if !yield(k, v) {
				return
			}
		}
	}
}

// Chunks calls yield for each chunk with its index and its entries. written says whether the edit
// by has changed the chunk. yield must not change the entries.
func (m *Map[K, V]) Chunks(by *Owner, yield func(i int, entries map[K]V, written bool)) {
	for i := range m.chunks {
		yield(i, m.chunks[i].entries, m.chunks[i].owner == by)
	}
}

// NumChunks returns the number of chunks.
func (m *Map[K, V]) NumChunks() int { return len(m.chunks) }

// Put sets the value for a key. by is the Owner of the edit.
func (m *Map[K, V]) Put(by *Owner, k K, v V) {
	if m.chunks == nil {
		m.chunks, m.owner = make([]chunk[K, V], 1), by
	}
	entries := m.writable(by, m.at(k))
	before := len(entries)
	entries[k] = v
	m.n += len(entries) - before
	if m.n > perChunk*len(m.chunks) {
		m.grow(by)
	}
}

// Delete deletes a key. by is the Owner of the edit.
func (m *Map[K, V]) Delete(by *Owner, k K) {
	if _, ok := m.Get(k); !ok {
		return
	}
	if m.n == 1 {
		*m = Map[K, V]{}
		return
	}
	i := m.at(k)
	delete(m.writable(by, i), k)
	m.n--
	if len(m.chunks[i].entries) == 0 {
		m.chunks[i].entries = nil
	}
}

// writable returns the entries of a chunk, so that the edit by can change them. It copies the
// chunk, unless the edit has already copied it.
func (m *Map[K, V]) writable(by *Owner, i int) map[K]V {
	if m.owner != by {
		m.chunks, m.owner = slices.Clone(m.chunks), by
	}
	c := &m.chunks[i]
	if c.owner != by {
		c.entries, c.owner = maps.Clone(c.entries), by
	}
	if c.entries == nil {
		c.entries = make(map[K]V)
	}
	return c.entries
}

// grow distributes the entries of each chunk over four chunks.
func (m *Map[K, V]) grow(by *Owner) {
	old := m.chunks
	m.chunks, m.owner = make([]chunk[K, V], 4*len(old)), by
	for i := range m.chunks {
		m.chunks[i] = chunk[K, V]{entries: make(map[K]V, perChunk/4), owner: by}
	}
	for i := range old {
		for k, v := range old[i].entries {
			m.chunks[m.at(k)].entries[k] = v
		}
	}
}
