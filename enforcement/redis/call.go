package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/headgate/headgate/enforcement"
)

// Bounds of one call. A request is never split, so one alone may pass them, up
// to maxCharges.
const (
	callCells   = 64
	callCharges = 256
	maxCharges  = 4000 // of a request: what Lua's stack takes in one MGET
	maxNumbers  = 255  // of cells, parameters, costs or charges that a byte of batch.lua names
	maxExact    = 1 << 53
	maxRev      = 1<<47 - 1 // what a value has room for
	linearCells = 8         // up to which a cell is looked for one by one
)

// A call carries requests into one run of the script and its answers back. The
// requests may belong to several callers and, on a single server, to several
// homes. A call is reused.
type call struct {
	requests []span
	charges  []merged
	where    []uint16 // for each charge of each request: which of its merged ones it is
	cells    []cell
	index    map[place]uint16 // of cells; filled once there are more than linearCells
	params   []param
	costs    []int64 // the distinct ones; batch.lua
	special  bool    // a request is not of the usual kind: see plain

	script   *script // which encode chose
	argument argument
	keys     []byte
	ends     []int // of each name in keys
	names    []string
	args     []any

	work  []enforcement.State
	saved []enforcement.State
	used  []charged
}

// A span is where the parts of one request lie in the call's lists.
type span struct {
	request  *enforcement.Request
	outcome  *enforcement.Outcome
	mode     enforcement.Mode
	from, to int // in charges
	where    int // in where
}

// A merged charge stands for all charges of one group of a request on one cell.
type merged struct {
	cell, param, group uint16
	sum, cost          int64 // cost is what the script sees: for TakeUpTo of one charge
}

type cell struct {
	home  string
	key   enforcement.Key
	log   bool
	whole bool   // logs: the reply must carry every entry
	param uint16 // of its first charge
	place uint16 // among KEYS
	uses  uint16 // merged charges that name it, up to 2

	shared bool  // the limit's overflow counter decides in its place
	bound  int64 // Request.MaxKeys
	ends   int64 // when the value that was read is over; 0: there was none
}

// A place is the identity of a cell in a call: a tenant that moves to another
// home has two cells for one key until every node has seen the move.
type place struct {
	home string
	key  enforcement.Key
}

type param struct {
	meter *enforcement.Meter
	rev   int64
}

type charged struct {
	state enforcement.State
	fits  bool
}

// An argument is the script's ARGV. It knows whether it was put on a
// connection, and is not put on one twice unless asked again.
type argument struct {
	bytes []byte
	sent  bool
}

var errTwice = errors.New("redis: a call that was sent is not sent again")

// MarshalBinary is called by the client when it writes the call.
func (a *argument) MarshalBinary() ([]byte, error) {
	if a.sent {
		return nil, errTwice
	}
	a.sent = true
	return a.bytes, nil
}

var calls = sync.Pool{New: func() any { return &call{index: map[place]uint16{}} }}

func newCall() *call { return calls.Get().(*call) }

// free gives the call back; what it handed out (logs) is not reused.
func (c *call) free() {
	c.clear()
	calls.Put(c)
}

func (c *call) clear() {
	clear(c.work)
	clear(c.saved)
	clear(c.used)
	clear(c.params)
	clear(c.names)
	clear(c.args)
	if len(c.index) > 0 {
		clear(c.index)
	}
	clear(c.requests)
	c.special = false
	c.requests, c.charges, c.where, c.cells, c.params = c.requests[:0], c.charges[:0], c.where[:0], c.cells[:0], c.params[:0]
	c.names, c.args, c.work, c.saved, c.used = c.names[:0], c.args[:0], c.work[:0], c.saved[:0], c.used[:0]
}

// valid says why a request cannot be asked of Redis at all.
func valid(r *enforcement.Request) error {
	switch {
	case r.Home == "" || strings.ContainsAny(r.Home, "{}"):
		return fmt.Errorf("redis: home %q cannot be a hash tag", r.Home)
	case len(r.Charges) > maxCharges:
		return fmt.Errorf("redis: %d charges, at most %d", len(r.Charges), maxCharges)
	case r.Mode > enforcement.TakeUpTo:
		return fmt.Errorf("redis: unknown %s", r.Mode)
	}
	sum := int64(0)
	for i := range r.Charges {
		c := &r.Charges[i]
		if c.Rev < 1 || c.Rev > maxRev || c.Meter.Rev > maxRev {
			return fmt.Errorf("redis: revision %d is out of range", c.Rev)
		}
		if c.Cost < 0 || c.Cost > maxExact-sum {
			return fmt.Errorf("redis: cost %d is out of range", c.Cost)
		}
		sum += c.Cost
	}
	return nil
}

// takes reports whether the call has room for a request.
func (c *call) takes(r *enforcement.Request) bool {
	if len(c.requests) == 0 {
		return true
	}
	if len(c.charges)+len(r.Charges) > callCharges {
		return false
	}
	cells := len(c.cells)
	for i := range r.Charges {
		charge := &r.Charges[i]
		at, found := c.find(r.Home, &charge.Key)
		if !found {
			if cells++; cells > callCells {
				return false
			}
			continue
		}
		// A log is settled once in a call, by one set of numbers.
		if found := &c.cells[at]; found.log {
			if p := &c.params[found.param]; p.meter != charge.Meter || p.rev != charge.Rev {
				return false
			}
		}
	}
	return true
}

