package metrics

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/internal/problem"
)

// A Grouping is the property by which Groups divides the counts of a query.
type Grouping string

// The groupings. A decision belongs to one tenant and one route. It belongs to several policies if
// several policies applied to it.
const (
	ByTenant    Grouping = "tenant" // only of all tenants
	ByPolicy    Grouping = "policy"
	ByRouteName Grouping = "route"
)

// Groups contains the counts of the largest groups over time.
type Groups struct {
	Span
	// Groups are the groups with the most requests, and the groups with the most denials by limits.
	// They are ordered by their number of requests, the highest first.
	Groups []Group
	// Total has the sums over all groups, including groups that are not listed. It has the points
	// of the span.
	Total Group
}

// A Group contains the counts of one tenant, policy or route. Points has one element for every step
// of the span.
type Group struct {
	Tenant uint32 // the tenant's number, for ByTenant
	Name   string // the policy or the route
	Total  Counts
	Points []Point
}

// groupRows is the maximum number of stored rows that one call of Groups reads. A query that needs more rows must
// have longer steps. Steps of a day are allowed with any number of rows.
const groupRows = 6000

// groupFields are the counts that Groups returns.
var groupFields = []string{"requests", "over_limit", "never_fits"}

// Groups divides the counts of a query by tenant, policy or route. It returns the q.Limit groups
// with the most requests, and the q.Limit groups with the most denials by limits. In the counts of
// the result, only Requests and the denials by limits are set.
func (a *Analytics) Groups(ctx context.Context, q Query, by Grouping) (Groups, error) {
	if err := q.whole(); err != nil {
		return Groups{}, err
	}
	of, sums, err := a.largestGroups(ctx, q, by)
	if err != nil {
		return Groups{}, err
	}
	largest := largestOf(sums, q.limit())
	readAll := by == ByPolicy // a decision counts for several policies, so the sum over the policies is not the total
	rows := len(largest) + 1
	if readAll {
		rows = len(sums)
	}
	r, err := a.reading(ctx, q, bounds{points: maxPoints, rows: groupRows / int64(max(1, rows))})
	if err != nil {
		return Groups{}, err
	}
	g := Groups{Span: r.Span, Groups: largest, Total: Group{Points: r.points()}}
	places := make(map[groupKey]*Group, len(largest))
	for i := range g.Groups {
		group := &g.Groups[i]
		group.Total, group.Points = Counts{}, r.points()
		places[groupKey{group.Tenant, group.Name}] = group
		of.Tenants, of.Names = append(of.Tenants, group.Tenant), append(of.Names, group.Name)
	}
	if by == ByTenant {
		of.Names = nil
	} else {
		of.Tenants = nil
	}
	total := CountQuery{Tenant: q.Tenant, Kind: KindTotal, Fields: groupFields}
	if readAll {
		of.Names = nil
		total = of
	}
	counted, err := a.counts(ctx, r, total)
	if err != nil {
		return Groups{}, err
	}
	g.Total.addRows(&r, counted)
	if !readAll && len(largest) > 0 {
		if counted, err = a.counts(ctx, r, of); err != nil {
			return Groups{}, err
		}
	}
	for i := range counted {
		key := groupKey{0, counted[i].Name}
		if by == ByTenant {
			key = groupKey{counted[i].Tenant, ""}
		}
		if group := places[key]; group != nil {
			group.addRows(&r, counted[i:i+1])
		}
	}
	return g, nil
}

type groupKey struct {
	tenant uint32
	name   string
}

func (g *Group) addRows(r *reading, rows []CountRow) {
	for i := range rows {
		g.Total.Add(&rows[i].Counts)
		g.Points[r.place(rows[i].At)].Add(&rows[i].Counts)
	}
}

// largestGroups returns the sums of some groups, which include the largest ones, and a query for
// the rows of these groups.
func (a *Analytics) largestGroups(ctx context.Context, q Query, by Grouping) (of CountQuery, sums []Group, err error) {
	of = CountQuery{Tenant: q.Tenant, Kind: KindTotal, Fields: groupFields}
	switch by {
	case ByTenant:
		if q.Tenant != 0 {
			return of, nil, problem.At("by", "must not be tenant for one tenant")
		}
		sums, err = a.largestTenants(ctx, q)
		return of, sums, err
	case ByPolicy:
		of.Kind = KindPolicy
	case ByRouteName:
		of.Kind = KindRoute
	default:
		return of, nil, problem.At("by", "must be tenant, policy or route")
	}
	r, err := a.reading(ctx, q, bounds{rows: maxRows})
	if err != nil {
		return of, nil, err
	}
	named := map[string]*Counts{}
	for _, p := range r.parts {
		rows, err := a.store.SumCounts(ctx, p.query(of))
		if err != nil {
			return of, nil, err
		}
		for i := range rows {
			if named[rows[i].Name] == nil {
				named[rows[i].Name] = new(Counts)
			}
			named[rows[i].Name].Add(&rows[i].Counts)
		}
	}
	for name, sum := range named {
		sums = append(sums, Group{Name: name, Total: *sum})
	}
	return of, sums, nil
}

func (a *Analytics) largestTenants(ctx context.Context, q Query) (sums []Group, err error) {
	var rankings [2]TenantRanking
	group, ctx := errgroup.WithContext(ctx)
	for i, by := range []Measure{ByRequests, ByLimited} {
		group.Go(func() (err error) { rankings[i], err = a.tenants(ctx, q, by, shortTenantRows); return err })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, ranking := range rankings {
		for _, t := range ranking.Tenants {
			if !slices.ContainsFunc(sums, func(g Group) bool { return g.Tenant == t.Tenant }) {
				sums = append(sums, Group{Tenant: t.Tenant, Total: t.Counts})
			}
		}
	}
	return sums, nil
}

// largestOf returns the groups with the most requests, and the groups with the most denials by
// limits, at most limit of each kind. They are ordered by their number of requests, the highest
// first.
func largestOf(groups []Group, limit int) []Group {
	var largest []Group
	for _, number := range []func(*Counts) int64{(*Counts).Limited, func(c *Counts) int64 { return c.Requests }} {
		slices.SortFunc(groups, func(a, b Group) int {
			return cmp.Or(cmp.Compare(number(&b.Total), number(&a.Total)), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
		})
		for i := range groups[:min(limit, len(groups))] {
			g := &groups[i]
			known := slices.ContainsFunc(largest, func(l Group) bool { return l.Tenant == g.Tenant && l.Name == g.Name })
			if number(&g.Total) > 0 && !known {
				largest = append(largest, *g)
			}
		}
	}
	slices.SortStableFunc(largest, func(a, b Group) int { return cmp.Compare(b.Total.Requests, a.Total.Requests) })
	return largest
}
