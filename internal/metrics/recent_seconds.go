package metrics

import (
	"container/list"
	"sync"
	"time"
)

// ringSeconds is the number of past seconds for which a ring has counts.
const ringSeconds = 900

// maxRings is the maximum number of tenants that have counts by second. To add a further tenant,
// the ring removes the tenant whose last count is the oldest. A tenant with counts in each of the
// last 15 minutes uses about 75 kB.
const maxRings = 1_000

// A ring contains the counts of the last 15 minutes by second. The field all has the counts of all
// tenants together; the other fields have the counts of each tenant. Each drain adds to the ring.
type ring struct {
	mu      sync.Mutex
	tenants map[uint32]*list.Element // elements of recent; their values are *tenantRing
	recent  list.List                // tenants in the order of their last count, the latest first; without tenant 0
	all     tenantRing
	// end is the second in which the last drain began. All decisions of earlier seconds are in the
	// ring.
	end int64
}

// A tenantRing contains the counts of one tenant by second. The array minutes has one element for
// each of the last 15 minutes; the index is the minute modulo the length of the array. An element
// is nil if the minute has no counts.
type tenantRing struct {
	tenant  uint32
	minutes [ringSeconds / 60]*ringMinute
}

type ringMinute struct {
	at      int64 // in minutes since the epoch
	seconds [60]ringSecond
}

// A ringSecond has the same numbers as Counts. Each number has 32 bits to save memory; only cost
// has 64 bits. A number that would exceed 4,294,967,295 stays at this value.
type ringSecond struct {
	fields [countFields - 1]uint32
	cost   int64
}

// countFields is the number of fields of Counts. Cost is the last one.
const countFields = 19

// add adds counts of a tenant in the second at. With tenant 0, it adds decisions that are counted
// only in the sum over all tenants.
func (r *ring) add(tenant uint32, at int64, counts *Counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.add(at, counts)
	if tenant != 0 {
		r.of(tenant).add(at, counts)
	}
}

// until sets end. The caller has added the counts of all seconds before end.
func (r *ring) until(end int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end = end
}

// of returns the ring of a tenant, and creates it if it does not exist. The caller must hold r.mu.
func (r *ring) of(tenant uint32) *tenantRing {
	if e := r.tenants[tenant]; e != nil {
		r.recent.MoveToFront(e)
		return e.Value.(*tenantRing)
	}
	if r.tenants == nil {
		r.tenants = make(map[uint32]*list.Element)
	}
	if len(r.tenants) >= maxRings {
		oldest := r.recent.Back()
		delete(r.tenants, oldest.Value.(*tenantRing).tenant)
		r.recent.Remove(oldest)
	}
	t := &tenantRing{tenant: tenant}
	r.tenants[tenant] = r.recent.PushFront(t)
	return t
}

func (t *tenantRing) add(at int64, counts *Counts) {
	minute, second := int64(minuteOf(at)), at%60
	place := &t.minutes[minute%int64(len(t.minutes))]
	switch {
	case *place == nil:
		*place = &ringMinute{at: minute}
	case (*place).at > minute:
		return // the element has a newer minute, so these counts are more than 15 minutes old
	case (*place).at < minute:
		**place = ringMinute{at: minute}
	}
	s := &(*place).seconds[second]
	s.cost += counts.Cost
	for i, n := range counts.fields()[:countFields-1] {
		s.fields[i] = uint32(min(int64(s.fields[i])+*n, 1<<32-1))
	}
}

func (s *ringSecond) counts() (c Counts) {
	for i, f := range c.fields()[:countFields-1] {
		*f = int64(s.fields[i])
	}
	c.Cost = s.cost
	return c
}

// Seconds returns this node's counts of a tenant for each second after since, oldest first, at
// most those of the last 15 minutes. Tenant 0 is the sum over all tenants. Seconds without
// decisions are included. The newest second in the result is one or two seconds old, and the
// next drain may still add counts to it.
func (r *Recorder) Seconds(tenant uint32, since time.Time) []Second {
	r.ring.mu.Lock()
	defer r.ring.mu.Unlock()
	from := since.Unix()
	if since.Nanosecond() > 0 {
		from++ // leave out the partial second
	}
	from = max(from, r.ring.end-ringSeconds)
	t := &r.ring.all
	if tenant != 0 {
		e := r.ring.tenants[tenant]
		if e == nil {
			t = new(tenantRing)
		} else {
			t = e.Value.(*tenantRing)
		}
	}
	var seconds []Second
	for at := from; at < r.ring.end; at++ {
		s := Second{At: time.Unix(at, 0).UTC()}
		minute := int64(minuteOf(at))
		if m := t.minutes[minute%int64(len(t.minutes))]; m != nil && m.at == minute {
			s.Counts = m.seconds[at%60].counts()
		}
		seconds = append(seconds, s)
	}
	return seconds
}