// add puts a request into the call. fill or fail sets its outcome.
func (c *call) add(r *enforcement.Request, out *enforcement.Outcome) {
	s := span{request: r, outcome: out, mode: r.Mode, from: len(c.charges), where: len(c.where)}
	group := s.from // where the current group's merged charges begin
	for i := range r.Charges {
		charge := &r.Charges[i]
		if i > 0 && charge.Group != r.Charges[i-1].Group {
			group = len(c.charges)
		}
		at := c.cellOf(r, charge)
		m := group
		for m < len(c.charges) && c.charges[m].cell != at {
			m++
		}
		if m == len(c.charges) {
			c.cells[at].uses = min(c.cells[at].uses+1, 2)
			c.charges = append(c.charges, merged{cell: at, param: c.paramOf(charge), group: charge.Group, cost: charge.Cost})
		} else if r.Mode != enforcement.TakeUpTo {
			c.charges[m].cost += charge.Cost
		}
		c.charges[m].sum += charge.Cost
		c.where = append(c.where, uint16(m-s.from))
	}
	s.to = len(c.charges)
	c.requests = append(c.requests, s)
	c.special = c.special || c.isSpecial(&s)
}

// isSpecial tells whether only take.lua can decide a request: its mode is not
// enforce, it has shadow groups, it charges a log, or it charges a cell by other
// numbers than an earlier request.
func (c *call) isSpecial(s *span) bool {
	if s.mode != enforcement.Enforce || s.to == s.from || s.to-s.from > maxNumbers {
		return true
	}
	for k := s.from; k < s.to; k++ {
		m := &c.charges[k]
		if cell := &c.cells[m.cell]; m.group != 0 || cell.log || cell.param != m.param {
			return true
		}
	}
	return false
}

func (c *call) find(home string, key *enforcement.Key) (at uint16, found bool) {
	if len(c.cells) > linearCells {
		at, found = c.index[place{home, *key}]
		return at, found
	}
	for i := range c.cells {
		if c.cells[i].key == *key && c.cells[i].home == home {
			return uint16(i), true
		}
	}
	return 0, false
}

func (c *call) cellOf(r *enforcement.Request, charge *enforcement.Charge) uint16 {
	home := r.Home
	at, found := c.find(home, &charge.Key)
	if !found {
		at = uint16(len(c.cells))
		log := charge.Meter.Algorithm == enforcement.SlidingWindowLog
		c.cells = append(c.cells, cell{home: home, key: charge.Key, log: log, param: c.paramOf(charge), bound: r.MaxKeys})
		switch n := len(c.cells); {
		case n == linearCells+1:
			for i := range c.cells {
				c.index[place{c.cells[i].home, c.cells[i].key}] = uint16(i)
			}
		case n > linearCells:
			c.index[place{home, charge.Key}] = at
		}
	}
	if r.Mode == enforcement.Refund && c.cells[at].log {
		c.cells[at].whole = true // its newest entries are needed
	}
	return at
}

func (c *call) paramOf(charge *enforcement.Charge) uint16 {
	for i := len(c.params) - 1; i >= 0; i-- {
		if c.params[i].meter == charge.Meter && c.params[i].rev == charge.Rev {
			return uint16(i)
		}
	}
	c.params = append(c.params, param{meter: charge.Meter, rev: charge.Rev})
	return uint16(len(c.params) - 1)
}

const paramSize = 62 // of a parameter, without its formers

// scriptKinds are the algorithms as the script numbers them.
var scriptKinds = [...]byte{
	enforcement.FixedWindow:          1,
	enforcement.SlidingWindowLog:     2,
	enforcement.SlidingWindowCounter: 3,
	enforcement.TokenBucket:          4,
	enforcement.GCRA:                 4,
}

// encode chooses the script and makes KEYS and all of ARGV but the deadline,
// which setDeadline writes.
func (c *call) encode(s *scripts, prefix string, passed bool, now int64) {
	plain := c.encodeKeys(prefix)
	b := c.argument.bytes[:0]
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // the deadline
	b = append(b, boolByte(passed))
	b = appendInts(b, now)
	switch {
	case s.only || !c.plain():
		c.script, b = &s.take, c.appendTake(b, plain)
	case len(c.charges) == 1:
		c.script, b = &s.single, c.appendParams(appendInts(b, c.charges[0].cost))
	default:
		c.script, b = &s.batch, c.appendBatch(b)
	}
	c.script.calls.Add(1)
	c.argument.bytes = b
}

// plain tells whether the call is of the shape that batch.lua decides, and
// collects its costs.
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

