package metrics

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"
)

// The maximum numbers of sketches that a query reads per node: for a result without points, and for one with points.
var (
	wholeSketches = bounds{rows: 200}
	pointSketches = bounds{points: 200, rows: 350}
)

// sketchRows calls each with every row that a query reads, oldest first within a part. It leaves out rows for which
// each returns an error, and logs one line for all of them.
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

// sketches reads sketches that are histograms. They come from a cache, so each must not change them.
func (a *Analytics) sketches(ctx context.Context, r reading, tenant uint32, name string, each func(at int64, s sketch)) error {
	return a.sketchRows(ctx, r, tenant, name, func(step Step, row *SketchRow) error {
		s, err := remember(&a.memory, step, row, decodeSketch)
		if err == nil {
			each(row.At, s)
		}
		return err
	})
}

// lists reads sketches that are rankings of keys. They come from a cache, so each must not change them.
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

// Keys ranks the keys of a tenant, or of one policy of the tenant.
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
	list, floor := top.ranking(func(x *topText) bool { return q.Policy == "" || x.policy == q.Policy }, q.limit())
	out := TopKeys{Span: r.Span, Floor: floor, Total: top.total, Keys: make([]TopKey, len(list))}
	for i := range list {
		out.Keys[i] = list[i].key()
	}
	return out, nil
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

// Key returns the numbers of one key over time. The fields Tenant, Policy, Names, Values and Missing of key identify
// it, as in the result of Keys.
func (a *Analytics) Key(ctx context.Context, q Query, key TopKey, by KeyRanking) (KeyTraffic, error) {
	text := topText{tenant: key.Tenant, policy: key.Policy, names: key.Names}
	for i, v := range key.Values {
		text.values = append(text.values, topValue{text: v, missing: i < len(key.Missing) && key.Missing[i]})
	}
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

// RetryAfter returns the retry-after times of denials by limits and blocks, in milliseconds.
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

// Remaining returns histograms of the remaining quota of a tenant's policies, or of one policy.
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
	out.Buckets[0].From = -1 // the first bucket counts only "nothing left"
	return out
}

// Latency returns the duration of limiter calls, for all tenants together.
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
