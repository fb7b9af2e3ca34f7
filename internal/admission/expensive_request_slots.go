package admission

import (
	"context"
	"sync"
)

const (
	// MaxSlots is the maximum number of expensive requests that a node serves at the same time.
	MaxSlots = 8
	// MaxSlotsEach is the maximum number of expensive requests that a node serves for one party
	// at the same time.
	MaxSlotsEach = 2
)

// Slots bounds how many expensive requests, such as downloads and previews, a node serves at the
// same time. Because of this bound, they do not slow down checks and other requests. In the zero
// value, all slots are free.
type Slots struct {
	mu    sync.Mutex
	taken int
	of    map[string]int
	freed chan struct{} // closed when the next slot becomes free; nil if no request waits
}

// Take waits until a slot is free for the party, or until ctx ends. party identifies who uses
// the slot: a tenant, or one person or key of the operator. If ok is true, the caller has a
// slot and must call end to free it.
func (t *Slots) Take(ctx context.Context, party string) (end func(), ok bool) {
	for {
		freed, ok := t.try(party)
		if ok {
			return sync.OnceFunc(func() { t.end(party) }), true
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// try reserves a slot for the party. If that is not possible, freed is a channel that is closed
// when the next slot becomes free.
func (t *Slots) try(party string) (freed <-chan struct{}, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken < MaxSlots && t.of[party] < MaxSlotsEach {
		if t.of == nil {
			t.of = map[string]int{}
		}
		t.taken++
		t.of[party]++
		return nil, true
	}
	if t.freed == nil {
		t.freed = make(chan struct{})
	}
	return t.freed, false
}

func (t *Slots) end(party string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken--
	if t.of[party]--; t.of[party] == 0 {
		delete(t.of, party)
	}
	if t.freed != nil {
		close(t.freed)
		t.freed = nil
	}
}

// Taken returns the number of slots in use.
func (t *Slots) Taken() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken
}
