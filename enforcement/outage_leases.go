package enforcement

import "context"

// An outageLease is a lease that a failure mode granted while the shared limiter was
// unavailable. When the shared limiter is available again, the lease is charged to it under the
// same ID. Then the holder of the lease can renew and release it.
type outageLease struct {
	home    string
	maxKeys int64
	charge  Charge
	until   int64 // by the clock of this node
}

// A leaseKey identifies a lease in the journal: by its counter and its ID.
type leaseKey struct {
	key Key
	id  [16]byte
}

// admitLease adds a granted lease to the journal. If the lease was renewed, admitLease replaces
// it.
func (j *outageJournal) admitLease(s *Subject, c *Charge, l *Lease) {
	ttl := l.TTL
	if ttl == 0 {
		ttl = c.Meter.Window
	}
	until, key := j.now()+ttl, leaseKey{c.Key, l.ID}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, known := j.leases[key]; !known && j.full() {
		j.dropped.Add(c.Cost)
		return
	}
	j.leases[key] = outageLease{home: s.Home, maxKeys: s.MaxKeys, charge: *c, until: until}
	j.notify()
}

// forgetLease removes a lease that was released.
func (j *outageJournal) forgetLease(charges []Charge, id [16]byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range charges {
		delete(j.leases, leaseKey{charges[i].Key, id})
	}
}

// takeLeases removes up to outageCall leases from the journal and returns the requests that
// charge them. It also removes the leases that it finds to have ended, and does not return
// them.
func (j *outageJournal) takeLeases(id func() [16]byte) (keys []leaseKey, leases []outageLease, requests []Request) {
	now := j.now()
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, l := range j.leases {
		if len(keys) == outageCall {
			break
		}
		delete(j.leases, key)
		if l.until <= now {
			continue
		}
		charge := l.charge
		charge.Group = 0
		keys, leases = append(keys, key), append(leases, l)
		requests = append(requests, Request{
			ID: id(), Mode: Force, Home: l.home, MaxKeys: l.maxKeys, Lease: Lease{ID: key.id, TTL: l.until - now}, Charges: []Charge{charge},
		})
	}
	return keys, leases, requests
}

// restoreLease puts a lease that could not be charged back into the journal. If the lease was
// renewed in the meantime, the journal keeps the renewed lease.
func (j *outageJournal) restoreLease(key leaseKey, l outageLease) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, renewed := j.leases[key]; !renewed {
		j.leases[key] = l
	}
}

// chargeOutageLeases charges the leases of the journal to the shared limiter. It stops and
// returns as chargeOutageJournal does.
func (e *Engine) chargeOutageLeases() bool {
	j := e.outage
	for {
		keys, leases, requests := j.takeLeases(func() [16]byte { return e.newIDAt(e.now().UnixMicro()) })
		if len(keys) == 0 {
			return true
		}
		outcomes, failed := make([]Outcome, len(requests)), false
		takeFrom(context.Background(), e.limiter, requests, outcomes)
		for i := range outcomes {
			switch o := &outcomes[i]; {
			case o.Verdict.Decided():
				j.charged.Add(leases[i].charge.Cost)
			case o.Verdict.notCharged():
				j.restoreLease(keys[i], leases[i])
				failed = true
			default:
				j.dropped.Add(leases[i].charge.Cost)
			}
		}
		if failed {
			return false
		}
	}
}
