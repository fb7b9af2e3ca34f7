package admin

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// A group is the people that a page shows: the operator's people, or the members of one tenant.
type group struct {
	tenant             tenants.Tenant // zero for the operator
	base, title, intro string
	write              bool // the visitor may change people
	tabs               []views.Tab
}

// groupOf returns the group of people that the path selects.
func (w *pages) groupOf(c echo.Context) group {
	t := web.TenantOf(c)
	if t.ID == "" {
		return group{
			base: "/people", title: "People", intro: "These people operate Headgate. Their roles apply to every tenant.",
			write: web.May(c, accounts.PeopleWrite), tabs: w.settingsTabs(c, "/people"),
		}
	}
	return group{
		tenant: t, base: "/tenants/" + t.Slug + "/members", title: "Members", intro: "Members of " + t.Name + " see only this tenant.",
		write: web.May(c, accounts.MembersWrite), tabs: w.TenantTabs(c, "/members"),
	}
}

func (g group) ofTenant() bool { return g.tenant.ID != "" }

// row returns a person in the form that the pages show.
func (w *pages) row(c echo.Context, g group, u accounts.User) views.Row {
	r := views.Row{
		Name: u.Name, Email: u.Email, Role: web.RoleName(u.Role), Status: "Active", URL: g.base + "/" + u.ID,
		You: u.ID == web.VisitorOf(c).User.ID, Disabled: u.Disabled, SignedIn: views.NewMoment(u.SignedInAt, w.Now()),
	}
	if u.Disabled {
		r.Status = "Disabled"
	}
	return r
}

// peopleView returns the list of people, with an empty form for an invitation.
func (w *pages) peopleView(c echo.Context, g group) (views.People, error) {
	ctx, p, query := c.Request().Context(), web.VisitorOf(c).Principal(), c.QueryParam("q")
	filter := accounts.UserFilter{Query: strings.TrimSpace(query), After: web.After(c), Limit: web.PageRows + 1}
	list, err := w.cfg.People.Users(ctx, p, g.tenant.ID, filter)
	if err != nil {
		return views.People{}, err
	}
	v := views.People{
		Title: g.title, Tabs: g.tabs, Intro: g.intro, Base: g.base, Query: query, MayWrite: g.write, Notice: web.Notice(c),
		Email: views.Input{Name: "email", Label: "Email", Type: "email", Autocomplete: "off"}, Role: web.RoleChoice(g.ofTenant(), ""),
	}
	if w.cfg.Mail {
		v.Mail = views.Checks{Name: "how", Label: "E-mail", Options: []views.CheckBox{{
			Name: "mail", Label: "Also send the link by e-mail", Hint: "You see the link here too.", Checked: true,
		}}}
	}
	list, v.Next = web.Cut(c, list, web.PageRows, func(u accounts.User) string { return u.ID })
	for _, u := range list {
		v.Rows = append(v.Rows, w.row(c, g, u))
	}
	open, err := w.cfg.People.Invitations(ctx, p, g.tenant.ID)
	if err != nil {
		return views.People{}, err
	}
	for _, i := range open {
		v.Invitations = append(v.Invitations, views.Invitation{
			Email: i.Email, Role: web.RoleName(i.Role), By: i.CreatedBy.Name, Renews: i.UserID != "",
			Expires: views.NewMoment(i.ExpiresAt, w.Now()), WithdrawURL: g.base + "/invitations/" + i.ID + "/withdraw",
		})
	}
	return v, nil
}

func (w *pages) showPeople(c echo.Context, status int, g group, v views.People) error {
	p := w.Page(c, g.title)
	if g.ofTenant() {
		p = w.TenantPage(c, g.title)
	}
	return w.Render(c, status, views.PeoplePage(p, v))
}

func (w *pages) listPeople(c echo.Context) error {
	g := w.groupOf(c)
	v, err := w.peopleView(c, g)
	if err != nil {
		return err
	}
	return w.showPeople(c, http.StatusOK, g, v)
}

