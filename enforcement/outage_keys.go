package enforcement

import "context"

// An outageKey is the idempotency key of a check that the local limiter charged while the shared limiter
// was unavailable. When the shared limiter is available again, it gets a record of the key. Then a
// repetition on any node gets the decision of the check, without its limits, and is not charged.
type outageKey struct {
	home    string
	maxKeys int64
	id      [16]byte // ID of the decision
	record  Idempotency
	charge  Charge // on the counter that bounds the number of records
	until   int64  // when the record of the local limiter ends, by the clock of this node
}

// newOutageKey returns the key of a request of a subject that the local limiter granted.
func newOutageKey(s *Subject, r *Request) *outageKey {
	k := &outageKey{home: s.Home, maxKeys: s.MaxKeys, id: r.ID, record: *r.Idempotency, charge: r.Charges[0]}
	k.record.Charges = [16]byte{} // the states of the local limiter are not those of the shared limits
	return k
}

// request returns the request that stores the record. It is idempotent.
func (k *outageKey) request() Request {
	return Request{ID: k.id, Mode: Force, Home: k.home, MaxKeys: k.maxKeys, Idempotency: &k.record, Charges: []Charge{k.charge}}
}

// admitKey adds the key of an item to the journal, if the local limiter stored a record of it. The
// record of a check in mode TakeUpTo contains the units that the shared limiter took, so the journal
// does not have the keys of such checks.
func (j *outageJournal) admitKey(it *item) {
	k := it.localKey
	if k == nil || !it.Decision.Allowed || it.Check.Mode == Peek || it.Check.Mode == TakeUpTo {
		return
	}
	k.until = j.now() + IdempotencyPeriod.Microseconds()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.full() {
		return
	}
	j.keys[k.record.Key] = k
	j.keysHeld.Store(int64(len(j.keys)))
	j.notify()
}

// someKeys returns up to outageCall keys of the journal. It removes the keys that it finds to have ended.
// The returned keys stay in the journal until forgetKey removes them.
func (j *outageJournal) someKeys() (keys []*outageKey) {
	now := j.now()
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, k := range j.keys {
		if len(keys) == outageCall {
			break
		}
		if k.until <= now {
			delete(j.keys, key)
			continue
		}
		keys = append(keys, k)
	}
	j.keysHeld.Store(int64(len(j.keys)))
	return keys
}

// keysOf returns the keys of requests that the journal has.
func (j *outageJournal) keysOf(requests []Request) (keys []*outageKey) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range requests {
		if id := requests[i].Idempotency; id != nil {
			if k := j.keys[id.Key]; k != nil {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// forgetKey removes a key whose record is stored.
func (j *outageJournal) forgetKey(k *outageKey) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.keys[k.record.Key] == k {
		delete(j.keys, k.record.Key)
		j.keysHeld.Store(int64(len(j.keys)))
	}
}

// storeOutageKeys stores the records of the journal's keys in the shared limiter. It returns false if
// keys are left.
func (e *Engine) storeOutageKeys() bool {
	for {
		keys := e.outage.someKeys()
		if len(keys) == 0 {
			return true
		}
		if !e.storeKeys(context.Background(), keys) {
			return false
		}
	}
}

// storeKeysOf stores the records of the keys that requests have, before the shared limiter gets these
// requests. Otherwise the shared limiter could be available again and charge a repetition before
// RunOutageJournal has stored the record.
func (e *Engine) storeKeysOf(ctx context.Context, requests []Request) {
	if keys := e.outage.keysOf(requests); len(keys) > 0 {
		e.storeKeys(ctx, keys)
	}
}

// storeKeys stores the records of keys in the shared limiter. It returns false if the limiter did not
// decide all requests. The keys of undecided requests stay in the journal. If a record was stored but the
// reply was lost, the next call finds the record and changes nothing.
func (e *Engine) storeKeys(ctx context.Context, keys []*outageKey) (all bool) {
	requests, outcomes := make([]Request, len(keys)), make([]Outcome, len(keys))
	for i, k := range keys {
		requests[i] = k.request()
	}
	takeFrom(ctx, e.limiter, requests, outcomes)
	all = true
	for i := range outcomes {
		if outcomes[i].Verdict.Decided() {
			e.outage.forgetKey(keys[i])
		} else {
			all = false
		}
	}
	return all
}
