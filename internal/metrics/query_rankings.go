package metrics

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/headgate/headgate/internal/problem"
)

// Policies lists the policies of a tenant with their counts, ordered by requests, the highest
// number first. If q names a policy, Policies lists only this policy.
func (a *Analytics) Policies(ctx context.Context, q Query) (RouteRanking, error) {
	if q.Route != "" {
		return RouteRanking{}, notHere("route")
	}
	return a.rank(ctx, q, CountQuery{Tenant: q.Tenant, Kind: KindPolicy}, q.Policy, wholeRank)
}

// Routes lists the routes of a tenant with their counts, ordered by requests, the highest number
// first. If q names a route, Routes lists only this route.
func (a *Analytics) Routes(ctx context.Context, q Query) (RouteRanking, error) {
	if q.Policy != "" {
		return RouteRanking{}, notHere("policy")
	}
	return a.routes(ctx, q, wholeRank)
}

func (a *Analytics) routes(ctx context.Context, q Query, b rankBounds) (RouteRanking, error) {
	return a.rank(ctx, q, CountQuery{Tenant: q.Tenant, Kind: KindRoute}, q.Route, b)
}

func notHere(pointer string) error { return problem.At(pointer, "is not supported here") }

// rankBounds bounds the number of rows that a ranking of routes or policies reads. The ranking
// first reads the newest rows of all names, up to the bound newest. If there are more rows, it
// reads older rows only for some names: those with the most requests in the rows that it has read.
// It reads older rows for at least ten names. For a time range of more than 90 days in steps of a
// day, it may therefore exceed the bound exact.
type rankBounds struct {
	newest int // maximum number of rows of all names
	exact  int // maximum number of rows of the names with the most requests
}

var (
	wholeRank = rankBounds{newest: 3000, exact: 2000}
	shortRank = rankBounds{newest: 900, exact: 1300} // for Overview, which runs several queries
)

const rankShown = 10 // number of names that have points

func (a *Analytics) rank(ctx context.Context, q Query, of CountQuery, only string, b rankBounds) (RouteRanking, error) {
	r, err := a.reading(ctx, q, bounds{points: 250, rows: 500})
	if err != nil {
		return RouteRanking{}, err
	}
	if only != "" {
		of.Names = []string{only}
	}
	rows, rest, err := a.newest(ctx, r, of, b.newest)
	all := len(rest) == 0
	if err == nil && !all {
		busiest := max(rankShown, b.exact/max(1, int(r.rows)))
		of.Names = names(busiestFirst(rows, busiest))
		rows, err = a.complete(ctx, rows, rest, of)
	}
	if err != nil {
		return RouteRanking{}, err
	}
	list := busiestFirst(rows, 0)
	out := RouteRanking{Span: r.Span, Routes: list[:min(q.limit(), len(list))]}
	out.More = !all || len(list) > len(out.Routes)
	r.addPoints(out.Routes[:min(rankShown, len(out.Routes))], rows)
	return out, nil
}

// newest returns the newest rows of all names, newest first, at most the number most. rest has the
// parts of the time range for which rows may be missing in list. list may contain only some of the
// rows of its oldest step, so rest includes this step. If list has all rows, rest is nil.
func (a *Analytics) newest(ctx context.Context, r reading, of CountQuery, most int) (list []CountRow, rest []part, err error) {
	for i, p := range r.parts {
		of.Limit = most - len(list) + 1
		rows, err := a.store.Counts(ctx, p.query(of))
		if err != nil {
			return nil, nil, err
		}
		if list = append(list, rows...); len(list) > most {
			list = list[:most+1]
			rest = slices.Clone(r.parts[i:])
			rest[0].to = list[most].At + p.step.seconds()
			return list, rest, nil
		}
	}
	return list, nil, nil
}

// complete returns all rows of the names in of. For the time after rest, it takes the rows from
// newest. For the time of rest, it reads the rows from the store.
func (a *Analytics) complete(ctx context.Context, newest []CountRow, rest []part, of CountQuery) ([]CountRow, error) {
	older, err := a.counts(ctx, reading{parts: rest}, of)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(newest, func(c CountRow) bool {
		return c.At < rest[0].to || !slices.Contains(of.Names, c.Name)
	})
	return append(list, older...), nil
}

