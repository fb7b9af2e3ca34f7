package decisions

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/requests"
	"github.com/headgate/headgate/web/views"
)

// showDenial shows one denial. On a page of a tenant, a denial of another tenant gets the status
// 404.
func (w *pages) showDenial(c echo.Context) error {
	t := web.TenantOf(c)
	base := "/denials"
	if t.ID != "" {
		base = "/tenants/" + t.Slug + "/denials"
	}
	raw := c.Param("decision")
	id, err := uuid.Parse(raw)
	if err != nil {
		return w.Render(c, http.StatusNotFound, views.DenialGone(w.Page(c, "No such decision"), raw, base))
	}
	r, err := w.cfg.Analytics.Refusal(c.Request().Context(), id, t.Number)
	if problem.Is(err, problem.NotFound) {
		return w.Render(c, http.StatusNotFound, views.DenialGone(w.Page(c, "No such decision"), id.String(), base))
	}
	if err != nil {
		return err
	}
	words, status := outcomeWords(&r)
	title := status + " " + words.Text
	p := w.Page(c, title)
	p.Crumbs = []views.Link{{Text: "Denials", URL: base}, {Text: title}}
	d := w.denialPage(c, &r)
	if t.ID != "" {
		p = w.TenantPage(c, title, views.Link{Text: "Denials", URL: base})
		d.Tabs = w.TenantTabs(c, "/denials")
	}
	return w.Render(c, http.StatusOK, views.DenialDetail(p, d))
}

func (w *pages) denialPage(c echo.Context, r *metrics.Refusal) views.DenialPage {
	words, status := outcomeWords(r)
	d := views.DenialPage{
		Notice: web.Notice(c),
		ID:     uuid.UUID(r.ID).String(), Reason: words, Status: status,
		Sentence: "Denied with " + status + ": " + requests.DenialSentence(r) + ".",
		Time:     views.NewMoment(r.At, w.Now()), Attributes: w.keyFirst(r), Redacted: r.Redacted, Curl: sameCheck(w.Origin(c), r),
		NoPolicies: "The decision was made before any policy.",
	}
	if r.Allowed {
		d.Sentence = "Allowed: " + allowedSentence(r) + "."
	}
	switch {
	case r.RetryAfterMS == enforcement.Never:
		d.Then = "Waiting does not help."
	case r.RetryAfterMS > 0:
		d.Then = "The same request passes after " + requests.Millis(r.RetryAfterMS).Text + " without other requests."
	}
	slug := w.names.Slug(r.Tenant)
	tenant := views.DenialFact{Name: "Tenant", Value: r.TenantSlug}
	if slug != "" {
		tenant.URL = "/tenants/" + slug
	}
	d.Facts = []views.DenialFact{
		tenant,
		{Name: "Method", Value: cmp.Or(r.Method, "none"), Mono: true},
		{Name: "Path", Value: cmp.Or(r.Path, "none"), Mono: true},
		{Name: "Route", Value: r.Route, Mono: true},
		{Name: "Cost", Value: strconv.FormatInt(r.Cost, 10)},
		{Name: "Time", Value: views.InZone(c.Request().Context(), r.At, "2 January 2006, 15:04:05.000")},
	}
	if r.Plan != "" {
		d.Facts = append(d.Facts, views.DenialFact{Name: "Plan", Value: fmt.Sprintf("%s, version %d", r.Plan, r.PlanVersion)})
	}
	d.Facts = append(d.Facts, views.DenialFact{Name: "Node", Value: r.Node, Mono: true})
	if r.Degraded {
		d.Facts = append(d.Facts, views.DenialFact{Name: "Limiter", Value: "unavailable: failure modes decided"})
	}
	for i := range r.Policies {
		d.Policies = append(d.Policies, policyOutcome(r, &r.Policies[i]))
	}
	// Policies that denied the request come first, and after them policies that only applied to it.
	slices.SortStableFunc(d.Policies, func(a, b views.DenialPolicy) int { return cmp.Compare(weight(&a), weight(&b)) })
	if slug != "" {
		d.Actions = w.denialActions(c, r, slug)
	}
	return d
}

func weight(p *views.DenialPolicy) int {
	switch {
	case p.Outcome.Tone == "bad" || p.Outcome.Tone == "violet":
		return 0
	case p.Outcome.Tone != "":
		return 1
	}
	return 2
}

