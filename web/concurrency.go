package web

import (
	"context"
	"sync"

	"github.com/headgate/headgate/internal/problem"
)

// Pages that are much work have few turns at once, so that somebody who asks for
// them again and again does not take a node from everybody, nor from checks.
const (
	// maxTurns is how many turns there are on a node at once, of all parties.
	maxSlots = 8
	// maxTurnsEach is how many of them one party has.
	maxSlotsEach = 2
)

// errBusy is the answer when no turn comes.
var errBusy = problem.New(problem.Unavailable, "as much of this as this node does at once is under way: try again in a moment")

// slots are those of one node. The zero value has all of them free.
type slots struct {
	mu    sync.Mutex
	taken int
	of    map[string]int
	freed chan struct{} // closed when a turn ends; nil while nobody waits
}

// take waits for a turn of a party until ctx ends; end gives it back.
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

// try takes a turn, or gives the signal that one ended.
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
