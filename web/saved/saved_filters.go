// Package saved serves the saved filters of pages: a list on each page that has filters, and a page
// on which visitors rename, share and delete their filters. Page groups with filters use it.
package saved

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/savedfilters"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// The pages that have filters. The pages denials and audit also exist for each tenant.
const (
	Overview = "overview"
	Denials  = "denials"
	Tenants  = "tenants"
	Audit    = "audit"
)

// titles has the title of each page.
var titles = map[string]string{Overview: "Overview", Denials: "Denials", Tenants: "Tenants", Audit: "Audit"}

// notSaved are the parameters of pages that a saved filter does not keep: a notice, and positions
// in lists.
var notSaved = []string{"done", "before", "after", "page", "decision", "live"}

// A Saver serves saved filters.
type Saver struct {
	*web.Shell
	filters *savedfilters.Service
}

// New returns a Saver. If filters is nil, no page has saved filters.
func New(shell *web.Shell, filters *savedfilters.Service) *Saver { return &Saver{shell, filters} }

// Routes returns the routes of the page that manages saved filters, for Shell.Register.
func (w *Saver) Routes() []web.Route {
	var list []web.Route
	for base, read := range map[string]accounts.Action{"": accounts.TenantsList, web.TenantPath: accounts.TenantRead} {
		base += "/filters/:page"
		list = append(list,
			web.Get(base, read, w.manage),
			web.PostForm(base, read, w.save, "name", "shared", "query"),
			web.PostForm(base+"/:filter", read, w.change, "name", "shared"),
			web.PostForm(base+"/:filter/delete", read, w.remove),
		)
	}
	slices.SortFunc(list, func(a, b web.Route) int { return strings.Compare(a.Path+a.Method, b.Path+b.Method) })
	return list
}

// place returns the page in the path.
func place(c echo.Context) (savedfilters.Place, error) {
	p := savedfilters.Place{TenantID: web.TenantOf(c).ID, Page: c.Param("page")}
	if titles[p.Page] == "" || p.TenantID != "" && p.Page != Denials && p.Page != Audit {
		return p, web.ErrNoPage
	}
	return p, nil
}

// pageURL returns the address of a page that has filters. manageURL returns the address of the page
// that manages its saved filters.
func pageURL(c echo.Context, page string) string {
	if t := web.TenantOf(c); t.ID != "" {
		return web.TenantURL(t, "/"+page)
	}
	return "/" + page
}

func manageURL(c echo.Context, page string) string {
	if t := web.TenantOf(c); t.ID != "" {
		return web.TenantURL(t, "/filters/"+page)
	}
	return "/filters/" + page
}

// shown returns those parameters of a page that a saved filter keeps.
func shown(q url.Values) url.Values {
	kept := url.Values{}
	for name, values := range q {
		if !slices.Contains(notSaved, name) && values[0] != "" {
			kept.Set(name, values[0])
		}
	}
	return kept
}

// Bar returns the saved filters that a page shows, and the form that saves the present filter.
func (w *Saver) Bar(c echo.Context, page string) (*views.SavedFilters, error) {
	if w.filters == nil {
		return nil, nil
	}
	user := web.VisitorOf(c).User.ID
	list, err := w.filters.Filters(c.Request().Context(), savedfilters.Place{TenantID: web.TenantOf(c).ID, Page: page}, user)
	if err != nil {
		return nil, err
	}
	query := shown(c.QueryParams()).Encode()
	v := w.form(c, page, query)
	for i := range list {
		v.Rows = append(v.Rows, row(c, &list[i], query))
	}
	return &v, nil
}

// form returns the form that saves a filter.
func (w *Saver) form(c echo.Context, page, query string) views.SavedFilters {
	v := views.SavedFilters{
		Action: manageURL(c, page), Query: query, Name: views.TextInput("name", "Name", "", ""),
		MaySave: web.MayInTenant(c, accounts.Self),
	}
	return v
}

// row returns a filter in the list of a page. query has the present parameters of this page.
func row(c echo.Context, f *savedfilters.Filter, query string) views.SavedFilter {
	r := views.SavedFilter{
		ID: f.ID, Name: f.Name, URL: pageURL(c, f.Page), Shared: f.Shared, Own: f.OwnerID == web.VisitorOf(c).User.ID, Current: f.Query == query,
	}
	if f.Query != "" {
		r.URL += "?" + f.Query
		if text, err := url.QueryUnescape(f.Query); err == nil {
			r.Detail = text
		}
	}
	return r
}

