package web

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web/views"
)

// peoplePage is how many people stand on one page of a list.
const peoplePage = 50

// A crowd is a list of people: the operator's, or a tenant's members.
type crowd struct {
	tenant      tenants.Tenant // zero for the operator's
	base, title string
	intro       string
	mayWrite    bool
}

// crowdOf gives the list that the path names.
func crowdOf(c echo.Context) crowd {
	if tenant, ok := c.Get(tenantKey).(tenants.Tenant); ok {
		return crowd{
			tenant: tenant, base: "/tenants/" + tenant.Slug + "/members", title: "Members",
			intro:    "Whoever belongs to " + tenant.Name + " sees this tenant only.",
			mayWrite: accounts.Authorize(who(c).principal(), accounts.MembersWrite) == nil,
		}
	}
	return crowd{
		base: "/people", title: "People",
		intro:    "Those who run Headgate. Each reaches every tenant, as far as the role goes.",
		mayWrite: accounts.Authorize(who(c).principal(), accounts.PeopleWrite) == nil,
	}
}

// crowdTabs are those of the tenant whose members they are, or of the settings
// for the operator's people.
func (w *Web) crowdTabs(c echo.Context, k crowd) []views.Tab {
	if !k.ofTenant() {
		return w.settingsTabs(c, "/people")
	}
	return w.tenantTabs(c, "/members")
}

func (k crowd) ofTenant() bool { return k.tenant.ID != "" }

// row shows one person.
func (w *Web) row(c echo.Context, k crowd, u accounts.User) views.Row {
	status := "Active"
	if u.Disabled {
		status = "Disabled"
	}
	return views.Row{
		Name: u.Name, Email: u.Email, Role: roleName(u.Role), Status: status, URL: k.base + "/" + u.ID,
		You: u.ID == who(c).user.ID, Disabled: u.Disabled, SignedIn: views.NewMoment(u.SignedInAt, w.cfg.Now()),
	}
}

// peopleView is the list as it stands, with an empty form.
func (w *Web) peopleView(c echo.Context, k crowd) (views.People, error) {
	ctx, p := c.Request().Context(), who(c).principal()
	query, after := c.QueryParam("q"), c.QueryParam("after")
	if uuid.Validate(after) != nil {
		after = ""
	}
	list, err := w.cfg.People.Users(ctx, p, k.tenant.ID, accounts.UserFilter{Query: strings.TrimSpace(query), After: after, Limit: peoplePage + 1})
	if err != nil {
		return views.People{}, err
	}
	v := views.People{
		Title: k.title, Tabs: w.crowdTabs(c, k), Intro: k.intro, Base: k.base, Query: query, MayWrite: k.mayWrite, Notice: done(c),
		Email: views.Input{Name: "email", Label: "E-mail", Type: "email", Autocomplete: "off"},
		Role:  roleChoice(k.ofTenant(), ""),
	}
	if len(list) > peoplePage {
		list = list[:peoplePage]
		v.Next = k.base + "?" + url.Values{"q": {query}, "after": {list[peoplePage-1].ID}}.Encode()
	}
	for _, u := range list {
		v.Rows = append(v.Rows, w.row(c, k, u))
	}
	open, err := w.cfg.People.Invitations(ctx, p, k.tenant.ID)
	if err != nil {
		return views.People{}, err
	}
	for _, i := range open {
		v.Invitations = append(v.Invitations, views.Invitation{
			Email: i.Email, Role: roleName(i.Role), By: i.CreatedBy.Name, Renews: i.UserID != "",
			Expires: views.NewMoment(i.ExpiresAt, w.cfg.Now()), WithdrawURL: k.base + "/invitations/" + i.ID + "/withdraw",
		})
	}
	return v, nil
}

func (w *Web) showPeople(c echo.Context, status int, k crowd, v views.People) error {
	p := w.page(c, k.title)
	if k.ofTenant() {
		p = w.tenantPage(c, k.title)
	}
	return w.render(c, status, views.PeoplePage(p, v))
}

func (w *Web) listPeople(c echo.Context) error {
	k := crowdOf(c)
	v, err := w.peopleView(c, k)
	if err != nil {
		return err
	}
	return w.showPeople(c, http.StatusOK, k, v)
}

// invite makes a link and shows it, this once.
func (w *Web) invite(c echo.Context) error {
	f, err := form(c, "email", "role")
	if err != nil {
		return err
	}
	k := crowdOf(c)
	i, token, err := w.cfg.People.Invite(c.Request().Context(), who(c).principal(), k.tenant.ID, f.Get("email"), accounts.Role(f.Get("role")))
	if err == nil {
		return w.showLink(c, k, i, token)
	}
	v, failed := w.peopleView(c, k)
	if failed != nil {
		return failed
	}
	v.Email.Value, v.Role.Value = f.Get("email"), f.Get("role")
	list, status, err := places{inputs: []*views.Input{&v.Email}, choice: &v.Role}.tell(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showPeople(c, status, k, v)
}

func (w *Web) showLink(c echo.Context, k crowd, i accounts.Invitation, token string) error {
	v := views.NewLink{
		Title: "The invitation is ready", URL: w.origin(c) + "/invite/" + token, For: i.Email,
		Base: k.base, BaseName: k.title, Renews: i.UserID != "", Expires: views.NewMoment(i.ExpiresAt, w.cfg.Now()),
	}
	if v.Renews {
		v.Title = "The link is ready"
	}
	return w.render(c, http.StatusCreated, views.NewLinkPage(w.page(c, v.Title), v))
}

func (w *Web) withdraw(c echo.Context) error {
	if _, err := form(c); err != nil {
		return err
	}
	k, id := crowdOf(c), c.Param("invitation")
	if uuid.Validate(id) != nil {
		return errNoPage
	}
	if err := w.cfg.People.Withdraw(c.Request().Context(), who(c).principal(), k.tenant.ID, id); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, k.base+"?done=withdrawn")
}

