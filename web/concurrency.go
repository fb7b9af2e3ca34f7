package web

import (
	"context"
	"sync"

	"github.com/headgate/headgate/internal/problem"
)

// The number of expensive pages that run at the same time is limited, so that they do not slow
// down checks and other pages.
const (
	// maxSlots is the maximum number of expensive pages that a node runs at the same time.
	maxSlots = 8
	// maxSlotsEach is the maximum for the members of one tenant together, or for one of the
	// operator's people.
	maxSlotsEach = 2
)

// errBusy is the error if no slot becomes free before the deadline.
var errBusy = problem.New(problem.Unavailable, "too many expensive pages are loading: try again in a moment")

// slots limits how many expensive pages run at the same time on a node. The zero value has all
// slots free.
type slots struct {
	mu    sync.Mutex
	taken int
	of    map[string]int
	freed chan struct{} // closed when a slot becomes free; nil if no page waits
}

// take waits until ctx ends for a slot, on behalf of a party (see Visitor.party). The caller
// must call end to free the slot.
func (t *slots) take(ctx context.Context, party string) (end func(), err error) {
	for {
		freed, ok := t.try(party)
		if ok {
			return sync.OnceFunc(func() { t.end(party) }), nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, errBusy
		}
	}
}

// try takes a slot, or returns a channel that is closed when a slot becomes free.
func (t *slots) try(party string) (freed <-chan struct{}, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken < maxSlots && t.of[party] < maxSlotsEach {
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

func (t *slots) end(party string) {
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
