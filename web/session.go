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

// A visitor is who asks for a page; the zero value is nobody.
type visitor struct {
	user    accounts.User
	session accounts.Session
	// own is the tenant that the user belongs to; zero for the operator's people.
	own tenants.Tenant
}

const visitorKey = "visitor"

// who gives the visitor that serve found.
func who(c echo.Context) visitor {
	v, _ := c.Get(visitorKey).(visitor)
	return v
}

func (v visitor) signedIn() bool { return v.user.ID != "" }

// party is whose share of a node the visitor uses: the people of a tenant have
// one together, each of the operator's has an own one.
func (v visitor) party() string {
	if v.user.TenantID != "" {
		return v.user.TenantID
	}
	return v.user.ID
}

// principal is the visitor as one who asks; the zero Principal for nobody.
func (v visitor) principal() accounts.Principal {
	if !v.signedIn() {
		return accounts.Principal{}
	}
	return v.user.Principal()
}

// recognize finds the visitor by the cookie. A cookie that is no session, or one
// that is over, is nobody's.
func (w *Web) recognize(r *http.Request) (visitor, error) {
	token, ok := w.token(r)
	if !ok {
		return visitor{}, nil
	}
	session, user, err := w.cfg.People.Session(r.Context(), token)
	if problem.Is(err, problem.Unauthenticated) {
		return visitor{}, nil
	}
	if err != nil {
		return visitor{}, err
	}
	v := visitor{user: user, session: session}
	if user.TenantID != "" {
		v.own, err = w.cfg.Tenants.Tenant(r.Context(), user.TenantID)
	}
	return v, err
}

// acting notes who acts, for the audit log.
func (w *Web) acting(c echo.Context, v visitor) context.Context {
	actor := audit.Actor{Kind: "system", ID: "sign-in", Name: "sign-in"}
	if v.signedIn() {
		actor = v.user.Actor()
	}
	return audit.With(c.Request().Context(), actor, audit.Origin{RequestID: requestID(c), Address: w.address(c.Request())})
}

// https reports whether the browser speaks to us, or to the proxy before us, by
// TLS.
func (w *Web) https(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(strings.ToLower(w.cfg.PublicURL), "https://")
}

// cookieName is that of the session. The prefix, which browsers take only with
// TLS, keeps other hosts of the domain from setting it.
func (w *Web) cookieName(r *http.Request) string {
	if w.https(r) {
		return "__Host-headgate"
	}
	return "headgate"
}

// token is the session's token in the cookie; false without one that could be.
func (w *Web) token(r *http.Request) (string, bool) {
	cookie, err := r.Cookie(w.cookieName(r))
	if err != nil {
		return "", false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cookie.Value)
	return cookie.Value, err == nil && len(raw) == 32
}

// remember puts a session's token into the cookie; "" takes it away.
func (w *Web) remember(c echo.Context, token string) {
	cookie := &http.Cookie{
		Name: w.cookieName(c.Request()), Value: token, Path: "/",
		HttpOnly: true, Secure: w.https(c.Request()), SameSite: http.SameSiteLaxMode,
	}
	if token == "" {
		cookie.MaxAge = -1
	}
	c.SetCookie(cookie)
}
