package signin

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// signInView returns the empty form.
func (w *pages) signInView(email, next string) views.SignIn {
	v := views.SignIn{
		Email:    views.Input{Name: "email", Label: "Email", Type: "email", Value: email, Autocomplete: "username", Autofocus: email == ""},
		Password: views.Input{Name: "password", Label: "Password", Type: "password", Autocomplete: "current-password", Autofocus: email != ""},
		Next:     w.SafeNext(next),
	}
	if w.cfg.Provider != nil {
		v.Provider, v.ProviderURL = w.cfg.ProviderName, "/sign-in/oidc"
		if v.Next != "" {
			v.ProviderURL += "?next=" + url.QueryEscape(v.Next)
		}
	}
	return v
}

func (w *pages) signInForm(c echo.Context) error {
	next := c.QueryParam("next")
	if web.VisitorOf(c).SignedIn() {
		return w.onward(c, next)
	}
	view := w.signInView("", next)
	view.Notice = web.Notice(c)
	// Show the form even if the database is unavailable.
	if fresh, err := w.cfg.People.NeedsSetup(c.Request().Context()); err == nil {
		view.NeedsSetup = fresh
	}
	return w.Render(c, http.StatusOK, views.SignInPage(w.Page(c, "Sign in"), view))
}

// signIn signs a person in with the e-mail address and the password in the form f.
func (w *pages) signIn(c echo.Context, f url.Values) error {
	if err := w.toSecondStep(c, f.Get("next"), w.enter(c, f.Get("email"), f.Get("password"), f.Get("next"))); err != nil {
		return w.signInFailed(c, f.Get("email"), f.Get("next"), err)
	}
	return nil
}

// enter signs a person in with a password, and redirects to next. It always creates a new session and
// ends the browser's old session, which prevents session fixation.
func (w *pages) enter(c echo.Context, email, password, next string) error {
	r := c.Request()
	token, _, u, err := w.cfg.People.SignInFrom(r.Context(), w.browser(r), email, password, w.ClientAddress(r), r.UserAgent())
	if err != nil {
		return err
	}
	w.rememberBrowser(c, u)
	return w.begin(c, token, next)
}

// rememberBrowser sets a cookie that says that the user u has signed in with this browser before. u
// must have used the password, and the second factor if u has one.
func (w *pages) rememberBrowser(c echo.Context, u accounts.User) {
	r := c.Request()
	if browser := w.cfg.People.RememberBrowser(u, w.browser(r)); browser != "" {
		c.SetCookie(&http.Cookie{
			Name: w.browserCookie(r), Value: browser, Path: "/", MaxAge: browserLife,
			HttpOnly: true, Secure: w.HTTPS(r), SameSite: http.SameSiteLaxMode,
		})
	}
}

// browserLife is the lifetime, in seconds, of the cookie that identifies a browser. It is the
// maximum that browsers accept.
const browserLife = 400 * 24 * 60 * 60

// browserCookie returns the name of the cookie that identifies a browser in which a user has
// signed in before.
func (w *pages) browserCookie(r *http.Request) string { return w.CookieName(r) + "-browser" }

// browser returns the value of the cookie that identifies the browser, or "".
func (w *pages) browser(r *http.Request) string {
	cookie, err := r.Cookie(w.browserCookie(r))
	if err != nil {
		return ""
	}
	return cookie.Value
}

// begin replaces the session of the browser with a new session, and redirects.
func (w *pages) begin(c echo.Context, token, next string) error {
	if err := w.replaceSession(c, token); err != nil {
		return err
	}
	return w.onward(c, next)
}

// replaceSession ends the session of the browser, if there is one. Then it stores the token of a new
// session in the session cookie.
func (w *pages) replaceSession(c echo.Context, token string) error {
	if v := web.VisitorOf(c); v.SignedIn() {
		if err := w.cfg.People.SignOut(c.Request().Context(), v.User, v.Session); err != nil {
			return err
		}
	}
	w.SetSessionCookie(c, token)
	return nil
}

// signInFailed shows the sign-in form again with the error. The page does not reveal whether
// the e-mail address has an account.
func (w *pages) signInFailed(c echo.Context, email, next string, err error) error {
	view, status := w.signInView(email, next), http.StatusUnprocessableEntity
	if wait, limited := retryAfter(c, err); limited {
		status = http.StatusTooManyRequests
		view.Faults = []views.Fault{{Message: wait}}
	} else if problem.Is(err, problem.Unauthenticated) {
		view.Password.Error = "The email address or the password is wrong."
		view.Faults = []views.Fault{{Field: view.Password.Name, Message: view.Password.Error}}
	} else {
		return err
	}
	return w.Render(c, status, views.SignInPage(w.Page(c, "Sign in"), view))
}

// retryAfter returns words that say how long to wait, if err says that there were too many failed
// sign-ins. For any other error, it returns false.
func retryAfter(c echo.Context, err error) (string, bool) {
	limited := (*accounts.LimitedError)(nil)
	if !errors.As(err, &limited) {
		return "", false
	}
	wait := (limited.RetryAfter + time.Second - 1) / time.Second
	c.Response().Header().Set("Retry-After", strconv.FormatInt(int64(wait), 10))
	return "Too many sign-ins have failed. Try again in " + views.Wait(wait*time.Second+time.Minute-1) + ".", true
}

// onward redirects to the page next, which the visitor requested before the sign-in.
func (w *pages) onward(c echo.Context, next string) error {
	if next = w.SafeNext(next); next == "" {
		next = "/"
	}
	return c.Redirect(http.StatusSeeOther, next)
}

func (w *pages) signOut(c echo.Context, _ url.Values) error {
	v := web.VisitorOf(c)
	if err := w.cfg.People.SignOut(c.Request().Context(), v.User, v.Session); err != nil {
		return err
	}
	w.SetSessionCookie(c, "")
	return c.Redirect(http.StatusSeeOther, "/sign-in?done=left")
}
