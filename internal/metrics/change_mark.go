package metrics

import (
	"context"
	"time"
)

// markShared is how long callers share one result of Store.Mark. So many viewers of live pages cost as much as one.
const markShared = 250 * time.Millisecond

// A sharedMark caches the last result of Store.Mark and the time of its read. It is a channel with one element, so
// that a caller can wait for the other reader and still stop when its context ends.
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

// Mark returns a value that changes whenever a batch is added. It is at most 250 ms old. As long as two marks are
// equal (==), queries for a fixed span return the same results. Live pages call Mark every second.
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
