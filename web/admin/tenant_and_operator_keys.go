package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

const operatorKeysPath = "/settings/keys"

// A keyring has the functions and texts of the pages about keys. With it, the same handlers
// serve the keys of a tenant and the keys of the operator.
type keyring struct {
	head  views.TenantHead
	base  string // path of the list
	write bool   // the visitor may create keys

	list   func(context.Context, tenants.Filter) ([]tenants.Key, error)
	get    func(ctx context.Context, id string) (tenants.Key, error)
	create func(context.Context, tenants.NewKey) (tenants.Key, string, error)
	rotate func(ctx context.Context, id string, overlap time.Duration) (tenants.Key, string, error)
	revoke func(ctx context.Context, id string) (tenants.Key, error)
	// created lists the valid keys that were created with the key id. revokeAll revokes a key, and
	// the keys that were created with it.
	created   func(ctx context.Context, id string) ([]tenants.Key, error)
	revokeAll func(ctx context.Context, id string) (tenants.Key, error)

	title, newTitle string
	lead            string
	empty           views.Empty
	nameHint, life  string // life is the preselected validity of a new key
	scopes          []keyScope
	// try returns a shell command that the page of a new key shows, for trying out the key. If the
	// scopes of the key permit no such command, try returns "".
	try func(origin, token string, scopes []tenants.Scope) string
}

// A keyScope is a scope in a form.
type keyScope struct {
	scope   tenants.Scope
	hint    string
	checked bool
}

const storedPart = "Headgate keeps only the first and last characters of a key."

// keyring returns the keyring that the path selects: the one of a tenant, or the one of the
// operator.
func (w *pages) keyring(c echo.Context) keyring {
	s, t := w.cfg.Tenants, web.TenantOf(c)
	if t.ID == "" {
		return keyring{
			head: views.TenantHead{Tabs: w.settingsTabs(c, operatorKeysPath), Settings: true}, base: operatorKeysPath,
			write: web.May(c, accounts.OperatorKeysWr),
			list:  s.OperatorKeys, get: s.OperatorKey, create: s.CreateOperatorKey, rotate: s.RotateOperatorKey, revoke: s.RevokeOperatorKey,
			created: s.KeysCreatedByOperatorKey, revokeAll: s.RevokeOperatorKeyAndCreated,
			title: "Operator keys", newTitle: "New operator key",
			lead: "Operator keys give automation and operators access to every tenant through the API. " + storedPart,
			empty: views.Empty{
				Title: "No operator keys", Text: "Create a key for automation. A program can do with it through the API what you do here.",
			},
			nameHint: "What the key is for: “terraform, production”.", life: "90d",
			scopes: []keyScope{
				{tenants.ScopeRead, "Read tenants, plans, people, usage, and the audit log.", true},
				{tenants.ScopeManage, "Read and change all of them.", false},
				{tenants.ScopeCheck, "Check requests of any tenant. Prefer a key of the tenant.", false},
			},
			try: func(origin, token string, scopes []tenants.Scope) string {
				if !slices.Contains(scopes, tenants.ScopeRead) && !slices.Contains(scopes, tenants.ScopeManage) {
					return ""
				}
				return "curl " + origin + "/v1/tenants \\\n  -H 'Authorization: Bearer " + token + "'"
			},
		}
	}
	return keyring{
		head: w.TenantHead(c, "/keys"), base: web.APIKeysURL(t), write: web.MayInTenant(c, accounts.KeysWrite),
		list: func(ctx context.Context, f tenants.Filter) ([]tenants.Key, error) { return s.Keys(ctx, t.ID, f) },
		get:  func(ctx context.Context, id string) (tenants.Key, error) { return s.Key(ctx, t.ID, id) },
		create: func(ctx context.Context, n tenants.NewKey) (tenants.Key, string, error) {
			return s.CreateKey(ctx, t.ID, n)
		},
		rotate: func(ctx context.Context, id string, overlap time.Duration) (tenants.Key, string, error) {
			return s.RotateKey(ctx, t.ID, id, overlap)
		},
		revoke:  func(ctx context.Context, id string) (tenants.Key, error) { return s.RevokeKey(ctx, t.ID, id) },
		created: func(ctx context.Context, id string) ([]tenants.Key, error) { return s.KeysCreatedBy(ctx, t.ID, id) },
		revokeAll: func(ctx context.Context, id string) (tenants.Key, error) {
			return s.RevokeKeyAndCreated(ctx, t.ID, id)
		},
		title: "API keys", newTitle: "New key",
		lead: "Your gateway or backend uses an API key to check requests. " + storedPart,
		empty: views.Empty{
			Title: "No API keys", Text: "Every check needs a key. Create one for each gateway or service, so that you can revoke them one by one.",
		},
		nameHint: "Where the key is used: “edge gateway, Frankfurt”.", life: "never",
		scopes: []keyScope{
			{tenants.ScopeCheck, "Check requests. A gateway needs only this scope.", true},
			{tenants.ScopeRead, "Read the tenant's usage, denials, and settings.", false},
			{tenants.ScopeManage, "Read, and create and revoke keys and members of the tenant.", false},
			{
				tenants.ScopeIdentify,
				"The key of a customer. Forward-auth and Envoy's ext_authz find the tenant of a request by it. It allows nothing else.", false,
			},
		},
		try: func(origin, token string, scopes []tenants.Scope) string {
			if !slices.Contains(scopes, tenants.ScopeCheck) {
				return ""
			}
			return "curl " + origin + "/v1/check \\\n  -H 'Authorization: Bearer " + token +
				"' \\\n  -H 'Content-Type: application/json' \\\n" +
				"  -d '{\"method\":\"GET\",\"path\":\"/\",\"attributes\":{\"user\":\"42\"}}'"
		},
	}
}

