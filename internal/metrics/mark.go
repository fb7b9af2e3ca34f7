package metrics

import (
	"context"
	"time"
)

// markShared is how long all callers share one Mark, so that many viewers cost as much as one.
const markShared = 250 * time.Millisecond

// A sharedMark is the last Mark and the time of its read, in a channel of one that serves as a
// lock.
type sharedMark chan readMark

type readMark struct {
	mark Mark
	at   time.Time // zero: never
}

func newSharedMark() sharedMark {
	m := make(sharedMark, 1)
	m <- readMark{}
	return m
}

// Mark returns a value that changes with each added batch, at most 250 ms old. While it is equal
// (==), the results for a fixed span are the same. Live pages call it every second.
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
