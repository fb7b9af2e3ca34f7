package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web/views"
)

// tenantsInForm is how many tenants a field suggests.
const tenantsInForm = 200

func (w *Web) explainRoutes() []row {
	return []row{
		{http.MethodGet, "/explain", accounts.TenantsList, w.explainAny, bounded},
		{http.MethodGet, tenantPath + "/explain", accounts.TenantRead, w.explainTenant, bounded},
	}
}

// A question is a request as it was typed, and as a check.
type question struct {
	tenant, method, path, cost string
	names, values              []string // of the attributes, row by row
	asked                      bool     // more than the tenant was given
	more                       bool     // more rows are wanted, and no answer yet
	check                      enforcement.Check
	faults                     problem.Fields
}

// readQuestion reads the address of a page. What /v1/check would refuse is a
// fault at its field.
func readQuestion(params url.Values) question {
	q := question{more: params.Has("more")}
	one := func(name string) string {
		given := params[name]
		switch {
		case len(given) > 1:
			q.faults.Add("/"+name, "is given more than once")
		case len(given) == 1 && !utf8.ValidString(given[0]):
			q.faults.Add("/"+name, "must be UTF-8")
		}
		return strings.ToValidUTF8(params.Get(name), "\ufffd")
	}
	for _, name := range []string{"method", "path", "cost", "name", "value"} {
		q.asked = q.asked || params.Has(name)
	}
	q.tenant, q.method, q.path, q.cost = strings.TrimSpace(one("tenant")), one("method"), one("path"), strings.TrimSpace(one("cost"))
	fault := func(field string, err error) {
		if err != nil {
			q.faults.Add("/"+field, "%v", err)
		}
	}
	if q.method != "" {
		fault("method", q.check.SetMethod(q.method))
	}
	if q.path != "" {
		fault("path", q.check.SetPath(q.path))
	}
	q.check.Cost = 1
	if q.cost != "" {
		n, err := strconv.ParseInt(q.cost, 10, 64)
		if q.check.Cost = n; err != nil || n < 0 || n > enforcement.MaxCost || strconv.FormatInt(n, 10) != q.cost {
			q.faults.Add("/cost", "must be a whole number from 0 to %d", enforcement.MaxCost)
		}
	}
	q.readAttributes(params)
	return q
}

// readAttributes reads the attributes: the rows of the form, and those that a link
// names as k.user=u1. One without a value is as one that was not sent.
func (q *question) readAttributes(params url.Values) {
	rows := max(len(params["name"]), len(params["value"]))
	q.names = append(slices.Clone(params["name"]), make([]string, rows-len(params["name"]))...)
	q.values = append(slices.Clone(params["value"]), make([]string, rows-len(params["value"]))...)
	for _, field := range sortedNames(params) {
		if name, linked := strings.CutPrefix(field, keyPrefix); linked {
			for _, value := range params[field] {
				q.names, q.values, q.asked = append(q.names, name), append(q.values, value), true
			}
		}
	}
	for i := range q.names {
		name, value := q.names[i], q.values[i]
		q.names[i], q.values[i] = strings.ToValidUTF8(name, "\ufffd"), strings.ToValidUTF8(value, "\ufffd")
		field := "value-" + strconv.Itoa(i+1)
		switch {
		case value == "":
			continue
		case !utf8.ValidString(name) || !utf8.ValidString(value):
			q.faults.Add("/"+field, "must be UTF-8, and so must its name")
			continue
		case name != "" && slices.Contains(q.names[:i], name) && q.values[slices.Index(q.names, name)] != "":
			q.faults.Add("/"+field, "is the second of its name: each attribute has one value")
			continue
		}
		if err := q.check.AddAttribute(name, value); err != nil {
			q.faults.Add("/"+field, "%v", err)
		}
	}
}

