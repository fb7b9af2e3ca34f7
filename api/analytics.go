package api

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
)

// What was counted, on the wire. Tenants are counted by number and shown by
// slug; a tenant key is bound to its own.

// counts tells whether this node can say what was counted.
func (a *API) counts() error {
	if a.cfg.Analytics == nil {
		return problem.New(problem.Unavailable, "this node does not count")
	}
	return nil
}

// countedTenant is the number of the tenant to which a reading is bound; 0 for
// all, which only the operator can have.
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

// defaultSpan is how long a range is whose beginning is not said.
const defaultSpan = time.Hour

// span fills in what a range leaves out.
func (a *API) span(from, to time.Time) (metrics.Query, error) {
	q := metrics.Query{From: from, To: to}
	if q.To.IsZero() {
		q.To = a.cfg.Now()
		if !q.From.IsZero() && !q.From.Before(q.To) {
			return q, malformedAt("from", "must be before now, as to is left out")
		}
	}
	if q.From.IsZero() {
		q.From = q.To.Add(-defaultSpan)
	}
	return q, nil
}

// query is what the parameters of a reading ask for.
func (a *API) query(ctx context.Context, tenant string, from, to time.Time) (metrics.Query, error) {
	number, err := a.countedTenant(ctx, tenant)
	if err != nil {
		return metrics.Query{}, err
	}
	q, err := a.span(from, to)
	q.Tenant = number
	return q, err
}

