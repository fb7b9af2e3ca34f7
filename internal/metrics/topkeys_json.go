package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// errDocument is the error for a stored text that this release cannot have written as a sketch.
var errDocument = errors.New("not a document of this release")

// topDoc is the stored JSON form of topKeys. It lists each policy once, and the keys in the order
// of topKeys.ranking.
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
	Policy   int       `json:"p"` // index in Policies
	Values   []*string `json:"v"` // an element is nil if the requests did not have this attribute
	Redacted bool      `json:"r,omitempty"`
	Count    int64     `json:"c"`
	Error    int64     `json:"e,omitempty"`
}

// encode returns t as a JSON document.
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

// maxSketchCount is the maximum of each number in a topDoc. With this maximum, sums of many
// sketches cannot overflow.
const maxSketchCount = 1 << 53

// A topRead is a decoded topDoc. decodeTopKeys converts it to a topKeys, and decodeTopList converts
// it to a topList.
type topRead struct {
	capacity     int
	total, floor int64
	policies     []topPolicy
	keys         []topReadKey
}

type topReadKey struct {
	tenant       uint32
	policy       int // index in policies
	values       []topValue
	redacted     bool
	count, error int64
}

// readTop decodes the output of topKeys.encode and validates it. It does not check for duplicate
// keys; its callers check for them.
func readTop(text []byte) (r topRead, err error) {
	r, ok := scanTop(string(text))
	if !ok {
		return topRead{}, errDocument
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

// text returns the text of the key with the index i in r.keys. readTop must have validated r.
func (r *topRead) text(i int) topText {
	k := &r.keys[i]
	p := &r.policies[k.policy]
	return topText{tenant: k.tenant, policy: p.Policy, names: p.CountBy, values: k.values, redacted: k.redacted}
}

func errTwice(i int) error { return fmt.Errorf("key %d is a duplicate", i) }

// decodeTopKeys decodes the output of topKeys.encode into a topKeys. Counts can be added to a
// topKeys. Queries use decodeTopList, which is faster.
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

// mustJSON returns the JSON form of a value. It panics on an error, so v must be a value that
// encoding/json can always encode.
func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
