package inprocess

import "github.com/headgate/headgate/enforcement"

// records has the records of the idempotent requests in one shard. New records are appended
// to order. All records have the same lifetime, so order is sorted by their ends.
type records struct {
	byKey map[enforcement.Key]*record
	order []*record
	ended int // number of records at the start of order that have ended
}

// A record is the outcome of one granted idempotent request.
type record struct {
	key     enforcement.Key
	request [16]byte
	charges [16]byte
	first   [16]byte
	at      int64
	units   int64
	charged []enforcement.Charged // without the entries of logs and without leases
}

const recordPeriod = int64(enforcement.IdempotencyPeriod / 1000) // in microseconds

// fewRecords is the maximum number of expired records that one request deletes.
const fewRecords = 16

// repeat sets the outcome of a request from the record of its key. It returns false if the
// key has no record. The caller must hold the lock of the key's shard.
func (l *Limiter) repeat(r *enforcement.Request, o *enforcement.Outcome, now int64) bool {
	s := &l.shards[shardOf(l.hash(&r.Idempotency.Key))]
	if s.records == nil {
		return false
	}
	l.endRecords(s.records, now, fewRecords)
	found := s.records.byKey[r.Idempotency.Key]
	if found == nil || now >= found.at+recordPeriod {
		return false
	}
	o.Verdict, o.At, o.Charges = enforcement.Reused, now, o.Charges[:0]
	if found.request != r.Idempotency.Request {
		return true
	}
	o.Verdict, o.At, o.Units, o.Replayed, o.First = enforcement.Granted, found.at, found.units, true, found.first
	if found.charges == r.Idempotency.Charges {
		o.Charges = append(o.Charges, found.charged...)
	}
	return true
}

// record stores the outcome of a granted request. The caller must hold the lock of the
// key's shard.
func (l *Limiter) record(r *enforcement.Request, o *enforcement.Outcome) {
	s := &l.shards[shardOf(l.hash(&r.Idempotency.Key))]
	if s.records == nil {
		s.records = &records{byKey: map[enforcement.Key]*record{}}
	}
	stored := &record{
		key: r.Idempotency.Key, request: r.Idempotency.Request, charges: r.Idempotency.Charges, first: r.ID,
		at: o.At, units: o.Units, charged: make([]enforcement.Charged, len(o.Charges)),
	}
	for i := range o.Charges {
		stored.charged[i] = o.Charges[i]
		stored.charged[i].State.Log, stored.charged[i].State.Holders = nil, nil
	}
	s.records.byKey[stored.key] = stored
	s.records.order = append(s.records.order, stored)
	l.counted.add(&stored.key, 1)
}

// endRecords deletes records that have ended. most is the maximum number that it deletes.
func (l *Limiter) endRecords(rs *records, now int64, most int) {
	for ; most > 0 && rs.ended < len(rs.order); most-- {
		r := rs.order[rs.ended]
		if now < r.at+recordPeriod {
			break
		}
		if rs.byKey[r.key] == r {
			delete(rs.byKey, r.key)
		}
		l.counted.add(&r.key, -1)
		rs.order[rs.ended] = nil
		rs.ended++
	}
	if rs.ended > len(rs.order)/2 {
		n := copy(rs.order, rs.order[rs.ended:])
		clear(rs.order[n:])
		rs.order, rs.ended = rs.order[:n], 0
	}
}

// sweepRecords deletes the records of a shard that have ended.
func (l *Limiter) sweepRecords(s *shard) {
	for {
		s.lock()
		if s.records == nil {
			s.unlock()
			return
		}
		l.endRecords(s.records, l.now(), sweepStep)
		first := s.records.ended < len(s.records.order) && l.now() >= s.records.order[s.records.ended].at+recordPeriod
		if len(s.records.order) == 0 {
			s.records = nil // release the map, because a map keeps the memory of its largest size
		}
		s.unlock()
		if !first {
			return
		}
	}
}
