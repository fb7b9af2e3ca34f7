package enforcement

import "context"

// A Drawer is a Limiter from which a node can lease quota. The counter is charged
// when the node draws units. Checks then spend the units without a call of the
// store.
//
// Units drawn from a window are charged to that window and end with it. Units drawn
// from a bucket are outstanding until they are reported or lapse. The bucket keeps
// tokens + outstanding <= capacity: a refill stops at capacity - outstanding.
// Therefore the units that all nodes spend in any interval are at most those that
// one exact bucket would allow.
//
// limitertest.Store is the reference implementation.
type Drawer interface {
	Limiter
	// Draw performs each draw in one atomic step, and stores the result of draws[i]
	// in drawn[i]. It sends no draw twice. A draw with an error was performed once or
	// not at all: the caller must not spend its units, and must not report its lots
	// again.
	Draw(ctx context.Context, draws []Draw, drawn []Drawn)
}

// A Draw reports the use of earlier units of one counter, and requests more.
type Draw struct {
	Home  string
	Key   Key
	Meter *Meter
	Rev   int64
	// Start is the start of the window that Want and returned units belong to, as an
	// admitted check returned it. A draw never opens a window. 0 for buckets.
	Start int64
	// Want is the most units to draw. The counter grants at most 1/Part of the units
	// left. It grants nothing if that is less than Least, if it has no state, or if
	// its state has another revision.
	Want, Least, Part int64
	Lots              [2]Lot
}

// A Lot reports the use of units from an earlier draw.
type Lot struct {
	// Until identifies the lot: it is the Drawn.Until that the draw of these units
	// returned.
	Until int64
	// Spent units leave a bucket. A window was charged when they were drawn.
	Spent int64
	// Back is the number of units that are returned unspent. A window that has ended
	// accepts none, except that the next window of a sliding counter subtracts them
	// from the previous count. A lot that lapsed returns none.
	Back int64
}

// A Drawn is the result of a Draw.
type Drawn struct {
	Err error
	// At is the instant by the store's clock, in microseconds since the epoch.
	At int64
	// Units were drawn. They can be spent before Until, by the same clock.
	Units, Until int64
	// State is the counter after the draw, settled at At. Every unit that was drawn
	// and not returned is charged. It is zero if the counter has no state.
	State State
}

// LeaseLeast is the least number of units that is worth a draw.
const LeaseLeast = 4

const (
	leaseQuota  = 100        // smaller limits are never leased
	leaseWindow = 100_000    // microseconds; shorter windows are never leased
	leaseEpoch  = 100_000    // microseconds; buckets with shorter epochs are never leased
	longEpoch   = 60_000_000 // microseconds
)

// LeaseBatch returns how many units of a leased limit one of so many nodes holds at
// most. All nodes together hold at most a tenth of the limit. 0 means that the limit
// is always decided exactly.
func (m *Meter) LeaseBatch(nodes int) int64 {
	size := m.Quota
	switch {
	case m.Algorithm.Bucket():
		size = m.Capacity
	case !m.Algorithm.Windowed() || m.Window < leaseWindow:
		return 0
	}
	batch := size / (10 * int64(max(nodes, 1)))
	if size < leaseQuota || batch < LeaseLeast || m.Algorithm.Bucket() && m.LeaseEpoch() < leaseEpoch {
		return 0
	}
	return batch
}

// LeaseEpoch returns the length in microseconds of the epochs of a bucket's leases.
// Units that are drawn in epoch n lapse at the end of epoch n+1. An epoch is an
// eighth of the time in which the bucket fills, and at most a minute.
func (m *Meter) LeaseEpoch() int64 {
	if m.P == 0 {
		return 0
	}
	return min(m.flow(m.Capacity, 0)/8, longEpoch)
}
