// Package alerts serves the pages about alerts: the open and past alerts, the rules, the
// channels, the messages, and the maintenance windows. The same pages serve the operator and each tenant.
package alerts

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// Config of the pages.
type Config struct {
	Alerts *alerts.Service
}

type pages struct {
	*web.Shell
	cfg Config
}

// Routes returns the rows of the pages.
func Routes(shell *web.Shell, cfg Config) []web.Route {
	w := &pages{Shell: shell, cfg: cfg}
	return slices.Concat(
		w.routes("/alerts", operatorRead, operatorWrite),
		w.routes(web.TenantPath+"/alerts", accounts.AlertsRead, accounts.AlertsWrite))
}

// The actions of the operator's alerts, which cover all tenants. A member of a tenant needs the
// permissions AlertsRead and AlertsWrite instead, which are for the member's own tenant.
const (
	operatorRead  = accounts.TenantsList
	operatorWrite = accounts.TenantWrite
)

// routes returns the routes of the alert pages, for the operator or for a tenant.
func (w *pages) routes(base string, read, write accounts.Action) []web.Route {
	rules, channels, messages, maintenance := base+"/rules", base+"/channels", base+"/messages", base+"/maintenance"
	return []web.Route{
		web.Get(base, read, w.listAlerts),
		web.Get(base+"/live", read, w.liveAlerts).As(web.Slow),
		web.Get(base+"/:alert", read, w.oneAlert),

		web.Get(rules, read, w.listRules),
		web.Get(rules+"/new", write, w.newRule),
		web.Post(rules, write, w.createRule),
		web.Post(rules+"/recommended", write, w.addRecommended),
		web.Get(rules+"/:rule", read, w.oneRule),
		web.Post(rules+"/:rule", write, w.changeRule),
		web.PostForm(rules+"/:rule/mute", write, w.muteRule, "life", "until"),
		web.PostForm(rules+"/:rule/unmute", write, w.unmuteRule),
		web.Get(rules+"/:rule/delete", write, w.confirmRule),
		web.PostForm(rules+"/:rule/delete", write, w.deleteRule),

		web.Get(channels, read, w.listChannels),
		web.Get(channels+"/new", write, w.newChannel),
		web.PostForm(channels, write, w.createChannel, "name", "kind", "url"),
		web.Get(channels+"/:channel", read, w.oneChannel),
		web.PostForm(channels+"/:channel", write, w.changeChannel, "name", "url", "version"),
		web.PostForm(channels+"/:channel/test", write, w.testChannel),
		web.PostForm(channels+"/:channel/rotate", write, w.rotateSecret),
		web.Get(channels+"/:channel/secret/:once", write, w.showSecret),
		web.Get(channels+"/:channel/delete", write, w.confirmChannel),
		web.PostForm(channels+"/:channel/delete", write, w.deleteChannel),

		web.Get(messages, read, w.listMessages),
		web.Get(messages+"/:message", read, w.oneMessage),
		web.PostForm(messages+"/:message/repeat", write, w.repeatMessage),

		web.Get(maintenance, read, w.listMaintenance),
		web.Get(maintenance+"/new", write, w.newMaintenance),
		web.Post(maintenance, write, w.createMaintenance),
		web.Get(maintenance+"/:maintenance/delete", write, w.confirmMaintenance),
		web.PostForm(maintenance+"/:maintenance/delete", write, w.deleteMaintenance),
	}
}

// A scope says whose alerts a page shows: those of the operator, or those of one tenant.
type scope struct {
	owner string // ID of the tenant; "" for the operator
	slug  string // of the tenant
	base  string // address of the first page
	write bool   // the visitor may change rules and channels
}

func (s scope) operator() bool { return s.owner == "" }

func (w *pages) scope(c echo.Context) scope {
	t := web.TenantOf(c)
	if t.ID == "" {
		return scope{base: "/alerts", write: web.May(c, operatorWrite)}
	}
	return scope{owner: t.ID, slug: t.Slug, base: web.TenantURL(t, "/alerts"), write: web.MayInTenant(c, accounts.AlertsWrite)}
}

var subpages = []struct{ text, below string }{
	{"Alerts", ""},
	{"Rules", "/rules"},
	{"Channels", "/channels"},
	{"Messages", "/messages"},
	{"Maintenance", "/maintenance"},
}

// head returns the navigation of the alert pages. current is the end of the open page's path: the part
// after the path of the first alert page.
func (w *pages) head(c echo.Context, current string) views.AlertHead {
	s := w.scope(c)
	h := views.AlertHead{OfTenant: !s.operator()}
	if h.OfTenant {
		h.Tenant = w.TenantHead(c, "/alerts")
	}
	for _, p := range subpages {
		h.Pages = append(h.Pages, views.Tab{Text: p.text, URL: s.base + p.below, Current: p.below == current})
	}
	return h
}

// page returns the frame of an alert page. above are the breadcrumb links between the first alert page
// and this page.
func (w *pages) page(c echo.Context, title string, above ...views.Link) views.Page {
	s := w.scope(c)
	if title != "Alerts" {
		above = append([]views.Link{{Text: "Alerts", URL: s.base}}, above...)
	}
	if !s.operator() {
		return w.TenantPage(c, title, above...)
	}
	p := w.Page(c, title)
	if len(above) > 0 {
		p.Crumbs = append(slices.Clone(above), views.Link{Text: title})
	}
	return p
}

