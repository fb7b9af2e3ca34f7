package web

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
)

// A row of the route table: what is called where, and which action that is.
type row struct {
	method, path string
	// action says who may: accounts.Authorize has the table.
	action  accounts.Action
	handler echo.HandlerFunc
	kind    kind
}

// A kind says how serve treats a page.
type kind int

const (
	bounded kind = iota // a session is looked for, and the answer has Config.Timeout
	open                // the same for everybody: no session is looked for
	slow                // as bounded, in its own time: passwords, live streams
	dear                // as bounded, and a few at once: what is much to work out
	heavy               // as slow, and a few at once: downloads, replays
)

func (r row) needsSession() bool { return r.action != accounts.Public }

// routes is the whole table. GET answers HEAD as well.
func (w *Web) routes() []row {
	const get, post = http.MethodGet, http.MethodPost
	const public, self = accounts.Public, accounts.Self
	rows := []row{
		{get, "/docs", public, w.docs, open},
		{get, "/docs/problems", public, w.problems, open},
		{get, "/docs/problems/:type", public, w.problemType, open},
		{get, "/static/:file", public, w.assets.serve, open},
	}
	if w.cfg.People == nil {
		return append(rows, row{get, "/", public, func(c echo.Context) error { return c.Redirect(http.StatusSeeOther, "/docs") }, open})
	}
	rows = append(rows, []row{
		{get, "/", public, w.home, bounded},
		{get, "/sign-in", public, w.signInForm, bounded},
		{post, "/sign-in", public, w.signIn, slow},
		{get, "/setup/:token", public, w.joinForm, bounded},
		{post, "/setup/:token", public, w.join, slow},
		{get, "/invite/:token", public, w.joinForm, bounded},
		{post, "/invite/:token", public, w.join, slow},
		{post, "/sign-out", self, w.signOut, bounded},
		{post, "/preferences/theme", public, w.chooseTheme, bounded},

		{get, "/account", self, w.account, bounded},
		{post, "/account/name", self, w.changeName, bounded},
		{post, "/account/password", self, w.changePassword, slow},
		{post, "/account/sessions/end-others", self, w.endOthers, bounded},
		{post, "/account/sessions/:session/end", self, w.endSession, bounded},
	}...)
	if w.cfg.Provider != nil {
		rows = append(rows,
			row{get, "/sign-in/oidc", public, w.toProvider, slow},
			row{get, "/sign-in/oidc/callback", public, w.fromProvider, slow})
	}
	rows = append(rows, w.jumpRoutes()...)
	rows = append(rows, w.tenantsRoutes()...)
	rows = append(rows, w.overviewRoutes()...)
	rows = append(rows, w.operationsRoutes()...)
	rows = append(rows, w.denialsRoutes()...)
	rows = append(rows, w.plansRoutes()...)
	rows = append(rows, w.explainRoutes()...)
	rows = append(rows, w.playgroundRoutes()...)
	rows = append(rows, w.peopleRoutes("/people", accounts.PeopleRead, accounts.PeopleWrite)...)
	return append(rows, w.peopleRoutes("/tenants/:tenant/members", accounts.MembersRead, accounts.MembersWrite)...)
}

// peopleRoutes are the rows of a list of people: the operator's, and a tenant's.
func (w *Web) peopleRoutes(base string, read, write accounts.Action) []row {
	const get, post = http.MethodGet, http.MethodPost
	return []row{
		{get, base, read, w.listPeople, bounded},
		{post, base, write, w.invite, bounded},
		{post, base + "/invitations/:invitation/withdraw", write, w.withdraw, bounded},
		{get, base + "/:user", read, w.onePerson, bounded},
		{post, base + "/:user/role", write, w.changeRole, bounded},
		{post, base + "/:user/link", write, w.newLink, bounded},
		{post, base + "/:user/disable", write, w.disable, bounded},
		{post, base + "/:user/enable", write, w.enable, bounded},
		{post, base + "/:user/remove", write, w.remove, bounded},
	}
}
