package metrics

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A markedStore returns a mark, or an error, and counts the calls.
type markedStore struct {
	Store
	mu    sync.Mutex
	mark  Mark
	fails error
	calls int
}

func (s *markedStore) Mark(context.Context) (Mark, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return s.mark, s.fails
}

// A hundred callers cost the store as much as one. A mark is at most 250 ms old.
func TestMarkIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &markedStore{}
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
		s.mark.Batches++
		time.Sleep(markShared - 1)
		everybody(0)
		time.Sleep(time.Nanosecond)
		everybody(1)
		if s.calls != 2 {
			t.Errorf("the store was asked %d times, want 2", s.calls)
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
