// Package share serves the form with which a visitor shares a page by a link. It also opens such
// links. The page groups traffic, decisions and admin use it.
package share

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/gob"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/sharing"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// A Sharer shares pages by links, and opens the links.
type Sharer struct {
	*web.Shell
	links   *sharing.Service
	tenants *tenants.Service
	router  *echo.Echo // creates the contexts in which draw renders pages
}

// New returns a Sharer. If links is nil, no page can be shared, and no link works.
func New(shell *web.Shell, links *sharing.Service, tenants *tenants.Service) *Sharer {
	return &Sharer{shell, links, tenants, echo.New()}
}

// A Shareable is a page that can be shared by a link. Sharer.Routes serves the form with which a
// visitor creates the link.
type Shareable struct {
	Page sharing.Page
	// Path is the route of the page, and Title is the title of the page.
	Path, Title string
	// Live is set if a link can show the page live, as a display.
	Live bool
	// Freeze returns the present content of the page, which a link to a snapshot stores. Its argument
	// comes from Context, and has no response.
	Freeze func(echo.Context) (views.Shared, error)
}

// sharePath is the end of the form's path, after the path of the page that the form shares.
const sharePath = "/share"

// Path is the route at which a visitor opens a link.
const Path = "/shared/:token"

// shareLives are the choices of the expiry time.
var shareLives = append(slices.Clip(web.ShortLifetimes),
	web.Lifetime{Value: "366d", Label: "in a year", Length: sharing.MaxDisplayLife})

// Actions returns the permissions for shared links: those of a tenant, or those of the operator.
// Links of the operator show all tenants, so members of a tenant may not read them.
func Actions(ofTenant bool) (read, write accounts.Action) {
	if ofTenant {
		return accounts.SharedLinksRead, accounts.SharedLinksWrite
	}
	return accounts.TenantsList, accounts.TenantWrite
}

// ListURL returns the address of the list of shared links of the tenant t. If t is the zero value,
// it returns the address of the operator's list.
func ListURL(t tenants.Tenant) string {
	if t.ID == "" {
		return "/settings/links"
	}
	return web.TenantURL(t, "/links")
}

// Routes returns the routes of the form that shares a page.
func (w *Sharer) Routes(s Shareable) []web.Route {
	if w.links != nil {
		w.links.DrawnBy(s.Page, func(ctx context.Context, l sharing.Link) ([]byte, error) { return w.draw(ctx, &s, l) })
	}
	_, write := Actions(strings.HasPrefix(s.Path, web.TenantPath))
	base := s.Path + sharePath
	return []web.Route{
		web.Get(base, write, func(c echo.Context) error { return w.shareForm(c, &s) }),
		web.PostForm(base, write, func(c echo.Context, f url.Values) error { return w.share(c, &s, f) },
			"kind", "name", "life", "until", "query").As(web.Expensive),
		web.Get(base+"/:once", write, func(c echo.Context) error { return w.showSharedLink(c, &s) }),
	}
}

// URL returns the address of the form that shares the page of the request, with its present
// filters. It returns "" if the visitor may not share the page.
func (w *Sharer) URL(c echo.Context) string {
	route := c.Path() + sharePath
	_, write := Actions(strings.HasPrefix(c.Path(), web.TenantPath))
	if w.links == nil || !w.CanOpen(c, route) || !web.MayInTenant(c, write) {
		return ""
	}
	q := url.Values{}
	for name, values := range c.QueryParams() {
		if !notShared[name] {
			q[name] = values
		}
	}
	return web.AppendQuery(c.Request().URL.Path+sharePath, q)
}

// notShared are the parameters of pages that a link does not keep.
var notShared = map[string]bool{"done": true, "live": true, "decision": true, "before": true}

// pageURL returns the address of the page that the form shares.
func (s *Shareable) pageURL(c echo.Context) string {
	if t := web.TenantOf(c); t.ID != "" {
		return web.TenantURL(t, strings.TrimPrefix(s.Path, web.TenantPath))
	}
	return s.Path
}

