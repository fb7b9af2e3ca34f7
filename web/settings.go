package web

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web/views"
)

const operatorKeysPath = "/settings/keys"

func (w *Web) operatorSettingsRoutes() []row {
	const get, post = http.MethodGet, http.MethodPost
	const read, write = accounts.OperatorKeysRd, accounts.OperatorKeysWr
	return []row{
		{get, "/settings", read, func(c echo.Context) error { return c.Redirect(http.StatusSeeOther, operatorKeysPath) }, bounded},
		{get, "/settings/retention", read, w.showRetention, bounded},
		{get, "/settings/roles", read, w.showRoles, bounded},
		{get, "/settings/about", read, w.showAbout, bounded},
		{get, operatorKeysPath, read, w.listOperatorKeys, bounded},
		{post, operatorKeysPath, write, w.createOperatorKey, bounded},
		{get, operatorKeysPath + "/new", write, w.newOperatorKey, bounded},
		{get, operatorKeysPath + "/:key/rotate", write, w.rotateOperatorForm, bounded},
		{post, operatorKeysPath + "/:key/rotate", write, w.rotateOperatorKey, bounded},
		{get, operatorKeysPath + "/:key/revoke", write, w.revokeOperatorForm, bounded},
		{post, operatorKeysPath + "/:key/revoke", write, w.revokeOperatorKey, bounded},
	}
}

var settingsPages = []struct{ text, path string }{
	{"People", "/people"},
	{"Operator keys", operatorKeysPath},
	{"Retention", "/settings/retention"},
	{"Roles", "/settings/roles"},
	{"About", "/settings/about"},
}

func (w *Web) settingsTabs(c echo.Context, current string) []views.Tab {
	var list []views.Tab
	for _, page := range settingsPages {
		if action, there := w.readable[page.path]; there && may(c, action) {
			list = append(list, views.Tab{Text: page.text, URL: page.path, Current: page.path == current})
		}
	}
	return list
}

// settingsPage is a page below /settings, with its crumbs.
func (w *Web) settingsPage(c echo.Context, title string, above ...views.Link) views.Page {
	p := w.page(c, title)
	p.Crumbs = append(append([]views.Link{{Text: "Settings", URL: "/settings"}}, above...), views.Link{Text: title})
	return p
}

func (w *Web) showRetention(c echo.Context) error {
	v := views.Kept{Tabs: w.settingsTabs(c, "/settings/retention")}
	for _, r := range w.cfg.Process.Retention {
		v.Rows = append(v.Rows, views.KeptRow{What: r.What, Kept: strings.TrimPrefix(keptWords(r), "kept "), Setting: r.Setting})
	}
	return w.render(c, http.StatusOK, views.KeptPage(w.settingsPage(c, "Retention"), v))
}

// actionsTold are the actions of the table of roles, in words and in the order in
// which they are shown.
var actionsTold = []struct {
	action accounts.Action
	words  string
}{
	{accounts.Check, "Ask for decisions"},
	{accounts.Simulate, "Play scenarios"},
	{accounts.TenantsList, "See all tenants, the system and the whole audit log"},
	{accounts.TenantRead, "See a tenant: its usage, refusals, overrides, lists and audit log"},
	{accounts.TenantWrite, "Create, change, suspend and delete tenants"},
	{accounts.KeysRead, "See a tenant's API keys"},
	{accounts.KeysWrite, "Create, rotate and revoke a tenant's API keys"},
	{accounts.MembersRead, "See a tenant's members"},
	{accounts.MembersWrite, "Invite, change and remove a tenant's members"},
	{accounts.ExceptionsWrite, "Set overrides, lists and blocks, and reset counters"},
	{accounts.PlansRead, "See plans"},
	{accounts.PlansWrite, "Edit and publish plans"},
	{accounts.PeopleRead, "See the operator's people"},
	{accounts.PeopleWrite, "Invite, change and remove the operator's people"},
	{accounts.OperatorKeysRd, "See operator keys and settings"},
	{accounts.OperatorKeysWr, "Create, rotate and revoke operator keys"},
	{accounts.Self, "Change one's own name, password and sessions"},
}

