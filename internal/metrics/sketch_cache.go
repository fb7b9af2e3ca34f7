package metrics

import (
	"hash/maphash"
	"sync"
	"unsafe"
)

// Reading a sketch's document takes longer than all the rest of an answer, and
// rows of hours and days that are over hardly ever change. So those that were
// read are remembered, as long as the stored text is the same.

// maxRemembered bounds what is remembered, in bytes: some 4,000 full rankings of
// keys, which are the pages of all together over every span and of the tenants
// that people look at.
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
	text   documentMark
	sketch any // of many answers: it is never changed
	size   int
}

// A documentMark tells documents of one row apart within this process.
type documentMark struct {
	hash   uint64
	length int
}

// memoryEntry is what the map keeps of one sketch beside it: a place and the
// texts of its key, and that maps have free places.
const memoryEntry = 2*int(unsafe.Sizeof(memoryKey{})+unsafe.Sizeof(memorized{})) + 64

// remember gives the sketch of a row: what decode made of the same document
// before, or makes of it now. The caller must not change it.
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

// keep puts a sketch into the memory, and forgets others if it is full.
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