// policyOutcome returns what one policy decided about a denied request, and the reason.
func policyOutcome(r *metrics.Refusal, p *metrics.RefusalPolicy) views.DenialPolicy {
	out := views.DenialPolicy{Slug: p.Policy, Why: web.Sentence(storedBecause(r, p)), Outcome: views.ReasonWords{Text: "did not apply"}}
	switch {
	case p.Applies && r.Allowed:
		out.Outcome = views.ReasonWords{Text: "passed", Tone: "good"}
	case p.Applies:
		out.Outcome = views.ReasonWords{Text: "would pass", Tone: "good"}
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		if l.Policy != p.Policy {
			continue
		}
		state := limitState(l)
		if requests.SeveralLimits(r, p.Policy) {
			state.Name = l.Limit
		}
		if !l.Allowed {
			out.Outcome = exceeded(l.Mode, r.Allowed)
		}
		out.Limits = append(out.Limits, state)
	}
	switch p.Why {
	case enforcement.WhyBlocked:
		out.Outcome = views.ReasonWords{Text: "blocked", Tone: "violet"}
	case enforcement.WhyDenied:
		out.Outcome = views.ReasonWords{Text: "denied", Tone: "bad"}
	}
	return out
}

// softEffect says, for each mode, what a policy in this mode did with a request over its limits.
var softEffect = map[enforcement.PolicyMode]string{
	enforcement.PolicyDegrade: "got the cheap answer", enforcement.PolicyDelay: "had to wait",
}

// exceeded returns the outcome of a policy whose limit a request exceeded. allowed says that the
// request was allowed.
func exceeded(mode enforcement.PolicyMode, allowed bool) views.ReasonWords {
	switch {
	case mode.Denies():
		return views.ReasonWords{Text: "denied", Tone: "bad"}
	case !mode.Soft():
		return views.ReasonWords{Text: "would deny", Tone: "warn"}
	case !allowed:
		return views.ReasonWords{Text: "over its limits", Tone: "warn"}
	case mode == enforcement.PolicyDegrade:
		return views.ReasonWords{Text: "cheap answer", Tone: "warn"}
	}
	return views.ReasonWords{Text: "delayed", Tone: "warn"}
}

// allowedSentence says why a request was allowed.
func allowedSentence(r *metrics.Refusal) string {
	switch r.Reason {
	case enforcement.ReasonAllowedByList:
		return "an attribute had a value that was on the tenant's allow list, and no limit was charged"
	case enforcement.ReasonNoPolicy:
		return "no policy applied"
	}
	text := "no limit was enforced for it"
	for i := range r.Limits {
		if l := &r.Limits[i]; l.Policy == r.Policy && l.Limit == r.Limit {
			limit := requests.LimitOf(l)
			text = views.Count(l.Remaining).Exact + " of " + views.Count(limit.Capacity()).Exact + " left in policy " +
				l.Policy + " after it"
		}
	}
	for _, mode := range []enforcement.PolicyMode{enforcement.PolicyDegrade, enforcement.PolicyDelay} {
		over := func(l metrics.RefusalLimit) bool { return !l.Allowed && l.Mode == mode }
		if i := slices.IndexFunc(r.Limits, over); i >= 0 {
			text += "; over the limit of policy " + r.Limits[i].Policy + ", so it " + softEffect[mode]
		}
	}
	if r.Degraded {
		text += "; the shared limiter was unavailable, and failure modes decided"
	}
	return text
}

func limitState(l *metrics.RefusalLimit) views.DenialLimit {
	limit := requests.LimitOf(l)
	most := limit.Capacity()
	used := most - l.Remaining
	out := views.DenialLimit{
		Numbers: plans.Describe(limit), Used: used, Most: max(1, most), Tone: "good",
		State: views.Count(used).Exact + " of " + views.Count(most).Exact + " used",
	}
	if l.RolledOver > 0 {
		out.State += ", " + views.Count(l.RolledOver).Exact + " of them rolled over"
	}
	if l.Cost != 1 {
		out.State += ", this request costs " + views.Count(l.Cost).Exact
	}
	if l.Override != "" {
		out.Numbers += ", by an override"
	}
	switch {
	case !l.Allowed && l.RetryAfterMS == enforcement.Never:
		out.Tone, out.Then = "bad", "Waiting does not help."
	case !l.Allowed:
		out.Tone, out.Then = "bad", "Passes after "+requests.Millis(l.RetryAfterMS).Text+
			". Resets after "+requests.Millis(l.ResetAfterMS).Text+"."
	case l.ResetAfterMS > 0:
		out.Then = "Resets after " + requests.Millis(l.ResetAfterMS).Text + "."
	}
	if !l.Allowed && !l.Mode.Denies() {
		out.Tone = "warn"
	}
	return out
}

