// Package retry waits between attempts.
//
// It imports only the standard library: the jitter of general backoff libraries
// exceeds the longest wait, which settings of callers promise as a bound.
package retry

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"
)

// Jitter returns a random time from d/2 to d, so that nodes do not retry at once.
func Jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// Wait waits for d, or until ctx ends. It returns the error of ctx.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err()
}

// A Backoff has the waits between attempts: First, then twice as long each time up to
// Longest, each with Jitter.
type Backoff struct {
	First, Longest time.Duration
	next           time.Duration
}

// Next returns the next wait.
func (b *Backoff) Next() time.Duration {
	d := cmp.Or(b.next, b.First)
	b.next = min(2*d, b.Longest)
	return Jitter(d)
}

// Reset makes First the next wait.
func (b *Backoff) Reset() { b.next = 0 }
