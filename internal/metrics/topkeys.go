package metrics

import (
	"bytes"
	"cmp"
	"slices"
)

// topCapacity is the maximum number of keys in a topKeys. With this capacity, the error of each
// count is at most a hundredth of the total.
const topCapacity = 100

// topKeys finds the most frequent keys of a stream in bounded memory. It uses the Space-Saving
// algorithm (Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements
// in Data Streams", 2005), with a heap of the entries.
//
// The true count of a listed key is at least count-error and at most count. The true count of every
// other key is at most floor. Neither an error nor the floor exceeds total / capacity, so every key
// with a higher count is listed. If at most capacity different keys were added, all counts are
// exact. All this also holds after merges in any order: Agarwal et al., "Mergeable Summaries",
// 2012; Cafaro, Pulimeno and Tempesta, "A parallel space saving algorithm for frequent items and
// the Hurwitz zeta distribution", 2016.
//
// A topKeys is not safe for concurrent use. newTopKeys creates one.
type topKeys struct {
	capacity int
	total    int64 // sum of the counts of all keys, including keys that are not listed
	// absent is an upper bound of the count of every key that a merge has dropped from the list.
	absent  int64
	entries []topEntry
	places  map[topID]int32 // index of each key in entries
	// heap contains indexes of entries as a min-heap, ordered by count. Among entries with equal
	// counts, the entry whose count changed first comes first.
	heap  []int32
	steps int64 // number of changes, for topEntry.since
}

// A topID identifies a key. In a tenantMinute, scope is the index of the policy, and partition is
// the partition of the key. In a topKeys that the method gathered returns, scope is the tenant, and
// partition is a hash of the key's text.
type topID struct {
	scope     uint32
	partition [16]byte
}

// A topEntry is a listed key with its count.
type topEntry struct {
	id           topID
	count, error int64
	since        int64 // value of topKeys.steps when count last changed
	at           int   // index in topKeys.heap
	text         topText
}

func newTopKeys(capacity int) *topKeys { return &topKeys{capacity: capacity} }

// reset empties t and keeps its memory for reuse.
func (t *topKeys) reset() {
	clear(t.places)
	*t = topKeys{capacity: t.capacity, entries: t.entries[:0], places: t.places, heap: t.heap[:0]}
}

// floor returns an upper bound of the count of each key that is not listed.
func (t *topKeys) floor() int64 {
	if len(t.entries) == t.capacity {
		return max(t.absent, t.entries[t.heap[0]].count)
	}
	return t.absent
}

// add adds n, which must be above 0, to the count of a key. If the key is not listed and t is full,
// the key replaces the key with the lowest count.
//
// If the key was not listed before, add returns its new entry, and the caller must set the text of
// this entry. Otherwise add returns nil.
func (t *topKeys) add(id topID, n int64) *topEntry {
	t.total += n
	if place, known := t.places[id]; known {
		t.setCount(place, t.entries[place].count+n)
		return nil
	}
	floor := t.floor()
	if len(t.entries) < t.capacity {
		return t.insert(id, floor+n, floor)
	}
	place := t.heap[0]
	e := &t.entries[place]
	delete(t.places, e.id)
	t.places[id] = place
	e.id, e.error = id, floor
	t.setCount(place, floor+n)
	return e
}

// insert adds an entry for a key. The text of the returned entry may contain values of a deleted
// entry. The caller overwrites these values, which reuses their memory.
func (t *topKeys) insert(id topID, count, wrong int64) *topEntry {
	if t.places == nil {
		t.places = make(map[topID]int32)
	}
	n := len(t.entries)
	if n < cap(t.entries) {
		t.entries = t.entries[:n+1]
	} else {
		t.entries = append(t.entries, topEntry{})
	}
	t.places[id], t.heap = int32(n), append(t.heap, int32(n))
	e := &t.entries[n]
	e.id, e.error, e.at = id, wrong, n
	t.setCount(int32(n), count)
	return e
}

func (t *topKeys) setCount(place int32, count int64) {
	e := &t.entries[place]
	t.steps++
	e.count, e.since = count, t.steps
	at := e.at
	for ; at > 0 && t.less(at, (at-1)/2); at = (at - 1) / 2 {
		t.swap(at, (at-1)/2)
	}
	for child := 2*at + 1; child < len(t.heap); child = 2*at + 1 {
		if child+1 < len(t.heap) && t.less(child+1, child) {
			child++
		}
		if !t.less(child, at) {
			return
		}
		t.swap(child, at)
		at = child
	}
}

func (t *topKeys) less(i, j int) bool {
	a, b := &t.entries[t.heap[i]], &t.entries[t.heap[j]]
	return a.count < b.count || a.count == b.count && a.since < b.since
}

