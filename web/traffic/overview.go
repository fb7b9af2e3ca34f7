package traffic

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// trafficParts is everything that is counted of a tenant's number over a time,
// as a page shows it (views.LiveTraffic), and the fragments of its stream; of 0
// of all tenants together. It is what /overview shows, and what a tenant's own
// page can show:
//
//	traffic, _, err := w.trafficParts(ctx, s, tenant.Number, path, also)
//	…
//	@LiveTraffic(traffic)
//
// path and also are the page's address without its time, which links keep; also
// may have policy or route, and then it is of that one only. The page must have
// Charts, and its stream sends the fragments:
//
//	return w.stream(c, s.every(), w.liveTraffic(c, tenant.Number, path, also))
//
// Several who ask the same at once share one answer.
func (w *pages) trafficParts(ctx context.Context, s web.TimeRange, tenant uint32, path string, also url.Values) (views.Traffic,
	[]web.Fragment, error,
) {
	o, err := w.overview(ctx, trafficQuery(s, tenant, also))
	if err != nil {
		return views.Traffic{}, nil, err
	}
	t := w.drawTraffic(o, s, tenant, path, also)
	return t, trafficFragments(t), nil
}

// trafficFragments are the parts of a page of traffic that change.
func trafficFragments(t views.Traffic) []web.Fragment {
	if t.Empty != nil {
		return nil
	}
	list := []web.Fragment{
		{Event: "tiles", Body: views.TrafficTiles(t)},
		{Event: t.Requests.ID, Body: views.ChartTable(t.Requests)},
		{Event: t.Rate.ID, Body: views.ChartTable(t.Rate)},
		{Event: t.Split.ID, Body: views.ChartTable(t.Split)},
	}
	for _, k := range []*views.KeyTable{t.Limited, t.Allowed} {
		if k != nil {
			list = append(list, web.Fragment{Event: k.ID, Body: views.KeyRows(*k)})
		}
	}
	if t.Routes != nil {
		list = append(list, web.Fragment{Event: t.Routes.ID, Body: views.RouteRows(*t.Routes)})
	}
	if t.RetryAfter != nil {
		list = append(list, web.Fragment{Event: t.RetryAfter.ID, Body: views.BarsBody(*t.RetryAfter)})
	}
	if t.Latency != nil {
		list = append(list, web.Fragment{Event: t.Latency.ID, Body: views.ChartTable(*t.Latency)})
	}
	if t.Tenants != nil {
		list = append(list, web.Fragment{Event: t.Tenants.ID, Body: views.TenantRows(*t.Tenants)})
	}
	return list
}

// liveTraffic draws the stream of a page of traffic. A page that was empty gets
// all of it when the first request comes, and one whose last request grew too old
// is empty again. The stream of a page that was drawn empty has empty=1.
func (w *pages) liveTraffic(c echo.Context, tenant uint32, path string, also url.Values) func(context.Context) ([]web.Fragment, error) {
	params := c.QueryParams()
	empty := params.Get("empty") == "1"
	var drawn *overview
	return func(ctx context.Context) ([]web.Fragment, error) {
		s := web.ParseTimeRange(params, w.Now())
		o, err := w.overview(ctx, trafficQuery(s, tenant, also))
		if err != nil || o == drawn {
			return nil, err
		}
		drawn = o
		t := w.drawTraffic(o, s, tenant, path, also)
		list := trafficFragments(t)
		if was := empty; was != (t.Empty != nil) {
			empty = !was
			list = append([]web.Fragment{{Event: "traffic-all", Body: views.TrafficAll(t)}}, list...)
		}
		return list, nil
	}
}

// trafficLive is the address of the stream of a page of traffic; "" when it
// stands still.
func trafficLive(s web.TimeRange, path string, also url.Values, t views.Traffic) string {
	if !s.Live {
		return ""
	}
	with := url.Values{}
	for name, values := range also {
		with[name] = values
	}
	if t.Empty != nil {
		with.Set("empty", "1")
	}
	return s.Address(path, with)
}

// trafficQuery is what is asked: in whole minutes, so that all who look at a
// preset ask the same, and a preset in whole points of its charts.
func trafficQuery(s web.TimeRange, tenant uint32, also url.Values) metrics.Query {
	unit, now := time.Minute, s.Preset != ""
	if now {
		unit = pointOf(s.To.Sub(s.From))
	}
	q := metrics.Query{
		Tenant: tenant, Policy: also.Get("policy"), Route: also.Get("route"),
		From: s.From.Truncate(unit), To: s.To.Truncate(time.Minute),
	}
	if now || q.To.Before(s.To) || !q.To.After(q.From) {
		q.To = q.To.Add(time.Minute)
	}
	return q
}

// errNoFilter is the answer to a stream whose filter names what is not there:
// without it, the stream would be of everything.
var errNoFilter = problem.New(problem.Invalid, "a filter of this page cannot be used")

// unfiltered is in the place of what a page would show when a filter of its
// cannot be used: what it was not asked for would look like an answer.
func unfiltered() *views.Empty {
	return &views.Empty{Title: "Nothing is shown", Text: "A filter cannot be used: its field says why. Mend it, or take it away."}
}

