package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
)

var _ enforcement.Reserver = (*Limiter)(nil)

const (
	idempotentKind  = 3  // the first byte of the record of an idempotent request
	reservationKind = 5  // the first byte of the record of a reservation
	recordHead      = 67 // bytes before its charges
	changesSize     = 29 // bytes of the fields that change, without the applied units
)

// appendTenantList and appendHomeList append the names of the sorted sets that list
// reservations. They are shorter than the name of any counter.
func appendTenantList(b []byte, prefix, home string, tenant uint32) []byte {
	b = append(append(append(append(b, prefix...), '{'), home...), '}')
	return append(binary.AppendUvarint(b, uint64(tenant)), 'R')
}

func appendHomeList(b []byte, prefix, home string) []byte {
	return append(append(append(append(b, prefix...), '{'), home...), '}', 'R')
}

// adjust decides a request with mode Adjust again in Go, from the states that the script read.
func (c *call) adjust(s *span, now int64) {
	costs := enforcement.AdjustedCosts(s.request.Charges, func(i int) int64 {
		m := &c.charges[s.from+i]
		p := &c.params[m.param]
		settled, _ := p.meter.Settle(c.work[m.cell], p.rev, now)
		return p.meter.Left(settled, now)
	})
	for k := s.from; k < s.to; k++ {
		m := &c.charges[k]
		p, before := &c.params[m.param], c.work[m.cell]
		settled, clamped := c.settle(m, before, now)
		after, delta := settled, int64(0)
		held, lease := p.meter.Algorithm == enforcement.Concurrency, c.lease(s, m)
		cost := m.cost
		if costs != nil {
			cost = costs[k-s.from]
		}
		if held || !c.cells[m.cell].shared || cost > m.receipt.Cost {
			after, delta = p.meter.Adjust(settled, p.rev, now, cost, m.receipt, &lease)
		}
		if clamped || delta != 0 || held {
			c.work[m.cell] = after
		}
		m.sum = m.receipt.Cost + delta
		c.used = append(c.used, charged{state: after, fits: true})
	}
}

// appendReservation appends the fields of a reservation to ARGV. repeats is the value of
// span.repeats.
func appendReservation(b []byte, v *enforcement.Reservation, repeats int) []byte {
	b = binary.LittleEndian.AppendUint32(b, v.Key.Tenant)
	b = binary.LittleEndian.AppendUint32(b, v.Version)
	b = append(b, boolByte(v.Ends)|boolByte(v.Due)<<1)
	b = appendInts(b, v.Life, v.Kept, v.Most)
	b = binary.LittleEndian.AppendUint16(b, uint16(repeats))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(v.Data)))
	return append(b, v.Data...)
}

// repeatReservation sets the outcome of a request that read a reservation, or that repeated the
// request that created it. It uses the record that the script found.
func (c *call) repeatReservation(s *span, out *enforcement.Outcome) {
	if s.repeated[0] == idempotentKind {
		s.repeated = s.repeated[17:] // without the kind and the hash of the request
		c.repeat(s, out)
		return
	}
	record := readRecord(s.repeated)
	if record == nil {
		fail(out, enforcement.Failed, fmt.Errorf("redis: the record of a reservation is invalid"))
		return
	}
	out.Verdict, out.Record = enforcement.Granted, record
	if s.mode == enforcement.Peek {
		return
	}
	out.Replayed, out.At, out.First = true, record.At, record.ID
	if record.Numbers != s.request.Idempotency.Charges || len(record.Charged) != s.to-s.from {
		return
	}
	for j := range s.request.Charges {
		at := int(c.where[s.where+j])
		charged := record.Charged[at]
		charged.Cost = c.charges[s.from+at].sum
		out.Charges = append(out.Charges, charged)
	}
}

// readRecord decodes a record in the form of reservation.lua. It returns nil if the record is
// invalid. It leaves the costs of the charges at 0, because the record does not have them.
func readRecord(b []byte) *enforcement.Record {
	if len(b) < recordHead || b[0] != reservationKind {
		return nil
	}
	n := int(binary.LittleEndian.Uint16(b[recordHead-2:]))
	head := recordHead + chargedSize*n
	data := head + changesSize + 8*n
	if len(b) < data {
		return nil
	}
	r := &enforcement.Record{
		Request: [16]byte(b[1:]), Numbers: [16]byte(b[17:]), ID: [16]byte(b[33:]), At: int64At(b, 49),
		Version: binary.LittleEndian.Uint32(b[head:]), Open: b[head+4] == 1,
		Until: int64At(b, head+5), Changed: int64At(b, head+13), Kept: int64At(b, head+21),
		Data: slices.Clone(b[data:]),
	}
	for i := range n {
		c := b[recordHead+chargedSize*i:]
		state := enforcement.State{Rev: intAt(c, 1, 6), A: intAt(c, 7, 7), B: intAt(c, 14, 7), T: intAt(c, 21, 7)}
		r.Charged = append(r.Charged, enforcement.Charged{State: state, Fits: c[0] == 1})
		r.Applied = append(r.Applied, int64At(b, head+changesSize+8*i))
	}
	return r
}

