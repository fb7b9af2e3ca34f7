package metrics

import (
	"math"
	"runtime"
	"sync/atomic"

	"github.com/headgate/headgate/enforcement"
)

// A shard is memory in which one goroutine at a time counts decisions. A goroutine reserves a shard
// with the atomic flag busy. If the shard is busy, the goroutine tries the next one. There are more
// shards than processors, so a goroutine rarely has to wait. A drain reserves a shard only while it
// swaps content and spare.
type shard struct {
	busy  atomic.Bool
	index int
	tallies
	content *content
	spare   *content // an empty content; the next drain swaps it with content
}

// acquire reserves a shard for the caller. The caller must pass the shard to release.
func (r *Recorder) acquire() *shard {
	s := r.pool.Get().(*shard)
	for tries := 1; !s.busy.CompareAndSwap(false, true); tries++ {
		s = r.shards[(s.index+1)%len(r.shards)]
		if tries%len(r.shards) == 0 {
			runtime.Gosched()
		}
	}
	return s
}

func (r *Recorder) release(s *shard) {
	s.busy.Store(false)
	r.pool.Put(s)
}

// take waits until no goroutine uses the shard, and then reserves it for the caller. The caller
// must reset busy. drain calls take.
func (s *shard) take() {
	for !s.busy.CompareAndSwap(false, true) {
		runtime.Gosched()
	}
}

// A content contains the counts of a shard since the last drain. A drain empties the content
// and keeps its memory, because a tenant probably needs the same rows again in the next second.
type content struct {
	minutes map[minuteKey]*tenantMinute
	last    *tenantMinute // the element of minutes that was used by the last decision
	// size is the estimated memory of all tenantMinutes in bytes. A new row is not added if size
	// would then exceed max.
	size, max int
	// together counts, by second, the decisions of tenants whose tenantMinute did not fit in
	// memory. folded is the number of decisions that could not be counted in all their rows.
	together []secondCounts
	folded   int64
	samples  []sample
	parts    []enforcement.KeyPart // scratch memory for describe
}

// maxContents is the maximum memory of the contents of all shards in bytes. It is enough for 50,000
// tenants in one second, each with three policies and one route. When this memory is used up, a
// decision of a new tenant is counted only in the sum of all tenants. A decision for a new route or
// policy is then counted only in the sums of its tenant. Sketches of top keys stop growing; their
// counts stay valid, with a larger error.
const maxContents = 128 << 20

// Estimated sizes in bytes: of a tenantMinute, of a row of counts, and of a key in a sketch.
const (
	minuteSize = 512
	rowSize    = 384
	keySize    = 256
	ruleSize   = 24 // of a policy of the plan, without its row
)

// A minuteKey identifies a tenantMinute.
type minuteKey struct {
	minute uint32 // in minutes since the epoch
	tenant uint32
	plan   *enforcement.Plan
}

// A tenantMinute contains the counts of one tenant in one minute, for one version of the tenant's
// plan.
type tenantMinute struct {
	minuteKey
	used    bool // set if decisions were counted here since the previous drain
	noTrace bool // Subject.NoTrace of the last decision
	size    int
	seconds []secondCounts // of all decisions
	routes  map[string]*Counts
	route   string // the route of the last decision; routed has the counts of this route
	routed  *Counts
	rules   []*ruleCounts // index: Rule.Index
	limited topKeys
	allowed topKeys
	retry   retryTimes
	trace   minuteTrace
	// traceKeys are by Rule.Index. They are computed when a request of the policy is traced first.
	traceKeys []TraceKey
}

// secondCounts are the decisions of one second.
type secondCounts struct {
	at int64 // since the epoch
	Counts
}

// ruleCounts are the counts of one policy in a tenantMinute.
type ruleCounts struct {
	Counts
	remaining remainingCounts
	sampled   bool // set if remaining has at least one sample
}

func newContent(size int) *content {
	return &content{minutes: make(map[minuteKey]*tenantMinute), max: size}
}

