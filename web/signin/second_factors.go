package signin

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/secondfactor"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

const (
	factorsPath = "/account/second-factor"
	codesPath   = factorsPath + "/codes"
	// fewCodes is the number of unused recovery codes below which the page suggests new ones.
	fewCodes = 3
)

// shownCodes has the data of the page that shows new recovery codes once.
type shownCodes struct {
	Codes  []string
	Next   string
	SignIn bool // the codes were made during a sign-in
}

func kindName(k accounts.FactorKind) string {
	if k == accounts.Passkey {
		return "Passkey"
	}
	return "Authenticator app"
}

func (w *pages) secondFactors(c echo.Context) error {
	return w.showSecondFactors(c, http.StatusOK, nil, nil)
}

// showSecondFactors shows the visitor's second factors. If the visitor must confirm the
// password first, the page has a form for the password, with the error err.
func (w *pages) showSecondFactors(c echo.Context, status int, renamed map[string]string, err error) error {
	ctx, v := c.Request().Context(), web.VisitorOf(c)
	f, failed := w.cfg.People.FactorsOf(ctx, v.User)
	if failed != nil {
		return failed
	}
	s := views.SecondFactors{
		Codes: views.Count(int64(f.Codes)), FewCodes: f.Codes < fewCodes, Required: f.Required, HasPassword: v.User.Password != "",
		Confirmed: v.Session.Confirmed(w.Now()), Notice: web.Notice(c),
		Password: views.Input{Name: "password", Label: "Password", Type: "password", Autocomplete: "current-password"}, Code: codeInput(),
		HasCode: f.Has(accounts.TOTP) || f.Codes > 0,
	}
	for _, factor := range f.List {
		s.Rows = append(s.Rows, views.FactorRow{
			Kind: kindName(factor.Kind), Name: factor.Name, RemoveURL: factorsPath + "/" + factor.ID + "/remove",
			Added: views.NewMoment(factor.CreatedAt, w.Now()), Used: views.NewMoment(factor.UsedAt, w.Now()),
		})
	}
	if !s.Confirmed && f.Has(accounts.Passkey) {
		options, err := w.cfg.People.BeginUsePasskey(ctx, v.User, f, v.Session.ID, w.Origin(c))
		form, err := passkeyForm(string(options), err)
		if err != nil {
			return err
		}
		form.Action, form.Button, form.Fields = factorsPath+"/confirm-passkey", "Confirm with a passkey", []views.Input{s.Password}
		form.Fields[0].Name = "passkey_password"
		s.Passkey = &form
	}
	show := func(status int) error {
		p := w.Page(c, "Second factor")
		p.Passkey = s.Passkey != nil
		return w.Render(c, status, views.SecondFactorsPage(p, s))
	}
	if err == nil {
		return show(status)
	}
	if wait, limited := retryAfter(c, err); limited {
		s.Faults = []views.Fault{{Message: wait}}
		return show(http.StatusTooManyRequests)
	}
	return web.Retry(err, &s, &s.Faults, renamed, show)
}

// confirm checks the visitor's password, and a code if the visitor has a second factor. After
// that, the visitor may change second factors for some time.
func (w *pages) confirm(c echo.Context, f url.Values) error {
	v := web.VisitorOf(c)
	return w.confirmed(c, nil, w.cfg.People.Confirm(c.Request().Context(), v.User, v.Session, f.Get("password"), f.Get("code")))
}

// confirmWithPasskey checks the visitor's password and a passkey. After that, the visitor may
// change second factors for some time.
func (w *pages) confirmWithPasskey(c echo.Context, f url.Values) error {
	v := web.VisitorOf(c)
	err := w.cfg.People.ConfirmWithPasskey(c.Request().Context(), v.User, v.Session, f.Get("passkey_password"), w.Origin(c),
		[]byte(f.Get("response")))
	return w.confirmed(c, map[string]string{"password": "passkey_password"}, err)
}