// noteReservation counts the key of the reservation record that a request created or changed.
func (v *live) noteReservation(r *enforcement.Request, now int64) {
	record := cell{home: r.Home, key: r.Reservation.Key, bound: r.MaxKeys}
	after := now + r.Reservation.Life + r.Reservation.Kept
	if r.Reservation.Ends {
		after = now + r.Reservation.Kept
	}
	v.change(&record, reservationMeter, r.Reservation.Forgotten, after, now, reservationKeys)
}

// reservationKeys is the number of keys as which a reservation counts. Its record and its
// places in the lists take as much memory as so many keys.
const reservationKeys = 6

// reservationMeter is a meter with the lifetime of a typical reservation record. With it, the
// type live counts such records as keys.
var reservationMeter = enforcement.Limit{
	Algorithm: enforcement.FixedWindow, Quota: 1, Window: enforcement.IdempotencyPeriod,
}.Compile(1)

// sweepClaim is how long a node is the only node that lists due reservations. If this node
// stops, another node can take over after that time.
const sweepClaim = 3 * time.Second

// Due implements enforcement.Reserver. At any time, it returns reservations on one node only.
// This saves work and is not needed for correctness: if two nodes end a reservation at the same
// time, it still ends only once.
func (l *Limiter) Due(ctx context.Context, most int) (due []enforcement.ReservationEntry, err error) {
	claim := l.config.Prefix + "{00}S" // no counter has a name as short as this one
	claimed, err := l.probe.SetNX(ctx, claim, l.health.marks.node, sweepClaim).Result()
	if err == nil && !claimed {
		var node string
		if node, err = l.probe.Get(ctx, claim).Result(); err == nil && node == l.health.marks.node {
			claimed, err = l.probe.PExpire(ctx, claim, sweepClaim).Result()
		}
	}
	if errors.Is(err, redis.Nil) || err == nil && !claimed {
		return nil, nil
	}
	if err != nil {
		return nil, failedCall{fmt.Errorf("redis: claim the end of reservations: %w", err)}
	}
	commands := make([]*redis.ZSliceCmd, l.config.Tags)
	_, _ = l.probe.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range commands {
			home := fmt.Sprintf("%02x", i)
			until := strconv.FormatInt(l.now(home), 10)
			commands[i] = p.ZRangeByScoreWithScores(ctx, string(appendHomeList(nil, l.config.Prefix, home)),
				&redis.ZRangeBy{Min: "-inf", Max: until, Count: int64(most)})
		}
		return nil
	})
	for i, command := range commands {
		list, err := command.Result()
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return due, fmt.Errorf("redis: read the reservations that are due: %w", err)
		}
		for _, member := range list {
			name, _ := member.Member.(string)
			if len(name) != 20 || len(due) == most {
				continue
			}
			e := enforcement.ReservationEntry{Home: fmt.Sprintf("%02x", i), Until: int64(member.Score)}
			e.Key = enforcement.Key{Tenant: binary.LittleEndian.Uint32([]byte(name)), Cell: enforcement.ReservationCell}
			copy(e.Key.Partition[:], name[4:])
			due = append(due, e)
		}
	}
	return due, nil
}

// now returns the estimated time of the Redis server that stores the tenants of a home, in
// microseconds since the epoch.
func (l *Limiter) now(home string) int64 {
	if l.config.Now != nil {
		return l.config.Now()
	}
	if last := l.clocks.last(home); last != nil {
		return last.at(time.Now())
	}
	return time.Now().UnixMicro()
}

// Outstanding implements enforcement.Reserver.
func (l *Limiter) Outstanding(ctx context.Context, home string, tenant uint32, until int64, partition [16]byte, most int) (
	list []enforcement.ReservationEntry, err error,
) {
	name := string(appendTenantList(nil, l.config.Prefix, home, tenant))
	for skip := int64(0); ; {
		members, err := l.probe.ZRangeByScoreWithScores(ctx, name, &redis.ZRangeBy{
			Min: strconv.FormatInt(max(until, 0), 10), Max: "+inf", Offset: skip, Count: int64(most) + 1,
		}).Result()
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return nil, fmt.Errorf("redis: list the reservations of a tenant: %w", err)
		}
		for _, member := range members {
			text, _ := member.Member.(string)
			at := int64(member.Score)
			// Redis sorts members with the same score by their bytes.
			if len(text) != 16 || at == until && text <= string(partition[:]) {
				continue
			}
			e := enforcement.ReservationEntry{Home: home, Until: at, Key: enforcement.Key{Tenant: tenant, Cell: enforcement.ReservationCell}}
			copy(e.Key.Partition[:], text)
			if list = append(list, e); len(list) == most {
				return list, nil
			}
		}
		if len(members) <= most {
			return list, nil
		}
		skip += int64(len(members))
	}
}

// OutstandingTotal implements enforcement.Reserver.
func (l *Limiter) OutstandingTotal(ctx context.Context) (total int64, err error) {
	commands := make([]*redis.IntCmd, l.config.Tags)
	_, _ = l.probe.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range commands {
			commands[i] = p.ZCard(ctx, string(appendHomeList(nil, l.config.Prefix, fmt.Sprintf("%02x", i))))
		}
		return nil
	})
	for _, command := range commands {
		n, err := command.Result()
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return 0, fmt.Errorf("redis: count the reservations: %w", err)
		}
		total += n
	}
	return total, nil
}
