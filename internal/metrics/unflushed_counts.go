package metrics

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// foldedName is the name in a row of counts that combines several routes or policies. fold creates
// such rows to save memory.
const foldedName = "(folded)"

// Bounds of the kept denials that wait to be written. At the highest rate of sampling, the denials
// of one minute reach these bounds.
const (
	maxWaitingRefusals     = 6_000
	maxWaitingRefusalBytes = 16 << 20
)

// keptMinutes is how many minutes a written sketch stays in memory after its minute has ended.
// During this time, counts that arrive late can still be added to the sketch.
const keptMinutes = 2

// waiting is the backlog: the drained counts that are not in a batch yet. It is not safe for
// concurrent use.
type waiting struct {
	counts       map[CountKey]*Counts
	sketches     map[SketchKey]*waitingSketch
	weight       int // sum of the weights of all sketches (see weightOf)
	allowance    int // total weight of the sketches that the current flush may still write before their minute ends
	refusals     []Refusal
	refusalBytes int
	// forgotten is the newest minute whose sketches were dropped from memory. If a drained sketch
	// belongs to this minute or to an older one, take discards it. Otherwise the sketch would
	// overwrite the complete sketch in the database.
	forgotten int64
}

// A waitingSketch is a sketch of one minute. It stays in memory after it is written, because the
// next write must again contain the whole minute.
type waitingSketch struct {
	sketch
	weight  int
	changed bool      // set if the sketch has changed since it was last written
	since   time.Time // time of the first change that is not written yet; only valid if changed is set
}

func newWaiting() waiting {
	return waiting{counts: make(map[CountKey]*Counts), sketches: make(map[SketchKey]*waitingSketch)}
}