func (t *topKeys) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.entries[t.heap[i]].at, t.entries[t.heap[j]].at = i, j
}

// A ranked is a key with its count and error, in a list sorted by sortRanked.
type ranked struct {
	id           topID
	count, error int64
	text         topText
}

// ranking returns the keys, the highest count first. Keys with equal counts are ordered by their
// error, the smallest first, and then by their text.
func (t *topKeys) ranking() []ranked {
	return sortRanked(t.appendTo(make([]ranked, 0, len(t.entries))))
}

// appendTo appends the keys of t to list.
func (t *topKeys) appendTo(list []ranked) []ranked {
	for i := range t.entries {
		e := &t.entries[i]
		list = append(list, ranked{e.id, e.count, e.error, e.text})
	}
	return list
}

func sortRanked(list []ranked) []ranked {
	slices.SortFunc(list, func(a, b ranked) int {
		switch {
		case a.count != b.count:
			return cmp.Compare(b.count, a.count)
		case a.error != b.error:
			return cmp.Compare(a.error, b.error)
		}
		return a.text.compare(&b.text)
	})
	return list
}

// gathered returns a copy of t that has the given capacity and identifies keys by their text.
// Keys with equal texts become one key.
func (t *topKeys) gathered(capacity int) *topKeys {
	list, places := make([]ranked, 0, len(t.entries)), make(map[topID]int, len(t.entries))
	for _, k := range t.ranking() {
		k.text.values = slices.Clone(k.text.values)
		k.id = k.text.id()
		if at, known := places[k.id]; known {
			list[at].count += k.count
			list[at].error += k.error
			continue
		}
		places[k.id] = len(list)
		list = append(list, k)
	}
	out := newTopKeys(capacity)
	out.total = t.total
	out.fill(sortRanked(list), t.floor())
	return out
}

// fill adds the first elements of a sorted list to t, up to the capacity of t. t must be empty.
// absent is an upper bound of the count of every key that is not in the list.
func (t *topKeys) fill(list []ranked, absent int64) {
	t.absent = absent
	if len(list) > t.capacity {
		t.absent = max(absent, list[t.capacity].count)
		list = list[:t.capacity]
	}
	t.entries = slices.Grow(t.entries, len(list))
	for _, k := range slices.Backward(list) {
		t.insert(k.id, k.count, k.error).text = k.text
	}
}

// mergeOthers adds sketches that have no keys in common, such as the sketches of different tenants.
// Each key has counts in only one of the sketches. Therefore mergeOthers does not add the floors of
// the other sketches to the count of a key, as merge does.
func (t *topKeys) mergeOthers(others []*topKeys) {
	others = append(slices.Clip(others), t)
	var list []ranked
	total, absent := int64(0), int64(0)
	for _, o := range others {
		total, absent = total+o.total, max(absent, o.floor())
		list = o.appendTo(list)
	}
	merged := newTopKeys(t.capacity)
	merged.total = total
	list, dropped := highest(list, t.capacity)
	merged.fill(sortRanked(list), max(absent, dropped))
	*t = *merged
}

// highest returns the n keys of list with the highest counts. Among keys with equal counts, it
// prefers those with smaller errors, then those with lower IDs. dropped is the highest count of a
// key that is not in kept.
func highest(list []ranked, n int) (kept []ranked, dropped int64) {
	if len(list) <= n {
		return list, 0
	}
	slices.SortFunc(list, func(a, b ranked) int {
		return cmp.Or(
			cmp.Compare(b.count, a.count), cmp.Compare(a.error, b.error),
			bytes.Compare(a.id.partition[:], b.id.partition[:]), cmp.Compare(a.id.scope, b.id.scope))
	})
	return list[:n], list[n].count
}

// merge adds the counts of o to t. If only one of the two sketches lists a key, the other one may
// have counted the key too, at most up to its floor. Therefore merge adds the floor of the other
// sketch to the count and to the error of the key.
func (t *topKeys) merge(o *topKeys) {
	mine, theirs := t.floor(), o.floor()
	list := make([]ranked, 0, len(t.entries)+len(o.entries))
	for i := range t.entries {
		e := &t.entries[i]
		k := ranked{e.id, e.count, e.error, e.text}
		if place, known := o.places[e.id]; known {
			k.count += o.entries[place].count
			k.error += o.entries[place].error
		} else {
			k.count += theirs
			k.error += theirs
		}
		list = append(list, k)
	}
	for i := range o.entries {
		e := &o.entries[i]
		if _, known := t.places[e.id]; !known {
			list = append(list, ranked{e.id, e.count + mine, e.error + mine, e.text})
		}
	}
	merged := newTopKeys(t.capacity)
	merged.total = t.total + o.total
	merged.fill(sortRanked(list), mine+theirs)
	*t = *merged
}
