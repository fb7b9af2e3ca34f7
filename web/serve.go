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
)

// ErrSlow is the answer when a page waits too long for what it shows.
var ErrSlow = problem.New(problem.Unavailable, "the database, or what else this page asks, takes too long to answer")

const (
	requestIDHeader = "X-Request-Id"
	TenantKey       = "tenant" // of echo's context: the tenant that the path names
)

// RequestID is the id that the answer carries and that the log has.
func RequestID(c echo.Context) string {
	h := c.Response().Header()
	if h.Get(requestIDHeader) == "" {
		h.Set(requestIDHeader, audit.NewID())
	}
	return h.Get(requestIDHeader)
}

// serve is what every page goes through before its handler.
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
			c.SetRequest(whole) // what went wrong is still to be drawn
		}()
		c.SetRequest(whole.WithContext(ctx))
		if err := w.guard(c.Request()); err != nil {
			return err
		}
		v, err := w.recognize(c.Request())
		if err != nil {
			return err
		}
		c.Set(visitorKey, v)
		acting := func() { c.SetRequest(c.Request().WithContext(w.acting(c, v))) }
		acting()
		if !v.SignedIn() && r.needsSession() {
			return w.toSignIn(c)
		}
		if err := w.authorize(c, v, r); err != nil {
			w.refused(c, v, r, err)
			return err
		}
		if r.Kind == Expensive || r.Kind == SlowExpensive {
			end, err := w.slots.take(c.Request().Context(), v.party())
			if err != nil {
				c.Response().Header().Set("Retry-After", "5")
				return err
			}
			defer end()
		}
		if r.Kind == Slow || r.Kind == SlowExpensive { // who asks is known in time; what they ask for has its own
			c.SetRequest(whole)
			acting()
		}
		return r.Handler(c)
	})
}

// authorize asks the table whether the visitor may, and finds the tenant that
// the path names. For the people of a tenant every other one is not there: what
// they name is held against their own, and nothing is looked up.
func (w *Shell) authorize(c echo.Context, v Visitor, r Route) error {
	ref := c.Param("tenant")
	if ref != "" && v.User.TenantID != "" && ref != v.own.ID && ref != v.own.Slug {
		return ErrNoPage
	}
	if accounts.Authorize(v.Principal(), r.Action) != nil {
		return problem.New(problem.Forbidden, "this is not for your role, which is %s", strings.ToLower(RoleName(v.User.Role)))
	}
	if ref == "" {
		return nil
	}
	tenant := v.own
	if v.User.TenantID == "" {
		var err error
		if tenant, err = w.cfg.Tenants.Tenant(c.Request().Context(), ref); err != nil {
			return err
		}
	} else if tenant.Status == tenants.Suspended && !reads(r.Method) {
		return problem.New(problem.Forbidden, "your tenant is suspended: its people may only read")
	}
	c.Set(TenantKey, tenant)
	return nil
}

// refused notes that somebody who is signed in was refused a page: that it is
// not for them, or that another tenant is.
func (w *Shell) refused(c echo.Context, v Visitor, r Route, err error) {
	if w.cfg.Refusals != nil && (problem.Is(err, problem.Forbidden) || errors.Is(err, ErrNoPage)) {
		w.cfg.Refusals.Note(c.Request().Context(), v.Principal(), r.Action, r.Method+" "+r.Path, c.Param("tenant"))
	}
}

// toSignIn sends nobody to the sign-in, and back afterwards.
func (w *Shell) toSignIn(c echo.Context) error {
	to := "/sign-in"
	u := c.Request().URL
	next := w.SafeNext(u.RequestURI())
	if next == "" {
		next = w.SafeNext(u.Path) // what it was narrowed by cannot be kept
	}
	if next != "" && reads(c.Request().Method) {
		to += "?next=" + url.QueryEscape(next)
	}
	return c.Redirect(http.StatusSeeOther, to)
}

// ClientAddress is where a request comes from.
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

// setHeaders sets what every page answers with.
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
