package enforcement

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// An outageJournal records what the failure modes admitted while the shared limiter was unavailable. When
// the limiter is available again, the journal is charged to it. It records only checks that certainly were
// not charged: if a request was sent and not answered, it may have been charged, so it is not in the
// journal.
//
// For each counter, the journal has two states by the clock of this node: the last known state of the
// shared counter, and the same state with the admitted costs. The difference between what these two states
// have left must still be charged. It becomes smaller when a bucket refills, and 0 when a window ends, so
// only what still counts is charged.
type outageJournal struct {
	most int // largest number of counters
	now  func() int64
	wake chan struct{}

	mu      sync.Mutex
	entries map[Key]*outageEntry
	leases  map[leaseKey]outageLease // leases of concurrency limits, for which entries has no entry
	keys    map[Key]*outageKey       // idempotency keys of admitted checks, by the keys of their records

	keysHeld         atomic.Int64 // len(keys)
	charged, dropped atomic.Int64
}

type outageEntry struct {
	home        string
	maxKeys     int64
	meter       *Meter
	rev         int64
	base, state State
}

// An OutageJournalState describes the outage journal of an Engine.
type OutageJournalState struct {
	// Keys is the number of counters and leases that must still be charged, and of idempotency keys that
	// must still be stored.
	Keys int
	// Charged is the number of admitted units that were charged after an outage. Dropped is the
	// number of admitted units that will not be charged, because the journal was full or the
	// limiter did not reply to the charge.
	Charged, Dropped int64
}

const (
	// defaultOutageJournalKeys is the default of Config.OutageJournalKeys.
	defaultOutageJournalKeys = 100_000
	// outageLog is the largest number of entries of a log in the journal.
	outageLog = 16
	// outageCall is the maximum number of counters that one call of the limiter charges.
	outageCall = 64
	// outageRetryInterval is the time between two attempts while the limiter is unavailable.
	outageRetryInterval = 200 * time.Millisecond
)

func newOutageJournal(most int, now func() int64) *outageJournal {
	return &outageJournal{
		most: most, now: now, wake: make(chan struct{}, 1), entries: map[Key]*outageEntry{}, leases: map[leaseKey]outageLease{},
		keys: map[Key]*outageKey{},
	}
}

// entry returns the entry of a counter. If there is none, it creates one. If the journal is full, it
// returns nil. The caller holds j.mu.
func (j *outageJournal) entry(s *Subject, c *Charge) *outageEntry {
	e := j.entries[c.Key]
	if e == nil {
		if j.full() {
			return nil
		}
		e = &outageEntry{}
		j.entries[c.Key] = e
	}
	e.home, e.maxKeys, e.meter, e.rev = s.Home, s.MaxKeys, c.Meter, c.Rev
	return e
}

// start stores the last known state of the shared counter of a charge. The times in the state
// are by this node's clock. If the journal already has the counter, start does nothing.
func (j *outageJournal) start(s *Subject, c *Charge, seen State) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.entries[c.Key] != nil {
		return
	}
	if e := j.entry(s, c); e != nil {
		e.base = c.Meter.wholeLog(seen)
		e.state = e.base
	}
}

// admit adds the cost of an admitted charge to the journal. l is the lease of the charge's request.
func (j *outageJournal) admit(s *Subject, c *Charge, l *Lease) {
	if c.Cost == 0 {
		return
	}
	if c.Meter.Algorithm == Concurrency {
		j.admitLease(s, c, l)
		return
	}
	now := j.now()
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.entry(s, c)
	if e == nil {
		j.dropped.Add(c.Cost)
		return
	}
	e.charge(now, c.Cost)
	j.notify()
}

// notify wakes RunOutageJournal.
func (j *outageJournal) notify() {
	select {
	case j.wake <- struct{}{}:
	default: // run already has a token
	}
}

// charge adds a cost to the state of an entry. If the state is a log with more than outageLog entries,
// charge merges the two oldest ones, at the time of the later one.
func (e *outageEntry) charge(now, cost int64) {
	e.state, _ = e.meter.Settle(e.state, e.rev, now)
	e.state = e.meter.Charge(e.state, e.rev, now, cost)
	if log := e.state.Log; len(log) > outageLog {
		merged := append([]Entry{{T: log[1].T, Units: log[0].Units + log[1].Units}}, log[2:]...)
		e.state.Log, e.state.B = merged, int64(len(merged))
	}
}

