package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// The tests below send every example of openapi.yaml: each request example, and for an
// operation without a body each response example. Each one gets a fresh world (newWorld has
// the objects that the examples name). The answer to a request example is the response
// example of the same name: same status and same body, except for values that change from
// run to run (masked). The IDs of keys in paths are those of the fixture.

// notPlayed lists response examples that no request of this test can get, each with the test
// that shows it.
var notPlayed = map[string]string{
	"forwardAuth 200 passes":              "needs the headers of a proxy, as in TestForwardAuth of cmd/server",
	"forwardAuth 403 untrusted":           "needs the headers of a proxy, as in TestForwardAuth of cmd/server",
	"forwardAuth 404 unknown_tenant":      "needs the headers of a proxy, as in TestForwardAuth of cmd/server",
	"forwardAuth 429 denied":              "needs the headers of a proxy, as in TestForwardAuth of cmd/server",
	"check 403 forbidden":                 "TestMatrix",
	"reserve 403 forbidden":               "TestMatrix",
	"reserve 503 limiter_unavailable":     "TestReservationsWithoutTheLimiter",
	"check 503 limiter_unavailable":       "TestLimiterAway",
	"openapiJSON 200 document":            "TestSpecIsServed",
	"check 503 overloaded":                "TestOverloaded",
	"readyz 503 draining":                 "TestReadiness",
	"getAlert 200 alert":                  "alerts begin by themselves; TestOneAlert",
	"getNodes 200 nodes":                  "TestNodes",
	"docs 200 page":                       "web serves it",
	"getLimiterLatency 200 latency":       "TestLatency",
	"getRemainingHistogram 200 histogram": "TestRemaining",
}

// before lists the calls that must precede an example.
var before = map[string][]call{
	"check refused": repeated(5, call{
		method: "POST", path: "/v1/check",
		body: `{"tenant":"acme","method":"POST","path":"/v1/login","attributes":{"ip":"203.0.113.66"}}`,
	}),
	"explain refused": repeated(5, call{
		method: "POST", path: "/v1/check",
		body: `{"tenant":"acme","method":"POST","path":"/v1/login","attributes":{"ip":"203.0.113.66"}}`,
	}),
	"check denied":  {someEntry},
	"check blocked": {someBlock},
	"check overridden": {
		{
			method: "POST", path: "/v1/tenants/acme/overrides",
			body: `{"policy":"login-per-ip","attribute":"ip","value":"203.0.113.78","factor":0.2,"reason":"r","expires_at":"2026-11-21T09:00:30Z"}`,
		},
		{
			method: "POST", path: "/v1/check",
			body: `{"tenant":"acme","method":"POST","path":"/v1/login","attributes":{"ip":"203.0.113.78"}}`,
		},
	},
	"checkBatch atomic": repeated(5, call{
		method: "POST", path: "/v1/check",
		body: `{"tenant":"acme","method":"POST","path":"/v1/login","attributes":{"ip":"203.0.113.66"}}`,
	}),
	"check leased":                     onJobs(),
	"releaseLease released":            onJobs(someLease),
	"releaseLease unknown":             onJobs(someLease),
	"listLeases leases":                onJobs(someLease),
	"revokeLease revoked":              onJobs(someLease),
	"listOverrides page":               {someOverride},
	"getOverride override":             {someOverride},
	"updateOverride replace":           {someOverride},
	"patchOverride prolong":            {someOverride},
	"listListEntries page":             {someEntry},
	"getListEntry entry":               {someEntry},
	"listBlocks page":                  {someBlock},
	"getBlock block":                   {someBlock},
	"listGrants page":                  {someGrant},
	"getGrant grant":                   {someGrant},
	"getTraffic traffic":               someTraffic,
	"getPolicyTraffic policies":        someTraffic,
	"getRouteTraffic routes":           someTraffic,
	"getTopKeys keys":                  someTraffic,
	"getTenantTraffic tenants":         someTraffic,
	"getRetryAfterHistogram histogram": someTraffic,
	"getLive live":                     someTraffic,
	"listRefusals page":                someTraffic,
	"getUsage usage": repeated(6, call{
		method: "POST", path: "/v1/check",
		body: `{"tenant":"acme","method":"GET","path":"/v1/reports","attributes":{"user":"u7"},"cost":10}`,
	}),
	"listMemberInvitations page": {
		{method: "POST", path: "/v1/tenants/acme/members", body: `{"email":"new@example.com","role":"tenant_viewer"}`},
		{method: "POST", path: "/v1/tenants/acme/members", body: `{"email":"other@example.com","role":"tenant_viewer"}`},
	},
	"listInvitations page": {
		{method: "POST", path: "/v1/people", body: `{"email":"new@example.com","role":"editor"}`},
		{method: "POST", path: "/v1/people", body: `{"email":"other@example.com","role":"editor"}`},
	},
	"getExplanation refusal":       someTraffic,
	"refundCheck refunded":         {someRefundable},
	"listReservations page":        {someReservation},
	"getReservation active":        {someReservation},
	"settleReservation settled":    {someReservation},
	"extendReservation extended":   {someReservation},
	"releaseReservation released":  {someReservation},
	"listAlertRules page":          {someAlertRule},
	"getAlertRule rule":            {someAlertRule},
	"updateAlertRule replace":      {someAlertRule},
	"patchAlertRule threshold":     {someAlertRule},
	"listAlertChannels page":       {someAlertChannel},
	"getAlertChannel channel":      {someAlertChannel},
	"updateAlertChannel replace":   {someAlertChannel},
	"patchAlertChannel rename":     {someAlertChannel},
	"rotateAlertSecret rotate":     {someAlertChannel},
	"createAlertTest test":         {someAlertChannel},
	"listAlertMaintenance page":    {someMaintenance},
	"getAlertMaintenance window":   {someMaintenance},
	"listSharedLinks page":         {someSharedLink},
	"getSharedLink link":           {someSharedLink},
	"listAlertDeliveries page":     {someAlertChannel, someAlertTest},
	"getAlertDelivery delivery":    {someAlertChannel, someAlertTest},
	"createAlertRepetition repeat": {someAlertChannel, someAlertTest},
}

