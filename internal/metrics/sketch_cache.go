package metrics

import (
	"hash/maphash"
	"sync"
	"unsafe"
)

// Decoding a sketch takes longer than the rest of a query, and the rows of past hours
// and days rarely change. So decoded sketches are cached while the stored text is the
// same.

// maxRemembered bounds the cache in bytes: about 4,000 full rankings of keys.
const maxRemembered = 64 << 20

type memory struct {
	mu       sync.Mutex
	sketches map[memoryKey]memorized
	size     int // bytes, of what sketches keep and of the map itself
	most     int // 0: maxRemembered
}

type memoryKey struct {
	step Step
	SketchKey
}

type memorized struct {
	text documentMark
	// sketch is shared by many results and must not be changed.
	sketch any // of many answers: it is never changed
	size   int
}

// A documentMark identifies a document within this process.
type documentMark struct {
	hash   uint64
	length int
}

// memoryEntry is the memory that the map needs per sketch.
const memoryEntry = 2*int(unsafe.Sizeof(memoryKey{})+unsafe.Sizeof(memorized{})) + 64

// remember returns the decoded sketch of a row, from the cache if its document is the same. The
// caller must not change it.
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
	const rounding = 8 // an eighth: memory is given in classes of sizes
	m.keep(key, memorized{text, s, memoryEntry + s.size() + s.size()/rounding})
	return s, nil
}

// keep caches a sketch and evicts random others if the cache is full.
func (m *memory) keep(key memoryKey, s memorized) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sketches == nil {
		m.sketches = make(map[memoryKey]memorized)
	}
	m.forget(key)
	most := m.most
	if most == 0 {
		most = maxRemembered
	}
	if s.size > most {
		return
	}
	for other := range m.sketches { // in no order: no pattern of reading makes it useless
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

// The sizes of what is remembered, in bytes.

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