// invite creates an invitation and redirects to the page that shows its link once.
func (w *pages) invite(c echo.Context, f url.Values) error {
	g := w.groupOf(c)
	invite, mailed := w.cfg.People.Invite, w.cfg.Mail && f.Get("mail") == "on"
	if mailed {
		invite = w.cfg.People.InviteByMail
	}
	i, token, err := invite(c.Request().Context(), web.VisitorOf(c).Principal(), g.tenant.ID, f.Get("email"), accounts.Role(f.Get("role")))
	if err == nil {
		l := newLink(i, token)
		l.Mailed = mailed
		return w.ShowOnce(c, g.base+"/links", l)
	}
	v, failed := w.peopleView(c, g)
	if failed != nil {
		return failed
	}
	v.Email.Value, v.Role.Value = f.Get("email"), f.Get("role")
	for i := range v.Mail.Options {
		v.Mail.Options[i].Checked = mailed
	}
	return web.Retry(err, &v, &v.Faults, nil, func(status int) error { return w.showPeople(c, status, g, v) })
}

// A madeLink has the data of the page that shows a new link once. Headgate does not store the
// link's token.
type madeLink struct {
	Token, For string
	Renews     bool // the link sets a new password
	Mailed     bool // the person also gets an e-mail with another link
	Expires    time.Time
}

func newLink(i accounts.Invitation, token string) madeLink {
	return madeLink{Token: token, For: i.Email, Renews: i.UserID != "", Expires: i.ExpiresAt}
}

// showLink shows a new link: that of an invitation, or one with which a person sets a new
// password. No other page shows the link.
func (w *pages) showLink(c echo.Context) error {
	var l madeLink
	g := w.groupOf(c)
	if !w.ShownOnce(c, &l) {
		return w.GoneOnce(c, "Headgate shows a link once, and does not keep it. If you have not copied it, withdraw it and create another.",
			views.Link{Text: g.title, URL: g.base})
	}
	v := views.NewLink{
		Title: "Invitation created", URL: w.Origin(c) + "/invite/" + l.Token, For: l.For,
		Base: g.base, BaseName: g.title, Renews: l.Renews, Expires: views.NewMoment(l.Expires, w.Now()),
	}
	if l.Mailed {
		v.MessagesURL = "/alerts/messages"
		if g.ofTenant() {
			v.MessagesURL = web.TenantURL(g.tenant, v.MessagesURL)
		}
	}
	if v.Renews {
		v.Title = "Link created"
	}
	return w.Render(c, http.StatusOK, views.NewLinkPage(w.Page(c, v.Title), v))
}

func (w *pages) withdraw(c echo.Context, _ url.Values) error {
	g := w.groupOf(c)
	id, err := web.PathID(c, "invitation")
	if err != nil {
		return err
	}
	if err := w.cfg.People.Withdraw(c.Request().Context(), web.VisitorOf(c).Principal(), g.tenant.ID, id); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, g.base+"?done=withdrawn")
}

// personView returns the view of the person that the path names. If the person is not in the
// group, it returns NotFound.
func (w *pages) personView(c echo.Context, g group) (views.PersonPage, accounts.User, error) {
	id, err := web.PathID(c, "user")
	if err != nil {
		return views.PersonPage{}, accounts.User{}, err
	}
	u, err := w.cfg.People.User(c.Request().Context(), web.VisitorOf(c).Principal(), g.tenant.ID, id)
	return views.PersonPage{
		Tabs: g.tabs, Row: w.row(c, g, u), Base: g.base, BaseName: g.title, Created: views.NewMoment(u.CreatedAt, w.Now()),
		Linked: u.Subject != "", SecondFactor: u.SecondFactor, MayWrite: g.write && u.ID != web.VisitorOf(c).User.ID, Notice: web.Notice(c),
		Role: web.RoleChoice(g.ofTenant(), u.Role), Confirm: views.TextInput("confirm", "Type the email address to confirm", "", ""),
	}, u, err
}

