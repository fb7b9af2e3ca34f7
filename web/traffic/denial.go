package traffic

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// showDenial is one refusal. For a tenant's page it must be that tenant's: any
// other is not there.
func (w *pages) showDenial(c echo.Context) error {
	t := web.TenantOf(c)
	base := "/denials"
	if t.ID != "" {
		base = "/tenants/" + t.Slug + "/denials"
	}
	raw := c.Param("decision")
	id, err := uuid.Parse(raw)
	if err != nil {
		return w.Render(c, http.StatusNotFound, views.DenialGone(w.Page(c, "No such refusal"), raw, base))
	}
	r, err := w.cfg.Analytics.Refusal(c.Request().Context(), id, t.Number)
	if problem.Is(err, problem.NotFound) {
		return w.Render(c, http.StatusNotFound, views.DenialGone(w.Page(c, "No such refusal"), id.String(), base))
	}
	if err != nil {
		return err
	}
	title := denialSummary(&r)
	p := w.Page(c, title)
	p.Crumbs = []views.Link{{Text: "Denials", URL: base}, {Text: title}}
	d := w.denialPage(c, &r, base)
	if t.ID != "" {
		p = w.TenantPage(c, title, views.Link{Text: "Denials", URL: base})
		d.Tabs = w.TenantTabs(c, "/denials")
	}
	return w.Render(c, http.StatusOK, views.DenialDetail(p, d))
}