// busiestFirst adds up the rows of each name. It returns the sums of the names with the most
// requests, ordered by requests, the highest number first. limit is the maximum number of names; 0
// stands for all names.
func busiestFirst(rows []CountRow, limit int) []RouteTraffic {
	sums := make(map[string]*Counts)
	for i := range rows {
		sum := sums[rows[i].Name]
		if sum == nil {
			sum = new(Counts)
			sums[rows[i].Name] = sum
		}
		sum.Add(&rows[i].Counts)
	}
	list := make([]RouteTraffic, 0, len(sums))
	for name, sum := range sums {
		list = append(list, RouteTraffic{Name: name, Total: *sum})
	}
	slices.SortFunc(list, func(a, b RouteTraffic) int {
		return cmp.Or(cmp.Compare(b.Total.Requests, a.Total.Requests), cmp.Compare(a.Name, b.Name))
	})
	if limit > 0 && limit < len(list) {
		list = list[:limit]
	}
	return list
}

func names(list []RouteTraffic) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = list[i].Name
	}
	return out
}

// addPoints sets the points of each element of list from the rows with the same name.
func (r *reading) addPoints(list []RouteTraffic, rows []CountRow) {
	places := make(map[string]int, len(list))
	for i := range list {
		list[i].Points = r.points()
		places[list[i].Name] = i
	}
	for i := range rows {
		if at, shown := places[rows[i].Name]; shown {
			list[at].Points[r.place(rows[i].At)].Add(&rows[i].Counts)
		}
	}
}

// Bounds of the number of rows that a ranking of tenants reads for exact counts. It reads the rows
// of at least ten tenants, even if their number exceeds the bound.
const (
	tenantRows      = 1400
	shortTenantRows = 600 // for Overview, which runs several queries
)

// Tenants ranks tenants by the measure by. The sketches of top tenants only select which tenants
// are listed. The order and the counts of the tenants come from rows of counts and are exact.
func (a *Analytics) Tenants(ctx context.Context, q Query, by Measure) (TenantRanking, error) {
	return a.tenants(ctx, q, by, tenantRows)
}

func (a *Analytics) tenants(ctx context.Context, q Query, by Measure, rows int) (TenantRanking, error) {
	name, measure := SketchLimitedTenants, func(c *Counts) float64 { return float64(c.Limited()) }
	switch by {
	case ByRequests:
		name, measure = SketchBusyTenants, func(c *Counts) float64 { return float64(c.Requests) }
	case ByRate:
		measure = func(c *Counts) float64 { return float64(c.Limited()) / float64(max(1, c.Requests)) }
	}
	q.Tenant = 0
	if err := q.whole(); err != nil {
		return TenantRanking{}, err
	}
	r, err := a.reading(ctx, q, wholeSketches)
	if err != nil {
		return TenantRanking{}, err
	}
	top, err := a.top(ctx, r, 0, name)
	if err != nil {
		return TenantRanking{}, err
	}
	named, floor := top.ranking(nil, max(rankShown, rows/max(1, int(r.rows))))
	sums, err := a.tenantSums(ctx, r, named)
	if err != nil {
		return TenantRanking{}, err
	}
	list := make([]TenantTraffic, 0, len(sums))
	for tenant, sum := range sums {
		list = append(list, TenantTraffic{tenant, *sum})
	}
	slices.SortFunc(list, func(a, b TenantTraffic) int {
		return cmp.Or(cmp.Compare(measure(&b.Counts), measure(&a.Counts)), cmp.Compare(b.Limited(), a.Limited()), cmp.Compare(a.Tenant, b.Tenant))
	})
	return TenantRanking{r.Span, list[:min(q.limit(), len(list))], floor}, nil
}

// tenantSums returns a map from tenant number to exact counts, for the tenants in named.
func (a *Analytics) tenantSums(ctx context.Context, r reading, named []ranked) (map[uint32]*Counts, error) {
	sums := make(map[uint32]*Counts, len(named))
	for i := range named {
		sums[named[i].text.tenant] = new(Counts)
	}
	if len(sums) == 0 {
		return sums, nil
	}
	of := CountQuery{Tenants: slices.Sorted(maps.Keys(sums)), Kind: KindTotal}
	for _, p := range r.parts {
		rows, err := a.store.SumCounts(ctx, p.query(of))
		if err != nil {
			return nil, err
		}
		for i := range rows {
			sums[rows[i].Tenant].Add(&rows[i].Counts)
		}
	}
	return sums, nil
}
