package traffic

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/sharing"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/share"
	"github.com/headgate/headgate/web/views"
)

// freezeOverview returns the present content of the overview, which a shared snapshot stores.
func (w *pages) freezeOverview(c echo.Context) (views.Shared, error) {
	v, s, err := w.sharedOverview(c)
	v.Period = web.SpanWords(s.From, s.To, s.In(s.From).Location())
	return v, err
}

// sharedOverview returns the overview without links.
func (w *pages) sharedOverview(c echo.Context) (views.Shared, web.TimeRange, error) {
	const path = "/overview"
	s := w.TimeRange(c)
	v := views.Shared{Title: "Overview", Zone: s.In(s.From).Location().String(), Period: periodWords(s)}
	tenant, also, faults, err := w.overviewOf(c)
	if err == nil && len(faults) > 0 {
		err = problem.At("/query", "has a filter that is not valid: correct the page and share it again")
	}
	if err != nil {
		return v, s, err
	}
	t, err := w.traffic(c, s, tenant, path, also)
	if err != nil {
		return v, s, err
	}
	filters, err := w.overviewFilters(c, s, path, tenant, also, nil)
	v.Traffic, v.Filters = &t, filters.Chips
	share.WithoutLinks(&v)
	return v, s, err
}

// freezeTenant returns the present content of a tenant's first page, which a shared snapshot
// stores.
func (w *pages) freezeTenant(c echo.Context) (views.Shared, error) {
	v, s, err := w.sharedTenant(c)
	v.Period = web.SpanWords(s.From, s.To, s.In(s.From).Location())
	return v, err
}

// sharedTenant returns the first page of a tenant without links.
func (w *pages) sharedTenant(c echo.Context) (views.Shared, web.TimeRange, error) {
	tenant, s, also := web.TenantOf(c), w.TimeRange(c), url.Values{}
	v := views.Shared{Title: tenant.Name, Zone: s.In(s.From).Location().String(), Period: periodWords(s)}
	chosen(c, also)
	left, _, err := w.left(c)
	if err != nil {
		return v, s, err
	}
	t, err := w.traffic(c, s, tenant.Number, web.TenantURL(tenant, ""), also)
	v.Traffic, v.Near = &t, views.Left{Error: left.Error, Near: left.Near}
	share.WithoutLinks(&v)
	return v, s, err
}

// periodWords returns a time range in words.
func periodWords(s web.TimeRange) string {
	if p, is := web.PresetNamed(s.Preset); is {
		return p.Label
	}
	return web.SpanWords(s.From, s.To, s.In(s.From).Location())
}

// showShared is GET /shared/{token}. It shows the page of a shared link to anyone who has the link.
func (w *pages) showShared(c echo.Context) error {
	l, content, err := w.share.Open(c)
	if problem.Is(err, problem.NotFound) {
		return w.Render(c, http.StatusNotFound, views.SharedGonePage(w.sharedFrame(c, "This link has ended")))
	}
	if err != nil {
		return err
	}
	var v views.Shared
	live := ""
	if l.Kind == sharing.Snapshot {
		if v, err = share.Unpack(content); err != nil {
			w.Log().Warn("cannot read a snapshot", "link", l.ID, "error", err)
			return w.Render(c, http.StatusGone, views.SharedUnreadablePage(w.sharedFrame(c, "This snapshot cannot be shown")))
		}
	} else {
		v, err = w.drawShared(c, l)
		live = c.Request().URL.Path + "/live"
	}
	if err != nil {
		return err
	}
	v.Name, v.Expires = l.Name, l.ExpiresAt
	p := w.sharedFrame(c, v.Title)
	p.Charts, p.Live = v.Traffic != nil, live
	if live != "" && v.Traffic.Empty != nil {
		p.Live += "?empty=1"
	}
	c.SetRequest(c.Request().WithContext(views.WithZone(c.Request().Context(), share.Zone(l))))
	return w.Render(c, http.StatusOK, views.SharedPage(p, v))
}

// drawShared returns what a display shows now.
func (w *pages) drawShared(c echo.Context, l sharing.Link) (views.Shared, error) {
	at, err := w.share.Context(c, l)
	if err != nil {
		return views.Shared{}, err
	}
	draw := w.sharedOverview
	if l.Page == sharing.Traffic {
		draw = w.sharedTenant
	}
	v, _, err := draw(at)
	return v, err
}

// sharedFrame returns the frame of a page that a shared link opens.
func (w *pages) sharedFrame(c echo.Context, title string) views.Page {
	p := w.Page(c, title)
	p.Person, p.Shared = nil, true
	return p
}

// liveShared is GET /shared/{token}/live. It streams the updates of a display. If the link does not
// work, the stream sends an event that ends the display, because a browser does not show the status
// of a stream.
func (w *pages) liveShared(c echo.Context) error {
	l, _, err := w.share.Open(c)
	if problem.Is(err, problem.NotFound) {
		c.Set(web.VisitorKey, web.Visitor{Display: &web.Display{Keep: func(context.Context) error { return err }}})
		return w.Stream(c, time.Minute, nil)
	}
	if err != nil {
		return err
	}
	if l.Kind != sharing.Display {
		return web.ErrNoPage
	}
	if c.QueryParam("empty") == "1" {
		l.Query += "&empty=1"
	}
	at, err := w.share.Context(c, l)
	if err != nil {
		return err
	}
	if l.Page == sharing.Traffic {
		return w.tenantLive(at)
	}
	return w.liveOverview(at)
}
