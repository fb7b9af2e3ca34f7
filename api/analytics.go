package api

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
)

// The metrics package identifies a tenant by its number. The API identifies a tenant by its slug. A
// key of a tenant reads only the counts of its own tenant.

// counts returns an error of the kind problem.Unavailable if this node has no recorded counts to
// read.
func (a *API) counts() error {
	if a.cfg.Analytics == nil {
		return problem.New(problem.Unavailable, "this node does not count")
	}
	return nil
}

// countedTenant returns the number of the tenant whose counts the request is about. ref is the slug
// or ID in the request. Only the operator may leave it empty, to read the sum over all tenants; the
// number is then 0.
func (a *API) countedTenant(ctx context.Context, ref string) (uint32, error) {
	if err := a.counts(); err != nil {
		return 0, err
	}
	who := callerOf(ctx)
	if own := who.tenant(); own != nil {
		if ref != "" && !who.is(ref) {
			return 0, errForeign
		}
		return own.Number, nil
	}
	if ref == "" {
		return 0, nil
	}
	t, err := a.cfg.Tenants.Tenant(ctx, ref)
	if err != nil {
		return 0, atTenant(err, "tenant")
	}
	return t.Number, nil
}

// defaultSpan is the length of the time range if the request has no parameter from.
const defaultSpan = time.Hour

// counted builds a query for the recorded counts of one tenant in one time range. It calls narrow
// to set the other fields of the query, and returns the result of read.
func counted[T any](ctx context.Context, a *API, tenant string, from, to time.Time, narrow func(*metrics.Query),
	read func(context.Context, metrics.Query) (T, error),
) (none T, err error) {
	number, err := a.countedTenant(ctx, tenant)
	if err != nil {
		return none, err
	}
	q := metrics.Query{Tenant: number, From: from, To: to}
	if q.To.IsZero() {
		q.To = a.cfg.Now()
		if !q.From.IsZero() && !q.From.Before(q.To) {
			return none, malformedAt("from", "must be before now, because to is missing")
		}
	}
	if q.From.IsZero() {
		q.From = q.To.Add(-defaultSpan)
	}
	narrow(&q)
	t, err := read(ctx, q)
	return t, asParameterFault(err)
}

// slugOf returns the slug of the tenant with this number. If the snapshot does not have the tenant,
// it returns "deleted".
func (c caller) slugOf(number uint32) string {
	if s, ok := c.snapshot.SubjectByNumber(number); ok {
		return s.Tenant
	}
	return "deleted"
}

func showCounts(c *metrics.Counts) Counts {
	out := Counts{
		Requests: c.Requests, Allowed: c.Allowed(), Limited: c.Limited(),
		Ok: c.OK, AllowedByList: c.Listed, AllowedNoPolicy: c.Unmatched,
		OverLimit: c.OverLimit, CostExceedsQuota: c.NeverFits, OtherPolicy: c.OtherPolicy,
		Blocked: c.Blocked, DeniedByList: c.DeniedByList, MissingAttribute: c.MissingAttribute, DeniedNoPolicy: c.DeniedUnmatched,
		TenantSuspended: c.Suspended, BatchRefused: c.BatchRefused, LimiterUnavailable: c.Unavailable,
		Forced: c.Forced, ShadowRefused: c.ShadowRefused, Degraded: c.Degraded, Local: c.Local, Cost: c.Cost,
	}
	if c.Requests > 0 {
		rate := math.Round(float64(out.Limited)/float64(c.Requests)*1e6) / 1e6
		out.LimitedRate = &rate
	}
	return out
}

func showPoints(points []metrics.Point) []CountPoint {
	out := make([]CountPoint, len(points))
	for i := range points {
		out[i] = CountPoint{Instant{points[i].At}, showCounts(&points[i].Counts)}
	}
	return out
}

func showBuckets(buckets []metrics.Bucket) []HistogramBucket {
	out := make([]HistogramBucket, len(buckets))
	for i, b := range buckets {
		out[i] = HistogramBucket{From: b.From, To: b.To, Count: b.Count}
	}
	return out
}

func showHistogram(h *metrics.Histogram) Histogram {
	return Histogram{Count: h.Count, P50: h.P50, P95: h.P95, P99: h.P99, Buckets: showBuckets(h.Buckets)}
}

// asParameterFault turns a problem of the kind Invalid into one of the kind Malformed, because the
// fault is in a query parameter. The response then has the status 400, not 422.
func asParameterFault(err error) error {
	if p := (*problem.Problem)(nil); errors.As(err, &p) && p.Kind == problem.Invalid {
		fault := *p
		fault.Kind, fault.Message = problem.Malformed, "a query parameter cannot be read"
		return &fault
	}
	return err
}

