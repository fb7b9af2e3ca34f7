package metrics

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// AnalyticsConfig configures Analytics.
type AnalyticsConfig struct {
	// Now returns the current time. No query returns steps that begin later. Default: time.Now.
	Now func() time.Time
	// Live returns the counts of a tenant by second on this node. Analytics.Live calls it. Default:
	// none.
	Live func(tenant uint32, since time.Time) []Second
	// Pending returns a kept denial that this node has not written to the store yet.
	// Analytics.Refusal calls it. Default: none.
	Pending func(id [16]byte) (Refusal, bool)
	// Logger logs sketches that cannot be decoded. Default: no logging.
	Logger *slog.Logger
}

// Analytics answers queries about counts from the Store. The results include all counts up to the
// last flush of each node. For an unknown tenant, policy or route, the counts are zero; that is not
// an error. Analytics is safe for concurrent use.
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

// Traffic returns the counts of decisions over time for a tenant, a policy, or a route.
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

// Total returns the same counts as Traffic for the whole time range, without points, and reads
// fewer rows. The time range is rounded to minutes. Where the rows of minutes are deleted, it is
// rounded to hours or days.
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

// counts returns a CountQuery for the tenant, policy or route that q names. The error is
// problem.Invalid if q names both a policy and a route.
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

// maxRefusals is the maximum number of kept denials in one result.
const maxRefusals = 500

// Refusals returns the kept denials that match a filter, newest first.
func (a *Analytics) Refusals(ctx context.Context, f RefusalFilter) ([]Refusal, error) {
	if !f.From.IsZero() && !f.To.IsZero() && !f.To.After(f.From) {
		return nil, notAfter()
	}
	f.Limit = min(f.Limit, maxRefusals)
	return a.store.Refusals(ctx, f)
}

// Refusal returns a kept denial by its decision ID, even if this node has not written it to the
// store yet. The error is problem.NotFound if the denial is not kept, or if tenant is not 0 and the
// denial belongs to another tenant.
func (a *Analytics) Refusal(ctx context.Context, id [16]byte, tenant uint32) (Refusal, error) {
	if r, found := a.cfg.Pending(id); found && (tenant == 0 || tenant == r.Tenant) {
		return r, nil
	}
	return a.store.Refusal(ctx, id, tenant)
}

// liveSpan is the length of the time before now for which Live returns counts.
const liveSpan = 15 * time.Minute

// Live returns the counts of a tenant by second for the last 15 minutes, or of all tenants if
// tenant is 0. They are the counts of this node only: the Store has the counts of all nodes, but
// only by minute.
func (a *Analytics) Live(tenant uint32) []Second {
	return a.cfg.Live(tenant, a.cfg.Now().Add(-liveSpan))
}
