package metrics

import (
	"errors"
	"maps"
	"slices"
)

// Forgotten is what was removed of tenants that are to be forgotten, in rows.
type Forgotten struct {
	Counts, Sketches, Refusals int64
}

// Without takes what was counted of tenants out of a sketch of all tenants
// together; WithoutTenants is the one.
type Without func(name string, doc []byte, gone []uint32, theirs [][]byte) ([]byte, error)

// SketchNames are the names of all sketches.
var SketchNames = []string{
	SketchLimitedKeys, SketchAllowedKeys, SketchLimitedTenants, SketchBusyTenants, SketchRetryAfter, SketchRemaining, SketchLatency,
}

// WithoutTenants gives a sketch of all tenants together (number 0) as it is
// without those that are gone; nil when it has nothing left. theirs are their
// own sketches of the same name, time and node, in any order. What a sketch does
// not tell by tenant and they have none of, the limiter's time, stays.
func WithoutTenants(name string, doc []byte, gone []uint32, theirs [][]byte) ([]byte, error) {
	s, err := decodeSketch(name, doc)
	if err != nil {
		return nil, err
	}
	switch s := s.(type) {
	case *topKeys:
		return s.without(name, gone, theirs)
	case *retryTimes:
		return s.without(theirs)
	case remainingShares:
		return s.without(theirs)
	}
	return doc, nil
}

// without drops the keys of tenants. What a key may have had that is not in t
// stays a bound of it.
func (t *topKeys) without(name string, gone []uint32, theirs [][]byte) ([]byte, error) {
	floor, total := t.floor(), t.total
	left := t.ranking()[:0]
	for _, k := range t.ranking() {
		if !slices.Contains(gone, k.text.tenant) {
			left = append(left, k)
		} else if k.text.policy == "" {
			total -= k.count // a ranking of tenants: they have no sketches of their own
		}
	}
	for _, doc := range theirs {
		own, err := decodeSketch(name, doc)
		if err != nil {
			return nil, err
		}
		total -= own.(*topKeys).total
	}
	if len(left) == 0 && total <= 0 {
		return nil, nil
	}
	out := newTopKeys(t.capacity)
	out.places = make(map[topID]int32, len(left))
	out.fill(left, floor)
	for _, k := range left {
		total = max(total, k.count-k.error)
	}
	out.total = total
	return out.encode(), nil
}

// errMore says that tenants have more than all tenants together.
var errMore = errors.New("a tenant has more in its sketch than all tenants together")

func (r *retryTimes) without(theirs [][]byte) ([]byte, error) {
	for _, doc := range theirs {
		own, err := decodeRetryTimes(doc)
		if err != nil {
			return nil, err
		}
		if r.never < own.never || len(own.histogram.counts) > len(r.histogram.counts) {
			return nil, errMore
		}
		r.never -= own.never
		for i, n := range own.histogram.counts {
			if r.histogram.counts[i] < n {
				return nil, errMore
			}
			r.histogram.counts[i] -= n
		}
	}
	if r.never == 0 && r.histogram.count() == 0 {
		return nil, nil
	}
	return r.encode(), nil
}

func (r remainingShares) without(theirs [][]byte) ([]byte, error) {
	for _, doc := range theirs {
		own, err := decodeRemaining(doc)
		if err != nil {
			return nil, err
		}
		for policy, counts := range own {
			mine := r[policy]
			if mine == nil {
				return nil, errMore
			}
			for i, n := range counts {
				if mine[i] < n {
					return nil, errMore
				}
				mine[i] -= n
			}
		}
	}
	maps.DeleteFunc(r, func(_ string, counts *remainingCounts) bool { return *counts == remainingCounts{} })
	if len(r) == 0 {
		return nil, nil
	}
	return r.encode(), nil
}
