package tenants

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

func (w *pages) listOverrides(c echo.Context) error {
	t := web.TenantOf(c)
	rows, err := w.cfg.Exceptions.Overrides(c.Request().Context(), t.ID, exceptions.Filter{After: afterOf(c), Limit: exceptionsOnPage + 1})
	if err != nil {
		return err
	}
	policies, err := w.Policies(c)
	if err != nil {
		return err
	}
	base := web.TenantURL(t, "/overrides")
	v := views.Overrides{Head: w.TenantHead(c, "/overrides"), Notice: web.Notice(c), Empty: views.Empty{
		Title: "Nothing is overridden",
		Text:  "The plan's numbers hold for every key. An override gives some of them others for a time: more for a launch, less for an abuser.",
	}}
	write := web.MayInTenant(c, accounts.ExceptionsWrite)
	if write {
		v.NewURL = base + "/new"
	}
	rows, v.Next = cutPage(rows, exceptionsOnPage, func(o exceptions.Override) string { return o.ID }, base, nil)
	for _, o := range rows {
		v.Rows = append(v.Rows, w.overrideRow(t, o, policies, write))
	}
	if v.Preview, err = w.precedence(c, policies); err != nil {
		return err
	}
	return w.Render(c, http.StatusOK, views.OverridesPage(w.TenantPage(c, "Overrides"), v))
}

func (w *pages) overrideRow(t tenants.Tenant, o exceptions.Override, policies []plans.Policy, write bool) views.OverrideRow {
	now := w.Now()
	p, known := web.PolicyBySlug(policies, o.Policy)
	r := views.OverrideRow{
		Policy: o.Policy, For: scopeWords(o), Numbers: numberLines(o, p.Limits), Reason: o.Reason, By: o.CreatedBy.Name,
		Ends: views.NewMoment(o.ExpiresAt, now),
	}
	spec := enforcement.ExceptionSpec{Overrides: []enforcement.Override{{
		ID: o.ID, Policy: o.Policy, Attribute: o.Attribute, Value: o.Value, Prefix: o.Prefix, Factor: o.Factor, Limits: o.Limits,
		Revision: o.Revision, From: o.CreatedAt.UnixMicro(), Until: o.ExpiresAt.UnixMicro(),
	}}}
	switch {
	case !now.Before(o.ExpiresAt):
		r.Idle = "it has ended"
	case !known:
		r.Idle = "no effect: the plan has no such policy"
	case o.Attribute != "" && !slices.Contains(web.KeyAttributes(p.CountBy), o.Attribute):
		r.Idle = "no effect: the policy does not count by " + o.Attribute
	case p.Mode == enforcement.PolicyOff:
		r.Idle = "no effect: the policy is off"
	case !w.usable(t, spec):
		r.Idle = "no effect with the plan as it is"
	}
	if write {
		r.DeleteURL = web.TenantURL(t, "/overrides/") + o.ID + "/delete"
	}
	return r
}

// scopeWords say for which keys an override is.
func scopeWords(o exceptions.Override) string {
	switch {
	case o.Attribute == "":
		return "every key of the tenant"
	case o.Value != "":
		return o.Attribute + " " + o.Value
	case o.Attribute == "ip":
		return "ip in " + o.Prefix
	}
	return o.Attribute + " that begins with " + o.Prefix
}

// numberLines read the numbers of an override aloud.
func numberLines(o exceptions.Override, planned []enforcement.Limit) []string {
	var lines []string
	if o.Factor != 0 {
		lines = append(lines, exceptions.FormatFactor(o.Factor)+" times the plan's")
	}
	for _, l := range planned {
		if become, changed := overridden(l, o.Factor, o.Limits); changed {
			lines = append(lines, l.Name+": "+plans.Describe(become))
		}
	}
	if len(planned) == 0 {
		for _, l := range o.Limits {
			lines = append(lines, "limit "+l.Name)
		}
	}
	return lines
}

// overridden is a limit with an override's numbers.
func overridden(l enforcement.Limit, factor int64, limits []enforcement.OverrideLimit) (enforcement.Limit, bool) {
	if factor != 0 {
		times := func(n int64) int64 {
			if n == 0 {
				return 0
			}
			return max(1, n*factor/1000)
		}
		l.Quota, l.Burst = times(l.Quota), times(l.Burst)
		return l, true
	}
	i := slices.IndexFunc(limits, func(o enforcement.OverrideLimit) bool { return o.Name == l.Name })
	if i < 0 {
		return l, false
	}
	if limits[i].Quota != enforcement.Keep {
		l.Quota = limits[i].Quota
	}
	if limits[i].Burst != enforcement.Keep {
		l.Burst = limits[i].Burst
	}
	if limits[i].Window != 0 {
		l.Window = limits[i].Window
	}
	return l, true
}

