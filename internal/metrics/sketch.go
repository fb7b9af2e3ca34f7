package metrics

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/enforcement"
)

// topCapacity is how many keys a sketch of top keys holds: what it says of a key
// is wrong by at most a hundredth of all that came.
const topCapacity = 100

// topKeys finds the keys that come most often among any number of them, in
// bounded memory: Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient
// Computation of Frequent and Top-k Elements in Data Streams", 2005), with its
// stream summary, so that adding one takes constant time.
//
// The true number of a key that is in it is within count-error and count; of
// one that is not, at most floor. No error and no floor is above total /
// capacity, so every key with more than that is in it. While fewer keys than
// capacity came, all is exact. That holds after merges as well, in any order:
// Agarwal et al., "Mergeable Summaries", 2012; Cafaro, Pulimeno and Tempesta, "A
// parallel space saving algorithm for frequent items and the Hurwitz zeta
// distribution", 2016.
//
// It is not for concurrent use. newTopKeys makes one.
type topKeys struct {
	capacity int
	total    int64 // of all keys
	// absent is the most that a key may have had that was dropped in a merge.
	absent  int64
	entries []topEntry
	places  map[topID]int32 // of entries
	// groups has the entries of one count each, linked in the order of counts
	// from lowest on; free are those without entries, linked by next.
	groups       []topGroup
	lowest, free int32
}

// A topID tells keys apart: by policy and Key.Partition while they are counted,
// by tenant and a hash of the text once they were gathered.
type topID struct {
	scope     uint32
	partition [16]byte
}

// A topEntry is one key. Its count is its group's.
type topEntry struct {
	id                topID
	error             int64
	group, prev, next int32
	text              topText
}

// A topGroup is the entries of one count, first the one that came to it first.
type topGroup struct {
	count       int64
	first, last int32
	prev, next  int32
}

// none is no place.
const none = -1

func newTopKeys(capacity int) *topKeys {
	return &topKeys{capacity: capacity, lowest: none, free: none}
}

// reset empties t for other keys; it keeps its memory.
func (t *topKeys) reset() {
	clear(t.places)
	*t = topKeys{
		capacity: t.capacity, entries: t.entries[:0], places: t.places, groups: t.groups[:0],
		lowest: none, free: none,
	}
}

// floor is the most that a key may have had that is not in t.
func (t *topKeys) floor() int64 {
	if len(t.entries) == t.capacity {
		return max(t.absent, t.groups[t.lowest].count)
	}
	return t.absent
}

// add counts a key n times, n above 0. When the key was not there, it takes the
// place of the one with the lowest count that has had it longest, and the caller
// writes its text to the entry that is returned; otherwise nil.
func (t *topKeys) add(id topID, n int64) *topEntry {
	t.total += n
	if place, known := t.places[id]; known {
		t.raise(place, t.groups[t.entries[place].group].count+n)
		return nil
	}
	floor := t.floor()
	var place int32
	if len(t.entries) < t.capacity {
		place = t.grow()
		t.put(place, floor+n, none)
	} else {
		place = t.groups[t.lowest].first
		delete(t.places, t.entries[place].id)
		t.raise(place, floor+n)
	}
	t.places[id] = place
	e := &t.entries[place]
	e.id, e.error = id, floor
	return e
}

// grow gives a place for one more entry; what it held before is its memory.
func (t *topKeys) grow() int32 {
	if t.places == nil {
		t.places = make(map[topID]int32)
	}
	n := len(t.entries)
	if n < cap(t.entries) {
		t.entries = t.entries[:n+1]
	} else {
		t.entries = append(t.entries, topEntry{})
	}
	return int32(n)
}

// raise gives an entry a higher count.
func (t *topKeys) raise(place int32, count int64) {
	from := t.entries[place].group
	if g := &t.groups[from]; g.first == g.last && (g.next == none || t.groups[g.next].count > count) {
		g.count = count // alone, and nobody between
		return
	}
	after := from
	if t.leave(place) {
		after = t.groups[from].prev
		t.drop(from)
	}
	t.put(place, count, after)
}

// put adds an entry to the group of a count, looking from the group after on
// upwards; none: from the lowest.
func (t *topKeys) put(place int32, count int64, after int32) {
	next := t.lowest
	if after != none {
		next = t.groups[after].next
		if t.groups[after].count == count {
			next = after
		}
	}
	for next != none && t.groups[next].count < count {
		after, next = next, t.groups[next].next
	}
	if next == none || t.groups[next].count != count {
		next = t.insert(count, after, next)
	}
	g, e := &t.groups[next], &t.entries[place]
	e.group, e.prev, e.next = next, g.last, none
	if g.last != none {
		t.entries[g.last].next = place
	} else {
		g.first = place
	}
	g.last = place
}

