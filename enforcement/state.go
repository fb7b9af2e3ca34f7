package enforcement

// A State is one counter as it is kept: four integers and, for logs, entries.
// What they mean is the algorithm's:
//
//	                        A               B                   T
//	fixed_window            count           0                   start of the window
//	sliding_window_counter  current count   previous count      start of the current window
//	sliding_window_log      units in Log    number of entries   newest entry
//	token_bucket, gcra      units left,     fraction of a unit, instant of A and B
//	                        < 0 in debt     in 1/Q
//
// Instants are microseconds since the epoch. The zero State is a counter as
// new: no window is open, a log is empty, a bucket is full.
type State struct {
	// Rev is the control-plane revision of the numbers that wrote the state;
	// 0 only in the zero State.
	Rev  int64
	A, B int64
	T    int64
	// Log has the entries of a sliding_window_log, oldest first. A limiter may
	// hand out only the oldest of them, as many as RetryAfter needs: A, B and T
	// count all.
	Log []Entry
}

// An Entry is what a log admitted at one instant.
type Entry struct {
	T     int64 // microseconds since the epoch
	Units int64
}

// Fresh reports whether the state is that of a counter as new.
func (s *State) Fresh() bool { return s.Rev == 0 }