// explainAny is GET /explain: for any tenant, which is asked for first.
func (w *Web) explainAny(c echo.Context) error {
	q := readQuestion(c.QueryParams())
	list, err := w.cfg.Tenants.Tenants(c.Request().Context(), tenants.Filter{Limit: tenantsInForm})
	if err != nil {
		return err
	}
	v := views.Explain{Action: "/explain", AnyTenant: true, Tenant: views.Input{
		Name: "tenant", Label: "Tenant", Type: "text", Autocomplete: "off", Value: q.tenant, List: "tenants", Hint: "Its slug.",
	}}
	for _, t := range list {
		v.Tenants = append(v.Tenants, views.Option{Value: t.Slug, Label: t.Name})
	}
	var subject *enforcement.Subject
	if q.tenant != "" {
		if subject, err = w.subject(q.tenant); problem.Is(err, problem.NotFound) {
			q.faults.Add("/tenant", "is none that this node knows")
		} else if err != nil {
			return err
		}
	} else if q.asked {
		q.faults.Add("/tenant", "is needed: whose request is it?")
	}
	p := w.page(c, "Explain")
	return w.explain(c, p, v, q, subject)
}

// explainTenant is GET /tenants/:tenant/explain.
func (w *Web) explainTenant(c echo.Context) error {
	t := tenantOf(c)
	q := readQuestion(c.QueryParams())
	q.tenant = t.Slug
	subject, err := w.subject(t.ID)
	if err != nil {
		return err
	}
	v := views.Explain{Action: inTenant(tenantPath, t.Slug) + "/explain", Tabs: w.tenantTabs(c, "/explain")}
	return w.explain(c, w.tenantPage(c, "Explain"), v, q, subject)
}

// subject is a tenant as this node serves it, by its id or slug.
func (w *Web) subject(ref string) (*enforcement.Subject, error) {
	s := w.cfg.Snapshot()
	if s == nil {
		return nil, problem.New(problem.Unavailable, "this node has no plans and tenants yet")
	}
	subject, ok := s.Subject(ref)
	if !ok {
		return nil, problem.New(problem.NotFound, "this node does not know the tenant yet")
	}
	return subject, nil
}

// explain shows the form, and the answer if something was asked.
func (w *Web) explain(c echo.Context, p views.Page, v views.Explain, q question, subject *enforcement.Subject) error {
	v.Method = views.Input{Name: "method", Label: "Method", Type: "text", Autocomplete: "off", Value: q.method, Optional: true, List: "methods"}
	v.Path = views.Input{Name: "path", Label: "Path", Type: "text", Autocomplete: "off", Value: q.path, Optional: true, Hint: "As the gateway sees it. Empty: the caller sends none."}
	v.Cost = views.Input{Name: "cost", Label: "Cost", Type: "text", Autocomplete: "off", Value: q.cost, Optional: true}
	if !q.asked {
		v.Method.Value, v.Cost.Value = "GET", "1"
	}
	v.Rows, v.Names, v.CanMore = q.rows(subject)
	status := http.StatusOK
	if err := q.faults.Err(); q.asked && !q.more && err != nil {
		at := places{inputs: []*views.Input{&v.Tenant, &v.Method, &v.Path, &v.Cost}}
		for i := range v.Rows {
			at.inputs = append(at.inputs, &v.Rows[i].Value)
		}
		list, code, err := at.tell(err)
		if err != nil {
			return err
		}
		v.Faults, status = list, code
	} else if q.tenant != "" && subject == nil && err != nil {
		v.Tenant.Error, status = "This node knows no tenant of this name.", http.StatusUnprocessableEntity
	}
	if status == http.StatusOK && q.asked && !q.more && subject != nil {
		var x enforcement.Explanation
		w.cfg.Decider.Explain(c.Request().Context(), subject, &q.check, &x)
		x.Decision.Check = &q.check
		answer := w.explained(c, subject, q, &x)
		v.Answer = &answer
	}
	return w.render(c, status, views.ExplainPage(p, v))
}

