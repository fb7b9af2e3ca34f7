package metrics

import (
	"crypto/sha256"
	"sync"
)

// Reading the JSON of a sketch takes longer than all the rest of an answer, and
// rows of hours and days that are over hardly ever change. So those that were
// read are remembered, as long as the stored text is the same.

// maxRemembered sketches are some 30 MB when all are full rankings of keys: what
// the pages of a few tenants read.
const maxRemembered = 1000

type memory struct {
	mu       sync.Mutex
	sketches map[memoryKey]memorized
}

type memoryKey struct {
	step Step
	SketchKey
}

type memorized struct {
	text   [sha256.Size]byte // of the document
	sketch sketch            // of many answers: it is never changed
}

// decode gives the sketch of a row. The caller must not change it.
func (m *memory) decode(step Step, r *SketchRow) (sketch, error) {
	key, text := memoryKey{step, r.SketchKey}, sha256.Sum256(r.Doc)
	m.mu.Lock()
	known, found := m.sketches[key]
	m.mu.Unlock()
	if found && known.text == text {
		return known.sketch, nil
	}
	s, err := decodeSketch(r.Name, r.Doc)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sketches == nil {
		m.sketches = make(map[memoryKey]memorized)
	}
	if !found && len(m.sketches) >= maxRemembered {
		for other := range m.sketches { // in no order: no pattern of reading makes it useless
			delete(m.sketches, other)
			break
		}
	}
	m.sketches[key] = memorized{text, s}
	return s, nil
}