// personView shows one person of the list that the path names; NotFound for
// those of another one.
func (w *Web) personView(c echo.Context, k crowd) (views.PersonPage, accounts.User, error) {
	id := c.Param("user")
	if uuid.Validate(id) != nil {
		return views.PersonPage{}, accounts.User{}, errNoPage
	}
	u, err := w.cfg.People.User(c.Request().Context(), who(c).principal(), k.tenant.ID, id)
	if err != nil {
		return views.PersonPage{}, accounts.User{}, err
	}
	return views.PersonPage{
		Tabs: w.crowdTabs(c, k),
		Row:  w.row(c, k, u), Base: k.base, BaseName: k.title, Created: views.NewMoment(u.CreatedAt, w.cfg.Now()),
		Linked: u.Subject != "", MayWrite: k.mayWrite && u.ID != who(c).user.ID, Notice: done(c),
		Role:    roleChoice(k.ofTenant(), u.Role),
		Confirm: views.Input{Name: "confirm", Label: "Type their e-mail address to confirm", Type: "text", Autocomplete: "off"},
	}, u, nil
}

func (w *Web) onePerson(c echo.Context) error {
	v, _, err := w.personView(c, crowdOf(c))
	if err != nil {
		return err
	}
	return w.showPerson(c, http.StatusOK, v)
}

func (w *Web) showPerson(c echo.Context, status int, v views.PersonPage) error {
	p := w.page(c, "One of "+strings.ToLower(v.BaseName))
	if k := crowdOf(c); k.ofTenant() {
		p.Crumbs = w.tenantCrumbs(c, v.Row.Name, views.Link{Text: k.title, URL: k.base})
	}
	return w.render(c, status, views.OnePersonPage(p, v))
}

// change is a write on one person: it does it and goes on to a page, or shows
// them with what stood in the way.
func (w *Web) change(c echo.Context, fields []string, do func(k crowd, u accounts.User, f url.Values, v *views.PersonPage) (string, error)) error {
	f, err := form(c, fields...)
	if err != nil {
		return err
	}
	k := crowdOf(c)
	v, u, err := w.personView(c, k)
	if err != nil {
		return err
	}
	to, err := do(k, u, f, &v)
	if err == nil {
		return c.Redirect(http.StatusSeeOther, to)
	}
	list, status, err := places{inputs: []*views.Input{&v.Confirm}, choice: &v.Role}.tell(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showPerson(c, status, v)
}

func (w *Web) changeRole(c echo.Context) error {
	return w.change(c, []string{"role"}, func(k crowd, u accounts.User, f url.Values, v *views.PersonPage) (string, error) {
		v.Role.Value = f.Get("role")
		_, err := w.cfg.People.ChangeRole(c.Request().Context(), who(c).principal(), k.tenant.ID, u.ID, accounts.Role(f.Get("role")))
		return v.Row.URL + "?done=role", err
	})
}

func (w *Web) disable(c echo.Context) error {
	return w.change(c, nil, func(k crowd, u accounts.User, _ url.Values, v *views.PersonPage) (string, error) {
		_, err := w.cfg.People.Disable(c.Request().Context(), who(c).principal(), k.tenant.ID, u.ID)
		return v.Row.URL + "?done=disabled", err
	})
}

func (w *Web) enable(c echo.Context) error {
	return w.change(c, nil, func(k crowd, u accounts.User, _ url.Values, v *views.PersonPage) (string, error) {
		_, err := w.cfg.People.Enable(c.Request().Context(), who(c).principal(), k.tenant.ID, u.ID)
		return v.Row.URL + "?done=enabled", err
	})
}

// remove asks for the address to be typed, as nothing brings a person back.
func (w *Web) remove(c echo.Context) error {
	return w.change(c, []string{"confirm"}, func(k crowd, u accounts.User, f url.Values, v *views.PersonPage) (string, error) {
		v.Confirm.Value = f.Get("confirm")
		if accounts.FoldEmail(strings.TrimSpace(f.Get("confirm"))) != accounts.FoldEmail(u.Email) {
			return "", problem.At("/confirm", "is not their address: nobody was removed")
		}
		return k.base + "?done=removed", w.cfg.People.Remove(c.Request().Context(), who(c).principal(), k.tenant.ID, u.ID)
	})
}

// newLink makes a link for a new password and shows it, this once.
func (w *Web) newLink(c echo.Context) error {
	if _, err := form(c); err != nil {
		return err
	}
	k, id := crowdOf(c), c.Param("user")
	if uuid.Validate(id) != nil {
		return errNoPage
	}
	i, token, err := w.cfg.People.NewLink(c.Request().Context(), who(c).principal(), k.tenant.ID, id)
	if err != nil {
		return err
	}
	return w.showLink(c, k, i, token)
}