// take adds the drained counts d to the backlog. The caller must not use d after the call. take
// returns how many kept denials and how many kept allowed requests it dropped because too many were
// waiting.
func (w *waiting) take(d *drained, now time.Time) (notKept, allowedNotKept int64) {
	for key, counts := range d.counts {
		w.add(key, counts)
	}
	for key, s := range d.sketches {
		w.absorb(key, s, now)
	}
	w.boundTraces()
	for i := range d.refusals {
		size := refusalBytes(&d.refusals[i])
		parts := 1
		if d.refusals[i].Allowed {
			parts = 2 // allowed requests may use half of the room, so that the other half is left for denials
		}
		if len(w.refusals) >= maxWaitingRefusals/parts || w.refusalBytes+size > maxWaitingRefusalBytes/parts {
			if d.refusals[i].Allowed {
				allowedNotKept++
			} else {
				notKept++
			}
			continue
		}
		w.refusals = append(w.refusals, d.refusals[i])
		w.refusalBytes += size
	}
	return notKept, allowedNotKept
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

// boundTraces bounds the traces of each minute that are not written yet. A trace is a sketch with a
// sample of a tenant's requests; each higher level of a trace keeps fewer keys. boundTraces raises
// levels until the traces of a minute have at most nodeTraceRequests requests together. It always
// raises the levels of the largest traces first, so that a busy tenant does not use up the room of
// others. Among traces of equal size, it first raises those of the tenants that were created last.
func (w *waiting) boundTraces() {
	type boundedTrace struct {
		tenant uint32
		*waitingSketch
		trace *trace
	}
	minutes := make(map[int64][]boundedTrace)
	totals := make(map[int64]int)
	for key, s := range w.sketches {
		if t, is := s.sketch.(*trace); is && s.changed && len(t.requests) > 0 {
			minutes[key.At] = append(minutes[key.At], boundedTrace{key.Tenant, s, t})
			totals[key.At] += len(t.requests)
		}
	}
	for at, list := range minutes {
		slices.SortFunc(list, func(a, b boundedTrace) int { return cmp.Compare(b.tenant, a.tenant) })
		for most := traceRequests; totals[at] > nodeTraceRequests; most = most * 3 / 4 {
			for i := 0; i < len(list) && totals[at] > nodeTraceRequests; i++ {
				before := len(list[i].trace.requests)
				list[i].trace.bound(most)
				totals[at] -= before - len(list[i].trace.requests)
			}
		}
		for _, s := range list {
			w.weight -= s.weight
			s.weight = weightOf(s.sketch)
			w.weight += s.weight
		}
	}
}

// weightOf returns the estimated memory of a sketch. The unit is the memory of one row of
// counts.
func weightOf(s sketch) int {
	const perRow = 40 // a row of counts needs about as much memory as 40 numbers
	switch s := s.(type) {
	case *topKeys:
		return 1 + len(s.entries)
	case *retryTimes:
		return 1 + len(s.histogram.counts)/perRow
	case *latencies:
		return 1 + (len(s.shared.counts)+len(s.local.counts))/perRow
	case remainingShares:
		return 1 + len(s)
	case *trace:
		return 1 + (len(s.requests)*tracedRequestSize+len(s.keys)*tracedKeySize)/(8*perRow)
	}
	return 1
}

// refusalBytes returns the estimated memory of a kept denial.
func refusalBytes(r *Refusal) int {
	n := 400 + len(r.Path) + 200*len(r.Limits) + 150*len(r.Policies)
	for _, a := range r.Attributes {
		n += 32 + len(a.Name) + len(a.Value)
	}
	return n
}

// unwritten returns the number of sketches that have changed since they were last written.
func (w *waiting) unwritten() (n int) {
	for _, s := range w.sketches {
		if s.changed {
			n++
		}
	}
	return n
}

// allow sets the allowance: the total weight of the sketches that the next flush may write before
// they are due (see give). The allowance is budget, or the weight of all changed sketches divided
// by parts, whichever is greater.
func (w *waiting) allow(budget, parts int) {
	changed := 0
	for _, s := range w.sketches {
		if s.changed {
			changed += s.weight
		}
	}
	w.allowance = max(budget, changed/max(1, parts))
}

// give moves counts, kept denials and sketches from the backlog into b, oldest first, until b
// is full.
//
// A sketch is due if its minute is over, if its oldest unwritten change is at least longest
// old, or if all is set. Due sketches are always moved. Other sketches are moved until the
// allowance is used up.
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
		due := all || minuteOver(key.At, now) || now.Sub(s.since) >= longest && key.Name != SketchTrace
		if !due && (w.allowance <= 0 || key.Name == SketchTrace) {
			continue // a trace is large, so it is written only once, after its minute has ended
		}
		if t, is := s.sketch.(*trace); is && t.level > 0 && len(t.requests) == 0 {
			s.changed = false
			continue // the trace has no complete key of this minute, so it is not written
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

// longestUnwritten returns the keys of the changed sketches. The sketch whose first unwritten
// change is oldest comes first.
func (w *waiting) longestUnwritten() []SketchKey {
	keys := make([]SketchKey, 0, len(w.sketches))
	for key, s := range w.sketches {
		if s.changed {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b SketchKey) int {
		return cmp.Or(w.sketches[a].since.Compare(w.sketches[b].since), cmp.Compare(a.At, b.At), cmp.Compare(a.Tenant, b.Tenant),
			cmp.Compare(a.Name, b.Name))
	})
	return keys
}

func compareCountKeys(a, b CountKey) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

func minuteOver(at int64, now time.Time) bool { return at+60 <= now.Unix() }

// forget drops the written sketches whose minute ended more than keptMinutes ago. No counts arrive
// that late.
func (w *waiting) forget(now time.Time) { w.forgetBefore(now.Unix() - (1+keptMinutes)*60) }

// forgetBefore drops the written sketches of all minutes that start before at, in seconds since
// the epoch.
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

// fold reduces the backlog if it has more than most rows. It stops when the backlog has three
// quarters of most rows. fold works in three steps, each with the oldest rows first. It drops
// sketches. Then it combines the rows of different routes or policies of a minute. Then it combines
// the rows of one hour. The sums of each tenant stay exact. At most three rows per tenant and hour
// remain, even if these are more than three quarters of most. fold returns the number of rows that
// it combined or dropped.
func (w *waiting) fold(most int, now time.Time) (folded int64) {
	if w.size() <= most {
		return 0
	}
	w.forgetBefore(now.Unix() - 60)
	goal := most / 4 * 3 // the goal is below most, so that the next call does not have to fold again
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

func (w *waiting) size() int { return len(w.counts) + w.weight }

// minutes returns the starts of the minutes for which the backlog has sketches, oldest first.
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

// unnamed returns key with foldedName in place of the name of the route or policy.
func unnamed(key CountKey) CountKey {
	if key.Kind != KindTotal {
		key.Name = foldedName
	}
	return key
}

// hourly returns key with foldedName in place of the name of the route or policy, and with the
// start of the hour as its time.
func hourly(key CountKey) CountKey {
	key.At -= key.At % int64(Hour.Duration()/time.Second)
	return unnamed(key)
}