// shareView returns the view of the form. query has the parameters of the page to share.
func (w *Sharer) shareView(c echo.Context, s *Shareable, query string) views.ShareForm {
	page := s.pageURL(c)
	v := views.ShareForm{
		Action: page + sharePath, Query: query, Back: page, ListURL: ListURL(web.TenantOf(c)),
		Name: views.TextInput("name", "Name", "", "For the list of links: “screen in the lobby”, “outage of 21 November”."),
		Kind: views.Choice{Name: "kind", Label: "The link shows", Value: string(sharing.Snapshot), Options: []views.Option{{
			Value: string(sharing.Snapshot), Label: "A snapshot",
			Hint: fmt.Sprintf("A copy of the page as it is now. It does not change. At most %d days.", sharing.MaxSnapshotLife/web.Day),
		}}},
		End: web.EndingField(c, "", "7d", shareLives...),
	}
	if query != "" {
		v.Back += "?" + query
	}
	if s.Live {
		v.Kind.Options = append(v.Kind.Options, views.Option{
			Value: string(sharing.Display), Label: "A live display",
			Hint: "The page with live updates, for a screen on a wall. It needs a time range that ends now.",
		})
	}
	return v
}

func (w *Sharer) showShareForm(c echo.Context, s *Shareable, status int, v views.ShareForm) error {
	p := w.sharePage(c, s, "Share", v.Back)
	v.Tabs = w.shareTabs(c, s)
	return w.Render(c, status, views.ShareFormPage(p, v))
}

// shareTabs returns the tabs of the tenant whose page is shared.
func (w *Sharer) shareTabs(c echo.Context, s *Shareable) []views.Tab {
	if web.TenantOf(c).ID == "" {
		return nil
	}
	return w.TenantTabs(c, strings.TrimPrefix(s.Path, web.TenantPath))
}

// sharePage returns the frame of a page about sharing.
func (w *Sharer) sharePage(c echo.Context, s *Shareable, title, back string) views.Page {
	if web.TenantOf(c).ID == "" {
		p := w.Page(c, title)
		p.Crumbs = []views.Link{{Text: s.Title, URL: back}, {Text: title}}
		return p
	}
	return w.TenantPage(c, title, views.Link{Text: s.Title, URL: back})
}

func (w *Sharer) shareForm(c echo.Context, s *Shareable) error {
	return w.showShareForm(c, s, http.StatusOK, w.shareView(c, s, c.QueryParams().Encode()))
}

// share creates a link, and redirects to the page that shows the link once.
func (w *Sharer) share(c echo.Context, s *Shareable, f url.Values) error {
	v := w.shareView(c, s, f.Get("query"))
	v.Name.Value = strings.TrimSpace(f.Get("name"))
	v.Kind.Choose(f.Get("kind"))
	token, err := w.createLink(c, s, f, &v)
	if err == nil {
		return w.ShowOnce(c, v.Action, sharedOnce{Token: token, Kind: sharing.Kind(f.Get("kind")), Back: v.Back})
	}
	return web.Retry(err, &v, &v.Faults, map[string]string{"expires_at": "life", "query": "kind", "shows": "kind"}, func(status int) error {
		return w.showShareForm(c, s, status, v)
	})
}

// createLink creates a link from the values of a form, and returns its token.
func (w *Sharer) createLink(c echo.Context, s *Shareable, f url.Values, v *views.ShareForm) (string, error) {
	q, err := url.ParseQuery(f.Get("query"))
	if err != nil {
		return "", problem.New(problem.Malformed, "the query of the page cannot be read")
	}
	d := sharing.Document{
		Name: v.Name.Value, Kind: sharing.Kind(f.Get("kind")), Page: s.Page, Query: q.Encode(), Zone: pageZone(c, q).String(),
	}
	if d.ExpiresAt, err = web.ParseEnding(f, &v.End, w.Now(), shareLives); err != nil {
		return "", err
	}
	_, token, err := w.links.Create(c.Request().Context(), web.TenantOf(c).ID, d)
	return token, err
}

// draw implements sharing.Draw for a page.
func (w *Sharer) draw(ctx context.Context, s *Shareable, l sharing.Link) ([]byte, error) {
	q, err := url.ParseQuery(l.Query)
	if err != nil {
		return nil, err // Create has checked the query
	}
	switch t := web.ParseTimeRange(q, w.Now(), Zone(l)); {
	case t.Fault != "":
		return nil, problem.At("/query", "has no valid time range: %s", t.Fault)
	case l.Kind == sharing.Display && t.Preset == "":
		return nil, problem.At("/kind", "must be snapshot, because the time range of the page does not end now")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Path, nil)
	if err != nil {
		return nil, err
	}
	at, err := w.Context(w.router.NewContext(r, nil), l)
	if err != nil {
		return nil, err
	}
	shown, err := s.Freeze(at)
	if err != nil || l.Kind == sharing.Display {
		return nil, err
	}
	shown.Taken = w.Now()
	return pack(shown)
}