// rows are those that were sent, then the names that the plan asks for, and
// empty ones.
func (q *question) rows(s *enforcement.Subject) (rows []views.AttributeRow, suggested []string, more bool) {
	add := func(name, value string) {
		n := strconv.Itoa(len(rows) + 1)
		rows = append(rows, views.AttributeRow{
			Name:  views.Input{Name: "name-" + n, Label: "Name of attribute " + n, Value: name},
			Value: views.Input{Name: "value-" + n, Label: "Value of attribute " + n, Value: value},
		})
	}
	for i := range q.names {
		if q.names[i] != "" || q.values[i] != "" || len(q.faults) > 0 { // faults name rows by their place
			add(q.names[i], q.values[i])
		}
	}
	suggested = attributeNames(s)
	for _, name := range suggested {
		if len(rows) < enforcement.MaxAttributes && !slices.Contains(q.names, name) {
			add(name, "")
		}
	}
	empty := 1
	if q.more {
		empty = 4
	}
	for range empty {
		if len(rows) < enforcement.MaxAttributes {
			add("", "")
		}
	}
	return rows, suggested, len(rows) < enforcement.MaxAttributes
}

// attributeNames are those that a tenant's plan asks requests for, in its order.
func attributeNames(s *enforcement.Subject) []string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if s == nil || s.Plan == nil {
		return names
	}
	for _, r := range s.Plan.Rules {
		for _, name := range r.CountBy {
			add(strings.TrimSuffix(name, "/64"))
		}
		for _, name := range sortedNames(r.Attributes) {
			add(name)
		}
	}
	return names
}

func sortedNames[V any](m map[string]V) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// explained is an explanation as the page shows it.
func (w *Web) explained(c echo.Context, s *enforcement.Subject, q question, x *enforcement.Explanation) views.Explained {
	d := &x.Decision
	status, header := w.cfg.Answer(d)
	now := w.cfg.Now()
	if d.At != 0 {
		now = time.UnixMicro(d.At)
	}
	v := views.Explained{
		Allowed: d.Allowed, Status: status, Reason: string(d.Reason), Verdict: verdict(x, status, now), Degraded: d.Degraded,
		Answer: answerText(status, header), Route: d.Route, Plan: "none",
	}
	if s.Plan != nil {
		v.Plan = fmt.Sprintf("%s, version %d", s.Plan.Slug, s.Plan.Version)
	}
	if d.Check.Path != q.path {
		v.Path = d.Check.Path
	}
	if x.PassesAt != enforcement.Never && !d.Allowed {
		v.PassesAt = roundedUp(x.PassesAt).Format(time.RFC3339Nano)
	}
	e := explainer{w: w, c: c, x: x, tenant: s.Tenant, now: now, write: may(c, accounts.ExceptionsWrite)}
	v.List = e.list()
	for i := range x.Policies {
		v.Policies = append(v.Policies, e.policy(&x.Policies[i]))
	}
	if v.ListURL = e.page("/lists/new"); v.ListURL != "" && e.write && v.List == nil {
		for _, a := range d.Check.Attributes {
			allow := url.Values{"list": {"allow"}, "attribute": {a.Name}, "value": {a.Value}}
			deny := url.Values{"list": {"deny"}, "attribute": {a.Name}, "value": {a.Value}}
			v.Listings = append(v.Listings, views.Listing{Attribute: a.Name, Value: a.Value, AllowURL: v.ListURL + "?" + allow.Encode(), DenyURL: v.ListURL + "?" + deny.Encode()})
		}
	}
	body := q.body(s.Tenant)
	origin := w.origin(c)
	v.ExplainCurl, v.CheckCurl = curlTo(origin+"/v1/explain", body), curlTo(origin+"/v1/check", body)
	return v
}

// body is the question as the API takes it.
func (q *question) body(tenant string) string {
	asked := struct {
		Tenant     string            `json:"tenant"`
		Method     string            `json:"method,omitempty"`
		Path       string            `json:"path,omitempty"`
		Attributes map[string]string `json:"attributes,omitempty"`
		Cost       json.Number       `json:"cost,omitempty"`
	}{Tenant: tenant, Method: q.method, Path: q.path, Attributes: map[string]string{}}
	for i, name := range q.names {
		if q.values[i] != "" {
			asked.Attributes[name] = q.values[i]
		}
	}
	if q.check.Cost != 1 {
		asked.Cost = json.Number(strconv.FormatInt(q.check.Cost, 10))
	}
	return jsonText(asked)
}

// answerText is the status and the headers of a decision, to copy.
func answerText(status int, header http.Header) string {
	lines := []string{fmt.Sprintf("HTTP/1.1 %d %s", status, http.StatusText(status))}
	var names []string
	for name := range header {
		if name != "Cache-Control" && name != "Content-Type" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range header[name] {
			lines = append(lines, name+": "+value)
		}
	}
	return strings.Join(lines, "\n")
}

