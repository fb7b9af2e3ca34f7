package metrics

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Bounds of the number of sketches that a query reads for each node. wholeSketches is for queries
// that return one result for the whole time range. pointSketches is for queries that return points.
var (
	wholeSketches = bounds{rows: 200}
	pointSketches = bounds{points: 200, rows: 350}
)

// sketchRows calls the function each with every row of the sketch called name that the query plan r
// reads. If each returns an error for a row, sketchRows ignores this row and continues. At the end,
// it logs one line about all ignored rows.
func (a *Analytics) sketchRows(ctx context.Context, r reading, tenant uint32, name string, each func(s Step, row *SketchRow) error) error {
	broken := 0
	var first error
	for _, p := range r.parts {
		rows, err := a.store.Sketches(ctx, SketchQuery{Step: p.step, From: p.from, To: p.to, Tenant: tenant, Name: name})
		if err != nil {
			return err
		}
		for i := range rows {
			if err := each(p.step, &rows[i]); err != nil {
				broken++
				first = cmp.Or(first, err)
			}
		}
	}
	if broken > 0 {
		a.cfg.Logger.ErrorContext(ctx, "sketches cannot be read; they are left out", "tenant", tenant, "name", name, "rows", broken, "first",
			first)
	}
	return nil
}

// sketches calls the function each with every histogram sketch that the query plan r reads, and
// with the start time of its row. each must not change the sketch, because the sketch comes from a
// cache.
func (a *Analytics) sketches(ctx context.Context, r reading, tenant uint32, name string, each func(at int64, s sketch)) error {
	return a.sketchRows(ctx, r, tenant, name, func(step Step, row *SketchRow) error {
		s, err := remember(&a.memory, step, row, decodeSketch)
		if err == nil {
			each(row.At, s)
		}
		return err
	})
}

// lists calls the function each with every ranking of keys that the query plan r reads, and with
// the start time of its row. each must not change the ranking, because the ranking comes from a
// cache.
func (a *Analytics) lists(ctx context.Context, r reading, tenant uint32, name string, each func(at int64, t *topList)) error {
	return a.sketchRows(ctx, r, tenant, name, func(step Step, row *SketchRow) error {
		t, err := remember(&a.memory, step, row, decodeTopList)
		if err == nil {
			each(row.At, t)
		}
		return err
	})
}

func (a *Analytics) top(ctx context.Context, r reading, tenant uint32, name string) (*union, error) {
	u := newUnion()
	err := a.lists(ctx, r, tenant, name, func(_ int64, t *topList) { u.add(t) })
	return u, err
}

func (k KeyRanking) sketch() string {
	if k == AllowedKeys {
		return SketchAllowedKeys
	}
	return SketchLimitedKeys
}

// Keys lists the keys of a tenant with the highest counts. The argument by selects what is counted:
// LimitedKeys counts denials by limits, AllowedKeys counts allowed decisions. If q names a policy,
// Keys lists only keys of that policy.
func (a *Analytics) Keys(ctx context.Context, q Query, by KeyRanking) (TopKeys, error) {
	if q.Route != "" {
		return TopKeys{}, notHere("route")
	}
	r, err := a.reading(ctx, q, wholeSketches)
	if err != nil {
		return TopKeys{}, err
	}
	top, err := a.top(ctx, r, q.Tenant, by.sketch())
	if err != nil {
		return TopKeys{}, err
	}
	return top.topOf(q, r.Span), nil
}

// topOf returns the keys with the highest counts in u. If q names a policy, it considers only keys
// of this policy.
func (u *union) topOf(q Query, s Span) TopKeys {
	list, floor := u.ranking(func(x *topText) bool { return q.Policy == "" || x.policy == q.Policy }, q.limit())
	out := TopKeys{Span: s, Floor: floor, Total: u.total, Keys: make([]TopKey, len(list))}
	for i := range list {
		out.Keys[i] = list[i].key()
	}
	return out
}

// trendParts is the maximum number of parts of TopKey.Trend. A part is never shorter than the
// longest row that a query reads. If Trend would therefore have fewer than leastTrend parts, the
// query reads rows of a finer step.
const trendParts, leastTrend = 24, 6

