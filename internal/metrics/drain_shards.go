package metrics

import (
	"cmp"
	"slices"
	"sync"
)

// A drained contains everything that was counted between two drains.
type drained struct {
	// counts are by minute and tenant. drain itself puts into tenant 0 only decisions that had no
	// room in the rows of their tenant. The method together then adds the counts of all tenants to
	// tenant 0.
	counts map[CountKey]*Counts
	// sketches are by minute and tenant. The sketches of tenant 0 combine those of all tenants. The
	// field Node of each key is "".
	sketches map[SketchKey]sketch
	refusals []Refusal // oldest first
	// folded is the number of decisions that had no room in memory in the rows of their tenant or
	// route. They are counted only in sums.
	folded int64
}

// drainState is kept from one drain to the next. shared contains the bucket counts of the shared
// limiter's histogram at the last drain. standIn contains those of the node's own limiter. The next
// drain subtracts them from the current counts.
type drainState struct {
	mu              sync.Mutex // serializes drains
	shared, standIn [maxLogBuckets]uint64
}

// drain removes all counts from the shards and returns them. Each decision is in the result of
// exactly one drain: at the latest, of the first drain that begins after the Record call has
// returned. drain waits for Record calls that hold a shard. A Record call waits for drain only
// while drain swaps two pointers.
func (r *Recorder) drain() *drained {
	r.drains.mu.Lock()
	defer r.drains.mu.Unlock()
	out := &drained{counts: make(map[CountKey]*Counts), sketches: make(map[SketchKey]sketch)}
	began := r.cfg.Now()
	for _, s := range r.shards {
		s.take()
		s.content, s.spare = s.spare, s.content
		s.busy.Store(false)
		out.take(s.spare, r)
		s.spare.reset()
	}
	r.ring.until(began.Unix())
	slices.SortFunc(out.refusals, func(a, b Refusal) int { return slices.Compare(a.ID[:], b.ID[:]) })
	allowed := int64(0)
	for i := range out.refusals {
		if out.refusals[i].Allowed {
			allowed++
		}
	}
	r.allowed.held.Add(-allowed)
	r.refusals.held.Add(allowed - int64(len(out.refusals)))
	r.folded.Add(uint64(out.folded))
	out.ranking()
	out.allTenants()
	latency := &latencies{r.limiter.seconds.since(&r.drains.shared), r.standIn.seconds.since(&r.drains.standIn)}
	if len(latency.shared.counts)+len(latency.local.counts) > 0 {
		out.absorb(SketchKey{At: int64(minuteOf(began.Unix())) * 60, Name: SketchLatency}, latency)
	}
	return out
}

// take adds the content of a shard to o.
func (o *drained) take(c *content, r *Recorder) {
	for _, p := range c.minutes {
		if !p.used {
			continue
		}
		for i := range p.seconds {
			r.ring.add(p.tenant, p.seconds[i].at, &p.seconds[i].Counts)
		}
		o.minute(p)
	}
	for i := range c.together {
		s := &c.together[i]
		r.ring.add(0, s.at, &s.Counts)
		o.add(CountKey{At: int64(minuteOf(s.at)) * 60, Kind: KindTotal}, &s.Counts)
	}
	for i := range c.samples {
		o.refusals = append(o.refusals, c.samples[i].refusal(r.cfg.Node))
	}
	o.folded += c.folded
}

