package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// An arriving store has refusals as they arrive. Each arrival changes its mark.
type arriving struct {
	Store
	mu       sync.Mutex
	mark     Mark
	refusals []Refusal
	fails    error
	// marks and reads are how often each was asked.
	marks, reads int
}

func (s *arriving) arrive(list ...Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark.Batches++
	s.refusals = append(s.refusals, list...)
	slices.SortFunc(s.refusals, func(a, b Refusal) int { return bytes.Compare(b.ID[:], a.ID[:]) })
}

func (s *arriving) Mark(context.Context) (Mark, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks++
	return s.mark, s.fails
}

func (s *arriving) Refusals(_ context.Context, f RefusalFilter) (list []Refusal, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	for _, r := range s.refusals {
		if len(list) < f.Limit && bytes.Compare(r.ID[:], f.After[:]) > 0 {
			list = append(list, r)
		}
	}
	return list, s.fails
}

// refusedAt is a refusal of a second, told apart by n.
func refusedAt(second int64, n byte) Refusal {
	id := firstID(1_700_000_000_000 + 1000*second)
	id[15] = n
	return Refusal{ID: id, Route: fmt.Sprintf("%d/%d", second, n)}
}

func routesOf(list []Refusal) []string {
	names := []string{}
	for i := range list {
		names = append(names, list[i].Route)
	}
	return names
}

func TestTail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &arriving{}
		s.arrive(refusedAt(1, 1), refusedAt(2, 1), refusedAt(55, 1), refusedAt(60, 1))
		tail := NewAnalytics(s, AnalyticsConfig{}).Tail(RefusalFilter{Limit: 3, To: time.Unix(1, 0), Before: [16]byte{1}})
		next := func(what string, more bool, want ...string) {
			t.Helper()
			time.Sleep(time.Second) // of the bubble: what was shared is over
			list, moreToo, err := tail.Next(t.Context())
			if err != nil || moreToo != more || !slices.Equal(routesOf(list), append([]string{}, want...)) {
				t.Errorf("%s: %v, more %t, error %v; want %v, more %t", what, routesOf(list), moreToo, err, want, more)
			}
		}
		next("the first page", true, "60/1", "55/1", "2/1")
		reads := s.reads
		next("nothing", false)
		if s.reads != reads {
			t.Error("refusals were read though nothing was added")
		}
		s.arrive()
		next("counts only", false)
		s.arrive(refusedAt(61, 1), refusedAt(52, 2))
		next("one, and one that is late", false, "61/1", "52/2")
		s.arrive(refusedAt(1, 2))
		next("one that is too late", false)
		s.fails = errors.New("away")
		s.arrive(refusedAt(62, 1))
		time.Sleep(time.Second)
		if _, _, err := tail.Next(t.Context()); err == nil {
			t.Error("the store's failure is not told")
		}
		s.fails = nil
		next("what came while it was away", false, "62/1")
		s.arrive(refusedAt(62, 2), refusedAt(62, 3), refusedAt(62, 4), refusedAt(62, 5))
		next("more than one call gives", true, "62/5", "62/4", "62/3")
		s.arrive(refusedAt(63, 1))
		next("what was left out stays so", false, "63/1")
		s.refusals = s.refusals[1:] // a tenant is forgotten
		s.arrive()
		next("nothing old comes up", false)
		s.arrive(refusedAt(100, 1), refusedAt(80, 1))
		next("after a pause", false, "100/1", "80/1")
		s.arrive(refusedAt(91, 1), refusedAt(89, 1))
		next("ten seconds late, and more", false, "91/1")
	})
}

func TestTailBeginsAfter(t *testing.T) {
	t.Parallel()
	s := &arriving{}
	s.arrive(refusedAt(1, 1), refusedAt(2, 1), refusedAt(3, 1))
	list, _, err := NewAnalytics(s, AnalyticsConfig{}).Tail(RefusalFilter{After: refusedAt(2, 1).ID}).Next(t.Context())
	if err != nil || !slices.Equal(routesOf(list), []string{"3/1"}) {
		t.Errorf("%v, error %v; want what is newer", routesOf(list), err)
	}
}

// A hundred who ask cost the store as much as one, and nobody hears of what is
// older than a quarter of a second.
func TestMarkIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &arriving{}
		a := NewAnalytics(s, AnalyticsConfig{})
		everybody := func(want int64) {
			t.Helper()
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					if m, err := a.Mark(t.Context()); err != nil || m.Batches != want {
						t.Errorf("%+v, error %v; want batch %d", m, err, want)
					}
				})
			}
			all.Wait()
		}
		everybody(0)
		s.arrive()
		time.Sleep(markShared - 1)
		everybody(0)
		time.Sleep(time.Nanosecond)
		everybody(1)
		if s.marks != 2 {
			t.Errorf("the store was asked %d times, want 2", s.marks)
		}
		time.Sleep(time.Second)
		s.fails = errors.New("away")
		if _, err := a.Mark(t.Context()); err == nil {
			t.Error("the store's failure is not told")
		}
		s.fails = nil
		everybody(1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		<-a.marked // somebody asks
		if _, err := a.Mark(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
		a.marked <- readMark{}
	})
}

func TestIDs(t *testing.T) {
	t.Parallel()
	id := [16]byte{0: 1, 14: 1}
	if got, want := idBefore(id), ([16]byte{0: 1, 15: 0xff}); got != want {
		t.Errorf("before %x: %x, want %x", id, got, want)
	}
	if at := millisecondsOf(firstID(1_700_000_000_123)); at != 1_700_000_000_123 {
		t.Errorf("firstID is of %d", at)
	}
	if firstID(-5) != ([16]byte{}) {
		t.Error("an instant before the epoch has an id")
	}
}
