package admission

import "sync"

const (
	// MaxBodies is the maximum number of bytes that all large request bodies on a node may use.
	MaxBodies = 64 << 20
	// MaxBodiesEach is the maximum number of bytes that the large bodies of one party may use. A
	// single body of a party may be larger, if the node has room for it.
	MaxBodiesEach = MaxBodies / 4
)

// Bodies bounds the memory for the bodies of requests. A client that sends many large bodies slowly
// would otherwise occupy as much memory as all its connections may send. In the zero value, no
// memory is reserved.
type Bodies struct {
	mu   sync.Mutex
	held int64
	of   map[string]int64
}

// Take reserves n more bytes for a body. held is the number of bytes that the caller has already
// reserved for this body. Take does not wait. party identifies the sender of the body: a tenant, or
// one key of the operator. If ok is true, the caller must return the bytes with Give.
func (b *Bodies) Take(party string, held, n int64) (ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own := b.of[party]; b.held+n > MaxBodies || own+n > MaxBodiesEach && own > held {
		return false
	}
	if b.of == nil {
		b.of = map[string]int64{}
	}
	b.held += n
	b.of[party] += n
	return true
}

// Give returns n bytes that Take reserved.
func (b *Bodies) Give(party string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
	if b.of[party] -= n; b.of[party] == 0 {
		delete(b.of, party)
	}
}

// Held returns the number of bytes that are reserved.
func (b *Bodies) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}
