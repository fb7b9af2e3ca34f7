package traffic

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
)

const (
	// maxOverviews is the maximum number of overviews in the cache.
	maxOverviews = 64
	// freshFor is how long a cached overview is shown although newer counts exist. A denial
	// appears on the page within 3 s: within freshFor plus the interval at which nodes write
	// their counts.
	freshFor = 500 * time.Millisecond
	// loadTimeout is the maximum time for loading an overview. If the visitor who started the
	// loading leaves, the loading continues, because other visitors may wait for the same
	// overview.
	loadTimeout = 10 * time.Second
)

// An overview has the counts for a page about traffic. All viewers share it, so nothing may
// change it.
type overview struct {
	metrics.Overview
	before metrics.Latency // latency of the limiter in the previous period
	// past has the counts of the previous period, with which the charts compare. The time of each
	// point is earlier by shift than the time of the point to compare with. past has no points if
	// the page does not compare. It also has none if the counts of the previous period are only
	// stored in longer steps.
	past  metrics.Traffic
	shift time.Duration
	// groups has the counts by tenant, policy or route. It is nil if the charts are not grouped.
	groups *metrics.Groups
	// events are the events that the charts mark, ordered by time. moreEvents is true if older
	// events were left out.
	events     []event
	moreEvents bool
}

// A trafficQuestion is the query for the counts of one page. Pages with equal queries share
// one overview.
type trafficQuestion struct {
	metrics.Query
	// compare is how much earlier the previous period is than the time range of the page. It is 0
	// if the page does not compare.
	compare time.Duration
	by      metrics.Grouping // how the charts of requests and denials are grouped, or ""
}

// A freshness is the version of the data from which an overview was made: the version of the
// counts, and the version of the snapshot.
type freshness struct {
	metrics.Mark
	revision int64
}

// An overviewCache caches overviews by their query. If several visitors have the same query,
// it loads the overview only once. It loads the overview again after the counts have changed.
type overviewCache struct {
	load   func(context.Context, trafficQuestion) (*overview, error)
	flight singleflight.Group
	mu     sync.Mutex
	kept   map[trafficQuestion]keptOverview
}

type keptOverview struct {
	*overview
	loaded time.Time
	mark   freshness
}

// get returns the overview for a query. It uses a cached overview if it was made from the data
// version mark, or if it was loaded less than freshFor ago. Otherwise it loads a new one.
func (k *overviewCache) get(ctx context.Context, q trafficQuestion, mark freshness) (*overview, error) {
	if o := k.find(q, mark); o != nil {
		return o, nil
	}
	done := k.flight.DoChan(fmt.Sprint(q, mark), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
		defer cancel()
		began := time.Now()
		o, err := k.load(ctx, q)
		if err == nil {
			k.keep(q, keptOverview{o, began, mark})
		}
		return o, err
	})
	select {
	case r := <-done:
		return r.Val.(*overview), r.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (k *overviewCache) find(q trafficQuestion, mark freshness) *overview {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, found := k.kept[q]
	if !found || o.mark != mark && time.Since(o.loaded) >= freshFor {
		return nil
	}
	return o.overview
}

// keep adds an overview to the cache. If the cache then has more than maxOverviews, it removes
// the oldest one.
func (k *overviewCache) keep(q trafficQuestion, o keptOverview) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept == nil {
		k.kept = make(map[trafficQuestion]keptOverview)
	}
	k.kept[q] = o
	if len(k.kept) <= maxOverviews {
		return
	}
	oldest := q
	for other, o := range k.kept {
		if o.loaded.Before(k.kept[oldest].loaded) {
			oldest = other
		}
	}
	delete(k.kept, oldest)
}

// overview returns the counts for a query, from the cache if possible. The times of the query
// are whole minutes.
func (w *pages) overview(ctx context.Context, q trafficQuestion) (*overview, error) {
	mark, err := w.cfg.Analytics.Mark(ctx)
	if err != nil {
		return nil, err
	}
	return w.overviews.get(ctx, q, freshness{mark, w.cfg.Snapshot().Revision()})
}

// loadOverview reads the counts for a query from the database: of one tenant, of all tenants,
// of one policy, or of one route.
func (w *pages) loadOverview(ctx context.Context, q trafficQuestion) (*overview, error) {
	o, err := w.loadCounts(ctx, q.Query)
	if err == nil && q.compare > 0 {
		err = w.loadPast(ctx, q, o)
	}
	if err == nil && q.by != "" {
		q.Limit = groupsShown
		var groups metrics.Groups
		groups, err = w.cfg.Analytics.Groups(ctx, q.Query, q.by)
		o.groups = &groups
	}
	return o, err
}

// loadPast reads the counts of the previous period, in steps of the same length as in the
// charts.
func (w *pages) loadPast(ctx context.Context, q trafficQuestion, o *overview) (err error) {
	t := &o.Traffic
	step := t.Step.Duration() * time.Duration(together(t.Step.Duration(), len(t.Points), chartPoints-1))
	o.shift = (q.compare + step - 1) / step * step
	q.From, q.To, q.Step = t.From.Add(-o.shift), t.To.Add(-o.shift), t.Step
	o.past, err = w.cfg.Analytics.Traffic(ctx, q.Query)
	if problem.Is(err, problem.Invalid) { // the counts of the previous period are only stored in longer steps
		return nil
	}
	return err
}

func (w *pages) loadCounts(ctx context.Context, q metrics.Query) (*overview, error) {
	o := new(overview)
	before := q
	before.From, before.To = q.From.Add(-q.To.Sub(q.From)), q.From
	a := w.cfg.Analytics
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { o.events, o.moreEvents, err = w.events(ctx, q.Tenant, q.From, q.To); return err })
	if q.Policy == "" && q.Route == "" {
		group.Go(func() (err error) { o.Overview, err = a.Overview(ctx, q); return err })
		if q.Tenant == 0 {
			group.Go(func() (err error) { o.before, err = a.Latency(ctx, before); return err })
		}
		return o, group.Wait()
	}
	group.Go(func() (err error) { o.Traffic, err = a.Traffic(ctx, q); return err })
	group.Go(func() (err error) { o.Before, err = a.Total(ctx, before); return err })
	if q.Route != "" {
		group.Go(func() (err error) { o.Routes, err = a.Routes(ctx, q); return err })
		return o, group.Wait()
	}
	group.Go(func() (err error) { o.Limited, o.Allowed, err = a.LimitedAndAllowed(ctx, q); return err })
	return o, group.Wait()
}