// owed returns the number of units of an entry that must still be charged at the time now.
func (e *outageEntry) owed(now int64) int64 {
	base, _ := e.meter.Settle(e.base, e.rev, now)
	state, _ := e.meter.Settle(e.state, e.rev, now)
	return e.meter.Left(base, now) - e.meter.Left(state, now)
}

// take removes up to outageCall entries with units that must still be charged from the journal. It returns
// these entries, and their units in owed. It also removes the entries without such units that it finds,
// and does not return them.
func (j *outageJournal) take() (keys []Key, entries []*outageEntry, owed []int64) {
	now := j.now()
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, e := range j.entries {
		if len(keys) == outageCall {
			break
		}
		delete(j.entries, key)
		if units := e.owed(now); units > 0 {
			keys, entries, owed = append(keys, key), append(entries, e), append(owed, units)
		}
	}
	return keys, entries, owed
}

// restore puts an entry that could not be charged back into the journal.
func (j *outageJournal) restore(key Key, e *outageEntry, owed int64) {
	now := j.now()
	j.mu.Lock()
	defer j.mu.Unlock()
	if newer := j.entries[key]; newer != nil {
		newer.charge(now, owed)
		return
	}
	j.entries[key] = e
}

func (j *outageJournal) len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.entries) + len(j.leases) + len(j.keys)
}

// full reports whether the journal has no place for a further entry, lease or key. The caller holds j.mu.
func (j *outageJournal) full() bool { return len(j.entries)+len(j.leases)+len(j.keys) >= j.most }

// OutageJournal returns the state of the journal.
func (e *Engine) OutageJournal() OutageJournalState {
	if e.outage == nil {
		return OutageJournalState{}
	}
	return OutageJournalState{Keys: e.outage.len(), Charged: e.outage.charged.Load(), Dropped: e.outage.dropped.Load()}
}

// RunOutageJournal charges what the failure modes admitted to the shared limiter, as soon as the limiter
// is available again. When ctx ends, it tries a last time and returns nil.
func (e *Engine) RunOutageJournal(ctx context.Context) error {
	if e.outage == nil {
		return nil
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			e.chargeOutageJournal()
			return nil
		case <-e.outage.wake:
		case <-timer.C:
		}
		if !e.chargeOutageJournal() {
			timer.Reset(outageRetryInterval)
		}
	}
}

// chargeOutageJournal charges the entries of the journal to the shared limiter. It stops at the
// first charge that the limiter does not decide. It returns false if entries are left.
func (e *Engine) chargeOutageJournal() bool {
	j := e.outage
	if !e.storeOutageKeys() { // before the charges, so that a repetition does not add to them
		return false
	}
	for {
		keys, entries, owed := j.take()
		if len(keys) == 0 {
			return e.chargeOutageLeases() && j.len() == 0
		}
		requests, outcomes := make([]Request, len(keys)), make([]Outcome, len(keys))
		for i, entry := range entries {
			requests[i] = Request{
				ID: e.newIDAt(e.now().UnixMicro()), Mode: Force, Home: entry.home, MaxKeys: entry.maxKeys,
				Charges: []Charge{{Key: keys[i], Meter: entry.meter, Rev: entry.rev, Cost: owed[i]}},
			}
		}
		takeFrom(context.Background(), e.limiter, requests, outcomes)
		failed := false
		for i := range outcomes {
			switch o := &outcomes[i]; {
			case o.Verdict.Decided():
				j.charged.Add(owed[i])
			case o.Verdict.notCharged():
				j.restore(keys[i], entries[i], owed[i])
				failed = true
			default:
				j.dropped.Add(owed[i])
			}
		}
		if failed {
			return false
		}
	}
}

// notCharged reports whether the verdict says that a request was certainly not charged.
func (v Verdict) notCharged() bool { return v == Failed || v == Fenced || v == Lost }

// recordAdmitted adds the charges of admitted items to the journal, except those of shadow policies. For a
// policy with failure mode closed, it adds a charge only if the check has mode Force. o is the outcome of
// the shared limiter.
func (e *Engine) recordAdmitted(w *call, items []item, o *Outcome) {
	if e.outage == nil || !o.Verdict.notCharged() || errors.Is(o.Err, ErrLeft) {
		return
	}
	e.outage.admitKey(&items[0])
	for i := range items {
		it := &items[i]
		if !it.Decision.Allowed || it.Check.Mode == Peek || it.unrecorded || it.blocked {
			continue
		}
		for _, part := range [...]span{it.enforced, it.soft} {
			for k := part.from; k < part.to; k++ {
				e.outage.admit(it.Subject, &w.charges[k], &it.lease)
			}
		}
	}
}
