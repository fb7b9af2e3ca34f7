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
	// Now returns the current time. The result of a query has no steps that begin after this time.
	// Default: time.Now.
	Now func() time.Time
	// Live returns the counts of a tenant on this node, for each second after the time since. The
	// method Live of Analytics calls it. Default: a function that returns no counts.
	Live func(tenant uint32, since time.Time) []Second
	// Pending returns the kept denial with this decision ID, if this node has not yet written the
	// denial to the store. The method Refusal of Analytics calls it. Default: a function that finds
	// none.
	Pending func(id [16]byte) (Refusal, bool)
	// Logger logs sketches that cannot be decoded. Default: no logging.
	Logger *slog.Logger
}

// Analytics answers queries about counts from the Store. The results include all counts that
// each node has flushed. For an unknown tenant, policy or route, the counts are zero, and there
// is no error. Analytics is safe for concurrent use.
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

// Total returns the same sums as Traffic for the whole time range, without points. It reads fewer
// rows than Traffic. Total widens the time range to whole minutes. Where the rows of minutes are
// deleted, it widens the range to whole hours or days.
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

// MaxRefusals is the maximum number of kept decisions in one result.
const MaxRefusals = 2000

// Refusals returns the kept decisions that match f, newest first: at most f.Limit, and at most
// MaxRefusals.
func (a *Analytics) Refusals(ctx context.Context, f RefusalFilter) ([]Refusal, error) {
	if !f.From.IsZero() && !f.To.IsZero() && !f.To.After(f.From) {
		return nil, notAfter()
	}
	f.Limit = min(f.Limit, MaxRefusals)
	return a.store.Refusals(ctx, f)
}

// Refusal returns a kept decision by its decision ID, even if this node has not written it to the
// store yet. The error is problem.NotFound if the denial is not kept, or if tenant is not 0 and the
// denial belongs to another tenant.
func (a *Analytics) Refusal(ctx context.Context, id [16]byte, tenant uint32) (Refusal, error) {
	if r, found := a.cfg.Pending(id); found && (tenant == 0 || tenant == r.Tenant) {
		return r, nil
	}
	return a.store.Refusal(ctx, id, tenant)
}

// liveSpan is how far back the counts reach that Live returns.
const liveSpan = 15 * time.Minute

// Live returns the counts of a tenant for each second of the last 15 minutes. Tenant 0 is the sum
// over all tenants. The result contains only the counts of this node, because the Store has no
// counts by second.
func (a *Analytics) Live(tenant uint32) []Second {
	return a.cfg.Live(tenant, a.cfg.Now().Add(-liveSpan))
}