func (w *pages) confirmed(c echo.Context, renamed map[string]string, err error) error {
	if err == nil {
		return c.Redirect(http.StatusSeeOther, factorsPath)
	}
	return w.showSecondFactors(c, http.StatusUnprocessableEntity, renamed, err)
}

// unconfirmed handles an error from a change of second factors. If the visitor has not
// confirmed the password recently, it redirects to the page with the form for the password. If
// the change is not possible, it shows the page with the error. It returns all other errors.
func (w *pages) unconfirmed(c echo.Context, err error) error {
	if p := (*problem.Problem)(nil); errors.As(err, &p) && p.Code == "confirm_first" {
		return c.Redirect(http.StatusSeeOther, factorsPath)
	}
	return err
}

// mayChange reports whether the visitor has confirmed the password recently, so that second
// factors can be changed.
func (w *pages) mayChange(c echo.Context) bool {
	v := web.VisitorOf(c)
	return v.User.Password != "" && v.Session.Confirmed(w.Now())
}

// appSetup returns the form that adds an authenticator app. If secret is "", the form has a new
// secret.
func appSetup(u accounts.User, secret string) (views.AppSetup, error) {
	make := secondfactor.NewTOTP
	if secret != "" {
		make = func(account string) (secondfactor.TOTP, error) { return secondfactor.KnownTOTP(secret, account) }
	}
	t, err := make(u.Email)
	if err != nil {
		return views.AppSetup{}, err
	}
	var groups []string
	for group := range slices.Chunk([]byte(t.Secret), 4) {
		groups = append(groups, string(group))
	}
	return views.AppSetup{
		QR: "data:image/png;base64," + base64.StdEncoding.EncodeToString(t.QR), Secret: t.Secret, Typed: strings.Join(groups, " "),
		Code: views.Input{Name: "code", Label: "Code", Type: "text", Autocomplete: "one-time-code", Hint: "Six digits that the app shows."},
		Name: views.TextInput("name", "Name of the app", "Authenticator app", ""),
	}, nil
}

// retryApp shows the form that adds an authenticator app again. The form has the same secret as
// before, and the error.
func (w *pages) retryApp(c echo.Context, u accounts.User, f url.Values, err error, show func(int, views.AppSetup) error) error {
	if !secondfactor.ValidSecret(f.Get("secret")) {
		return err
	}
	a, failed := appSetup(u, f.Get("secret"))
	if failed != nil {
		return failed
	}
	a.Name.Value = f.Get("name")
	if wait, limited := retryAfter(c, err); limited {
		a.Faults = []views.Fault{{Message: wait}}
		return show(http.StatusTooManyRequests, a)
	}
	return web.Retry(err, &a, &a.Faults, nil, func(status int) error { return show(status, a) })
}

func (w *pages) app(c echo.Context) error {
	if !w.mayChange(c) {
		return c.Redirect(http.StatusSeeOther, factorsPath)
	}
	a, err := appSetup(web.VisitorOf(c).User, "")
	if err != nil {
		return err
	}
	return w.showApp(c, http.StatusOK, a)
}

func (w *pages) showApp(c echo.Context, status int, a views.AppSetup) error {
	a.Action, a.Back = factorsPath+"/app", views.Link{Text: "Second factor", URL: factorsPath}
	return w.Render(c, status, views.AppPage(w.Page(c, "Add an authenticator app"), a))
}

func (w *pages) addApp(c echo.Context, f url.Values) error {
	v := web.VisitorOf(c)
	codes, err := w.cfg.People.AddTOTP(c.Request().Context(), v.User, v.Session, f.Get("secret"), f.Get("code"), f.Get("name"))
	if err == nil {
		return w.added(c, codes)
	}
	if err = w.unconfirmed(c, err); err == nil {
		return nil
	}
	return w.retryApp(c, v.User, f, err, func(status int, a views.AppSetup) error { return w.showApp(c, status, a) })
}

// added redirects after a second factor was added. If it is the first one of the person, the
// next page shows new recovery codes once.
func (w *pages) added(c echo.Context, codes []string) error {
	if codes == nil {
		return c.Redirect(http.StatusSeeOther, factorsPath+"?done=factor-added")
	}
	return w.ShowOnce(c, codesPath, shownCodes{Codes: codes})
}

