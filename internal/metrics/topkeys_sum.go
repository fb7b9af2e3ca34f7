package metrics

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"unsafe"
)

// A topList is a stored ranking of keys, decoded for queries. It is read-only and needs less
// memory and time than a topKeys.
type topList struct {
	// floor is an upper bound of the count of every key that is not in keys. total is the sum of
	// the counts of all keys.
	floor, total int64
	keys         []listed // in no particular order
	kept         int      // estimated memory in bytes
}

// A listed is a key of a topList with its count and error.
type listed struct {
	mark         textMark
	count, error int64
	text         topText
}

// A textMark identifies a key by two hashes of its text. Each process chooses random seeds for
// the hashes, so that clients cannot construct two keys with the same mark.
type textMark [2]uint64

var markSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func (x *topText) mark() (m textMark) {
	var room [512]byte
	text := x.appendTo(binary.BigEndian.AppendUint32(room[:0], x.tenant))
	for i := range m {
		m[i] = maphash.Bytes(markSeeds[i], text)
	}
	return m
}

// decodeTopList decodes the output of topKeys.encode. It returns an error for any other text.
// name is the name of the sketch, for the error.
func decodeTopList(name string, doc []byte) (*topList, error) {
	r, err := readTop(doc)
	if err == nil {
		var t *topList
		if t, err = r.list(len(doc)); err == nil {
			return t, nil
		}
	}
	return nil, fmt.Errorf("sketch %q: %w", name, err)
}

// list converts r to a topList. length is the size of the stored document in bytes. The estimated
// memory of the topList includes the document.
func (r *topRead) list(length int) (*topList, error) {
	t := &topList{floor: r.floor, total: r.total, keys: make([]listed, len(r.keys))}
	known := newMarkSet(len(r.keys))
	values, lowest := 0, int64(0)
	for i := range r.keys {
		k := &t.keys[i]
		*k = listed{count: r.keys[i].count, error: r.keys[i].error, text: r.text(i)}
		if k.mark = k.text.mark(); !known.add(k.mark) {
			return nil, errTwice(i)
		}
		if i == 0 || k.count < lowest {
			lowest = k.count
		}
		values += len(k.text.values)
	}
	if len(t.keys) == r.capacity {
		t.floor = max(t.floor, lowest)
	}
	// The texts are slices of the document, so they need no memory of their own. The slice of
	// values may have unused capacity.
	t.kept = int(unsafe.Sizeof(*t)) + len(t.keys)*int(unsafe.Sizeof(listed{})) + (values+usualValues)*int(unsafe.Sizeof(topValue{})) + length
	return t, nil
}

// A markSet is a set of textMarks with a fixed maximum size.
type markSet []textMark // a hash table with open addressing; a zero element is unused

func newMarkSet(n int) markSet {
	room := 8
	for room < 2*n {
		room *= 2
	}
	return make(markSet, room)
}

// add adds m to the set. It returns true if m was not in the set before.
func (s markSet) add(m textMark) bool {
	for at := m[0]; ; at++ {
		place := &s[at&uint64(len(s)-1)]
		switch *place {
		case m:
			return false
		case textMark{}:
			*place = m
			return true
		}
	}
}

// of returns the count and the error of the key with this mark. If the key is not listed, its true
// count may be anything from 0 to the floor, so both results are the floor.
func (t *topList) of(mark textMark) (count, wrong int64) {
	for i := range t.keys {
		if k := &t.keys[i]; k.mark == mark {
			return k.count, k.error
		}
	}
	return t.floor, t.floor
}

// A union is the sum of several rankings. If a ranking does not list a key, the union adds the
// floor of this ranking to the count of the key. The errors are smaller if all rankings are added
// at once than if they are merged pair by pair.
type union struct {
	places       map[textMark]int32
	keys         []summed // counts and errors relative to the floor of the union
	floor, total int64
}

// A summed is one key of a union, with the sums of its counts and of its errors. Both sums are
// stored without the floor of the union; the true sums are higher by this floor.
type summed struct {
	count, error int64
	text         *topText // text in one of the added lists
}

func newUnion() *union { return &union{places: make(map[textMark]int32, 2*topCapacity)} }

func (u *union) add(t *topList) {
	u.floor += t.floor
	u.total += t.total
	for i := range t.keys {
		e := &t.keys[i]
		place, known := u.places[e.mark]
		if !known {
			place = int32(len(u.keys))
			u.places[e.mark] = place
			u.keys = append(u.keys, summed{text: &e.text})
		}
		k := &u.keys[place]
		k.count += e.count - t.floor
		k.error += e.error - t.floor
	}
}

// compare orders two keys by count, error and text, like sortRanked.
func (k *summed) compare(o *summed) int {
	switch {
	case k.count != o.count:
		return cmp.Compare(o.count, k.count)
	case k.error != o.error:
		return cmp.Compare(k.error, o.error)
	}
	return k.text.compare(o.text)
}

// ranking returns at most limit keys for which choose returns true, in the order of sortRanked. If
// choose is nil, it considers all keys. floor is an upper bound of the count of every considered
// key that is not in the result.
func (u *union) ranking(choose func(*topText) bool, limit int) (list []ranked, floor int64) {
	first := make([]*summed, 0, limit+1) // the first limit+1 of the keys considered so far, sorted
	for i := range u.keys {
		k := &u.keys[i]
		full := len(first) == limit+1
		if full && k.compare(first[limit]) > 0 || choose != nil && !choose(k.text) {
			continue
		}
		at, _ := slices.BinarySearchFunc(first, k, (*summed).compare)
		if full {
			first = first[:limit]
		}
		first = slices.Insert(first, at, k)
	}
	floor = u.floor
	if len(first) > limit {
		floor = max(floor, first[limit].count+u.floor)
		first = first[:limit]
	}
	list = make([]ranked, len(first))
	for i, k := range first {
		list[i] = ranked{count: k.count + u.floor, error: k.error + u.floor, text: *k.text}
	}
	return list, floor
}