func (w *pages) onePerson(c echo.Context) error {
	g := w.groupOf(c)
	v, _, err := w.personView(c, g)
	if err != nil {
		return err
	}
	return w.showPerson(c, http.StatusOK, g, v)
}

func (w *pages) showPerson(c echo.Context, status int, g group, v views.PersonPage) error {
	p := w.Page(c, "Person")
	if g.ofTenant() {
		p = w.Page(c, "Member")
		p.Crumbs = w.TenantCrumbs(c, v.Row.Name, views.Link{Text: g.title, URL: g.base})
	}
	return w.Render(c, status, views.OnePersonPage(p, v))
}

// A personChange changes one person and returns the address of the next page.
type personChange func(c echo.Context, g group, u accounts.User, f url.Values, v *views.PersonPage) (string, error)

// change returns a handler that calls do for the person that the path names. If do fails, the
// handler shows the page of the person again, with the error messages.
func (w *pages) change(do personChange) func(echo.Context, url.Values) error {
	return func(c echo.Context, f url.Values) error {
		g := w.groupOf(c)
		v, u, err := w.personView(c, g)
		if err != nil {
			return err
		}
		to, err := do(c, g, u, f, &v)
		if err == nil {
			return c.Redirect(http.StatusSeeOther, to)
		}
		return web.Retry(err, &v, &v.Faults, nil, func(status int) error { return w.showPerson(c, status, g, v) })
	}
}

func (w *pages) changeRole(c echo.Context, g group, u accounts.User, f url.Values, v *views.PersonPage) (string, error) {
	v.Role.Value = f.Get("role")
	_, err := w.cfg.People.ChangeRole(c.Request().Context(), web.VisitorOf(c).Principal(), g.tenant.ID, u.ID, accounts.Role(f.Get("role")))
	return v.Row.URL + "?done=role", err
}

func (w *pages) disable(c echo.Context, g group, u accounts.User, _ url.Values, v *views.PersonPage) (string, error) {
	_, err := w.cfg.People.Disable(c.Request().Context(), web.VisitorOf(c).Principal(), g.tenant.ID, u.ID)
	return v.Row.URL + "?done=disabled", err
}

func (w *pages) enable(c echo.Context, g group, u accounts.User, _ url.Values, v *views.PersonPage) (string, error) {
	_, err := w.cfg.People.Enable(c.Request().Context(), web.VisitorOf(c).Principal(), g.tenant.ID, u.ID)
	return v.Row.URL + "?done=enabled", err
}

func (w *pages) resetSecondFactor(c echo.Context, g group, u accounts.User, _ url.Values, v *views.PersonPage) (string, error) {
	_, err := w.cfg.People.ResetSecondFactor(c.Request().Context(), web.VisitorOf(c).Principal(), g.tenant.ID, u.ID)
	return v.Row.URL + "?done=factor-reset", err
}

// remove deletes a person. For confirmation, the visitor must type the person's e-mail address.
func (w *pages) remove(c echo.Context, g group, u accounts.User, f url.Values, v *views.PersonPage) (string, error) {
	v.Confirm.Value = f.Get("confirm")
	if accounts.FoldEmail(strings.TrimSpace(f.Get("confirm"))) != accounts.FoldEmail(u.Email) {
		return "", problem.At("/confirm", "is not the email address: nothing was removed")
	}
	return g.base + "?done=removed", w.cfg.People.Remove(c.Request().Context(), web.VisitorOf(c).Principal(), g.tenant.ID, u.ID)
}

// renew creates a link with which a person sets a new password, and redirects to the page that
// shows the link once.
func (w *pages) renew(c echo.Context, _ url.Values) error {
	g := w.groupOf(c)
	id, err := web.PathID(c, "user")
	if err != nil {
		return err
	}
	i, token, err := w.cfg.People.NewLink(c.Request().Context(), web.VisitorOf(c).Principal(), g.tenant.ID, id)
	if err != nil {
		return err
	}
	return w.ShowOnce(c, g.base+"/links", newLink(i, token))
}
