package admin

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

var settingsPages = []struct{ text, path string }{
	{"People", "/people"},
	{"Operator keys", operatorKeysPath},
	{sharedLinksTitle, sharedLinksPath},
	{"Retention", "/settings/retention"},
	{"Roles", "/settings/roles"},
	{"About", "/settings/about"},
}

func (w *pages) settingsTabs(c echo.Context, current string) []views.Tab {
	var list []views.Tab
	for _, page := range settingsPages {
		if w.CanOpen(c, page.path) {
			list = append(list, views.Tab{Text: page.text, URL: page.path, Current: page.path == current})
		}
	}
	return list
}

// settingsPage returns the frame of a page below /settings, with its breadcrumbs.
func (w *pages) settingsPage(c echo.Context, title string, above ...views.Link) views.Page {
	p := w.Page(c, title)
	p.Crumbs = append(append([]views.Link{{Text: "Settings", URL: "/settings"}}, above...), views.Link{Text: title})
	return p
}

func (w *pages) showRetention(c echo.Context) error {
	v := views.Kept{Tabs: w.settingsTabs(c, "/settings/retention")}
	for _, r := range w.cfg.Process.Retention {
		v.Rows = append(v.Rows, views.KeptRow{What: r.What, Kept: strings.TrimPrefix(keptWords(r), "kept "), Setting: r.Setting})
	}
	return w.Render(c, http.StatusOK, views.KeptPage(w.settingsPage(c, "Retention"), v))
}

// roleActions are the actions in the table of roles, in the order of the table.
var roleActions = []struct {
	action accounts.Action
	words  string
}{
	{accounts.Check, "Check requests"},
	{accounts.Simulate, "Simulate scenarios"},
	{accounts.TenantsList, "See all tenants, the system and the whole audit log"},
	{accounts.TenantRead, "See a tenant: its usage, denials, overrides, lists and audit log"},
	{accounts.TenantWrite, "Create, change, suspend and delete tenants"},
	{accounts.KeysRead, "See a tenant's API keys"},
	{accounts.KeysWrite, "Create, rotate and revoke a tenant's API keys"},
	{accounts.MembersRead, "See a tenant's members"},
	{accounts.MembersWrite, "Invite, change and remove a tenant's members"},
	{accounts.AlertsRead, "Read alert rules, channels and alerts"},
	{accounts.AlertsWrite, "Change alert rules and channels"},
	{accounts.SharedLinksRead, "See shared links"},
	{accounts.SharedLinksWrite, "Share pages by links, and revoke the links"},
	{accounts.ExceptionsWrite, "Set overrides, lists, blocks and grants, reset counters, and end reservations"},
	{accounts.PlansRead, "See plans"},
	{accounts.PlansWrite, "Edit and publish plans"},
	{accounts.PeopleRead, "See the operator's people"},
	{accounts.PeopleWrite, "Invite, change and remove the operator's people"},
	{accounts.OperatorKeysRd, "See operator keys and settings"},
	{accounts.OperatorKeysWr, "Create, rotate and revoke operator keys"},
	{accounts.Self, "Change one's own name, password and sessions"},
}

// showRoles shows a table of all actions, with the roles that may perform each action.
func (w *pages) showRoles(c echo.Context) error {
	v := views.RoleTable{Tabs: w.settingsTabs(c, "/settings/roles")}
	for _, r := range accounts.Roles() {
		v.Roles = append(v.Roles, web.RoleName(r))
	}
	for _, a := range roleActions {
		operator, tenant := accounts.NeededScopes(a.action)
		r := views.RoleRow{Words: a.words, Action: string(a.action), OperatorKey: string(operator), TenantKey: string(tenant)}
		for _, role := range accounts.Roles() {
			r.May = append(r.May, accounts.Allowed(a.action, role))
		}
		v.Rows = append(v.Rows, r)
	}
	return w.Render(c, http.StatusOK, views.RolesPage(w.settingsPage(c, "Roles"), v))
}

func (w *pages) showAbout(c echo.Context) error {
	v := views.About{Tabs: w.settingsTabs(c, "/settings/about"), Licenses: w.AssetURL("LICENSES.txt")}
	v.Facts.Add("Version", w.Version())
	v.Facts.Add("Build", w.cfg.Process.Build)
	v.Facts.Add("Go", w.cfg.Process.GoVersion)
	v.Facts.Add("Address", w.Origin(c))
	return w.Render(c, http.StatusOK, views.AboutPage(w.settingsPage(c, "About"), v))
}
