package enforcement

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// A Durability determines whether the counters of a limit are durable. The state of a
// durable counter is also stored in the database. Therefore used units stay used if Redis
// loses its data, or if a node without Redis restarts.
type Durability uint8

// The durabilities of a limit. With DurableByWindow, a limit is durable if it is a fixed
// window of at least durableWindow, or a calendar window.
const (
	DurableByWindow Durability = iota
	Durable
	NotDurable
)

// durableWindow is the shortest window with which a limit is durable by default. For
// shorter windows, the database would get about one row per second for each used key.
const durableWindow = time.Hour

// IsDurable reports whether the counters of the limit are durable.
func (l Limit) IsDurable() bool {
	if l.Durability == DurableByWindow {
		return l.Algorithm == FixedWindow && (l.Period != NoPeriod || l.Window >= durableWindow)
	}
	return l.Durability == Durable
}

func (l Limit) validateDurability() (f problem.Fields) {
	switch {
	case l.Durability > NotDurable:
		f.Add("/durable", "must be true or false")
	case l.Durability == Durable && l.Algorithm == SlidingWindowLog:
		f.Add("/durable", "must be false, or left out: the database would store every request of a sliding_window_log; "+
			"use fixed_window or sliding_window_counter")
	case l.Durability == Durable && l.Algorithm == Concurrency:
		f.Add("/durable", "must be false, or left out: a lease of a concurrency limit ends by itself after its time to live")
	}
	return f
}

// A Stored is the state of a durable counter in the database.
type Stored struct {
	Key       Key
	Algorithm Algorithm
	// State is the state of the counter. It is the zero State if the counter was reset.
	State State
	// At is the time of the decision that read the state, by the limiter's clock, in
	// microseconds since the epoch. A later state replaces an earlier one.
	At int64
	// Ends is the time from which the counter is as if it had never been used.
	Ends int64
	// Home is Request.Home of the tenant. It is only set in states that were read from the
	// database.
	Home string
}

// Newer reports whether the stored state is newer than the state that the limiter has. If
// both have one T (one window, or one instant of a bucket), the state with the later
// revision is newer, because it was carried over. If they also have one revision, the state
// with fewer units left is newer. A stored reset is newer than a state whose T is not after
// the reset. scripts/restore.lua uses the same order.
func (s *Stored) Newer(has *State) bool {
	switch {
	case has.Fresh():
		return !s.State.Fresh()
	case s.State.Fresh():
		return has.T <= s.At
	case s.State.T != has.T:
		return s.State.T > has.T
	case s.State.Rev != has.Rev:
		return s.State.Rev > has.Rev
	case s.Algorithm.Bucket():
		return s.State.A < has.A
	}
	return s.State.A > has.A
}

// Durable reports whether the request charges a durable counter for an enforced or a soft
// policy. A limiter that has lost its data must not decide such a request.
func (r *Request) Durable() bool {
	for i := range r.Charges {
		if c := &r.Charges[i]; c.inForce() && c.Meter.Durable {
			return true
		}
	}
	return false
}

// A Journal stores the states of durable counters. If a Limiter has lost its data, it is restored
// from the Journal. Package journal implements this interface.
type Journal interface {
	// Flush writes to the database all states that the limiter returned to this node. It
	// waits for the calls that are in flight, and writes their states too.
	Flush(ctx context.Context) error
	// States calls use with all stored states of the tenants that have this home
	// (Request.Home). If home is "", it does so for all tenants. It stops at the first error,
	// and returns it.
	States(ctx context.Context, home string, use func([]Stored) error) error
	// Nodes returns the IDs of the nodes that run, according to their reports in the database.
	Nodes(ctx context.Context) ([]string, error)
}
