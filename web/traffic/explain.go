package traffic

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
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// tenantsInForm is how many tenants a field suggests.
const tenantsInForm = 200

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
func (w *pages) explainAny(c echo.Context) error {
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

// subject is a tenant as this node serves it, by its id or slug.
func (w *pages) subject(ref string) (*enforcement.Subject, error) {
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
func (w *pages) explain(c echo.Context, p views.Page, v views.Explain, q question, subject *enforcement.Subject) error {
	v.Method = views.Input{
		Name: "method", Label: "Method", Type: "text", Autocomplete: "off", Value: q.method, Optional: true,
		List: "methods",
	}
	v.Path = views.Input{
		Name: "path", Label: "Path", Type: "text", Autocomplete: "off", Value: q.path, Optional: true,
		Hint: "As the gateway sees it. Empty: the caller sends none.",
	}
	v.Cost = views.Input{Name: "cost", Label: "Cost", Type: "text", Autocomplete: "off", Value: q.cost, Optional: true}
	if !q.asked {
		v.Method.Value, v.Cost.Value = "GET", "1"
	}
	v.Rows, v.Names, v.CanMore = q.rows(subject)
	status := http.StatusOK
	if err := q.faults.Err(); q.asked && !q.more && err != nil {
		at := web.Places{Inputs: []*views.Input{&v.Tenant, &v.Method, &v.Path, &v.Cost}}
		for i := range v.Rows {
			at.Inputs = append(at.Inputs, &v.Rows[i].Value)
		}
		list, code, err := at.Report(err)
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
	return w.Render(c, status, views.ExplainPage(p, v))
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
func (w *pages) explained(c echo.Context, s *enforcement.Subject, q question, x *enforcement.Explanation) views.Explained {
	d := &x.Decision
	status, header := w.cfg.Answer(d)
	now := w.Now()
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
	e := explainer{w: w, c: c, x: x, tenant: s.Tenant, now: now, write: web.May(c, accounts.ExceptionsWrite)}
	v.List = e.list()
	for i := range x.Policies {
		v.Policies = append(v.Policies, e.policy(&x.Policies[i]))
	}
	if v.ListURL = e.page("/lists/new"); v.ListURL != "" && e.write && v.List == nil {
		for _, a := range d.Check.Attributes {
			allow := url.Values{"list": {"allow"}, "attribute": {a.Name}, "value": {a.Value}}
			deny := url.Values{"list": {"deny"}, "attribute": {a.Name}, "value": {a.Value}}
			v.Listings = append(v.Listings, views.Listing{
				Attribute: a.Name, Value: a.Value, AllowURL: v.ListURL + "?" + allow.Encode(),
				DenyURL: v.ListURL + "?" + deny.Encode(),
			})
		}
	}
	body := q.body(s.Tenant)
	origin := w.Origin(c)
	v.ExplainCurl, v.CheckCurl = web.Curl(origin+"/v1/explain", body), web.Curl(origin+"/v1/check", body)
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
	return web.JSONText(asked)
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
