package metrics

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// An Overview is the data of the overview page, the first page of the UI, for one time range.
type Overview struct {
	Traffic Traffic
	Before  Traffic // the time range of the same length that ends where the range of the query starts; without points
	Limited TopKeys
	Allowed TopKeys
	Routes  RouteRanking
	// RetryAfter covers the tenant of the query, or all tenants if the query has none. Latency
	// always covers the limiter calls for all tenants.
	RetryAfter Histogram
	Latency    Latency
	// Tenants ranks tenants by denial rate. It is set only if the query is for all tenants.
	Tenants TenantRanking
}

// Overview returns the data of the overview page for one tenant, or for all tenants if q.Tenant is
// 0. It runs its queries concurrently, and returns an error if one of them fails. q.Step applies
// only to Traffic; each other query chooses its own step. With three nodes, Overview reads at most
// 5,000 rows. Each further node adds at most about 200 sketches of each name.
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

// ask runs question with q in a goroutine of group and stores the result in into.
func ask[T any](ctx context.Context, group *errgroup.Group, into *T, q Query, question func(context.Context, Query) (T, error)) {
	group.Go(func() (err error) {
		*into, err = question(ctx, q)
		return err
	})
}
