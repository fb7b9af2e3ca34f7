package metrics

import (
	"context"
	"time"
)

// markShared is how long callers share one result of Store.Mark. Sharing keeps the load on the
// database independent of the number of open live pages.
const markShared = 250 * time.Millisecond

// A sharedMark holds the last result of Store.Mark and the time at which it was read. It is a
// channel with one element, used as a lock: unlike with a mutex, a caller that waits for another
// reader can stop when its context ends.
type sharedMark chan readMark

type readMark struct {
	mark Mark
	at   time.Time // zero: never read
}

func newSharedMark() sharedMark {
	m := make(sharedMark, 1)
	m <- readMark{}
	return m
}

// Mark returns a value that changes whenever a node adds a batch. The value is at most 250 ms old.
// While two marks are equal (==), a query for a fixed time range returns the same result. Live
// pages call Mark every second to see whether they must query again.
func (a *Analytics) Mark(ctx context.Context) (Mark, error) {
	var last readMark
	select {
	case last = <-a.marked:
	case <-ctx.Done():
		return Mark{}, ctx.Err()
	}
	defer func() { a.marked <- last }()
	if !last.at.IsZero() && time.Since(last.at) < markShared {
		return last.mark, nil
	}
	mark, err := a.store.Mark(ctx)
	if err != nil {
		return Mark{}, err
	}
	last = readMark{mark, time.Now()}
	return mark, nil
}
