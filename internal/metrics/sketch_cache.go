package metrics

import (
	"cmp"
	"hash/maphash"
	"sync"
	"unsafe"
)

// Decoding sketches takes most of the time of a query, and the sketches of past hours and days
// rarely change. Therefore a memory caches decoded sketches. The cache returns a sketch only if its
// stored text has not changed since it was decoded.

// maxRemembered is the maximum size of the cache in bytes: about 4,000 full rankings of keys.
const maxRemembered = 64 << 20

type memory struct {
	mu       sync.Mutex
	sketches map[memoryKey]memorized
	size     int // estimated bytes of the cached sketches and of the map
	most     int // maximum of size; 0: maxRemembered
}

type memoryKey struct {
	step Step
	SketchKey
}

type memorized struct {
	text documentMark
	// The results of many queries share sketch, so callers must not change it.
	sketch any
	size   int
}

// A documentMark identifies the stored text of a sketch by its hash and length. The seed of the
// hash is random in every process.
type documentMark struct {
	hash   uint64
	length int
}

// memoryEntry is the estimated number of bytes that each cached sketch needs in the map, in
// addition to its own size.
const memoryEntry = 2*int(unsafe.Sizeof(memoryKey{})+unsafe.Sizeof(memorized{})) + 64

// remember returns the decoded sketch of a row. If the stored text has not changed, the sketch
// comes from the cache. Otherwise remember calls decode and caches the result. The caller must not
// change the sketch.
func remember[T interface{ size() int }](m *memory, step Step, r *SketchRow, decode func(name string, doc []byte) (T, error)) (T, error) {
	key := memoryKey{step, r.SketchKey}
	text := documentMark{maphash.Bytes(markSeeds[0], r.Doc), len(r.Doc)}
	m.mu.Lock()
	known := m.sketches[key]
	m.mu.Unlock()
	if s, ok := known.sketch.(T); ok && known.text == text {
		return s, nil
	}
	s, err := decode(r.Name, r.Doc)
	if err != nil {
		return s, err
	}
	const rounding = 8 // the size is increased by one eighth, because the allocator rounds sizes up
	m.keep(key, memorized{text, s, memoryEntry + s.size() + s.size()/rounding})
	return s, nil
}

// keep adds a sketch to the cache. If the cache would then exceed its maximum size, keep first
// removes other sketches, chosen at random. It does not add a sketch that is larger than the
// maximum.
func (m *memory) keep(key memoryKey, s memorized) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sketches == nil {
		m.sketches = make(map[memoryKey]memorized)
	}
	m.forget(key)
	most := m.most
	most = cmp.Or(most, maxRemembered)
	if s.size > most {
		return
	}
	for other := range m.sketches { // a map has a random order, so no access pattern makes the cache useless
		if m.size+s.size <= most {
			break
		}
		m.forget(other)
	}
	m.sketches[key] = s
	m.size += s.size
}

func (m *memory) forget(key memoryKey) {
	m.size -= m.sketches[key].size
	delete(m.sketches, key)
}

// The following methods return the estimated memory of a decoded sketch in bytes.

func (t *topList) size() int { return t.kept }

func (h *logHistogram) size() int { return int(unsafe.Sizeof(*h)) + cap(h.counts)*8 }

func (r *retryTimes) size() int { return r.histogram.size() + 8 }

func (l *latencies) size() int { return l.shared.size() + l.local.size() }

func (r remainingShares) size() int {
	size := 64
	for policy := range r {
		size += 2*(len(policy)+int(unsafe.Sizeof(policy))+8) + int(unsafe.Sizeof(remainingCounts{}))
	}
	return size
}

func (t *topKeys) size() int {
	const entry = unsafe.Sizeof(topEntry{}) + 2*(unsafe.Sizeof(topID{})+4) + 4
	size := int(unsafe.Sizeof(*t)) + cap(t.entries)*int(entry)
	for i := range t.entries {
		for _, v := range t.entries[i].text.values {
			size += int(unsafe.Sizeof(v)) + len(v.text)
		}
	}
	return size
}
