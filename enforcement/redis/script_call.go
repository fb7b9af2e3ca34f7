package redis

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/headgate/headgate/enforcement"
)

// Bounds of one script call. A request is never split between calls. One request alone
// in a call may exceed callCells and callCharges, up to maxCharges.
const (
	callCells   = 64
	callCharges = 256
	maxCharges  = 4000 // of one request; Lua's stack cannot hold more keys for one MGET
	maxNumbers  = 255  // of cells, parameters, costs or charges; batch.lua uses one byte for their numbers
	maxExact    = 1 << 53
	maxRev      = 1<<47 - 1 // the largest revision that a stored value has room for
	maxData     = 64 << 10  // bytes of Reservation.Data
	linearCells = 8         // find searches up to so many cells one by one, and more cells with the index
)

// A call is one run of a script in Redis. It carries the requests to the script and the
// replies back. The requests may be from several callers and, on a single server, for
// several homes. Calls are pooled.
type call struct {
	requests []span
	charges  []merged
	where    []uint16 // for each charge of each request: index of its merged charge, counted from span.from
	cells    []cell
	records  []place          // records of idempotent requests and of reservations
	reserved []place          // keys of the records of reservations, one for each request that has one
	index    map[place]uint16 // index in cells; filled if there are more than linearCells
	params   []param
	costs    []int64 // the distinct costs; only for batch.lua
	special  bool    // one of the requests can only be decided by take.lua; see isSpecial
	route    route   // where the call was redirected, on a cluster
	asked    *server // on a cluster, the server to which the call was sent last
	durable  bool    // one of the requests is durable; see Request.Durable

	script   *script // the script that encode selected
	argument argument
	keys     []byte
	ends     []int // end of each name in keys
	names    []string
	args     []any

	work  []enforcement.State
	saved []enforcement.State
	used  []charged
}

// A span is the range of one request in the call's slices charges and where.
type span struct {
	request  *enforcement.Request
	outcome  *enforcement.Outcome
	mode     enforcement.Mode
	from, to int // range in charges
	where    int // start in where
	record   int // index in records; only valid if the request has a record
	repeats  int // 1 + the index in records of the record with the key of Request.RepeatKey; 0 if there is none

	// repeated is the record that decides the request; readReply sets it. The record of an
	// idempotent request begins with the hash of the charges. The record of a reservation is
	// complete.
	repeated []byte
}

// A merged charge is the sum of those charges of a request that have the same group and cell.
type merged struct {
	cell, param, group uint16
	key                uint16 // index of the cell of the charge's own key, if cell is an overflow counter
	sum, cost          int64  // sum is for the outcome, cost for the script; for TakeUpTo, cost is the cost of one charge
	grant              bool   // the cell is the counter of a grant; see Charge.Grant
	receipt            *enforcement.Receipt
}

type cell struct {
	home  string
	key   enforcement.Key
	sort  cellSort
	whole bool   // only for a log: the reply must contain all entries
	param uint16 // index in params for the first charge on the cell
	place uint16 // index in KEYS
	uses  uint16 // number of merged charges on the cell; 2 stands for 2 or more

	shared bool  // the tenant is full, so the limit's overflow counter is used
	bound  int64 // Request.MaxKeys
	ends   int64 // expiry of the value that the script read; 0 if there was no value
}

// A cellSort is the form in which a cell is stored in Redis. In KEYS, the cells are ordered by this form.
type cellSort uint8

const (
	plainCell cellSort = iota
	logCell
	leaseCell // of a concurrency limit
	cellSorts // their number
)

func sortOf(m *enforcement.Meter) cellSort {
	switch m.Algorithm {
	case enforcement.SlidingWindowLog:
		return logCell
	case enforcement.Concurrency:
		return leaseCell
	}
	return plainCell
}

// A place identifies a cell within a call by home and key. While a tenant moves to another home, one key can
// occur with two homes. These are two cells in Redis.
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
	spent int64 // by how much grants change the cost: above 0 for a grant, below 0 for its window
}

// An argument is the ARGV of a script. The client encodes it when it writes the call to a connection. So
// sent, which the encoding sets, records whether the call was written. A second encoding fails until
// setDeadline clears sent, because a script that is sent twice charges twice.
type argument struct {
	bytes []byte
	sent  bool
}

var errTwice = errors.New("redis: a call that was sent is not sent again")

// MarshalBinary returns the bytes of ARGV. The client calls it when it writes the call
// to a connection.
func (a *argument) MarshalBinary() ([]byte, error) {
	if a.sent {
		return nil, errTwice
	}
	a.sent = true
	return a.bytes, nil
}

var calls = sync.Pool{New: func() any { return &call{index: map[place]uint16{}} }}

func newCall() *call { return calls.Get().(*call) }

// free returns the call to the pool. It does not reuse log entries, because outcomes still point to them.
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
	c.special, c.durable, c.route, c.asked = false, false, route{}, nil
	clear(c.records)
	clear(c.reserved)
	c.records, c.reserved = c.records[:0], c.reserved[:0]
	c.requests, c.charges, c.where, c.cells, c.params = c.requests[:0], c.charges[:0], c.where[:0], c.cells[:0], c.params[:0]
	c.names, c.args, c.work, c.saved, c.used = c.names[:0], c.args[:0], c.work[:0], c.saved[:0], c.used[:0]
}