// minute returns the tenantMinute that counts a decision of the tenant s. If it does not exist,
// minute creates it. minute returns nil if a new tenantMinute does not fit in memory.
func (c *content) minute(minute uint32, s *enforcement.Subject) *tenantMinute {
	key := minuteKey{minute, s.Number, s.Plan}
	p := c.last
	if p == nil || p.minuteKey != key {
		p = c.minutes[key]
	}
	if p == nil {
		rules := 0
		if s.Plan != nil {
			rules = len(s.Plan.Rules)
		}
		if !c.fits(minuteSize + ruleSize*rules) {
			return nil
		}
		p = &tenantMinute{minuteKey: key, routes: make(map[string]*Counts), rules: make([]*ruleCounts, rules), traceKeys: make([]TraceKey, rules)}
		p.limited, p.allowed = *newTopKeys(topCapacity), *newTopKeys(topCapacity)
		c.grow(p, minuteSize+ruleSize*rules)
		c.minutes[key] = p
	}
	c.last, p.used, p.noTrace = p, true, s.NoTrace
	return p
}

func (c *content) fits(size int) bool { return c.size+size <= c.max }

func (c *content) grow(p *tenantMinute, size int) {
	c.size += size
	p.size += size
}

// second returns the counts of the second at in list. If list has no counts for this second, second
// appends an element.
func second(list *[]secondCounts, at int64) *Counts {
	l := *list
	for i := len(l) - 1; i >= 0; i-- {
		if l[i].at == at {
			return &l[i].Counts
		}
	}
	*list = append(l, secondCounts{at: at})
	return &(*list)[len(*list)-1].Counts
}

// onRoute returns the row of counts of a route in p. If the row does not exist, onRoute creates it.
// It returns nil if a new row does not fit in memory.
func (c *content) onRoute(p *tenantMinute, route string) *Counts {
	if p.routed != nil && p.route == route {
		return p.routed
	}
	counts := p.routes[route]
	if counts == nil {
		if !c.fits(rowSize) {
			return nil
		}
		c.grow(p, rowSize)
		counts = new(Counts)
		p.routes[route] = counts
	}
	p.route, p.routed = route, counts
	return counts
}

// ofRule returns the row of counts of a policy in p. If the row does not exist, ofRule creates it.
// It returns nil if a new row does not fit in memory.
func (c *content) ofRule(p *tenantMinute, r *enforcement.Rule) *ruleCounts {
	if r.Index >= len(p.rules) || p.rules[r.Index] == nil {
		if r.Index >= len(p.rules) || !c.fits(rowSize) {
			return nil
		}
		c.grow(p, rowSize)
		p.rules[r.Index] = new(ruleCounts)
	}
	return p.rules[r.Index]
}

// key adds one decision to the sketch top, which belongs to p. The policy r computes the key from
// the decision. partition identifies the counter of this key.
func (c *content) key(p *tenantMinute, top *topKeys, r *enforcement.Rule, partition [16]byte, d *enforcement.Decision) {
	held := cap(top.entries)
	if n := len(top.entries); n == held && n > 0 && !c.fits(keySize*n) {
		top.capacity = n
	}
	if e := top.add(topID{uint32(r.Index), partition}, 1); e != nil {
		c.parts = e.text.describe(d.Subject, r, d.Check, c.parts)
		clear(c.parts)
	}
	c.grow(p, keySize*(cap(top.entries)-held))
}

// reset empties c after a drain. It keeps the memory of each tenantMinute that was used since
// the previous drain, and deletes the others.
func (c *content) reset() {
	for key, p := range c.minutes {
		if !p.used {
			delete(c.minutes, key)
			c.size -= p.size
			continue
		}
		p.reset()
	}
	clear(c.samples)
	c.last, c.together, c.folded, c.samples = nil, c.together[:0], 0, c.samples[:0]
}

func (p *tenantMinute) reset() {
	p.used, p.seconds = false, p.seconds[:0]
	for _, counts := range p.routes {
		*counts = Counts{}
	}
	for _, r := range p.rules {
		if r != nil {
			*r = ruleCounts{}
		}
	}
	for _, top := range []*topKeys{&p.limited, &p.allowed} {
		top.reset()
		top.capacity = topCapacity
	}
	p.retry.histogram.reset()
	p.retry.never = 0
	p.trace.reset()
}

// minuteOf returns the number of the minute that contains the second at. Minutes and seconds are
// counted from the epoch.
func minuteOf(at int64) uint32 { return uint32(min(max(at/60, 0), math.MaxUint32)) }
