package web_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
)

// explainable returns a world in which each reason can occur.
func explainable(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	limits := func(a enforcement.Algorithm, quota int64) []enforcement.Limit {
		return []enforcement.Limit{{Algorithm: a, Quota: quota, Window: time.Minute}}
	}
	w.publish("pro", plans.Content{Name: "Pro", Policies: []plans.Policy{
		{Slug: "api", CountBy: []string{"user"}, Consistency: enforcement.Leased, Limits: limits(enforcement.TokenBucket, 120)},
		{Slug: "login-per-ip", Match: plans.Match{Methods: []string{"POST"}, Path: "/v1/login"}, CountBy: []string{"ip/64"}, Limits: limits(enforcement.SlidingWindowLog, 5)},
		{Slug: "off", Mode: enforcement.PolicyOff, Limits: limits(enforcement.FixedWindow, 1)},
		{Slug: "seen", Mode: enforcement.PolicyShadow, CountBy: []string{"ip"}, Missing: enforcement.MissingSkip, Limits: limits(enforcement.SlidingWindowCounter, 2)},
		{Slug: "free", Match: plans.Match{Attributes: map[string]string{"tier": "free"}}, Replaces: []string{"api"}, Limits: limits(enforcement.FixedWindow, 3)},
		{Slug: "strict", Match: plans.Match{Path: "/v1/strict"}, CountBy: []string{"app"}, Missing: enforcement.MissingDeny, Limits: limits(enforcement.GCRA, 9)},
	}}, "acme")
	ctx := t.Context()
	_, err := w.exceptions.CreateOverride(ctx, "acme", exceptions.NewOverride{Policy: "api", Attribute: "user", Value: "u7", Factor: 2000, Reason: "launch", ExpiresAt: w.clock().Add(time.Hour)})
	must(t, err)
	_, err = w.exceptions.CreateEntry(ctx, "acme", exceptions.NewEntry{List: exceptions.Deny, Attribute: "ip", Value: "203.0.113.0/24", Reason: "scrapers"})
	must(t, err)
	_, err = w.exceptions.CreateEntry(ctx, "acme", exceptions.NewEntry{List: exceptions.Allow, Attribute: "user", Value: "probe"})
	must(t, err)
	_, err = w.exceptions.CreateBlock(ctx, "acme", exceptions.NewBlock{Policy: "api", Key: map[string]string{"user": "u9"}, Reason: "abuse", ExpiresAt: w.clock().Add(30 * time.Minute)})
	must(t, err)
	must(t, w.watcher.Refresh(ctx))
	return w
}

// typed returns a request as the parameters of the form.
func typed(c enforcement.Check) url.Values {
	q := url.Values{"method": {c.Method}, "path": {c.Path}, "cost": {strconv.FormatInt(c.Cost, 10)}}
	for _, a := range c.Attributes {
		q.Add("name", a.Name)
		q.Add("value", a.Value)
	}
	return q
}

// find returns the elements of a page that have an attribute.
func find(page *html.Node, name string) (list []*html.Node) {
	for n := range page.Descendants() {
		for _, a := range n.Attr {
			if n.Type == html.ElementNode && a.Key == name {
				list = append(list, n)
				break
			}
		}
	}
	return list
}

