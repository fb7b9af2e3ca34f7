package limitertest

import (
	"fmt"
	"math/big"

	"github.com/headgate/headgate/enforcement"
)

// initial reports whether the counter is as if unused.
func (c *counter) initial(m *enforcement.Meter) bool {
	if m.Algorithm.Bucket() {
		return m.Quota == 0 || c.level.Cmp(new(big.Rat).SetInt64(m.Capacity)) >= 0
	}
	return !c.open
}

// later returns the counter as it is after micros microseconds without a charge.
func (c *counter) later(m *enforcement.Meter, rev, now, micros int64) *counter {
	m = nextMeter(m, now+micros)
	n, _ := c.at(m, max(rev, c.rev), now+micros)
	return n
}

// largest returns the largest cost that a limit allows without units that were rolled over.
func largest(m *enforcement.Meter) int64 {
	if m.Algorithm.Bucket() {
		return m.Burst()
	}
	return m.Quota
}

// everFits reports whether a cost fits now or at a later time. fits says whether it fits now.
func (c *counter) everFits(m *enforcement.Meter, rev, now, cost int64, fits bool) bool {
	return m.Quota > 0 && (cost <= largest(m) || m.Rollover > 0 && (fits || c.fitsLater(m, rev, now, cost)))
}

// checkTimes checks the reset and retry times that a Limiter returned against their
// definitions. The reset time is the first time at which the counter is as if unused.
// The retry time is the first time at which cost fits. possible reports whether the
// Limiter returned a retry time.
func (c *counter) checkTimes(m *enforcement.Meter, rev, now, cost, resetAfter, retryAfter int64, possible bool, lease [16]byte) error {
	const forever = 1 << 53 // the largest reset or retry time
	if m.Rollover > 0 && c.start > now {
		return nil // the clock stepped back, so the ends of the windows that the caller passed may not be exact
	}
	initial := func(micros int64) bool {
		n := c.later(m, rev, now, micros)
		return n.initial(m) || m.Rollover > 0 && n.start != c.start // units may be rolled over when the window has ended
	}
	if resetAfter < 0 || resetAfter < forever && !initial(resetAfter) || resetAfter > 0 && initial(resetAfter-1) {
		return fmt.Errorf("reset after %d µs is not the first instant at which the counter is in its initial state", resetAfter)
	}
	fits := func(micros int64) bool {
		return m.Quota > 0 && cost <= c.later(m, rev, now, micros).leftFor(m, now+micros, lease)
	}
	ever := c.everFits(m, rev, now, cost, fits(0))
	switch {
	case ever != possible:
		return fmt.Errorf("cost %d can ever fit: %t; the limiter returned %t", cost, ever, possible)
	case !ever:
		return nil
	case retryAfter < 0 || retryAfter < forever && !fits(retryAfter) || retryAfter > 0 && fits(retryAfter-1):
		return fmt.Errorf("retry after %d µs is not the first instant at which %d fits", retryAfter, cost)
	}
	return nil
}
