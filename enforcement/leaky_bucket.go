package enforcement

// Delay returns the time in microseconds after which a request is served that a leaky bucket
// granted: the time in which the units that were queued before it drain. s is the settled state
// after the charge of cost. The delay is at most the time in which a full queue drains. For other
// algorithms, it is 0.
func (m *Meter) Delay(s *State, cost int64) int64 {
	queued := -s.A - cost
	if m.Algorithm != LeakyBucket || m.P == 0 || queued <= 0 {
		return 0
	}
	return m.flow(queued, s.B)
}

// LongestDelay returns the longest time for which a request can wait because of the limit, in
// microseconds. It is 0 if the limit is no leaky bucket.
func (l Limit) LongestDelay() int64 {
	if l.Algorithm != LeakyBucket || l.Quota == 0 {
		return 0
	}
	return l.Compile(1).Delay(&State{Rev: 1, A: -l.Capacity()}, 1)
}

// delay returns the delay of charge i of an outcome in milliseconds, rounded up. taken is the
// number of units of the charge that a request in mode TakeUpTo took. The delay is 0 if the
// charge was not made. It is 0 too for forced charges, because that work is already done.
//
// The charges of an atomic batch on one counter are served in the order of the batch.
func (o *Outcome) delay(charges []Charge, i int, mode Mode, taken int64) int64 {
	c, charged := &charges[i], &o.Charges[i]
	if c.Meter.Algorithm != LeakyBucket || o.Verdict != Granted || mode == Force {
		return 0
	}
	if mode == TakeUpTo {
		if c.Group != 0 {
			return 0 // the number of units that a soft or shadow policy took is not known
		}
		return Milliseconds(c.Meter.Delay(&charged.State, taken))
	}
	own := charged.Cost // with the charges that follow in the batch
	for k := range charges {
		other := &charges[k]
		if other.Group != c.Group {
			continue
		}
		if !o.Charges[k].Fits {
			return 0 // of a soft or shadow policy, whose charges are made together or not at all
		}
		same := other.Key == c.Key || o.Charges[k].Shared && charged.Shared && other.Key.Cell == c.Key.Cell
		if k < i && same {
			own -= other.Cost
		}
	}
	return Milliseconds(c.Meter.Delay(&charged.State, own))
}
