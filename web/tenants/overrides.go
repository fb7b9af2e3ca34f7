package tenants

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

func (w *pages) listOverrides(c echo.Context) error {
	t := web.TenantOf(c)
	filter := exceptions.Filter{After: web.After(c), Limit: web.PageRows + 1}
	rows, err := w.cfg.Exceptions.Overrides(c.Request().Context(), t.ID, filter)
	if err != nil {
		return err
	}
	policies, err := w.Policies(c)
	if err != nil {
		return err
	}
	var v views.Overrides
	if v.Preview, err = w.precedence(c, policies); err != nil {
		return err
	}
	v.List = web.NewList(c, rows, func(o exceptions.Override) string { return o.ID }, newURL(c, "/overrides"),
		func(o exceptions.Override) views.OverrideRow {
			r := w.overrideRow(t, o, policies)
			if r.DeleteURL = deleteURL(c, "/overrides", o.ID); r.DeleteURL != "" {
				r.ChangeURL = web.TenantURL(t, "/overrides/"+o.ID+"/change")
			}
			return r
		})
	v.Head = w.TenantHead(c, "/overrides")
	v.Empty = views.Empty{
		Title: "No overrides",
		Text:  "The numbers of the plan apply to every key. An override changes them for some keys until it ends.",
	}
	return w.Render(c, http.StatusOK, views.OverridesPage(w.TenantPage(c, "Overrides"), v))
}

func (w *pages) overrideRow(t tenants.Tenant, o exceptions.Override, policies []plans.Policy) views.OverrideRow {
	p, _ := web.PolicyBySlug(policies, o.Policy)
	return views.OverrideRow{
		Policy: o.Policy, For: scopeWords(o), Numbers: numberLines(o, p.Limits), Reason: o.Reason, By: o.CreatedBy.Name,
		Ends: views.NewMoment(o.ExpiresAt, w.Now()), Idle: w.idle(t, o),
	}
}

// scopeWords returns words that say to which keys an override applies.
func scopeWords(o exceptions.Override) string {
	switch {
	case o.Attribute == "":
		return "every key of the tenant"
	case o.Value != "":
		return o.Attribute + " " + o.Value
	case o.Attribute == "ip":
		return "ip in " + o.Prefix
	}
	return o.Attribute + " with the prefix " + o.Prefix
}

// numberLines describes in words the numbers that an override sets.
func numberLines(o exceptions.Override, planned []enforcement.Limit) []string {
	var lines []string
	if o.Factor != 0 {
		lines = append(lines, exceptions.FormatFactor(o.Factor)+" times the plan's numbers")
	}
	for _, l := range planned {
		if become, changed := l.Overridden(o.Factor, o.Limits); changed {
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

// precedence returns the view of which override applies to the key in the address.
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
	u, err := w.cfg.Usage.Key(c.Request().Context(), t.ID, p.Slug, key)
	if problem.Is(err, problem.Unavailable) || problem.Is(err, problem.NotFound) {
		v.Error = web.Sentence(err.Error())
		return v, nil
	}
	if err != nil {
		var faults []views.Fault
		err = web.Retry(err, &v, &faults, nil, func(int) error { v.Error = faults[0].Message; return nil })
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
		for i := range k.Limits {
			v.Limits = append(v.Limits, k.Limits[i].Limit.Name+": "+plans.Describe(k.Limits[i].Limit))
		}
	}
	list, err := w.overridesOf(c.Request().Context(), t, p, key)
	if err != nil {
		return v, err
	}
	slices.SortStableFunc(list, func(a, b exceptions.Override) int {
		rankA, rankB := rankOf(a, winner), rankOf(b, winner)
		return cmp.Or(cmp.Compare(rankB, rankA), cmp.Compare(b.Revision, a.Revision))
	})
	for _, o := range list {
		r := w.overrideRow(t, o, []plans.Policy{p})
		r.InForce, r.SpecificNote = o.ID == winner, scopeNote(o)
		v.Rows = append(v.Rows, r)
	}
	return v, nil
}

// overridesOf returns the overrides in this node's snapshot that match a key.
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
			continue // it expired in the meantime
		}
		if err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, nil
}

// rankOf returns the precedence of an override among those that match a key. The page shows
// the highest rank first. The order is the one of the engine: the override that applies, then
// exact values, then prefixes from long to short, and then overrides for every key.
func rankOf(o exceptions.Override, winner string) int {
	switch {
	case o.ID == winner:
		return 1 << 21
	case o.Attribute == "":
		return 0
	case o.Value != "":
		return 1 << 20
	case o.Attribute == "ip":
		return 1 + networkBits(o)
	}
	return 1 + 8*len(o.Prefix)
}

func networkBits(o exceptions.Override) int {
	n, _, err := enforcement.ParseNetwork(o.Prefix)
	if err != nil {
		return 0
	}
	return n.Bits()
}

// scopeNote returns words that say how specifically an override matches a key.
func scopeNote(o exceptions.Override) string {
	switch {
	case o.Attribute == "":
		return "every key"
	case o.Value != "":
		return "this exact value"
	case o.Attribute == "ip":
		return "a network of " + numberOf(networkBits(o), "bit")
	}
	return "a prefix of " + numberOf(len(o.Prefix), "byte")
}

func confirmOverride(o exceptions.Override) views.Confirm {
	return views.Confirm{
		Title: "End the override?", Button: "End the override",
		Text: []string{"The numbers of the plan, or of the next override for these keys, apply at once. The counters keep their values."},
		Facts: []views.Fact{
			{Name: "Policy", Value: o.Policy}, {Name: "For", Value: scopeWords(o)}, {Name: "Reason", Value: o.Reason},
		},
	}
}
