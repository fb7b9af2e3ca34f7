package lease_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/lease"
	"github.com/headgate/headgate/enforcement/limitertest"
)

// asLeased makes every charge a leased one.
type asLeased struct{ enforcement.Limiter }

func (l asLeased) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	for i := range requests {
		for k := range requests[i].Charges {
			requests[i].Charges[k].Leased = true
		}
	}
	l.Limiter.Take(ctx, requests, outcomes)
}

// running runs the Limiter until the test ends.
func running(t testing.TB, l *lease.Limiter) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func fixture(t *testing.T, c *limitertest.Clock) limitertest.Fixture {
	l := lease.New(limitertest.NewStore(c.Now), lease.Config{
		Clock: func() (mono, wall int64) { return c.Now() - limitertest.Start, c.Now() },
	})
	running(t, l)
	return limitertest.Fixture{Limiter: asLeased{l}, Leased: true}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	limitertest.Run(t, fixture)
}

// The reference store keeps the contract of a Limiter.
func TestStore(t *testing.T) {
	t.Parallel()
	plain := func(_ *testing.T, c *limitertest.Clock) limitertest.Fixture {
		return limitertest.Fixture{Limiter: limitertest.NewStore(c.Now)}
	}
	limitertest.Run(t, plain)
}

// counting counts the checks that it receives.
type counting struct {
	enforcement.Drawer
	calls *atomic.Int64
}

func (c counting) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	c.calls.Add(1)
	c.Drawer.Take(ctx, requests, outcomes)
}
