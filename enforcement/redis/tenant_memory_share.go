package redis

import (
	"math"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// The numbers of bytes that a key takes in Redis, including its name and its expiry.
const (
	keyBytes      = 160 // of a window or a bucket
	recordBytes   = 234 // of a record, besides its charges
	logBytes      = 192 // of a log, besides its entries
	entryBytes    = 16  // for each entry of a short log, which is written as a whole
	oldEntryBytes = 28  // for each entry of a longer log, which also stores as many entries that have left the window
	smallLog      = 64  // SMALL_LOG in take.lua
	leaseBytes    = 32  // for each lease of a concurrency limit, with what Redis allocates in advance
)

const (
	scarceFrom     = 0.8 // part of maxmemory that must be in use before tenants get less than half of maxmemory
	growths        = 64  // a node reports to Redis after it has made keys for maxmemory/growths bytes
	overdueGrowths = 16  // after maxmemory/overdueGrowths bytes, a node sends no call before it has reported
	leastPause     = 2 * time.Millisecond
)

// weightOf returns the maximum number of bytes that a key of a meter can take in Redis. For a log,
// it assumes as many entries as the quota allows, because an existing log can grow to this size
// even while its tenant is full. For a concurrency limit, it assumes as many leases as the quota
// allows.
func weightOf(m *enforcement.Meter) int64 {
	if m.Algorithm == enforcement.Concurrency {
		return keyBytes + leaseBytes*min(m.Quota, enforcement.MaxLeases)
	}
	if m.Algorithm != enforcement.SlidingWindowLog {
		return keyBytes
	}
	entries := min(m.Quota, enforcement.MaxLog)
	if entries <= smallLog {
		return logBytes + entryBytes*entries
	}
	return logBytes + oldEntryBytes*entries
}

// memory has what this node knows about the memory of Redis. live.mu guards it.
type memory struct {
	used, most int64 // used_memory and maxmemory; most is 0 if it is unknown or unlimited
	reserved   int64 // bytes of the keys of all tenants that Redis counts for this node
	tenants    int64 // number of these tenants

	grown int64     // bytes of the keys that this node made since its last report
	told  time.Time // when the last report was sent
}

// grow records that this node made a key of weight bytes. It returns true if the node must report
// to Redis now, because the keys that it made since its last report take a large part of the
// memory.
func (m *memory) grow(weight int64, now time.Time) bool {
	m.grown += weight
	return m.hasGrown(growths) && now.Sub(m.told) >= leastPause
}

// hasGrown reports whether the keys that this node made since its last report take at least
// maxmemory/part.
func (m *memory) hasGrown(part int64) bool { return m.most > 0 && m.grown >= m.most/part }

// share returns how many bytes the keys of one tenant may take. While Redis has enough memory, that
// is half of maxmemory. When more than scarceFrom of maxmemory is in use, it is at most twice the
// average of the tenants, and it falls with the free memory. Halfway between scarceFrom and a full
// memory, it is the average. When the memory is full, it is 0. So the tenants with the most keys
// reach their bound first, and all tenants reach it before the memory is full. Memory that logs can
// still grow into counts as used.
func (m *memory) share() float64 {
	if m.most == 0 {
		return math.Inf(1)
	}
	half := float64(m.most) / 2
	free := 1 - float64(max(m.used, m.reserved))/float64(m.most)
	if free > 1-scarceFrom || m.tenants == 0 {
		return half
	}
	average := float64(m.reserved) / float64(m.tenants)
	return min(half, 2*average*max(free, 0)/(1-scarceFrom))
}

// boundOf returns the maximum number of keys of a tenant, assuming that new keys are as large
// as its present ones on average. The caller must hold v.mu.
func (v *live) boundOf(t *tenantKeys) int64 {
	weight := float64(keyBytes)
	if t.alive > 0 && t.bytes > 0 {
		weight = float64(t.bytes) / float64(t.alive)
	}
	return max(int64(min(float64(t.bound), v.memory.share()/weight)), 1)
}

// roomOf returns how many keys a limit may have. most is the number that no limit of the tenant may
// exceed, even with its reserve. Two bounds apply to all limits of a tenant together: the maximum
// number of keys, and the tenant's share of the memory of Redis. So the results fall with the
// number of keys of the other limits. The caller must hold v.mu.
func (v *live) roomOf(k *limitKeys) (room, most int64) {
	t := k.tenant
	room, most = enforcement.KeyRoom(t.bound, t.alive-k.alive)
	bytes, mostBytes := enforcement.KeyRoom(int64(min(v.memory.share(), math.MaxInt64/4)), t.bytes-k.bytes)
	return min(room, bytes/k.weight), min(most, mostBytes/k.weight)
}

// reportAfter returns after how many changes of a limit this node reports them to Redis. The caller
// holds v.mu.
func (v *live) reportAfter(k *limitKeys) int64 {
	bound := k.tenant.bound
	if v.memory.most > 0 {
		bound = min(bound, v.memory.most/2/k.weight)
	}
	return min(pushAfter, max(bound/16, 1))
}

// count sets the number of live keys of a limit and the bytes of one key. It also updates the sums
// of the limit's tenant. The caller must hold v.mu.
func (v *live) count(k *limitKeys, alive, weight int64) {
	t, bytes := k.tenant, alive*weight
	had := t.bytes > 0
	t.alive += alive - k.alive
	t.bytes += bytes - k.bytes
	v.memory.reserved += bytes - k.bytes
	k.alive, k.bytes = alive, bytes
	switch has := t.bytes > 0; {
	case has && !had:
		v.memory.tenants++
	case had && !has:
		v.memory.tenants--
	}
}

// setMemory records used_memory and maxmemory of Redis. most is 0 if maxmemory is unknown or
// unlimited.
func (v *live) setMemory(used, most int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.memory.used, v.memory.most = used, most
}
