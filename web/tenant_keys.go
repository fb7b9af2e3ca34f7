package web

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
	"github.com/headgate/headgate/web/views"
)

// keysOnPage is how many keys stand on one page of the list.
const keysOnPage = 50

func (w *Web) tenantKeysRoutes() []row {
	const get, post = http.MethodGet, http.MethodPost
	const write = accounts.KeysWrite
	const base = tenantPath + "/keys"
	return []row{
		{get, base, accounts.KeysRead, w.listKeys, bounded},
		{post, base, write, w.createKey, bounded},
		{get, base + "/new", write, w.newKeyForm, bounded},
		{get, base + "/:key/rotate", write, w.rotateForm, bounded},
		{post, base + "/:key/rotate", write, w.rotateKey, bounded},
		{get, base + "/:key/revoke", write, w.revokeForm, bounded},
		{post, base + "/:key/revoke", write, w.revokeKey, bounded},
	}
}

func apiKeysOf(t tenants.Tenant) string { return inTenant(tenantPath+"/keys", t.Slug) }

// scopesOf are what a key of a tenant may do, in words.
var scopesOf = []struct {
	scope       tenants.Scope
	label, hint string
}{
	{tenants.ScopeCheck, "check", "Asks whether a request may pass. What a gateway needs, and nothing else."},
	{tenants.ScopeRead, "read", "Reads the tenant's usage, refusals and settings."},
	{tenants.ScopeManage, "manage", "Makes and revokes keys and members of the tenant, and reads."},
}

func (w *Web) listKeys(c echo.Context) error {
	t := tenantOf(c)
	after := c.QueryParam("after")
	if uuid.Validate(after) != nil {
		after = ""
	}
	list, err := w.cfg.Tenants.Keys(c.Request().Context(), t.ID, tenants.Filter{After: after, Limit: keysOnPage + 1})
	if err != nil {
		return err
	}
	v := views.Keys{Head: w.tenantHead(c, "/keys"), Notice: tenantDone(c), Empty: views.Empty{
		Title: "There are no keys yet", Text: "Without a key nobody can ask for a decision. Make one for each gateway or service, so that you can revoke them one by one.",
	}}
	write := mayInTenant(c, accounts.KeysWrite)
	if write {
		v.NewURL = apiKeysOf(t) + "/new"
		v.Empty.Link = views.Link{Text: "New key", URL: v.NewURL}
	}
	if len(list) > keysOnPage {
		list = list[:keysOnPage]
		v.Next = apiKeysOf(t) + "?" + url.Values{"after": {list[keysOnPage-1].ID}}.Encode()
	}
	for _, k := range list {
		v.Rows = append(v.Rows, w.apiKey(t, k, write))
	}
	return w.render(c, http.StatusOK, views.KeysPage(w.tenantPage(c, "API keys"), v))
}

func (w *Web) apiKey(t tenants.Tenant, k tenants.Key, write bool) views.APIKey {
	now := w.cfg.Now()
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
		r.RevokeURL = apiKeysOf(t) + "/" + k.ID + "/revoke"
		if tenants.Rotatable(k.ExpiresAt, k.RevokedAt, now) == nil {
			r.RotateURL = apiKeysOf(t) + "/" + k.ID + "/rotate"
		}
	}
	return r
}

// A life is a length of time that something may have.
type life struct {
	value, label string
	length       time.Duration
}

// endingOf is the field of an end. optional says what stands for none; "": it
// must end. chosen is the length that is offered first.
func endingOf(optional, chosen string, lives ...life) views.Ending {
	e := views.Ending{
		Life:  views.Select{Name: "life", Label: "Ends", Value: chosen},
		Until: views.Input{Name: "until", Label: "At (UTC)", Type: "datetime-local", Optional: true, Hint: "Counts when Ends is “at a time”."},
	}
	if optional != "" {
		e.Life.Options = append(e.Life.Options, views.Option{Value: "never", Label: optional})
	}
	for _, l := range lives {
		e.Life.Options = append(e.Life.Options, views.Option{Value: l.value, Label: l.label})
	}
	e.Life.Options = append(e.Life.Options, views.Option{Value: "at", Label: "at a time"})
	return e
}