// showRoles draws the table that Authorize asks.
func (w *Web) showRoles(c echo.Context) error {
	v := views.RoleTable{Tabs: w.settingsTabs(c, "/settings/roles")}
	for _, r := range accounts.Roles() {
		v.Roles = append(v.Roles, roleName(r))
	}
	for _, a := range actionsTold {
		operator, tenant := accounts.NeededScopes(a.action)
		r := views.RoleRow{Words: a.words, Action: string(a.action), OperatorKey: string(operator), TenantKey: string(tenant)}
		for _, role := range accounts.Roles() {
			r.May = append(r.May, accounts.Allowed(a.action, role))
		}
		v.Rows = append(v.Rows, r)
	}
	return w.render(c, http.StatusOK, views.RolesPage(w.settingsPage(c, "Roles"), v))
}

func (w *Web) showAbout(c echo.Context) error {
	v := views.About{Tabs: w.settingsTabs(c, "/settings/about"), Licenses: w.assets.url("LICENSES.txt")}
	for _, f := range []views.AuditFact{
		{Name: "Version", Text: w.cfg.Version},
		{Name: "Build", Text: w.cfg.Process.Build},
		{Name: "Go", Text: w.cfg.Process.GoVersion},
		{Name: "Address", Text: w.origin(c)},
	} {
		if f.Text != "" {
			v.Facts = append(v.Facts, f)
		}
	}
	return w.render(c, http.StatusOK, views.AboutPage(w.settingsPage(c, "About"), v))
}

func (w *Web) listOperatorKeys(c echo.Context) error {
	after := c.QueryParam("after")
	if uuid.Validate(after) != nil {
		after = ""
	}
	list, err := w.cfg.Tenants.OperatorKeys(c.Request().Context(), tenants.Filter{After: after, Limit: keysOnPage + 1})
	if err != nil {
		return err
	}
	v := views.OperatorKeys{Tabs: w.settingsTabs(c, operatorKeysPath), Empty: views.Empty{
		Title: "There are no operator keys", Text: "Make one for automation: with it a program can do by the API what you do here.",
	}}
	if c.QueryParam("done") == "key-revoked" {
		v.Notice = tenantNotices["key-revoked"]
	}
	write := may(c, accounts.OperatorKeysWr)
	if write {
		v.NewURL = operatorKeysPath + "/new"
		v.Empty.Link = views.Link{Text: "New operator key", URL: v.NewURL}
	}
	if len(list) > keysOnPage {
		list = list[:keysOnPage]
		v.Next = operatorKeysPath + "?" + url.Values{"after": {list[keysOnPage-1].ID}}.Encode()
	}
	for _, k := range list {
		v.Rows = append(v.Rows, w.operatorKey(k, write))
	}
	return w.render(c, http.StatusOK, views.OperatorKeysPage(w.settingsPage(c, "Operator keys"), v))
}

// operatorKey is a key of the list: as one of a tenant, with other addresses.
func (w *Web) operatorKey(k tenants.Key, write bool) views.APIKey {
	r := w.apiKey(tenants.Tenant{}, k, write)
	if r.RotateURL != "" {
		r.RotateURL = operatorKeysPath + "/" + k.ID + "/rotate"
	}
	if r.RevokeURL != "" {
		r.RevokeURL = operatorKeysPath + "/" + k.ID + "/revoke"
	}
	return r
}

var operatorScopes = []struct {
	scope       tenants.Scope
	label, hint string
}{
	{tenants.ScopeRead, "read", "Reads tenants, plans, people, usage and the audit log."},
	{tenants.ScopeManage, "manage", "Changes all of them, and reads."},
	{tenants.ScopeCheck, "check", "Asks for decisions on behalf of any tenant. A tenant's own key is better for that."},
}

