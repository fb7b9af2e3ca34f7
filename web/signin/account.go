package signin

import (
	"net/http"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

const passwordHint = "At least 12 characters. A few words that belong together only for you are easy to keep in mind."

// accountView is the page as it stands, without faults.
func (w *pages) accountView(c echo.Context) (views.Account, error) {
	v := web.VisitorOf(c)
	sessions, err := w.cfg.People.Sessions(c.Request().Context(), v.User)
	if err != nil {
		return views.Account{}, err
	}
	now := w.Now()
	a := views.Account{
		Person: *w.Person(v), SignedIn: views.NewMoment(v.User.SignedInAt, now), HasPassword: v.User.Password != "",
		Name:    views.Input{Name: "name", Label: "Your name", Type: "text", Value: v.User.Name, Autocomplete: "name"},
		Current: views.Input{Name: "current_password", Label: "Current password", Type: "password", Autocomplete: "current-password"},
		New:     views.Input{Name: "password", Label: "New password", Type: "password", Autocomplete: "new-password", Hint: passwordHint},
		Notice:  web.Notice(c),
	}
	for _, s := range sessions {
		a.Sessions = append(a.Sessions, views.Session{
			Device: device(s.Agent), Agent: s.Agent, Address: s.Address, This: s.ID == v.Session.ID,
			SignedIn: views.NewMoment(s.CreatedAt, now), Seen: views.NewMoment(s.SeenAt, now), Expires: views.NewMoment(s.ExpiresAt, now),
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

func (w *pages) changeName(c echo.Context) error {
	f, err := web.Form(c, "name")
	if err != nil {
		return err
	}
	_, err = w.cfg.People.ChangeName(c.Request().Context(), web.VisitorOf(c).User, f.Get("name"))
	if err == nil {
		return c.Redirect(http.StatusSeeOther, "/account?done=renamed")
	}
	a, failed := w.accountView(c)
	if failed != nil {
		return failed
	}
	a.Name.Value = f.Get("name")
	list, status, err := web.Places{Inputs: []*views.Input{&a.Name}}.Report(err)
	if err != nil {
		return err
	}
	a.NameFaults = list
	return w.showAccount(c, status, a)
}

// changePassword gives this session a new token, and ends all others.
func (w *pages) changePassword(c echo.Context) error {
	f, err := web.Form(c, "current_password", "password", "username") // the last is there for password managers
	if err != nil {
		return err
	}
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
	list, status, err := web.Places{Inputs: []*views.Input{&a.Current, &a.New}}.Report(err)
	if err != nil {
		return err
	}
	a.PasswordFault = list
	return w.showAccount(c, status, a)
}

func (w *pages) endSession(c echo.Context) error {
	if _, err := web.Form(c); err != nil {
		return err
	}
	id := c.Param("session")
	if uuid.Validate(id) != nil {
		return web.ErrNoPage
	}
	if err := w.cfg.People.EndSession(c.Request().Context(), web.VisitorOf(c).User, id); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, "/account?done=ended")
}

func (w *pages) endOthers(c echo.Context) error {
	if _, err := web.Form(c); err != nil {
		return err
	}
	v := web.VisitorOf(c)
	if _, err := w.cfg.People.EndOtherSessions(c.Request().Context(), v.User, v.Session); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, "/account?done=alone")
}

// device words a User-Agent: which browser on which system, as far as it says so.
func device(agent string) string {
	name, system := "A browser", ""
	for _, known := range []struct{ mark, name string }{
		{"Edg/", "Edge"},
		{"OPR/", "Opera"},
		{"Firefox/", "Firefox"},
		{"Chromium/", "Chromium"},
		{"Chrome/", "Chrome"},
		{"Safari/", "Safari"},
		{"curl/", "curl"},
	} {
		if strings.Contains(agent, known.mark) {
			name = known.name
			break
		}
	}
	for _, known := range []struct{ mark, name string }{
		{"iPhone", "iPhone"},
		{"iPad", "iPad"},
		{"Android", "Android"},
		{"Windows", "Windows"},
		{"Mac OS X", "macOS"},
		{"CrOS", "ChromeOS"},
		{"Linux", "Linux"},
	} {
		if strings.Contains(agent, known.mark) {
			system = " on " + known.name
			break
		}
	}
	return name + system
}