// roundedUp is an instant in microseconds, to the millisecond: then it has come.
func roundedUp(micros int64) time.Time { return time.UnixMilli((micros + 999) / 1000).UTC() }

// clockWords say an instant, rounded up to the second: with the day if that is
// another one.
func clockWords(micros int64, now time.Time) string {
	t := time.Unix((micros+999_999)/1_000_000, 0).UTC()
	if y, m, d := t.Date(); now.UTC().Year() == y && now.UTC().Month() == m && now.UTC().Day() == d {
		return t.Format("15:04:05 UTC")
	}
	return t.Format("2 January 2006, 15:04:05 UTC")
}

// verdict is the answer in a sentence.
func verdict(x *enforcement.Explanation, status int, now time.Time) string {
	d := &x.Decision
	if d.Allowed {
		return "Would pass: " + passes(d) + "."
	}
	text := fmt.Sprintf("Would be refused with %d: %s", status, refuses(d))
	end := "."
	if d.NumbersUntil != 0 {
		end = fmt.Sprintf(". An override or a block ends at %s.", clockWords(d.NumbersUntil, now))
	}
	if x.PassesAt == enforcement.Never || d.Reason == enforcement.ReasonLimiterUnavailable {
		return text + end
	}
	wait := time.Duration(x.PassesAt-now.UnixMicro()) * time.Microsecond
	if wait < time.Second {
		return text + fmt.Sprintf("; passes at %s (in %s)%s", clockWords(x.PassesAt, now), views.Duration(wait).Text, end)
	}
	return text + fmt.Sprintf("; passes at %s (in %s)%s", clockWords(x.PassesAt, now), waitWords(wait), end)
}

// waitWords say a wait with its seconds as long as they count.
func waitWords(d time.Duration) string {
	if d < 2*time.Minute {
		return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10) + " s"
	}
	return views.Duration(d).Text
}

// passes says why a request passes.
func passes(d *enforcement.Decision) string {
	switch d.Reason {
	case enforcement.ReasonAllowedByList:
		return "the allow list has " + d.List.Attribute + " " + d.List.Value + ", and no limit is charged"
	case enforcement.ReasonNoPolicy:
		if d.Subject.Plan == nil {
			return "the tenant has no plan"
		}
		return "no policy of plan " + d.Subject.Plan.Slug + " applies to it"
	}
	var tight *enforcement.LimitState
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Rule.Mode == enforcement.PolicyEnforce && (tight == nil || l.Remaining < tight.Remaining) {
			tight = l
		}
	}
	text := "no limit is enforced for it"
	if tight != nil {
		text = left(tight) + " after it"
	}
	if d.Degraded {
		text += "; the shared limiter is away, and the policies' failure modes answer"
	}
	return text
}

// left says what a limit has when the request is charged: "117 of 120 left in
// policy api".
func left(l *enforcement.LimitState) string {
	return fmt.Sprintf("%s of %s left in policy %s", views.Count(l.Remaining).Exact, views.Count(holds(l.Limit)).Exact, l.Limit.HeaderName)
}

// holds is the most that a limit can have left.
func holds(l *enforcement.RuleLimit) int64 {
	if l.Algorithm.Bucket() && l.Burst != 0 {
		return l.Burst
	}
	return l.Quota
}

// refuses says why a request is refused.
func refuses(d *enforcement.Decision) string {
	switch d.Reason {
	case enforcement.ReasonOverLimit, enforcement.ReasonCostExceedsQuota:
		return usedUp(d)
	case enforcement.ReasonBlocked:
		return "its key of policy " + d.Policy + " is blocked"
	case enforcement.ReasonDeniedByList:
		return "the deny list has " + d.List.Attribute + " " + d.List.Value
	case enforcement.ReasonNoPolicy:
		if d.Subject.Plan == nil {
			return "the tenant has no plan, and denies what no policy applies to"
		}
		return "no policy of plan " + d.Subject.Plan.Slug + " applies to it, and the tenant denies such requests"
	case enforcement.ReasonMissingAttribute:
		return "policy " + d.Policy + " counts by " + d.Missing + ", which was not sent"
	case enforcement.ReasonTenantSuspended:
		return "the tenant is suspended"
	case enforcement.ReasonLimiterUnavailable:
		return "the shared limiter cannot be reached, and a policy that applies refuses then"
	}
	return string(d.Reason)
}

