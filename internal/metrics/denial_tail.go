package metrics

import (
	"context"
	"encoding/binary"
	"time"
)

// What live pages ask all the time: whether anything came, and what.

// markShared is how long all who ask share one answer about what came: many
// viewers cost the database as much as one.
const markShared = 250 * time.Millisecond

// A sharedMark is the last Mark and when it was read, in a channel of one that
// whoever looks at it holds.
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

// Mark tells which batches were added, up to a quarter of a second ago. As long
// as it stays the same (==), nothing new was counted or refused, and the answers
// over a fixed span are the same. It is meant to be asked each second by every
// live page.
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

// tailOverlap is how much later than a newer one a refusal may arrive and still
// be given: nodes flush each second, by clocks of their own.
const tailOverlap = 10 * time.Second

// A Tail follows the refusals that a filter lets through as they arrive, also
// those that arrive after newer ones of another node, up to ten seconds late.
// It is not for concurrent use.
type Tail struct {
	analytics *Analytics
	filter    RefusalFilter
	began     bool
	mark      Mark
	after     [16]byte              // all newer ones were given, or are new
	given     map[[16]byte]struct{} // newer than after
}

// Tail begins to follow. The filter's After is where it begins, and its Limit
// how many one call gives at most, 100 if it does not say; To and Before would
// keep it from new ones and are ignored.
func (a *Analytics) Tail(f RefusalFilter) *Tail {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	f.Limit = min(f.Limit, maxRefusals)
	f.To, f.Before = time.Time{}, [16]byte{}
	return &Tail{analytics: a, filter: f, after: f.After, given: make(map[[16]byte]struct{})}
}

// Next gives what arrived since the last call, newest first: the first one the
// newest that there are. More tells that as many arrived as one call gives or
// more: the oldest of these are not given any more. While nothing was added it
// reads no refusals.
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

// note remembers what was read, as far as it will be read again; full tells that
// older ones may have been left out, which stay so.
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

// firstID is the lowest decision id of a millisecond since the epoch.
func firstID(at int64) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], uint64(max(0, at))<<16)
	return id
}

// idBefore is the id next to one, downwards.
func idBefore(id [16]byte) [16]byte {
	for i := len(id) - 1; i >= 0; i-- {
		id[i]--
		if id[i] != 0xff {
			break
		}
	}
	return id
}