// overviewOf reads what narrows the overview. What cannot be used is told at its
// field: the page then shows nothing.
func (w *pages) overviewOf(c echo.Context) (tenant uint32, also url.Values, faults map[string]string, err error) {
	q, faults := c.QueryParams(), map[string]string{}
	also = url.Values{}
	for _, name := range []string{"tenant", "policy", "route"} {
		if v := strings.TrimSpace(q.Get(name)); v != "" {
			also.Set(name, v)
		}
	}
	if also.Get("policy") != "" && also.Get("route") != "" {
		faults["route"] = "Choose a policy or a route, not both."
		also.Del("route")
	}
	if slug := also.Get("tenant"); slug != "" {
		t, err := w.cfg.Tenants.Tenant(c.Request().Context(), slug)
		switch {
		case problem.Is(err, problem.NotFound):
			faults["tenant"] = "There is no tenant of this name."
			also.Del("tenant")
		case err != nil:
			return 0, nil, nil, err
		default:
			tenant = t.Number
			also.Set("tenant", t.Slug)
		}
	}
	return tenant, also, faults, nil
}

func (w *pages) showOverview(c echo.Context) error {
	const path = "/overview"
	tenant, also, faults, err := w.overviewOf(c)
	if err != nil {
		return err
	}
	s := web.ParseTimeRange(c.QueryParams(), w.Now())
	if len(faults) > 0 {
		return w.Render(c, http.StatusUnprocessableEntity, views.OverviewPage(w.Page(c, "Overview"), views.Overview{
			Ranges: s.Picker(path, also, false), Filters: w.overviewFilters(c, s, path, also, faults), Traffic: views.Traffic{Empty: unfiltered()},
		}))
	}
	traffic, _, err := w.trafficParts(c.Request().Context(), s, tenant, path, also)
	if err != nil {
		return err
	}
	if traffic.Empty != nil {
		if traffic.Empty, err = w.emptyTraffic(c, also); err != nil {
			return err
		}
	}
	p := w.Page(c, "Overview")
	p.Charts, p.Live = true, trafficLive(s, path+"/live", also, traffic)
	return w.Render(c, http.StatusOK, views.OverviewPage(p, views.Overview{
		Ranges: s.Picker(path, paused(s, also), true), Filters: w.overviewFilters(c, s, path, also, faults), Traffic: traffic,
	}))
}

func (w *pages) liveOverview(c echo.Context) error {
	tenant, also, faults, err := w.overviewOf(c)
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		return errNoFilter
	}
	s := web.ParseTimeRange(c.QueryParams(), w.Now())
	return w.Stream(c, s.Interval(), w.liveTraffic(c, tenant, "/overview", also))
}

// paused keeps in links that a page stands still.
func paused(s web.TimeRange, also url.Values) url.Values {
	if s.Live || s.Preset == "" {
		return also
	}
	return with(also, "live", "0")
}

// with is a query with one part changed; "": without it.
func with(also url.Values, name, value string) url.Values {
	out := url.Values{}
	for n, values := range also {
		if n != name {
			out[n] = values
		}
	}
	if value != "" {
		out.Set(name, value)
	}
	return out
}

// overviewFilters is where the overview is narrowed.
func (w *pages) overviewFilters(c echo.Context, s web.TimeRange, path string, also url.Values, faults map[string]string) views.Filters {
	f := views.Filters{Action: path, ClearURL: s.Address(path, nil)}
	for _, field := range []views.FilterField{
		{Name: "tenant", Label: "Tenant", Placeholder: "acme"},
		{Name: "policy", Label: "Policy", Placeholder: "login-per-ip"},
		{Name: "route", Label: "Route", Placeholder: "/v1/login"},
	} {
		field.Value, field.Error = also.Get(field.Name), faults[field.Name]
		if field.Error != "" {
			field.Value = c.QueryParam(field.Name)
			f.Fields = append(f.Fields, field)
			continue
		}
		f.Fields = append(f.Fields, field)
		if field.Value != "" {
			f.Chips = append(f.Chips, views.Chip{Name: field.Label, Value: field.Value, RemoveURL: s.Address(path, with(also, field.Name, ""))})
		}
	}
	for name, values := range s.Values() {
		f.Hidden = append(f.Hidden, views.Hidden{Name: name, Value: values[0]})
	}
	return f
}

// emptyTraffic says what to do when nothing was decided in a time.
func (w *pages) emptyTraffic(c echo.Context, also url.Values) (*views.Empty, error) {
	e := &views.Empty{Title: "No request was decided in this time"}
	if also.Get("policy") != "" || also.Get("route") != "" {
		e.Text = "Nothing was counted of this policy or route. Take the filter away, or choose a longer time."
		return e, nil
	}
	tenant := also.Get("tenant")
	if tenant == "" {
		list, err := w.cfg.Tenants.Tenants(c.Request().Context(), tenants.Filter{Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			e.Text = "There is no tenant yet. Create one with a plan and an API key: its first check is here within three seconds."
			e.Link = views.Link{Text: "Create a tenant", URL: "/tenants"}
			return e, nil
		}
		tenant = list[0].Slug
	}
	e.Text = "Send a check: it is here within three seconds. " +
		"The key is an operator's, or one of the tenant, which are made under API keys on the tenant's page."
	e.Curl = checkCurl(w.Origin(c), tenant)
	e.Link = views.Link{Text: "API keys of " + tenant, URL: "/tenants/" + tenant + "/keys"}
	return e, nil
}

// checkCurl is a check to paste; tenant "": of the key's own.
func checkCurl(origin, tenant string) string {
	body := `{"method": "GET", "path": "/v1/search", "attributes": {"user": "u1"}}`
	if tenant != "" {
		body = `{"tenant": ` + web.JSONText(tenant) + `, "method": "GET", "path": "/v1/search", "attributes": {"user": "u1"}}`
	}
	return web.Curl(origin+"/v1/check", body)
}