// precedence shows which override wins for the key that the address has.
func (w *pages) precedence(c echo.Context, policies []plans.Policy) (views.Precedence, error) {
	t, q := web.TenantOf(c), c.QueryParams()
	v := views.Precedence{Action: web.TenantURL(t, "/overrides")}
	for _, p := range policies {
		if len(p.Limits) > 0 {
			v.Policies = append(v.Policies, views.Option{Value: p.Slug, Label: p.Slug})
		}
	}
	p, known := web.PolicyBySlug(policies, q.Get("policy"))
	if !known {
		return v, nil
	}
	v.Policy, v.Keys = p.Slug, keyInputs(q, p)
	key := web.KeyFromForm(q, p)
	if len(v.Keys) > 0 && len(key) == 0 && !q.Has(v.Keys[0].Name) {
		return v, nil
	}
	ctx := c.Request().Context()
	u, err := w.cfg.Usage.Key(ctx, t.ID, p.Slug, key)
	if problem.Is(err, problem.Invalid) {
		at := web.Places{Renamed: map[string]string{}}
		for i := range v.Keys {
			at.Inputs = append(at.Inputs, &v.Keys[i])
			at.Renamed["key/"+problem.Escape(strings.TrimPrefix(v.Keys[i].Name, web.KeyFieldPrefix))] = v.Keys[i].Name
		}
		list, _, err := at.Report(err)
		if err == nil && len(list) > 0 {
			v.Error = list[0].Message
		}
		return v, err
	}
	if err != nil {
		if problem.Is(err, problem.Unavailable) || problem.Is(err, problem.NotFound) {
			v.Error = web.Sentence(err.Error())
			return v, nil
		}
		return v, err
	}
	v.Asked = true
	winner := ""
	if len(u.Policies) > 0 && len(u.Policies[0].Keys) > 0 {
		k := &u.Policies[0].Keys[0]
		if k.Override != nil {
			winner = k.Override.ID
		}
		key = k.Attributes()
		v.Limits = aloud(k)
	}
	v.Rows, err = w.matching(ctx, t, p, key, winner)
	return v, err
}

// aloud reads the limits of a key as they are in force.
func aloud(k *usage.KeyUsage) []string {
	var lines []string
	for i := range k.Limits {
		lines = append(lines, k.Limits[i].Limit.Name+": "+plans.Describe(k.Limits[i].Limit))
	}
	return lines
}

// matching are the overrides that a key meets, the one in force first, then as
// they would follow. Those that a newer one for the same values outlasts are left
// out.
func (w *pages) matching(ctx context.Context, t tenants.Tenant, p plans.Policy, key map[string]string,
	winner string,
) ([]views.OverrideRow, error) {
	list, err := w.overridesOf(ctx, t, p, key)
	if err != nil {
		return nil, err
	}
	type met struct {
		o     exceptions.Override
		rank  int
		note  string
		first bool
	}
	var all []met
	for _, o := range list {
		if rank, note, ok := rankOf(o, key); ok {
			all = append(all, met{o, rank, note, o.ID == winner})
		}
	}
	slices.SortStableFunc(all, func(a, b met) int {
		switch {
		case a.first != b.first && a.first, a.first == b.first && a.rank > b.rank:
			return -1
		case a.first != b.first, a.rank < b.rank:
			return 1
		}
		return int(b.o.Revision - a.o.Revision)
	})
	rows := make([]views.OverrideRow, len(all))
	for i, m := range all {
		rows[i] = w.overrideRow(t, m.o, []plans.Policy{p}, false)
		rows[i].InForce, rows[i].SpecificNote = m.first, m.note
	}
	return rows, nil
}

