package preview

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// slots is the maximum number of different times in a minute at which a replay sends requests.
const slots = 6

// longLog is the shortest window of a log for which a replay sends all requests of a minute at
// one time. A log stores an entry for each time, so a replay of a long log with more times
// would be slow.
const longLog = time.Hour

// replay returns the number of requests in s that the limits deny after the warm minutes. It
// decides the requests with the same arithmetic as real checks and spreads the requests of each
// minute evenly. Each request costs 1 and is charged to all limits or to none.
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