func (w *Web) operatorKeyForm(c echo.Context) views.KeyForm {
	v := views.KeyForm{
		Head: views.TenantHead{Tabs: w.settingsTabs(c, operatorKeysPath)}, Action: operatorKeysPath, Back: operatorKeysPath,
		Name:   views.Input{Name: "name", Label: "Name", Type: "text", Autocomplete: "off", Hint: "What it is for: “terraform, production”."},
		Scopes: views.Checks{Name: "scopes", Label: "It may"},
		End:    endingOf("never", "90d", keyLives...),
	}
	for _, s := range operatorScopes {
		v.Scopes.Options = append(v.Scopes.Options, views.CheckBox{
			Name: "scope-" + string(s.scope), Label: s.label, Hint: s.hint, Checked: s.scope == tenants.ScopeRead,
		})
	}
	return v
}

func (w *Web) showOperatorForm(c echo.Context, status int, v views.KeyForm) error {
	return w.render(c, status, views.KeyFormPage(w.settingsPage(c, "New operator key", operatorKeysCrumb), v))
}

var operatorKeysCrumb = views.Link{Text: "Operator keys", URL: operatorKeysPath}

func (w *Web) newOperatorKey(c echo.Context) error {
	return w.showOperatorForm(c, http.StatusOK, w.operatorKeyForm(c))
}

