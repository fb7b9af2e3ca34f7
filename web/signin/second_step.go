package signin

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// This file has the second step of a sign-in. A sign-in that waits for this step is pending,
// and has a cookie that is not a session cookie. So the pages in other files treat the visitor
// as not signed in.

const secondPath = "/sign-in/second"

func (w *pages) pendingCookie(r *http.Request) string { return w.CookieName(r) + "-second" }

// setPending stores the token of a pending sign-in in a cookie. The token "" removes the
// cookie.
func (w *pages) setPending(c echo.Context, token string) {
	cookie := &http.Cookie{
		Name: w.pendingCookie(c.Request()), Value: token, Path: "/", MaxAge: int(accounts.PendingLife.Seconds()),
		HttpOnly: true, Secure: w.HTTPS(c.Request()), SameSite: http.SameSiteStrictMode,
	}
	if token == "" {
		cookie.MaxAge = -1
	}
	c.SetCookie(cookie)
}

func (w *pages) pendingToken(r *http.Request) string {
	cookie, err := r.Cookie(w.pendingCookie(r))
	if err != nil {
		return ""
	}
	return cookie.Value
}

// toSecondStep redirects to the second step if err says that the password is correct, but a
// second factor is needed. Otherwise it returns err.
func (w *pages) toSecondStep(c echo.Context, next string, err error) error {
	second := (*accounts.SecondFactorError)(nil)
	if !errors.As(err, &second) {
		return err
	}
	w.setPending(c, second.Token)
	return c.Redirect(http.StatusSeeOther, w.withNext(secondPath, next))
}

// withNext returns the path of a page of the second step, with the parameter next: the page to
// open after the sign-in.
func (w *pages) withNext(path, next string) string {
	if next = w.SafeNext(next); next == "" {
		return path
	}
	return path + "?next=" + url.QueryEscape(next)
}

// pendingExpired shows the sign-in page if err says that the pending sign-in has expired.
// Otherwise it returns err.
func (w *pages) pendingExpired(c echo.Context, next string, err error) error {
	if p := (*problem.Problem)(nil); !errors.As(err, &p) || p.Code != "sign_in_expired" {
		return err
	}
	if web.VisitorOf(c).SignedIn() { // the sign-in was finished in another tab
		return w.onward(c, next)
	}
	w.setPending(c, "")
	view := w.signInView("", next)
	view.Faults = []views.Fault{{Message: "The sign-in took too long, or was finished in another tab. Sign in again."}}
	return w.Render(c, http.StatusUnprocessableEntity, views.SignInPage(w.Page(c, "Sign in"), view))
}

func (w *pages) secondStep(c echo.Context) error {
	return w.showSecondStep(c, http.StatusOK, c.QueryParam("next"), nil)
}

// showSecondStep shows a form for each kind of second factor that the person has.
func (w *pages) showSecondStep(c echo.Context, status int, next string, faults []views.Fault) error {
	ctx := c.Request().Context()
	pending, u, f, err := w.cfg.People.Pending(ctx, w.pendingToken(c.Request()))
	if err != nil {
		return w.pendingExpired(c, next, err)
	}
	v := views.SecondStep{Email: u.Email, Next: w.SafeNext(next), Code: codeInput(), Faults: faults}
	switch {
	case len(f.List) == 0:
		v.AppURL, v.PasskeyURL = w.withNext(secondPath+"/app", next), w.withNext(secondPath+"/passkey", next)
	default:
		v.HasCode = f.Has(accounts.TOTP) || f.Codes > 0
		v.Code.Autofocus = v.HasCode
		for _, fault := range faults {
			if fault.Field == v.Code.Name {
				v.Code.Error = fault.Message
			}
		}
	}
	if f.Has(accounts.Passkey) {
		options, err := w.cfg.People.BeginUsePasskey(ctx, u, f, pending.ID, w.Origin(c))
		form, err := passkeyForm(string(options), err)
		if err != nil {
			return err
		}
		form.Action, form.Next, form.Button, form.Wide = secondPath+"/use-passkey", v.Next, "Sign in with a passkey", true
		v.Passkey = &form
	}
	p := w.Page(c, "Second factor")
	p.Passkey = v.Passkey != nil
	return w.Render(c, status, views.SecondStepPage(p, v))
}

func codeInput() views.Input {
	return views.Input{
		Name: "code", Label: "Code", Type: "text", Autocomplete: "one-time-code",
		Hint: "Six digits from your authenticator app, or a recovery code.",
	}
}

// passkeyForm returns the form with which the visitor uses a passkey. It has the options that
// the browser needs. If passkeys are not possible at this address, the form has the reason
// instead.
func passkeyForm(options string, err error) (views.PasskeyForm, error) {
	f := views.PasskeyForm{Options: options}
	if p := (*problem.Problem)(nil); errors.As(err, &p) && p.Code == "passkeys_unavailable" {
		f.Unavailable = web.Sentence(p.Message)
		return f, nil
	}
	return f, err
}

// finishSignIn finishes a sign-in with a code.
func (w *pages) finishSignIn(c echo.Context, f url.Values) error {
	r := c.Request()
	in, err := w.cfg.People.FinishSignIn(r.Context(), w.browser(r), w.pendingToken(r), f.Get("code"), w.ClientAddress(r), r.UserAgent())
	return w.finished(c, in, f.Get("next"), err)
}