var (
	shortLives = []life{
		{"1h", "in an hour", time.Hour},
		{"24h", "in 24 hours", day},
		{"7d", "in 7 days", 7 * day},
		{"30d", "in 30 days", 30 * day},
		{"90d", "in 90 days", 90 * day},
	}
	keyLives = []life{{"30d", "in 30 days", 30 * day}, {"90d", "in 90 days", 90 * day}, {"365d", "in a year", 365 * day}}
)

// endOf reads when something ends; zero: never, if that is offered.
func endOf(f url.Values, e *views.Ending, now time.Time, lives []life) (time.Time, error) {
	e.Life.Value, e.Until.Value = f.Get("life"), f.Get("until")
	if !slices.ContainsFunc(e.Life.Options, func(o views.Option) bool { return o.Value == e.Life.Value }) {
		return time.Time{}, problem.At("/life", "must be one of the list")
	}
	if i := slices.IndexFunc(lives, func(l life) bool { return l.value == e.Life.Value }); i >= 0 {
		return now.Add(lives[i].length), nil
	}
	if e.Life.Value != "at" {
		return time.Time{}, nil
	}
	at, err := time.Parse(rangeForm, e.Until.Value)
	if err != nil {
		return time.Time{}, problem.At("/until", "must be a time like 2026-11-21T09:30, in UTC")
	}
	return at, nil
}

// endField is where a fault of an end stands.
func endField(e views.Ending) string {
	if e.Life.Value == "at" {
		return "until"
	}
	return "life"
}

func (w *Web) keyForm(c echo.Context) views.KeyForm {
	t := tenantOf(c)
	v := views.KeyForm{
		Head: w.tenantHead(c, "/keys"), Action: apiKeysOf(t), Back: apiKeysOf(t),
		Name:   views.Input{Name: "name", Label: "Name", Type: "text", Autocomplete: "off", Hint: "Where it is used: “edge gateway, Frankfurt”."},
		Scopes: views.Checks{Name: "scopes", Label: "It may"},
		End:    endingOf("never", "never", keyLives...),
	}
	for _, s := range scopesOf {
		v.Scopes.Options = append(v.Scopes.Options, views.CheckBox{
			Name: "scope-" + string(s.scope), Label: s.label, Hint: s.hint, Checked: s.scope == tenants.ScopeCheck,
		})
	}
	return v
}

func (w *Web) newKeyForm(c echo.Context) error {
	return w.showKeyForm(c, http.StatusOK, w.keyForm(c))
}

func (w *Web) showKeyForm(c echo.Context, status int, v views.KeyForm) error {
	return w.render(c, status, views.KeyFormPage(w.tenantPage(c, "New key", views.Link{Text: "API keys", URL: apiKeysOf(tenantOf(c))}), v))
}