// GetTraffic is GET /v1/analytics/traffic.
func (a *API) GetTraffic(ctx context.Context, r GetTrafficRequestObject) (GetTrafficResponseObject, error) {
	p := r.Params
	if p.Policy != "" && p.Route != "" {
		if _, err := a.countedTenant(ctx, p.Tenant); err != nil {
			return nil, err
		}
		return nil, malformedAt("route", "cannot be combined with policy")
	}
	t, err := counted(ctx, a, p.Tenant, p.From, p.To, func(q *metrics.Query) {
		q.Policy, q.Route, q.Step = p.Policy, p.Route, metrics.Step(p.Step)
	}, a.cfg.Analytics.Traffic)
	return GetTraffic200JSONResponse{
		From: Instant{t.From}, To: Instant{t.To}, Step: CountStep(t.Step), Total: showCounts(&t.Total), Points: showPoints(t.Points),
	}, err
}

// GetPolicyTraffic is GET /v1/analytics/policies.
func (a *API) GetPolicyTraffic(ctx context.Context, r GetPolicyTrafficRequestObject) (GetPolicyTrafficResponseObject, error) {
	t, rows, err := ranked(ctx, a, r.Params, a.cfg.Analytics.Policies, func(name string, total Counts, points []CountPoint) CountedPolicy {
		return CountedPolicy{Policy: name, Total: total, Points: points}
	})
	return GetPolicyTraffic200JSONResponse{
		From: Instant{t.From}, To: Instant{t.To}, Step: CountStep(t.Step), Policies: rows, More: t.More,
	}, err
}

// GetRouteTraffic is GET /v1/analytics/routes.
func (a *API) GetRouteTraffic(ctx context.Context, r GetRouteTrafficRequestObject) (GetRouteTrafficResponseObject, error) {
	p := GetPolicyTrafficParams(r.Params)
	t, rows, err := ranked(ctx, a, p, a.cfg.Analytics.Routes, func(name string, total Counts, points []CountPoint) CountedRoute {
		return CountedRoute{Route: name, Total: total, Points: points}
	})
	return GetRouteTraffic200JSONResponse{
		From: Instant{t.From}, To: Instant{t.To}, Step: CountStep(t.Step), Routes: rows, More: t.More,
	}, err
}

// ranked reads a ranking of policies or of routes, and converts each entry with row.
func ranked[Row any](ctx context.Context, a *API, p GetPolicyTrafficParams,
	read func(context.Context, metrics.Query) (metrics.RouteRanking, error),
	row func(name string, total Counts, points []CountPoint) Row,
) (metrics.RouteRanking, []Row, error) {
	t, err := counted(ctx, a, p.Tenant, p.From, p.To, func(q *metrics.Query) { q.Step, q.Limit = metrics.Step(p.Step), p.Limit }, read)
	rows := make([]Row, len(t.Routes))
	for i := range t.Routes {
		r := &t.Routes[i]
		rows[i] = row(r.Name, showCounts(&r.Total), showPoints(r.Points))
	}
	return t, rows, err
}

// GetTenantTraffic is GET /v1/analytics/tenants.
func (a *API) GetTenantTraffic(ctx context.Context, r GetTenantTrafficRequestObject) (GetTenantTrafficResponseObject, error) {
	p := r.Params
	by := cmp.Or(metrics.Measure(p.Sort), metrics.ByLimited)
	t, err := counted(ctx, a, "", p.From, p.To, func(q *metrics.Query) { q.Limit = p.Limit },
		func(ctx context.Context, q metrics.Query) (metrics.TenantRanking, error) {
			return a.cfg.Analytics.Tenants(ctx, q, by)
		})
	out := GetTenantTraffic200JSONResponse{
		From: Instant{t.From}, To: Instant{t.To}, Step: CountStep(t.Step), Tenants: make([]CountedTenant, len(t.Tenants)), Floor: t.Floor,
	}
	for i := range t.Tenants {
		out.Tenants[i] = CountedTenant{Tenant: callerOf(ctx).slugOf(t.Tenants[i].Tenant), Counts: showCounts(&t.Tenants[i].Counts)}
	}
	return out, err
}

// GetTopKeys is GET /v1/analytics/keys.
func (a *API) GetTopKeys(ctx context.Context, r GetTopKeysRequestObject) (GetTopKeysResponseObject, error) {
	p := r.Params
	if p.Outcome != "" && !p.Outcome.Valid() {
		return nil, malformedAt("outcome", "must be limited or allowed")
	}
	by := cmp.Or(metrics.KeyRanking(p.Outcome), metrics.LimitedKeys)
	t, err := counted(ctx, a, p.Tenant, p.From, p.To, func(q *metrics.Query) { q.Policy, q.Limit = p.Policy, p.Limit },
		func(ctx context.Context, q metrics.Query) (metrics.TopKeys, error) {
			return a.cfg.Analytics.Keys(ctx, q, by)
		})
	out := GetTopKeys200JSONResponse{
		From: Instant{t.From}, To: Instant{t.To}, Step: CountStep(t.Step), Keys: make([]TopKey, len(t.Keys)), Floor: t.Floor, Total: t.Total,
	}
	for i := range t.Keys {
		out.Keys[i] = showTopKey(callerOf(ctx), &t.Keys[i])
	}
	return out, err
}