// valid returns an error if a request cannot be sent to Redis.
func valid(r *enforcement.Request) error {
	switch {
	case r.Home == "" || strings.ContainsAny(r.Home, "{}"):
		return fmt.Errorf("redis: home %q cannot be a hash tag", r.Home)
	case len(r.Charges) > maxCharges:
		return fmt.Errorf("redis: %d charges, at most %d", len(r.Charges), maxCharges)
	case r.Mode > enforcement.Release:
		return fmt.Errorf("redis: unknown %s", r.Mode)
	case r.Reservation != nil && len(r.Reservation.Data) > maxData:
		return fmt.Errorf("redis: the data of a reservation have %d bytes, at most %d", len(r.Reservation.Data), maxData)
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

// takes reports whether a request fits into the call, together with the requests that are already in the
// call.
func (c *call) takes(r *enforcement.Request) bool {
	if len(c.requests) == 0 {
		return true
	}
	if len(c.charges)+len(r.Charges) > callCharges || len(c.records)+recordsOf(r) > callCells {
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
		// The script settles a log only once in a call, and also the leases of a concurrency limit. Therefore all
		// charges on such a cell must have the same meter and revision.
		if found := &c.cells[at]; found.sort != plainCell {
			if p := &c.params[found.param]; p.meter != charge.Meter || p.rev != charge.Rev {
				return false
			}
		}
	}
	return true
}

// add appends a request to the call. Later, fill or fail sets the outcome of the request.
func (c *call) add(r *enforcement.Request, out *enforcement.Outcome) {
	s := span{request: r, outcome: out, mode: r.Mode, from: len(c.charges), where: len(c.where)}
	group := s.from  // index of the first merged charge of the current group
	window := s.from // index of the merged charge of the last window; its grants follow it
	for i := range r.Charges {
		charge := &r.Charges[i]
		if i > 0 && charge.Group != r.Charges[i-1].Group {
			group = len(c.charges)
		}
		at := c.cellOf(r, charge)
		m := group
		if charge.Grant { // two windows of a group may have the same grant
			m = min(window+1, len(c.charges))
		}
		for m < len(c.charges) && (c.charges[m].cell != at || r.Mode == enforcement.Adjust) {
			m++
		}
		if !charge.Grant {
			window = m
		}
		if m == len(c.charges) {
			c.cells[at].uses = min(c.cells[at].uses+1, 2)
			c.charges = append(c.charges, merged{
				cell: at, key: at, param: c.paramOf(charge), group: charge.Group, cost: charge.Cost, grant: charge.Grant, receipt: charge.Receipt,
			})
		} else if r.Mode != enforcement.TakeUpTo {
			c.charges[m].cost += charge.Cost
		}
		c.charges[m].sum += charge.Cost
		c.where = append(c.where, uint16(m-s.from))
	}
	s.to = len(c.charges)
	if key, recorded := r.RecordKey(); recorded {
		at := place{r.Home, key}
		if r.Reservation != nil {
			c.reserved = append(c.reserved, at)
		}
		s.record = c.recordAt(at)
	}
	if key, ok := r.RepeatKey(); ok {
		s.repeats = c.recordAt(place{r.Home, key}) + 1
	}
	c.requests = append(c.requests, s)
	c.special = c.special || c.isSpecial(&s)
	c.durable = c.durable || r.Durable()
}

// recordsOf returns the number of records that a request reads or writes.
func recordsOf(r *enforcement.Request) (n int) {
	if _, ok := r.RecordKey(); ok {
		n++
	}
	if _, ok := r.RepeatKey(); ok {
		n++
	}
	return n
}

// recordAt returns the index of a record in c.records. If the record is missing, it adds it.
func (c *call) recordAt(at place) int {
	if i := slices.Index(c.records, at); i >= 0 {
		return i
	}
	c.records = append(c.records, at)
	return len(c.records) - 1
}

// isSpecial reports whether only take.lua can decide a request. This is so in each of these cases: the mode
// is not enforce; the request has a reservation, grants or shadow groups; it charges a log or a concurrency
// limit; it charges a cell for which an earlier request has another quota, window or burst; it is idempotent
// and has a charge of 0.
func (c *call) isSpecial(s *span) bool {
	if s.mode != enforcement.Enforce || s.request.Reservation != nil || s.to == s.from || s.to-s.from >= maxNumbers {
		return true
	}
	for k := s.from; k < s.to; k++ {
		m := &c.charges[k]
		if m.cost == 0 && s.request.Idempotency != nil {
			return true
		}
		if cell := &c.cells[m.cell]; m.group != 0 || m.grant || cell.sort != plainCell || cell.param != m.param {
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
		c.cells = append(c.cells, cell{home: home, key: charge.Key, sort: sortOf(charge.Meter), param: c.paramOf(charge), bound: r.MaxKeys})
		switch n := len(c.cells); {
		case n == linearCells+1:
			for i := range c.cells {
				c.index[place{c.cells[i].home, c.cells[i].key}] = uint16(i)
			}
		case n > linearCells:
			c.index[place{home, charge.Key}] = at
		}
	}
	if (r.Mode == enforcement.Refund || r.Mode == enforcement.Adjust) && c.cells[at].sort == logCell {
		c.cells[at].whole = true // the Go functions change entries that only the complete log has
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

// calendarKind and grantKind are the numbers of two further kinds of counters in the scripts: calendar
// windows, and the counters of grants. scriptKinds has the numbers of the algorithms.
const (
	calendarKind = 5
	grantKind    = 8
)

const paramSize = 62 // bytes of a parameter, without the former quotas, windows and bursts

// scriptKinds maps each algorithm to its number in the scripts.
var scriptKinds = [...]byte{
	enforcement.FixedWindow:          1,
	enforcement.SlidingWindowLog:     2,
	enforcement.SlidingWindowCounter: 3,
	enforcement.TokenBucket:          4,
	enforcement.GCRA:                 4,
	enforcement.Concurrency:          6, // the script reads only the quota and the window
	enforcement.LeakyBucket:          7,
}
