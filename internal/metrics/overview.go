package metrics

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// An Overview is the data of the overview page, the first page of the UI, for one span.
type Overview struct {
	Traffic Traffic
	Before  Traffic // the span of the same length that ends where this one starts; without points
	Limited TopKeys
	Allowed TopKeys
	Routes  RouteRanking
	// RetryAfter covers the queried tenant. Latency covers the shared limiter, for all tenants.
	RetryAfter Histogram
	Latency    Latency
	// Tenants ranks tenants by denial rate. It is only set if the query is for all tenants.
	Tenants TenantRanking
}

// Overview reads the data of the overview page for one tenant or for all tenants. It runs its queries concurrently.
// With three nodes, it reads at most 5,000 rows; each further node adds its sketches, of at most about 200 minutes.
// If one query fails, Overview returns the error. Step applies to Traffic only.
func (a *Analytics) Overview(ctx context.Context, q Query) (Overview, error) {
	var o Overview
	group, ctx := errgroup.WithContext(ctx)
	ask(ctx, group, &o.Traffic, q, a.Traffic)
	q.Step = "" // the step of the query applies only to Traffic
	before := q
	before.From, before.To = q.From.Add(-q.To.Sub(q.From)), q.From
	ask(ctx, group, &o.Before, before, a.Total)
	ask(ctx, group, &o.RetryAfter, q, a.RetryAfter)
	ask(ctx, group, &o.Latency, q, a.Latency)
	ask(ctx, group, &o.Routes, q, func(ctx context.Context, q Query) (RouteRanking, error) { return a.routes(ctx, q, shortRank) })
	group.Go(func() (err error) {
		o.Limited, o.Allowed, err = a.LimitedAndAllowed(ctx, q)
		return err
	})
	if q.Tenant == 0 {
		ask(ctx, group, &o.Tenants, q, func(ctx context.Context, q Query) (TenantRanking, error) {
			return a.tenants(ctx, q, ByRate, shortTenantRows)
		})
	}
	return o, group.Wait()
}

// ask runs one query in a group and stores its result.
func ask[T any](ctx context.Context, group *errgroup.Group, into *T, q Query, question func(context.Context, Query) (T, error)) {
	group.Go(func() (err error) {
		*into, err = question(ctx, q)
		return err
	})
}