// Calls that several examples need before them.
var (
	someOverride = call{
		method: "POST", path: "/v1/tenants/acme/overrides", as: "01939c1e-0000-7000-8000-000000000051",
		body: `{"policy":"login-per-ip","attribute":"ip","value":"203.0.113.77","factor":2.5,"reason":"a load test"}`,
	}
	someEntry = call{
		method: "POST", path: "/v1/tenants/acme/lists", as: "01939c1e-0000-7000-8000-000000000061",
		body: `{"list":"deny","attribute":"ip","value":"198.51.100.0/24","reason":"scrapers"}`,
	}
	someBlock = call{
		method: "POST", path: "/v1/tenants/acme/blocks", as: "01939c1e-0000-7000-8000-000000000071",
		body: `{"policy":"reports-per-user","key":{"user":"u9"},"reason":"exports in a loop","expires_at":"2026-11-21T10:00:00Z"}`,
	}
	someGrant = call{
		method: "POST", path: "/v1/tenants/acme/grants", as: "01939c1e-0000-7000-8000-000000000072",
		body: `{"policy":"reports-per-user","key":{"user":"u9"},"units":500,"reason":"top-up, invoice 4711","expires_at":"2027-11-01T00:00:00Z"}`,
	}
	someLease = call{
		method: "POST", path: "/v1/check",
		body: `{"tenant":"acme","method":"POST","path":"/v1/jobs","attributes":{"user":"u1"},"lease":{"id":"job-42","ttl_ms":30000}}`,
	}
	someReservation = call{
		method: "POST", path: "/v1/reservations",
		body: `{"id":"job-42","ttl_ms":60000,"tenant":"acme","method":"POST","path":"/v1/login","attributes":{"ip":"203.0.113.9"},"cost":4}`,
	}
	someRefundable = call{
		method: "POST", path: "/v1/check", as: "01939c1e-0000-7000-8000-000000000082",
		body: `{"tenant":"acme","method":"POST","path":"/v1/login","attributes":{"ip":"203.0.113.9"},"refundable":true}`,
	}
	someAlertRule = call{
		method: "POST", path: "/v1/alert-rules", as: "01939c1e-0000-7000-8000-000000000091",
		body: `{"name":"Acme is limited","metric":"denial_rate","tenant":"acme","window":"5m","threshold":20,"recovery":10,"for":"2m","min_requests":100,"channels":[]}`,
	}
	someAlertChannel = call{
		method: "POST", path: "/v1/alert-channels", as: "01939c1e-0000-7000-8000-000000000092",
		body: `{"name":"on call","kind":"webhook","url":"https://hooks.example.com/headgate"}`,
	}
	someMaintenance = call{
		method: "POST", path: "/v1/alert-maintenance", as: "01939c1e-0000-7000-8000-000000000095",
		body: `{"name":"Upgrade of the database","starts_at":"2026-11-21T22:00:00Z","ends_at":"2026-11-21T23:00:00Z"}`,
	}
	someSharedLink = call{
		method: "POST", path: "/v1/shared-links", as: "01939c1e-0000-7000-8000-000000000096",
		body: `{"name":"Screen in the lobby","shows":"overview","query":"range=6h","time_zone":"Europe/Berlin","expires_at":"2026-12-20T00:00:00Z"}`,
	}
	someAlertTest = call{
		method: "POST", path: "/v1/alert-channels/01939c1e-0000-7000-8000-000000000092/test", as: "01939c1e-0000-7000-8000-000000000093",
	}
	// Five are allowed and three are denied.
	someTraffic = repeated(8, call{
		method: "POST", path: "/v1/check", as: "01939c1e-0000-7000-8000-000000000081",
		body: `{"tenant":"acme","method":"POST","path":"/v1/login","attributes":{"ip":"203.0.113.66"}}`,
	})
)