// keyPage returns the frame of a page about keys. For the list of keys, title is "".
func (w *pages) keyPage(c echo.Context, k keyring, title string) views.Page {
	above := []views.Link{{Text: k.title, URL: k.base}}
	if title == "" {
		title, above = k.title, nil
	}
	if web.TenantOf(c).ID == "" {
		return w.settingsPage(c, title, above...)
	}
	return w.TenantPage(c, title, above...)
}

func (w *pages) listKeys(c echo.Context) error {
	k := w.keyring(c)
	rows, err := k.list(c.Request().Context(), tenants.Filter{After: web.After(c), Limit: web.PageRows + 1})
	if err != nil {
		return err
	}
	creators, err := k.creators(c.Request().Context(), rows)
	if err != nil {
		return err
	}
	newURL := ""
	if k.write {
		newURL = k.base + "/new"
		k.empty.Link = views.Link{Text: k.newTitle, URL: newURL}
	}
	v := views.Keys{Title: k.title, NewTitle: k.newTitle, Lead: k.lead}
	v.List = web.NewList(c, rows, func(key tenants.Key) string { return key.ID }, newURL, func(key tenants.Key) views.APIKey {
		row := k.row(key, w.Now())
		row.CreatedBy = creators[key.CreatedBy]
		return row
	})
	v.Head, v.Empty = k.head, k.empty
	return w.Render(c, http.StatusOK, views.KeysPage(w.keyPage(c, k, ""), v))
}

// creators maps the IDs of keys to their names, for the keys with which the given keys were
// created.
func (k *keyring) creators(ctx context.Context, keys []tenants.Key) (map[string]string, error) {
	names := make(map[string]string)
	for _, key := range keys {
		if _, done := names[key.CreatedBy]; done || key.CreatedBy == "" {
			continue
		}
		creator, err := k.get(ctx, key.CreatedBy)
		switch {
		case problem.Is(err, problem.NotFound): // the operator's key created it, which the page of a tenant cannot read
			names[key.CreatedBy] = "an operator key"
		case err != nil:
			return nil, err
		default:
			names[key.CreatedBy] = "the key " + creator.Name
		}
	}
	return names, nil
}

// maxNetworksShown is the maximum number of addresses that the list shows for each key.
const maxNetworksShown = 3

