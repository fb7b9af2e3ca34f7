package enforcement

import (
	"context"
	"sync"
	"time"
)

// A timeout is a context.WithDeadline that sets no timer until somebody waits
// for it: a limiter in this process never does, and the timer would be most of
// a check's allocations. It keeps the parent's values and deadline and not its
// cancellation: a caller that hangs up must not look like a limiter that is
// away, nor cost a connection that other checks share.
type timeout struct {
	context.Context // the parent
	deadline        time.Time

	mu     sync.Mutex
	waited context.Context // set when somebody waits
	cancel context.CancelFunc
	ended  bool
}

// Deadline gives the earlier of the time-out's and the parent's.
func (t *timeout) Deadline() (time.Time, bool) {
	if d, ok := t.Context.Deadline(); ok && d.Before(t.deadline) {
		return d, true
	}
	return t.deadline, true
}

// Done begins to wait.
func (t *timeout) Done() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waited == nil {
		deadline, _ := t.Deadline()
		t.waited, t.cancel = context.WithDeadline(context.WithoutCancel(t.Context), deadline)
		if t.ended {
			t.cancel()
		}
	}
	return t.waited.Done()
}

// Err says whether and why the time is over.
func (t *timeout) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waited != nil {
		return t.waited.Err()
	}
	if t.ended {
		return context.Canceled
	}
	if deadline, _ := t.Deadline(); !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Value is the parent's; a context derived from this one finds the timer by it.
func (t *timeout) Value(key any) any {
	t.mu.Lock()
	waited := t.waited
	t.mu.Unlock()
	if waited != nil {
		return waited.Value(key)
	}
	return t.Context.Value(key)
}

// end releases the timer.
func (t *timeout) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.cancel != nil {
		t.cancel()
	}
}