// onJobs returns the calls that put acme on a plan with a concurrency limit, and then more calls.
func onJobs(more ...call) []call {
	return append([]call{
		{
			method: "POST", path: "/v1/plans",
			body: `{"slug":"batch","draft":{"name":"Batch","policies":[` +
				`{"slug":"jobs","match":{"path":"/v1/jobs"},"limits":[{"algorithm":"concurrency","quota":2,"window":"1m"}]}]}}`,
		},
		{method: "POST", path: "/v1/plans/batch/publish"},
		{method: "PATCH", path: "/v1/tenants/acme", body: `{"plan":"batch"}`, header: map[string]string{"If-Match": "*"}},
	}, more...)
}

func repeated(n int, c call) []call { return slices.Repeat([]call{c}, n) }

func TestExamples(t *testing.T) {
	t.Parallel()
	doc, _ := contract()
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			requests := map[string]any{}
			if op.RequestBody != nil {
				for name, e := range op.RequestBody.Value.Content["application/json"].Examples {
					requests[name] = e.Value.Value
				}
			}
			played := map[string]bool{}
			for status, response := range op.Responses.Map() {
				for _, media := range response.Value.Content {
					for name, e := range media.Examples {
						id := op.OperationID + " " + status + " " + name
						body, asked := requests[name]
						switch {
						case notPlayed[id] != "" || response.Ref != "" && !strings.HasSuffix(response.Ref, "/Alive"):
							continue // problems that operations share
						case op.RequestBody != nil && !asked:
							t.Errorf("%s: no request example of this name", id)
							continue
						}
						played[name] = true
						t.Run(id, func(t *testing.T) {
							t.Parallel()
							playExample(t, method, path, op, name, status, body, e.Value.Value)
						})
					}
				}
			}
			for name := range requests {
				switch {
				case played[name]:
				case op.Responses.Value("204") != nil:
					t.Run(op.OperationID+" 204 "+name, func(t *testing.T) {
						t.Parallel()
						playExample(t, method, path, op, name, "204", requests[name], "")
					})
				default:
					t.Errorf("%s: request example %s has no response example", op.OperationID, name)
				}
			}
		}
	}
}

