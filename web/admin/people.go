package admin

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
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
	if tenant, ok := c.Get(web.TenantKey).(tenants.Tenant); ok {
		return crowd{
			tenant: tenant, base: "/tenants/" + tenant.Slug + "/members", title: "Members",
			intro:    "Whoever belongs to " + tenant.Name + " sees this tenant only.",
			mayWrite: accounts.Authorize(web.VisitorOf(c).Principal(), accounts.MembersWrite) == nil,
		}
	}
	return crowd{
		base: "/people", title: "People",
		intro:    "Those who run Headgate. Each reaches every tenant, as far as the role goes.",
		mayWrite: accounts.Authorize(web.VisitorOf(c).Principal(), accounts.PeopleWrite) == nil,
	}
}

// crowdTabs are those of the tenant whose members they are, or of the settings
// for the operator's people.
func (w *pages) crowdTabs(c echo.Context, k crowd) []views.Tab {
	if !k.ofTenant() {
		return w.settingsTabs(c, "/people")
	}
	return w.TenantTabs(c, "/members")
}

func (k crowd) ofTenant() bool { return k.tenant.ID != "" }

// row shows one person.
func (w *pages) row(c echo.Context, k crowd, u accounts.User) views.Row {
	status := "Active"
	if u.Disabled {
		status = "Disabled"
	}
	return views.Row{
		Name: u.Name, Email: u.Email, Role: web.RoleName(u.Role), Status: status, URL: k.base + "/" + u.ID,
		You: u.ID == web.VisitorOf(c).User.ID, Disabled: u.Disabled, SignedIn: views.NewMoment(u.SignedInAt, w.Now()),
	}
}

// peopleView is the list as it stands, with an empty form.
func (w *pages) peopleView(c echo.Context, k crowd) (views.People, error) {
	ctx, p := c.Request().Context(), web.VisitorOf(c).Principal()
	query, after := c.QueryParam("q"), c.QueryParam("after")
	if uuid.Validate(after) != nil {
		after = ""
	}
	list, err := w.cfg.People.Users(ctx, p, k.tenant.ID, accounts.UserFilter{
		Query: strings.TrimSpace(query), After: after,
		Limit: peoplePage + 1,
	})
	if err != nil {
		return views.People{}, err
	}
	v := views.People{
		Title: k.title, Tabs: w.crowdTabs(c, k), Intro: k.intro, Base: k.base, Query: query, MayWrite: k.mayWrite, Notice: web.Notice(c),
		Email: views.Input{Name: "email", Label: "E-mail", Type: "email", Autocomplete: "off"},
		Role:  web.RoleChoice(k.ofTenant(), ""),
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
			Email: i.Email, Role: web.RoleName(i.Role), By: i.CreatedBy.Name, Renews: i.UserID != "",
			Expires: views.NewMoment(i.ExpiresAt, w.Now()), WithdrawURL: k.base + "/invitations/" + i.ID + "/withdraw",
		})
	}
	return v, nil
}

func (w *pages) showPeople(c echo.Context, status int, k crowd, v views.People) error {
	p := w.Page(c, k.title)
	if k.ofTenant() {
		p = w.TenantPage(c, k.title)
	}
	return w.Render(c, status, views.PeoplePage(p, v))
}

func (w *pages) listPeople(c echo.Context) error {
	k := crowdOf(c)
	v, err := w.peopleView(c, k)
	if err != nil {
		return err
	}
	return w.showPeople(c, http.StatusOK, k, v)
}

// invite makes a link and shows it, this once.
func (w *pages) invite(c echo.Context) error {
	f, err := web.Form(c, "email", "role")
	if err != nil {
		return err
	}
	k := crowdOf(c)
	i, token, err := w.cfg.People.Invite(c.Request().Context(), web.VisitorOf(c).Principal(), k.tenant.ID, f.Get("email"),
		accounts.Role(f.Get("role")))
	if err == nil {
		return w.showLink(c, k, i, token)
	}
	v, failed := w.peopleView(c, k)
	if failed != nil {
		return failed
	}
	v.Email.Value, v.Role.Value = f.Get("email"), f.Get("role")
	list, status, err := web.Places{Inputs: []*views.Input{&v.Email}, Choice: &v.Role}.Report(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showPeople(c, status, k, v)
}

func (w *pages) showLink(c echo.Context, k crowd, i accounts.Invitation, token string) error {
	v := views.NewLink{
		Title: "The invitation is ready", URL: w.Origin(c) + "/invite/" + token, For: i.Email,
		Base: k.base, BaseName: k.title, Renews: i.UserID != "", Expires: views.NewMoment(i.ExpiresAt, w.Now()),
	}
	if v.Renews {
		v.Title = "The link is ready"
	}
	return w.Render(c, http.StatusCreated, views.NewLinkPage(w.Page(c, v.Title), v))
}

func (w *pages) withdraw(c echo.Context) error {
	if _, err := web.Form(c); err != nil {
		return err
	}
	k, id := crowdOf(c), c.Param("invitation")
	if uuid.Validate(id) != nil {
		return web.ErrNoPage
	}
	if err := w.cfg.People.Withdraw(c.Request().Context(), web.VisitorOf(c).Principal(), k.tenant.ID, id); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, k.base+"?done=withdrawn")
}

