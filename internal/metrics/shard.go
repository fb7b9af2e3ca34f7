package metrics

import (
	"math"
	"runtime"
	"sync/atomic"

	"github.com/headgate/headgate/enforcement"
)

// A shard is memory in which one goroutine at a time counts, without a lock. A goroutine that
// finds it busy takes the next one. There are more shards than processors, so waiting is rare. The
// drain holds a shard only while it swaps the content.
type shard struct {
	busy  atomic.Bool
	index int
	tallies
	content *content
	spare   *content // emptied, for the next drain
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

// take waits for a shard.
func (s *shard) take() {
	for !s.busy.CompareAndSwap(false, true) {
		runtime.Gosched()
	}
}

// A content has the counts of a shard since the last drain. It is reused: a tenant probably needs
// the same rows in the next second.
type content struct {
	pages map[pageKey]*page
	last  *page // that was used last
	// size estimates the memory of the pages in bytes; it stays below max.
	size, max int
	// together counts decisions without a page, by second.
	together []secondCounts
	folded   int64
	samples  []sample
	parts    []enforcement.KeyPart // to use
}

// maxContents bounds the memory of all shards in bytes: enough for 50,000 tenants in one second,
// with three policies and a route each. When it is full, a new tenant, route or policy counts only
// in sums, and sketches stop growing; they stay correct, with a larger error.
const maxContents = 128 << 20

// Estimated sizes in bytes.
const (
	pageSize = 512
	rowSize  = 384
	keySize  = 256
)

// A pageKey identifies a page.
type pageKey struct {
	minute uint32 // since the epoch
	tenant uint32
	plan   *enforcement.Plan
}

// A page is one tenant's minute under one plan version.
type page struct {
	pageKey
	used    bool // since the drain before
	size    int
	seconds []secondCounts // of all decisions
	routes  map[string]*Counts
	route   string // that was used last
	routed  *Counts
	rules   []*ruleCounts // by Rule.Index
	limited topKeys
	allowed topKeys
	retry   retryTimes
}

// secondCounts are the counts of one second.
type secondCounts struct {
	at int64 // since the epoch
	Counts
}

// ruleCounts are the counts of one policy.
type ruleCounts struct {
	Counts
	remaining remainingCounts
	sampled   bool // remaining has something
}

func newContent(size int) *content {
	return &content{pages: make(map[pageKey]*page), max: size}
}

// page returns the page of a decision, or nil if a new one does not fit.
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

// second returns the counts of a second.
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

// onRoute returns the counts of a route, or nil if a new one does not fit.
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

// ofRule returns the counts of a policy, or nil if a new one does not fit.
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

// key counts a key of a policy in a sketch of a page.
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

// reset empties c after a drain. It drops the pages that were not used since the drain before.
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

// minuteOf returns the minute of a second, since the epoch.
func minuteOf(at int64) uint32 { return uint32(min(max(at/60, 0), math.MaxUint32)) }