// createKey makes a key and shows its token, this once.
func (w *Web) createKey(c echo.Context) error {
	f, err := form(c, "name", "scope-check", "scope-read", "scope-manage", "life", "until")
	if err != nil {
		return err
	}
	ctx, t, v := c.Request().Context(), tenantOf(c), w.keyForm(c)
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
	if n.ExpiresAt, err = endOf(f, &v.End, w.cfg.Now(), keyLives); err == nil {
		k, token, err = w.cfg.Tenants.CreateKey(ctx, t.ID, n)
	}
	if err == nil {
		w.cfg.Changed(ctx)
		return w.showToken(c, views.KeyMade{Title: "The key is ready", Lead: "It works from now on, on every node within seconds."}, k, token)
	}
	list, status, err := places{
		inputs: []*views.Input{&v.Name, &v.End.Until}, selects: []*views.Select{&v.End.Life}, checks: []*views.Checks{&v.Scopes},
		renamed: map[string]string{"expires_at": endField(v.End), "scopes/0": "scopes", "scopes/1": "scopes", "scopes/2": "scopes"},
	}.tell(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showKeyForm(c, status, v)
}

// showToken is the one page that has a token: nothing keeps it.
func (w *Web) showToken(c echo.Context, v views.KeyMade, k tenants.Key, token string) error {
	v.Head, v.Name, v.Token, v.Back = w.tenantHead(c, "/keys"), k.Name, token, apiKeysOf(tenantOf(c))
	if slices.Contains(k.Scopes, tenants.ScopeCheck) {
		v.Curl = "curl " + w.origin(c) + "/v1/check \\\n  -H 'Authorization: Bearer " + token + "' \\\n  -H 'Content-Type: application/json' \\\n" +
			"  -d '{\"method\":\"GET\",\"path\":\"/\",\"attributes\":{\"user\":\"42\"}}'"
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return w.render(c, http.StatusCreated, views.KeyMadePage(w.tenantPage(c, v.Title, views.Link{Text: "API keys", URL: v.Back}), v))
}

// namedKey finds the key that the path names.
func (w *Web) namedKey(c echo.Context) (tenants.Key, error) {
	id, err := pathID(c, "key")
	if err != nil {
		return tenants.Key{}, err
	}
	return w.cfg.Tenants.Key(c.Request().Context(), tenantOf(c).ID, id)
}

var overlaps = []life{
	{"0", "ends at once", 0}, {"1h", "goes on for an hour", time.Hour}, {"24h", "goes on for 24 hours", day}, {"7d", "goes on for 7 days", 7 * day},
}

func (w *Web) rotateView(c echo.Context, k tenants.Key) views.Confirm {
	t := tenantOf(c)
	v := views.Confirm{
		Head: w.tenantHead(c, "/keys"), Title: "Rotate the key " + k.Name, Button: "Make the new key", Action: apiKeysOf(t) + "/" + k.ID + "/rotate", Back: apiKeysOf(t),
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

func (w *Web) rotateForm(c echo.Context) error {
	k, err := w.namedKey(c)
	if err != nil {
		return err
	}
	return w.showConfirm(c, http.StatusOK, "Rotate", "API keys", w.rotateView(c, k))
}

// showConfirm shows a page that asks once more; list is the name of the page
// that it goes back to.
func (w *Web) showConfirm(c echo.Context, status int, title, list string, v views.Confirm) error {
	return w.render(c, status, views.ConfirmPage(w.tenantPage(c, title, views.Link{Text: list, URL: v.Back}), v))
}

func (w *Web) rotateKey(c echo.Context) error {
	f, err := form(c, "overlap")
	if err != nil {
		return err
	}
	k, err := w.namedKey(c)
	if err != nil {
		return err
	}
	ctx, v := c.Request().Context(), w.rotateView(c, k)
	v.Overlap.Value = f.Get("overlap")
	i := slices.IndexFunc(overlaps, func(l life) bool { return l.value == v.Overlap.Value })
	if i < 0 {
		err = problem.At("/overlap", "must be one of the list")
	} else {
		next, token, failed := w.cfg.Tenants.RotateKey(ctx, tenantOf(c).ID, k.ID, overlaps[i].length)
		if err = failed; err == nil {
			w.cfg.Changed(ctx)
			old, err := w.cfg.Tenants.Key(ctx, tenantOf(c).ID, k.ID)
			if err != nil {
				return err
			}
			return w.showToken(c, views.KeyMade{
				Title: "The new key is ready", Lead: "Change it where the old one is used.",
				Rotated: true, OldEnds: views.NewMoment(old.RevokedAt, w.cfg.Now()),
			}, next, token)
		}
	}
	list, status, err := places{selects: []*views.Select{&v.Overlap}}.tell(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showConfirm(c, status, "Rotate", "API keys", v)
}

func (w *Web) revokeForm(c echo.Context) error {
	k, err := w.namedKey(c)
	if err != nil {
		return err
	}
	t := tenantOf(c)
	return w.showConfirm(c, http.StatusOK, "Revoke", "API keys", views.Confirm{
		Head: w.tenantHead(c, "/keys"), Title: "Revoke the key " + k.Name + "?", Button: "Revoke the key", Bad: true,
		Text: []string{
			"Every request with it is answered 401 at once, on every node within seconds. This cannot be undone.",
			"To change a key without a gap, rotate it instead.",
		},
		Facts: []views.Fact{{Name: "Key", Value: k.Hint}}, Action: apiKeysOf(t) + "/" + k.ID + "/revoke", Back: apiKeysOf(t),
	})
}

func (w *Web) revokeKey(c echo.Context) error {
	if _, err := form(c); err != nil {
		return err
	}
	k, err := w.namedKey(c)
	if err != nil {
		return err
	}
	ctx, t := c.Request().Context(), tenantOf(c)
	if _, err := w.cfg.Tenants.RevokeKey(ctx, t.ID, k.ID); err != nil {
		return err
	}
	w.cfg.Changed(ctx)
	return c.Redirect(http.StatusSeeOther, apiKeysOf(t)+"?done=key-revoked")
}