// overridesOf are the overrides that a key meets on this node.
func (w *pages) overridesOf(ctx context.Context, t tenants.Tenant, p plans.Policy, key map[string]string) ([]exceptions.Override, error) {
	s, found := w.cfg.Snapshot().Subject(t.ID)
	if !found || s.Plan == nil {
		return nil, nil
	}
	r, found := s.Plan.Rule(p.Slug)
	if !found {
		return nil, nil
	}
	var attributes []enforcement.Attribute
	for name, value := range key {
		attributes = append(attributes, enforcement.Attribute{Name: name, Value: value})
	}
	var list []exceptions.Override
	for _, met := range s.Exceptions.OverridesOf(r, attributes) {
		o, err := w.cfg.Exceptions.Override(ctx, t.ID, met.ID)
		if problem.Is(err, problem.NotFound) {
			continue // ended since
		}
		if err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, nil
}

// rankOf tells whether an override is for a key, and how closely: as the engine
// chooses. A longer prefix has a higher rank.
func rankOf(o exceptions.Override, key map[string]string) (rank int, note string, ok bool) {
	value, sent := key[o.Attribute]
	switch {
	case o.Attribute == "":
		return 0, "for every key", true
	case !sent:
		return 0, "", false
	case o.Value != "":
		return 1 << 20, "this very value", o.Value == value
	case o.Attribute == "ip":
		n, _, err := enforcement.ParseNetwork(o.Prefix)
		if err != nil {
			return 0, "", false
		}
		a, err := netip.ParseAddr(value)
		if in, failed := netip.ParsePrefix(value); err != nil && failed == nil {
			a, err = in.Addr(), nil
		}
		return 1 + n.Bits(), "a network of " + strconv.Itoa(n.Bits()) + " bits", err == nil && n.Contains(a.Unmap())
	}
	return 1 + 8*len(o.Prefix), "a prefix of " + numberOf(len(o.Prefix), "byte"), strings.HasPrefix(value, o.Prefix)
}

// numberFields are the fields of the limits of a policy's override.
func numberFields(list []plans.Policy) []string {
	var fields []string
	for _, p := range list {
		for _, l := range p.Limits {
			for _, what := range []string{"quota.", "burst.", "window."} {
				if !slices.Contains(fields, what+l.Name) {
					fields = append(fields, what+l.Name)
				}
			}
		}
	}
	return fields
}

// overrideForm is the form of one policy, filled in from an address or a form.
func (w *pages) overrideForm(c echo.Context, p plans.Policy, q url.Values) views.OverrideForm {
	t := web.TenantOf(c)
	v := views.OverrideForm{
		Head: w.TenantHead(c, "/overrides"), Action: web.TenantURL(t, "/overrides"), Back: web.TenantURL(t, "/overrides"),
		PickURL: web.TenantURL(t, "/overrides/new"),
		Policy:  p.Slug, Applies: web.AppliesWords(p),
		Scope: views.Choice{Name: "scope", Label: "It is for", Value: "all", Options: []views.Option{
			{Value: "all", Label: "the whole tenant", Hint: "Every key of the policy."},
		}},
		Attribute: views.Select{Name: "attribute", Label: "Attribute", Value: q.Get("attribute"), Optional: true},
		Value: views.Input{
			Name: "value", Label: "Value, prefix or network", Type: "text", Autocomplete: "off", Optional: true,
			Value: q.Get("value"), Hint: "For one value or a prefix.",
		},
		How: views.Choice{Name: "how", Label: "Numbers", Value: "factor", Options: []views.Option{
			{Value: "factor", Label: "times the plan's", Hint: "Every quota and burst, rounded down."},
			{Value: "limits", Label: "others for each limit", Hint: "What is left empty stays as the plan has it."},
		}},
		Factor: views.Input{
			Name: "factor", Label: "Factor", Type: "text", Autocomplete: "off", Optional: true, Value: q.Get("factor"),
			Hint: "2 is twice as much, 0.5 half as much.",
		},
		Reason: reasonInput(q, false),
		End:    web.EndingField("", "7d", web.ShortLifetimes...),
	}
	names := web.KeyAttributes(p.CountBy)
	if v.HasAttribute = len(names) > 0; v.HasAttribute {
		v.Scope.Options = append(v.Scope.Options,
			views.Option{Value: "value", Label: "one value", Hint: "The keys with this very value."},
			views.Option{
				Value: "prefix", Label: "a prefix, or a network",
				Hint: "The keys whose value begins so; of ip a network like 203.0.113.0/24.",
			})
	}
	for _, name := range names {
		v.Attribute.Options = append(v.Attribute.Options, views.Option{Value: name, Label: name})
	}
	if q.Get("prefix") != "" {
		v.Value.Value, v.Scope.Value = q.Get("prefix"), "prefix"
	} else if q.Get("value") != "" && v.HasAttribute {
		v.Scope.Value = "value"
	}
	chooses(&v.Scope, q.Get("scope"))
	for _, l := range p.Limits {
		field := func(what, label string) views.Input {
			return views.Input{
				Name: what + "." + l.Name, Label: label, Type: "text", Autocomplete: "off", Optional: true,
				Value: q.Get(what + "." + l.Name),
			}
		}
		limit := views.OverrideLimit{
			Name: l.Name, Plan: plans.Describe(l), HasBurst: l.Algorithm.Bucket(),
			Quota: field("quota", "Quota"), Burst: field("burst", "Burst"), Window: field("window", "Window"),
		}
		limit.Quota.Hint = "now " + views.Count(l.Quota).Exact
		limit.Window.Hint = "now " + enforcement.FormatWindow(l.Window)
		if limit.HasBurst {
			limit.Burst.Hint = "now " + views.Count(cmp.Or(l.Burst, l.Quota)).Exact
		}
		if limit.Quota.Value+limit.Burst.Value+limit.Window.Value != "" {
			v.How.Value = "limits"
		}
		v.Limits = append(v.Limits, limit)
	}
	chooses(&v.How, q.Get("how"))
	return v
}

func (w *pages) newOverrideForm(c echo.Context) error {
	list, err := w.Policies(c)
	if err != nil {
		return err
	}
	p, known := web.PolicyBySlug(list, c.QueryParam("policy"))
	if !known {
		list = slices.DeleteFunc(slices.Clone(list), func(p plans.Policy) bool { return len(p.Limits) == 0 })
		return w.pickPolicy(c, list, "New override", "An override is of one policy: choose it first.", "/overrides")
	}
	return w.showOverrideForm(c, http.StatusOK, w.overrideForm(c, p, c.QueryParams()))
}

func (w *pages) showOverrideForm(c echo.Context, status int, v views.OverrideForm) error {
	return w.Render(c, status, views.OverrideFormPage(w.TenantPage(c, "New override", views.Link{Text: "Overrides", URL: v.Back}), v))
}

// readOverride is what a form says of an override; what cannot be read is told.
func readOverride(f url.Values, v *views.OverrideForm, p plans.Policy, now time.Time) (exceptions.NewOverride, error) {
	n := exceptions.NewOverride{Policy: p.Slug, Reason: strings.TrimSpace(f.Get("reason"))}
	var faults problem.Fields
	switch v.Scope.Value {
	case "value":
		n.Attribute, n.Value = f.Get("attribute"), strings.TrimSpace(f.Get("value"))
	case "prefix":
		n.Attribute, n.Prefix = f.Get("attribute"), strings.TrimSpace(f.Get("value"))
	}
	if v.Scope.Value != "all" && n.Value+n.Prefix == "" {
		faults.Add("/value", "must not be empty, unless it is for the whole tenant")
	}
	var err error
	if v.How.Value == "factor" {
		if n.Factor, err = exceptions.ParseFactor(strings.TrimSpace(f.Get("factor"))); err != nil {
			faults.Add("/factor", "%v", err)
		}
	} else {
		n.Limits = readNumbers(&faults, f, p)
	}
	if n.ExpiresAt, err = web.ParseEnding(f, &v.End, now, web.ShortLifetimes); err != nil {
		faults.Add("/"+web.EndingFieldName(v.End), "must be a time like 2026-11-21T09:30, in UTC")
	}
	return n, faults.Err()
}

// readNumbers are the numbers of the limits for which any are given.
func readNumbers(faults *problem.Fields, f url.Values, p plans.Policy) []enforcement.OverrideLimit {
	var list []enforcement.OverrideLimit
	for _, l := range p.Limits {
		o := enforcement.OverrideLimit{Name: l.Name, Quota: enforcement.Keep, Burst: enforcement.Keep}
		number := func(what string, least int64, to *int64) bool {
			text := strings.ReplaceAll(strings.TrimSpace(f.Get(what+"."+l.Name)), ",", "")
			if text == "" {
				return false
			}
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < least {
				faults.Add("/"+what+"."+problem.Escape(l.Name), "must be a whole number, %d at least", least)
				return true
			}
			*to = n
			return true
		}
		given := number("quota", 0, &o.Quota)
		given = number("burst", 1, &o.Burst) || given
		if text := strings.TrimSpace(f.Get("window." + l.Name)); text != "" {
			window, err := enforcement.ParseWindow(text)
			if err != nil {
				faults.Add("/window."+problem.Escape(l.Name), "%v", err)
			}
			o.Window, given = window, true
		}
		if given {
			list = append(list, o)
		}
	}
	if len(list) == 0 {
		faults.Add("/how", "need at least one number of a limit")
	}
	return list
}

func (w *pages) createOverride(c echo.Context) error {
	policies, err := w.Policies(c)
	if err != nil {
		return err
	}
	fields := append([]string{"policy", "scope", "attribute", "value", "how", "factor", "reason", "life", "until", "step"},
		numberFields(policies)...)
	f, err := web.Form(c, fields...)
	if err != nil {
		return err
	}
	p, known := web.PolicyBySlug(policies, f.Get("policy"))
	if !known {
		return errNoPolicy
	}
	ctx, t, v := c.Request().Context(), web.TenantOf(c), w.overrideForm(c, p, f)
	n, err := readOverride(f, &v, p, w.Now())
	for _, l := range p.Limits {
		if become, changed := overridden(l, n.Factor, n.Limits); changed && err == nil {
			v.Aloud = append(v.Aloud, l.Name+": "+plans.Describe(become)+", where the plan has "+plans.Describe(l))
		}
	}
	if err == nil && f.Get("step") == "look" {
		return w.showOverrideForm(c, http.StatusOK, v)
	}
	if err == nil {
		_, err = w.cfg.Exceptions.CreateOverride(ctx, t.ID, n)
	}
	if err == nil {
		w.Changed(ctx)
		return c.Redirect(http.StatusSeeOther, web.TenantURL(t, "/overrides")+"?done=override-created")
	}
	list, status, err := overridePlaces(&v, n).Report(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showOverrideForm(c, status, v)
}

// overridePlaces are where the faults of an override stand.
func overridePlaces(v *views.OverrideForm, n exceptions.NewOverride) web.Places {
	at := web.Places{
		Inputs:  []*views.Input{&v.Value, &v.Factor, &v.Reason, &v.End.Until},
		Choices: []*views.Choice{&v.Scope, &v.How}, Selects: []*views.Select{&v.Attribute, &v.End.Life},
		Renamed: map[string]string{"expires_at": web.EndingFieldName(v.End), "prefix": "value", "limits": "how"},
	}
	for i := range v.Limits {
		l := &v.Limits[i]
		at.Inputs = append(at.Inputs, &l.Quota, &l.Burst, &l.Window)
		k := slices.IndexFunc(n.Limits, func(o enforcement.OverrideLimit) bool { return o.Name == l.Name })
		for _, what := range []string{"quota", "burst", "window"} {
			at.Renamed[what+"."+problem.Escape(l.Name)] = what + "." + l.Name
			at.Renamed["limits/"+strconv.Itoa(k)+"/"+what] = what + "." + l.Name
		}
		at.Renamed["limits/"+strconv.Itoa(k)] = "quota." + l.Name
	}
	return at
}

func (w *pages) deleteOverrideForm(c echo.Context) error {
	id, err := web.PathID(c, "override")
	if err != nil {
		return err
	}
	t := web.TenantOf(c)
	o, err := w.cfg.Exceptions.Override(c.Request().Context(), t.ID, id)
	if err != nil {
		return err
	}
	return w.ShowConfirm(c, http.StatusOK, "End the override", "Overrides", views.Confirm{
		Head: w.TenantHead(c, "/overrides"), Title: "End the override?", Button: "End the override", Bad: true,
		Text:   []string{"The plan's numbers, or those of the next override that is for these keys, hold at once. What was used stays used."},
		Facts:  []views.Fact{{Name: "Policy", Value: o.Policy}, {Name: "For", Value: scopeWords(o)}, {Name: "Reason", Value: o.Reason}},
		Action: web.TenantURL(t, "/overrides/") + o.ID + "/delete", Back: web.TenantURL(t, "/overrides"),
	})
}

func (w *pages) deleteOverride(c echo.Context) error {
	if _, err := web.Form(c); err != nil {
		return err
	}
	return w.ended(c, "override", "/overrides", "override-deleted", w.cfg.Exceptions.DeleteOverride)
}
