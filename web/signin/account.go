package signin

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// passwordHint describes the rules for a new password, in the order in which package accounts
// checks them.
const passwordHint = "At least 12 characters, 5 of them different. No common words, keyboard rows, “headgate”, or parts of your name and " +
	"email address. Three words that do not belong together are easy to remember."

// accountView returns the view of the account page, without error messages.
func (w *pages) accountView(c echo.Context) (views.Account, error) {
	v := web.VisitorOf(c)
	sessions, err := w.cfg.People.Sessions(c.Request().Context(), v.User)
	if err != nil {
		return views.Account{}, err
	}
	now := w.Now()
	a := views.Account{
		Person: *w.Person(v), SignedIn: views.NewMoment(v.User.SignedInAt, now), HasPassword: v.User.Password != "",
		SecondFactor: v.User.SecondFactor,
		Name:         views.Input{Name: "name", Label: "Your name", Type: "text", Value: v.User.Name, Autocomplete: "name"},
		Current:      views.Input{Name: "current_password", Label: "Current password", Type: "password", Autocomplete: "current-password"},
		New:          views.Input{Name: "password", Label: "New password", Type: "password", Autocomplete: "new-password", Hint: passwordHint},
		Notice:       web.Notice(c),
	}
	for _, s := range sessions {
		a.Sessions = append(a.Sessions, views.Session{
			Device: device(s.Agent), Agent: s.Agent, Address: s.Address, This: s.ID == v.Session.ID,
			SignedIn: views.NewMoment(s.CreatedAt, now), Seen: views.NewMoment(s.SeenAt, now),
			EndURL: "/account/sessions/" + s.ID + "/end",
		})
	}
	return a, nil
}

func (w *pages) account(c echo.Context) error {
	a, err := w.accountView(c)
	if err != nil {
		return err
	}
	return w.showAccount(c, http.StatusOK, a)
}

func (w *pages) showAccount(c echo.Context, status int, a views.Account) error {
	return w.Render(c, status, views.AccountPage(w.Page(c, "Your account"), a))
}

func (w *pages) changeName(c echo.Context, f url.Values) error {
	_, err := w.cfg.People.ChangeName(c.Request().Context(), web.VisitorOf(c).User, f.Get("name"))
	if err == nil {
		return c.Redirect(http.StatusSeeOther, "/account?done=renamed")
	}
	a, failed := w.accountView(c)
	if failed != nil {
		return failed
	}
	a.Name.Value = f.Get("name")
	return web.Retry(err, &a, &a.NameFaults, nil, func(status int) error { return w.showAccount(c, status, a) })
}

// changePassword changes the password of the visitor. The session gets a new token. All other
// sessions of the visitor end.
func (w *pages) changePassword(c echo.Context, f url.Values) error {
	v := web.VisitorOf(c)
	token, err := w.cfg.People.ChangePassword(c.Request().Context(), v.User, v.Session, f.Get("current_password"), f.Get("password"))
	if err == nil {
		w.SetSessionCookie(c, token)
		return c.Redirect(http.StatusSeeOther, "/account?done=changed")
	}
	a, failed := w.accountView(c)
	if failed != nil {
		return failed
	}
	if wait, limited := retryAfter(c, err); limited {
		a.PasswordFault = []views.Fault{{Message: wait}}
		return w.showAccount(c, http.StatusTooManyRequests, a)
	}
	return web.Retry(err, &a, &a.PasswordFault, nil, func(status int) error { return w.showAccount(c, status, a) })
}

func (w *pages) endSession(c echo.Context, _ url.Values) error {
	id, err := web.PathID(c, "session")
	if err != nil {
		return err
	}
	if err := w.cfg.People.EndSession(c.Request().Context(), web.VisitorOf(c).User, id); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, "/account?done=ended")
}

func (w *pages) endOthers(c echo.Context, _ url.Values) error {
	v := web.VisitorOf(c)
	if _, err := w.cfg.People.EndOtherSessions(c.Request().Context(), v.User, v.Session); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, "/account?done=alone")
}

// An agentMark is a text in User-Agent headers, with the name of the browser or operating
// system that sends it.
type agentMark struct{ mark, name string }

// browsers and systems are searched in this order. The order matters, because the User-Agent of
// one browser also contains the marks of other browsers.
var (
	browsers = []agentMark{
		{"Edg/", "Edge"},
		{"OPR/", "Opera"},
		{"Firefox/", "Firefox"},
		{"Chromium/", "Chromium"},
		{"Chrome/", "Chrome"},
		{"Safari/", "Safari"},
		{"curl/", "curl"},
		{"", "A browser"},
	}
	systems = []agentMark{
		{"iPhone", " on iPhone"},
		{"iPad", " on iPad"},
		{"Android", " on Android"},
		{"Windows", " on Windows"},
		{"Mac OS X", " on macOS"},
		{"CrOS", " on ChromeOS"},
		{"Linux", " on Linux"},
		{"", ""},
	}
)

// device returns words for the browser and the operating system that sent a User-Agent header.
func device(agent string) string {
	name := func(list []agentMark) string {
		return list[slices.IndexFunc(list, func(m agentMark) bool { return strings.Contains(agent, m.mark) })].name
	}
	return name(browsers) + name(systems)
}
