package exceptions

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A sweepStore holds ends in memory, and can be made to fail. The test holds mu except
// while the clock runs.
type sweepStore struct {
	Store // not called
	mu    sync.Mutex
	ends  []time.Time
	away  bool
	calls []int // what each call removed; -1: failed
}

func (s *sweepStore) EndExpired(_ context.Context, now time.Time, limit int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		s.calls = append(s.calls, -1)
		return 0, errors.New("the database is away")
	}
	n := 0
	for n < limit && len(s.ends) > 0 && !s.ends[0].After(now) {
		s.ends, n = s.ends[1:], n+1
	}
	s.calls = append(s.calls, n)
	return n, nil
}

// A node reads the store again after each notification.
type node struct {
	due     time.Time
	changed int
}

func (n *node) load(s *sweepStore) {
	n.changed++
	n.due = time.Time{}
	if len(s.ends) > 0 {
		n.due = s.ends[0]
	}
}

// sweeping runs a Sweeper in a bubble with its own clock.
func sweeping(t *testing.T, play func(s *sweepStore, n *node, log *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, n, log := &sweepStore{}, &node{}, &bytes.Buffer{}
		s.mu.Lock()
		defer s.mu.Unlock()
		sweeper := NewSweeper(SweeperConfig{
			Store: s,
			Due: func() time.Time {
				s.mu.Lock()
				defer s.mu.Unlock()
				return n.due
			},
			Changed: func(context.Context) {
				s.mu.Lock()
				defer s.mu.Unlock()
				n.load(s)
			},
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- sweeper.Run(ctx) }()
		play(s, n, log)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
}

// pass lets the bubble's clock run on.
func (s *sweepStore) pass(d time.Duration) {
	s.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	s.mu.Lock()
}

func TestSweeperComesWhenSomethingIsDue(t *testing.T) {
	t.Parallel()
	sweeping(t, func(s *sweepStore, n *node, _ *bytes.Buffer) {
		s.pass(time.Hour)
		if len(s.calls) != 0 || n.changed != 0 {
			t.Fatalf("nothing ends, and the store was asked %d times", len(s.calls))
		}
		s.ends = []time.Time{time.Now().Add(time.Hour), time.Now().Add(2 * time.Hour)}
		n.load(s)
		s.pass(time.Hour - time.Second)
		if len(s.calls) != 0 {
			t.Fatalf("asked before anything ended")
		}
		s.pass(4 * time.Second)
		if len(s.calls) != 1 || s.calls[0] != 1 || n.changed != 2 {
			t.Errorf("calls %v, loaded %d times; want one that removed one, and a load", s.calls, n.changed)
		}
		s.pass(2 * time.Hour)
		if len(s.calls) != 2 || len(s.ends) != 0 {
			t.Errorf("calls %v, left %v", s.calls, s.ends)
		}
	})
}

func TestSweeperTakesMoreThanOneEdit(t *testing.T) {
	t.Parallel()
	sweeping(t, func(s *sweepStore, n *node, _ *bytes.Buffer) {
		s.ends = make([]time.Time, 2*sweepLimit+1)
		for i := range s.ends {
			s.ends[i] = time.Now()
		}
		n.load(s)
		s.pass(2 * time.Second)
		if len(s.calls) != 3 || s.calls[2] != 1 || n.changed != 2 {
			t.Errorf("calls %v, loaded %d times", s.calls, n.changed)
		}
	})
}

func TestSweeperLoadsWhatAnotherNodeRemoved(t *testing.T) {
	t.Parallel()
	sweeping(t, func(s *sweepStore, n *node, _ *bytes.Buffer) {
		n.due = time.Now() // the store has nothing any more
		s.pass(time.Minute)
		if len(s.calls) != 1 || s.calls[0] != 0 || n.changed != 1 {
			t.Errorf("calls %v, loaded %d times; want one of each", s.calls, n.changed)
		}
	})
}

func TestSweeperTriesAgainAndLogsSeldom(t *testing.T) {
	t.Parallel()
	sweeping(t, func(s *sweepStore, n *node, log *bytes.Buffer) {
		s.away, s.ends = true, []time.Time{time.Now()}
		n.load(s)
		s.pass(10 * time.Minute)
		if tries := len(s.calls); tries < 400 || tries > 600 {
			t.Errorf("%d tries in ten minutes; want one about every second", tries)
		}
		if lines := strings.Count(log.String(), "\n"); lines < 9 || lines > 11 {
			t.Errorf("%d lines in ten minutes:\n%s", lines, log)
		}
		if n.changed != 1 {
			t.Errorf("loaded %d times although nothing was removed", n.changed-1)
		}
		s.away = false
		s.pass(2 * time.Second)
		if len(s.ends) != 0 || n.changed != 2 || !strings.Contains(log.String(), "again") {
			t.Errorf("left %v, loaded %d times, log:\n%s", s.ends, n.changed, log)
		}
	})
}