// manage is GET /filters/{page}. It lists the saved filters of a page.
func (w *Saver) manage(c echo.Context) error {
	p, err := place(c)
	if err != nil {
		return err
	}
	return w.showManage(c, http.StatusOK, p, w.form(c, p.Page, shown(c.QueryParams()).Encode()))
}

// moderates reports whether the visitor may delete shared filters that other people have saved.
func moderates(c echo.Context) bool {
	if web.TenantOf(c).ID == "" {
		return web.May(c, accounts.TenantWrite)
	}
	return web.MayInTenant(c, accounts.SharedLinksWrite)
}

func (w *Saver) showManage(c echo.Context, status int, p savedfilters.Place, v views.SavedFilters) error {
	list, err := w.filters.Filters(c.Request().Context(), p, web.VisitorOf(c).User.ID)
	if err != nil {
		return err
	}
	v.Rows = nil
	for i := range list {
		r := row(c, &list[i], "-")
		r.Action = manageURL(c, p.Page) + "/" + r.ID
		r.MayDelete = v.MaySave && (r.Own || moderates(c))
		v.Rows = append(v.Rows, r)
	}
	title := titles[p.Page]
	back := views.Link{Text: title, URL: pageURL(c, p.Page)}
	v.Notice, v.Title = web.Notice(c), title
	page := w.Page(c, "Saved filters")
	page.Crumbs = []views.Link{back, {Text: "Saved filters"}}
	if p.TenantID != "" {
		page = w.TenantPage(c, "Saved filters", back)
		v.Tabs = w.TenantTabs(c, "/"+p.Page)
	}
	return w.Render(c, status, views.SavedFiltersPage(page, v))
}

// save is POST /filters/{page}. It saves a filter, and redirects to the page with this filter.
func (w *Saver) save(c echo.Context, f url.Values) error {
	p, err := place(c)
	if err != nil {
		return err
	}
	q, err := url.ParseQuery(f.Get("query"))
	if err != nil {
		return problem.New(problem.Malformed, "the filter cannot be read")
	}
	query := shown(q).Encode()
	v := w.form(c, p.Page, query)
	v.Name.Value, v.Shared = strings.TrimSpace(f.Get("name")), f.Get("shared") != ""
	document := savedfilters.Document{Name: v.Name.Value, Query: query, Shared: v.Shared}
	_, err = w.filters.Save(c.Request().Context(), p, web.VisitorOf(c).User.ID, document)
	if err == nil {
		q, _ := url.ParseQuery(query)
		return c.Redirect(http.StatusSeeOther, web.AppendQuery(pageURL(c, p.Page), web.With(q, "done", "filter-saved")))
	}
	return web.Retry(err, &v, &v.Faults, nil, func(status int) error { return w.showManage(c, status, p, v) })
}

// change is POST /filters/{page}/{filter}. It renames a filter, and starts or ends the sharing of
// it.
func (w *Saver) change(c echo.Context, f url.Values) error {
	return w.edit(c, "filter-changed", func(ctx context.Context, p savedfilters.Place, user, id string) error {
		_, err := w.filters.Change(ctx, p, user, id, strings.TrimSpace(f.Get("name")), f.Get("shared") != "")
		return err
	})
}

// remove is POST /filters/{page}/{filter}/delete.
func (w *Saver) remove(c echo.Context, _ url.Values) error {
	return w.edit(c, "filter-deleted", func(ctx context.Context, p savedfilters.Place, user, id string) error {
		return w.filters.Delete(ctx, p, user, id, moderates(c))
	})
}

// edit changes the filter that the path names, and redirects to the list of filters.
func (w *Saver) edit(c echo.Context, notice string, change func(ctx context.Context, p savedfilters.Place, user, id string) error) error {
	p, err := place(c)
	if err != nil {
		return err
	}
	id, err := web.PathID(c, "filter")
	if err != nil {
		return err
	}
	if err = change(c.Request().Context(), p, web.VisitorOf(c).User.ID, id); err == nil {
		return c.Redirect(http.StatusSeeOther, manageURL(c, p.Page)+"?done="+notice)
	}
	v := w.form(c, p.Page, "")
	return web.Retry(err, &struct{}{}, &v.Faults, nil, func(status int) error { return w.showManage(c, status, p, v) })
}
