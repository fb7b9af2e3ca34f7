package decisions

import (
	"fmt"
	"maps"
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
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/requests"
	"github.com/headgate/headgate/web/views"
)

// tenantsInForm is the maximum number of tenants that the form suggests.
const tenantsInForm = 200

// A question is the request in the form of the page Explain. It has the text that the visitor
// entered, and the same request as a check.
type question struct {
	tenant, method, path, cost string
	names, values              []string // names and values of the attributes, one for each row of the form
	asked                      bool     // the URL has other parameters than the tenant
	more                       bool     // the visitor asked for more rows in the form, so the page does not explain the request yet
	check                      enforcement.Check
	faults                     problem.Fields
}

// readQuestion reads the request from the query parameters of the URL. It adds an error message
// to each field whose value /v1/check would reject.
func readQuestion(params url.Values) question {
	q := question{more: params.Has("more")}
	one := func(name string) string {
		given := params[name]
		switch {
		case len(given) > 1:
			q.faults.Add("/"+name, "must not be repeated")
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
	q.check.Cost, q.check.DefaultCost = 1, q.cost == ""
	if q.cost != "" {
		n, err := strconv.ParseInt(q.cost, 10, 64)
		if q.check.Cost = n; err != nil || n < 0 || n > enforcement.MaxCost || strconv.FormatInt(n, 10) != q.cost {
			q.faults.Add("/cost", "must be a whole number from 0 to %d", enforcement.MaxCost)
		}
	}
	q.readAttributes(params)
	return q
}

// readAttributes reads the attributes of the request from the query parameters. The rows of the
// form send a name and a value each. Links have the form k.user=u1. readAttributes skips
// attributes without a value.
func (q *question) readAttributes(params url.Values) {
	rows := max(len(params["name"]), len(params["value"]))
	q.names = append(slices.Clone(params["name"]), make([]string, rows-len(params["name"]))...)
	q.values = append(slices.Clone(params["value"]), make([]string, rows-len(params["value"]))...)
	for _, field := range slices.Sorted(maps.Keys(params)) {
		if name, linked := strings.CutPrefix(field, web.KeyFieldPrefix); linked {
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
			q.faults.Add("/"+field, "has a name that is used twice: each attribute has one value")
			continue
		}
		if err := q.check.AddAttribute(name, value); err != nil {
			q.faults.Add("/"+field, "%v", err)
		}
	}
}

// addCostFault adds an error message if the value of an attribute is the cost for a policy, but
// is not a number that can be a cost.
func (q *question) addCostFault(s *enforcement.Subject) {
	if s == nil {
		return
	}
	if name, message := s.CostFault(&q.check); name != "" {
		q.faults.Add("/value-"+strconv.Itoa(slices.Index(q.names, name)+1), "%s", message)
	}
}

// explainAny is GET /explain. On this page, the visitor selects the tenant in the form.
func (w *pages) explainAny(c echo.Context) error {
	q := readQuestion(c.QueryParams())
	list, err := w.cfg.Tenants.Tenants(c.Request().Context(), tenants.Filter{Limit: tenantsInForm})
	if err != nil {
		return err
	}
	v := views.Explain{Action: "/explain", AnyTenant: true, Tenant: views.TextInput("tenant", "Tenant", q.tenant, "The slug.")}
	v.Tenant.List = "tenants"
	for _, t := range list {
		v.Tenants = append(v.Tenants, views.Option{Value: t.Slug, Label: t.Name})
	}
	var subject *enforcement.Subject
	if q.tenant != "" {
		if subject, err = w.subject(q.tenant); problem.Is(err, problem.NotFound) {
			q.faults.Add("/tenant", "is unknown to this node")
		} else if err != nil {
			return err
		}
	} else if q.asked {
		q.faults.Add("/tenant", "is required")
	}
	p := w.Page(c, "Explain")
	return w.explain(c, p, v, q, subject)
}

// explainTenant is GET /tenants/:tenant/explain.
func (w *pages) explainTenant(c echo.Context) error {
	t := web.TenantOf(c)
	q := readQuestion(c.QueryParams())
	q.tenant = t.Slug
	subject, err := w.subject(t.ID)
	if err != nil {
		return err
	}
	v := views.Explain{Action: web.RouteForTenant(web.TenantPath, t.Slug) + "/explain", Tabs: w.TenantTabs(c, "/explain")}
	return w.explain(c, w.TenantPage(c, "Explain"), v, q, subject)
}

// subject returns a tenant, with its compiled plan, from the snapshot of this node. ref is the
// ID or the slug of the tenant.
func (w *pages) subject(ref string) (*enforcement.Subject, error) {
	s := w.cfg.Snapshot()
	if s == nil {
		return nil, problem.New(problem.Unavailable, "this node has not loaded its plans and tenants yet")
	}
	subject, ok := s.Subject(ref)
	if !ok {
		return nil, problem.New(problem.NotFound, "this node does not know the tenant yet")
	}
	return subject, nil
}

// explain renders the form. If the URL contains a request, it also renders the explanation.
func (w *pages) explain(c echo.Context, p views.Page, v views.Explain, q question, subject *enforcement.Subject) error {
	v.Method = views.OptionalInput("method", "Method", q.method, "")
	v.Cost = views.OptionalInput("cost", "Cost", q.cost, "Empty: the cost of each policy, mostly 1.")
	v.Path = views.OptionalInput("path", "Path", q.path, "As the gateway receives it. Empty: the request has no path.")
	v.Method.List = "methods"
	if !q.asked {
		v.Method.Value = "GET"
	}
	q.addCostFault(subject)
	v.Rows, v.Names, v.CanMore = q.rows(subject)
	status := http.StatusOK
	if err := q.faults.Err(); q.asked && !q.more && err != nil {
		err = web.Retry(err, &v, &v.Faults, nil, func(code int) error { status = code; return nil })
		if err != nil {
			return err
		}
	} else if q.tenant != "" && subject == nil && err != nil {
		v.Tenant.Error, status = "This node knows no tenant with this name.", http.StatusUnprocessableEntity
	}
	if status == http.StatusOK && q.asked && !q.more && subject != nil {
		var x enforcement.Explanation
		w.cfg.Decider.Explain(c.Request().Context(), subject, &q.check, &x)
		x.Decision.Check = &q.check
		answer := w.explained(c, subject, q, &x)
		v.Answer = &answer
	}
	return w.Render(c, status, views.ExplainPage(p, v))
}

// rows returns the rows of the form for attributes: first those for the attributes in the URL,
// then those for other attributes that the plan uses, then empty rows.
func (q *question) rows(s *enforcement.Subject) (rows []views.AttributeRow, suggested []string, more bool) {
	add := func(name, value string) {
		n := strconv.Itoa(len(rows) + 1)
		rows = append(rows, views.AttributeRow{
			Name:  views.Input{Name: "name-" + n, Label: "Name of attribute " + n, Value: name},
			Value: views.Input{Name: "value-" + n, Label: "Value of attribute " + n, Value: value},
		})
	}
	for i := range q.names {
		if q.names[i] != "" || q.values[i] != "" || len(q.faults) > 0 { // with errors, keep empty rows: a message names a row by its position
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

// attributeNames returns the attributes that the plan of a tenant uses, in the order in which
// the plan uses them.
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
			add(enforcement.CountedAttribute(name))
		}
		for _, name := range slices.Sorted(maps.Keys(r.Attributes)) {
			add(name)
		}
		if r.CostFrom != "" {
			add(r.CostFrom)
		}
	}
	return names
}

// explained returns the view of an explanation.
func (w *pages) explained(c echo.Context, s *enforcement.Subject, q question, x *enforcement.Explanation) views.Explained {
	d := &x.Decision
	status, header := w.cfg.Answer(d)
	now, zone := w.Now(), views.Zone(c.Request().Context())
	if d.At != 0 {
		now = time.UnixMicro(d.At)
	}
	v := views.Explained{
		Allowed: d.Allowed, Status: status, Reason: string(d.Reason), Verdict: verdict(x, status, now.In(zone)), Degraded: d.Degraded,
		Answer: answerText(status, header), Route: d.Route, Plan: "none",
	}
	if s.Plan != nil {
		v.Plan = fmt.Sprintf("%s, version %d", s.Plan.Slug, s.Plan.Version)
	}
	if d.Check.Path != q.path {
		v.Path = d.Check.Path
	}
	if x.PassesAt != enforcement.Never && !d.Allowed {
		v.PassesAt = enforcement.Instant(x.PassesAt).Format(time.RFC3339Nano)
	}
	e := explainer{w: w, c: c, x: x, tenant: s.Tenant, now: now, write: web.May(c, accounts.ExceptionsWrite)}
	v.List = e.list()
	for i := range x.Policies {
		v.Policies = append(v.Policies, e.policy(&x.Policies[i]))
	}
	if page := e.page("/lists/new"); page != "" && e.write && v.List == nil {
		for _, a := range d.Check.Attributes {
			allow := url.Values{"list": {"allow"}, "attribute": {a.Name}, "value": {a.Value}}
			deny := url.Values{"list": {"deny"}, "attribute": {a.Name}, "value": {a.Value}}
			v.Listings = append(v.Listings, views.Listing{
				Attribute: a.Name, Value: a.Value, AllowURL: page + "?" + allow.Encode(), DenyURL: page + "?" + deny.Encode(),
			})
		}
	}
	body := q.body(s.Tenant)
	origin := w.Origin(c)
	v.ExplainCurl, v.CheckCurl = requests.Curl(origin+"/v1/explain", body), requests.Curl(origin+"/v1/check", body)
	return v
}

// body returns a request body for /v1/check, which gets the same answer as the explanation
// shows.
func (q *question) body(tenant string) string {
	body := requests.Check{Tenant: tenant, Method: q.method, Path: q.path, Attributes: map[string]string{}, Cost: requests.Cost(q.check.Cost)}
	for i, name := range q.names {
		if q.values[i] != "" {
			body.Attributes[name] = q.values[i]
		}
	}
	return web.JSONText(body)
}

// answerText returns the status line and the headers of a response as text.
func answerText(status int, header http.Header) string {
	lines := []string{fmt.Sprintf("HTTP/1.1 %d %s", status, http.StatusText(status))}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if name == "Cache-Control" || name == "Content-Type" {
			continue
		}
		for _, value := range header[name] {
			lines = append(lines, name+": "+value)
		}
	}
	return strings.Join(lines, "\n")
}