// usedUp says which limit refuses longest, and how many others do.
func usedUp(d *enforcement.Decision) string {
	var worst *enforcement.LimitState
	others := -1
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Allowed || l.Rule.Mode != enforcement.PolicyEnforce {
			continue
		}
		others++
		if worst == nil || worst.RetryAfter != enforcement.Never && (l.RetryAfter == enforcement.Never || l.RetryAfter > worst.RetryAfter) {
			worst = l
		}
	}
	if worst == nil {
		return "a limit is used up" // not reached: a limit refuses
	}
	most, name, cost := holds(worst.Limit), worst.Limit.HeaderName, views.Count(worst.Cost).Exact
	var text string
	switch {
	case most == 0:
		text = "policy " + name + " lets nothing pass: its quota is 0"
	case worst.RetryAfter == enforcement.Never:
		text = fmt.Sprintf("policy %s never holds %s: %s at most", name, cost, views.Count(most).Exact)
	case worst.Limit.Algorithm.Bucket():
		text = fmt.Sprintf("policy %s has %s of %s left", name, views.Count(worst.Remaining).Exact, views.Count(most).Exact)
	default:
		text = fmt.Sprintf("policy %s has counted %s of %s", name, views.Count(most-worst.Remaining).Exact, views.Count(most).Exact)
	}
	if worst.Cost != 1 && worst.RetryAfter != enforcement.Never {
		text += ", and this takes " + cost
	}
	switch others {
	case 0:
		return text
	case 1:
		return text + ", and another limit refuses as well"
	}
	return fmt.Sprintf("%s, and %d other limits refuse as well", text, others)
}

// An explainer draws the parts of an explanation.
type explainer struct {
	w      *Web
	c      echo.Context
	x      *enforcement.Explanation
	tenant string // slug
	now    time.Time
	write  bool // the visitor may set exceptions
}

// page is the address of a page of the tenant, "" if there is none, or if it is
// not for the visitor.
func (e *explainer) page(below string) string {
	action, there := e.w.readable[tenantPath+below]
	if !there || !may(e.c, action) {
		return ""
	}
	return inTenant(tenantPath+below, e.tenant)
}

// list is the entry that answered; nil: none did.
func (e *explainer) list() *views.ExplainedList {
	d := &e.x.Decision
	if d.List == nil {
		return nil
	}
	v := &views.ExplainedList{Name: "Allow list", Attribute: d.List.Attribute, Value: d.List.Value, Reason: d.List.Reason, URL: e.page("/lists")}
	if d.Reason == enforcement.ReasonDeniedByList {
		v.Name = "Deny list"
	}
	v.Ends = views.Moment{Words: "none"}
	if d.List.Until != 0 {
		v.Ends = views.NewMoment(roundedUp(d.List.Until), e.now)
	}
	return v
}

