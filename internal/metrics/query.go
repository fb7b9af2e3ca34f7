package metrics

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// AnalyticsConfig configures Analytics.
type AnalyticsConfig struct {
	// Now returns the current time, which is the end of the available data. Default: time.Now.
	Now func() time.Time
	// Live returns the last seconds of a tenant on this node. Default: none.
	Live func(tenant uint32, since time.Time) []Second
	// Pending returns a denial that this node has not stored yet. Default: none.
	Pending func(id [16]byte) (Refusal, bool)
	// Logger logs sketches that cannot be decoded. Default: no logging.
	Logger *slog.Logger
}

// Analytics answers queries from the Store. The results include the last flush of every node. It is safe for
// concurrent use. For an unknown tenant, policy or route, the counts are zero and there is no error.
type Analytics struct {
	store  Store
	cfg    AnalyticsConfig
	memory memory
	marked sharedMark
}

// NewAnalytics returns an Analytics that reads from a store.
func NewAnalytics(store Store, c AnalyticsConfig) *Analytics {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Live == nil {
		c.Live = func(uint32, time.Time) []Second { return nil }
	}
	if c.Pending == nil {
		c.Pending = func([16]byte) (Refusal, bool) { return Refusal{}, false }
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return &Analytics{store: store, cfg: c, marked: newSharedMark()}
}

// Traffic returns the number of decisions over time for a tenant, a policy, or a route.
func (a *Analytics) Traffic(ctx context.Context, q Query) (Traffic, error) {
	of, err := q.counts()
	if err != nil {
		return Traffic{}, err
	}
	r, err := a.reading(ctx, q, bounds{points: maxPoints, rows: maxRows})
	if err != nil {
		return Traffic{}, err
	}
	rows, err := a.counts(ctx, r, of)
	if err != nil {
		return Traffic{}, err
	}
	t := Traffic{Span: r.Span, Points: r.points()}
	for i := range rows {
		t.Total.Add(&rows[i].Counts)
		t.Points[r.place(rows[i].At)].Add(&rows[i].Counts)
	}
	return t, nil
}

// Total is Traffic without points. It reads few rows. The span is exact to the minute as long as the store keeps rows
// of minutes.
func (a *Analytics) Total(ctx context.Context, q Query) (Traffic, error) {
	of, err := q.counts()
	if err != nil {
		return Traffic{}, err
	}
	r, err := a.reading(ctx, q, bounds{rows: maxRows})
	if err != nil {
		return Traffic{}, err
	}
	rows, err := a.counts(ctx, r, of)
	t := Traffic{Span: r.Span}
	for i := range rows {
		t.Total.Add(&rows[i].Counts)
	}
	return t, err
}

// counts returns the CountQuery for the tenant, policy or route of q. The error is problem.Invalid if q names both a
// policy and a route.
func (q *Query) counts() (CountQuery, error) {
	of := CountQuery{Tenant: q.Tenant, Kind: KindTotal}
	switch {
	case q.Policy != "" && q.Route != "":
		return of, problem.At("route", "must not be set together with policy")
	case q.Policy != "":
		of.Kind, of.Names = KindPolicy, []string{q.Policy}
	case q.Route != "":
		of.Kind, of.Names = KindRoute, []string{q.Route}
	}
	return of, nil
}

func (a *Analytics) counts(ctx context.Context, r reading, of CountQuery) (list []CountRow, err error) {
	for _, p := range r.parts {
		rows, err := a.store.Counts(ctx, p.query(of))
		if err != nil {
			return nil, err
		}
		list = append(list, rows...)
	}
	return list, nil
}

// Policies ranks the policies of a tenant by requests, the highest first.
func (a *Analytics) Policies(ctx context.Context, q Query) (RouteRanking, error) {
	if q.Route != "" {
		return RouteRanking{}, notHere("route")
	}
	return a.rank(ctx, q, CountQuery{Tenant: q.Tenant, Kind: KindPolicy}, q.Policy, wholeRank)
}

// Routes ranks the routes of a tenant by requests, the highest first.
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

// rankBounds bounds the rows that a ranking of routes or policies reads. It first reads rows of all names, newest
// first, up to newest rows. If there are more, it reads the older rows only of the names that were busiest in the
// newest rows. For a span of more than 90 days in steps of a day, it may read more, for ten names.
type rankBounds struct {
	newest int // maximum number of rows of all names
	exact  int // maximum number of rows of the busiest names
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

// newest reads at most most rows of all names, newest first. rest is the time range whose rows it did not read
// completely, including the oldest step in list. rest is nil if list is complete.
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

// complete returns all rows of the names of a query. It takes the rows of the newest steps from newest and reads the
// rows of rest from the store.
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

// busiestFirst sums up rows by name and returns the sums, most requests first. It returns at most limit names; 0
// means no maximum.
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

// addPoints fills the points of each element of list from rows.
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

// The number of rows that a ranking of tenants reads for exact counts. It always reads the rows of at least ten
// tenants.
const (
	tenantRows      = 1400
	shortTenantRows = 600 // for Overview, which runs several queries
)

// Tenants ranks the tenants that the sketches of top tenants contain. It orders them by their exact counts.
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

// tenantSums returns the exact counts of the tenants in a ranking, by tenant number.
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

// maxRefusals is the maximum number of denials on one page.
const maxRefusals = 500

// Refusals returns the kept denials that match a filter, newest first.
func (a *Analytics) Refusals(ctx context.Context, f RefusalFilter) ([]Refusal, error) {
	if !f.From.IsZero() && !f.To.IsZero() && !f.To.After(f.From) {
		return nil, notAfter()
	}
	f.Limit = min(f.Limit, maxRefusals)
	return a.store.Refusals(ctx, f)
}

// Refusal returns a kept denial by its decision ID, even if this node has not stored it yet. The error is
// problem.NotFound if there is none, or if tenant is not 0 and is not the denial's tenant.
func (a *Analytics) Refusal(ctx context.Context, id [16]byte, tenant uint32) (Refusal, error) {
	if r, found := a.cfg.Pending(id); found && (tenant == 0 || tenant == r.Tenant) {
		return r, nil
	}
	return a.store.Refusal(ctx, id, tenant)
}

// liveSpan is the age of the oldest second that Live returns.
const liveSpan = 15 * time.Minute

// Live returns the last seconds of a tenant, or of all tenants if tenant is 0. It covers this node only, because the
// Store has rows of minutes, but no seconds of other nodes.
func (a *Analytics) Live(tenant uint32) []Second {
	return a.cfg.Live(tenant, a.cfg.Now().Add(-liveSpan))
}