// row returns a key in the form that the list shows.
func (k *keyring) row(key tenants.Key, now time.Time) views.APIKey {
	r := views.APIKey{
		Name: key.Name, Hint: key.Hint, Created: views.NewMoment(key.CreatedAt, now), Expires: views.NewMoment(key.ExpiresAt, now),
		Used: views.NewMoment(key.LastUsedAt, now), Status: "Active", Tone: "good",
	}
	for _, s := range key.Scopes {
		r.Scopes = append(r.Scopes, string(s))
	}
	if key.PeekOnly {
		r.Scopes = append(r.Scopes, "peek only")
	}
	if key.MaxCost > 0 {
		r.Scopes = append(r.Scopes, "cost up to "+strconv.FormatInt(key.MaxCost, 10))
	}
	for i, network := range key.AllowedIPs.Texts() {
		if i == maxNetworksShown {
			r.Scopes = append(r.Scopes, fmt.Sprintf("from %d more", len(key.AllowedIPs)-i))
			break
		}
		r.Scopes = append(r.Scopes, "from "+network)
	}
	over := false
	switch {
	case !key.RevokedAt.IsZero() && !now.Before(key.RevokedAt):
		r.Status, r.Tone, r.Ends, over = "Revoked", "bad", views.NewMoment(key.RevokedAt, now), true
	case !key.ExpiresAt.IsZero() && !now.Before(key.ExpiresAt):
		r.Status, r.Tone, over = "Expired", "bad", true
	case !key.RevokedAt.IsZero():
		r.Status, r.Tone, r.Ends = "Rotated, ends", "warn", views.NewMoment(key.RevokedAt, now)
	}
	if k.write && !over {
		r.RevokeURL = k.base + "/" + key.ID + "/revoke"
		if tenants.Rotatable(key.ExpiresAt, key.RevokedAt, now) == nil {
			r.RotateURL = k.base + "/" + key.ID + "/rotate"
		}
	}
	return r
}

func (k *keyring) form(c echo.Context) views.KeyForm {
	v := views.KeyForm{
		Head: k.head, Title: k.newTitle, Action: k.base, Back: k.base, Name: views.TextInput("name", "Name", "", k.nameHint),
		Scopes: views.Checks{Name: "scopes", Label: "Scopes"}, End: web.EndingField(c, "never", k.life, web.KeyLives...),
	}
	v.MaxCost = views.OptionalInput("max_cost", "Largest cost of one check", "",
		"So that the holder of the key cannot spend a quota with one check. Empty: no bound.")
	v.Peek = views.Checks{Name: "peek", Label: "Checks", Options: []views.CheckBox{{
		Name: "peek-only", Label: "Peek only", Hint: "Checks with this key show what is left, and charge nothing.",
	}}}
	if slices.ContainsFunc(k.scopes, func(s keyScope) bool { return s.scope == tenants.ScopeIdentify }) {
		v.Token = views.OptionalInput("token", "Key of the customer", "",
			"The key that a customer has already, for the scope identify. Headgate stores its SHA-256. Empty: a new key.")
	}
	v.AllowedIPs = views.OptionalInput("allowed_ips", "Allowed IP addresses", "",
		"Addresses and ranges like 203.0.113.7 and 10.0.0.0/8, with spaces between them. Other addresses get 403. Empty: all addresses.")
	for _, s := range k.scopes {
		v.Scopes.Options = append(v.Scopes.Options, views.CheckBox{
			Name: "scope-" + string(s.scope), Label: string(s.scope), Hint: s.hint, Checked: s.checked,
		})
	}
	return v
}

func (w *pages) newKeyForm(c echo.Context) error {
	k := w.keyring(c)
	return w.Render(c, http.StatusOK, views.KeyFormPage(w.keyPage(c, k, k.newTitle), k.form(c)))
}

