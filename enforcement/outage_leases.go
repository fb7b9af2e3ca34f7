package enforcement

import "context"

// An outageLease is a lease that a failure mode granted while the shared limiter was
// unavailable. Unlike other costs, it is charged under its ID, so that its holder can renew and
// release it.
type outageLease struct {
	home    string
	maxKeys int64
	charge  Charge
	until   int64 // by the clock of this node
}

// A leaseKey identifies a lease on a counter.
type leaseKey struct {
	key Key
	id  [16]byte
}

// admitLease adds an admitted lease, or replaces it if it was renewed.
func (j *outageJournal) admitLease(s *Subject, c *Charge, l *Lease) {
	ttl := l.TTL
	if ttl == 0 {
		ttl = c.Meter.Window
	}
	until, key := j.now()+ttl, leaseKey{c.Key, l.ID}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, known := j.leases[key]; !known && len(j.leases)+len(j.entries) >= j.most {
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

// takeLeases removes up to outageCall leases, and all that it finds before them that have ended.
// It returns the requests that charge them.
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

// restoreLease puts a lease back that was not charged, unless it was renewed meanwhile.
func (j *outageJournal) restoreLease(key leaseKey, l outageLease) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, renewed := j.leases[key]; !renewed {
		j.leases[key] = l
	}
}

// chargeOutageLeases is chargeOutageJournal for leases.
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
