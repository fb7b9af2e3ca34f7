package redis

import (
	"encoding/binary"
	"slices"

	"github.com/headgate/headgate/enforcement"
)

// encode selects the script and builds KEYS and ARGV. Later, setDeadline adds the deadline to
// ARGV. marker is the name of the marker of the durable counters, or "" if the script must not
// check this marker. passed means that now replaces the clock of Redis.
func (c *call) encode(s *scripts, prefix, marker string, passed bool, now int64) {
	plain := c.encodeKeys(prefix)
	if marker != "" {
		c.names = append(c.names, marker)
	}
	markers := boolByte(marker != "")
	b := c.argument.bytes[:0]
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // the deadline
	b = append(b, boolByte(passed))
	b = appendInts(b, now)
	switch {
	case s.only || !c.plain():
		c.script, b = &s.take, c.appendTake(b, plain, markers)
	case len(c.charges) == 1 && len(c.records) == 0:
		c.script, b = &s.single, c.appendParams(appendInts(b, c.charges[0].cost))
	default:
		c.script, b = &s.batch, c.appendBatch(b, markers)
	}
	c.script.calls.Add(1)
	c.argument.bytes = b
}

// plain reports whether batch.lua can decide the call. It also fills c.costs with the distinct
// costs.
func (c *call) plain() bool {
	if c.special || len(c.cells) > maxNumbers || len(c.params) > maxNumbers || len(c.requests) > callCharges {
		return false
	}
	c.costs = c.costs[:0]
	for i := range c.charges {
		if cost := c.charges[i].cost; !slices.Contains(c.costs, cost) {
			c.costs = append(c.costs, cost)
		}
	}
	return len(c.costs) <= maxNumbers
}

// appendBatch appends the part of ARGV that only batch.lua reads.
func (c *call) appendBatch(b []byte, markers byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.requests)))
	b = append(b, byte(len(c.costs)), byte(len(c.records)), markers)
	end := len(b)
	b = c.appendParams(append(b, 0, 0, 0, 0, 0, 0, 0, 0))
	binary.LittleEndian.PutUint32(b[end:], uint32(len(b)+1))
	for i := range c.requests {
		b = c.requests[i].appendIdentity(b)
	}
	binary.LittleEndian.PutUint32(b[end+4:], uint32(len(b)+1))
	b = appendInts(b, c.costs...)
	for i := range c.cells {
		b = append(b, byte(c.cells[i].param))
	}
	for i := range c.requests {
		s := &c.requests[i]
		switch {
		case s.request.Idempotent():
			b = append(b, 255, byte(s.record+1), byte(s.to-s.from))
		case s.to-s.from == 1 && c.cells[c.charges[s.from].cell].uses == 1:
			b = append(b, 0)
		default:
			b = append(b, byte(s.to-s.from))
		}
		for k := s.from; k < s.to; k++ {
			m := &c.charges[k]
			b = append(b, byte(m.cell+1), byte(slices.Index(c.costs, m.cost)+1))
		}
	}
	return b
}

// appendIdentity appends the IDs and hashes by which a record identifies an idempotent request
// or a reservation.
func (s *span) appendIdentity(b []byte) []byte {
	switch r := s.request; {
	case r.Idempotent():
		b = append(b, r.Idempotency.Request[:]...)
		b = append(b, r.Idempotency.Charges[:]...)
		b = append(b, r.ID[:]...)
	case r.Reservation != nil:
		b = append(b, make([]byte, 48)...) // only a new record has an identity
	}
	return b
}

// appendTake appends the part of ARGV that only take.lua reads.
func (c *call) appendTake(b []byte, plain int, markers byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(plain))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.params)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.requests)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.records)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.reserved)))
	held := 0
	for i := range c.cells {
		if c.cells[i].sort == leaseCell {
			held++
		}
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(held))
	b = append(b, markers)
	end := len(b)
	b = c.appendParams(append(b, 0, 0, 0, 0))
	binary.LittleEndian.PutUint32(b[end:], uint32(len(b)+1))
	for i := range c.cells {
		if cell := &c.cells[i]; cell.sort == logCell {
			b = binary.LittleEndian.AppendUint16(b, cell.param)
			b = append(b, boolByte(cell.whole))
		}
	}
	for i := range c.cells {
		if cell := &c.cells[i]; cell.sort == leaseCell {
			b = binary.LittleEndian.AppendUint16(b, cell.param)
		}
	}
	for i := range c.requests {
		s := &c.requests[i]
		r, mode := s.request, len(b)
		b = append(b, byte(s.mode))
		b = binary.LittleEndian.AppendUint16(b, uint16(s.to-s.from))
		if held > 0 {
			b[mode] |= 32
			b = appendInts(append(b, r.Lease.ID[:]...), r.Lease.TTL)
		}
		switch {
		case r.Reservation != nil:
			b[mode] |= 128 + 64
			b = binary.LittleEndian.AppendUint16(b, uint16(s.record))
			b = appendReservation(s.appendIdentity(b), r.Reservation, s.repeats)
		case r.Idempotent():
			b[mode] |= 128
			b = binary.LittleEndian.AppendUint16(b, uint16(s.record))
			b = s.appendIdentity(b)
		}
		for k := s.from; k < s.to; k++ {
			m := &c.charges[k]
			b = binary.LittleEndian.AppendUint16(b, c.cells[m.cell].place)
			b = binary.LittleEndian.AppendUint16(b, m.param)
			b = binary.LittleEndian.AppendUint16(b, m.group)
			b = appendInts(b, m.cost)
			if r := m.receipt; s.mode == enforcement.Adjust {
				if p := &c.params[m.param]; m.cost < r.Cost && p.meter.Carried(r.State.Rev, p.rev) {
					binary.LittleEndian.PutUint64(b[len(b)-8:], uint64(r.Cost)) // nothing is returned
				}
				b = appendInts(b, r.Cost, r.State.Rev, r.State.A, r.State.B, r.State.T, r.Capacity)
				b = binary.LittleEndian.AppendUint32(b, uint32(r.Index))
			}
		}
	}
	return b
}

