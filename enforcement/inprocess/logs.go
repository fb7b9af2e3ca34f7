package inprocess

import (
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// entries is one sliding log: a queue in a slice. Removed entries are overwritten only
// when they are half of the slice, so a charge takes the same time at any length.
type entries struct {
	all  []enforcement.Entry
	gone int // all[:gone] are removed
}

// live returns the entries that are not removed.
func (e *entries) live() []enforcement.Entry {
	if e == nil {
		return nil
	}
	return e.all[e.gone:]
}

// drop removes the n oldest entries.
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

// blockEntries is the number of entries that count as one cell in a budget.
const blockEntries = 4

// blocks returns the number of cells that the log counts as.
func (e *entries) blocks() int64 { return int64((cap(e.all) + blockEntries - 1) / blockEntries) }
