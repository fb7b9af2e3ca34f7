package redis

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
)

const (
	liveParts   = 8       // the life of a key is divided into this number of time intervals
	leastPart   = 1 << 20 // least length of an interval, in microseconds
	pushAfter   = 256     // a limit is reported to Redis after this number of changes
	mostPushed  = 128     // largest number of limits in one report to Redis
	fullFor     = 5 * time.Second
	nearlyFull  = 0.8 // share of a tenant's bound above which each round reports to Redis
	askEvery    = 5 * time.Second
	mostSwept   = 1000
	mostTenants = 20 // that Tenants returns

	// Half of maxmemory divided by keyBytes is the largest bound of a tenant, so that one
	// tenant cannot fill a Redis of any size. A key of a window or a bucket takes about 160
	// bytes, with what Redis stores for its expiry.
	keyBytes = 160
)

var keysScript = newBody(scriptText("keys.lua"))

// live counts the live keys in Redis, for each tenant and limit. For each time
// interval, a node records how many keys its calls created or extended that expire in
// it. In the background, it adds these numbers to counts in Redis. The counts therefore
// include the keys of all nodes and survive the nodes, and a check needs no further
// call.
type live struct {
	bound int64
	most  atomic.Int64 // largest bound of a tenant, from the memory of Redis; 0 if that is unknown
	off   bool         // set by a benchmark that measures the cost of counting
	busy  atomic.Int32 // number of full tenants

	mu      sync.Mutex
	limits  map[limitID]*limitKeys
	ready   map[limitID]*limitKeys // the limits that Redis counts or will count soon
	tenants map[uint32]*tenantKeys
	filled  map[uint32]*tenantKeys // the full tenants
}

type limitID struct{ tenant, cell uint32 }

// limitKeys counts the keys of one limit of a tenant.
type limitKeys struct {
	id      limitID
	tenant  *tenantKeys
	home    string
	width   int64           // length of an interval, in microseconds
	changes map[int64]int64 // not yet sent to Redis: by interval, the change of the number of keys that expire in it
	pending int64           // number of changes that are not yet sent
	alive   int64           // number of live keys in the last reply of Redis
	pushed  time.Time       // when the changes were last sent to Redis
	used    time.Time
}

// tenantKeys sums the keys of those limits of a tenant that Redis counts.
type tenantKeys struct {
	alive, bound int64
	limits       int
	until        time.Time // until then, this node treats the tenant as full
}

func (v *live) open(bound int64) {
	v.bound = bound
	v.limits, v.ready = map[limitID]*limitKeys{}, map[limitID]*limitKeys{}
	v.tenants, v.filled = map[uint32]*tenantKeys{}, map[uint32]*tenantKeys{}
}

// boundOf returns the bound of a tenant's keys. own is the tenant's own bound, or 0.
func (v *live) boundOf(own int64) int64 {
	bound := cmp.Or(own, v.bound)
	if most := v.most.Load(); most > 0 {
		return min(bound, most)
	}
	return bound
}

// setMemory limits the bounds of all tenants to half of the memory of Redis. most is
// maxmemory in bytes, or 0 if it is unknown or unlimited.
func (v *live) setMemory(most int64) {
	if most > 0 {
		most = max(most/2/keyBytes, 1)
	}
	v.most.Store(most)
}

// recordExpiries stores in each cell the time at which the value that the call read
// expires.
func (c *call) recordExpiries() {
	for i := range c.cells {
		c.cells[i].ends = c.expiry(i)
	}
}