// showTopKey converts the key of a counter to its JSON form: a map from the names of the attributes
// to their values. Requests for blocks and resets accept the same map. For a policy that counts by
// ip/64, the name is ip. The map leaves out attributes that the checks did not have.
func showTopKey(who caller, k *metrics.TopKey) TopKey {
	out := TopKey{
		Tenant: who.slugOf(k.Tenant), Policy: k.Policy, Key: make(map[string]string, len(k.Names)),
		Redacted: k.Redacted, Count: k.Count, Error: k.Error,
	}
	for i, name := range k.Names {
		if !k.Missing[i] {
			out.Key[enforcement.CountedAttribute(name)] = k.Values[i]
		}
	}
	return out
}

// GetRetryAfterHistogram is GET /v1/analytics/retry-after.
func (a *API) GetRetryAfterHistogram(
	ctx context.Context, r GetRetryAfterHistogramRequestObject,
) (GetRetryAfterHistogramResponseObject, error) {
	p := r.Params
	h, err := counted(ctx, a, p.Tenant, p.From, p.To, func(*metrics.Query) {}, a.cfg.Analytics.RetryAfter)
	return GetRetryAfterHistogram200JSONResponse{
		From: Instant{h.From}, To: Instant{h.To}, Step: CountStep(h.Step), Count: h.Count, Never: h.Never,
		P50: h.P50, P95: h.P95, P99: h.P99, Buckets: showBuckets(h.Buckets),
	}, err
}

// GetRemainingHistogram is GET /v1/analytics/remaining.
func (a *API) GetRemainingHistogram(
	ctx context.Context, r GetRemainingHistogramRequestObject,
) (GetRemainingHistogramResponseObject, error) {
	p := r.Params
	t, err := counted(ctx, a, p.Tenant, p.From, p.To, func(q *metrics.Query) { q.Policy = p.Policy }, a.cfg.Analytics.Remaining)
	out := GetRemainingHistogram200JSONResponse{
		From: Instant{t.From}, To: Instant{t.To}, Step: CountStep(t.Step), Policies: make([]PolicyRemaining, len(t.Policies)),
	}
	for i, p := range t.Policies {
		out.Policies[i] = PolicyRemaining{Policy: p.Policy, Count: p.Count, Buckets: showBuckets(p.Buckets)}
	}
	return out, err
}

// GetLimiterLatency is GET /v1/analytics/latency.
func (a *API) GetLimiterLatency(ctx context.Context, r GetLimiterLatencyRequestObject) (GetLimiterLatencyResponseObject, error) {
	p := r.Params
	l, err := counted(ctx, a, "", p.From, p.To, func(q *metrics.Query) { q.Step = metrics.Step(p.Step) }, a.cfg.Analytics.Latency)
	out := GetLimiterLatency200JSONResponse{
		From: Instant{l.From}, To: Instant{l.To}, Step: CountStep(l.Step), Count: l.Count, P50: l.P50, P95: l.P95, P99: l.P99,
		Buckets: showBuckets(l.Buckets), Shared: showHistogram(&l.Shared), Local: showHistogram(&l.Local),
		Points: make([]LatencyPoint, len(l.Points)),
	}
	for i, p := range l.Points {
		out.Points[i] = LatencyPoint{At: Instant{p.At}, Count: p.Count, P50: p.P50, P95: p.P95, P99: p.P99}
	}
	return out, err
}

// GetLive is GET /v1/analytics/live.
func (a *API) GetLive(ctx context.Context, r GetLiveRequestObject) (GetLiveResponseObject, error) {
	tenant, err := a.countedTenant(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	seconds := a.cfg.Analytics.Live(tenant)
	out := GetLive200JSONResponse{Seconds: []CountPoint{}}
	out.To = Instant{a.cfg.Now().UTC().Truncate(time.Second)}
	out.From = out.To
	for i := range seconds {
		s := &seconds[i]
		if i == 0 {
			out.From = Instant{s.At}
		}
		out.To = Instant{s.At.UTC().Add(time.Second)}
		if s.Requests > 0 {
			out.Seconds = append(out.Seconds, CountPoint{Instant{s.At}, showCounts(&s.Counts)})
		}
	}
	return out, nil
}
