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
	liveParts  = 8       // the life of a key is divided into so many time intervals
	leastPart  = 1 << 20 // least length of an interval, in microseconds; see partWidth
	pushAfter  = 256     // after so many changes, the keys of a limit are reported to Redis
	mostPushed = 128     // largest number of limits in one report to Redis
	fullFor    = 5 * time.Second
	nearlyFull = 0.8 // if a tenant has more than this part of its bound, each round reports to Redis
	askEvery   = 5 * time.Second
	mostSwept  = 1000
)

var keysScript = newBody(scriptText("keys.lua"))

// live counts the live keys in Redis, for each tenant and limit. The time is divided into intervals. This
// node counts, for each interval, how many of the keys that it wrote expire in this interval. In the
// background, it adds these numbers to counts in Redis. So the counts include the keys of all nodes, they
// stay when a node stops, and a check needs no additional call.
type live struct {
	bound   int64
	off     bool         // set by a benchmark that measures the cost of counting
	busy    atomic.Int32 // number of tenants in filled
	hurry   chan struct{}
	overdue atomic.Bool // set if a report must be sent before the next call
	reports sync.Mutex  // held during a report to Redis

	mu      sync.Mutex
	memory  memory
	limits  map[limitID]*limitKeys
	ready   map[limitID]*limitKeys // the limits that Redis counts or will count soon
	tenants map[uint32]*tenantKeys
	filled  map[uint32]*tenantKeys // the tenants with a full limit
}

type limitID struct{ tenant, cell uint32 }

// limitKeys has the numbers of keys of one limit of a tenant.
type limitKeys struct {
	id      limitID
	tenant  *tenantKeys
	home    string
	width   int64           // length of an interval, in microseconds
	weight  int64           // bytes of a key; see weightOf
	changes map[int64]int64 // changes not yet sent to Redis: the change of the number of keys that expire, by interval
	pending int64           // number of changes that are not yet sent
	alive   int64           // number of live keys, from the last reply of Redis
	bytes   int64           // alive * weight, when alive was last set
	pushed  time.Time       // when the changes were last sent to Redis
	used    time.Time
}

// tenantKeys has the sums for a tenant over those of its limits whose keys Redis counts.
type tenantKeys struct {
	alive, bytes, bound int64
	limits              int
	until               time.Time // until then, this node assumes that a limit of the tenant is full
	sharing             time.Time // until then, this node reports that keys of the tenant share counters
}

func (v *live) open(bound int64) {
	v.bound, v.hurry = bound, make(chan struct{}, 1)
	v.limits, v.ready = map[limitID]*limitKeys{}, map[limitID]*limitKeys{}
	v.tenants, v.filled = map[uint32]*tenantKeys{}, map[uint32]*tenantKeys{}
}

// recordExpiries stores, for each cell of the call, the time at which the value expires that the
// call has read from this cell.
func (c *call) recordExpiries() {
	for i := range c.cells {
		c.cells[i].ends = c.expiry(i)
	}
}

// expiry returns the time at which the current value of a cell expires. If the cell has no value,
// it returns 0.
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
	case m.Algorithm == enforcement.Concurrency:
		return s.B
	}
	return s.T + m.Life()
}

// partWidth returns the length in microseconds of the intervals in which the keys of a meter are counted
// by their expiry. It returns 0 if the keys do not expire.
//
// A key counts until the end of the interval in which it expires. An interval is not shorter than
// leastPart, because Redis keeps each key for one second longer than its counter is used.
func partWidth(m *enforcement.Meter) int64 {
	life := float64(m.Life())
	if m.Algorithm.Bucket() {
		if m.P == 0 {
			return 0
		}
		life = float64(m.Burst()) * float64(m.Q) / float64(m.P)
	}
	return max(int64(min(life, math.MaxInt64/4))/liveParts, leastPart)
}

// note counts the keys that a decided call created, extended or deleted. now is the time of
// Redis.
func (v *live) note(c *call, now int64) {
	for i := range c.cells {
		cell := &c.cells[i]
		before, after := cell.ends, c.expiry(i)
		if before == after && !cell.shared || cell.key.Cell == enforcement.GrantCell {
			continue // grants do not count, because their number has its own bound
		}
		meter := c.params[cell.param].meter
		width := partWidth(meter)
		switch {
		case width == 0 || before != 0 && after != 0 && before/width == after/width:
		case cell.shared:
			v.share(cell, meter)
		default:
			v.change(cell, meter, before, after, now, 1)
		}
	}
	for i := range c.requests {
		r, o := c.requests[i].request, c.requests[i].outcome
		if len(c.records) == 0 || r.Mode == enforcement.Peek || o.Verdict != enforcement.Granted || o.Replayed {
			continue
		}
		if r.Reservation != nil {
			v.noteReservation(r, now)
		}
		if _, repeats := r.RepeatKey(); !repeats && (r.Reservation != nil || !r.Idempotent()) {
			continue
		}
		record := cell{home: r.Home, key: r.Idempotency.Key, bound: r.MaxKeys}
		v.change(&record, recordMeter, 0, now+recordMeter.Window, now, recordKeys(len(r.Charges)))
	}
}