// slugOf is a tenant's slug by its number.
func (c caller) slugOf(number uint32) string {
	if s, ok := c.world.SubjectByNumber(number); ok {
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
		out[i] = CountPoint{points[i].At.UTC(), showCounts(&points[i].Counts)}
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

// asked turns what Analytics refuses into a fault of a parameter: what a query
// asks for is 400, as what it cannot say.
func asked(err error) error {
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
	q, err := a.query(ctx, p.Tenant, p.From, p.To)
	if err != nil {
		return nil, err
	}
	if p.Policy != "" && p.Route != "" {
		return nil, malformedAt("route", "cannot be together with policy")
	}
	q.Policy, q.Route, q.Step = p.Policy, p.Route, metrics.Step(p.Step)
	t, err := a.cfg.Analytics.Traffic(ctx, q)
	if err != nil {
		return nil, asked(err)
	}
	return GetTraffic200JSONResponse{
		From: t.From.UTC(), To: t.To.UTC(), Step: CountStep(t.Step), Total: showCounts(&t.Total), Points: showPoints(t.Points),
	}, nil
}

// GetPolicyTraffic is GET /v1/analytics/policies.
func (a *API) GetPolicyTraffic(ctx context.Context, r GetPolicyTrafficRequestObject) (GetPolicyTrafficResponseObject, error) {
	p := r.Params
	q, err := a.query(ctx, p.Tenant, p.From, p.To)
	if err != nil {
		return nil, err
	}
	q.Step, q.Limit = metrics.Step(p.Step), p.Limit
	t, err := a.cfg.Analytics.Policies(ctx, q)
	if err != nil {
		return nil, asked(err)
	}
	out := GetPolicyTraffic200JSONResponse{
		From: t.From.UTC(), To: t.To.UTC(), Step: CountStep(t.Step), Policies: make([]CountedPolicy, len(t.Routes)), More: t.More,
	}
	for i := range t.Routes {
		p := &t.Routes[i]
		out.Policies[i] = CountedPolicy{Policy: p.Name, Total: showCounts(&p.Total), Points: showPoints(p.Points)}
	}
	return out, nil
}

// GetRouteTraffic is GET /v1/analytics/routes.
func (a *API) GetRouteTraffic(ctx context.Context, r GetRouteTrafficRequestObject) (GetRouteTrafficResponseObject, error) {
	p := r.Params
	q, err := a.query(ctx, p.Tenant, p.From, p.To)
	if err != nil {
		return nil, err
	}
	q.Step, q.Limit = metrics.Step(p.Step), p.Limit
	t, err := a.cfg.Analytics.Routes(ctx, q)
	if err != nil {
		return nil, asked(err)
	}
	out := GetRouteTraffic200JSONResponse{
		From: t.From.UTC(), To: t.To.UTC(), Step: CountStep(t.Step), Routes: make([]CountedRoute, len(t.Routes)), More: t.More,
	}
	for i := range t.Routes {
		p := &t.Routes[i]
		out.Routes[i] = CountedRoute{Route: p.Name, Total: showCounts(&p.Total), Points: showPoints(p.Points)}
	}
	return out, nil
}

// GetTenantTraffic is GET /v1/analytics/tenants.
func (a *API) GetTenantTraffic(ctx context.Context, r GetTenantTrafficRequestObject) (GetTenantTrafficResponseObject, error) {
	p := r.Params
	q, err := a.query(ctx, "", p.From, p.To)
	if err != nil {
		return nil, err
	}
	q.Limit = p.Limit
	by := metrics.ByLimited
	if p.Sort != "" {
		by = metrics.Measure(p.Sort)
	}
	t, err := a.cfg.Analytics.Tenants(ctx, q, by)
	if err != nil {
		return nil, asked(err)
	}
	who := callerOf(ctx)
	out := GetTenantTraffic200JSONResponse{
		From: t.From.UTC(), To: t.To.UTC(), Step: CountStep(t.Step), Tenants: make([]CountedTenant, len(t.Tenants)), Floor: t.Floor,
	}
	for i := range t.Tenants {
		out.Tenants[i] = CountedTenant{Tenant: who.slugOf(t.Tenants[i].Tenant), Counts: showCounts(&t.Tenants[i].Counts)}
	}
	return out, nil
}

// GetTopKeys is GET /v1/analytics/keys.
func (a *API) GetTopKeys(ctx context.Context, r GetTopKeysRequestObject) (GetTopKeysResponseObject, error) {
	p := r.Params
	q, err := a.query(ctx, p.Tenant, p.From, p.To)
	if err != nil {
		return nil, err
	}
	q.Policy, q.Limit = p.Policy, p.Limit
	by := metrics.LimitedKeys
	if p.Outcome != "" {
		by = metrics.KeyRanking(p.Outcome)
	}
	t, err := a.cfg.Analytics.Keys(ctx, q, by)
	if err != nil {
		return nil, asked(err)
	}
	who := callerOf(ctx)
	out := GetTopKeys200JSONResponse{
		From: t.From.UTC(), To: t.To.UTC(), Step: CountStep(t.Step), Keys: make([]TopKey, len(t.Keys)), Floor: t.Floor, Total: t.Total,
	}
	for i := range t.Keys {
		out.Keys[i] = showTopKey(who, &t.Keys[i])
	}
	return out, nil
}

// showTopKey shows a key as blocks and resets take it: ip/64 is of the attribute
// ip, and what was not sent is left out.
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

// GetRetryAfter is GET /v1/analytics/retry-after.
func (a *API) GetRetryAfter(ctx context.Context, r GetRetryAfterRequestObject) (GetRetryAfterResponseObject, error) {
	q, err := a.query(ctx, r.Params.Tenant, r.Params.From, r.Params.To)
	if err != nil {
		return nil, err
	}
	h, err := a.cfg.Analytics.RetryAfter(ctx, q)
	if err != nil {
		return nil, asked(err)
	}
	return GetRetryAfter200JSONResponse{
		From: h.From.UTC(), To: h.To.UTC(), Step: CountStep(h.Step), Count: h.Count, Never: h.Never,
		P50: h.P50, P95: h.P95, P99: h.P99, Buckets: showBuckets(h.Buckets),
	}, nil
}

// GetRemaining is GET /v1/analytics/remaining.
func (a *API) GetRemaining(ctx context.Context, r GetRemainingRequestObject) (GetRemainingResponseObject, error) {
	p := r.Params
	q, err := a.query(ctx, p.Tenant, p.From, p.To)
	if err != nil {
		return nil, err
	}
	q.Policy = p.Policy
	t, err := a.cfg.Analytics.Remaining(ctx, q)
	if err != nil {
		return nil, asked(err)
	}
	out := GetRemaining200JSONResponse{
		From: t.From.UTC(), To: t.To.UTC(), Step: CountStep(t.Step), Policies: make([]PolicyRemaining, len(t.Policies)),
	}
	for i, p := range t.Policies {
		out.Policies[i] = PolicyRemaining{Policy: p.Policy, Count: p.Count, Buckets: showBuckets(p.Buckets)}
	}
	return out, nil
}

// GetLatency is GET /v1/analytics/latency.
func (a *API) GetLatency(ctx context.Context, r GetLatencyRequestObject) (GetLatencyResponseObject, error) {
	p := r.Params
	q, err := a.query(ctx, "", p.From, p.To)
	if err != nil {
		return nil, err
	}
	q.Step = metrics.Step(p.Step)
	l, err := a.cfg.Analytics.Latency(ctx, q)
	if err != nil {
		return nil, asked(err)
	}
	out := GetLatency200JSONResponse{
		From: l.From.UTC(), To: l.To.UTC(), Step: CountStep(l.Step), Count: l.Count, P50: l.P50, P95: l.P95, P99: l.P99,
		Buckets: showBuckets(l.Buckets), Shared: showHistogram(&l.Shared), Local: showHistogram(&l.Local),
		Points: make([]LatencyPoint, len(l.Points)),
	}
	for i, p := range l.Points {
		out.Points[i] = LatencyPoint{At: p.At.UTC(), Count: p.Count, P50: p.P50, P95: p.P95, P99: p.P99}
	}
	return out, nil
}

// GetLive is GET /v1/analytics/live.
func (a *API) GetLive(ctx context.Context, r GetLiveRequestObject) (GetLiveResponseObject, error) {
	tenant, err := a.countedTenant(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	seconds := a.cfg.Analytics.Live(tenant)
	out := GetLive200JSONResponse{Seconds: []CountPoint{}}
	out.To = a.cfg.Now().UTC().Truncate(time.Second)
	out.From = out.To
	for i := range seconds {
		s := &seconds[i]
		if i == 0 {
			out.From = s.At.UTC()
		}
		out.To = s.At.UTC().Add(time.Second)
		if s.Requests > 0 {
			out.Seconds = append(out.Seconds, CountPoint{s.At.UTC(), showCounts(&s.Counts)})
		}
	}
	return out, nil
}
