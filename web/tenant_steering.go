package web

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web/views"
)

// What is set for a tenant beside its plan: lists, blocks, and the reset of a
// key. Overrides are in tenant_overrides.go.

// exceptionsOnPage is how many rows stand on one page of a list.
const exceptionsOnPage = 50

// keyField is before the name of an attribute in forms and addresses.
const keyField = "k."

func (w *Web) exceptionRoutes() []row {
	const get, post = http.MethodGet, http.MethodPost
	const read, write = accounts.TenantRead, accounts.ExceptionsWrite
	const overrides, lists, blocks, reset = tenantPath + "/overrides", tenantPath + "/lists", tenantPath + "/blocks", tenantPath + "/reset"
	return []row{
		{get, overrides, read, w.listOverrides, bounded},
		{post, overrides, write, w.createOverride, bounded},
		{get, overrides + "/new", write, w.newOverrideForm, bounded},
		{get, overrides + "/:override/delete", write, w.deleteOverrideForm, bounded},
		{post, overrides + "/:override/delete", write, w.deleteOverride, bounded},

		{get, lists, read, w.listEntries, bounded},
		{post, lists, write, w.createEntry, bounded},
		{get, lists + "/new", write, w.newEntryForm, bounded},
		{get, lists + "/:entry/delete", write, w.deleteEntryForm, bounded},
		{post, lists + "/:entry/delete", write, w.deleteEntry, bounded},

		{get, blocks, read, w.listBlocks, bounded},
		{post, blocks, write, w.createBlock, bounded},
		{get, blocks + "/new", write, w.newBlockForm, bounded},
		{get, blocks + "/:block/delete", write, w.deleteBlockForm, bounded},
		{post, blocks + "/:block/delete", write, w.deleteBlock, bounded},

		{get, reset, write, w.resetForm, bounded},
		{post, reset, write, w.resetKey, bounded},
	}
}

// below is a page of a tenant.
// below is the address of a page of a tenant. The first page of one whose slug
// is the address of another page, as old ones may have, has its id there.
func below(t tenants.Tenant, path string) string {
	if path == "" && t.Slug == problem.ReservedSlug {
		return inTenant(tenantPath, t.ID)
	}
	return inTenant(tenantPath+path, t.Slug)
}

// afterOf is the cursor of a list in the address.
func afterOf(c echo.Context) string {
	if after := c.QueryParam("after"); uuid.Validate(after) == nil {
		return after
	}
	return ""
}

// cutPage gives the rows of one page of a list that was asked for one more, and
// the address of the next; "" on the last.
func cutPage[T any](rows []T, most int, id func(T) string, path string, q url.Values) ([]T, string) {
	if len(rows) <= most {
		return rows, ""
	}
	rows = rows[:most]
	next := maps.Clone(q)
	if next == nil {
		next = url.Values{}
	}
	next.Set("after", id(rows[most-1]))
	return rows, path + "?" + next.Encode()
}

// policiesOf are the policies that the tenant of the path follows.
func (w *Web) policiesOf(c echo.Context) ([]plans.Policy, error) {
	d, err := w.publishedDocument(c.Request().Context(), tenantOf(c).Plan)
	return d.Policies(), err
}

func policyNamed(list []plans.Policy, slug string) (plans.Policy, bool) {
	i := slices.IndexFunc(list, func(p plans.Policy) bool { return p.Slug == slug })
	if i < 0 {
		return plans.Policy{}, false
	}
	return list[i], true
}

