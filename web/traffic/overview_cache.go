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
	// freshFor is how long an overview is shown although newer counts exist. Together with the
	// interval of flushes, a denial is on the page within 3 s.
	freshFor = 500 * time.Millisecond
	// loadTimeout is the maximum time to load an overview. Loading continues if the viewer for whom
	// it began leaves.
	loadTimeout = 10 * time.Second
)

// An overview has the counts for a time range. All viewers share it, so it must not be changed.
type overview struct {
	metrics.Overview
	before metrics.Latency // latency of the limiter in the time before
	// past are the counts of the time before with which the charts are compared. Each of its points
	// is by shift earlier than the point of Traffic that it is compared with. It has no points without
	// a comparison, and if the counts of that time are kept only in longer steps.
	past  metrics.Traffic
	shift time.Duration
	// groups are the counts by tenant, policy or route; nil if the page does not show them.
	groups *metrics.Groups
	// events are marked in the charts, the oldest first. moreEvents says that older ones are left out.
	events     []event
	moreEvents bool
}

// A trafficQuestion is what a page asks. Pages with equal questions share an overview.
type trafficQuestion struct {
	metrics.Query
	// compare is by how much the time before, which the charts show too, is earlier; 0: they do not
	// show it.
	compare time.Duration
	by      metrics.Grouping // of the charts of requests and denials; "": they are not grouped
}

// A freshness identifies the data that an overview was made of: the counts, and the snapshot.
type freshness struct {
	metrics.Mark
	revision int64
}

// An overviewCache loads the overview for a query once for all viewers. It keeps the overview until
// there are newer counts.
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

// get returns the overview for a query. mark says which data the overview must include.
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

// keep adds an overview to the cache. If there are then too many, it removes the oldest.
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

// overview returns what the page of a query shows. The times of the query are
// whole minutes.
func (w *pages) overview(ctx context.Context, q trafficQuestion) (*overview, error) {
	mark, err := w.cfg.Analytics.Mark(ctx)
	if err != nil {
		return nil, err
	}
	return w.overviews.get(ctx, q, freshness{mark, w.cfg.Snapshot().Revision()})
}

// loadOverview reads one overview: in one call for a tenant or all tenants, or
// what is counted of one policy or one route.
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

// loadPast reads the counts of the time before, in the steps of the charts.
func (w *pages) loadPast(ctx context.Context, q trafficQuestion, o *overview) (err error) {
	t := &o.Traffic
	step := t.Step.Duration() * time.Duration(together(t.Step.Duration(), len(t.Points), chartPoints-1))
	o.shift = (q.compare + step - 1) / step * step
	q.From, q.To, q.Step = t.From.Add(-o.shift), t.To.Add(-o.shift), t.Step
	o.past, err = w.cfg.Analytics.Traffic(ctx, q.Query)
	if problem.Is(err, problem.Invalid) { // the counts of that time are kept in longer steps
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
