package web

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// A Visitor is who asks for a page; the zero value is nobody.
type Visitor struct {
	User    accounts.User
	Session accounts.Session
	// own is the tenant that the user belongs to; zero for the operator's people.
	own tenants.Tenant
}

const visitorKey = "visitor"

// VisitorOf gives the visitor that serve found.
func VisitorOf(c echo.Context) Visitor {
	v, _ := c.Get(visitorKey).(Visitor)
	return v
}

func (v Visitor) SignedIn() bool { return v.User.ID != "" }

// party is whose share of a node the visitor uses: the people of a tenant have
// one together, each of the operator's has an own one.
func (v Visitor) party() string {
	if v.User.TenantID != "" {
		return v.User.TenantID
	}
	return v.User.ID
}

// Principal is the visitor as one who asks; the zero Principal for nobody.
func (v Visitor) Principal() accounts.Principal {
	if !v.SignedIn() {
		return accounts.Principal{}
	}
	return v.User.Principal()
}

// recognize finds the visitor by the cookie. A cookie that is no session, or one
// that is over, is nobody's.
func (w *Shell) recognize(r *http.Request) (Visitor, error) {
	token, ok := w.token(r)
	if !ok {
		return Visitor{}, nil
	}
	session, user, err := w.cfg.People.Session(r.Context(), token)
	if problem.Is(err, problem.Unauthenticated) {
		return Visitor{}, nil
	}
	if err != nil {
		return Visitor{}, err
	}
	v := Visitor{User: user, Session: session}
	if user.TenantID != "" {
		v.own, err = w.cfg.Tenants.Tenant(r.Context(), user.TenantID)
	}
	return v, err
}

// acting notes who acts, for the audit log.
func (w *Shell) acting(c echo.Context, v Visitor) context.Context {
	actor := audit.Actor{Kind: "system", ID: "sign-in", Name: "sign-in"}
	if v.SignedIn() {
		actor = v.User.Actor()
	}
	return audit.With(c.Request().Context(), actor, audit.Origin{RequestID: RequestID(c), Address: w.ClientAddress(c.Request())})
}

// HTTPS reports whether the browser speaks to us, or to the proxy before us, by
// TLS.
func (w *Shell) HTTPS(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(strings.ToLower(w.cfg.PublicURL), "https://")
}

// CookieName is that of the session. The prefix, which browsers take only with
// TLS, keeps other hosts of the domain from setting it.
func (w *Shell) CookieName(r *http.Request) string {
	if w.HTTPS(r) {
		return "__Host-headgate"
	}
	return "headgate"
}

// token is the session's token in the cookie; false without one that could be.
func (w *Shell) token(r *http.Request) (string, bool) {
	cookie, err := r.Cookie(w.CookieName(r))
	if err != nil {
		return "", false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cookie.Value)
	return cookie.Value, err == nil && len(raw) == 32
}

// SetSessionCookie puts a session's token into the cookie; "" takes it away.
func (w *Shell) SetSessionCookie(c echo.Context, token string) {
	cookie := &http.Cookie{
		Name: w.CookieName(c.Request()), Value: token, Path: "/",
		HttpOnly: true, Secure: w.HTTPS(c.Request()), SameSite: http.SameSiteLaxMode,
	}
	if token == "" {
		cookie.MaxAge = -1
	}
	c.SetCookie(cookie)
}
