package metrics

import (
	"math"
	"runtime"
	"sync/atomic"

	"github.com/headgate/headgate/enforcement"
)

// A shard is memory in which one goroutine at a time counts decisions, without a lock. A goroutine that finds a shard
// busy tries the next one. There are more shards than processors, so waiting is rare. A drain holds a shard only
// while it swaps the content.
type shard struct {
	busy  atomic.Bool
	index int
	tallies
	content *content
	spare   *content // empty; the next drain swaps it with content
}

// acquire returns a shard for exclusive use until release.
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

// take waits until the shard is free and acquires it.
func (s *shard) take() {
	for !s.busy.CompareAndSwap(false, true) {
		runtime.Gosched()
	}
}

// A content contains the counts of a shard since the last drain. Its memory is reused, because a tenant probably
// needs the same rows again in the next second.
type content struct {
	pages map[pageKey]*page
	last  *page // the page that was used last
	// size is the estimated memory of the pages in bytes. It stays below max.
	size, max int
	// together counts, by second, the decisions whose page did not fit.
	together []secondCounts
	folded   int64
	samples  []sample
	parts    []enforcement.KeyPart // scratch memory for describe
}

// maxContents is the maximum memory of all shards in bytes. It is enough for 50,000 tenants in one second, each with
// three policies and one route. When it is full, decisions of a new tenant, route or policy count only in sums.
// Sketches stop growing; their numbers stay correct, with a larger error.
const maxContents = 128 << 20

// Estimated sizes of a page, a row of counts and a key, in bytes.
const (
	pageSize = 512
	rowSize  = 384
	keySize  = 256
)

// A pageKey identifies a page.
type pageKey struct {
	minute uint32 // in minutes since the epoch
	tenant uint32
	plan   *enforcement.Plan
}

// A page contains the counts of one tenant in one minute, for one version of the plan.
type page struct {
	pageKey
	used    bool // since the previous drain
	size    int
	seconds []secondCounts // of all decisions
	routes  map[string]*Counts
	route   string // the route that was used last
	routed  *Counts
	rules   []*ruleCounts // index: Rule.Index
	limited topKeys
	allowed topKeys
	retry   retryTimes
}

// secondCounts are the counts of one second.
type secondCounts struct {
	at int64 // since the epoch
	Counts
}

// ruleCounts are the counts of one policy on a page.
type ruleCounts struct {
	Counts
	remaining remainingCounts
	sampled   bool // remaining has at least one sample
}

func newContent(size int) *content {
	return &content{pages: make(map[pageKey]*page), max: size}
}

// page returns the page for a decision of a tenant in a minute. It returns nil if a new page does not fit in memory.
func (c *content) page(minute uint32, s *enforcement.Subject) *page {
	key := pageKey{minute, s.Number, s.Plan}
	p := c.last
	if p == nil || p.pageKey != key {
		p = c.pages[key]
	}
	if p == nil {
		rules := 0
		if s.Plan != nil {
			rules = len(s.Plan.Rules)
		}
		if !c.fits(pageSize + 8*rules) {
			return nil
		}
		p = &page{pageKey: key, routes: make(map[string]*Counts), rules: make([]*ruleCounts, rules)}
		p.limited, p.allowed = *newTopKeys(topCapacity), *newTopKeys(topCapacity)
		c.grow(p, pageSize+8*rules)
		c.pages[key] = p
	}
	c.last, p.used = p, true
	return p
}

func (c *content) fits(size int) bool { return c.size+size <= c.max }

func (c *content) grow(p *page, size int) {
	c.size += size
	p.size += size
}

// second returns the counts of second at, and appends them to the list if needed.
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

// onRoute returns the counts of a route on a page. It returns nil if a new row does not fit in memory.
func (c *content) onRoute(p *page, route string) *Counts {
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

// ofRule returns the counts of a policy on a page. It returns nil if a new row does not fit in memory.
func (c *content) ofRule(p *page, r *enforcement.Rule) *ruleCounts {
	if r.Index >= len(p.rules) || p.rules[r.Index] == nil {
		if r.Index >= len(p.rules) || !c.fits(rowSize) {
			return nil
		}
		c.grow(p, rowSize)
		p.rules[r.Index] = new(ruleCounts)
	}
	return p.rules[r.Index]
}

// key counts one decision for a key of a policy in a top-keys sketch of a page.
func (c *content) key(p *page, top *topKeys, r *enforcement.Rule, partition [16]byte, d *enforcement.Decision) {
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

// reset empties c after a drain. It drops the pages that were not used since the previous drain and keeps the memory
// of the others.
func (c *content) reset() {
	for key, p := range c.pages {
		if !p.used {
			delete(c.pages, key)
			c.size -= p.size
			continue
		}
		p.reset()
	}
	clear(c.samples)
	c.last, c.together, c.folded, c.samples = nil, c.together[:0], 0, c.samples[:0]
}

func (p *page) reset() {
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
}

// minuteOf returns the minute that contains the second at, in minutes since the epoch.
func minuteOf(at int64) uint32 { return uint32(min(max(at/60, 0), math.MaxUint32)) }
