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

// A Visitor is the user and the session of a request. The zero value is a visitor who is
// not signed in.
type Visitor struct {
	User    accounts.User
	Session accounts.Session
	// Own is the tenant of the user. For the operator's people, it is the zero value.
	Own tenants.Tenant
	// Display is set if the page is rendered for a shared link instead of a person. The page must then
	// have no links to other pages.
	Display *Display
}

// A Display stands in place of a session for a visitor who has a shared link.
type Display struct {
	// Keep checks the link. It returns problem.NotFound if the link has ended.
	Keep func(context.Context) error
}

// VisitorKey is the key under which the context of a request stores the Visitor.
const VisitorKey = "visitor"

// VisitorOf returns the visitor of a request.
func VisitorOf(c echo.Context) Visitor {
	v, _ := c.Get(VisitorKey).(Visitor)
	return v
}

func (v Visitor) SignedIn() bool { return v.User.ID != "" }

// party returns the ID by which slots for expensive pages are counted. For a member of a tenant,
// it is the ID of the tenant, so all members of this tenant share slots. For a person who
// operates Headgate, it is the ID of the person.
func (v Visitor) party() string {
	if v.User.TenantID != "" {
		return v.User.TenantID
	}
	return v.User.ID
}

// Principal returns the visitor in the form that accounts.Authorize needs.
func (v Visitor) Principal() accounts.Principal {
	if !v.SignedIn() {
		return accounts.Principal{}
	}
	return v.User.Principal()
}

// recognize returns the visitor to whom the session cookie of a request belongs. If the session is
// invalid or expired, it returns a visitor who is not signed in.
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
		v.Own, err = w.cfg.Tenants.Tenant(r.Context(), user.TenantID)
	}
	return v, err
}

// acting returns a context with the visitor as the actor for entries of the audit log.
func (w *Shell) acting(c echo.Context, v Visitor) context.Context {
	actor := audit.Actor{Kind: "system", ID: "sign-in", Name: "sign-in"}
	if v.SignedIn() {
		actor = v.User.Actor()
	}
	return audit.With(c.Request().Context(), actor, audit.Origin{RequestID: RequestID(c), Address: w.ClientAddress(c.Request())})
}

// HTTPS reports whether the browser reaches Headgate over TLS: directly, or through a trusted
// proxy.
func (w *Shell) HTTPS(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(strings.ToLower(w.cfg.PublicURL), "https://")
}

// CookieName returns the name of the session cookie. With TLS, the name begins with __Host-, so
// that other hosts of the domain cannot set this cookie.
func (w *Shell) CookieName(r *http.Request) string {
	if w.HTTPS(r) {
		return "__Host-headgate"
	}
	return "headgate"
}

// token returns the token in the session cookie. It returns false if there is no cookie, or if its
// value does not have the form of a token.
func (w *Shell) token(r *http.Request) (string, bool) {
	cookie, err := r.Cookie(w.CookieName(r))
	if err != nil {
		return "", false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cookie.Value)
	return cookie.Value, err == nil && len(raw) == 32
}

// SetSessionCookie stores a token in the session cookie. The token "" deletes the cookie.
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
