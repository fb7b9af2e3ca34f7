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
	// Start gives the provider's page to send somebody to, and what Finish needs
	// of their browser: letters, digits, hyphens and underscores.
	Start(ctx context.Context) (page, cookie string, err error)
	// Finish says who came back; Unauthenticated, Unavailable.
	Finish(ctx context.Context, cookie, code, state string) (accounts.Identity, error)
}

// How long somebody may stay at the provider, and what stands in the cookie
// between Finish's part and the path to go on to.
const (
	awayLife  = 10 * time.Minute
	awaySplit = "~"
)

// rememberAway keeps what belongs to a sign-in at the provider; "" takes it away.
func (w *pages) rememberAway(c echo.Context, value string) {
	cookie := &http.Cookie{
		Name: w.CookieName(c.Request()) + "-oidc", Value: value, Path: "/", MaxAge: int(awayLife / time.Second),
		HttpOnly: true, Secure: w.HTTPS(c.Request()), SameSite: http.SameSiteLaxMode, // Lax: it comes back from another site
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	c.SetCookie(cookie)
}

// toProvider sends somebody to the provider.
func (w *pages) toProvider(c echo.Context) error {
	page, cookie, err := w.cfg.Provider.Start(c.Request().Context())
	if err != nil {
		return w.providerFailed(c, "", err)
	}
	w.rememberAway(c, cookie+awaySplit+w.SafeNext(c.QueryParam("next")))
	return c.Redirect(http.StatusSeeOther, page)
}

// fromProvider is where the provider sends them back. What was remembered
// serves once.
func (w *pages) fromProvider(c echo.Context) error {
	r := c.Request()
	value := ""
	if cookie, err := r.Cookie(w.CookieName(r) + "-oidc"); err == nil {
		value = cookie.Value
	}
	w.rememberAway(c, "")
	cookie, next, _ := strings.Cut(value, awaySplit)
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

// providerFailed shows the sign-in with what went wrong at the provider.
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