// recordMeter is a meter with the same lifetime as an idempotency record. It is used to count
// records as keys.
var recordMeter = enforcement.Limit{
	Algorithm: enforcement.FixedWindow, Quota: 1, Window: enforcement.IdempotencyPeriod,
}.Compile(1)

// recordKeys returns as how many keys a record with the given number of charges counts. A record takes as
// much memory as so many keys.
func recordKeys(charges int) int64 {
	return int64(recordBytes+chargedSize*charges+keyBytes-1) / keyBytes
}

// change records that n keys of a limit now expire at the time after, instead of the time before. before
// is 0 if the keys are new, and after is 0 if they were deleted.
func (v *live) change(cell *cell, m *enforcement.Meter, before, after, now, n int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.limit(cell, m)
	if before >= now { // otherwise the key had expired, so no interval counts it any more
		k.changes[before/k.width] -= n
	}
	if after != 0 {
		k.changes[after/k.width] += n
	}
	if k.pending++; k.pending >= v.reportAfter(k) {
		v.ready[k.id] = k
	}
	if before != 0 {
		return
	}
	if v.memory.grow(n*k.weight, k.used) {
		v.wake()
	}
	// A report is overdue if this node made keys for a large part of the memory of Redis. It is also
	// overdue if the tenant is nearly full and one of its limits got more new keys than its reserve.
	if v.memory.hasGrown(overdueGrowths) || v.near(k.tenant) && k.pending > enforcement.KeyReserve(v.boundOf(k.tenant)) {
		v.ready[k.id] = k
		v.overdue.Store(true)
	}
}

// wake makes Run report to Redis now.
func (v *live) wake() {
	select {
	case v.hurry <- struct{}{}:
	default: // Run already has a token
	}
}

// share records that the overflow counter of a limit was used for a key.
func (v *live) share(cell *cell, m *enforcement.Meter) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.limit(cell, m)
	k.tenant.sharing = k.used.Add(fullFor)
	if k.alive == 0 { // other nodes made the keys; a report without changes reads how many there are
		k.pending = max(k.pending, 1)
		v.ready[k.id] = k
	}
}

// limit returns the key counts for the limit of a cell. It creates them if necessary. It also updates the
// bound of the tenant, and the interval length and the weight of the limit. The caller must hold v.mu.
func (v *live) limit(cell *cell, m *enforcement.Meter) *limitKeys {
	id := limitID{cell.key.Tenant, cell.key.Cell}
	k, width := v.limits[id], partWidth(m)
	if k == nil {
		t := v.tenants[id.tenant]
		if t == nil {
			t = &tenantKeys{}
			v.tenants[id.tenant] = t
		}
		t.limits++
		k = &limitKeys{id: id, tenant: t, home: cell.home, width: width, changes: map[int64]int64{}}
		v.limits[id] = k
	}
	if k.width != width { // the window changed, so changes in the former intervals no longer count
		k.width, k.changes, k.pending = width, map[int64]int64{}, 0
	}
	k.weight, k.used, k.tenant.bound = weightOf(m), time.Now(), cmp.Or(cell.bound, v.bound)
	return k
}

// full reports whether a request belongs to a tenant with a full limit. Then take.lua must decide the
// request. If the result is wrong, a second call to Redis is needed, but the decision is the same.
func (v *live) full(r *enforcement.Request) bool {
	if v.busy.Load() == 0 || len(r.Charges) == 0 {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.filled[r.Charges[0].Key.Tenant] != nil
}

// foundFull records that a limit of a call is full, according to the reply of Redis. The reply does not
// say which limit is full. So for a while, take.lua decides the calls of all tenants that are in this
// call.
func (v *live) foundFull(c *call) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range c.cells {
		if m := c.params[c.cells[i].param].meter; partWidth(m) > 0 && !m.IsGrant() {
			v.fill(v.limit(&c.cells[i], m))
		}
	}
}