// leave takes an entry out of its group, and reports whether that is empty now.
func (t *topKeys) leave(place int32) bool {
	e := &t.entries[place]
	g := &t.groups[e.group]
	if e.prev != none {
		t.entries[e.prev].next = e.next
	} else {
		g.first = e.next
	}
	if e.next != none {
		t.entries[e.next].prev = e.prev
	} else {
		g.last = e.prev
	}
	return g.first == none
}

// insert makes a group between two others.
func (t *topKeys) insert(count int64, prev, next int32) int32 {
	at := t.free
	if at != none {
		t.free = t.groups[at].next
	} else {
		at = int32(len(t.groups))
		t.groups = append(t.groups, topGroup{})
	}
	t.groups[at] = topGroup{count: count, first: none, last: none, prev: prev, next: next}
	t.link(prev, at)
	if next != none {
		t.groups[next].prev = at
	}
	return at
}

// drop takes an empty group out.
func (t *topKeys) drop(at int32) {
	prev, next := t.groups[at].prev, t.groups[at].next
	t.link(prev, next)
	if next != none {
		t.groups[next].prev = prev
	}
	t.groups[at].next, t.free = t.free, at
}

// link has a group follow prev; none: be the lowest.
func (t *topKeys) link(prev, at int32) {
	if prev != none {
		t.groups[prev].next = at
	} else {
		t.lowest = at
	}
}

// A topText says of a key what people look at. Its memory is used again.
type topText struct {
	tenant   uint32
	policy   string // slug; "": the key is the tenant itself
	names    []string
	values   []topValue
	redacted bool
}

type topValue struct {
	text    string // at most maxTopValue bytes
	missing bool
}

// maxTopValue bounds a value that is kept for people to look at, in bytes. A
// longer one keeps its beginning, and a mark that tells it from its like.
const (
	maxTopValue = 128
	keptOfValue = maxTopValue - len("…") - hashedDigits
)

// hashedDigits of SHA-256 stand for a value, in hexadecimal.
const hashedDigits = 12

// describe writes the key under which a rule counts a check. parts is memory to
// use, and is given back.
func (x *topText) describe(s *enforcement.Subject, r *enforcement.Rule, c *enforcement.Check, parts []enforcement.KeyPart) []enforcement.KeyPart {
	parts = r.KeyOf(c, parts[:0])
	x.tenant, x.policy, x.names, x.values, x.redacted = s.Number, r.Policy, r.CountBy, x.values[:0], s.Redact
	for i := range parts {
		v := topValue{missing: parts[i].Missing}
		switch {
		case v.missing:
		case s.Redact:
			v.text = redact(s.Number, r.Policy, parts[i].Value)
		default:
			v.text = shorten(parts[i].Value)
		}
		x.values = append(x.values, v)
	}
	return parts
}

// redact is what stands for a value of a tenant that does not let them be kept.
// The same value of the same policy has the same, so that it can be counted.
func redact(tenant uint32, policy, value string) string {
	text := binary.BigEndian.AppendUint32(nil, tenant)
	text = binary.BigEndian.AppendUint32(text, uint32(len(policy)))
	text = append(append(text, policy...), value...)
	return "sha256:" + digits(text)
}

// shorten copies a value, cut to maxTopValue bytes.
func shorten(value string) string {
	if len(value) <= maxTopValue {
		return strings.Clone(value)
	}
	end := keptOfValue
	for end > 0 && !utf8.RuneStart(value[end]) {
		end--
	}
	return value[:end] + "…" + digits([]byte(value))
}

func digits(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:hashedDigits/2])
}

// id of a key that is told apart by its text.
func (x *topText) id() topID {
	var room [512]byte
	sum := sha256.Sum256(x.appendTo(room[:0]))
	id := topID{scope: x.tenant}
	copy(id.partition[:], sum[:])
	return id
}

// appendTo writes what tells keys of a tenant apart.
func (x *topText) appendTo(text []byte) []byte {
	text = appendText(text, x.policy)
	for _, name := range x.names {
		text = appendText(text, name)
	}
	for _, v := range x.values {
		if v.missing {
			text = append(text, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		text = appendText(text, v.text)
	}
	return text
}

func appendText(to []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32(to, uint32(len(text))), text...)
}

// compare orders keys by their text.
func (x *topText) compare(o *topText) int {
	return cmp.Or(
		cmp.Compare(x.tenant, o.tenant),
		cmp.Compare(x.policy, o.policy),
		slices.Compare(x.names, o.names),
		slices.CompareFunc(x.values, o.values, func(a, b topValue) int {
			return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(truthNumber(a.missing), truthNumber(b.missing)))
		}))
}