// personView shows one person of the list that the path names; NotFound for
// those of another one.
func (w *pages) personView(c echo.Context, k crowd) (views.PersonPage, accounts.User, error) {
	id := c.Param("user")
	if uuid.Validate(id) != nil {
		return views.PersonPage{}, accounts.User{}, web.ErrNoPage
	}
	u, err := w.cfg.People.User(c.Request().Context(), web.VisitorOf(c).Principal(), k.tenant.ID, id)
	if err != nil {
		return views.PersonPage{}, accounts.User{}, err
	}
	return views.PersonPage{
		Tabs: w.crowdTabs(c, k),
		Row:  w.row(c, k, u), Base: k.base, BaseName: k.title, Created: views.NewMoment(u.CreatedAt, w.Now()),
		Linked: u.Subject != "", MayWrite: k.mayWrite && u.ID != web.VisitorOf(c).User.ID, Notice: web.Notice(c),
		Role:    web.RoleChoice(k.ofTenant(), u.Role),
		Confirm: views.Input{Name: "confirm", Label: "Type their e-mail address to confirm", Type: "text", Autocomplete: "off"},
	}, u, nil
}

func (w *pages) onePerson(c echo.Context) error {
	v, _, err := w.personView(c, crowdOf(c))
	if err != nil {
		return err
	}
	return w.showPerson(c, http.StatusOK, v)
}

func (w *pages) showPerson(c echo.Context, status int, v views.PersonPage) error {
	p := w.Page(c, "One of "+strings.ToLower(v.BaseName))
	if k := crowdOf(c); k.ofTenant() {
		p.Crumbs = w.TenantCrumbs(c, v.Row.Name, views.Link{Text: k.title, URL: k.base})
	}
	return w.Render(c, status, views.OnePersonPage(p, v))
}

// change is a write on one person: it does it and goes on to a page, or shows
// them with what stood in the way.
func (w *pages) change(c echo.Context, fields []string,
	do func(k crowd, u accounts.User, f url.Values, v *views.PersonPage) (string, error),
) error {
	f, err := web.Form(c, fields...)
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
	list, status, err := web.Places{Inputs: []*views.Input{&v.Confirm}, Choice: &v.Role}.Report(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showPerson(c, status, v)
}

func (w *pages) changeRole(c echo.Context) error {
	return w.change(c, []string{"role"}, func(k crowd, u accounts.User, f url.Values, v *views.PersonPage) (string, error) {
		v.Role.Value = f.Get("role")
		_, err := w.cfg.People.ChangeRole(c.Request().Context(), web.VisitorOf(c).Principal(), k.tenant.ID, u.ID, accounts.Role(f.Get("role")))
		return v.Row.URL + "?done=role", err
	})
}

func (w *pages) disable(c echo.Context) error {
	return w.change(c, nil, func(k crowd, u accounts.User, _ url.Values, v *views.PersonPage) (string, error) {
		_, err := w.cfg.People.Disable(c.Request().Context(), web.VisitorOf(c).Principal(), k.tenant.ID, u.ID)
		return v.Row.URL + "?done=disabled", err
	})
}

func (w *pages) enable(c echo.Context) error {
	return w.change(c, nil, func(k crowd, u accounts.User, _ url.Values, v *views.PersonPage) (string, error) {
		_, err := w.cfg.People.Enable(c.Request().Context(), web.VisitorOf(c).Principal(), k.tenant.ID, u.ID)
		return v.Row.URL + "?done=enabled", err
	})
}

// remove asks for the address to be typed, as nothing brings a person back.
func (w *pages) remove(c echo.Context) error {
	return w.change(c, []string{"confirm"}, func(k crowd, u accounts.User, f url.Values, v *views.PersonPage) (string, error) {
		v.Confirm.Value = f.Get("confirm")
		if accounts.FoldEmail(strings.TrimSpace(f.Get("confirm"))) != accounts.FoldEmail(u.Email) {
			return "", problem.At("/confirm", "is not their address: nobody was removed")
		}
		return k.base + "?done=removed", w.cfg.People.Remove(c.Request().Context(), web.VisitorOf(c).Principal(), k.tenant.ID, u.ID)
	})
}

// newLink makes a link for a new password and shows it, this once.
func (w *pages) newLink(c echo.Context) error {
	if _, err := web.Form(c); err != nil {
		return err
	}
	k, id := crowdOf(c), c.Param("user")
	if uuid.Validate(id) != nil {
		return web.ErrNoPage
	}
	i, token, err := w.cfg.People.NewLink(c.Request().Context(), web.VisitorOf(c).Principal(), k.tenant.ID, id)
	if err != nil {
		return err
	}
	return w.showLink(c, k, i, token)
}
