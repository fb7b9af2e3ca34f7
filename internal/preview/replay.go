package preview

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// slots are how many times a minute requests are replayed at most: those of a
// slot come at one instant.
const slots = 6

// longLog is the window from which on a log is replayed in one slot a minute: it
// has an entry for each.
const longLog = time.Hour

// replay gives what limits refuse of s after its warm minutes, each minute's
// requests spread evenly, by the arithmetic that decides checks. Every request
// costs 1 and is charged on all limits or on none.
func replay(limits []enforcement.Limit, s series) (refused int64) {
	meters := make([]*enforcement.Meter, len(limits))
	states := make([]enforcement.State, len(limits))
	most := int64(slots)
	for i, l := range limits {
		meters[i] = l.Compile(1)
		if l.Algorithm == enforcement.SlidingWindowLog && l.Window >= longLog {
			most = 1
		}
	}
	for i, n := range s.n {
		if n == 0 {
			continue
		}
		parts := min(n, most)
		begin := s.start.Add(time.Duration(i) * time.Minute).UnixMicro()
		for part := range parts {
			came := n*(part+1)/parts - n*part/parts
			now := begin + (2*part+1)*time.Minute.Microseconds()/(2*parts)
			passed := came
			for k, m := range meters {
				states[k], _ = m.Settle(states[k], 1, now)
				left := m.Left(states[k], now)
				if !m.Admits(left, 1) {
					left = 0
				}
				passed = min(passed, left)
			}
			for k, m := range meters {
				states[k] = m.Charge(states[k], 1, now, passed)
			}
			if i >= s.warm {
				refused += came - passed
			}
		}
	}
	return refused
}