// fill records that a limit is full, for the next fullFor. The caller holds v.mu.
func (v *live) fill(k *limitKeys) {
	k.tenant.until = time.Now().Add(fullFor)
	v.filled[k.id.tenant] = k.tenant
	v.busy.Store(int32(len(v.filled)))
}

// A push is a report to Redis about the keys of one limit.
type push struct {
	limit   *limitKeys
	width   int64
	weight  int64
	changes map[int64]int64
	room    int64 // see roomOf
	most    int64
	command *redis.Cmd
}

// countKeys sends reports to Redis: for limits with many changes, and for limits of tenants that are near
// their bound. If this node made keys for a large part of the memory of Redis, it reports all changes.
// Each report adds the recorded changes to the counts in Redis.
func (l *Limiter) countKeys(ctx context.Context) {
	l.live.reports.Lock()
	defer l.live.reports.Unlock()
	l.report(ctx)
}

// reportOverdue sends a report if one is overdue, and returns when it was sent or has failed. A caller
// calls it before it sends a call, because [Limiter.Run] reports too late if it gets no processor time.
// This bounds the part of the memory of Redis for which this node makes keys between two reports.
func (l *Limiter) reportOverdue() {
	l.live.reports.Lock()
	defer l.live.reports.Unlock()
	if l.live.overdue.Load() { // otherwise another caller reported
		ctx := context.Background() // each call to Redis has the timeout of the configuration
		l.readMemory(ctx)
		l.report(ctx)
	}
}

// report sends the reports that are due. The caller holds live.reports.
func (l *Limiter) report(ctx context.Context) {
	began := time.Now()
	for all, more := l.live.startReport(began), true; more; {
		var pushes []push
		pushes, more = l.live.due(began, all)
		if len(pushes) > 0 {
			l.push(ctx, pushes)
		}
	}
}

// push sends reports to Redis, and handles the replies.
func (l *Limiter) push(ctx context.Context, pushes []push) {
	_, _ = l.probe.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range pushes {
			push := &pushes[i]
			tenant, limit := l.markerNames(push.limit.home, push.limit.id)
			args := []any{push.width, push.room, push.most, push.weight}
			for part, n := range push.changes {
				args = append(args, part, n)
			}
			// No counter has one of these names, because the name of a counter is longer.
			push.command = p.Eval(ctx, keysScript.text, []string{limit + "N", limit + "F", tenant + "F"}, args...)
		}
		return nil
	})
	l.live.pushed(pushes)
}

// markerNames returns two prefixes: one with which the names of all counters of a tenant begin, and one
// with which the names of all counters of a limit begin.
func (l *Limiter) markerNames(home string, id limitID) (tenant, limit string) {
	tenant = string(binary.AppendUvarint([]byte(l.config.Prefix+"{"+home+"}"), uint64(id.tenant)))
	return tenant, string(binary.AppendUvarint([]byte(tenant), uint64(id.cell)))
}

// near reports whether a tenant has nearly as many keys as it may have, according to what this node knows.
// The caller holds v.mu.
func (v *live) near(t *tenantKeys) bool {
	return t.alive > 0 && float64(t.alive) >= nearlyFull*float64(v.boundOf(t))
}

// startReport records that a report begins. It returns true if the report must include all changes.
func (v *live) startReport(now time.Time) (all bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.overdue.Store(false)
	if all = v.memory.hasGrown(growths); all {
		for id, k := range v.limits {
			if k.pending > 0 {
				v.ready[id] = k
			}
		}
	}
	v.memory.grown, v.memory.told = 0, now
	return all
}

// due returns the pushes of the report that began at the time now, at most one for each limit. It resets
// the changes of these limits to 0. If all is true, a limit is due after a single change. more reports
// whether further pushes remain.
func (v *live) due(now time.Time, all bool) (pushes []push, more bool) {
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
		near := v.near(k.tenant)
		switch {
		case len(pushes) == mostPushed:
			return pushes, all
		case k.pushed.Equal(now):
			continue
		case all && k.pending > 0:
		case k.pending < v.reportAfter(k) && !near && now.Sub(k.pushed) < askEvery:
			continue
		case k.pending == 0 && k.alive == 0:
			delete(v.ready, id)
			continue
		}
		room, most := v.roomOf(k)
		pushes = append(pushes, push{limit: k, width: k.width, weight: k.weight, changes: k.changes, room: room, most: most})
		k.changes, k.pending, k.pushed = map[int64]int64{}, 0, now
	}
	return pushes, false
}

// sweep removes limits whose keys have all expired. One call looks at no more than mostSwept limits. Later
// calls reach the others, because a Go map has a random order. The caller holds v.mu.
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

