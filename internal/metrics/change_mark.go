package metrics

import (
	"context"
	"time"
)

// markShared is how long callers share one result of Store.Mark. With this sharing, the load on the
// database does not depend on the number of open live pages.
const markShared = 250 * time.Millisecond

// A sharedMark holds the last result of Store.Mark and the time at which it was read. A sharedMark
// is a channel with a capacity of one, used as a lock: a caller receives the only element and later
// sends an element back. A channel is better than a mutex here, because a caller that waits can
// stop when its context ends.
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

// Mark returns a value that changes whenever a node adds a batch. The value was read at most 250 ms
// ago. If two marks are equal (==), a query for a fixed time range has the same result at both
// times. Live pages call Mark every second. They run their queries again only if the mark has
// changed.
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