// createOperatorKey makes a key and shows its token, this once.
func (w *Web) createOperatorKey(c echo.Context) error {
	f, err := form(c, "name", "scope-check", "scope-read", "scope-manage", "life", "until")
	if err != nil {
		return err
	}
	ctx, v := c.Request().Context(), w.operatorKeyForm(c)
	v.Name.Value = f.Get("name")
	n := tenants.NewKey{Name: strings.TrimSpace(f.Get("name"))}
	for i, s := range operatorScopes {
		box := &v.Scopes.Options[i]
		if box.Checked = f.Get(box.Name) == "on"; box.Checked {
			n.Scopes = append(n.Scopes, s.scope)
		}
	}
	var k tenants.Key
	var token string
	if n.ExpiresAt, err = endOf(f, &v.End, w.cfg.Now(), keyLives); err == nil {
		k, token, err = w.cfg.Tenants.CreateOperatorKey(ctx, n)
	}
	if err == nil {
		w.cfg.Changed(ctx)
		return w.showOperatorToken(c, views.KeyMade{Title: "The operator key is ready", Lead: "It works from now on, on every node within seconds."}, k, token)
	}
	list, status, err := places{
		inputs: []*views.Input{&v.Name, &v.End.Until}, selects: []*views.Select{&v.End.Life}, checks: []*views.Checks{&v.Scopes},
		renamed: map[string]string{"expires_at": endField(v.End), "scopes/0": "scopes", "scopes/1": "scopes", "scopes/2": "scopes"},
	}.tell(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showOperatorForm(c, status, v)
}

// showOperatorToken is the one page that has a token: nothing keeps it.
func (w *Web) showOperatorToken(c echo.Context, v views.KeyMade, k tenants.Key, token string) error {
	v.Head, v.Name, v.Token, v.Back = views.TenantHead{Tabs: w.settingsTabs(c, operatorKeysPath)}, k.Name, token, operatorKeysPath
	if slices.Contains(k.Scopes, tenants.ScopeRead) || slices.Contains(k.Scopes, tenants.ScopeManage) {
		v.Curl = "curl " + w.origin(c) + "/v1/tenants \\\n  -H 'Authorization: Bearer " + token + "'"
	}
	return w.render(c, http.StatusCreated, views.KeyMadePage(w.settingsPage(c, v.Title, operatorKeysCrumb), v))
}

// namedOperatorKey finds the key that the path names.
func (w *Web) namedOperatorKey(c echo.Context) (tenants.Key, error) {
	id, err := pathID(c, "key")
	if err != nil {
		return tenants.Key{}, err
	}
	return w.cfg.Tenants.OperatorKey(c.Request().Context(), id)
}

func (w *Web) rotateOperatorView(c echo.Context, k tenants.Key) views.Confirm {
	v := views.Confirm{
		Head: views.TenantHead{Tabs: w.settingsTabs(c, operatorKeysPath)}, Title: "Rotate the key " + k.Name, Button: "Make the new key",
		Action: operatorKeysPath + "/" + k.ID + "/rotate", Back: operatorKeysPath,
		Text: []string{
			"You get a new key with the same name, scopes and length of life. It is shown once.",
			"Choose how long the old one goes on beside it, so that you can change it everywhere without a gap.",
		},
		Facts: []views.Fact{{Name: "Key", Value: k.Hint}}, WithOverlap: true,
		Overlap: views.Select{Name: "overlap", Label: "The old key", Value: "24h"},
	}
	for _, l := range overlaps {
		v.Overlap.Options = append(v.Overlap.Options, views.Option{Value: l.value, Label: l.label})
	}
	return v
}

func (w *Web) showOperatorConfirm(c echo.Context, status int, title string, v views.Confirm) error {
	return w.render(c, status, views.ConfirmPage(w.settingsPage(c, title, operatorKeysCrumb), v))
}

func (w *Web) rotateOperatorForm(c echo.Context) error {
	k, err := w.namedOperatorKey(c)
	if err != nil {
		return err
	}
	return w.showOperatorConfirm(c, http.StatusOK, "Rotate", w.rotateOperatorView(c, k))
}

func (w *Web) rotateOperatorKey(c echo.Context) error {
	f, err := form(c, "overlap")
	if err != nil {
		return err
	}
	k, err := w.namedOperatorKey(c)
	if err != nil {
		return err
	}
	ctx, v := c.Request().Context(), w.rotateOperatorView(c, k)
	v.Overlap.Value = f.Get("overlap")
	err = problem.At("/overlap", "must be one of the list")
	if i := slices.IndexFunc(overlaps, func(l life) bool { return l.value == v.Overlap.Value }); i >= 0 {
		var next tenants.Key
		var token string
		if next, token, err = w.cfg.Tenants.RotateOperatorKey(ctx, k.ID, overlaps[i].length); err == nil {
			w.cfg.Changed(ctx)
			ends := w.cfg.Now().Add(overlaps[i].length).Truncate(time.Millisecond)
			if !k.ExpiresAt.IsZero() && k.ExpiresAt.Before(ends) {
				ends = k.ExpiresAt
			}
			return w.showOperatorToken(c, views.KeyMade{
				Title: "The new key is ready", Lead: "Change it where the old one is used.", Rotated: true, OldEnds: views.NewMoment(ends, w.cfg.Now()),
			}, next, token)
		}
	}
	list, status, err := places{selects: []*views.Select{&v.Overlap}}.tell(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showOperatorConfirm(c, status, "Rotate", v)
}

func (w *Web) revokeOperatorView(c echo.Context, k tenants.Key) views.Confirm {
	return views.Confirm{
		Head: views.TenantHead{Tabs: w.settingsTabs(c, operatorKeysPath)}, Title: "Revoke the key " + k.Name + "?", Button: "Revoke the key", Bad: true,
		Text: []string{
			"Every request with it is answered 401 at once, on every node within seconds. This cannot be undone.",
			"To change a key without a gap, rotate it instead.",
		},
		Facts: []views.Fact{{Name: "Key", Value: cmp.Or(k.Hint, k.ID)}}, Action: operatorKeysPath + "/" + k.ID + "/revoke", Back: operatorKeysPath,
	}
}

func (w *Web) revokeOperatorForm(c echo.Context) error {
	k, err := w.namedOperatorKey(c)
	if err != nil {
		return err
	}
	return w.showOperatorConfirm(c, http.StatusOK, "Revoke", w.revokeOperatorView(c, k))
}

// revokeOperatorKey ends a key. The last one that may manage stays, and the page
// says why.
func (w *Web) revokeOperatorKey(c echo.Context) error {
	if _, err := form(c); err != nil {
		return err
	}
	k, err := w.namedOperatorKey(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	if _, err = w.cfg.Tenants.RevokeOperatorKey(ctx, k.ID); err == nil {
		w.cfg.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, operatorKeysPath+"?done=key-revoked")
	}
	v := w.revokeOperatorView(c, k)
	list, status, err := places{}.tell(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showOperatorConfirm(c, status, "Revoke", v)
}
