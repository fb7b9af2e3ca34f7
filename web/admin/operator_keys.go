package admin

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
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

const operatorKeysPath = "/settings/keys"

func (w *pages) listOperatorKeys(c echo.Context) error {
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
		v.Notice = web.Notice(c)
	}
	write := web.May(c, accounts.OperatorKeysWr)
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
	return w.Render(c, http.StatusOK, views.OperatorKeysPage(w.settingsPage(c, "Operator keys"), v))
}

// operatorKey is a key of the list: as one of a tenant, with other addresses.
func (w *pages) operatorKey(k tenants.Key, write bool) views.APIKey {
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

func (w *pages) operatorKeyForm(c echo.Context) views.KeyForm {
	v := views.KeyForm{
		Head: views.TenantHead{Tabs: w.settingsTabs(c, operatorKeysPath)}, Action: operatorKeysPath, Back: operatorKeysPath,
		Name:   views.Input{Name: "name", Label: "Name", Type: "text", Autocomplete: "off", Hint: "What it is for: “terraform, production”."},
		Scopes: views.Checks{Name: "scopes", Label: "It may"},
		End:    web.EndingField("never", "90d", web.KeyLives...),
	}
	for _, s := range operatorScopes {
		v.Scopes.Options = append(v.Scopes.Options, views.CheckBox{
			Name: "scope-" + string(s.scope), Label: s.label, Hint: s.hint, Checked: s.scope == tenants.ScopeRead,
		})
	}
	return v
}

func (w *pages) showOperatorForm(c echo.Context, status int, v views.KeyForm) error {
	return w.Render(c, status, views.KeyFormPage(w.settingsPage(c, "New operator key", operatorKeysCrumb), v))
}

var operatorKeysCrumb = views.Link{Text: "Operator keys", URL: operatorKeysPath}

func (w *pages) newOperatorKey(c echo.Context) error {
	return w.showOperatorForm(c, http.StatusOK, w.operatorKeyForm(c))
}

// createOperatorKey makes a key and shows its token, this once.
func (w *pages) createOperatorKey(c echo.Context) error {
	f, err := web.Form(c, "name", "scope-check", "scope-read", "scope-manage", "life", "until")
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
	if n.ExpiresAt, err = web.ParseEnding(f, &v.End, w.Now(), web.KeyLives); err == nil {
		k, token, err = w.cfg.Tenants.CreateOperatorKey(ctx, n)
	}
	if err == nil {
		w.Changed(ctx)
		return w.showOperatorToken(c, views.KeyMade{
			Title: "The operator key is ready",
			Lead:  "It works from now on, on every node within seconds.",
		}, k, token)
	}
	list, status, err := web.Places{
		Inputs: []*views.Input{&v.Name, &v.End.Until}, Selects: []*views.Select{&v.End.Life}, Checks: []*views.Checks{&v.Scopes},
		Renamed: map[string]string{"expires_at": web.EndingFieldName(v.End), "scopes/0": "scopes", "scopes/1": "scopes", "scopes/2": "scopes"},
	}.Report(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showOperatorForm(c, status, v)
}

// showOperatorToken is the one page that has a token: nothing keeps it.
func (w *pages) showOperatorToken(c echo.Context, v views.KeyMade, k tenants.Key, token string) error {
	v.Head, v.Name, v.Token, v.Back = views.TenantHead{Tabs: w.settingsTabs(c, operatorKeysPath)}, k.Name, token, operatorKeysPath
	if slices.Contains(k.Scopes, tenants.ScopeRead) || slices.Contains(k.Scopes, tenants.ScopeManage) {
		v.Curl = "curl " + w.Origin(c) + "/v1/tenants \\\n  -H 'Authorization: Bearer " + token + "'"
	}
	return w.Render(c, http.StatusCreated, views.KeyMadePage(w.settingsPage(c, v.Title, operatorKeysCrumb), v))
}

// namedOperatorKey finds the key that the path names.
func (w *pages) namedOperatorKey(c echo.Context) (tenants.Key, error) {
	id, err := web.PathID(c, "key")
	if err != nil {
		return tenants.Key{}, err
	}
	return w.cfg.Tenants.OperatorKey(c.Request().Context(), id)
}

func (w *pages) rotateOperatorView(c echo.Context, k tenants.Key) views.Confirm {
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
		v.Overlap.Options = append(v.Overlap.Options, views.Option{Value: l.Value, Label: l.Label})
	}
	return v
}

func (w *pages) showOperatorConfirm(c echo.Context, status int, title string, v views.Confirm) error {
	return w.Render(c, status, views.ConfirmPage(w.settingsPage(c, title, operatorKeysCrumb), v))
}

func (w *pages) rotateOperatorForm(c echo.Context) error {
	k, err := w.namedOperatorKey(c)
	if err != nil {
		return err
	}
	return w.showOperatorConfirm(c, http.StatusOK, "Rotate", w.rotateOperatorView(c, k))
}

func (w *pages) rotateOperatorKey(c echo.Context) error {
	f, err := web.Form(c, "overlap")
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
	if i := slices.IndexFunc(overlaps, func(l web.Lifetime) bool { return l.Value == v.Overlap.Value }); i >= 0 {
		var next tenants.Key
		var token string
		if next, token, err = w.cfg.Tenants.RotateOperatorKey(ctx, k.ID, overlaps[i].Length); err == nil {
			w.Changed(ctx)
			ends := w.Now().Add(overlaps[i].Length).Truncate(time.Millisecond)
			if !k.ExpiresAt.IsZero() && k.ExpiresAt.Before(ends) {
				ends = k.ExpiresAt
			}
			return w.showOperatorToken(c, views.KeyMade{
				Title: "The new key is ready", Lead: "Change it where the old one is used.", Rotated: true, OldEnds: views.NewMoment(ends, w.Now()),
			}, next, token)
		}
	}
	list, status, err := web.Places{Selects: []*views.Select{&v.Overlap}}.Report(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showOperatorConfirm(c, status, "Rotate", v)
}

func (w *pages) revokeOperatorView(c echo.Context, k tenants.Key) views.Confirm {
	return views.Confirm{
		Head: views.TenantHead{Tabs: w.settingsTabs(c, operatorKeysPath)}, Title: "Revoke the key " + k.Name + "?", Button: "Revoke the key",
		Bad: true,
		Text: []string{
			"Every request with it is answered 401 at once, on every node within seconds. This cannot be undone.",
			"To change a key without a gap, rotate it instead.",
		},
		Facts: []views.Fact{{Name: "Key", Value: cmp.Or(k.Hint, k.ID)}}, Action: operatorKeysPath + "/" + k.ID + "/revoke",
		Back: operatorKeysPath,
	}
}

func (w *pages) revokeOperatorForm(c echo.Context) error {
	k, err := w.namedOperatorKey(c)
	if err != nil {
		return err
	}
	return w.showOperatorConfirm(c, http.StatusOK, "Revoke", w.revokeOperatorView(c, k))
}

// revokeOperatorKey ends a key. The last one that may manage stays, and the page
// says why.
func (w *pages) revokeOperatorKey(c echo.Context) error {
	if _, err := web.Form(c); err != nil {
		return err
	}
	k, err := w.namedOperatorKey(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	if _, err = w.cfg.Tenants.RevokeOperatorKey(ctx, k.ID); err == nil {
		w.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, operatorKeysPath+"?done=key-revoked")
	}
	v := w.revokeOperatorView(c, k)
	list, status, err := web.Places{}.Report(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showOperatorConfirm(c, status, "Revoke", v)
}