// appendBatch appends the rest of the argument of batch.lua.
func (c *call) appendBatch(b []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.requests)))
	b = append(b, byte(len(c.costs)))
	end := len(b)
	b = c.appendParams(append(b, 0, 0, 0, 0))
	binary.LittleEndian.PutUint32(b[end:], uint32(len(b)+1))
	b = appendInts(b, c.costs...)
	for i := range c.cells {
		b = append(b, byte(c.cells[i].param))
	}
	for i := range c.requests {
		s := &c.requests[i]
		if s.to-s.from == 1 && c.cells[c.charges[s.from].cell].uses == 1 {
			b = append(b, 0)
		} else {
			b = append(b, byte(s.to-s.from))
		}
		for k := s.from; k < s.to; k++ {
			m := &c.charges[k]
			b = append(b, byte(m.cell+1), byte(slices.Index(c.costs, m.cost)+1))
		}
	}
	return b
}

// appendTake appends the rest of the argument of take.lua.
func (c *call) appendTake(b []byte, plain int) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(plain))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.params)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.requests)))
	end := len(b)
	b = c.appendParams(append(b, 0, 0, 0, 0))
	binary.LittleEndian.PutUint32(b[end:], uint32(len(b)+1))
	for i := range c.cells {
		if cell := &c.cells[i]; cell.log {
			b = binary.LittleEndian.AppendUint16(b, cell.param)
			b = append(b, boolByte(cell.whole))
		}
	}
	for i := range c.requests {
		s := &c.requests[i]
		b = append(b, byte(s.mode))
		b = binary.LittleEndian.AppendUint16(b, uint16(s.to-s.from))
		for k := s.from; k < s.to; k++ {
			m := &c.charges[k]
			b = binary.LittleEndian.AppendUint16(b, c.cells[m.cell].place)
			b = binary.LittleEndian.AppendUint16(b, m.param)
			b = binary.LittleEndian.AppendUint16(b, m.group)
			b = appendInts(b, m.cost)
		}
	}
	return b
}

// setDeadline says until when, by Redis' clock, the call may be done; 0 is for ever.
func (c *call) setDeadline(micros int64) {
	binary.LittleEndian.PutUint64(c.argument.bytes, uint64(micros))
	c.argument.sent = false
}

// encodeKeys names the cells, the plain ones first, and counts those.
func (c *call) encodeKeys(prefix string) (plain int) {
	for i := range c.cells {
		if !c.cells[i].log {
			c.cells[i].place = uint16(plain)
			plain++
		}
	}
	place, b, ends := plain, c.keys[:0], c.ends[:0]
	c.names = c.names[:0]
	for _, logs := range [2]bool{false, true} {
		for i := range c.cells {
			cell := &c.cells[i]
			if cell.log != logs {
				continue
			}
			if logs {
				cell.place = uint16(place)
				place++
			}
			b = appendKey(b, prefix, cell.home, &cell.key)
			ends = append(ends, len(b))
		}
	}
	c.keys, c.ends = b, ends
	all, from := string(b), 0
	for _, end := range ends {
		c.names = append(c.names, all[from:end])
		from = end
	}
	return plain
}

// appendKey appends a cell's name in Redis. The numbers are written in as many
// bytes as they need (their ends show, so no two names are the same): with up to
// 2 million tenants and 16,000 cells a name has 28 bytes, and up to 30 an
// allocation of 32 holds it.
func appendKey(b []byte, prefix, home string, key *enforcement.Key) []byte {
	b = append(b, prefix...)
	b = append(b, '{')
	b = append(b, home...)
	b = append(b, '}')
	b = binary.AppendUvarint(b, uint64(key.Tenant))
	b = binary.AppendUvarint(b, uint64(key.Cell))
	return append(b, key.Partition[:]...)
}

// arguments is the encoded call as the client takes it: it names the script by
// its hash, or carries the script's whole text.
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

// appendParams appends the call's parameters and, after them, their formers, as
// cell.lua has them.
func (c *call) appendParams(b []byte) []byte {
	first := len(b)
	for i := range c.params {
		p := &c.params[i]
		m := p.meter
		b = append(b, scriptKinds[m.Algorithm])
		if m.Algorithm.Bucket() {
			b = appendInts(b, p.rev, m.Capacity, m.P, m.Q)
		} else {
			b = appendInts(b, p.rev, m.Quota, m.Window, int64(boolByte(m.Anchor == enforcement.Clock && m.Algorithm.Windowed())))
		}
		b = appendInts(b, m.Rev, m.Quota, m.Window)
		b = append(b, 0, 0, 0, 0, 0) // the formers
	}
	for i := range c.params {
		formers := lastFormers(c.params[i].meter)
		if len(formers) == 0 {
			continue
		}
		at := first + paramSize*(i+1) - 5
		b[at] = byte(len(formers))
		binary.LittleEndian.PutUint32(b[at+1:], uint32(len(b)+1))
		for j := range formers {
			f := &formers[j]
			b = appendInts(b, f.Rev, f.Until, f.Capacity, f.P, f.Q)
		}
	}
	return b
}

// lastFormers are as many of a bucket's former numbers as a parameter can carry.
func lastFormers(m *enforcement.Meter) []enforcement.Former {
	if !m.Algorithm.Bucket() {
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