// done redirects to a page with a notice.
func (w *pages) done(c echo.Context, address, notice string) error {
	return c.Redirect(http.StatusSeeOther, address+"?done="+notice)
}

// liveEvery is the interval at which a live page reads the open alerts.
const liveEvery = 5 * time.Second

// listAlerts shows the open alerts, and the alerts that have ended.
func (w *pages) listAlerts(c echo.Context) error {
	ctx, s := c.Request().Context(), w.scope(c)
	v := views.Alerts{AlertHead: w.head(c, ""), Notice: web.Notice(c), RulesURL: s.base + "/rules"}
	var err error
	if v.Open, err = w.open(ctx, s); err != nil {
		return err
	}
	list, err := w.cfg.Alerts.Incidents(ctx, s.owner, alerts.Filter{After: web.After(c), Limit: web.PageRows + 1})
	if err != nil {
		return err
	}
	list, v.Next = web.Cut(c, list, web.PageRows, func(i alerts.Incident) string { return i.ID })
	for i := range list {
		if !list[i].EndedAt.IsZero() {
			v.Past = append(v.Past, w.alertRow(s, &list[i]))
		}
	}
	rules, err := w.cfg.Alerts.Rules(ctx, s.owner, alerts.Filter{Limit: 1})
	if err != nil {
		return err
	}
	if len(rules) == 0 {
		v.Empty = views.Empty{
			Title: "No rules yet",
			Text:  "A rule compares a figure with a threshold, and sends a message when the alert begins and when it ends.",
		}
		if s.write {
			v.Empty.Link = views.Link{Text: "Add rules", URL: s.base + "/rules/new"}
		}
	}
	p := w.page(c, "Alerts")
	p.Live = s.base + "/live"
	return w.Render(c, http.StatusOK, views.AlertsPage(p, v))
}

// liveAlerts is the event stream that updates the list of open alerts.
func (w *pages) liveAlerts(c echo.Context) error {
	s := w.scope(c)
	return w.Stream(c, liveEvery, func(ctx context.Context) ([]web.Fragment, error) {
		open, err := w.open(ctx, s)
		return []web.Fragment{{Event: "open-alerts", Body: views.OpenAlerts(open)}}, err
	})
}

func (w *pages) open(ctx context.Context, s scope) ([]views.AlertRow, error) {
	list, err := w.cfg.Alerts.Incidents(ctx, s.owner, alerts.Filter{Open: true, Limit: alerts.MaxRules})
	var rows []views.AlertRow
	for i := range list {
		rows = append(rows, w.alertRow(s, &list[i]))
	}
	return rows, err
}

func (w *pages) alertRow(s scope, i *alerts.Incident) views.AlertRow {
	r := &i.Rule
	return views.AlertRow{
		URL: s.base + "/" + i.ID, Name: r.Name, Figure: r.Figure(), Value: r.Number(i.Value), Peak: r.Number(i.Peak),
		Threshold: thresholdWords(r), Detail: i.Detail, Open: i.EndedAt.IsZero(),
		Began: views.NewMoment(i.BeganAt, w.Now()), Ended: views.NewMoment(i.EndedAt, w.Now()),
	}
}

// thresholdWords returns when an alert begins.
func thresholdWords(d *alerts.Document) string {
	if d.Metric.BeginsBelow() {
		return d.Number(d.Threshold) + " or less"
	}
	return d.Number(d.Threshold) + " or more"
}

// oneAlert shows an alert with its messages.
func (w *pages) oneAlert(c echo.Context) error {
	ctx, s := c.Request().Context(), w.scope(c)
	id, err := web.PathID(c, "alert")
	if err != nil {
		return err
	}
	i, err := w.cfg.Alerts.Incident(ctx, s.owner, id)
	if err != nil {
		return err
	}
	v := views.Alert{AlertHead: w.head(c, ""), AlertRow: w.alertRow(s, &i), Links: w.leads(s, &i)}
	if v.Messages, err = w.messagesOf(ctx, s, id); err != nil {
		return err
	}
	return w.Render(c, http.StatusOK, views.AlertPage(w.page(c, i.Rule.Name), v))
}

// leads returns links to the pages that show the cause of an alert.
func (w *pages) leads(s scope, i *alerts.Incident) []views.Link {
	r := &i.Rule
	slug := r.Tenant
	if !s.operator() {
		slug = s.slug
	}
	links := []views.Link{{Text: "The rule", URL: s.base + "/rules/" + i.RuleID}}
	_, tenantOnly := r.Metric.WatchesTenants()
	switch {
	case r.Metric == alerts.DenialRate || r.Metric == alerts.Denials:
		address := "/denials"
		if slug != "" {
			address = "/tenants/" + slug + "/denials"
		}
		if r.Policy != "" {
			address += "?policy=" + r.Policy
		}
		links = append(links, views.Link{Text: "Denials", URL: address})
	case tenantOnly:
	default:
		links = append(links, views.Link{Text: "System", URL: "/system"})
	}
	if slug != "" {
		links = append(links, views.Link{Text: "Usage of the tenant", URL: "/tenants/" + slug})
	}
	return links
}