// expiry returns the time at which the current value of a cell expires, or 0 if there
// is no value.
func (c *call) expiry(i int) int64 {
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

// partWidth returns the length of the intervals into which the expiry times of a
// meter's keys are divided, in microseconds. 0 means that the keys do not expire.
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

// note counts the keys that a decided call created, extended and deleted. now is the
// time by the clock of Redis.
func (v *live) note(c *call, now int64) {
	for i := range c.cells {
		cell := &c.cells[i]
		before, after := cell.ends, c.expiry(i)
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
	if before >= now { // otherwise the key has expired, and its interval is no longer counted
		k.changes[before/width]--
	}
	if after != 0 {
		k.changes[after/width]++
	}
	k.tenant.bound = v.boundOf(cell.bound)
	if k.pending++; k.pending >= min(pushAfter, max(k.tenant.bound/16, 1)) {
		v.ready[k.id] = k
	}
}

// rebound updates the bound of a tenant from the latest request. While the tenant is
// full, its calls count no keys, so nothing else updates the bound.
func (v *live) rebound(cell *cell) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if t := v.tenants[cell.key.Tenant]; t != nil {
		t.bound = v.boundOf(cell.bound)
	}
}

// limit returns the key counts of a cell's limit, and creates them if necessary. The
// caller holds v.mu.
func (v *live) limit(cell *cell, width int64) *limitKeys {
	id := limitID{cell.key.Tenant, cell.key.Cell}
	k := v.limits[id]
	switch {
	case k == nil:
		t := v.tenants[id.tenant]
		if t == nil {
			t = &tenantKeys{bound: v.boundOf(cell.bound)}
			v.tenants[id.tenant] = t
		}
		t.limits++
		k = &limitKeys{id: id, tenant: t, home: cell.home, width: width, changes: map[int64]int64{}}
		v.limits[id] = k
	case k.width != width: // the numbers of the limit changed: keys of the former numbers no longer count
		k.width, k.changes, k.pending = width, map[int64]int64{}, 0
	}
	return k
}

// full reports whether a request is from a full tenant, so that take.lua must decide
// it. A wrong result costs a second call, but the decision stays right.
func (v *live) full(r *enforcement.Request) bool {
	if v.busy.Load() == 0 || len(r.Charges) == 0 {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.filled[r.Charges[0].Key.Tenant] != nil
}

// foundFull records that Redis reported a full tenant for a call. The reply does not
// identify the tenant, so all tenants of the call count as full for a while.
func (v *live) foundFull(c *call) {
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

// fill marks the tenant of a limit as full for fullFor. The caller holds v.mu.
func (v *live) fill(k *limitKeys) {
	k.tenant.until = time.Now().Add(fullFor)
	v.filled[k.id.tenant] = k.tenant
	v.busy.Store(int32(len(v.filled)))
}

// A push is the report of one limit to Redis.
type push struct {
	limit   *limitKeys
	width   int64
	changes map[int64]int64
	bound   int64
	command *redis.Cmd
}

// countKeys adds the changes that this node recorded to the counts in Redis. It reports
// limits with enough changes, and limits of tenants near their bound.
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
			// No counter has one of these names, because they are shorter than any name
			// of a counter.
			push.command = p.Eval(ctx, keysScript.text, []string{counts, tenant + "F"}, args...)
		}
		return nil
	})
	l.live.pushed(pushes)
}

// due returns the reports to send now and clears their changes. A tenant has one bound
// for all its limits. Therefore the bound of a limit is the tenant's bound minus the
// keys of the other limits.
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

// sweep removes limits whose keys have all expired. One call looks at no more than
// mostSwept limits; the random order of a Go map lets later calls reach the others. The
// caller holds v.mu.
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

// pushed handles the replies. It keeps changes that Redis did not accept for the next
// report.
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

// TenantKeys is the approximate number of live keys that a tenant has in Redis.
type TenantKeys struct {
	Tenant      uint32 // its number
	Live, Bound int64
	Full        bool // new keys share overflow counters
}

// Tenants returns the tenants that use most of their bound on live keys, as far as this
// node knows. It only knows tenants whose limits it reported to Redis.
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

// KeysOf returns the number of live keys of one tenant, with one call to Redis. home is
// the hash tag of its counters, cells are the numbers of its limits, and own is its own
// bound, or 0. The number includes the keys of all nodes. Changes that a node has not
// reported yet are missing: fewer than 256 for each limit and other node.
func (l *Limiter) KeysOf(ctx context.Context, home string, tenant uint32, cells []uint32, own int64) (TenantKeys, error) {
	found := TenantKeys{Tenant: tenant, Bound: l.live.boundOf(own)}
	base := l.config.Prefix + "{" + home + "}" + string(binary.AppendUvarint(nil, uint64(tenant)))
	names := []string{base + "F"}
	for _, cell := range cells {
		names = append(names, base+string(binary.AppendUvarint(nil, uint64(cell)))+"N")
	}
	values, err := l.probe.MGet(ctx, names...).Result()
	if err != nil {
		return found, fmt.Errorf("redis: read the number of keys of a tenant: %w", err)
	}
	now := time.Now().UnixMicro()
	if last := l.clocks.last(home); last != nil {
		now = last.at(time.Now())
	}
	found.Full = values[0] != nil
	for i, cell := range cells {
		text, _ := values[i+1].(string)
		found.Live += max(liveIn(text, now)+l.live.unsent(limitID{tenant, cell}), 0)
	}
	return found, nil
}

// liveIn returns the number of live keys at a time, from the value of keys.lua.
func liveIn(value string, now int64) (n int64) {
	head, parts, _ := strings.Cut(value, " ")
	width, err := strconv.ParseInt(head, 10, 64)
	if err != nil || width <= 0 {
		return 0
	}
	for part := range strings.FieldsSeq(parts) {
		first, keys, _ := strings.Cut(part, ":")
		interval, _ := strconv.ParseInt(first, 10, 64)
		if k, err := strconv.ParseInt(keys, 10, 64); err == nil && interval >= now/width {
			n += k
		}
	}
	return n
}

// unsent returns by how many the keys of a limit changed since this node's last report.
func (v *live) unsent(id limitID) (n int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.limits[id]; k != nil {
		for _, change := range k.changes {
			n += change
		}
	}
	return n
}
