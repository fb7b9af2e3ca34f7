package web

import (
	"net/http"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/web/views"
)

// roles are the roles in words, for people to read and to choose from.
var roles = []struct {
	role       accounts.Role
	name, hint string
}{
	{accounts.Owner, "Owner", "Everything, people and operator keys included"},
	{accounts.Editor, "Editor", "Changes tenants, plans and overrides; reads the rest"},
	{accounts.Viewer, "Viewer", "Reads everything, changes nothing"},
	{accounts.TenantAdmin, "Tenant admin", "Manages the tenant's keys and members; reads the rest of the tenant"},
	{accounts.TenantViewer, "Tenant viewer", "Reads the tenant, changes nothing"},
}

func roleName(r accounts.Role) string {
	for _, known := range roles {
		if known.role == r {
			return known.name
		}
	}
	return string(r)
}

// roleChoice offers the operator's roles, or a tenant's.
func roleChoice(ofTenant bool, value accounts.Role) views.Choice {
	c := views.Choice{Name: "role", Label: "Role", Value: string(value)}
	for _, known := range roles {
		if known.role.Tenant() == ofTenant {
			c.Options = append(c.Options, views.Option{Value: string(known.role), Label: known.name, Hint: known.hint})
		}
	}
	return c
}

const passwordHint = "At least 12 characters. A few words that belong together only for you are easy to keep in mind."

// accountView is the page as it stands, without faults.
func (w *Web) accountView(c echo.Context) (views.Account, error) {
	v := who(c)
	sessions, err := w.cfg.People.Sessions(c.Request().Context(), v.user)
	if err != nil {
		return views.Account{}, err
	}
	now := w.cfg.Now()
	a := views.Account{
		Person: *w.person(v), SignedIn: views.NewMoment(v.user.SignedInAt, now), HasPassword: v.user.Password != "",
		Name:    views.Input{Name: "name", Label: "Your name", Type: "text", Value: v.user.Name, Autocomplete: "name"},
		Current: views.Input{Name: "current_password", Label: "Current password", Type: "password", Autocomplete: "current-password"},
		New:     views.Input{Name: "password", Label: "New password", Type: "password", Autocomplete: "new-password", Hint: passwordHint},
		Notice:  done(c),
	}
	for _, s := range sessions {
		a.Sessions = append(a.Sessions, views.Session{
			Device: device(s.Agent), Agent: s.Agent, Address: s.Address, This: s.ID == v.session.ID,
			SignedIn: views.NewMoment(s.CreatedAt, now), Seen: views.NewMoment(s.SeenAt, now), Expires: views.NewMoment(s.ExpiresAt, now),
			EndURL: "/account/sessions/" + s.ID + "/end",
		})
	}
	return a, nil
}

func (w *Web) account(c echo.Context) error {
	a, err := w.accountView(c)
	if err != nil {
		return err
	}
	return w.showAccount(c, http.StatusOK, a)
}

func (w *Web) showAccount(c echo.Context, status int, a views.Account) error {
	return w.render(c, status, views.AccountPage(w.page(c, "Your account"), a))
}

func (w *Web) changeName(c echo.Context) error {
	f, err := form(c, "name")
	if err != nil {
		return err
	}
	_, err = w.cfg.People.ChangeName(c.Request().Context(), who(c).user, f.Get("name"))
	if err == nil {
		return c.Redirect(http.StatusSeeOther, "/account?done=renamed")
	}
	a, failed := w.accountView(c)
	if failed != nil {
		return failed
	}
	a.Name.Value = f.Get("name")
	list, status, err := places{inputs: []*views.Input{&a.Name}}.tell(err)
	if err != nil {
		return err
	}
	a.NameFaults = list
	return w.showAccount(c, status, a)
}

// changePassword gives this session a new token, and ends all others.
func (w *Web) changePassword(c echo.Context) error {
	f, err := form(c, "current_password", "password", "username") // the last is there for password managers
	if err != nil {
		return err
	}
	v := who(c)
	token, err := w.cfg.People.ChangePassword(c.Request().Context(), v.user, v.session, f.Get("current_password"), f.Get("password"))
	if err == nil {
		w.remember(c, token)
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
	list, status, err := places{inputs: []*views.Input{&a.Current, &a.New}}.tell(err)
	if err != nil {
		return err
	}
	a.PasswordFault = list
	return w.showAccount(c, status, a)
}

func (w *Web) endSession(c echo.Context) error {
	if _, err := form(c); err != nil {
		return err
	}
	id := c.Param("session")
	if uuid.Validate(id) != nil {
		return errNoPage
	}
	if err := w.cfg.People.EndSession(c.Request().Context(), who(c).user, id); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, "/account?done=ended")
}

func (w *Web) endOthers(c echo.Context) error {
	if _, err := form(c); err != nil {
		return err
	}
	v := who(c)
	if _, err := w.cfg.People.EndOtherSessions(c.Request().Context(), v.user, v.session); err != nil {
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