// createKey creates a key and redirects to the page that shows its token once.
func (w *pages) createKey(c echo.Context, f url.Values) error {
	ctx, k := c.Request().Context(), w.keyring(c)
	v := k.form(c)
	v.Name.Value = f.Get("name")
	n := tenants.NewKey{Name: strings.TrimSpace(f.Get("name")), Token: strings.TrimSpace(f.Get("token"))}
	v.MaxCost.Value, v.AllowedIPs.Value = f.Get("max_cost"), f.Get("allowed_ips")
	separator := func(r rune) bool { return r == ',' || unicode.IsSpace(r) }
	if list := strings.FieldsFunc(f.Get("allowed_ips"), separator); len(list) > 0 {
		n.AllowedIPs = list
	}
	v.Peek.Options[0].Checked = f.Get("peek-only") == "on"
	n.PeekOnly, n.MaxCost = v.Peek.Options[0].Checked, costOf(f)
	for i, s := range k.scopes {
		box := &v.Scopes.Options[i]
		if box.Checked = f.Get(box.Name) == "on"; box.Checked {
			n.Scopes = append(n.Scopes, s.scope)
		}
	}
	var key tenants.Key
	var token string
	var err error
	if n.ExpiresAt, err = web.ParseEnding(f, &v.End, w.Now(), web.KeyLives); err == nil {
		key, token, err = k.create(ctx, n)
	}
	if err == nil {
		w.Changed(ctx)
		return w.ShowOnce(c, k.base+"/new", newToken{Key: key.ID, Token: token})
	}
	renamed := make(map[string]string, len(n.AllowedIPs))
	for i := range n.AllowedIPs {
		renamed["allowed_ips/"+strconv.Itoa(i)] = v.AllowedIPs.Name
	}
	return web.Retry(err, &v, &v.Faults, renamed, func(status int) error {
		return w.Render(c, status, views.KeyFormPage(w.keyPage(c, k, k.newTitle), v))
	})
}

// costOf returns the maximum cost of an API key from the form. If the text is not a number, it
// returns -1, which the service rejects.
func costOf(f url.Values) int64 {
	text := strings.ReplaceAll(strings.TrimSpace(f.Get("max_cost")), ",", "")
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n == 0 {
		return -1
	}
	return n
}

// A newToken has the data of the page that shows a new key once. Headgate does not store the
// key's token.
type newToken struct {
	Key, Token string
	// OldEnds is the time until which the old key stays valid after a rotation. It is zero for
	// a created key.
	OldEnds time.Time
}

// showToken shows the token of a new key. No other page shows the token.
func (w *pages) showToken(c echo.Context) error {
	var n newToken
	k := w.keyring(c)
	if !w.ShownOnce(c, &n) {
		return w.GoneOnce(c, "Headgate shows a key once, and does not keep it. If you have not stored it, revoke it and create another.",
			views.Link{Text: k.title, URL: k.base})
	}
	key, err := k.get(c.Request().Context(), n.Key)
	if err != nil {
		return err
	}
	v := views.KeyMade{Title: "Key created", Lead: "Every node accepts the key within seconds."}
	if !n.OldEnds.IsZero() {
		v = views.KeyMade{
			Title: "New key created", Lead: "Replace the old key where it is used.", Rotated: true, OldEnds: views.NewMoment(n.OldEnds, w.Now()),
		}
	}
	v.Head, v.Name, v.Token, v.Back, v.Curl = k.head, key.Name, n.Token, k.base, k.try(w.Origin(c), n.Token, key.Scopes)
	return w.Render(c, http.StatusOK, views.KeyMadePage(w.keyPage(c, k, v.Title), v))
}

// keyOf returns the key that the path names.
func (w *pages) keyOf(c echo.Context) (keyring, tenants.Key, error) {
	k := w.keyring(c)
	id, err := web.PathID(c, "key")
	if err != nil {
		return k, tenants.Key{}, err
	}
	key, err := k.get(c.Request().Context(), id)
	return k, key, err
}

// overlaps are the durations for which the old key can stay valid after a rotation.
var overlaps = []web.Lifetime{
	{Value: "0", Label: "ends at once", Length: 0},
	{Value: "1h", Label: "ends in an hour", Length: time.Hour},
	{Value: "24h", Label: "ends in 24 hours", Length: web.Day},
	{Value: "7d", Label: "ends in 7 days", Length: 7 * web.Day},
}

// maxCreatedShown is the maximum number of created keys that the page lists when it asks for
// confirmation to revoke the key that created them.
const maxCreatedShown = 20

// offerCreated adds two things to the page that asks for confirmation before a key is revoked:
// the keys that were created with this key, and a check box to revoke them too.
func (k *keyring) offerCreated(ctx context.Context, key tenants.Key, v *views.Confirm) error {
	created, err := k.created(ctx, key.ID)
	if err != nil || len(created) == 0 {
		return err
	}
	var names []string
	for _, c := range created[:min(len(created), maxCreatedShown)] {
		names = append(names, c.Name+" ("+c.Hint+")")
	}
	if more := len(created) - maxCreatedShown; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	v.Facts = append(v.Facts, views.Fact{Name: "Keys that it created", Value: strings.Join(names, ", ")})
	v.Also = views.Checks{Name: "also", Label: "Also revoke", Options: []views.CheckBox{{
		Name: "with-created", Label: fmt.Sprintf("The keys that it created (%d)", len(created)),
		Hint: "Check this if another person may have had the key. It includes keys that those keys created.",
	}}}
	return nil
}