func truthNumber(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A ranked is a key with its numbers, outside the order of a topKeys.
type ranked struct {
	id           topID
	count, error int64
	text         topText
}

// ranking gives the keys with the highest counts first; among equals those with
// the smaller error, then by their text.
func (t *topKeys) ranking() []ranked {
	list := make([]ranked, len(t.entries))
	for i := range t.entries {
		e := &t.entries[i]
		list[i] = ranked{e.id, t.groups[e.group].count, e.error, e.text}
	}
	return sortRanked(list)
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

// gathered gives the keys of t told apart by their text, in memory of its own,
// with room for so many. Keys of one text become one.
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

// fill puts a ranking into an empty t: as many as it can hold. absent is the
// most that a key may have had that is not in the list.
func (t *topKeys) fill(list []ranked, absent int64) {
	t.absent = absent
	if len(list) > t.capacity {
		t.absent = max(absent, list[t.capacity].count)
		list = list[:t.capacity]
	}
	t.entries = slices.Grow(t.entries, len(list))
	for _, k := range slices.Backward(list) {
		place := t.grow()
		last := int32(none)
		if place > 0 {
			last = t.entries[place-1].group // the list ascends: behind the one before
		}
		t.put(place, k.count, last)
		e := &t.entries[place]
		e.id, e.error, e.text = k.id, k.error, k.text
		t.places[k.id] = place
	}
}

// mergeOthers adds what sketches counted of which each has keys of its own, that
// none of the others can have: those of another tenant. So no floor adds to a
// count.
func (t *topKeys) mergeOthers(others []*topKeys) {
	others = append(slices.Clip(others), t)
	var list []ranked
	total, absent := int64(0), int64(0)
	for _, o := range others {
		total, absent = total+o.total, max(absent, o.floor())
		for i := range o.entries {
			e := &o.entries[i]
			list = append(list, ranked{e.id, o.groups[e.group].count, e.error, e.text})
		}
	}
	merged := newTopKeys(t.capacity)
	merged.total = total
	list, dropped := highest(list, t.capacity)
	merged.fill(sortRanked(list), max(absent, dropped))
	*t = *merged
}

// highest keeps the n keys with the highest counts; of equals those with the
// lowest ids, which is quicker told than their texts. dropped is the highest
// count of the others.
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

// merge adds what o counted. A key that only one of them has may have had up to
// the other's floor there.
func (t *topKeys) merge(o *topKeys) {
	mine, theirs := t.floor(), o.floor()
	list := make([]ranked, 0, len(t.entries)+len(o.entries))
	for i := range t.entries {
		e := &t.entries[i]
		k := ranked{e.id, t.groups[e.group].count, e.error, e.text}
		if place, known := o.places[e.id]; known {
			k.count += o.groups[o.entries[place].group].count
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
			list = append(list, ranked{e.id, o.groups[e.group].count + mine, e.error + mine, e.text})
		}
	}
	merged := newTopKeys(t.capacity)
	merged.total = t.total + o.total
	merged.fill(sortRanked(list), mine+theirs)
	*t = *merged
}

// topDoc is topKeys as JSON. Policies stand once, and keys in their order.
type topDoc struct {
	Capacity int         `json:"capacity"`
	Total    int64       `json:"total"`
	Floor    int64       `json:"floor,omitempty"`
	Policies []topPolicy `json:"policies"`
	Keys     []topKeyDoc `json:"keys"`
}

type topPolicy struct {
	Policy  string   `json:"policy"`
	CountBy []string `json:"count_by"`
}

type topKeyDoc struct {
	Tenant   uint32    `json:"t"`
	Policy   int       `json:"p"` // place in Policies
	Values   []*string `json:"v"` // null: missing
	Redacted bool      `json:"r,omitempty"`
	Count    int64     `json:"c"`
	Error    int64     `json:"e,omitempty"`
}

// encode gives t as JSON.
func (t *topKeys) encode() []byte {
	doc := topDoc{Capacity: t.capacity, Total: t.total, Floor: t.floor(), Policies: []topPolicy{}, Keys: []topKeyDoc{}}
	for _, k := range t.ranking() {
		p := slices.IndexFunc(doc.Policies, func(p topPolicy) bool {
			return p.Policy == k.text.policy && slices.Equal(p.CountBy, k.text.names)
		})
		if p < 0 {
			p = len(doc.Policies)
			doc.Policies = append(doc.Policies, topPolicy{k.text.policy, append([]string{}, k.text.names...)})
		}
		values := make([]*string, len(k.text.values))
		for i := range values {
			if !k.text.values[i].missing {
				values[i] = &k.text.values[i].text
			}
		}
		doc.Keys = append(doc.Keys, topKeyDoc{k.text.tenant, p, values, k.text.redacted, k.count, k.error})
	}
	return mustJSON(doc)
}

// maxSketchCount bounds a number in a document, so that no sum of documents
// overflows.
const maxSketchCount = 1 << 53

// A topRead is a topDoc as it is read.
type topRead struct {
	capacity     int
	total, floor int64
	policies     []topPolicy
	keys         []topReadKey
}

type topReadKey struct {
	tenant       uint32
	policy       int // place in policies
	values       []topValue
	redacted     bool
	count, error int64
}

// readTop reads what encode wrote, and nothing else. Whether a key is there
// twice is left to the caller.
func readTop(text []byte) (r topRead, err error) {
	r, ok := scanTop(string(text))
	if !ok {
		var doc topDoc
		if err := strictJSON(text, &doc); err != nil {
			return topRead{}, err
		}
		r = doc.read()
	}
	if r.capacity < 1 || r.capacity > 100*topCapacity || len(r.keys) > r.capacity {
		return topRead{}, fmt.Errorf("%d keys of %d", len(r.keys), r.capacity)
	}
	if !within(r.total) || !within(r.floor) {
		return topRead{}, fmt.Errorf("total %d, floor %d", r.total, r.floor)
	}
	for i := range r.keys {
		if err := r.keys[i].check(r.policies); err != nil {
			return topRead{}, fmt.Errorf("key %d: %w", i, err)
		}
	}
	return r, nil
}

// read gives what encoding/json read.
func (d *topDoc) read() topRead {
	r := topRead{d.Capacity, d.Total, d.Floor, d.Policies, make([]topReadKey, len(d.Keys))}
	for i := range d.Keys {
		k := &d.Keys[i]
		values := make([]topValue, len(k.Values))
		for i, v := range k.Values {
			if v == nil {
				values[i].missing = true
			} else {
				values[i].text = *v
			}
		}
		r.keys[i] = topReadKey{k.Tenant, k.Policy, values, k.Redacted, k.Count, k.Error}
	}
	return r
}

func (k *topReadKey) check(policies []topPolicy) error {
	if k.policy < 0 || k.policy >= len(policies) {
		return fmt.Errorf("policy %d of %d", k.policy, len(policies))
	}
	if names := policies[k.policy].CountBy; len(k.values) != len(names) {
		return fmt.Errorf("%d values of %d", len(k.values), len(names))
	}
	if k.count < 1 || !within(k.count) || k.error < 0 || k.error > k.count {
		return fmt.Errorf("count %d, error %d", k.count, k.error)
	}
	return nil
}

// text of a key that was checked.
func (r *topRead) text(i int) topText {
	k := &r.keys[i]
	p := &r.policies[k.policy]
	return topText{tenant: k.tenant, policy: p.Policy, names: p.CountBy, values: k.values, redacted: k.redacted}
}

func errTwice(i int) error { return fmt.Errorf("key %d: is there twice", i) }

// decodeTopKeys reads what encode wrote, to count on or to merge. What is only
// looked at is read as a topList.
func decodeTopKeys(text []byte) (*topKeys, error) {
	r, err := readTop(text)
	if err != nil {
		return nil, err
	}
	list, known := make([]ranked, len(r.keys)), make(map[topID]bool, len(r.keys))
	for i := range r.keys {
		k := ranked{count: r.keys[i].count, error: r.keys[i].error, text: r.text(i)}
		if k.id = k.text.id(); known[k.id] {
			return nil, errTwice(i)
		}
		known[k.id], list[i] = true, k
	}
	t := newTopKeys(r.capacity)
	t.total = r.total
	t.fill(sortRanked(list), r.floor)
	return t, nil
}

func within(n int64) bool { return n >= 0 && n <= maxSketchCount }

// strictJSON reads one JSON value without unknown members or anything behind it.
func strictJSON(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return nil
}

// mustJSON writes a value of types that can always be written.
func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
