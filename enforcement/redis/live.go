package redis

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
)

const (
	liveParts   = 8       // into how many parts of time the life of a key is divided
	leastPart   = 1 << 20 // of a part, in microseconds
	pushAfter   = 256     // changes of a limit after which Redis is told of them
	mostPushed  = 128     // limits of which Redis is told at once
	fullFor     = 5 * time.Second
	nearlyFull  = 0.8 // of a bound: from then on each round asks Redis
	askEvery    = 5 * time.Second
	mostSwept   = 1000
	mostTenants = 20 // that Tenants returns
)

var keysScript = newBody(scriptText("keys.lua"))

// live counts the keys that live in Redis, for each tenant and limit. A node notes
// when the keys expire that its calls make and extend, and adds that to counts in
// Redis in the background. So the counts are those of all nodes, they outlive the
// nodes, and a check makes no further call.
type live struct {
	bound int64
	off   bool         // tests measure what it costs
	busy  atomic.Int32 // tenants that are full

	mu      sync.Mutex
	limits  map[limitID]*limitKeys
	ready   map[limitID]*limitKeys // those of limits that Redis is told of
	tenants map[uint32]*tenantKeys
	filled  map[uint32]*tenantKeys // those of tenants that are full
}

type limitID struct{ tenant, cell uint32 }

// limitKeys are the keys of one limit of a tenant.
type limitKeys struct {
	id      limitID
	tenant  *tenantKeys
	home    string
	width   int64           // of a part of time, in microseconds
	changes map[int64]int64 // not told to Redis yet: by how many the keys changed that expire in a part
	pending int64           // how many changes these were
	alive   int64           // as Redis said last
	pushed  time.Time       // when Redis was told last
	used    time.Time
}

// tenantKeys are the keys of a tenant: of its limits that Redis was told of.
type tenantKeys struct {
	alive, bound int64
	limits       int
	until        time.Time // it is full until then, as far as this node knows
}

func (v *live) open(bound int64) {
	v.bound = bound
	v.limits, v.ready = map[limitID]*limitKeys{}, map[limitID]*limitKeys{}
	v.tenants, v.filled = map[uint32]*tenantKeys{}, map[uint32]*tenantKeys{}
}

// noteEnds notes when the values are over that the call read.
func (c *call) noteEnds() {
	for i := range c.cells {
		c.cells[i].ends = c.ends0(i)
	}
}

// ends0 is when the value of a cell is over, 0 without one.
func (c *call) ends0(i int) int64 {
	s := &c.work[i]
	if s.Rev == 0 || c.cells[i].shared {
		return 0
	}
	m := c.params[c.cells[i].param].meter
	switch {
	case m.Algorithm.Bucket():
		if m.P == 0 {
			return 0
		}
		return s.T + int64(min(float64(m.Capacity-s.A)*float64(m.Q)/float64(m.P), math.MaxInt64/4))
	case m.Algorithm == enforcement.SlidingWindowCounter:
		return s.T + 2*m.Window
	}
	return s.T + m.Window
}

// partWidth is the width of the parts of time in which keys of a meter expire.
func partWidth(m *enforcement.Meter) int64 {
	life := float64(m.Window)
	switch {
	case m.Algorithm.Bucket():
		if m.P == 0 {
			return 0
		}
		life = float64(m.Capacity) * float64(m.Q) / float64(m.P)
	case m.Algorithm == enforcement.SlidingWindowCounter:
		life *= 2
	}
	return max(int64(min(life, math.MaxInt64/4))/liveParts, leastPart)
}

// note notes which keys a decided call made, extended and deleted. now is Redis'
// clock.
func (v *live) note(c *call, now int64) {
	for i := range c.cells {
		cell := &c.cells[i]
		before, after := cell.ends, c.ends0(i)
		if cell.shared {
			v.rebound(cell)
			continue
		}
		if before == after {
			continue
		}
		width := partWidth(c.params[cell.param].meter)
		if width == 0 || before != 0 && after != 0 && before/width == after/width {
			continue
		}
		v.change(cell, width, before, after, now)
	}
}

func (v *live) change(cell *cell, width, before, after, now int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.limit(cell, width)
	k.used = time.Now()
	if before >= now { // else it has expired, and its part is over
		k.changes[before/width]--
	}
	if after != 0 {
		k.changes[after/width]++
	}
	k.tenant.bound = cmp.Or(cell.bound, v.bound)
	if k.pending++; k.pending >= min(pushAfter, max(k.tenant.bound/16, 1)) {
		v.ready[k.id] = k
	}
}

// rebound notes the bound that a tenant has now: no key of it is noted while it is full.
func (v *live) rebound(cell *cell) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if t := v.tenants[cell.key.Tenant]; t != nil {
		t.bound = cmp.Or(cell.bound, v.bound)
	}
}

// limit returns the keys of a cell's limit. v.mu is held.
func (v *live) limit(cell *cell, width int64) *limitKeys {
	id := limitID{cell.key.Tenant, cell.key.Cell}
	k := v.limits[id]
	switch {
	case k == nil:
		t := v.tenants[id.tenant]
		if t == nil {
			t = &tenantKeys{bound: v.bound}
			v.tenants[id.tenant] = t
		}
		t.limits++
		k = &limitKeys{id: id, tenant: t, home: cell.home, width: width, changes: map[int64]int64{}}
		v.limits[id] = k
	case k.width != width: // other numbers: the keys of the former ones are not counted any more
		k.width, k.changes, k.pending = width, map[int64]int64{}, 0
	}
	return k
}