func playExample(t *testing.T, method, path string, op *openapi3.Operation, name, status string, body, want any) {
	t.Helper()
	w := newStrictWorld(t)
	for _, c := range before[op.OperationID+" "+name] {
		w.made(c)
	}
	if strings.HasPrefix(path, "/v1/analytics/") || op.OperationID == "getExplanation" || op.OperationID == "getUsage" {
		w.flush()
	}
	if strings.Contains(path, "/members") || strings.HasPrefix(path, "/v1/people") {
		w.populatePeople()
	}
	c := call{method: method, path: exampleAddress(w, path, op), header: map[string]string{}}
	if op.Security != nil && len(*op.Security) > 0 {
		c.key = w.operator
	}
	for _, p := range op.Parameters {
		if p.Value.In == "header" && p.Value.Example != nil {
			c.header[p.Value.Name] = fmt.Sprint(p.Value.Example)
		}
	}
	if op.RequestBody != nil {
		text, err := json.Marshal(body)
		must(t, err)
		c.body = string(text)
	}
	a := w.do(c)
	if fmt.Sprint(a.status) != status {
		t.Fatalf("%s %s: %d, the example says %s\n%s", c.method, c.path, a.status, status, a.body)
	}
	if text, ok := want.(string); ok {
		if text == "" && a.body != "" || !strings.HasPrefix(a.body, text) {
			t.Errorf("%q does not begin with the example %q", a.body, text)
		}
		return
	}
	var got any
	must(t, json.Unmarshal([]byte(a.body), &got))
	text, err := json.Marshal(want)
	must(t, err)
	must(t, json.Unmarshal(text, &want))
	got, want = masked("", got), masked("", want)
	if !reflect.DeepEqual(got, want) {
		g, _ := json.MarshalIndent(got, "", " ")
		e, _ := json.MarshalIndent(want, "", " ")
		t.Errorf("got\n%s\nthe example says\n%s", g, e)
	}
}

// made sends a call of the operator and returns the ID of the object that it creates.
func (w *world) made(c call) string {
	w.t.Helper()
	c.key = w.operator
	for example, id := range w.ids {
		c.path = strings.ReplaceAll(c.path, example, id)
	}
	a := w.do(c)
	if c.as == "" {
		return ""
	}
	var out struct {
		ID       string
		Decision string `json:"decision_id"`
		Channel  struct{ ID string }
	}
	err := json.Unmarshal([]byte(a.body), &out)
	if out.ID += out.Channel.ID; err != nil || out.ID+out.Decision == "" {
		w.t.Fatalf("%s %s: %d %s", c.method, c.path, a.status, a.body)
	}
	w.ids = maps.Clone(w.ids)
	w.ids[c.as] = out.ID + out.Decision
	return out.ID + out.Decision
}

// exampleAddress returns the URL of a path and query with the examples of their parameters.
func exampleAddress(w *world, path string, op *openapi3.Operation) string {
	query := []string{}
	for _, p := range op.Parameters {
		if p.Value.Example == nil {
			continue
		}
		text := fmt.Sprint(p.Value.Example)
		if id, ok := w.ids[text]; ok {
			text = id
		}
		switch p.Value.In {
		case "path":
			path = strings.ReplaceAll(path, "{"+p.Value.Name+"}", text)
		case "query":
			query = append(query, p.Value.Name+"="+text)
		}
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	return path
}

var perRun = regexp.MustCompile(`^(id|channel_id|secret|plan_id|tenant_id|object|request_id|decision_id|token|link|hint|next_cursor|revision|draft_revision|age_ms|node|created_by|.*_at|at)$`)

// masked replaces values that change from run to run with the name of their type.
func masked(name string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := maps.Clone(v)
		for k := range out {
			out[k] = masked(k, out[k])
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i := range out {
			out[i] = masked("", out[i])
		}
		return out
	}
	if perRun.MatchString(name) {
		return fmt.Sprintf("%T", v)
	}
	return v
}

// Deletions have no response example. The test calls them and checks that the object is gone.
func TestDeletions(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/v1/tenants/acme", "/v1/plans/trial"} {
		w := newWorld(t)
		if a := w.do(call{method: http.MethodDelete, path: path, key: w.operator, header: map[string]string{"If-Match": "*"}}); a.status != 204 || a.body != "" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
		if a := w.do(call{method: http.MethodGet, path: path, key: w.operator}); a.status != 404 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}
