// Package cow holds a hash map whose versions share memory: an edit copies only
// the part of the map that it writes, and every older version stays as it was.
//
// Compiled snapshots consist of such maps.
package cow

import (
	"hash/maphash"
	"maps"
	"slices"
)

// perChunk is the average number of entries of a chunk above which a Map makes more
// chunks; an edit of one entry copies one chunk and the slice of all chunks. At
// 100,000 entries that is up to 128 entries and 50 kB.
const perChunk = 128

// An Owner allows its holder to write in place. Each edit creates an Owner, and drops it
// when its version is published.
type Owner struct{ _ byte } // not empty, so that no two owners share an address

// A Map is a hash map in chunks. The zero value is an empty Map. A copy of the
// struct is a version of its own, if each of the two is written with another
// Owner. A Map may be read by several goroutines, and written by none meanwhile.
type Map[K comparable, V any] struct {
	chunks []chunk[K, V] // a power of two of them; nil without entries
	owner  *Owner        // writes chunks in place
	n      int
}

type chunk[K comparable, V any] struct {
	entries map[K]V
	owner   *Owner // writes entries in place
}

var seed = maphash.MakeSeed()

func (m *Map[K, V]) at(k K) int {
	if len(m.chunks) == 1 {
		return 0
	}
	return int(maphash.Comparable(seed, k) & uint64(len(m.chunks)-1)) //nolint:gosec // the mask keeps it small
}

// Len is the number of entries.
func (m *Map[K, V]) Len() int { return m.n }

// Get returns the value of a key.
func (m *Map[K, V]) Get(k K) (v V, ok bool) {
	if m.n == 0 {
		return v, false
	}
	v, ok = m.chunks[m.at(k)].entries[k]
	return v, ok
}

// All calls yield with every entry, in no order.
func (m *Map[K, V]) All(yield func(K, V) bool) {
	for i := range m.chunks {
		for k, v := range m.chunks[i].entries {
			if !yield(k, v) {
				return
			}
		}
	}
}

// Chunks calls yield with the entries of every chunk, by its number, and with
// whether an edit wrote it. The entries must not be written.
func (m *Map[K, V]) Chunks(by *Owner, yield func(i int, entries map[K]V, written bool)) {
	for i := range m.chunks {
		yield(i, m.chunks[i].entries, m.chunks[i].owner == by)
	}
}

// NumChunks is the number of chunks.
func (m *Map[K, V]) NumChunks() int { return len(m.chunks) }

// Put sets the value of a key.
func (m *Map[K, V]) Put(by *Owner, k K, v V) {
	if m.chunks == nil {
		m.chunks, m.owner = make([]chunk[K, V], 1), by
	}
	entries := m.own(by, m.at(k))
	before := len(entries)
	entries[k] = v
	m.n += len(entries) - before
	if m.n > perChunk*len(m.chunks) {
		m.grow(by)
	}
}

// Delete removes a key.
func (m *Map[K, V]) Delete(by *Owner, k K) {
	if _, ok := m.Get(k); !ok {
		return
	}
	if m.n == 1 {
		*m = Map[K, V]{}
		return
	}
	i := m.at(k)
	delete(m.own(by, i), k)
	m.n--
	if len(m.chunks[i].entries) == 0 {
		m.chunks[i].entries = nil
	}
}

// own returns the entries of a chunk for writing.
func (m *Map[K, V]) own(by *Owner, i int) map[K]V {
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

// grow makes four chunks of each.
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