// full reports whether a request is of a full tenant, so that take.lua must decide
// it. It is not needed for a right decision, but saves a call.
func (v *live) full(r *enforcement.Request) bool {
	if v.busy.Load() == 0 || len(r.Charges) == 0 {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.filled[r.Charges[0].Key.Tenant] != nil
}

// found notes that a tenant of the call is full, as Redis said. It did not say which.
func (v *live) found(c *call) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range c.cells {
		if width := partWidth(c.params[c.cells[i].param].meter); width > 0 {
			k := v.limit(&c.cells[i], width)
			k.used = time.Now()
			v.fill(k)
		}
	}
}

// fill marks the tenant of a limit as full for a while. v.mu is held.
func (v *live) fill(k *limitKeys) {
	k.tenant.until = time.Now().Add(fullFor)
	v.filled[k.id.tenant] = k.tenant
	v.busy.Store(int32(len(v.filled)))
}

// A push is what Redis is told of one limit.
type push struct {
	limit   *limitKeys
	width   int64
	changes map[int64]int64
	bound   int64
	command *redis.Cmd
}

// countKeys adds what this node noted to the counts in Redis, of the limits that
// have enough changes or are nearly full.
func (l *Limiter) countKeys(ctx context.Context) {
	pushes := l.live.due(time.Now())
	if len(pushes) == 0 {
		return
	}
	_, _ = l.probe.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range pushes {
			push := &pushes[i]
			tenant := l.config.Prefix + "{" + push.limit.home + "}" + string(binary.AppendUvarint(nil, uint64(push.limit.id.tenant)))
			counts := tenant + string(binary.AppendUvarint(nil, uint64(push.limit.id.cell))) + "N"
			args := []any{push.width, max(push.bound, 0)}
			for part, n := range push.changes {
				args = append(args, part, n)
			}
			// No cell has these names: they are shorter.
			push.command = p.Eval(ctx, keysScript.text, []string{counts, tenant + "F"}, args...)
		}
		return nil
	})
	l.live.pushed(pushes)
}

// due takes the changes that Redis is told of now. A tenant's bound is one for all of
// its limits: what the others have is not free for a limit.
func (v *live) due(now time.Time) (pushes []push) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sweep(now)
	for tenant, t := range v.filled {
		if now.After(t.until) {
			delete(v.filled, tenant)
		}
	}
	v.busy.Store(int32(len(v.filled)))
	for id, k := range v.ready {
		t := k.tenant
		near := k.alive > 0 && float64(t.alive) >= nearlyFull*float64(t.bound)
		switch {
		case len(pushes) == mostPushed:
			return pushes
		case k.pending < min(pushAfter, max(t.bound/16, 1)) && !near && now.Sub(k.pushed) < askEvery:
			continue
		case k.pending == 0 && k.alive == 0:
			delete(v.ready, id)
			continue
		}
		pushes = append(pushes, push{limit: k, width: k.width, changes: k.changes, bound: t.bound - (t.alive - k.alive)})
		k.changes, k.pending, k.pushed = map[int64]int64{}, 0, now
	}
	return pushes
}

// sweep removes limits whose keys have expired. It looks at no more than mostSwept
// limits in a call; the random order of a Go map lets later calls reach the others.
// v.mu is held.
func (v *live) sweep(now time.Time) {
	looked := 0
	for id, k := range v.limits {
		if looked++; looked > mostSwept {
			return
		}
		if v.ready[id] == nil && now.Sub(k.used) > time.Duration(2*liveParts*k.width)*time.Microsecond {
			delete(v.limits, id)
			if k.tenant.limits--; k.tenant.limits == 0 {
				delete(v.tenants, id.tenant)
			}
		}
	}
}

// pushed takes the answers. Changes that Redis did not take wait for the next time.
func (v *live) pushed(pushes []push) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range pushes {
		p := &pushes[i]
		k := p.limit
		alive, err := p.command.Int64()
		if err != nil {
			for part, n := range p.changes {
				if k.width == p.width {
					k.changes[part] += n
					k.pending += max(n, -n)
				}
			}
			continue
		}
		k.tenant.alive += alive - k.alive
		k.alive = alive
		if alive >= p.bound {
			v.fill(k)
		}
	}
}

// TenantKeys is about how many live keys a tenant has in Redis.
type TenantKeys struct {
	Tenant      uint32 // its number
	Live, Bound int64
	Full        bool // new keys share overflow counters
}

// Tenants returns the tenants that have most of the keys that they may have, as far
// as this node knows: tenants whose limits it told Redis of.
func (l *Limiter) Tenants() (list []TenantKeys) {
	v := &l.live
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, k := range v.ready {
		known := slices.ContainsFunc(list, func(t TenantKeys) bool { return t.Tenant == id.tenant })
		if t := k.tenant; t.alive > 0 && !known {
			list = append(list, TenantKeys{Tenant: id.tenant, Live: t.alive, Bound: t.bound, Full: v.filled[id.tenant] != nil})
		}
	}
	slices.SortFunc(list, func(a, b TenantKeys) int {
		return cmp.Or(cmp.Compare(float64(b.Live)/float64(b.Bound), float64(a.Live)/float64(a.Bound)), cmp.Compare(a.Tenant, b.Tenant))
	})
	return list[:min(len(list), mostTenants)]
}
