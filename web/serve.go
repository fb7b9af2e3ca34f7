package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// errSlow is the answer when a page waits too long for what it shows.
var errSlow = problem.New(problem.Unavailable, "the database, or what else this page asks, takes too long to answer")

const (
	requestIDHeader = "X-Request-Id"
	tenantKey       = "tenant" // of echo's context: the tenant that the path names
)

// requestID is the id that the answer carries and that the log has.
func requestID(c echo.Context) string {
	h := c.Response().Header()
	if h.Get(requestIDHeader) == "" {
		id, err := uuid.NewV7()
		if err != nil {
			id = uuid.New()
		}
		h.Set(requestIDHeader, id.String())
	}
	return h.Get(requestIDHeader)
}

// serve is what every page goes through before its handler.
func (w *Web) serve(r row) echo.HandlerFunc {
	return recovered(func(c echo.Context) error {
		w.setHeaders(c)
		if r.kind == open {
			return r.handler(c)
		}
		c.Response().Header().Set("Cache-Control", "no-store")
		requestID(c)
		whole := c.Request()
		ctx, cancel := context.WithTimeoutCause(whole.Context(), w.cfg.Timeout, errSlow)
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
		if !v.signedIn() && r.needsSession() {
			return w.toSignIn(c)
		}
		if err := w.authorize(c, v, r); err != nil {
			w.refused(c, v, r, err)
			return err
		}
		if r.kind == dear || r.kind == heavy {
			end, err := w.turns.take(c.Request().Context(), v.party())
			if err != nil {
				c.Response().Header().Set("Retry-After", "5")
				return err
			}
			defer end()
		}
		if r.kind == slow || r.kind == heavy { // who asks is known in time; what they ask for has its own
			c.SetRequest(whole)
			acting()
		}
		return r.handler(c)
	})
}

// authorize asks the table whether the visitor may, and finds the tenant that
// the path names. For the people of a tenant every other one is not there: what
// they name is held against their own, and nothing is looked up.
func (w *Web) authorize(c echo.Context, v visitor, r row) error {
	ref := c.Param("tenant")
	if ref != "" && v.user.TenantID != "" && ref != v.own.ID && ref != v.own.Slug {
		return errNoPage
	}
	if accounts.Authorize(v.principal(), r.action) != nil {
		return problem.New(problem.Forbidden, "this is not for your role, which is %s", strings.ToLower(roleName(v.user.Role)))
	}
	if ref == "" {
		return nil
	}
	tenant := v.own
	if v.user.TenantID == "" {
		var err error
		if tenant, err = w.cfg.Tenants.Tenant(c.Request().Context(), ref); err != nil {
			return err
		}
	} else if tenant.Status == tenants.Suspended && !reads(r.method) {
		return problem.New(problem.Forbidden, "your tenant is suspended: its people may only read")
	}
	c.Set(tenantKey, tenant)
	return nil
}

// refused notes that somebody who is signed in was refused a page: that it is
// not for them, or that another tenant is.
func (w *Web) refused(c echo.Context, v visitor, r row, err error) {
	if w.cfg.Refusals != nil && (problem.Is(err, problem.Forbidden) || errors.Is(err, errNoPage)) {
		w.cfg.Refusals.Note(c.Request().Context(), v.principal(), r.action, r.method+" "+r.path, c.Param("tenant"))
	}
}

// toSignIn sends nobody to the sign-in, and back afterwards.
func (w *Web) toSignIn(c echo.Context) error {
	to := "/sign-in"
	u := c.Request().URL
	next := w.next(u.RequestURI())
	if next == "" {
		next = w.next(u.Path) // what it was narrowed by cannot be kept
	}
	if next != "" && reads(c.Request().Method) {
		to += "?next=" + url.QueryEscape(next)
	}
	return c.Redirect(http.StatusSeeOther, to)
}

// address is where a request comes from.
func (w *Web) address(r *http.Request) string {
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
func (w *Web) setHeaders(c echo.Context) {
	h := c.Response().Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
		"connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	if w.https(c.Request()) {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}