// LimitedAndAllowed returns two rankings: the results of Keys for LimitedKeys and for AllowedKeys.
// In the ranking limited, it also sets Allowed, AllowedMost and Trend of each key.
func (a *Analytics) LimitedAndAllowed(ctx context.Context, q Query) (limited, allowed TopKeys, err error) {
	if q.Route != "" {
		return limited, allowed, notHere("route")
	}
	r, err := a.reading(ctx, q, wholeSketches)
	if err == nil && r.trend() < leastTrend {
		r, err = a.reading(ctx, q, pointSketches)
	}
	if err != nil {
		return limited, allowed, err
	}
	type row struct {
		at int64
		*topList
	}
	var rows []row
	denials, passes := newUnion(), newUnion()
	group, reads := errgroup.WithContext(ctx)
	group.Go(func() error {
		return a.lists(reads, r, q.Tenant, SketchLimitedKeys, func(at int64, t *topList) {
			denials.add(t)
			rows = append(rows, row{at, t})
		})
	})
	group.Go(func() error {
		return a.lists(reads, r, q.Tenant, SketchAllowedKeys, func(_ int64, t *topList) { passes.add(t) })
	})
	if err := group.Wait(); err != nil {
		return limited, allowed, err
	}
	limited, allowed = denials.topOf(q, r.Span), passes.topOf(q, r.Span)
	from, length := r.From.Unix(), r.To.Unix()-r.From.Unix()
	parts := r.trend()
	for i := range limited.Keys {
		k := &limited.Keys[i]
		text := k.text()
		mark := text.mark()
		k.AllowedMost = passes.floor
		if place, known := passes.places[mark]; known {
			sum := &passes.keys[place]
			k.Allowed, k.AllowedMost = max(0, sum.count-sum.error), sum.count
		}
		k.Trend = make([]int64, parts)
		for _, row := range rows {
			if count, wrong := row.of(mark); count > wrong {
				k.Trend[(row.at-from)*int64(parts)/length] += count
			}
		}
	}
	return limited, allowed, a.setAllowedOfTenants(ctx, r, limited.Keys)
}

// setAllowedOfTenants sets Allowed and AllowedMost of keys that count a whole tenant, because their
// policy has no count_by. The rankings of allowed keys do not contain such keys. All requests of
// the policy have the same key, so the numbers are the counts of the policy.
func (a *Analytics) setAllowedOfTenants(ctx context.Context, r reading, keys []TopKey) error {
	for i := range keys {
		k := &keys[i]
		if len(k.Names) > 0 {
			continue
		}
		var sum Counts
		for _, p := range r.parts {
			rows, err := a.store.SumCounts(ctx, p.query(CountQuery{Tenant: k.Tenant, Kind: KindPolicy, Names: []string{k.Policy}}))
			if err != nil {
				return err
			}
			for j := range rows {
				sum.Add(&rows[j].Counts)
			}
		}
		k.Allowed = sum.Allowed()
		k.AllowedMost = k.Allowed
	}
	return nil
}

// trend returns the number of parts of TopKey.Trend. It is at most trendParts. It is lower if a
// part would otherwise be shorter than the longest row that the plan reads.
func (r *reading) trend() int {
	longest, length := Minute.seconds(), r.To.Unix()-r.From.Unix()
	for _, p := range r.parts {
		longest = max(longest, p.step.seconds())
	}
	return int(max(1, min(trendParts, length/longest)))
}

// text returns the fields that identify the key in sketches, without its counts.
func (k *TopKey) text() topText {
	text := topText{tenant: k.Tenant, policy: k.Policy, names: k.Names, redacted: k.Redacted}
	for i, v := range k.Values {
		text.values = append(text.values, topValue{text: v, missing: i < len(k.Missing) && k.Missing[i]})
	}
	return text
}

func (k *ranked) key() TopKey {
	x := &k.text
	out := TopKey{
		Tenant: x.tenant, Policy: x.policy, Redacted: x.redacted, Count: k.count, Error: k.error,
		Names: slices.Clone(x.names), Values: make([]string, len(x.values)), Missing: make([]bool, len(x.values)),
	}
	for i, v := range x.values {
		out.Values[i], out.Missing[i] = v.text, v.missing
	}
	return out
}