// finishWithPasskey finishes a sign-in with a passkey.
func (w *pages) finishWithPasskey(c echo.Context, f url.Values) error {
	r := c.Request()
	in, err := w.cfg.People.FinishWithPasskey(r.Context(), w.browser(r), w.pendingToken(r), w.Origin(c), []byte(f.Get("response")),
		w.ClientAddress(r), r.UserAgent())
	return w.finished(c, in, f.Get("next"), err)
}

// finished completes a sign-in and sets the session cookie. If err is not nil, it shows the
// second step again, with the error.
func (w *pages) finished(c echo.Context, in accounts.SignedIn, next string, err error) error {
	if err == nil {
		return w.beginSecond(c, in, next)
	}
	if wait, limited := retryAfter(c, err); limited {
		return w.showSecondStep(c, http.StatusTooManyRequests, next, []views.Fault{{Message: wait}})
	}
	p := (*problem.Problem)(nil)
	if !errors.As(err, &p) {
		return err
	}
	switch p.Code {
	case "code_wrong":
		return w.showSecondStep(c, http.StatusUnprocessableEntity, next, []views.Fault{{Field: "code", Message: web.Sentence(p.Message)}})
	case "passkey_wrong", "passkeys_unavailable":
		return w.showSecondStep(c, http.StatusUnprocessableEntity, next, []views.Fault{{Message: web.Sentence(p.Message)}})
	case "second_factor_unreadable":
		return w.showSecondStep(c, http.StatusServiceUnavailable, next, []views.Fault{{Message: web.Sentence(p.Message)}})
	}
	return w.pendingExpired(c, next, err)
}

// beginSecond starts the session of a finished sign-in. If the sign-in created recovery codes,
// the next page shows them once.
func (w *pages) beginSecond(c echo.Context, in accounts.SignedIn, next string) error {
	w.setPending(c, "")
	w.rememberBrowser(c, in.User)
	if in.Codes == nil {
		return w.begin(c, in.Token, next)
	}
	if err := w.replaceSession(c, in.Token); err != nil {
		return err
	}
	return w.ShowOnceIn(c, in.Token, codesPath, shownCodes{Codes: in.Codes, Next: w.SafeNext(next), SignIn: true})
}

func (w *pages) secondStepApp(c echo.Context) error {
	_, u, _, err := w.cfg.People.Pending(c.Request().Context(), w.pendingToken(c.Request()))
	if err != nil {
		return w.pendingExpired(c, c.QueryParam("next"), err)
	}
	a, err := appSetup(u, "")
	if err != nil {
		return err
	}
	return w.showSecondStepApp(c, http.StatusOK, a, c.QueryParam("next"))
}

func (w *pages) showSecondStepApp(c echo.Context, status int, a views.AppSetup, next string) error {
	a.Action, a.Next = secondPath+"/app", w.SafeNext(next)
	a.Back = views.Link{Text: "Second factor", URL: w.withNext(secondPath, next)}
	return w.Render(c, status, views.SecondStepAppPage(w.Page(c, "Add an authenticator app"), a))
}

// enrollApp adds the first second factor and finishes the sign-in.
func (w *pages) enrollApp(c echo.Context, f url.Values) error {
	r := c.Request()
	in, err := w.cfg.People.EnrollTOTP(r.Context(), w.pendingToken(r), f.Get("secret"), f.Get("code"), f.Get("name"),
		w.ClientAddress(r), r.UserAgent())
	if err == nil {
		return w.beginSecond(c, in, f.Get("next"))
	}
	_, u, _, failed := w.cfg.People.Pending(r.Context(), w.pendingToken(r))
	if failed != nil {
		return w.pendingExpired(c, f.Get("next"), failed)
	}
	return w.retryApp(c, u, f, err, func(status int, a views.AppSetup) error { return w.showSecondStepApp(c, status, a, f.Get("next")) })
}

func (w *pages) secondStepPasskey(c echo.Context) error {
	return w.showSecondStepPasskey(c, http.StatusOK, c.QueryParam("next"), "", nil)
}

func (w *pages) showSecondStepPasskey(c echo.Context, status int, next, name string, faults []views.Fault) error {
	ctx := c.Request().Context()
	pending, u, f, err := w.cfg.People.Pending(ctx, w.pendingToken(c.Request()))
	if err != nil {
		return w.pendingExpired(c, next, err)
	}
	k, err := w.passkeySetup(c, u, f, pending.ID, name)
	if err != nil {
		return err
	}
	k.Passkey.Action, k.Passkey.Next, k.Faults = secondPath+"/passkey", w.SafeNext(next), faults
	k.Back = views.Link{Text: "Second factor", URL: w.withNext(secondPath, next)}
	p := w.Page(c, "Add a passkey")
	p.Passkey = true
	return w.Render(c, status, views.SecondStepPasskeyPage(p, k))
}

// enrollPasskey adds the first second factor and finishes the sign-in.
func (w *pages) enrollPasskey(c echo.Context, f url.Values) error {
	r := c.Request()
	in, err := w.cfg.People.EnrollPasskey(r.Context(), w.pendingToken(r), w.Origin(c), f.Get("name"), []byte(f.Get("response")),
		w.ClientAddress(r), r.UserAgent())
	if err == nil {
		return w.beginSecond(c, in, f.Get("next"))
	}
	var faults []views.Fault
	failed := web.Retry(err, &struct{}{}, &faults, nil, func(status int) error {
		return w.showSecondStepPasskey(c, status, f.Get("next"), f.Get("name"), faults)
	})
	return w.pendingExpired(c, f.Get("next"), failed)
}
