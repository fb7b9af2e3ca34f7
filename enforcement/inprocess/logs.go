package inprocess

import (
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// entries is one sliding log: a queue in a slice. What has left is moved over
// only when it is half of the slice, so a charge costs the same at any length.
type entries struct {
	all  []enforcement.Entry
	gone int // all[:gone] have left
}

// live are the entries as Settle reads them.
func (e *entries) live() []enforcement.Entry {
	if e == nil {
		return nil
	}
	return e.all[e.gone:]
}

// drop forgets the n oldest.
func (e *entries) drop(n int) {
	e.gone += n
	if 2*e.gone >= len(e.all) {
		e.all = e.all[:copy(e.all, e.all[e.gone:])]
		e.gone = 0
		if cap(e.all) > 64 && len(e.all) < cap(e.all)/4 {
			e.all = slices.Clone(e.all)
		}
	}
}

// blockEntries is how many entries are counted as one cell of memory.
const blockEntries = 4

// blocks is what a log counts in cells.
func (e *entries) blocks() int64 { return int64((cap(e.all) + blockEntries - 1) / blockEntries) }