// setDeadline writes the deadline of the call into ARGV, in microseconds by the clock
// of Redis. After the deadline, the script does nothing. 0 means no deadline.
func (c *call) setDeadline(micros int64) {
	binary.LittleEndian.PutUint64(c.argument.bytes, uint64(micros))
	c.argument.sent = false
}

// encodeKeys builds the names in KEYS: the cells by their sort, the records, and the lists
// of reservations. It returns the number of plain cells.
func (c *call) encodeKeys(prefix string) (plain int) {
	place, b, ends := 0, c.keys[:0], c.ends[:0]
	c.names = c.names[:0]
	for sort := range cellSorts {
		for i := range c.cells {
			cell := &c.cells[i]
			if cell.sort != sort {
				continue
			}
			cell.place = uint16(place)
			place++
			b = appendKey(b, prefix, cell.home, &cell.key)
			ends = append(ends, len(b))
		}
		if sort == plainCell {
			plain = place
		}
	}
	for i := range c.records {
		b = appendKey(b, prefix, c.records[i].home, &c.records[i].key)
		ends = append(ends, len(b))
	}
	for i := range c.reserved {
		at := &c.reserved[i]
		b = appendTenantList(b, prefix, at.home, at.key.Tenant)
		ends = append(ends, len(b))
		b = appendHomeList(b, prefix, at.home)
		ends = append(ends, len(b))
	}
	c.keys, c.ends = b, ends
	all, from := string(b), 0
	for _, end := range ends {
		c.names = append(c.names, all[from:end])
		from = end
	}
	return plain
}

// appendKey appends the name of a cell in Redis: prefix, {home}, tenant, cell, and partition.
// The numbers are uvarints. A uvarint marks its own end, so no two cells have the same name.
// Uvarints keep names short: with up to 2 million tenants and 16,000 cells, a name has 28
// bytes. Redis stores up to 30 bytes in an allocation of 32.
func appendKey(b []byte, prefix, home string, key *enforcement.Key) []byte {
	b = append(b, prefix...)
	b = append(b, '{')
	b = append(b, home...)
	b = append(b, '}')
	b = binary.AppendUvarint(b, uint64(key.Tenant))
	b = binary.AppendUvarint(b, uint64(key.Cell))
	return append(b, key.Partition[:]...)
}

// arguments returns the Redis command of the encoded call. This is EVALSHA with the hash of
// the script. If whole is true, it is EVAL with the text of the script.
func (c *call) arguments(whole bool) []any {
	c.args = c.args[:0]
	if whole {
		c.args = append(c.args, "eval", &c.script.text)
	} else {
		c.args = append(c.args, "evalsha", &c.script.sha)
	}
	c.args = append(c.args, len(c.names))
	for i := range c.names {
		c.args = append(c.args, &c.names[i])
	}
	return append(c.args, &c.argument)
}

// appendParams appends the call's parameters. After all of them, it appends their former
// quotas, windows and bursts. Both have the form of cell.lua.
func (c *call) appendParams(b []byte) []byte {
	first := len(b)
	for i := range c.params {
		p := &c.params[i]
		m := p.meter
		if m.Period != enforcement.NoPeriod {
			kind := byte(calendarKind)
			if m.IsGrant() {
				kind = grantKind
			}
			b = append(b, kind)
			b = appendInts(b, p.rev, -m.Rollover, m.Edges[0], m.Edges[1], m.Edges[2], m.Quota, m.Window)
			b = append(b, 0, 0, 0, 0, 0) // no formers
			continue
		}
		b = append(b, scriptKinds[m.Algorithm])
		if m.Algorithm.Bucket() {
			b = appendInts(b, p.rev, m.Burst(), m.P, m.Q)
		} else {
			b = appendInts(b, p.rev, m.Quota, m.Window, int64(boolByte(m.Anchor == enforcement.Clock && m.Algorithm.Windowed())))
		}
		b = appendInts(b, m.Rev, m.Quota, m.Window)
		b = append(b, 0, 0, 0, 0, 0) // the formers
	}
	for i := range c.params {
		m := c.params[i].meter
		formers := lastFormers(m, c.params[i].rev)
		if len(formers) == 0 {
			continue
		}
		at := first + paramSize*(i+1) - 5
		b[at] = byte(len(formers))
		binary.LittleEndian.PutUint32(b[at+1:], uint32(len(b)+1))
		for j := range formers {
			f := &formers[j]
			if m.Algorithm.Bucket() {
				b = appendInts(b, f.Rev, f.Until, f.Capacity, f.P, f.Q)
			} else {
				b = appendInts(b, f.Rev, f.Until, f.Quota, f.Window, 0)
			}
			b = append(b, byte(f.CarryOver))
		}
	}
	return b
}

// lastFormers returns the newest former numbers (quota, window and burst) that the scripts
// need. It returns at most 255, because a parameter has one byte for their count. For windows
// and logs, the scripts need them only to carry counts over. rev is the revision of the
// caller.
func lastFormers(m *enforcement.Meter, rev int64) []enforcement.Former {
	if !m.Algorithm.Bucket() && (rev != m.Rev || !m.Carries()) {
		return nil
	}
	return m.Formers[max(len(m.Formers)-255, 0):]
}

func appendInts(b []byte, ints ...int64) []byte {
	for _, n := range ints {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}
