package metrics

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// foldedName is the name of counts that gave up their own, for want of memory.
const foldedName = "(folded)"

// Refusals that wait are bounded by number, a minute's worth, and by bytes.
const (
	maxWaitingRefusals     = 6_000
	maxWaitingRefusalBytes = 16 << 20
)

// keptMinutes is how long sketches of a minute that is over stay in memory
// after they were written: what comes late is absorbed, and they are written
// anew.
const keptMinutes = 2

// waiting is what was drained and is in no batch yet. It is not for concurrent use.
type waiting struct {
	counts       map[CountKey]*Counts
	sketches     map[SketchKey]*waitingSketch
	weight       int // of all sketches
	allowance    int // weight of sketches that may be written before they are due
	refusals     []Refusal
	refusalBytes int
	// forgotten is the newest minute of which sketches were let go. One that is not
	// here and as old has been written, maybe: what comes of it now would replace it.
	forgotten int64
}

// A waitingSketch is a sketch of one minute, also after it was written: a later
// writing has all of the minute.
type waitingSketch struct {
	sketch
	weight  int
	changed bool      // since it was last written
	since   time.Time // when it changed first, if it changed
}

func newWaiting() waiting {
	return waiting{counts: make(map[CountKey]*Counts), sketches: make(map[SketchKey]*waitingSketch)}
}

// take adds what was drained by now, which belongs to w then, and tells how many
// refusals found no room.
func (w *waiting) take(d *drained, now time.Time) (notKept int64) {
	for key, counts := range d.counts {
		w.add(key, counts)
	}
	for key, s := range d.sketches {
		w.absorb(key, s, now)
	}
	for i := range d.refusals {
		size := refusalBytes(&d.refusals[i])
		if len(w.refusals) >= maxWaitingRefusals || w.refusalBytes+size > maxWaitingRefusalBytes {
			notKept++
			continue
		}
		w.refusals = append(w.refusals, d.refusals[i])
		w.refusalBytes += size
	}
	return notKept
}

func (w *waiting) add(key CountKey, counts *Counts) {
	if mine := w.counts[key]; mine != nil {
		mine.Add(counts)
		return
	}
	w.counts[key] = counts
}

func (w *waiting) absorb(key SketchKey, s sketch, now time.Time) {
	mine := w.sketches[key]
	switch {
	case mine != nil:
		w.weight -= mine.weight
		mine.absorb(s)
	case key.At <= w.forgotten:
		return
	default:
		mine = &waitingSketch{sketch: s}
		w.sketches[key] = mine
	}
	if !mine.changed {
		mine.changed, mine.since = true, now
	}
	mine.weight = weightOf(mine.sketch)
	w.weight += mine.weight
}

// weightOf a sketch in rows of counts.
func weightOf(s sketch) int {
	const perRow = 40 // numbers
	switch s := s.(type) {
	case *topKeys:
		return 1 + len(s.entries)
	case *retryTimes:
		return 1 + len(s.histogram.counts)/perRow
	case *latencies:
		return 1 + (len(s.shared.counts)+len(s.local.counts))/perRow
	case remainingShares:
		return 1 + len(s)
	}
	return 1
}

// refusalBytes is about what a refusal takes in memory.
func refusalBytes(r *Refusal) int {
	n := 400 + len(r.Path) + 200*len(r.Limits) + 150*len(r.Policies)
	for _, a := range r.Attributes {
		n += 32 + len(a.Name) + len(a.Value)
	}
	return n
}

// unwritten is how many sketches wait to be written.
func (w *waiting) unwritten() (n int) {
	for _, s := range w.sketches {
		if s.changed {
			n++
		}
	}
	return n
}

// allow says how much of the sketches one flush may write before they are due: a
// budget, or one of so many parts of all that changed, so that a large system
// writes as much in each flush.
func (w *waiting) allow(budget, parts int) {
	changed := 0
	for _, s := range w.sketches {
		if s.changed {
			changed += s.weight
		}
	}
	w.allowance = max(budget, changed/max(1, parts))
}

