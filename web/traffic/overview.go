package traffic

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/requests"
	"github.com/headgate/headgate/web/saved"
	"github.com/headgate/headgate/web/share"
	"github.com/headgate/headgate/web/views"
)

// traffic returns what a page about traffic shows: for the tenant with this number, or for all
// tenants if the number is 0. path is the path of the page. also has its query parameters
// without the time range, which can include a filter by policy or route. Concurrent calls with
// the same query read the counts only once.
func (w *pages) traffic(c echo.Context, s web.TimeRange, tenant uint32, path string, also url.Values) (views.Traffic, error) {
	o, err := w.overview(c.Request().Context(), trafficQuery(s, tenant, also))
	if err != nil {
		return views.Traffic{}, err
	}
	d := drawing{w: w, o: o, s: s, tenant: tenant, member: isMember(c), path: path, also: also}
	return d.traffic(), nil
}

// isMember reports whether the visitor is a member of a tenant, and not one of the operator's
// people.
func isMember(c echo.Context) bool { return web.VisitorOf(c).User.TenantID != "" }

// trafficFragments returns those parts of a page about traffic that a live update replaces.
func trafficFragments(t views.Traffic) []web.Fragment {
	if t.Empty != nil {
		return nil
	}
	list := []web.Fragment{
		{Event: "tiles", Body: views.TrafficTiles(t)},
		{Event: t.Requests.ID, Body: views.ChartTable(t.Requests)},
		{Event: t.Rate.ID, Body: views.ChartTable(t.Rate)},
		{Event: t.Split.ID, Body: views.ChartTable(t.Split)},
		{Event: views.EventsID, Body: views.EventsBody(t.Events)},
	}
	if t.Denied != nil {
		list = append(list, web.Fragment{Event: t.Denied.ID, Body: views.ChartTable(*t.Denied)})
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

// liveTraffic returns a function that renders the updates of a live page about traffic. A page
// without requests has a different form, so the function sends the whole page when the first
// requests come, or when there are none left. If the page was empty when it was loaded, the URL
// of the stream has empty=1.
func (w *pages) liveTraffic(c echo.Context, tenant uint32, path string, also url.Values) func(context.Context) ([]web.Fragment, error) {
	params, zone := c.QueryParams(), views.Zone(c.Request().Context())
	empty, member, shared := params.Get("empty") == "1", isMember(c), web.VisitorOf(c).Display != nil
	var drawn *overview
	return func(ctx context.Context) ([]web.Fragment, error) {
		s := web.ParseTimeRange(params, w.Now(), zone)
		o, err := w.overview(ctx, trafficQuery(s, tenant, also))
		if err != nil || o == drawn {
			return nil, err
		}
		drawn = o
		d := drawing{w: w, o: o, s: s, tenant: tenant, member: member, path: path, also: also}
		t := d.traffic()
		if shared {
			share.WithoutLinks(&t)
		}
		list := trafficFragments(t)
		if was := empty; was != (t.Empty != nil) {
			empty = !was
			list = append([]web.Fragment{{Event: "traffic-all", Body: views.TrafficAll(t)}}, list...)
		}
		return list, nil
	}
}

// trafficLive returns the URL of the stream that updates a page about traffic. If the updates
// are paused, it returns "".
func trafficLive(s web.TimeRange, path string, also url.Values, t views.Traffic) string {
	if !s.Live {
		return ""
	}
	if t.Empty != nil {
		also = web.With(also, "empty", "1")
	}
	return s.Address(path, also)
}

// trafficQuery returns the query for the counts of a page. It rounds the times to whole
// minutes. For a preset, such as the last 24 hours, it rounds them to whole steps of the
// charts. So all viewers of the same preset have equal queries and share one cached result.
func trafficQuery(s web.TimeRange, tenant uint32, also url.Values) trafficQuestion {
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
	question := trafficQuestion{Query: q, by: groupingOf(tenant, also)}
	if also.Get(compareParam) == "1" {
		question.compare = s.To.Sub(s.From)
	}
	return question
}

// overviewOf reads the filters of the overview from the URL. It ignores each invalid filter,
// and adds an error message for it to faults.
func (w *pages) overviewOf(c echo.Context) (tenant uint32, also url.Values, faults map[string]string, err error) {
	q, faults := c.QueryParams(), map[string]string{}
	also = url.Values{}
	for _, name := range []string{"tenant", "policy", "route"} {
		if v := strings.TrimSpace(q.Get(name)); v != "" {
			also.Set(name, v)
		}
	}
	if by := chosen(c, also); by != "" {
		faults[groupParam] = by
	}
	if also.Get("policy") != "" && also.Get("route") != "" {
		faults["route"] = requests.NotApplied("Choose a policy or a route, not both")
		also.Del("route")
	}
	if slug := also.Get("tenant"); slug != "" {
		t, err := w.cfg.Tenants.Tenant(c.Request().Context(), slug)
		switch {
		case problem.Is(err, problem.NotFound):
			faults["tenant"] = requests.NotApplied("No tenant has the slug " + slug)
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
	s := w.TimeRange(c)
	v := views.Overview{ShareURL: w.share.URL(c)}
	if v.Traffic, err = w.traffic(c, s, tenant, path, also); err != nil {
		return err
	}
	setChoiceFault(&v.Traffic, faults[groupParam])
	if v.Traffic.Empty != nil && w.names.DropUnknown(tenant, also, faults) {
		if v.Traffic, err = w.traffic(c, s, tenant, path, also); err != nil {
			return err
		}
	}
	if v.Traffic.Empty != nil {
		if v.Traffic.Empty, err = w.emptyTraffic(c, also); err != nil {
			return err
		}
	}
	v.Ranges = s.Picker(path, requests.Paused(s, also), true)
	if v.Filters, err = w.overviewFilters(c, s, path, tenant, also, faults); err != nil {
		return err
	}
	if v.Filters.Saved, err = w.saved.Bar(c, saved.Overview); err != nil {
		return err
	}
	v.Notice = web.Notice(c)
	status := http.StatusOK
	if len(faults) > 0 {
		status = http.StatusUnprocessableEntity
	}
	p := w.Page(c, "Overview")
	p.Charts, p.Live = true, trafficLive(s, path+"/live", also, v.Traffic)
	return w.Render(c, status, views.OverviewPage(p, v))
}

func (w *pages) liveOverview(c echo.Context) error {
	tenant, also, faults, err := w.overviewOf(c)
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		return requests.ErrNoFilter
	}
	s := w.TimeRange(c)
	return w.Stream(c, s.Interval(), w.liveTraffic(c, tenant, "/overview", also))
}

func (w *pages) overviewFilters(
	c echo.Context, s web.TimeRange, path string, tenant uint32, also url.Values, faults map[string]string,
) (views.Filters, error) {
	slugs, err := w.names.TenantSlugs(c.Request().Context())
	if err != nil {
		return views.Filters{}, err
	}
	words := w.names.Of(tenant)
	f := web.Filters(c, path, []views.FilterField{
		{Name: "tenant", Label: "Tenant", Placeholder: "acme", List: slugs},
		{Name: "policy", Label: "Policy", Placeholder: "login-per-ip", List: words.Policies},
		{Name: "route", Label: "Route", Placeholder: "/v1/login", List: words.Routes},
	}, faults, also.Get, func(name, value string) string { return s.Address(path, web.With(also, name, value)) })
	f.ClearURL, f.Hidden = s.Address(path, nil), append(s.Hidden(), hiddenChoices(also)...)
	return f, nil
}

// emptyTraffic returns what a page without requests shows: the reason why it is empty, and how
// to send a request.
func (w *pages) emptyTraffic(c echo.Context, also url.Values) (*views.Empty, error) {
	e := &views.Empty{Title: noRequests}
	if also.Get("policy") != "" || also.Get("route") != "" {
		e.Text = "This policy or route has no counts. Remove the filter, or choose a longer time."
		return e, nil
	}
	tenant := also.Get("tenant")
	if tenant == "" {
		list, err := w.cfg.Tenants.Tenants(c.Request().Context(), tenants.Filter{Status: tenants.Active, Limit: 1})
		if err == nil && len(list) == 0 {
			list, err = w.cfg.Tenants.Tenants(c.Request().Context(), tenants.Filter{Limit: 1})
		}
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			e.Text = "There is no tenant yet. Create a tenant with a plan and an API key. Its first check appears here within three seconds."
			e.Link = views.Link{Text: "Create a tenant", URL: "/tenants"}
			return e, nil
		}
		tenant = list[0].Slug
	}
	e.Text = "Send a check. It appears here within three seconds. Use an operator key, or an API key of the tenant."
	e.Curl = requests.SampleCheck(w.Origin(c), tenant)
	if web.May(c, accounts.KeysWrite) {
		e.KeyAction = "/tenants/" + tenant + "/keys"
	}
	e.Link = views.Link{Text: "API keys of " + tenant, URL: "/tenants/" + tenant + "/keys"}
	return e, nil
}

const noRequests = "No requests in this time"
