package decisions

import (
	"slices"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/requests"
	"github.com/headgate/headgate/web/views"
)

func (w *pages) denialList(c echo.Context, v *denialsView, rows []metrics.Refusal) views.DenialList {
	of := outcomes[v.of]
	l := views.DenialList{Things: of.things, Tenants: v.tenant.ID == "" && v.also.Get("tenant") == "", Empty: views.Empty{
		Title: "No " + of.things + " in this time",
		Text:  "They appear within two seconds. Headgate keeps them for 24 hours, up to 100 per second and node.",
	}}
	if len(web.With(web.With(v.also, "group", ""), "outcome", "")) > 0 {
		l.Empty.Title = "No " + of.thing + " in this time matches these filters"
	}
	if v.of > 0 {
		l.Empty.Text = "Headgate records one in N allowed requests of each tenant, up to 100 per second and node. " +
			"The settings of a tenant have this number. Without it, none is recorded."
		if v.tenant.ID != "" && web.MayInTenant(c, accounts.TenantWrite) {
			l.Empty.Link = views.Link{Text: "Settings of " + v.tenant.Name, URL: web.SettingsURL(v.tenant)}
		}
	}
	if v.group != "" {
		l.Group, l.Groups = v.group, w.groupList(v, rows)
		oldest := ""
		if len(rows) > 0 {
			oldest = v.span.In(rows[len(rows)-1].At).Format("15:04:05")
		}
		l.Summary = v.groupSummary(len(l.Groups), len(rows), oldest)
	} else {
		for i := range rows {
			l.Rows = append(l.Rows, w.denialRow(v, &rows[i]))
		}
		l.Summary = views.Quantity(int64(len(rows)), of.thing, of.things) + ", newest first."
	}
	if len(rows) < denialsOnPage && (len(v.filter.Attributes) > 0 || v.filter.Degraded || v.filter.RetryAfter != nil) {
		searched := " Filters by attribute, retry time, and degraded search the latest 5,000 " + of.things + "."
		l.Summary += searched
		l.Empty.Text += searched
	}
	return l
}

func (w *pages) denialRow(v *denialsView, r *metrics.Refusal) views.Denial {
	words, _ := outcomeWords(r)
	d := views.Denial{
		ID: uuid.UUID(r.ID).String(), URL: w.denialURL(v, r), Time: views.NewStamp(r.At, w.Now()), Tenant: r.TenantSlug,
		Method: r.Method, Path: r.Path, Policy: r.Policy, Reason: words, RetryAfter: retryNumber(r), Degraded: r.Degraded,
	}
	if w.names.Slug(r.Tenant) != "" {
		d.TenantURL = v.span.Address("/tenants/"+w.names.Slug(r.Tenant), nil)
	}
	if requests.SeveralLimits(r, r.Policy) {
		d.Limit = r.Limit
	}
	d.Key.Parts, d.Key.Uncounted = w.shownKey(r)
	d.Key.Redacted = r.Redacted
	if len(d.Key.Parts) > denialParts {
		d.Key.MoreParts, d.Key.Parts = len(d.Key.Parts)-denialParts, d.Key.Parts[:denialParts]
	}
	return d
}

func (w *pages) denialURL(v *denialsView, r *metrics.Refusal) string {
	return v.base + "/" + uuid.UUID(r.ID).String()
}

func retryNumber(r *metrics.Refusal) views.Number {
	switch {
	case r.RetryAfterMS == enforcement.Never:
		return views.Number{Text: "never", Exact: "waiting does not help"}
	case r.RetryAfterMS == 0:
		return views.Number{Text: "–", Exact: "no wait"}
	}
	return requests.Millis(r.RetryAfterMS)
}

// countedBy returns the count_by of the policy that denied the request, from the current plan
// of the tenant. It returns false if the plan no longer has the policy.
func (w *pages) countedBy(r *metrics.Refusal) (countBy []string, known bool) {
	subject, ok := w.cfg.Snapshot().SubjectByNumber(r.Tenant)
	if !ok || subject.Plan == nil || r.Policy == "" {
		return nil, false
	}
	rule, ok := subject.Plan.Rule(r.Policy)
	if !ok {
		return nil, false
	}
	return rule.CountBy, true
}

// countedParts returns the key under which a denied request was counted by the policy that
// denied it. It returns false if no policy denied the request, or if the current plan no
// longer has that policy.
func (w *pages) countedParts(r *metrics.Refusal) (parts []views.KeyPart, counted bool) {
	countBy, known := w.countedBy(r)
	if !known {
		return nil, false
	}
	for _, name := range web.KeyAttributes(countBy) {
		at := slices.IndexFunc(r.Attributes, func(a enforcement.Attribute) bool { return a.Name == name })
		part := views.KeyPart{Name: name, Missing: at < 0}
		if at >= 0 {
			part.Value = r.Attributes[at].Value
		}
		if name == "ip" && slices.Contains(countBy, enforcement.IPNetwork) {
			part.Value = requests.Network(part.Value)
		}
		parts = append(parts, part)
	}
	return parts, true
}

// shownKey returns the key under which a denied request was counted. If the request was not
// counted under a key, shownKey returns all attributes of the request, and uncounted is true.
func (w *pages) shownKey(r *metrics.Refusal) (parts []views.KeyPart, uncounted bool) {
	parts, counted := w.countedParts(r)
	if counted {
		return parts, false
	}
	for _, a := range r.Attributes {
		parts = append(parts, views.KeyPart{Name: a.Name, Value: a.Value})
	}
	return parts, true
}

// keyFirst returns the attributes of a denied request, beginning with those in the policy's
// count_by.
func (w *pages) keyFirst(r *metrics.Refusal) []views.KeyPart {
	parts, _ := w.countedParts(r)
	names := len(parts)
	for i := range parts { // show the IP address, and not the network under which it was counted
		if at := slices.IndexFunc(r.Attributes, func(a enforcement.Attribute) bool { return a.Name == parts[i].Name }); at >= 0 {
			parts[i].Value = r.Attributes[at].Value
		}
	}
	for _, a := range r.Attributes {
		if !slices.ContainsFunc(parts[:names], func(p views.KeyPart) bool { return p.Name == a.Name }) {
			parts = append(parts, views.KeyPart{Name: a.Name, Value: a.Value})
		}
	}
	return parts
}
