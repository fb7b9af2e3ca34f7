package enforcement

// A State is the stored form of one counter: four integers and, for logs, entries.
// Their meaning depends on the algorithm:
//
//	                        A               B                   T
//	fixed_window            count           0                   start of the window
//	  of a calendar         count           length of the       the same
//	                                        window, and units
//	                                        rolled over
//	sliding_window_counter  current count   previous count      start of the current window
//	sliding_window_log      units in Log    number of entries   newest entry
//	token_bucket, gcra      units left,     fraction of a unit, instant of A and B
//	                        < 0 in debt     in 1/Q
//	leaky_bucket            -units queued   the same            the same
//	concurrency             places held     end of the last     newest grant
//	                                        lease
//
// Instants are microseconds since the epoch. The zero State is an unused counter: a
// closed window, an empty log, a full bucket, or no places held.
type State struct {
	// Rev is the control-plane revision of the quota with which the state was stored.
	// It is 0 only in the zero State.
	Rev  int64
	A, B int64
	T    int64
	// Log has the entries of a sliding_window_log, oldest first. A limiter may return
	// only the oldest entries, as many as RetryAfter needs. A, B and T include all
	// entries.
	Log []Entry
	// Holders has the leases of a concurrency limit, in the order in which they end. Functions
	// that change it make a copy.
	Holders []Holder
}

// An Entry has the units that a log admitted at one time.
type Entry struct {
	T     int64 // microseconds since the epoch
	Units int64
}

// Fresh reports whether the state is the zero State.
func (s *State) Fresh() bool { return s.Rev == 0 }
