package metrics

import (
	"context"
	"encoding/binary"
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

// tailOverlap is how much later than a newer denial an older one may arrive and still be returned.
// Nodes flush every second, by their own clocks.
const tailOverlap = 10 * time.Second

// A Tail follows the denials that match a filter as they arrive, including those that arrive up to
// ten seconds after newer ones. It is not safe for concurrent use.
type Tail struct {
	analytics *Analytics
	filter    RefusalFilter
	began     bool
	mark      Mark
	after     [16]byte              // all newer ones were given, or are new
	given     map[[16]byte]struct{} // newer than after
}

// Tail starts to follow after the filter's After. The filter's Limit bounds one call of Next
// (default 100). To and Before are ignored.
func (a *Analytics) Tail(f RefusalFilter) *Tail {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	f.Limit = min(f.Limit, maxRefusals)
	f.To, f.Before = time.Time{}, [16]byte{}
	return &Tail{analytics: a, filter: f, after: f.After, given: make(map[[16]byte]struct{})}
}

// Next returns what arrived since the last call, newest first. more reports that older ones were
// left out because of the limit. Without a new batch it reads no denials.
func (t *Tail) Next(ctx context.Context) (list []Refusal, more bool, err error) {
	mark, err := t.analytics.Mark(ctx)
	if err != nil || t.began && mark == t.mark {
		return nil, false, err
	}
	f := t.filter
	f.After = t.after
	// Those of the overlap are read again, so that late ones are found among them;
	// of very many not all.
	f.Limit = min(f.Limit+len(t.given), 3*f.Limit, maxRefusals)
	rows, err := t.analytics.Refusals(ctx, f)
	if err != nil {
		return nil, false, err
	}
	for i := range rows {
		if _, known := t.given[rows[i].ID]; !known {
			list = append(list, rows[i])
		}
	}
	t.note(rows, len(rows) == f.Limit)
	t.began, t.mark = true, mark
	more = len(list) >= t.filter.Limit
	return list[:min(t.filter.Limit, len(list))], more, nil
}

// note remembers the denials that will be read again. full reports that older ones may have been
// left out.
func (t *Tail) note(rows []Refusal, full bool) {
	if len(rows) == 0 {
		return
	}
	if full {
		t.raise(idBefore(rows[len(rows)-1].ID))
	}
	t.raise(firstID(millisecondsOf(rows[0].ID) - tailOverlap.Milliseconds()))
	clear(t.given)
	for i := range rows {
		if later(rows[i].ID, t.after) {
			t.given[rows[i].ID] = struct{}{}
		}
	}
}

func (t *Tail) raise(to [16]byte) {
	if later(to, t.after) {
		t.after = to
	}
}

func later(a, b [16]byte) bool { return string(a[:]) > string(b[:]) }

// firstID returns the lowest decision ID of a millisecond since the epoch.
func firstID(at int64) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], uint64(max(0, at))<<16)
	return id
}

// idBefore returns the next lower ID.
func idBefore(id [16]byte) [16]byte {
	for i := len(id) - 1; i >= 0; i-- {
		id[i]--
		if id[i] != 0xff {
			break
		}
	}
	return id
}
