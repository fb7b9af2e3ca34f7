package enforcement

// Delay returns how long a request waits, in microseconds, after a leaky bucket granted it cost
// units. That is the time in which the units that were queued before the request drain. It is at
// most the time in which a full queue drains. s is the settled state after the charge. For other
// algorithms, the delay is 0.
func (m *Meter) Delay(s *State, cost int64) int64 {
	queued := -s.A - cost
	if m.Algorithm != LeakyBucket || m.P == 0 || queued <= 0 {
		return 0
	}
	return m.flow(queued, s.B)
}

// LongestDelay returns the longest time for which a request can wait because of the limit, in
// microseconds. It is 0 if the limit is not a leaky bucket.
func (l Limit) LongestDelay() int64 {
	if l.Algorithm != LeakyBucket || l.Quota == 0 {
		return 0
	}
	return l.Compile(1).Delay(&State{Rev: 1, A: -l.Capacity()}, 1)
}

// delay returns how long the request waits for charge i of an outcome, in milliseconds, rounded
// up. In mode TakeUpTo, taken is the number of units of the charge that were taken. The delay is
// 0 if the charge was not made. It is also 0 in mode Force, because the work was done before the
// check.
//
// If an atomic batch has several charges on one counter, they are served in the order of the
// batch.
func (o *Outcome) delay(charges []Charge, i int, mode Mode, taken int64) int64 {
	c, charged := &charges[i], &o.Charges[i]
	if c.Meter.Algorithm != LeakyBucket || o.Verdict != Granted || mode == Force {
		return 0
	}
	if mode == TakeUpTo {
		if c.Group != 0 {
			return 0 // the outcome does not say how many units a soft or shadow policy took
		}
		return Milliseconds(c.Meter.Delay(&charged.State, taken))
	}
	own := charged.Cost // the cost of charge i and of the charges of the batch on the same counter that come after it
	for k := range charges {
		other := &charges[k]
		if other.Group != c.Group {
			continue
		}
		if !o.Charges[k].Fits {
			return 0 // the policy is soft or shadow: one charge does not fit, so none of its charges was made
		}
		same := other.Key == c.Key || o.Charges[k].Shared && charged.Shared && other.Key.Cell == c.Key.Cell
		if k < i && same {
			own -= other.Cost
		}
	}
	return Milliseconds(c.Meter.Delay(&charged.State, own))
}
