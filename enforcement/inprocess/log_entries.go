package inprocess

import (
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// entries has the entries of one sliding log, or the leases of one concurrency limit. The
// entries of a log are a queue in a slice. Removed entries stay in the slice until they are
// half of it, so that the average time of a charge does not depend on the length of the log.
type entries struct {
	all     []enforcement.Entry
	gone    int // all[:gone] are removed
	holders []enforcement.Holder
}

// live returns the entries that have not been removed.
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

// blockEntries is the number of log entries that count as one cell in a budget. blockHolders is
// the number of leases that count as one cell.
const (
	blockEntries = 4
	blockHolders = 2
)

// blocks returns the number of cells as which the entries and leases count in a budget.
func (e *entries) blocks() int64 {
	return int64((cap(e.all)+blockEntries-1)/blockEntries + (len(e.holders)+blockHolders-1)/blockHolders)
}