// storedBecause says why a policy applied to a denied request, or why it did not. It works like
// PolicyExplanation.Because, except that a stored denial does not have the methods, paths and
// attributes that the policy matched at that time.
func storedBecause(r *metrics.Refusal, p *metrics.RefusalPolicy) string {
	switch p.Why {
	case enforcement.WhyMethod:
		return "the policy was for other methods"
	case enforcement.WhyPath:
		return "the policy was for another path"
	case enforcement.WhyBlocked:
		return "the policy applied, and its key was blocked"
	}
	rule := &enforcement.Rule{RuleSpec: enforcement.RuleSpec{Mode: p.Mode}}
	x := enforcement.PolicyExplanation{Rule: rule, Why: p.Why, Attribute: p.Attribute, ReplacedBy: p.ReplacedBy}
	text := x.Because(&enforcement.Decision{Reason: r.Reason})
	if p.Override != "" && p.Why == enforcement.WhyApplies {
		text += ", with the numbers of an override"
	}
	return text
}

// sameCheck returns a command that sends the check of a denial again. The command leaves out
// values that Headgate did not store.
func sameCheck(origin string, r *metrics.Refusal) string {
	body := requests.Check{Tenant: r.TenantSlug, Method: r.Method, Path: r.Path, Cost: requests.Cost(r.Cost), Attributes: map[string]string{}}
	for _, a := range r.Attributes {
		if !r.Redacted {
			body.Attributes[a.Name] = a.Value
		}
	}
	return body.Command(origin)
}

// denialActions returns links to pages on which a visitor can act on a denial, for example raise
// a limit. It leaves out pages that the visitor may not open.
func (w *pages) denialActions(c echo.Context, r *metrics.Refusal, slug string) []views.DenialAction {
	var list []views.DenialAction
	base := "/tenants/" + slug
	offer := func(path, address string, action views.DenialAction) {
		if action.URL = address; address != "" && w.CanOpen(c, web.TenantPath+path) {
			list = append(list, action)
		}
	}
	request := url.Values{"method": {r.Method}, "path": {r.Path}, "cost": {strconv.FormatInt(r.Cost, 10)}}
	for _, a := range r.Attributes {
		if !r.Redacted {
			request.Add("name", a.Name)
			request.Add("value", a.Value)
		}
	}
	offer("/explain", base+"/explain?"+request.Encode(), views.DenialAction{
		Text: "Explain it now", Hint: "What the same request gets now", Icon: "search-code",
	})
	countBy, known := w.countedBy(r)
	if r.Redacted || !known {
		return list
	}
	key := map[string]string{}
	for _, a := range r.Attributes {
		if slices.Contains(web.KeyAttributes(countBy), a.Name) {
			key[a.Name] = a.Value
		}
	}
	page := web.AppendQuery(base+"/usage/"+url.PathEscape(r.Policy), web.KeyQuery(key))
	offer("/usage/:policy", page, views.DenialAction{
		Text: "Show the key", Hint: "Usage and remaining quota in " + r.Policy, Icon: "chart-line",
	})
	offer("/reservations", base+"/reservations", views.DenialAction{
		Text: "Open reservations", Hint: "What is charged ahead, or held, until it is settled", Icon: "clock",
	})
	if !web.May(c, accounts.ExceptionsWrite) || web.TenantOf(c).ID != "" && !web.MayInTenant(c, accounts.ExceptionsWrite) {
		return list
	}
	links := requests.LinksOf(slug, r.Policy, countBy, key, web.Here(c))
	if r.Reason == enforcement.ReasonOverLimit {
		double := url.Values{"factor": {"2"}, "life": {"1h"}, "reason": {"Doubled for an hour after the denial " + uuid.UUID(r.ID).String()}}
		offer("/overrides/new", web.AppendQuery(links.Override, double), views.DenialAction{
			Text: "Double the limits for an hour", Hint: "Twice the numbers of " + r.Policy + ", then as now", Icon: "arrow-up",
		})
	}
	offer("/overrides/new", links.Override, views.DenialAction{
		Text: "Override the limits", Hint: "Other numbers of " + r.Policy + " for some time", Icon: "sliders-horizontal",
	})
	if slices.ContainsFunc(r.Limits, func(l metrics.RefusalLimit) bool {
		return l.Policy == r.Policy && l.Limit == r.Limit && l.Algorithm == enforcement.FixedWindow.String()
	}) {
		offer("/grants/new", links.Grant, views.DenialAction{
			Text: "Top up", Hint: "Units beyond the quota of " + r.Policy + ", once", Icon: "plus",
		})
	}
	offer("/reset", links.Reset, views.DenialAction{Text: "Reset the key", Hint: "Its counters start at zero", Icon: "rotate-ccw"})
	offer("/blocks/new", links.Block, views.DenialAction{Text: "Block the key", Hint: "Deny all of its requests for some time", Icon: "ban"})
	offer("/lists/new", links.Allow, views.DenialAction{
		Text: "Add to the allow list", Hint: "No limit applies to " + links.Attribute + " " + links.Value, Icon: "list-checks",
	})
	return list
}
