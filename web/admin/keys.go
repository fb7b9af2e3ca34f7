package admin

import (
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

// keysOnPage is how many keys stand on one page of the list.
const keysOnPage = 50

// scopesOf are what a key of a tenant may do, in words.
var scopesOf = []struct {
	scope       tenants.Scope
	label, hint string
}{
	{tenants.ScopeCheck, "check", "Asks whether a request may pass. What a gateway needs, and nothing else."},
	{tenants.ScopeRead, "read", "Reads the tenant's usage, refusals and settings."},
	{tenants.ScopeManage, "manage", "Makes and revokes keys and members of the tenant, and reads."},
}

func (w *pages) listKeys(c echo.Context) error {
	t := web.TenantOf(c)
	after := c.QueryParam("after")
	if uuid.Validate(after) != nil {
		after = ""
	}
	list, err := w.cfg.Tenants.Keys(c.Request().Context(), t.ID, tenants.Filter{After: after, Limit: keysOnPage + 1})
	if err != nil {
		return err
	}
	v := views.Keys{Head: w.TenantHead(c, "/keys"), Notice: web.Notice(c), Empty: views.Empty{
		Title: "There are no keys yet",
		Text:  "Without a key nobody can ask for a decision. Make one for each gateway or service, so that you can revoke them one by one.",
	}}
	write := web.MayInTenant(c, accounts.KeysWrite)
	if write {
		v.NewURL = web.APIKeysURL(t) + "/new"
		v.Empty.Link = views.Link{Text: "New key", URL: v.NewURL}
	}
	if len(list) > keysOnPage {
		list = list[:keysOnPage]
		v.Next = web.APIKeysURL(t) + "?" + url.Values{"after": {list[keysOnPage-1].ID}}.Encode()
	}
	for _, k := range list {
		v.Rows = append(v.Rows, w.apiKey(t, k, write))
	}
	return w.Render(c, http.StatusOK, views.KeysPage(w.TenantPage(c, "API keys"), v))
}

func (w *pages) apiKey(t tenants.Tenant, k tenants.Key, write bool) views.APIKey {
	now := w.Now()
	r := views.APIKey{
		Name: k.Name, Hint: k.Hint, Created: views.NewMoment(k.CreatedAt, now), Expires: views.NewMoment(k.ExpiresAt, now),
		Status: "Active", Tone: "good",
	}
	for _, s := range k.Scopes {
		r.Scopes = append(r.Scopes, string(s))
	}
	over := false
	switch {
	case !k.RevokedAt.IsZero() && !now.Before(k.RevokedAt):
		r.Status, r.Tone, r.Ends, over = "Revoked", "bad", views.NewMoment(k.RevokedAt, now), true
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		r.Status, r.Tone, over = "Expired", "bad", true
	case !k.RevokedAt.IsZero():
		r.Status, r.Tone, r.Ends = "Rotated, ends", "warn", views.NewMoment(k.RevokedAt, now)
	}
	if write && !over {
		r.RevokeURL = web.APIKeysURL(t) + "/" + k.ID + "/revoke"
		if tenants.Rotatable(k.ExpiresAt, k.RevokedAt, now) == nil {
			r.RotateURL = web.APIKeysURL(t) + "/" + k.ID + "/rotate"
		}
	}
	return r
}

func (w *pages) keyForm(c echo.Context) views.KeyForm {
	t := web.TenantOf(c)
	v := views.KeyForm{
		Head: w.TenantHead(c, "/keys"), Action: web.APIKeysURL(t), Back: web.APIKeysURL(t),
		Name: views.Input{
			Name: "name", Label: "Name", Type: "text", Autocomplete: "off",
			Hint: "Where it is used: “edge gateway, Frankfurt”.",
		},
		Scopes: views.Checks{Name: "scopes", Label: "It may"},
		End:    web.EndingField("never", "never", web.KeyLives...),
	}
	for _, s := range scopesOf {
		v.Scopes.Options = append(v.Scopes.Options, views.CheckBox{
			Name: "scope-" + string(s.scope), Label: s.label, Hint: s.hint, Checked: s.scope == tenants.ScopeCheck,
		})
	}
	return v
}

func (w *pages) newKeyForm(c echo.Context) error {
	return w.showKeyForm(c, http.StatusOK, w.keyForm(c))
}

func (w *pages) showKeyForm(c echo.Context, status int, v views.KeyForm) error {
	return w.Render(c, status, views.KeyFormPage(w.TenantPage(c, "New key",
		views.Link{Text: "API keys", URL: web.APIKeysURL(web.TenantOf(c))}), v))
}

// createKey makes a key and shows its token, this once.
func (w *pages) createKey(c echo.Context) error {
	f, err := web.Form(c, "name", "scope-check", "scope-read", "scope-manage", "life", "until")
	if err != nil {
		return err
	}
	ctx, t, v := c.Request().Context(), web.TenantOf(c), w.keyForm(c)
	v.Name.Value = f.Get("name")
	n := tenants.NewKey{Name: strings.TrimSpace(f.Get("name"))}
	for i, s := range scopesOf {
		box := &v.Scopes.Options[i]
		if box.Checked = f.Get(box.Name) == "on"; box.Checked {
			n.Scopes = append(n.Scopes, s.scope)
		}
	}
	var k tenants.Key
	var token string
	if n.ExpiresAt, err = web.ParseEnding(f, &v.End, w.Now(), web.KeyLives); err == nil {
		k, token, err = w.cfg.Tenants.CreateKey(ctx, t.ID, n)
	}
	if err == nil {
		w.Changed(ctx)
		return w.showToken(c, views.KeyMade{Title: "The key is ready", Lead: "It works from now on, on every node within seconds."}, k, token)
	}
	list, status, err := web.Places{
		Inputs: []*views.Input{&v.Name, &v.End.Until}, Selects: []*views.Select{&v.End.Life}, Checks: []*views.Checks{&v.Scopes},
		Renamed: map[string]string{"expires_at": web.EndingFieldName(v.End), "scopes/0": "scopes", "scopes/1": "scopes", "scopes/2": "scopes"},
	}.Report(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showKeyForm(c, status, v)
}

// showToken is the one page that has a token: nothing keeps it.
func (w *pages) showToken(c echo.Context, v views.KeyMade, k tenants.Key, token string) error {
	v.Head, v.Name, v.Token, v.Back = w.TenantHead(c, "/keys"), k.Name, token, web.APIKeysURL(web.TenantOf(c))
	if slices.Contains(k.Scopes, tenants.ScopeCheck) {
		v.Curl = "curl " + w.Origin(c) + "/v1/check \\\n  -H 'Authorization: Bearer " + token +
			"' \\\n  -H 'Content-Type: application/json' \\\n" +
			"  -d '{\"method\":\"GET\",\"path\":\"/\",\"attributes\":{\"user\":\"42\"}}'"
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return w.Render(c, http.StatusCreated, views.KeyMadePage(w.TenantPage(c, v.Title, views.Link{Text: "API keys", URL: v.Back}), v))
}

// namedKey finds the key that the path names.
func (w *pages) namedKey(c echo.Context) (tenants.Key, error) {
	id, err := web.PathID(c, "key")
	if err != nil {
		return tenants.Key{}, err
	}
	return w.cfg.Tenants.Key(c.Request().Context(), web.TenantOf(c).ID, id)
}

var overlaps = []web.Lifetime{
	{Value: "0", Label: "ends at once", Length: 0},
	{Value: "1h", Label: "goes on for an hour", Length: time.Hour},
	{Value: "24h", Label: "goes on for 24 hours", Length: web.Day},
	{Value: "7d", Label: "goes on for 7 days", Length: 7 * web.Day},
}

func (w *pages) rotateView(c echo.Context, k tenants.Key) views.Confirm {
	t := web.TenantOf(c)
	v := views.Confirm{
		Head: w.TenantHead(c, "/keys"), Title: "Rotate the key " + k.Name, Button: "Make the new key",
		Action: web.APIKeysURL(t) + "/" + k.ID + "/rotate", Back: web.APIKeysURL(t),
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

func (w *pages) rotateForm(c echo.Context) error {
	k, err := w.namedKey(c)
	if err != nil {
		return err
	}
	return w.ShowConfirm(c, http.StatusOK, "Rotate", "API keys", w.rotateView(c, k))
}

func (w *pages) rotateKey(c echo.Context) error {
	f, err := web.Form(c, "overlap")
	if err != nil {
		return err
	}
	k, err := w.namedKey(c)
	if err != nil {
		return err
	}
	ctx, v := c.Request().Context(), w.rotateView(c, k)
	v.Overlap.Value = f.Get("overlap")
	i := slices.IndexFunc(overlaps, func(l web.Lifetime) bool { return l.Value == v.Overlap.Value })
	if i < 0 {
		err = problem.At("/overlap", "must be one of the list")
	} else {
		next, token, failed := w.cfg.Tenants.RotateKey(ctx, web.TenantOf(c).ID, k.ID, overlaps[i].Length)
		if err = failed; err == nil {
			w.Changed(ctx)
			old, err := w.cfg.Tenants.Key(ctx, web.TenantOf(c).ID, k.ID)
			if err != nil {
				return err
			}
			return w.showToken(c, views.KeyMade{
				Title: "The new key is ready", Lead: "Change it where the old one is used.",
				Rotated: true, OldEnds: views.NewMoment(old.RevokedAt, w.Now()),
			}, next, token)
		}
	}
	list, status, err := web.Places{Selects: []*views.Select{&v.Overlap}}.Report(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.ShowConfirm(c, status, "Rotate", "API keys", v)
}

func (w *pages) revokeForm(c echo.Context) error {
	k, err := w.namedKey(c)
	if err != nil {
		return err
	}
	t := web.TenantOf(c)
	return w.ShowConfirm(c, http.StatusOK, "Revoke", "API keys", views.Confirm{
		Head: w.TenantHead(c, "/keys"), Title: "Revoke the key " + k.Name + "?", Button: "Revoke the key", Bad: true,
		Text: []string{
			"Every request with it is answered 401 at once, on every node within seconds. This cannot be undone.",
			"To change a key without a gap, rotate it instead.",
		},
		Facts: []views.Fact{{Name: "Key", Value: k.Hint}}, Action: web.APIKeysURL(t) + "/" + k.ID + "/revoke", Back: web.APIKeysURL(t),
	})
}

func (w *pages) revokeKey(c echo.Context) error {
	if _, err := web.Form(c); err != nil {
		return err
	}
	k, err := w.namedKey(c)
	if err != nil {
		return err
	}
	ctx, t := c.Request().Context(), web.TenantOf(c)
	if _, err := w.cfg.Tenants.RevokeKey(ctx, t.ID, k.ID); err != nil {
		return err
	}
	w.Changed(ctx)
	return c.Redirect(http.StatusSeeOther, web.APIKeysURL(t)+"?done=key-revoked")
}