func (k *keyring) confirm(key tenants.Key, verb string) views.Confirm {
	v := views.Confirm{
		Head: k.head, Facts: []views.Fact{{Name: "Key", Value: cmp.Or(key.Hint, key.ID)}},
		Action: k.base + "/" + key.ID + "/" + verb, Back: k.base,
	}
	if verb == "revoke" {
		v.Title, v.Button, v.Bad = "Revoke the key "+key.Name+"?", "Revoke the key", true
		v.Text = []string{
			"Every node answers requests with this key with 401 within seconds. You cannot undo this.",
			"To replace a key without a gap, rotate it instead.",
		}
		return v
	}
	v.Title, v.Button, v.WithOverlap = "Rotate the key "+key.Name, "Create the new key", true
	v.Text = []string{
		"The new key has the same name, scopes, bounds, addresses, and lifetime. It is shown once.",
		"Choose how long the old key stays valid, so that you can replace it without a gap.",
	}
	v.Overlap = views.Select{Name: "overlap", Label: "The old key", Value: "24h", Options: web.LifetimeOptions(overlaps)}
	return v
}

// confirmKey returns the handler of the page that asks for confirmation before a key is rotated
// or revoked.
func (w *pages) confirmKey(verb, title string) echo.HandlerFunc {
	return func(c echo.Context) error {
		k, key, err := w.keyOf(c)
		if err != nil {
			return err
		}
		v := k.confirm(key, verb)
		if verb == "revoke" {
			if err := k.offerCreated(c.Request().Context(), key, &v); err != nil {
				return err
			}
		}
		return w.Render(c, http.StatusOK, views.ConfirmPage(w.keyPage(c, k, title), v))
	}
}

func (w *pages) rotateKey(c echo.Context, f url.Values) error {
	k, key, err := w.keyOf(c)
	if err != nil {
		return err
	}
	ctx, v := c.Request().Context(), k.confirm(key, "rotate")
	v.Overlap.Value = f.Get("overlap")
	i := slices.IndexFunc(overlaps, func(l web.Lifetime) bool { return l.Value == v.Overlap.Value })
	if i < 0 {
		err = problem.At("/overlap", "must be one of the list")
	} else if next, token, failed := k.rotate(ctx, key.ID, overlaps[i].Length); failed == nil {
		w.Changed(ctx)
		old, err := k.get(ctx, key.ID)
		if err != nil {
			return err
		}
		ends := old.RevokedAt
		if !old.ExpiresAt.IsZero() && old.ExpiresAt.Before(ends) {
			ends = old.ExpiresAt
		}
		return w.ShowOnce(c, k.base+"/new", newToken{Key: next.ID, Token: token, OldEnds: ends})
	} else {
		err = failed
	}
	return w.retryKey(c, k, "Rotate", v, err)
}

func (w *pages) revokeKey(c echo.Context, f url.Values) error {
	k, key, err := w.keyOf(c)
	if err != nil {
		return err
	}
	ctx, revoke, done := c.Request().Context(), k.revoke, "key-revoked"
	if f.Get("with-created") == "on" {
		revoke, done = k.revokeAll, "keys-revoked"
	}
	if _, err = revoke(ctx, key.ID); err == nil {
		w.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, k.base+"?done="+done)
	}
	v := k.confirm(key, "revoke")
	if failed := k.offerCreated(ctx, key, &v); failed != nil {
		return failed
	}
	return w.retryKey(c, k, "Revoke", v, err)
}

func (w *pages) retryKey(c echo.Context, k keyring, title string, v views.Confirm, err error) error {
	return web.Retry(err, &v, &v.Faults, nil, func(status int) error {
		return w.Render(c, status, views.ConfirmPage(w.keyPage(c, k, title), v))
	})
}