// pushed handles the replies to reports. If Redis did not accept a report, pushed keeps its changes for
// the next report.
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
		v.count(k, alive, p.weight)
		if alive >= p.room {
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

// Tenants returns up to most tenants: those whose number of live keys is closest to their maximum. It
// includes only two kinds of tenants: those whose keys this node has reported to Redis, and those for
// which an overflow counter decided a request of this node.
func (l *Limiter) Tenants(most int) []TenantKeys {
	list := l.live.known(time.Now())
	slices.SortFunc(list, func(a, b TenantKeys) int {
		return cmp.Or(cmp.Compare(float64(b.Live)/float64(b.Bound), float64(a.Live)/float64(a.Bound)), cmp.Compare(a.Tenant, b.Tenant))
	})
	return list[:min(len(list), most)]
}

// known returns all tenants that Tenants can return, in no particular order.
func (v *live) known(now time.Time) (list []TenantKeys) {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen := make(map[uint32]bool, len(v.tenants))
	for id, k := range v.ready {
		if t := k.tenant; !seen[id.tenant] && (t.alive > 0 || now.Before(t.sharing)) {
			seen[id.tenant] = true
			bound := v.boundOf(t)
			list = append(list, TenantKeys{Tenant: id.tenant, Live: t.alive, Bound: bound, Full: t.alive >= bound || now.Before(t.sharing)})
		}
	}
	return list
}

// KeysOf returns the number of live keys of one tenant, with one call to Redis. home is the hash tag of
// its counters, cells are the numbers of its limits, and own is its own bound (Request.MaxKeys), or 0. The
// number includes the keys of all nodes, and the records of idempotent checks and reservations. It does
// not include changes that other nodes have not reported yet, which are fewer than 256 for each limit and
// node.
func (l *Limiter) KeysOf(ctx context.Context, home string, tenant uint32, cells []uint32, own int64) (TenantKeys, error) {
	found := TenantKeys{Tenant: tenant}
	cells = append([]uint32{enforcement.IdempotencyCell, enforcement.ReservationCell}, cells...)
	var names []string
	base := ""
	for _, cell := range cells {
		var limit string
		base, limit = l.markerNames(home, limitID{tenant, cell})
		names = append(names, limit+"N", limit+"F")
	}
	names = append(names, base+"F")
	values, err := l.probe.MGet(ctx, names...).Result()
	if err != nil {
		return found, fmt.Errorf("redis: read the number of keys of a tenant: %w", err)
	}
	found.Full = values[len(values)-1] != nil
	now := time.Now().UnixMicro()
	if last := l.clocks.last(home); last != nil {
		now = last.at(time.Now())
	}
	bytes := int64(0)
	for i, cell := range cells {
		text, _ := values[2*i].(string)
		found.Full = found.Full || values[2*i+1] != nil
		n, weight := liveIn(text, now)
		unsent, latest := l.live.unsent(limitID{tenant, cell}, now)
		n = max(n+unsent, 0)
		found.Live += n
		bytes += n * cmp.Or(latest, weight, keyBytes)
	}
	l.live.mu.Lock()
	defer l.live.mu.Unlock()
	found.Bound = l.live.boundOf(&tenantKeys{alive: found.Live, bytes: bytes, bound: cmp.Or(own, l.live.bound)})
	return found, nil
}

// liveIn returns the number of keys that are live at the time now, and the bytes of one key. value is the
// text that keys.lua stores for a limit.
func liveIn(value string, now int64) (n, weight int64) {
	head, parts, _ := strings.Cut(value, " ")
	first, second, _ := strings.Cut(head, ",")
	width, err := strconv.ParseInt(first, 10, 64)
	if err != nil || width <= 0 {
		return 0, 0
	}
	weight, _ = strconv.ParseInt(second, 10, 64)
	for part := range strings.FieldsSeq(parts) {
		first, keys, _ := strings.Cut(part, ":")
		interval, _ := strconv.ParseInt(first, 10, 64)
		if k, err := strconv.ParseInt(keys, 10, 64); err == nil && interval >= now/width {
			n += k
		}
	}
	return n, weight
}

// unsent returns the changes of a limit that this node has not reported yet: by how much the number of
// keys that live at the time now has changed since the last report, and the bytes of one key. If this node
// does not know the limit, both are 0.
func (v *live) unsent(id limitID, now int64) (n, weight int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.limits[id]; k != nil {
		for part, change := range k.changes {
			if part >= now/k.width {
				n += change
			}
		}
		weight = k.weight
	}
	return n, weight
}