// Key returns the counts of one key over time. The argument by selects what is counted: LimitedKeys
// counts denials by limits, AllowedKeys counts allowed decisions. The fields Tenant, Policy, Names,
// Values and Missing of key identify the key. They have the same form as in the result of Keys.
func (a *Analytics) Key(ctx context.Context, q Query, key TopKey, by KeyRanking) (KeyTraffic, error) {
	text := key.text()
	mark := text.mark()
	r, err := a.reading(ctx, q, pointSketches)
	if err != nil {
		return KeyTraffic{}, err
	}
	out := KeyTraffic{Span: r.Span, Points: make([]KeyPoint, r.place(r.To.Unix()))}
	for i := range out.Points {
		out.Points[i].At = r.at(i)
	}
	err = a.lists(ctx, r, key.Tenant, by.sketch(), func(at int64, t *topList) {
		count, wrong := t.of(mark)
		p := &out.Points[r.place(at)]
		p.Count, p.Error = p.Count+count, p.Error+wrong
		out.Count, out.Error = out.Count+count, out.Error+wrong
	})
	return out, err
}

// RetryAfter returns a histogram of the retry times of denials by limits and blocks, in
// milliseconds.
func (a *Analytics) RetryAfter(ctx context.Context, q Query) (Histogram, error) {
	if err := q.whole(); err != nil {
		return Histogram{}, err
	}
	r, err := a.reading(ctx, q, wholeSketches)
	if err != nil {
		return Histogram{}, err
	}
	var all retryTimes
	err = a.sketches(ctx, r, q.Tenant, SketchRetryAfter, func(_ int64, s sketch) { all.absorb(s) })
	if err != nil {
		return Histogram{}, err
	}
	h := all.histogram.shown(r.Span)
	h.Never = all.never
	return h, nil
}

func (h *logHistogram) shown(s Span) Histogram {
	return Histogram{
		Span: s, Buckets: h.buckets(), Count: h.count(),
		P50: h.quantile(500), P95: h.quantile(950), P99: h.quantile(990),
	}
}

// Remaining returns a histogram of the remaining quota at the time of the decisions, for each
// policy of a tenant, or only for the policy that q names.
func (a *Analytics) Remaining(ctx context.Context, q Query) (Remaining, error) {
	if q.Route != "" {
		return Remaining{}, notHere("route")
	}
	r, err := a.reading(ctx, q, wholeSketches)
	if err != nil {
		return Remaining{}, err
	}
	all := make(remainingShares)
	err = a.sketches(ctx, r, q.Tenant, SketchRemaining, func(_ int64, s sketch) { all.absorb(s) })
	if err != nil {
		return Remaining{}, err
	}
	out := Remaining{Span: r.Span}
	for _, policy := range slices.Sorted(maps.Keys(all)) {
		if q.Policy == "" || q.Policy == policy {
			out.Policies = append(out.Policies, remainingShown(policy, all[policy]))
		}
	}
	return out, nil
}

func remainingShown(policy string, counts *remainingCounts) PolicyRemaining {
	const width = 100 / (remainingBuckets - 1)
	out := PolicyRemaining{Policy: policy, Buckets: make([]Bucket, remainingBuckets)}
	for i, n := range counts {
		to := int64(i * width)
		out.Buckets[i] = Bucket{From: to - width, To: to, Count: n}
		out.Count += n
	}
	out.Buckets[0].From = -1 // the first bucket has the range (-1, 0]: it counts decisions with no quota left
	return out
}

// Latency returns the durations of limiter calls. There are no such durations for a single tenant,
// only for all tenants together.
func (a *Analytics) Latency(ctx context.Context, q Query) (Latency, error) {
	if err := q.whole(); err != nil {
		return Latency{}, err
	}
	r, err := a.reading(ctx, q, pointSketches)
	if err != nil {
		return Latency{}, err
	}
	var all latencies
	points := make([]logHistogram, r.place(r.To.Unix()))
	err = a.sketches(ctx, r, 0, SketchLatency, func(at int64, s sketch) {
		all.absorb(s)
		l := s.(*latencies)
		points[r.place(at)].merge(&l.shared)
		points[r.place(at)].merge(&l.local)
	})
	if err != nil {
		return Latency{}, err
	}
	out := Latency{Shared: all.shared.shown(r.Span), Local: all.local.shown(r.Span), Points: make([]LatencyPoint, len(points))}
	for i := range points {
		out.Points[i] = points[i].latency(r.at(i))
	}
	all.shared.merge(&all.local)
	out.Histogram = all.shared.shown(r.Span)
	return out, nil
}

func (h *logHistogram) latency(at time.Time) LatencyPoint {
	return LatencyPoint{At: at, Count: h.count(), P50: h.quantile(500), P95: h.quantile(950), P99: h.quantile(990)}
}