func (w *pages) denialPage(c echo.Context, r *metrics.Refusal, base string) views.DenialPage {
	words, status := reasonWords(r.Reason)
	d := views.DenialPage{
		ID: uuid.UUID(r.ID).String(), Reason: words, Status: status, Sentence: refusedBecause(r, status), Then: wouldPass(r),
		Time: views.NewMoment(r.At, w.Now()), Attributes: w.keyFirst(r), Redacted: r.Redacted, Curl: sameCheck(w.Origin(c), r),
		NoPolicies: "No policy of a plan was asked.",
	}
	slug := w.slugOf(r.Tenant)
	tenant := views.DenialFact{Name: "Tenant", Value: r.TenantSlug}
	if slug != "" {
		tenant.URL = "/tenants/" + slug
	}
	d.Facts = []views.DenialFact{
		tenant,
		{Name: "Method", Value: orNone(r.Method), Mono: true},
		{Name: "Path", Value: orNone(r.Path), Mono: true},
		{Name: "Route", Value: r.Route, Mono: true},
		{Name: "Cost", Value: strconv.FormatInt(r.Cost, 10)},
		{Name: "Time", Value: r.At.UTC().Format("2 January 2006, 15:04:05.000 UTC")},
	}
	if r.Plan != "" {
		d.Facts = append(d.Facts, views.DenialFact{Name: "Plan", Value: fmt.Sprintf("%s, version %d", r.Plan, r.PlanVersion)})
	}
	d.Facts = append(d.Facts, views.DenialFact{Name: "Node", Value: r.Node, Mono: true})
	if r.Degraded {
		d.Facts = append(d.Facts, views.DenialFact{Name: "Limiter", Value: "away: the policies' failure modes answered"})
	}
	for i := range r.Policies {
		d.Policies = append(d.Policies, policyVerdict(r, &r.Policies[i]))
	}
	// Those that refused stand first, then those that applied: what matters is
	// seen at once.
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

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// refusing is the limit that a refusal belongs to; nil when none refused.
func refusing(r *metrics.Refusal) *metrics.RefusalLimit {
	for i := range r.Limits {
		if l := &r.Limits[i]; l.Policy == r.Policy && l.Limit == r.Limit && !l.Allowed {
			return l
		}
	}
	return nil
}

// capacity is the most that a limit can hold at once.
func capacity(l *metrics.RefusalLimit) int64 {
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Quota
}

// perWindow reads a limit aloud: "5 per minute, bursts of 20".
func perWindow(l *metrics.RefusalLimit) string {
	text := views.Count(l.Quota).Exact + " per " + windowWords(time.Duration(l.WindowMS)*time.Millisecond)
	if l.Burst > 0 && l.Burst != l.Quota {
		text += ", bursts of " + views.Count(l.Burst).Exact
	}
	return text
}

// windowWords name the length of a window: "minute", "5 minutes".
func windowWords(d time.Duration) string {
	for _, u := range []struct {
		length time.Duration
		name   string
	}{{web.Day, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if d >= u.length && d%u.length == 0 {
			if n := int64(d / u.length); n > 1 {
				return strconv.FormatInt(n, 10) + " " + u.name + "s"
			}
			return u.name
		}
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
}

// refusedBecause says in a sentence why a request was refused.
func refusedBecause(r *metrics.Refusal, status string) string {
	begin := "Refused with " + status + " because "
	switch r.Reason {
	case enforcement.ReasonOverLimit:
		if l := refusing(r); l != nil {
			return begin + overLimit(l)
		}
		return begin + "the policy " + r.Policy + " had nothing left."
	case enforcement.ReasonCostExceedsQuota:
		if l := refusing(r); l != nil {
			if l.Quota == 0 {
				return begin + "the policy " + l.Policy + " has a quota of 0."
			}
			return fmt.Sprintf("%sit costs %s, and the policy %s can never hold more than %s.", begin,
				views.Count(l.Cost).Exact, l.Policy, views.Count(capacity(l)).Exact)
		}
		return begin + "it costs more than the policy " + r.Policy + " can ever hold."
	case enforcement.ReasonBlocked:
		return begin + "its key is blocked in the policy " + r.Policy + "."
	case enforcement.ReasonDeniedByList:
		return begin + "one of its attributes is on the deny list."
	case enforcement.ReasonMissingAttribute:
		for i := range r.Policies {
			if p := &r.Policies[i]; p.Why == enforcement.WhyDenied {
				return begin + "the policy " + p.Policy + " counts by the attribute " + p.Attribute + ", which was not sent."
			}
		}
		return begin + "an attribute that a policy counts by was not sent."
	case enforcement.ReasonNoPolicy:
		return begin + "no policy of the plan matches it, and the tenant refuses such requests."
	case enforcement.ReasonTenantSuspended:
		return begin + "the tenant is suspended."
	case enforcement.ReasonBatchRefused:
		return begin + "another item of the same batch was refused."
	case enforcement.ReasonLimiterUnavailable:
		return begin + "the limiter was away, and the policy refuses while it is."
	}
	return begin + string(r.Reason) + "."
}

func overLimit(l *metrics.RefusalLimit) string {
	used := capacity(l) - l.Remaining
	text := fmt.Sprintf("the policy %s counted %s of %s in a window of %s", l.Policy, views.Count(used).Exact,
		views.Count(capacity(l)).Exact, windowLong(l))
	if l.Burst > 0 {
		text = fmt.Sprintf("the policy %s had %s of %s left, which fill up at %s per %s", l.Policy, views.Count(l.Remaining).Exact,
			views.Count(capacity(l)).Exact, views.Count(l.Quota).Exact, windowWords(time.Duration(l.WindowMS)*time.Millisecond))
	}
	if l.Cost > 1 {
		text += ", and this request costs " + views.Count(l.Cost).Exact
	}
	return text + "."
}

func windowLong(l *metrics.RefusalLimit) string {
	words := windowWords(time.Duration(l.WindowMS) * time.Millisecond)
	if words[0] < '0' || words[0] > '9' {
		return "1 " + words
	}
	return words
}

// wouldPass says when the same request would have passed.
func wouldPass(r *metrics.Refusal) string {
	switch {
	case r.RetryAfterMS == enforcement.Never:
		return "Waiting does not help: it would be refused again."
	case r.RetryAfterMS > 0:
		return "It would have passed after " + millis(r.RetryAfterMS).Text + ", if nothing else had come."
	}
	return ""
}

// policyVerdict is what one policy had to say, in the words of an explanation.
func policyVerdict(r *metrics.Refusal, p *metrics.RefusalPolicy) views.DenialPolicy {
	out := views.DenialPolicy{Slug: p.Policy, Why: keptBecause(r, p), Outcome: views.ReasonWords{Text: "did not apply"}}
	if p.Applies {
		out.Outcome = views.ReasonWords{Text: "would pass", Tone: "good"}
	}
	n := 0
	for i := range r.Limits {
		if r.Limits[i].Policy == p.Policy {
			n++
		}
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		if l.Policy != p.Policy {
			continue
		}
		held := limitHeld(l)
		if n > 1 {
			held.Name = l.Limit
		}
		if !l.Allowed {
			out.Outcome = views.ReasonWords{Text: "refused", Tone: "bad"}
			if l.Mode == enforcement.PolicyShadow {
				out.Outcome = views.ReasonWords{Text: "would refuse", Tone: "warn"}
			}
		}
		out.Limits = append(out.Limits, held)
	}
	switch p.Why {
	case enforcement.WhyBlocked:
		out.Outcome = views.ReasonWords{Text: "blocked", Tone: "violet"}
	case enforcement.WhyDenied:
		out.Outcome = views.ReasonWords{Text: "refused", Tone: "bad"}
	}
	return out
}

func limitHeld(l *metrics.RefusalLimit) views.DenialLimit {
	used := capacity(l) - l.Remaining
	out := views.DenialLimit{
		Numbers: perWindow(l), Used: used, Most: max(1, capacity(l)), Tone: "good",
		State: views.Count(used).Exact + " of " + views.Count(capacity(l)).Exact + " used",
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
		out.Tone, out.Then = "bad", "Passes after "+millis(l.RetryAfterMS).Text+"; as new after "+millis(l.ResetAfterMS).Text+"."
	case l.ResetAfterMS > 0:
		out.Then = "As new after " + millis(l.ResetAfterMS).Text + "."
	}
	if !l.Allowed && l.Mode == enforcement.PolicyShadow {
		out.Tone = "warn"
	}
	return out
}

// keptBecause words why a policy applied or not, like PolicyExplanation.Because:
// what the policy asked for then is not kept.
func keptBecause(r *metrics.Refusal, p *metrics.RefusalPolicy) string {
	switch p.Why {
	case enforcement.WhyOff:
		return "The policy was off."
	case enforcement.WhyMethod:
		return "The policy is for other methods than " + orNone(r.Method) + "."
	case enforcement.WhyPath:
		return "The policy is for another path."
	case enforcement.WhyAttribute:
		return "The policy is for requests with one value of the attribute " + p.Attribute + ", and this one had another or none."
	case enforcement.WhySkipped:
		return "The policy counts by the attribute " + p.Attribute + ", which was not sent, and skips such requests."
	case enforcement.WhyDenied:
		return "The policy counts by the attribute " + p.Attribute + ", which was not sent, and denies such requests."
	case enforcement.WhyReplaced:
		return "The policy " + p.ReplacedBy + " applied, and replaces this one."
	case enforcement.WhyListed:
		if r.Reason == enforcement.ReasonTenantSuspended {
			return "The tenant's status answered before any policy."
		}
		return "The deny list answered before any policy."
	case enforcement.WhyBlocked:
		return "The policy applied, and its key was blocked."
	}
	text := "The policy applied"
	if p.Mode == enforcement.PolicyShadow {
		text += ", in shadow: it counts what it would refuse, and refuses nothing"
	}
	if p.Override != "" {
		text += ", with the numbers of an override"
	}
	return text + "."
}

// sameCheck is the check as a command to paste. Values that are not kept are
// left out.
func sameCheck(origin string, r *metrics.Refusal) string {
	body := `{"tenant": ` + web.JSONText(r.TenantSlug)
	if r.Method != "" {
		body += `, "method": ` + web.JSONText(r.Method)
	}
	if r.Path != "" {
		body += `, "path": ` + web.JSONText(r.Path)
	}
	if len(r.Attributes) > 0 && !r.Redacted {
		values := make(map[string]string, len(r.Attributes))
		for _, a := range r.Attributes {
			values[a.Name] = a.Value
		}
		body += `, "attributes": ` + web.JSONText(values)
	}
	if r.Cost != 1 {
		body += `, "cost": ` + strconv.FormatInt(r.Cost, 10)
	}
	return web.Curl(origin+"/v1/check", body+"}")
}

// denialActions are what can be done about a refusal, as far as the visitor may
// and the pages are there.
func (w *pages) denialActions(c echo.Context, r *metrics.Refusal, slug string) []views.DenialAction {
	var list []views.DenialAction
	base := "/tenants/" + slug
	offer := func(path string, q url.Values, action views.DenialAction) {
		if w.CanOpen(c, web.TenantPath+path) {
			if action.URL = base + path; len(q) > 0 {
				action.URL += "?" + q.Encode()
			}
			list = append(list, action)
		}
	}
	asked := url.Values{"method": {r.Method}, "path": {r.Path}, "cost": {strconv.FormatInt(r.Cost, 10)}}
	for _, a := range r.Attributes {
		if !r.Redacted {
			asked.Add("name", a.Name)
			asked.Add("value", a.Value)
		}
	}
	offer("/explain", asked, views.DenialAction{
		Text: "Explain it now", Hint: "What the same request would be answered at this moment",
		Icon: "search-code",
	})
	names, known := w.countedBy(r)
	if r.Redacted || !known {
		return list
	}
	key, first := url.Values{}, ""
	for _, part := range w.keyFirst(r) {
		for _, name := range names {
			if part.Name == name && !part.Missing {
				key.Set(keyPrefix+name, part.Value)
				if first == "" {
					first = name
				}
			}
		}
	}
	page := base + "/usage/" + url.PathEscape(r.Policy)
	if w.CanOpen(c, web.TenantPath+"/usage/:policy") {
		list = append(list, views.DenialAction{
			Text: "See the key", Hint: "What it used and has left in " + r.Policy, URL: joined(page, key),
			Icon: "chart-line",
		})
	}
	if !web.May(c, accounts.ExceptionsWrite) || web.TenantOf(c).ID != "" && !web.MayInTenant(c, accounts.ExceptionsWrite) {
		return list
	}
	of := with(key, "policy", r.Policy)
	if first != "" {
		of.Set("attribute", first)
		of.Set("value", key.Get(keyPrefix+first))
	}
	offer("/overrides/new", of, views.DenialAction{
		Text: "Give it other numbers", Hint: "An override of " + r.Policy + ", for a while",
		Icon: "sliders-horizontal",
	})
	offer("/reset", of, views.DenialAction{Text: "Reset the key", Hint: "Its counters are as if it had never been used", Icon: "rotate-ccw"})
	offer("/blocks/new", of, views.DenialAction{Text: "Block the key", Hint: "Refuse all of it until an instant", Icon: "ban"})
	if first != "" {
		allow := url.Values{"list": {"allow"}, "attribute": {first}, "value": {key.Get(keyPrefix + first)}}
		offer("/lists/new", allow, views.DenialAction{
			Text: "Put it on the allow list",
			Hint: "No limit holds for " + first + " " + key.Get(keyPrefix+first), Icon: "list-checks",
		})
	}
	return list
}
