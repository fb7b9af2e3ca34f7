package enforcement

import "context"

// A Drawer is a Limiter from which a node can draw quota ahead: it is charged
// when it is drawn, and a check that spends it later asks nothing.
//
// What was drawn of a window is charged to that window and ends with it. What
// was drawn of a bucket is outstanding until it is settled or lapses, and the
// bucket keeps tokens + outstanding <= capacity: a refill stops at capacity -
// outstanding. Thus the units that all nodes spend in any interval are at most
// those that one exact bucket would allow.
//
// The limitertest.Store is the reference.
type Drawer interface {
	Limiter
	// Draw does each draw in one atomic step, fills drawn[i] for draws[i], and
	// sends none twice. A draw with an error was done once or not at all: its
	// units must not be spent, and what it settled must not be settled again.
	Draw(ctx context.Context, draws []Draw, drawn []Drawn)
}

// A Draw settles what was drawn of one counter before and asks for more.
type Draw struct {
	Home  string
	Key   Key
	Meter *Meter
	Rev   int64
	// Start is the start of the window, as an admitted check saw it, to which
	// Want and what is given back belong. A draw never opens a window. Buckets: 0.
	Start int64
	// Want is how many units to draw at most. The counter hands out no more than
	// 1/Part of what is left, and nothing if that is less than Least. It hands out
	// nothing either while its state is absent or of another revision.
	Want, Least, Part int64
	Lots              [2]Lot
}

// A Lot is what becomes of units that were drawn before.
type Lot struct {
	// Until is what the draw answered: it names the lot.
	Until int64
	// Spent units leave a bucket. In a window they were charged already.
	Spent int64
	// Back are units that are given back, unspent. A window that is over takes
	// none, except that of a sliding counter the next window takes them off the
	// previous count. A lot that lapsed takes none.
	Back int64
}

// A Drawn is the answer to a Draw.
type Drawn struct {
	Err error
	// At is the instant by the clock of the store, in microseconds since the epoch.
	At int64
	// Units were drawn, and may be spent before Until by the same clock.
	Units, Until int64
	// State of the counter after the draw, settled at At: every unit drawn and not
	// given back is charged. It is zero if there is none.
	State State
}

// LeaseLeast is how many units are worth drawing.
const LeaseLeast = 4

const (
	leaseQuota  = 100        // smaller limits are never leased
	leaseWindow = 100_000    // microseconds; shorter windows are never leased
	leaseEpoch  = 100_000    // microseconds; buckets with shorter epochs are never leased
	longEpoch   = 60_000_000 // microseconds
)

// LeaseBatch is how many units of a leased limit one of so many nodes holds at
// most; 0 if the limit is always decided exactly. All nodes together hold at
// most a tenth of the limit.
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

// LeaseEpoch is the length in microseconds of the epochs of a bucket's leases:
// units that were drawn in epoch n lapse at the end of epoch n+1. It is an eighth
// of the time in which the bucket fills, and at most a minute.
func (m *Meter) LeaseEpoch() int64 {
	if m.P == 0 {
		return 0
	}
	return min(m.flow(m.Capacity, 0)/8, longEpoch)
}
