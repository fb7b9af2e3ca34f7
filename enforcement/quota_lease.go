package enforcement

import "context"

// A Drawer is a Limiter that leases quota to nodes. A node draws units, and the shared counter is charged with them
// at once. Later, checks on the node spend these units without a call to the store.
//
// Units drawn from a window are charged to that window and expire with it. Units drawn from a bucket are outstanding
// until the node reports them or they lapse. The bucket keeps tokens + outstanding <= capacity, because refills stop
// at capacity - outstanding. Therefore all nodes together spend at most as many units in any interval as one exact
// bucket would allow.
//
// limitertest.Store is the reference implementation.
type Drawer interface {
	Limiter
	// Draw performs each draw in one atomic step, and stores the result of draws[i] in drawn[i]. It never sends a draw
	// twice. If a result has an error, the draw was performed once or not at all. The caller must then neither spend
	// its units nor report its lots again.
	Draw(ctx context.Context, draws []Draw, drawn []Drawn)
}

// A Draw requests units of one counter for a node. It also reports how the node used the units of
// earlier draws.
type Draw struct {
	Home  string
	Key   Key
	Meter *Meter
	Rev   int64
	// Start is the start of the window from which units are drawn, and to which units are returned.
	// It comes from the state that an allowed check returned, because a draw never opens a window.
	// For buckets, it is 0.
	Start int64
	// Want is the maximum number of units to draw. The counter grants at most 1/Part of the units that are left. It
	// grants nothing if that is less than Least, if the counter does not exist, or if the state of the counter has
	// another revision than Rev.
	Want, Least, Part int64
	Lots              [2]Lot
}

// A Lot is the part of a Draw that reports the use of units from one earlier draw.
type Lot struct {
	// Until identifies the lot. It is the value of Drawn.Until in the result of the earlier draw.
	Until int64
	// Spent is the number of units that checks have used. A bucket subtracts them when they are reported. A window
	// already subtracted them at the draw.
	Spent int64
	// Back is the number of units that the node returns unspent. A window that has ended does not accept them. Only for
	// a sliding counter, the next window subtracts them from its previous count. Units of a lot that has lapsed cannot
	// be returned.
	Back int64
}

// A Drawn is the result of one Draw.
type Drawn struct {
	Err error
	// At is the time of the draw by the store's clock, in microseconds since the epoch.
	At int64
	// Units is the number of units that were drawn. The node may spend them until the time Until by the store's clock.
	Units, Until int64
	// State is the state of the counter after the draw, as of At (see Meter.Settle). It counts all units that were
	// drawn and not returned as charged. If the counter does not exist, it is the zero State.
	State State
}

// LeaseLeast is the minimum number of units in a draw.
const LeaseLeast = 4

const (
	leaseQuota  = 100        // limits with a smaller quota or capacity are never leased
	leaseWindow = 100_000    // in microseconds; limits with shorter windows are never leased
	leaseEpoch  = 100_000    // in microseconds; buckets with shorter lease epochs are never leased
	longEpoch   = 60_000_000 // microseconds
)

// LeaseBatch returns the maximum number of units of a limit that one node may hold on lease.
// nodes is the number of nodes. All nodes together lease at most a tenth of the quota or
// capacity.
//
// LeaseBatch returns 0 for a limit that must not be leased: a log, a calendar window, or a limit
// that is too small or too short. Then the shared limiter decides each check exactly.
func (m *Meter) LeaseBatch(nodes int) int64 {
	size := m.Quota
	switch {
	case m.Algorithm.Bucket():
		size = m.Capacity
	case !m.Algorithm.Windowed() || m.Window < leaseWindow || m.Period != NoPeriod:
		return 0
	}
	batch := size / (10 * int64(max(nodes, 1)))
	if size < leaseQuota || batch < LeaseLeast || m.Algorithm.Bucket() && m.LeaseEpoch() < leaseEpoch {
		return 0
	}
	return batch
}

// LeaseEpoch returns the length in microseconds of a lease epoch of a bucket: an eighth of the time in which the
// bucket fills, but at most a minute. Units that a node draws in one epoch lapse at the end of the next epoch.
func (m *Meter) LeaseEpoch() int64 {
	if m.P == 0 {
		return 0
	}
	return min(m.flow(m.Capacity, 0)/8, longEpoch)
}