// pageZone returns the time zone of a page that has the parameters q.
func pageZone(c echo.Context, q url.Values) *time.Location {
	if zone, known := web.LoadZone(q.Get(web.ZoneParam)); known {
		return zone
	}
	return views.Zone(c.Request().Context())
}

// A sharedOnce has the data of the page that shows a new link once.
type sharedOnce struct {
	Token string
	Kind  sharing.Kind
	Back  string
}

// showSharedLink shows a new link. No other page shows the link.
func (w *Sharer) showSharedLink(c echo.Context, s *Shareable) error {
	var o sharedOnce
	list := views.Link{Text: "Shared links", URL: ListURL(web.TenantOf(c))}
	if !w.ShownOnce(c, &o) {
		return w.GoneOnce(c, "Headgate shows a link once. If you have not stored it, revoke it and share the page again.", list)
	}
	v := views.ShareMade{
		Title: "The snapshot is taken", URL: w.Origin(c) + "/shared/" + o.Token, Back: o.Back, ListURL: list.URL,
		Tabs: w.shareTabs(c, s),
	}
	if o.Kind == sharing.Display {
		v.Title = "The display is ready"
	}
	return w.Render(c, http.StatusOK, views.ShareMadePage(w.sharePage(c, s, "Link", o.Back), v))
}

// pack returns a shared page in the form in which a snapshot is stored.
func pack(v views.Shared) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := gob.NewEncoder(z).Encode(v); err != nil {
		return nil, fmt.Errorf("encode a snapshot: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Unpack is the reverse of pack.
func Unpack(content []byte) (v views.Shared, err error) {
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return v, fmt.Errorf("decompress a snapshot: %w", err)
	}
	if err := gob.NewDecoder(z).Decode(&v); err != nil {
		return v, fmt.Errorf("decode a snapshot: %w", err)
	}
	return v, nil
}

// Open returns the link whose token is in the path, and the content if the link has a snapshot. It
// also sets the headers for the page of a link. If the link does not work, the error is
// problem.NotFound.
func (w *Sharer) Open(c echo.Context) (sharing.Link, []byte, error) {
	h := c.Response().Header()
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex, nofollow")
	if w.links == nil {
		return sharing.Link{}, nil, web.ErrNoPage
	}
	return w.links.Open(c.Request().Context(), c.Param("token"))
}

// Context returns a copy of the context c for the page of a link. The copy has the parameters, the
// time zone and the tenant of the link, and the rights of a viewer.
func (w *Sharer) Context(c echo.Context, l sharing.Link) (echo.Context, error) {
	v := web.Visitor{
		User:    accounts.User{ID: l.ID, TenantID: l.TenantID, Role: accounts.Viewer},
		Display: &web.Display{Keep: func(ctx context.Context) error { return w.links.Keep(ctx, l) }},
	}
	if l.TenantID != "" {
		v.User.Role = accounts.TenantViewer
		var err error
		if v.Own, err = w.tenants.Tenant(c.Request().Context(), l.TenantID); err != nil {
			return nil, err
		}
	}
	r := c.Request().Clone(views.WithZone(c.Request().Context(), Zone(l)))
	r.URL = &url.URL{Path: c.Request().URL.Path, RawQuery: l.Query}
	at := c.Echo().NewContext(r, c.Response())
	at.Set(web.VisitorKey, v)
	at.Set(web.TenantKey, v.Own)
	return at, nil
}

// Zone returns the time zone of a link.
func Zone(l sharing.Link) *time.Location {
	if zone, known := web.LoadZone(l.Zone); known {
		return zone
	}
	return time.UTC
}

// WithoutLinks removes all links from v, which points to a view model. The visitor of a shared page
// may not open other pages. It also removes the choices of charts, and the commands that send
// requests.
func WithoutLinks(v any) { unlink(reflect.ValueOf(v)) }

func unlink(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			unlink(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			unlink(v.Index(i))
		}
	case reflect.Struct:
		if e, is := v.Addr().Interface().(*views.Empty); is {
			*e = views.Empty{Title: e.Title}
			return
		}
		for i := range v.NumField() {
			switch name := v.Type().Field(i).Name; {
			case !v.Field(i).CanSet(): // in time.Time
			case name == "Zoom", name == "Choices", strings.HasSuffix(name, "URL"):
				v.Field(i).SetZero()
			default:
				unlink(v.Field(i))
			}
		}
	default:
	}
}