// attributesOf are the attributes that a policy counts by, each once.
func attributesOf(countBy []string) []string {
	var list []string
	for _, name := range countBy {
		name, _, _ = strings.Cut(name, "/64")
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// appliesWords say what a policy matches and what it counts.
func appliesWords(p plans.Policy) string {
	return matchWords(p.Match.Methods, p.Match.Path, len(p.Match.Attributes)) + ", counted " + countedWords(p.CountBy)
}

// keyFields are the names of the fields of all keys of some policies.
func keyFields(list []plans.Policy) []string {
	var fields []string
	for _, p := range list {
		for _, name := range attributesOf(p.CountBy) {
			if !slices.Contains(fields, keyField+name) {
				fields = append(fields, keyField+name)
			}
		}
	}
	return fields
}

// keyIn reads the key of a policy from a form or an address: what is empty was
// not sent.
func keyIn(q url.Values, p plans.Policy) map[string]string {
	key := map[string]string{}
	for _, name := range attributesOf(p.CountBy) {
		if value := q.Get(keyField + name); value != "" {
			key[name] = value
		}
	}
	return key
}

// keyInputs are the fields of the key of a policy.
func keyInputs(q url.Values, p plans.Policy) []views.Input {
	var list []views.Input
	for _, name := range attributesOf(p.CountBy) {
		list = append(list, views.Input{
			Name: keyField + name, Label: name, Type: "text", Autocomplete: "off", Optional: true, Value: q.Get(keyField + name),
			Hint: "Left empty: the key of requests that send none.",
		})
	}
	return list
}

// keyQuery is a key as an address has it.
func keyQuery(key map[string]string) url.Values {
	q := url.Values{}
	for name, value := range key {
		q.Set(keyField+name, value)
	}
	return q
}

// keyWordsOf say a key: "user 42, ip 192.0.2.1"; "the whole tenant" for the key of
// a policy that counts no attribute.
func keyWordsOf(key map[string]string, countBy []string) string {
	if len(countBy) == 0 && len(key) == 0 {
		return "the whole tenant"
	}
	var words []string
	for _, name := range attributesOf(countBy) {
		if value, sent := key[name]; sent {
			words = append(words, name+" "+value)
		} else {
			words = append(words, "no "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(key)) {
		if !slices.Contains(attributesOf(countBy), name) {
			words = append(words, name+" "+key[name])
		}
	}
	if len(words) == 0 {
		return "the whole tenant"
	}
	return strings.Join(words, ", ")
}

// usable reports whether what is set has an effect with what is in force on this
// node.
func (w *Web) usable(t tenants.Tenant, spec enforcement.ExceptionSpec) bool {
	world := w.cfg.Snapshot()
	if world == nil {
		return true // nobody knows
	}
	s, known := world.Subject(t.ID)
	if !known {
		return false
	}
	_, faults := enforcement.CompileExceptions(spec, s.Plan, s.PlanRevision)
	return !slices.ContainsFunc(faults, func(f enforcement.ExceptionFault) bool { return !f.Partial })
}

// pickPolicy asks which policy a form is about.
func (w *Web) pickPolicy(c echo.Context, list []plans.Policy, title, lead, current string) error {
	t := tenantOf(c)
	v := views.PolicyPick{
		Head: w.tenantHead(c, current), Title: title, Lead: lead, Action: c.Request().URL.Path, Back: below(t, current),
		Policy: views.Select{Name: "policy", Label: "Policy", Value: c.QueryParam("policy")},
	}
	if t.Plan == "" || len(list) == 0 {
		v.Empty = views.Empty{Title: "There is no policy", Text: "The tenant follows no plan, or its plan has no policies: there is nothing to choose."}
	}
	for _, p := range list {
		v.Policy.Options = append(v.Policy.Options, views.Option{Value: p.Slug, Label: p.Slug + ": " + appliesWords(p)})
	}
	for name, values := range c.QueryParams() {
		if name != "policy" && len(values) > 0 && len(v.Hidden) < 20 {
			v.Hidden = append(v.Hidden, views.Hidden{Name: name, Value: values[0]})
		}
	}
	slices.SortFunc(v.Hidden, func(a, b views.Hidden) int { return strings.Compare(a.Name, b.Name) })
	return w.render(c, http.StatusOK, views.PolicyPickPage(w.tenantPage(c, title), v))
}

// ---- lists

func entryList(list exceptions.List) string {
	if list == exceptions.Deny {
		return "deny list"
	}
	return "allow list"
}

func (w *Web) listEntries(c echo.Context) error {
	t, now := tenantOf(c), w.cfg.Now()
	f := exceptions.Filter{List: exceptions.List(c.QueryParam("list")), Query: strings.TrimSpace(c.QueryParam("q")), After: afterOf(c), Limit: exceptionsOnPage + 1}
	if f.List != exceptions.Deny && f.List != exceptions.Allow {
		f.List = ""
	}
	rows, err := w.cfg.Exceptions.Entries(c.Request().Context(), t.ID, f)
	if err != nil {
		return err
	}
	base := below(t, "/lists")
	v := views.Lists{
		Head: w.tenantHead(c, "/lists"), Notice: tenantDone(c), Base: base, Query: c.QueryParam("q"), Narrow: f.List != "" || f.Query != "",
		List: views.Select{Name: "list", Label: "List", Value: string(f.List), Optional: true, Options: []views.Option{
			{Value: "", Label: "Both"}, {Value: "deny", Label: "Deny"}, {Value: "allow", Label: "Allow"},
		}},
		Empty: views.Empty{Title: "Nothing is on the lists", Text: "Put a user, an address or a whole network on the deny list to refuse it, or on the allow list to let it pass uncharged."},
	}
	if v.Narrow {
		v.Empty = views.Empty{Title: "Nothing like this is on the lists", Text: "Another value, or both lists, may have what you look for."}
	}
	write := mayInTenant(c, accounts.ExceptionsWrite)
	if write {
		v.NewURL = base + "/new"
	}
	q := url.Values{}
	for name, value := range map[string]string{"list": string(f.List), "q": f.Query} {
		if value != "" {
			q.Set(name, value)
		}
	}
	rows, v.Next = cutPage(rows, exceptionsOnPage, func(n exceptions.Entry) string { return n.ID }, base, q)
	for _, n := range rows {
		r := views.ListRow{
			Deny: n.List == exceptions.Deny, Attribute: n.Attribute, Value: n.Value, Reason: n.Reason, By: n.CreatedBy.Name,
			Ends: views.NewMoment(n.ExpiresAt, now), Over: !n.ExpiresAt.IsZero() && !now.Before(n.ExpiresAt),
		}
		if write {
			r.DeleteURL = base + "/" + n.ID + "/delete"
		}
		v.Rows = append(v.Rows, r)
	}
	return w.render(c, http.StatusOK, views.ListsPage(w.tenantPage(c, "Lists"), v))
}

func (w *Web) entryForm(c echo.Context, q url.Values) views.EntryForm {
	t := tenantOf(c)
	v := views.EntryForm{
		Head: w.tenantHead(c, "/lists"), Action: below(t, "/lists"), Back: below(t, "/lists"),
		List: views.Choice{Name: "list", Label: "List", Value: "deny", Options: []views.Option{
			{Value: "deny", Label: "Deny", Hint: "Requests with the value are refused with 403, before any policy."},
			{Value: "allow", Label: "Allow", Hint: "Requests with the value pass, and are charged to no limit."},
		}},
		Attribute: views.Input{Name: "attribute", Label: "Attribute", Type: "text", Autocomplete: "off", Value: q.Get("attribute"), Hint: "As requests send it: ip, user, api_key."},
		Value:     views.Input{Name: "value", Label: "Value", Type: "text", Autocomplete: "off", Value: q.Get("value"), Hint: "Of ip also a network, like 203.0.113.0/24."},
		Reason:    reasonInput(q, true),
		End:       endingOf("never", "never", shortLives...),
	}
	chooses(&v.List, q.Get("list"))
	return v
}

// reasonInput is why something is set.
func reasonInput(q url.Values, optional bool) views.Input {
	return views.Input{Name: "reason", Label: "Reason", Type: "text", Autocomplete: "off", Optional: optional, Value: q.Get("reason"), Hint: "Whoever looks at it later reads this, and the tenant too."}
}

func (w *Web) newEntryForm(c echo.Context) error {
	return w.showEntryForm(c, http.StatusOK, w.entryForm(c, c.QueryParams()))
}

func (w *Web) showEntryForm(c echo.Context, status int, v views.EntryForm) error {
	return w.render(c, status, views.EntryFormPage(w.tenantPage(c, "Add to a list", views.Link{Text: "Lists", URL: v.Back}), v))
}

func (w *Web) createEntry(c echo.Context) error {
	f, err := form(c, "list", "attribute", "value", "reason", "life", "until")
	if err != nil {
		return err
	}
	ctx, t, v := c.Request().Context(), tenantOf(c), w.entryForm(c, f)
	n := exceptions.NewEntry{
		List: exceptions.List(f.Get("list")), Attribute: strings.TrimSpace(f.Get("attribute")), Value: strings.TrimSpace(f.Get("value")), Reason: strings.TrimSpace(f.Get("reason")),
	}
	if n.ExpiresAt, err = endOf(f, &v.End, w.cfg.Now(), shortLives); err == nil {
		_, err = w.cfg.Exceptions.CreateEntry(ctx, t.ID, n)
	}
	if err == nil {
		w.cfg.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, below(t, "/lists")+"?done=entry-created")
	}
	list, status, err := places{
		inputs: []*views.Input{&v.Attribute, &v.Value, &v.Reason, &v.End.Until}, choice: &v.List, selects: []*views.Select{&v.End.Life},
		renamed: map[string]string{"expires_at": endField(v.End)},
	}.tell(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showEntryForm(c, status, v)
}

func (w *Web) entryOf(c echo.Context) (exceptions.Entry, error) {
	id, err := pathID(c, "entry")
	if err != nil {
		return exceptions.Entry{}, err
	}
	return w.cfg.Exceptions.Entry(c.Request().Context(), tenantOf(c).ID, id)
}

func (w *Web) deleteEntryForm(c echo.Context) error {
	n, err := w.entryOf(c)
	if err != nil {
		return err
	}
	t := tenantOf(c)
	what := "Requests with it are no longer refused by the list: the plan decides."
	if n.List == exceptions.Allow {
		what = "Requests with it are charged and limited by the plan again."
	}
	return w.showConfirm(c, http.StatusOK, "Take off the list", "Lists", views.Confirm{
		Head: w.tenantHead(c, "/lists"), Title: "Take it off the " + entryList(n.List) + "?", Text: []string{what}, Button: "Take it off", Bad: true,
		Facts:  []views.Fact{{Name: "Attribute", Value: n.Attribute}, {Name: "Value", Value: n.Value}, {Name: "Reason", Value: n.Reason}},
		Action: below(t, "/lists/") + n.ID + "/delete", Back: below(t, "/lists"),
	})
}

func (w *Web) deleteEntry(c echo.Context) error {
	if _, err := form(c); err != nil {
		return err
	}
	return w.ended(c, "entry", "/lists", "entry-deleted", w.cfg.Exceptions.DeleteEntry)
}

// ended ends what the path names, and goes back to its list.
func (w *Web) ended(c echo.Context, name, list, done string, end func(context.Context, string, string) error) error {
	id, err := pathID(c, name)
	if err != nil {
		return err
	}
	ctx, t := c.Request().Context(), tenantOf(c)
	if err := end(ctx, t.ID, id); err != nil {
		return err
	}
	w.cfg.Changed(ctx)
	return c.Redirect(http.StatusSeeOther, below(t, list)+"?done="+done)
}

// ---- blocks

func (w *Web) listBlocks(c echo.Context) error {
	t := tenantOf(c)
	rows, err := w.cfg.Exceptions.Blocks(c.Request().Context(), t.ID, exceptions.Filter{After: afterOf(c), Limit: exceptionsOnPage + 1})
	if err != nil {
		return err
	}
	policies, err := w.policiesOf(c)
	if err != nil {
		return err
	}
	base := below(t, "/blocks")
	v := views.Blocks{Head: w.tenantHead(c, "/blocks"), Notice: tenantDone(c), Empty: views.Empty{
		Title: "Nothing is blocked", Text: "A block refuses one key of one policy until an instant: an abuser, while you look at what happens.",
	}}
	write := mayInTenant(c, accounts.ExceptionsWrite)
	if write {
		v.NewURL = base + "/new"
	}
	rows, v.Next = cutPage(rows, exceptionsOnPage, func(b exceptions.Block) string { return b.ID }, base, nil)
	for _, b := range rows {
		v.Rows = append(v.Rows, w.blockRow(t, b, policies, write))
	}
	return w.render(c, http.StatusOK, views.BlocksPage(w.tenantPage(c, "Blocks"), v))
}

func (w *Web) blockRow(t tenants.Tenant, b exceptions.Block, policies []plans.Policy, write bool) views.BlockRow {
	now := w.cfg.Now()
	p, known := policyNamed(policies, b.Policy)
	r := views.BlockRow{
		Policy: b.Policy, Key: keyWordsOf(b.Key, p.CountBy), Reason: b.Reason, By: b.CreatedBy.Name, Ends: views.NewMoment(b.ExpiresAt, now),
	}
	spec := enforcement.Block{ID: b.ID, Policy: b.Policy, Until: b.ExpiresAt.UnixMicro()}
	for name, value := range b.Key {
		spec.Key = append(spec.Key, enforcement.Attribute{Name: name, Value: value})
	}
	switch {
	case !now.Before(b.ExpiresAt):
		r.Idle = "it has ended"
	case !known:
		r.Idle = "no effect: the plan has no such policy"
	case p.Mode != enforcement.PolicyEnforce:
		r.Idle = "no effect: the policy is not enforced"
	case !w.usable(t, enforcement.ExceptionSpec{Blocks: []enforcement.Block{spec}}):
		r.Idle = "no effect with the plan as it is"
	}
	if known {
		r.KeyURL = keyURL(t, b.Policy, b.Key)
	}
	if write {
		r.DeleteURL = below(t, "/blocks/") + b.ID + "/delete"
	}
	return r
}

// boundForm is a form about one key of one policy.
func (w *Web) boundForm(c echo.Context, p plans.Policy, q url.Values, current string) views.BoundForm {
	return views.BoundForm{
		Head: w.tenantHead(c, current), Policy: p.Slug, Applies: appliesWords(p), Keys: keyInputs(q, p),
	}
}

func (w *Web) blockForm(c echo.Context, p plans.Policy, q url.Values) views.BoundForm {
	t := tenantOf(c)
	v := w.boundForm(c, p, q, "/blocks")
	v.Title, v.Lead = "Block a key", "Every request of this key that the policy applies to is refused until the end, whatever it has left."
	v.Action, v.Back, v.PickURL = below(t, "/blocks"), below(t, "/blocks"), below(t, "/blocks/new")
	v.Reason, v.HasEnd, v.End, v.Button, v.Bad = reasonInput(q, false), true, endingOf("", "24h", shortLives...), "Block the key", true
	return v
}

func (w *Web) newBlockForm(c echo.Context) error {
	list, err := w.policiesOf(c)
	if err != nil {
		return err
	}
	p, known := policyNamed(list, c.QueryParam("policy"))
	if !known {
		return w.pickPolicy(c, list, "Block a key", "A block is of one policy: choose it first.", "/blocks")
	}
	return w.showBound(c, http.StatusOK, "Blocks", w.blockForm(c, p, c.QueryParams()))
}

func (w *Web) showBound(c echo.Context, status int, list string, v views.BoundForm) error {
	var above []views.Link
	if list != "" {
		above = append(above, views.Link{Text: list, URL: v.Back})
	}
	return w.render(c, status, views.BoundFormPage(w.tenantPage(c, v.Title, above...), v))
}

// places are where the faults of such a form stand.
func boundPlaces(v *views.BoundForm) places {
	at := places{inputs: []*views.Input{&v.Reason, &v.End.Until}, selects: []*views.Select{&v.End.Life}, renamed: map[string]string{"expires_at": endField(v.End)}}
	for i := range v.Keys {
		name := strings.TrimPrefix(v.Keys[i].Name, keyField)
		at.inputs = append(at.inputs, &v.Keys[i])
		at.renamed["key/"+problem.Escape(name)] = keyField + name
	}
	return at
}

// policyForm reads a form about one of the tenant's policies; ok is false when
// there is no such policy any more.
func (w *Web) policyForm(c echo.Context, fields ...string) (f url.Values, p plans.Policy, ok bool, err error) {
	list, err := w.policiesOf(c)
	if err != nil {
		return nil, p, false, err
	}
	if f, err = form(c, append(append(fields, "policy"), keyFields(list)...)...); err != nil {
		return nil, p, false, err
	}
	p, ok = policyNamed(list, f.Get("policy"))
	return f, p, ok, nil
}

// errNoPolicy is the answer to a form about a policy that the plan does not have
// any more.
var errNoPolicy = problem.New(problem.Conflict, "the tenant's plan has no such policy any more: open the page again")

func (w *Web) createBlock(c echo.Context) error {
	f, p, known, err := w.policyForm(c, "reason", "life", "until")
	if err != nil {
		return err
	}
	if !known {
		return errNoPolicy
	}
	ctx, t, v := c.Request().Context(), tenantOf(c), w.blockForm(c, p, f)
	n := exceptions.NewBlock{Policy: p.Slug, Key: keyIn(f, p), Reason: strings.TrimSpace(f.Get("reason"))}
	if n.ExpiresAt, err = endOf(f, &v.End, w.cfg.Now(), shortLives); err == nil {
		_, err = w.cfg.Exceptions.CreateBlock(ctx, t.ID, n)
	}
	if err == nil {
		w.cfg.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, below(t, "/blocks")+"?done=block-created")
	}
	list, status, err := boundPlaces(&v).tell(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showBound(c, status, "Blocks", v)
}

func (w *Web) deleteBlockForm(c echo.Context) error {
	id, err := pathID(c, "block")
	if err != nil {
		return err
	}
	t := tenantOf(c)
	b, err := w.cfg.Exceptions.Block(c.Request().Context(), t.ID, id)
	if err != nil {
		return err
	}
	return w.showConfirm(c, http.StatusOK, "End the block", "Blocks", views.Confirm{
		Head: w.tenantHead(c, "/blocks"), Title: "End the block?", Text: []string{"Requests of this key are decided by what it has left again."}, Button: "End the block", Bad: true,
		Facts:  []views.Fact{{Name: "Policy", Value: b.Policy}, {Name: "Key", Value: keyWordsOf(b.Key, nil)}, {Name: "Reason", Value: b.Reason}},
		Action: below(t, "/blocks/") + b.ID + "/delete", Back: below(t, "/blocks"),
	})
}

func (w *Web) deleteBlock(c echo.Context) error {
	if _, err := form(c); err != nil {
		return err
	}
	return w.ended(c, "block", "/blocks", "block-deleted", w.cfg.Exceptions.DeleteBlock)
}

// ---- reset

func (w *Web) resetView(c echo.Context, p plans.Policy, q url.Values) views.BoundForm {
	t := tenantOf(c)
	v := w.boundForm(c, p, q, "")
	v.Title, v.Lead = "Reset a key", "The counters of this key are as if it had never been used. What was counted for charts stays. This cannot be undone."
	v.Action, v.Back, v.PickURL = below(t, "/reset"), keyURL(t, p.Slug, keyIn(q, p)), below(t, "/reset")
	v.Reason, v.Button, v.Bad = reasonInput(q, true), "Reset the counters", true
	return v
}

func (w *Web) resetForm(c echo.Context) error {
	list, err := w.policiesOf(c)
	if err != nil {
		return err
	}
	p, known := policyNamed(list, c.QueryParam("policy"))
	if !known {
		return w.pickPolicy(c, list, "Reset a key", "Counters belong to one policy: choose it first.", "")
	}
	return w.showBound(c, http.StatusOK, "", w.resetView(c, p, c.QueryParams()))
}

func (w *Web) resetKey(c echo.Context) error {
	f, p, known, err := w.policyForm(c, "reason")
	if err != nil {
		return err
	}
	if !known {
		return errNoPolicy
	}
	t := tenantOf(c)
	key := keyIn(f, p)
	err = w.cfg.Usage.Reset(c.Request().Context(), t.ID, p.Slug, key, strings.TrimSpace(f.Get("reason")))
	if err == nil {
		return c.Redirect(http.StatusSeeOther, joinedQuery(keyURL(t, p.Slug, key), url.Values{"done": {"key-reset"}}))
	}
	v := w.resetView(c, p, f)
	list, status, err := boundPlaces(&v).tell(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showBound(c, status, "", v)
}

// keyURL is the page of one counted key.
func keyURL(t tenants.Tenant, policy string, key map[string]string) string {
	return joinedQuery(below(t, "/usage/")+url.PathEscape(policy), keyQuery(key))
}

// joinedQuery adds to the query of an address.
func joinedQuery(address string, q url.Values) string {
	if len(q) == 0 {
		return address
	}
	if strings.Contains(address, "?") {
		return address + "&" + q.Encode()
	}
	return address + "?" + q.Encode()
}