// passkeySetup returns the form that adds a passkey. id is the ID of a session or of a pending
// sign-in.
func (w *pages) passkeySetup(c echo.Context, u accounts.User, f accounts.Factors, id, name string) (views.PasskeySetup, error) {
	options, err := w.cfg.People.BeginAddPasskey(c.Request().Context(), u, f, id, w.Origin(c))
	form, err := passkeyForm(string(options), err)
	form.Create, form.Button = true, "Create a passkey"
	if name == "" {
		name = device(c.Request().UserAgent())
	}
	form.Fields = []views.Input{views.TextInput("name", "Name of the passkey", name, "")}
	return views.PasskeySetup{Passkey: form}, err
}

func (w *pages) passkey(c echo.Context) error {
	if !w.mayChange(c) {
		return c.Redirect(http.StatusSeeOther, factorsPath)
	}
	return w.showPasskey(c, http.StatusOK, "", nil)
}

func (w *pages) showPasskey(c echo.Context, status int, name string, faults []views.Fault) error {
	v := web.VisitorOf(c)
	f, err := w.cfg.People.FactorsOf(c.Request().Context(), v.User)
	if err != nil {
		return err
	}
	k, err := w.passkeySetup(c, v.User, f, v.Session.ID, name)
	if err != nil {
		return err
	}
	k.Passkey.Action, k.Back, k.Faults = factorsPath+"/passkey", views.Link{Text: "Second factor", URL: factorsPath}, faults
	p := w.Page(c, "Add a passkey")
	p.Passkey = true
	return w.Render(c, status, views.PasskeyPage(p, k))
}

func (w *pages) addPasskey(c echo.Context, f url.Values) error {
	v := web.VisitorOf(c)
	codes, err := w.cfg.People.AddPasskey(c.Request().Context(), v.User, v.Session, w.Origin(c), f.Get("name"), []byte(f.Get("response")))
	if err == nil {
		return w.added(c, codes)
	}
	if err = w.unconfirmed(c, err); err == nil {
		return nil
	}
	var faults []views.Fault
	return web.Retry(err, &struct{}{}, &faults, nil, func(status int) error { return w.showPasskey(c, status, f.Get("name"), faults) })
}

func (w *pages) removeFactor(c echo.Context, _ url.Values) error {
	id, err := web.PathID(c, "factor")
	if err != nil {
		return err
	}
	v := web.VisitorOf(c)
	err = w.cfg.People.RemoveFactor(c.Request().Context(), v.User, v.Session, id)
	if err == nil {
		return c.Redirect(http.StatusSeeOther, factorsPath+"?done=factor-removed")
	}
	return w.unconfirmed(c, err)
}

func (w *pages) newCodes(c echo.Context, _ url.Values) error {
	v := web.VisitorOf(c)
	codes, err := w.cfg.People.NewRecoveryCodes(c.Request().Context(), v.User, v.Session)
	if err == nil {
		return w.ShowOnce(c, codesPath, shownCodes{Codes: codes})
	}
	return w.unconfirmed(c, err)
}

// showCodes shows new recovery codes. No other page shows these codes.
func (w *pages) showCodes(c echo.Context) error {
	var s shownCodes
	back := views.Link{Text: "Second factor", URL: factorsPath}
	if !w.ShownOnce(c, &s) {
		return w.GoneOnce(c, "Headgate shows recovery codes once, and stores only hashes of them. If you have not saved them, make new ones.",
			back)
	}
	n := views.NewCodes{Codes: s.Codes, Next: views.Link{Text: "I have saved the codes", URL: factorsPath}}
	if s.SignIn {
		if n.Next.URL = w.SafeNext(s.Next); n.Next.URL == "" {
			n.Next.URL = "/"
		}
	}
	return w.Render(c, http.StatusOK, views.NewCodesPage(w.Page(c, "Recovery codes"), n))
}
