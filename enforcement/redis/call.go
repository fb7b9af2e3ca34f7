package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
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
	maxExact    = 1 << 53
	maxRev      = 1<<47 - 1 // what a value has room for
	linearCells = 8         // up to which a cell is looked for one by one
)

// A call is requests of one home on their way into one run of the script, and
// out of it again. It is reused.
type call struct {
	home     string
	requests []span
	charges  []merged
	where    []uint16 // for each charge of each request: which of its merged ones it is
	cells    []cell
	index    map[enforcement.Key]uint16 // of cells, once there are more than linearCells
	params   []param

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
	request  int // in the caller's batch
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
	key   enforcement.Key
	log   bool
	whole bool   // logs: the reply must carry every entry
	param uint16 // logs
	place uint16 // among KEYS
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

var calls = sync.Pool{New: func() any { return &call{index: map[enforcement.Key]uint16{}} }}

func newCall(home string) *call {
	c := calls.Get().(*call)
	c.home = home
	return c
}

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
		at, found := c.find(&charge.Key)
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

// add puts a request into the call.
func (c *call) add(number int, r *enforcement.Request) {
	s := span{request: number, mode: r.Mode, from: len(c.charges), where: len(c.where)}
	group := s.from // where the current group's merged charges begin
	for i := range r.Charges {
		charge := &r.Charges[i]
		if i > 0 && charge.Group != r.Charges[i-1].Group {
			group = len(c.charges)
		}
		at := c.cellOf(charge, r.Mode)
		m := group
		for m < len(c.charges) && c.charges[m].cell != at {
			m++
		}
		if m == len(c.charges) {
			c.charges = append(c.charges, merged{cell: at, param: c.paramOf(charge), group: charge.Group, cost: charge.Cost})
		} else if r.Mode != enforcement.TakeUpTo {
			c.charges[m].cost += charge.Cost
		}
		c.charges[m].sum += charge.Cost
		c.where = append(c.where, uint16(m-s.from))
	}
	s.to = len(c.charges)
	c.requests = append(c.requests, s)
}

func (c *call) find(key *enforcement.Key) (at uint16, found bool) {
	if len(c.cells) > linearCells {
		at, found = c.index[*key]
		return at, found
	}
	for i := range c.cells {
		if c.cells[i].key == *key {
			return uint16(i), true
		}
	}
	return 0, false
}

func (c *call) cellOf(charge *enforcement.Charge, mode enforcement.Mode) uint16 {
	at, found := c.find(&charge.Key)
	if !found {
		at = uint16(len(c.cells))
		log := charge.Meter.Algorithm == enforcement.SlidingWindowLog
		c.cells = append(c.cells, cell{key: charge.Key, log: log})
		if log {
			c.cells[at].param = c.paramOf(charge)
		}
		switch n := len(c.cells); {
		case n == linearCells+1:
			for i := range c.cells {
				c.index[c.cells[i].key] = uint16(i)
			}
		case n > linearCells:
			c.index[charge.Key] = at
		}
	}
	if mode == enforcement.Refund && c.cells[at].log {
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

// scriptKinds are the algorithms as the script numbers them.
var scriptKinds = [...]byte{
	enforcement.FixedWindow:          1,
	enforcement.SlidingWindowLog:     2,
	enforcement.SlidingWindowCounter: 3,
	enforcement.TokenBucket:          4,
	enforcement.GCRA:                 4,
}

// encode makes KEYS and all of ARGV but the deadline, which setDeadline writes.
func (c *call) encode(prefix string, passed bool, now int64) {
	plain := c.encodeKeys(prefix)
	b := c.argument.bytes[:0]
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // the deadline
	b = append(b, boolByte(passed))
	b = appendInts(b, now)
	b = binary.LittleEndian.AppendUint16(b, uint16(plain))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.params)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.requests)))
	for i := range c.params {
		b = appendParam(b, &c.params[i])
	}
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
	c.argument.bytes = b
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
			b = appendKey(b, prefix, c.home, &cell.key)
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

// arguments is the call as the client takes it, by hash or with the whole text.
func (c *call) arguments(s *script, whole bool) []any {
	c.args = c.args[:0]
	if whole {
		c.args = append(c.args, "eval", &s.text)
	} else {
		c.args = append(c.args, "evalsha", &s.sha)
	}
	c.args = append(c.args, len(c.names))
	for i := range c.names {
		c.args = append(c.args, &c.names[i])
	}
	return append(c.args, &c.argument)
}

func appendParam(b []byte, p *param) []byte {
	m := p.meter
	b = append(b, scriptKinds[m.Algorithm], boolByte(m.Anchor == enforcement.Clock && m.Algorithm.Windowed()))
	b = appendInts(b, p.rev, m.Rev, m.Quota, m.Window, m.Capacity, m.P, m.Q)
	formers := m.Formers
	if !m.Algorithm.Bucket() {
		formers = nil
	}
	if len(formers) > 255 {
		formers = formers[len(formers)-255:]
	}
	b = append(b, byte(len(formers)))
	for i := range formers {
		f := &formers[i]
		b = appendInts(b, f.Rev, f.Until, f.Capacity, f.P, f.Q)
	}
	return b
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
