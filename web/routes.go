package web

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/accounts"
)

// A row of the route table: what is called where, and which action that is.
type row struct {
	method, path string
	// action says who may: accounts.Authorize has the table.
	action  accounts.Action
	handler echo.HandlerFunc
	// open pages are the same for everybody: no session is looked for.
	open bool
}

func (r row) needsSession() bool { return r.action != accounts.Public }

// routes is the whole table. GET answers HEAD as well.
func (w *Web) routes() []row {
	const get, post = http.MethodGet, http.MethodPost
	const public, self = accounts.Public, accounts.Self
	rows := []row{
		{get, "/docs", public, w.docs, true},
		{get, "/docs/problems", public, w.problems, true},
		{get, "/docs/problems/:type", public, w.problemType, true},
		{get, "/static/:file", public, w.assets.serve, true},
	}
	if w.cfg.People == nil {
		return append(rows, row{get, "/", public, func(c echo.Context) error { return c.Redirect(http.StatusSeeOther, "/docs") }, true})
	}
	rows = append(rows, []row{
		{get, "/", public, w.home, false},
		{get, "/sign-in", public, w.signInForm, false},
		{post, "/sign-in", public, w.signIn, false},
		{get, "/setup/:token", public, w.joinForm, false},
		{post, "/setup/:token", public, w.join, false},
		{get, "/invite/:token", public, w.joinForm, false},
		{post, "/invite/:token", public, w.join, false},
		{post, "/sign-out", self, w.signOut, false},

		{get, "/account", self, w.account, false},
		{post, "/account/name", self, w.changeName, false},
		{post, "/account/password", self, w.changePassword, false},
		{post, "/account/sessions/end-others", self, w.endOthers, false},
		{post, "/account/sessions/:session/end", self, w.endSession, false},
	}...)
	if w.cfg.Provider != nil {
		rows = append(rows,
			row{get, "/sign-in/oidc", public, w.toProvider, false},
			row{get, "/sign-in/oidc/callback", public, w.fromProvider, false})
	}
	rows = append(rows, w.peopleRoutes("/people", accounts.PeopleRead, accounts.PeopleWrite)...)
	return append(rows, w.peopleRoutes("/tenants/:tenant/members", accounts.MembersRead, accounts.MembersWrite)...)
}

// peopleRoutes are the rows of a list of people: the operator's, and a tenant's.
func (w *Web) peopleRoutes(base string, read, write accounts.Action) []row {
	const get, post = http.MethodGet, http.MethodPost
	return []row{
		{get, base, read, w.listPeople, false},
		{post, base, write, w.invite, false},
		{post, base + "/invitations/:invitation/withdraw", write, w.withdraw, false},
		{get, base + "/:user", read, w.onePerson, false},
		{post, base + "/:user/role", write, w.changeRole, false},
		{post, base + "/:user/link", write, w.newLink, false},
		{post, base + "/:user/disable", write, w.disable, false},
		{post, base + "/:user/enable", write, w.enable, false},
		{post, base + "/:user/remove", write, w.remove, false},
	}
}
