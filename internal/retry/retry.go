// Package retry has functions to wait between attempts.
//
// It imports only the standard library. A common backoff library is no replacement: it can add a
// random part to the longest wait, but the settings of Headgate promise that no wait is longer.
package retry

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"
)

// Jitter returns a random duration from d/2 to d. With it, several nodes do not retry at the same
// time.
func Jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// Wait waits for the duration d, or until ctx ends. It returns the error of ctx.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err()
}

// A Backoff computes the waits between attempts. The first wait is First. Each further
// wait is twice as long as the previous one, but at most Longest. Jitter is applied to
// each wait.
type Backoff struct {
	First, Longest time.Duration
	next           time.Duration
}

// Next returns the wait before the next attempt.
func (b *Backoff) Next() time.Duration {
	d := cmp.Or(b.next, b.First)
	b.next = min(2*d, b.Longest)
	return Jitter(d)
}

// Reset makes the next wait First again. Call it after a successful attempt.
func (b *Backoff) Reset() { b.next = 0 }
