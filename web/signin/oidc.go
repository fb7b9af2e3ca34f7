package signin

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// A Provider signs people in by OpenID Connect.
type Provider interface {
	// Start returns the URL of the provider's sign-in page, and a value for a cookie, which
	// Finish needs. The value consists of letters, digits, hyphens and underscores.
	Start(ctx context.Context) (page, cookie string, err error)
	// Finish returns the identity of the person who signed in. Its errors are Unauthenticated
	// and Unavailable.
	Finish(ctx context.Context, cookie, code, state string) (accounts.Identity, error)
}

const (
	// providerTime is the maximum time of a sign-in at the provider.
	providerTime = 10 * time.Minute
	// cookieSplit separates the two parts of the cookie: the value from Start, and the address of
	// the page to open after the sign-in.
	cookieSplit = "~"
)

// setProviderCookie stores the state of a sign-in at the provider in a cookie. The value ""
// removes the cookie.
func (w *pages) setProviderCookie(c echo.Context, value string) {
	cookie := &http.Cookie{
		Name: w.CookieName(c.Request()) + "-oidc", Value: value, Path: "/", MaxAge: int(providerTime / time.Second),
		HttpOnly: true, Secure: w.HTTPS(c.Request()), SameSite: http.SameSiteLaxMode, // Lax: the provider redirects from another site
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	c.SetCookie(cookie)
}

// toProvider redirects to the provider.
func (w *pages) toProvider(c echo.Context) error {
	page, cookie, err := w.cfg.Provider.Start(c.Request().Context())
	if err != nil {
		return w.providerFailed(c, "", err)
	}
	w.setProviderCookie(c, cookie+cookieSplit+w.SafeNext(c.QueryParam("next")))
	return c.Redirect(http.StatusSeeOther, page)
}

// fromProvider handles the redirect from the provider back to Headgate. It deletes the cookie
// with the state of the sign-in, so that the state can be used only once.
func (w *pages) fromProvider(c echo.Context) error {
	r := c.Request()
	value := ""
	if cookie, err := r.Cookie(w.CookieName(r) + "-oidc"); err == nil {
		value = cookie.Value
	}
	w.setProviderCookie(c, "")
	cookie, next, _ := strings.Cut(value, cookieSplit)
	who, err := w.cfg.Provider.Finish(r.Context(), cookie, c.QueryParam("code"), c.QueryParam("state"))
	if err != nil {
		return w.providerFailed(c, next, err)
	}
	token, _, _, err := w.cfg.People.SignInWith(r.Context(), who, w.ClientAddress(r), r.UserAgent())
	if err != nil {
		return w.providerFailed(c, next, err)
	}
	return w.begin(c, token, next)
}

// providerFailed shows the sign-in page with the error of the provider.
func (w *pages) providerFailed(c echo.Context, next string, err error) error {
	told := (*problem.Problem)(nil)
	if !errors.As(err, &told) {
		return err
	}
	view, status := w.signInView("", next), http.StatusUnprocessableEntity
	switch told.Kind {
	case problem.Unauthenticated, problem.Conflict:
	case problem.Unavailable:
		status = http.StatusServiceUnavailable
	default:
		return err
	}
	w.Log().Warn("sign-in by the provider failed", "request_id", web.RequestID(c), "error", err)
	view.Faults = []views.Fault{{Message: web.Sentence(told.Message)}}
	return w.Render(c, status, views.SignInPage(w.Page(c, "Sign in"), view))
}
