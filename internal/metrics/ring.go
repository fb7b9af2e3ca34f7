package metrics

import (
	"container/list"
	"sync"
	"time"
)

// ringSeconds is the number of seconds of the live view.
const ringSeconds = 900

// maxRings is the largest number of tenants with seconds. The tenant without counts for the
// longest time is evicted. A tenant with counts in every minute takes about 75 kB.
const maxRings = 1_000

// A ring has the counts by second, of every tenant and of all together (number 0). Drains fill it.
type ring struct {
	mu      sync.Mutex
	tenants map[uint32]*list.Element // of recent; their values are *tenantRing
	recent  list.List                // the one that counted last in front; not tenant 0
	all     tenantRing
	// end is the first second that was not over when the last drain began.
	end int64
}

// A tenantRing has the seconds of one tenant, by minute modulo; nil without counts.
type tenantRing struct {
	tenant  uint32
	minutes [ringSeconds / 60]*ringMinute
}

type ringMinute struct {
	at      int64 // in minutes since the epoch
	seconds [60]ringSecond
}

// A ringSecond is Counts in half the memory: numbers saturate at 4,294,967,295.
type ringSecond struct {
	fields [countFields - 1]uint32
	cost   int64
}

// countFields is the number of fields of Counts, of which Cost is the last.
const countFields = 19

// add adds the counts of a second.
func (r *ring) add(tenant uint32, at int64, counts *Counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.add(at, counts)
	if tenant != 0 {
		r.of(tenant).add(at, counts)
	}
}

// until notes that all counts before a second were added.
func (r *ring) until(end int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end = end
}

// of returns a tenant's ring, which it makes if needed. r.mu must be held.
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
		return // a quarter of an hour late
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

// Seconds returns this node's counts by second since an instant, of a tenant or of all together
// (0), oldest first, for at most 15 minutes. Seconds without decisions are empty. The last second
// is one or two seconds old; a decision in progress may still be added to it.
func (r *Recorder) Seconds(tenant uint32, since time.Time) []Second {
	r.ring.mu.Lock()
	defer r.ring.mu.Unlock()
	from := since.Unix()
	if since.Nanosecond() > 0 {
		from++ // only whole seconds
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