// textIn returns the text of an element, with single spaces.
func textIn(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func byID(page *html.Node, id string) *html.Node {
	for _, n := range find(page, "id") {
		if attr(n, "id") == id {
			return n
		}
	}
	return &html.Node{}
}

func withClass(page *html.Node, class string) (list []*html.Node) {
	for _, n := range find(page, "class") {
		if slices.Contains(strings.Fields(attr(n, "class")), class) {
			list = append(list, n)
		}
	}
	return list
}

// The page shows the explanation of the engine, like the API.
func TestExplainPageIsTheEnginesExplanation(t *testing.T) {
	t.Parallel()
	w := explainable(t)
	dice := rand.New(rand.NewPCG(7, 1))
	pick := func(list ...string) string { return list[dice.IntN(len(list))] }
	reasons := map[enforcement.Reason]bool{}
	whys := map[enforcement.Why]bool{}
	for range 150 {
		check := enforcement.Check{Cost: dice.Int64N(4)}
		if method := pick("GET", "POST", ""); method != "" {
			must(t, check.SetMethod(method))
		}
		if path := pick("/v1/login", "/v1/login/", "/v1/strict", "/else", ""); path != "" {
			must(t, check.SetPath(path))
		}
		for name, value := range map[string]string{
			"user": pick("u1", "u7", "u9", "probe", "", "u1"), "ip": pick("2001:db8::1", "198.51.100.7", "203.0.113.9", "", "", ""),
			"tier": pick("free", "", ""), "app": pick("a", "", ""),
		} {
			if value != "" {
				must(t, check.AddAttribute(name, value))
			}
		}
		w.now.Add(dice.Int64N(8_000_000))
		subject, _ := w.watcher.Current().Subject("acme")
		var x enforcement.Explanation
		w.engine.Explain(t.Context(), subject, &check, &x)
		x.Decision.Check = &check
		page := w.get("/tenants/acme/explain?"+typed(check).Encode(), "viewer")
		if page.Code != http.StatusOK {
			t.Fatalf("%+v: %d", check, page.Code)
		}
		tree := page.tree(t)
		status, _ := answered(&x.Decision)
		passes := ""
		if !x.Decision.Allowed && x.PassesAt != enforcement.Never {
			passes = time.UnixMilli((x.PassesAt + 999) / 1000).UTC().Format(time.RFC3339Nano)
		}
		verdict := find(tree, "data-status")
		if len(verdict) != 1 {
			t.Fatalf("%d verdicts", len(verdict))
		}
		got := fmt.Sprint(attr(verdict[0], "data-status"), attr(verdict[0], "data-reason"), attr(verdict[0], "data-passes-at"))
		if want := fmt.Sprint(status, x.Decision.Reason, passes); got != want {
			t.Errorf("%+v: %s, want %s", check, got, want)
		}
		var want, shown []string
		for i := range x.Policies {
			p := &x.Policies[i]
			whys[p.Why] = true
			line := fmt.Sprintf("%s %v %s", p.Rule.Policy, p.Applies, web.Sentence(p.Because(&x.Decision)))
			if p.Rule.Consistency == enforcement.Leased {
				line += " leased"
			}
			for _, l := range p.Limits {
				line += fmt.Sprintf(" %s %d %d", l.Limit.Name, l.Remaining, l.ResetAfter)
			}
			want = append(want, line)
		}
		for _, n := range find(tree, "data-policy") {
			line := attr(n, "data-policy") + " " + attr(n, "data-applies") + " " + textIn(withClass(n, "because")[0])
			if strings.Contains(textIn(n), "leased: each node draws quota ahead") {
				line += " leased"
			}
			for _, l := range find(n, "data-limit") {
				line += " " + attr(l, "data-limit") + " " + attr(l, "data-remaining") + " " + attr(l, "data-reset")
			}
			shown = append(shown, line)
		}
		if !slices.Equal(shown, want) {
			t.Errorf("%+v:\n%s\nwant\n%s", check, strings.Join(shown, "\n"), strings.Join(want, "\n"))
		}
		reasons[x.Decision.Reason] = true
		w.decide("acme", check)
	}
	if len(reasons) < 6 || len(whys) < 8 {
		t.Errorf("the requests were only answered %v, by %v", reasons, whys)
	}
}

// The sentence about the result, for each kind of result.
func TestExplainVerdicts(t *testing.T) {
	t.Parallel()
	w := explainable(t)
	login := enforcement.Check{Method: "POST", Path: "/v1/login", Cost: 1}
	must(t, login.AddAttribute("ip", "2001:db8::1"))
	w.decide("acme", login, login, login, login, login)
	w.now.Add((19 * time.Second).Microseconds())
	for query, want := range map[string]string{
		"tenant=acme&method=GET&path=/x&name=user&value=u1&cost=1":                "Would pass: 119 of 120 left in policy api after it.",
		"tenant=acme&method=GET&path=/x&name=user&value=u7&cost=40":               "Would pass: 200 of 240 left in policy api after it.",
		"tenant=acme&method=POST&path=/v1/login&name=ip&value=2001:db8::2&cost=1": "Would be denied with 429: over the limit of policy login-per-ip; passes at 09:01:00 UTC (in 41 s).",
		"tenant=acme&method=POST&path=/v1/login&name=ip&value=2001:db8::2&cost=2": "Would be denied with 429: over the limit of policy login-per-ip; passes at 09:01:00 UTC (in 41 s).",
		"tenant=acme&method=POST&path=/v1/login&cost=6":                           "Would be denied with 429: policy login-per-ip can never hold this cost.",
		"tenant=acme&path=/x&name=user&value=u9":                                  "Would be denied with 429: the key of policy api is blocked until 2026-11-21T09:30:00.000Z; passes at 09:30:00 UTC (in 29.7 min).",
		"tenant=acme&path=/x&name=ip&value=203.0.113.9":                           "Would be denied with 403: the attribute ip has a value that is on the tenant's deny list.",
		"tenant=acme&path=/x&name=user&value=probe":                               "Would pass: the allow list has user probe, and no limit is charged.",
		"tenant=acme&path=/v1/strict":                                             "Would be denied with 403: policy strict counts by the attribute app, which was not sent.",
		"tenant=acme&path=/x&k.tier=free&k.user=u1":                               "Would pass: 2 of 3 left in policy free after it.",
		"tenant=globex&path=/x":                                                   "Would be denied with 403: tenant globex is suspended.",
	} {
		page := w.get("/explain?"+query, "viewer")
		if got := textIn(byID(page.tree(t), "verdict")); page.Code != http.StatusOK || got != want {
			t.Errorf("%s: %d %s\nwant %s", query, page.Code, got, want)
		}
	}
}

// For input that /v1/check would reject, the field has an error, and the page shows no
// explanation.
func TestExplainFaults(t *testing.T) {
	t.Parallel()
	w := explainable(t)
	many := url.Values{}
	for i := range enforcement.MaxAttributes + 1 {
		many.Add("name", fmt.Sprintf("a%d", i))
		many.Add("value", "x")
	}
	for query, want := range map[string]string{
		"method=get": "method", "method=" + strings.Repeat("A", 33): "method", "path=v1": "path", "path=/" + strings.Repeat("a", enforcement.MaxPath): "path", "path=/%255c": "path",
		"cost=-1": "cost", "cost=1.5": "cost", "cost=2147483648": "cost", "cost=01": "cost", "name=ip&value=x": "value-1", "name=&value=x": "value-1",
		"name=user&value=a&name=user&value=b": "value-2", "name=user&value=" + strings.Repeat("a", enforcement.MaxAttributeValue+1): "value-1",
		"name=" + strings.Repeat("a", enforcement.MaxAttributeName+1) + "&value=x": "value-1", "path=/&path=/": "path", "method=GET&name=user&value=%ff": "value-1", "path=/%ff": "path",
		many.Encode(): "value-17", "k.ip=x": "value-1", "k.user=a&k.user=b": "value-2",
	} {
		page := w.get("/tenants/acme/explain?"+query, "acme-viewer")
		tree := page.tree(t)
		var faulty []string
		for _, n := range find(tree, "aria-invalid") {
			faulty = append(faulty, attr(n, "id"))
		}
		if page.Code != http.StatusUnprocessableEntity || !slices.Equal(faulty, []string{want}) || len(find(tree, "data-status")) > 0 || !strings.Contains(page.body, `href="#`+want+`"`) {
			t.Errorf("%.60s: %d, faulty %v, want %s", query, page.Code, faulty, want)
		}
	}
	for query, status := range map[string]int{"tenant=none": 422, "tenant=none&path=/": 422, "path=/": 422, "tenant=acme": 200, "": 200} {
		if page := w.get("/explain?"+query, "owner"); page.Code != status || status == 422 && attr(byID(page.tree(t), "tenant"), "aria-invalid") != "true" {
			t.Errorf("/explain?%s: %d, want %d at the tenant", query, page.Code, status)
		}
	}
}

// The form lists the attributes that the plan uses, keeps the input, and adds rows without
// a script.
func TestExplainRows(t *testing.T) {
	t.Parallel()
	w := explainable(t)
	rows := func(query string) (names []string, answers int) {
		tree := w.get("/tenants/acme/explain?"+query, "acme-viewer").tree(t)
		for _, n := range find(tree, "name") {
			if attr(n, "name") == "name" && n.Data == "input" {
				names = append(names, attr(n, "value"))
			}
		}
		return names, len(find(tree, "data-status"))
	}
	for query, want := range map[string]string{
		"": "user ip tier app _, 0", "path=/&name=app&value=x&name=&value=&name=z&value=": "app z user ip tier _, 1",
		"path=/&name=app&value=x&more=1": "app user ip tier _ _ _ _, 0", "k.app=x": "app user ip tier _, 1",
	} {
		names, answers := rows(query)
		for i := range names {
			if names[i] == "" {
				names[i] = "_"
			}
		}
		if got := fmt.Sprintf("%s, %d", strings.Join(names, " "), answers); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
}

// Visitors with the permission get links to forms that are filled in with the key. Others do
// not.
func TestExplainLinks(t *testing.T) {
	t.Parallel()
	w := explainable(t)
	const query = "/tenants/acme/explain?method=POST&path=/v1/login&k.user=u1&k.ip=198.51.100.7"
	hrefs := func(by string) (list []string) {
		for _, n := range find(w.get(query, by).tree(t), "href") {
			list = append(list, attr(n, "href"))
		}
		return list
	}
	key := "/tenants/acme/usage/login-per-ip?k.ip=198.51.100.7"
	writes := []string{
		"/tenants/acme/overrides/new?attribute=ip&policy=login-per-ip&value=198.51.100.7",
		"/tenants/acme/blocks/new?k.user=u1&policy=api", "/tenants/acme/reset?k.user=u1&policy=api",
		"/tenants/acme/lists/new?attribute=user&list=allow&value=u1",
	}
	for by, may := range map[string]bool{"owner": true, "editor": true, "viewer": false, "acme-admin": false, "acme-viewer": false} {
		list := hrefs(by)
		if !slices.Contains(list, key) {
			t.Errorf("%s is not led to the key: %q", by, list)
		}
		for _, href := range writes {
			if slices.Contains(list, href) != may {
				t.Errorf("%s: %s is there: %v", by, href, !may)
			}
			if may {
				if page := w.get(href, by); page.Code != http.StatusOK || !strings.Contains(page.body, `value="u1"`) && !strings.Contains(page.body, `value="198.51.100.7"`) {
					t.Errorf("%s: %s: %d, without the value", by, href, page.Code)
				}
			}
		}
	}
	tree := w.get(query, "owner").tree(t)
	var copies []string
	for _, n := range withClass(tree, "copyable") {
		copies = append(copies, textIn(n))
	}
	if len(copies) != 3 || !strings.Contains(copies[1], `/v1/explain`) || !strings.Contains(copies[2], `'{"tenant":"acme","method":"POST","path":"/v1/login","attributes":{"ip":"198.51.100.7","user":"u1"}}'`) {
		t.Errorf("to copy: %q", copies)
	}
}

// An explanation changes nothing.
func TestExplainChargesNothing(t *testing.T) {
	t.Parallel()
	w := explainable(t)
	const query = "/tenants/acme/explain?method=POST&path=/v1/login&k.ip=198.51.100.7&cost=3"
	first := w.get(query, "owner").body
	for range 5 {
		if w.get(query, "owner").body != first {
			t.Fatal("the answer changes by asking")
		}
	}
}

// Every input is shown as text, and never as HTML.
func TestExplainOfHostileValues(t *testing.T) {
	t.Parallel()
	w := explainable(t)
	var want [2]string
	for n, payload := range append([]string{"plain"}, payloads...) {
		for i, page := range []reply{
			w.get("/tenants/acme/explain?"+url.Values{"path": {"/v1/login"}, "name": {"user", "app"}, "value": {payload, payload}}.Encode(), "owner"),
			w.get("/explain?"+url.Values{"tenant": {payload}, "method": {payload}, "path": {payload}, "cost": {payload}, "name": {"ip", payload}, "value": {payload, ""}}.Encode(), "owner"),
		} {
			tree := page.tree(t)
			strict(t, fmt.Sprintf("explain %d", i), tree)
			if got := shape(tree); n == 0 {
				want[i] = got
			} else if got != want[i] {
				t.Errorf("%q:\n%s\nwant\n%s", payload, got, want[i])
			}
		}
	}
}