// give moves what is due into a batch, oldest first, up to a batch's bounds, and
// sketches also within the allowance. A sketch is due when its minute is over or
// it is unwritten for so long; with all every one is.
func (w *waiting) give(b *Batch, now time.Time, longest time.Duration, all bool) {
	keys := slices.Collect(maps.Keys(w.counts))
	if len(keys) > batchRows {
		slices.SortFunc(keys, compareCountKeys)
		keys = keys[:batchRows]
	}
	for _, key := range keys {
		b.Counts = append(b.Counts, CountRow{key, *w.counts[key]})
		delete(w.counts, key)
	}
	n := min(batchRefusals, len(w.refusals))
	b.Refusals = slices.Clone(w.refusals[:n])
	w.refusals = slices.Delete(w.refusals, 0, n)
	for i := range b.Refusals {
		w.refusalBytes -= refusalBytes(&b.Refusals[i])
	}
	w.giveSketches(b, now, longest, all)
}

func (w *waiting) giveSketches(b *Batch, now time.Time, longest time.Duration, all bool) {
	weight := 0
	for _, key := range w.longestUnwritten() {
		s := w.sketches[key]
		due := all || minuteOver(key.At, now) || now.Sub(s.since) >= longest
		if !due && w.allowance <= 0 {
			continue
		}
		if weight += s.weight; weight > batchWeight && len(b.Sketches) > 0 {
			return
		}
		if !due {
			w.allowance -= s.weight
		}
		key.Node = b.Node
		b.Sketches = append(b.Sketches, SketchRow{key, s.encode()})
		s.changed = false
	}
}

// longestUnwritten gives the sketches that changed, those first that did so
// first.
func (w *waiting) longestUnwritten() []SketchKey {
	keys := make([]SketchKey, 0, len(w.sketches))
	for key, s := range w.sketches {
		if s.changed {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b SketchKey) int {
		return cmp.Or(w.sketches[a].since.Compare(w.sketches[b].since), cmp.Compare(a.At, b.At), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	return keys
}

func compareCountKeys(a, b CountKey) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

func minuteOver(at int64, now time.Time) bool { return at+60 <= now.Unix() }

// forget lets sketches go that were written and are so old that nothing more
// comes.
func (w *waiting) forget(now time.Time) { w.forgetBefore(now.Unix() - (1+keptMinutes)*60) }

// forgetBefore lets written sketches of minutes go that begin before an instant.
func (w *waiting) forgetBefore(at int64) {
	for key, s := range w.sketches {
		if key.At < at && !s.changed {
			w.drop(key)
		}
	}
}

func (w *waiting) drop(key SketchKey) {
	w.weight -= w.sketches[key].weight
	delete(w.sketches, key)
	w.forgotten = max(w.forgotten, key.At)
}

// fold keeps w within a number of rows, and tells how many rows gave up their
// identity. Sketches go first, those that were written before others; then
// counts of the oldest minutes lose their routes and policies, and then their
// minute: they become their hour's. What is left is at most three rows a tenant
// and hour, and every tenant's sums are what they were.
func (w *waiting) fold(most int, now time.Time) (folded int64) {
	if w.size() <= most {
		return 0
	}
	w.forgetBefore(now.Unix() - 60)
	goal := most / 4 * 3 // so that it is not done every time
	for _, at := range w.minutes() {
		if w.size() <= goal {
			return folded
		}
		folded += w.dropSketches(at)
	}
	for _, to := range []func(CountKey) CountKey{unnamed, hourly} {
		keys := slices.SortedFunc(maps.Keys(w.counts), compareCountKeys)
		for _, key := range keys {
			if w.size() <= goal {
				return folded
			}
			if into := to(key); into != key {
				counts := w.counts[key]
				delete(w.counts, key)
				w.add(into, counts)
				folded++
			}
		}
	}
	return folded
}

// size of w in rows.
func (w *waiting) size() int { return len(w.counts) + w.weight }

// minutes of the sketches, oldest first.
func (w *waiting) minutes() []int64 {
	all := make(map[int64]bool)
	for key := range w.sketches {
		all[key.At] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func (w *waiting) dropSketches(at int64) (dropped int64) {
	for key, s := range w.sketches {
		if key.At == at {
			if s.changed {
				dropped++
			}
			w.drop(key)
		}
	}
	return dropped
}

// unnamed is the row of all routes, or policies, of a minute.
func unnamed(key CountKey) CountKey {
	if key.Kind != KindTotal {
		key.Name = foldedName
	}
	return key
}

// hourly is the row, without a name, of the first minute of an hour.
func hourly(key CountKey) CountKey {
	key.At -= key.At % int64(Hour.Duration()/time.Second)
	return unnamed(key)
}
