package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web/views"
)

// ErrSlow is the error for a page that takes longer than its time limit.
var ErrSlow = problem.New(problem.Unavailable, "the database or another service of this page takes too long to answer")

// errBusy is the error for an expensive page if no slot becomes free before its deadline.
var errBusy = problem.New(problem.Unavailable, "too many expensive pages are loading: try again in a moment")

const (
	requestIDHeader = "X-Request-Id"
	// TenantKey is the key under which the context of a request stores the tenant of its path.
	TenantKey = "tenant"
)

// RequestID returns the ID of the request. The response and the log contain it.
func RequestID(c echo.Context) string {
	h := c.Response().Header()
	if h.Get(requestIDHeader) == "" {
		h.Set(requestIDHeader, audit.NewID())
	}
	return h.Get(requestIDHeader)
}

// serve returns a handler for the row r. This handler authenticates and authorizes the visitor,
// and then calls the handler of the row.
func (w *Shell) serve(r Route) echo.HandlerFunc {
	return recovered(func(c echo.Context) error {
		w.setHeaders(c)
		if r.Kind == Open {
			return r.Handler(c)
		}
		c.Response().Header().Set("Cache-Control", "no-store")
		RequestID(c)
		whole := c.Request()
		ctx, cancel := context.WithTimeoutCause(whole.Context(), w.cfg.Timeout, ErrSlow)
		defer func() {
			cancel()
			c.SetRequest(whole) // the error page needs the complete request
		}()
		c.SetRequest(whole.WithContext(ctx))
		if err := w.guard(c.Request()); err != nil {
			return err
		}
		v, err := w.recognize(c.Request())
		if err != nil {
			return err
		}
		c.Set(VisitorKey, v)
		acting := func() { c.SetRequest(c.Request().WithContext(w.acting(c, v))) }
		acting()
		if !v.SignedIn() && r.Action != accounts.Public {
			return w.toSignIn(c)
		}
		if err := w.authorize(c, v, r); err != nil {
			w.noteDenied(c, v, r, err)
			return err
		}
		inZone := func() { c.SetRequest(c.Request().WithContext(views.WithZone(c.Request().Context(), zone(c, v)))) }
		inZone()
		if r.Kind == Expensive || r.Kind == SlowExpensive {
			end, ok := w.cfg.Slots.Take(c.Request().Context(), v.party())
			if !ok {
				c.Response().Header().Set("Retry-After", "5")
				return errBusy
			}
			defer end()
		}
		if r.Kind == Slow || r.Kind == SlowExpensive { // the handler sets its own time limit
			c.SetRequest(whole)
			acting()
			inZone()
		}
		return r.Handler(c)
	})
}

// authorize checks that the visitor may perform the action of a route. It also finds the tenant
// that the path names. For a member of a tenant, it only compares the path with the member's
// tenant and makes no query, so that the response does not reveal which other tenants exist.
func (w *Shell) authorize(c echo.Context, v Visitor, r Route) error {
	ref := c.Param("tenant")
	if ref != "" && v.User.TenantID != "" && ref != v.Own.ID && ref != v.Own.Slug {
		return ErrNoPage
	}
	if accounts.Authorize(v.Principal(), r.Action) != nil {
		return problem.New(problem.Forbidden, "your role, %s, does not allow this", strings.ToLower(RoleName(v.User.Role)))
	}
	if ref == "" {
		return nil
	}
	tenant := v.Own
	if v.User.TenantID == "" {
		var err error
		if tenant, err = w.cfg.Tenants.Tenant(c.Request().Context(), ref); err != nil {
			return err
		}
	} else if tenant.Status == tenants.Suspended && !reads(r.Method) {
		return problem.New(problem.Forbidden, "your tenant is suspended: its members may only read")
	}
	c.Set(TenantKey, tenant)
	return nil
}

// noteDenied records for the audit log that a visitor was denied a page: because of the visitor's
// role, or because the page belongs to another tenant.
func (w *Shell) noteDenied(c echo.Context, v Visitor, r Route, err error) {
	if w.cfg.Refusals != nil && (problem.Is(err, problem.Forbidden) || errors.Is(err, ErrNoPage)) {
		w.cfg.Refusals.Note(c.Request().Context(), v.Principal(), r.Action, r.Method+" "+r.Path, c.Param("tenant"))
	}
}

// toSignIn redirects to the sign-in page. After the sign-in, that page redirects back to the
// requested page.
func (w *Shell) toSignIn(c echo.Context) error {
	to := "/sign-in"
	u := c.Request().URL
	next := w.SafeNext(u.RequestURI())
	if next == "" {
		next = w.SafeNext(u.Path) // without the query
	}
	if next != "" && reads(c.Request().Method) {
		to += "?next=" + url.QueryEscape(next)
	}
	return c.Redirect(http.StatusSeeOther, to)
}

// ClientAddress returns the address of the client.
func (w *Shell) ClientAddress(r *http.Request) string {
	if w.cfg.ClientAddress != nil {
		return w.cfg.ClientAddress(r)
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// setHeaders sets the headers of every page.
func (w *Shell) setHeaders(c echo.Context) {
	h := c.Response().Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
		"connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	if w.HTTPS(c.Request()) {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}