func (o *drained) minute(p *tenantMinute) {
	at := int64(p.minute) * 60
	for i := range p.seconds {
		o.add(CountKey{At: at, Tenant: p.tenant, Kind: KindTotal}, &p.seconds[i].Counts)
	}
	for route, counts := range p.routes {
		if counts.Requests > 0 {
			o.add(CountKey{at, p.tenant, KindRoute, route}, counts)
		}
	}
	remaining := remainingShares{}
	for i, row := range p.rules {
		if row == nil || row.Requests == 0 {
			continue
		}
		policy := p.plan.Rules[i].Policy
		o.add(CountKey{at, p.tenant, KindPolicy, policy}, &row.Counts)
		if row.sampled {
			remaining.add(policy, &row.remaining)
		}
	}
	key := SketchKey{At: at, Tenant: p.tenant}
	if len(remaining) > 0 {
		o.absorb(key.named(SketchRemaining), remaining)
	}
	if len(p.limited.entries) > 0 {
		o.absorb(key.named(SketchLimitedKeys), p.limited.gathered(topCapacity))
	}
	if len(p.allowed.entries) > 0 {
		o.absorb(key.named(SketchAllowedKeys), p.allowed.gathered(topCapacity))
	}
	if !p.noTrace {
		o.absorb(key.named(SketchTrace), traceOf(p))
	}
	if p.retry.never > 0 || len(p.retry.histogram.counts) > 0 {
		retry := &retryTimes{never: p.retry.never}
		retry.histogram.merge(&p.retry.histogram)
		o.absorb(key.named(SketchRetryAfter), retry)
	}
}

func (k SketchKey) named(name string) SketchKey {
	k.Name = name
	return k
}

func (o *drained) add(key CountKey, counts *Counts) {
	mine := o.counts[key]
	if mine == nil {
		mine = new(Counts)
		o.counts[key] = mine
	}
	mine.Add(counts)
}

// absorb adds the sketch s to the sketch that o has for key. The caller must not use s after the
// call.
func (o *drained) absorb(key SketchKey, s sketch) {
	if mine := o.sketches[key]; mine != nil {
		mine.absorb(s)
		return
	}
	o.sketches[key] = s
}

// ranking computes the sketches SketchBusyTenants and SketchLimitedTenants from the total counts of
// each tenant in each minute.
func (o *drained) ranking() {
	var totals []CountKey
	for key := range o.counts {
		if key.Kind == KindTotal && key.Tenant != 0 {
			totals = append(totals, key)
		}
	}
	slices.SortFunc(totals, func(a, b CountKey) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Tenant, b.Tenant)) })
	for _, key := range totals {
		counts := o.counts[key]
		o.rank(key, SketchBusyTenants, counts.Requests)
		o.rank(key, SketchLimitedTenants, counts.Limited())
	}
}

func (o *drained) rank(key CountKey, name string, n int64) {
	if n == 0 {
		return
	}
	k := SketchKey{At: key.At, Name: name}
	if o.sketches[k] == nil {
		o.sketches[k] = newTopKeys(topCapacity)
	}
	text := topText{tenant: key.Tenant}
	if e := o.sketches[k].(*topKeys).add(text.id(), n); e != nil {
		e.text = text
	}
}

// allTenants computes the sketches of tenant 0: it combines the sketches of all other tenants.
func (o *drained) allTenants() {
	var keys []SketchKey
	for key := range o.sketches {
		if key.Tenant != 0 && key.Name != SketchTrace { // traces of several tenants are not combined
			keys = append(keys, key)
		}
	}
	// The sketches are merged in a fixed order, so that the same counts always result in the same
	// sketch.
	slices.SortFunc(keys, func(a, b SketchKey) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	others := make(map[SketchKey][]*topKeys)
	for _, key := range keys {
		all := SketchKey{At: key.At, Name: key.Name}
		if top, ok := o.sketches[key].(*topKeys); ok {
			others[all] = append(others[all], top)
			continue
		}
		if o.sketches[all] == nil {
			o.sketches[all] = emptySketch(key.Name)
		}
		o.sketches[all].absorb(o.sketches[key])
	}
	for all, list := range others {
		top := newTopKeys(topCapacity)
		top.mergeOthers(list)
		o.sketches[all] = top
	}
}

// emptySketch returns an empty sketch of the kind with the given name, which is a sketch of
// histograms.
func emptySketch(name string) sketch {
	if name == SketchRemaining {
		return remainingShares{}
	}
	return new(retryTimes)
}

// together adds the counts of every tenant to tenant 0. drain must be followed by only one call,
// because a second call would count everything twice.
func (o *drained) together() {
	for key, counts := range o.counts {
		if key.Tenant != 0 {
			key.Tenant = 0
			o.add(key, counts)
		}
	}
}