// policy is one policy of the plan.
func (e *explainer) policy(p *enforcement.PolicyExplanation) views.ExplainedPolicy {
	r := p.Rule
	v := views.ExplainedPolicy{
		Slug: r.Policy, Applies: p.Applies, Because: sentence(p.Because(&e.x.Decision)), ReplacedBy: p.ReplacedBy,
		Method: "every method", Path: "every path", Mode: string(r.Mode),
	}
	switch p.Why {
	case enforcement.WhyApplies:
		v.Badge, v.Tone = "applies", "good"
		if r.Mode == enforcement.PolicyShadow {
			v.Badge, v.Tone = "applies in shadow", "violet"
		}
	case enforcement.WhyBlocked:
		v.Badge, v.Tone = "blocked", "bad"
	case enforcement.WhyDenied:
		v.Badge, v.Tone = "denies", "bad"
		if !p.Applies {
			v.Badge, v.Tone = "does not apply", ""
		}
	default:
		v.Badge = "does not apply"
	}
	if len(r.Methods) > 0 {
		v.Method = strings.Join(r.Methods, ", ")
	}
	if r.Path != "" && r.Path != "*" {
		v.Path = r.Path
	}
	for _, name := range sortedNames(r.Attributes) {
		v.Attributes = append(v.Attributes, views.KeyFact{Name: name, Value: r.Attributes[name]})
	}
	for _, part := range r.KeyOf(e.x.Decision.Check, nil) {
		v.Key = append(v.Key, views.KeyFact{Name: part.Name, Value: part.Value, Missing: part.Missing})
	}
	e.exceptions(p, &v)
	refusing := map[string]bool{}
	for i := range e.x.Decision.Limits {
		if l := &e.x.Decision.Limits[i]; l.Rule == r && !l.Allowed {
			refusing[l.Limit.Name] = true
		}
	}
	for _, now := range p.Limits {
		most := holds(now.Limit)
		l := views.ExplainedLimit{
			Name: now.Limit.Name, Aloud: plans.Describe(now.Limit.Limit), Used: max(0, most-now.Remaining), Most: most, Left: views.Count(now.Remaining),
			Holds: views.Count(most), Refuses: refusing[now.Limit.Name], Remaining: now.Remaining, ResetMillis: now.ResetAfter,
		}
		if l.Tone = "good"; l.Refuses || now.Remaining == 0 {
			l.Tone = "bad"
		} else if now.Remaining*4 < most {
			l.Tone = "warn"
		}
		if now.LeasedElsewhere > 0 {
			l.Leased = fmt.Sprintf("Leased: this node may deny up to %s units early, which other nodes hold; never more than the limit is allowed.",
				views.Count(now.LeasedElsewhere).Text)
		}
		if now.ResetAfter > 0 {
			l.Reset = "as new in " + waitWords(time.Duration(now.ResetAfter)*time.Millisecond)
		}
		v.Limits = append(v.Limits, l)
	}
	return v
}

// exceptions adds what is set for the key, and where it can be changed.
func (e *explainer) exceptions(p *enforcement.PolicyExplanation, v *views.ExplainedPolicy) {
	key := url.Values{}
	var attribute, value string
	for _, name := range p.Rule.CountBy {
		name = strings.TrimSuffix(name, "/64")
		for _, a := range e.x.Decision.Check.Attributes {
			if a.Name == name && a.Value != "" {
				key.Set(keyPrefix+name, a.Value)
				if attribute == "" {
					attribute, value = name, a.Value
				}
			}
		}
	}
	of := func(below string, also ...string) string {
		page := e.page(below)
		if page == "" {
			return ""
		}
		q := url.Values{"policy": {p.Rule.Policy}}
		for name, values := range key {
			q[name] = values
		}
		for i := 0; i+1 < len(also); i += 2 {
			q.Set(also[i], also[i+1])
		}
		return page + "?" + q.Encode()
	}
	if o := p.Override; o != nil {
		v.Override, v.OverrideURL = "in force", of("/overrides")
		v.OverrideEnds = views.NewMoment(roundedUp(o.Until), e.now)
	}
	if b := p.Block; b != nil {
		v.Block, v.BlockURL, v.BlockReason = "in force", e.page("/blocks"), b.Reason
		v.BlockEnds = views.NewMoment(roundedUp(b.Until), e.now)
	}
	if !p.Matches {
		return
	}
	link := func(text, address string) {
		if address != "" {
			v.Links = append(v.Links, views.Link{Text: text, URL: address})
		}
	}
	if page := e.page("/usage/:policy"); page != "" && len(p.Rule.Limits) > 0 {
		address := strings.TrimSuffix(page, ":policy") + url.PathEscape(p.Rule.Policy)
		if len(key) > 0 {
			address += "?" + key.Encode()
		}
		link("This key", address)
	}
	if !e.write {
		return
	}
	if len(p.Rule.Limits) > 0 {
		if attribute != "" {
			link("Override", of("/overrides/new", "attribute", attribute, "value", value))
		} else {
			link("Override", of("/overrides/new"))
		}
		link("Reset", of("/reset"))
	}
	if p.Block == nil {
		link("Block", of("/blocks/new"))
	}
}
