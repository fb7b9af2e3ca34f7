package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// After a write, the members tenant and draft and the ETag can be read unchanged.
func TestDocumentsRoundTrip(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, member := range map[string]string{"/v1/tenants/acme": "tenant", "/v1/plans/pro/draft": "draft"} {
		a := w.do(call{method: "GET", path: path, key: w.operator})
		var read map[string]json.RawMessage
		must(t, json.Unmarshal([]byte(a.body), &read))
		put := func(tag string) answer {
			header := map[string]string{}
			if tag != "" {
				header["If-Match"] = tag
			}
			return w.do(call{method: "PUT", path: path, key: w.operator, body: string(read[member]), header: header})
		}
		tag := a.header.Get("ETag")
		if a := put(""); a.status != 428 {
			t.Error(path, "without If-Match:", a)
		}
		if a := put("W/" + tag); a.status != 412 {
			t.Error(path, "weak:", a)
		}
		b := put(`"0", ` + tag)
		var written map[string]json.RawMessage
		must(t, json.Unmarshal([]byte(b.body), &written))
		if b.status != 200 || !bytes.Equal(read[member], written[member]) || b.header.Get("ETag") == tag {
			t.Errorf("%s: %d %s\nread %s", path, b.status, b.body, a.body)
		}
		if a := put(tag); a.status != 412 {
			t.Error(path, "stale:", a)
		}
		if a := put("*"); a.status != 200 {
			t.Error(path, "any:", a)
		}
	}
}

// A merge patch changes only its members. A tenant without a plan shows null, and the shown
// document can be written.
func TestMergePatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.do(call{method: "POST", path: "/v1/tenants", key: w.operator, body: `{"slug":"a","tenant":{"name":"A","plan":null}}`})
	if made.status != http.StatusCreated || !strings.Contains(made.body, `"plan":null`) {
		t.Fatal(made.status, made.body)
	}
	tag := made.header.Get("ETag")
	for i, c := range []struct{ body, document string }{
		{`{"plan":"pro","redact_values":true,"billing_anchor_day":31}`, `"billing_anchor_day":31,"name":"A","no_policy":"allow","plan":"pro","redact_values":true,"require_route":true,"status":"active","time_zone":"UTC"`},
		{`{"billing_anchor_day":null,"redact_values":null}`, `"billing_anchor_day":1,"name":"A","no_policy":"allow","plan":"pro","redact_values":false,"require_route":true,"status":"active","time_zone":"UTC"`},
		{`{}`, `"billing_anchor_day":1,"name":"A","no_policy":"allow","plan":"pro","redact_values":false,"require_route":true,"status":"active","time_zone":"UTC"`},
		{`{"plan":null}`, `"billing_anchor_day":1,"name":"A","no_policy":"allow","plan":null,"redact_values":false,"require_route":true,"status":"active","time_zone":"UTC"`},
	} {
		media := []string{"application/json", "application/merge-patch+json"}[i%2]
		a := w.do(call{
			method: "PATCH", path: "/v1/tenants/a", key: w.operator, body: c.body, header: map[string]string{"If-Match": tag, "Content-Type": media},
		})
		if a.status != http.StatusOK || !strings.Contains(a.body, `{`+c.document+`}`) {
			t.Fatalf("%s: %d %s", c.body, a.status, a.body)
		}
		if a.header.Get("ETag") == tag {
			t.Errorf("%s: the ETag stays", c.body)
		}
		tag = a.header.Get("ETag")
	}
	if a := w.do(call{
		method: "PUT", path: "/v1/tenants/a", key: w.operator, body: `{"name":"a","plan":null}`,
		header: map[string]string{"If-Match": tag, "Content-Type": "application/merge-patch+json"},
	}); a.status != http.StatusUnsupportedMediaType {
		t.Errorf("PUT of a merge patch: %d", a.status)
	}
}

// Errors in a document have JSON pointers into the request body. The status is 400 for a body
// that cannot be parsed, 422 for an invalid one, and 409 for a conflict.
func TestManagementFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	match := map[string]string{"If-Match": "*"}
	for _, c := range []struct {
		call
		status  int
		pointer string
	}{
		{call{method: "POST", path: "/v1/tenants", body: `{"slug":"a"}`}, 400, "/tenant"},
		{call{method: "POST", path: "/v1/tenants", body: `{"slug":"a","tenant":{}}`}, 400, "/tenant/name"},
		{call{method: "POST", path: "/v1/tenants", body: `{"slug":"a","tenant":{"Name":"a"}}`}, 400, "/tenant/Name"},
		{call{method: "POST", path: "/v1/tenants", body: `{"slug":"a","id":"1","tenant":{"name":"a"}}`}, 400, "/id"},
		{call{method: "POST", path: "/v1/tenants", body: `{"slug":"a","tenant":{"name":"a","name":"b"}}`}, 400, "/tenant/name"},
		{call{method: "POST", path: "/v1/tenants", body: `{"slug":"a","tenant":{"name":null}}`}, 400, "/tenant/name"},
		{call{method: "POST", path: "/v1/tenants", body: `{"slug":"a","tenant":{"name":"a","billing_anchor_day":1.5}}`}, 400, "/tenant/billing_anchor_day"},
		{call{method: "POST", path: "/v1/tenants", body: `{"slug":"A","tenant":{"name":"a","status":"gone"}}`}, 422, "/slug"},
		{call{method: "POST", path: "/v1/tenants", body: `{"slug":"a","tenant":{"name":"a","status":"gone"}}`}, 422, "/tenant/status"},
		{call{method: "POST", path: "/v1/tenants", body: `{"slug":"a","tenant":{"name":"a","status":""}}`}, 422, "/tenant/status"},
		{call{method: "POST", path: "/v1/tenants", body: `{"slug":"a","tenant":{"name":"a","billing_anchor_day":0}}`}, 422, "/tenant/billing_anchor_day"},
		{call{method: "POST", path: "/v1/tenants", body: `{"slug":"a","tenant":{"name":"a","max_keys":999}}`}, 422, "/tenant/max_keys"},
		{call{method: "PUT", path: "/v1/tenants/acme", header: match, body: `{"name":"a","plan":null,"max_keys":999}`}, 422, "/max_keys"},
		{call{method: "POST", path: "/v1/tenants", body: `{"slug":"a","tenant":{"name":"a","plan":"trial"}}`}, 422, "/tenant/plan"},
		{call{method: "POST", path: "/v1/tenants", body: `{"slug":"acme","tenant":{"name":"a"}}`}, 409, ""},
		{call{method: "PUT", path: "/v1/tenants/acme", header: match, body: `{"name":"a","plan":null,"slug":"b"}`}, 400, "/slug"},
		{call{method: "PUT", path: "/v1/tenants/acme", header: match, body: `{"name":"a"}`}, 400, "/plan"},
		{call{method: "PUT", path: "/v1/tenants/acme", header: match, body: `{"name":null,"plan":null}`}, 400, "/name"},
		{call{method: "PATCH", path: "/v1/tenants/acme", header: match, body: `{"label":null}`}, 400, "/label"},
		{call{method: "PATCH", path: "/v1/tenants/acme", header: match, body: `{"name":null}`}, 400, "/name"},
		{call{method: "PATCH", path: "/v1/tenants/acme", header: match, body: `{"name":"a","name":"b"}`}, 400, "/name"},
		{call{method: "PATCH", path: "/v1/tenants/acme", header: match, body: `[]`}, 400, ""},
		{call{method: "PATCH", path: "/v1/tenants/acme", header: match, body: `{"status":"gone"}`}, 422, "/status"},
		{call{method: "PATCH", path: "/v1/tenants/acme", header: match, body: `{"plan":"none"}`}, 422, "/plan"},
		{call{method: "PATCH", path: "/v1/tenants/acme", body: `{"name":"a"}`}, 428, ""},
		{call{method: "PATCH", path: "/v1/tenants/acme", header: map[string]string{"If-Match": `"1"`}, body: `{"name":"a"}`}, 412, ""},
		{call{method: "PATCH", path: "/v1/tenants/none", header: match, body: `{"name":"a"}`}, 404, ""},
		{call{method: "PATCH", path: "/v1/alert-rules/none", header: match, body: `{"name":"a"}`}, 404, ""},
		{call{method: "PATCH", path: "/v1/people/none", header: match, body: `{"disabled":true}`}, 404, ""},
		{call{method: "PUT", path: "/v1/tenants/acme", header: match, body: `{"name":"","plan":null}`}, 422, "/name"},
		{call{method: "POST", path: "/v1/tenants/acme/keys", body: `{"name":"a","scopes":["admin"]}`}, 422, "/scopes/0"},
		{call{method: "POST", path: "/v1/tenants/acme/keys", body: `{"name":"a","scopes":["read"],"expires_at":"tomorrow"}`}, 400, "/expires_at"},
		{call{method: "POST", path: "/v1/tenants/nobody/keys", body: `{"name":"a","scopes":["read"]}`}, 404, ""},
		{call{method: "POST", path: "/v1/tenants/acme/keys/" + w.ids["gateway"] + "/rotate", body: `{"overlap_ms":604800001}`}, 422, "/overlap_ms"},
		{call{method: "POST", path: "/v1/tenants/acme/keys/" + w.ids["gateway"] + "/rotate", body: `{"overlap_ms":-9223372036854775808}`}, 422, "/overlap_ms"},
		{call{method: "GET", path: "/v1/tenants/acme/keys/nothing"}, 404, ""},
		{call{method: "GET", path: "/v1/tenants/globex/keys/" + w.ids["gateway"]}, 404, ""},
		{call{method: "POST", path: "/v1/plans", body: `{"slug":"p","draft":{"name":"P","policies":[{"slug":"a"}]}}`}, 400, "/draft/policies/0/limits"},
		{call{method: "POST", path: "/v1/plans", body: `{"slug":"p","draft":{"name":"P","policies":[{"slug":"a","limits":[{"algorithm":"magic","quota":1,"window":"1m"}]}]}}`}, 422, "/draft/policies/0/limits/0/algorithm"},
		{call{method: "PUT", path: "/v1/plans/pro/draft", header: match, body: `{"name":"P","policies":[{"slug":"a","limits":[{"algorithm":"gcra","quota":1000000000001,"window":"1m"}]}]}`}, 422, "/policies/0/limits/0/quota"},
		{call{method: "PUT", path: "/v1/plans/pro/draft", header: match, body: `{"name":"P","policies":[{"slug":"a","delay_ms":1000,"limits":[{"algorithm":"gcra","quota":1,"window":"1m"}]}]}`}, 422, "/policies/0/delay_ms"},
		{call{method: "POST", path: "/v1/plans", body: `{"slug":"slow","draft":{"name":"P","policies":[{"slug":"a","mode":"degrade","delay_ms":2000,"limits":[{"algorithm":"gcra","quota":1,"window":"1m"}]}]}}`}, 422, "/draft/policies/0/delay_ms"},
		{call{method: "DELETE", path: "/v1/plans/pro", header: match}, 409, ""},
		{call{method: "POST", path: "/v1/plans/pro/publish", body: `{"version":9}`}, 404, ""},
		{call{method: "POST", path: "/v1/plans/pro/publish", body: `{"version":0}`}, 422, "/version"},
		{call{method: "POST", path: "/v1/plans/pro/draft/validate", body: `{"name":"x","policies":[]}`}, 400, "/name"},
		{call{method: "POST", path: "/v1/plans/pro/draft/validate", body: `{"name":`}, 400, ""},
		{call{method: "POST", path: "/v1/plans/pro/draft/validate", body: `{}`}, 200, ""},
		{call{method: "POST", path: "/v1/plans/pro/publish", header: map[string]string{"If-Match": `"1"`}}, 412, ""},
		{call{method: "GET", path: "/v1/plans/pro/versions/x"}, 404, ""},
		{call{method: "GET", path: "/v1/plans/pro/versions/99999999999"}, 404, ""},
		{call{method: "POST", path: "/v1/plans", body: strings.Repeat(" ", 1<<20) + `{}`}, 413, ""},
		{call{method: "POST", path: "/v1/tenants", body: strings.Repeat(" ", 64<<10) + `{}`}, 413, ""},
		{call{method: "POST", path: "/v1/plans", body: `{}`, header: map[string]string{"Content-Type": "text/yaml"}}, 415, ""},
		{call{method: "GET", path: "/v1/tenants?limit=0"}, 400, "limit"},
		{call{method: "GET", path: "/v1/tenants?limit=101"}, 400, "limit"},
		{call{method: "GET", path: "/v1/tenants?limit=x"}, 400, "limit"},
		{call{method: "GET", path: "/v1/tenants?page=2"}, 400, "page"},
		{call{method: "GET", path: "/v1/tenants?status=gone"}, 400, "status"},
		{call{method: "GET", path: "/v1/tenants?cursor=abc"}, 400, "cursor"},
		{call{method: "GET", path: "/v1/audit?from=yesterday"}, 400, "from"},
		{call{method: "GET", path: "/v1/plans/pro?x=1"}, 400, "x"},
		{call{method: "POST", path: "/v1/simulate", body: `{"limits":[{"algorithm":"gcra","quota":1,"window":"1s"}],"steps":[{"at_ms":0,"op":"jump"}]}`}, 400, "/steps/0/op"},
		{call{method: "POST", path: "/v1/simulate", body: `{"x":1,"limits":[],"steps":[]}`}, 400, "/x"},
	} {
		c.key = w.operator
		a := w.do(c.call)
		if a.status != c.status || c.pointer != "" && !strings.Contains(a.body, `"pointer":"`+c.pointer+`"`) {
			t.Errorf("%s %s %.100s: %d, want %d at %q\n%s", c.method, c.path, c.body, a.status, c.status, c.pointer, a.body)
		}
	}
}

// Consecutive pages have no gap, also if rows are added between them. A cursor is only valid
// for its own listing.
func TestPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 5 {
		w.do(call{method: "POST", path: "/v1/plans", key: w.operator, body: fmt.Sprintf(`{"slug":"p%d","draft":{"name":"P"}}`, i)})
	}
	var slugs []string
	var cursor string
	path := "/v1/plans?limit=3&q=p"
	for path != "" {
		a := w.do(call{method: "GET", path: path, key: w.operator})
		var page struct {
			Data       []struct{ Slug string }
			HasMore    bool   `json:"has_more"`
			NextCursor string `json:"next_cursor"`
		}
		must(t, json.Unmarshal([]byte(a.body), &page))
		for _, p := range page.Data {
			slugs = append(slugs, p.Slug)
		}
		link := a.header.Get("Link")
		if page.HasMore != (page.NextCursor != "") || page.HasMore != strings.HasSuffix(link, `>; rel="next"`) {
			t.Fatalf("%s %q", a.body, link)
		}
		if page.HasMore {
			cursor = page.NextCursor
			w.do(call{method: "POST", path: "/v1/plans", key: w.operator, body: fmt.Sprintf(`{"slug":"q%d","draft":{"name":"Q"}}`, len(slugs))})
		}
		path = strings.TrimPrefix(strings.TrimSuffix(link, `>; rel="next"`), "<")
	}
	if got := strings.Join(slugs, " "); got != "pro p0 p1 p2 p3 p4" {
		t.Error(got)
	}
	for _, path := range []string{"/v1/plans?cursor=" + cursor, "/v1/plans?q=x&cursor=" + cursor, "/v1/tenants?q=p&cursor=" + cursor, "/v1/plans?q=p&cursor=" + cursor + "AA"} {
		if a := w.do(call{method: "GET", path: path, key: w.operator}); a.status != 400 {
			t.Error(path, a.status)
		}
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("PxV3nQ8zQm4yMDE5MzljMWU")
	f.Fuzz(func(t *testing.T, cursor string) {
		if err := api.Page(cursor); err != nil && !problem.Is(err, problem.Malformed) {
			t.Fatal(err)
		}
	})
}

// 404, 405, HEAD, and OPTIONS on every path.
func TestOutsideTheDocument(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/v1", 404, ""},
		{"GET", "/v1/nothing", 404, ""},
		{"POST", "/v1/check/", 404, ""},
		{"GET", "/v2/check", 404, ""},
		{"GET", "/v1/tenants/a/b/c", 404, ""},
		{"GET", "/v1/check", 405, "POST"},
		{"PATCH", "/v1/plans/pro", 405, "DELETE"},
		{"DELETE", "/readyz", 405, "GET"},
		{"BREW", "/v1/check", 405, "POST"},
		{"OPTIONS", "/v1/tenants", 204, "GET"},
		{"HEAD", "/v1/tenants", 200, ""},
		{"HEAD", "/openapi.yaml", 200, ""},
		{"HEAD", "/v1/tenants/nobody", 404, ""},
		{"HEAD", "/livez", 200, ""},
	} {
		a := w.do(call{method: c.method, path: c.path, key: w.operator})
		if a.status != c.status || c.allow != "" && !strings.Contains(a.header.Get("Allow"), c.allow) {
			t.Errorf("%s %s: %d, Allow %q", c.method, c.path, a.status, a.header.Get("Allow"))
		}
		if c.method == "HEAD" && a.status >= 400 && a.body != "" {
			t.Errorf("%s %s: a body", c.method, c.path)
		}
	}
	for _, path := range []string{"/v1/check", "/v1", "/livez", "/openapi.yaml"} {
		if !api.Serves(path) {
			t.Error(path)
		}
	}
	for _, path := range []string{"/", "/docs", "/v1x", "/admin/plans"} {
		if api.Serves(path) {
			t.Error(path)
		}
	}
}

// A panic, and an error without a kind, get status 500 with a request ID. They are logged once,
// and the response does not contain the cause.
func TestInternalErrors(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	for _, breakIt := range []func(*api.Config){
		func(c *api.Config) { c.Audit = nil },
		func(c *api.Config) { c.Audit = brokenAudit{errors.New("secret cause")} },
	} {
		logged.Reset()
		w := newWorld(t, breakIt, func(c *api.Config) { c.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
		a := w.do(call{method: "GET", path: "/v1/audit", key: w.operator, header: map[string]string{"X-Request-Id": "req-7"}})
		if a.status != 500 || !strings.Contains(a.body, `"request_id":"req-7"`) || strings.Contains(a.body, "secret") {
			t.Error(a)
		}
		if strings.Count(logged.String(), "req-7") != 1 || strings.Contains(logged.String(), w.operator) {
			t.Error(logged.String())
		}
	}
	w := newWorld(t, func(c *api.Config) {
		c.Audit = brokenAudit{problem.New(problem.Unavailable, "the database cannot be reached")}
	})
	if a := w.do(call{method: "GET", path: "/v1/audit", key: w.operator}); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Error(a)
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for id, echoed := range map[string]bool{"abc-1.2_3": true, strings.Repeat("a", 128): true, strings.Repeat("a", 129): false, "a b": false, "a\"b": false, "é": false} {
		a := w.do(call{method: "GET", path: "/livez", header: map[string]string{"X-Request-Id": id}})
		if got := a.header.Get("X-Request-Id"); (got == id) != echoed || got == "" {
			t.Errorf("%q gives %q", id, got)
		}
	}
}

// The audit log has the caller and the IP address.
func TestAuditNamesTheCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/tenants/acme/keys", strings.NewReader(`{"name":"n","scopes":["read"]}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+w.acme)
	r.Header.Set("X-Request-Id", "req-8")
	r.RemoteAddr = "[2001:db8::1]:5000"
	if a := w.send(r); a.status != 201 {
		t.Fatal(a)
	}
	lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Limit: 1})
	must(t, err)
	l := lines[0]
	if l.Actor.Kind != "tenant_key" || l.Actor.ID != w.ids["all"] && l.Actor.Name != "all" || l.Origin.RequestID != "req-8" || l.Origin.Address != "2001:db8::1" {
		t.Errorf("%+v", l)
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) {
		c.Ready = func(context.Context) api.Readiness {
			return api.Readiness{
				Checks: []api.ReadyCheck{{Name: "snapshot", OK: true}, {Name: "draining", Detail: "the node is stopping"}}, Degraded: true,
				Warnings: []string{"Redis may evict counters"}, Revision: 7,
			}
		}
	})
	if a := w.do(call{method: "GET", path: "/readyz"}); a.status != 503 || strings.TrimSpace(a.body) != `{"status":"not_ready","degraded":true}` {
		t.Error(a)
	}
	a := w.do(call{method: "GET", path: "/readyz?verbose"})
	if a.status != 503 || !strings.Contains(a.body, "may evict") || !strings.Contains(a.body, `"revision":7`) || !strings.Contains(a.body, "the node is stopping") {
		t.Error(a)
	}
	if a := w.do(call{method: "GET", path: "/readyz?verbose=maybe"}); a.status != 400 {
		t.Error(a)
	}
}

// The contract is served in YAML and in JSON, with the version of the program and an ETag.
func TestSpecIsServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Version = "v9.8.7-3-gabc: x" })
	var documents []any
	for _, path := range []string{"/openapi.yaml", "/openapi.json"} {
		a := w.do(call{method: "GET", path: path})
		if a.header.Get("ETag") == "" {
			t.Fatal(a.header)
		}
		b := w.do(call{method: "GET", path: path, header: map[string]string{"If-None-Match": a.header.Get("ETag")}})
		if b.status != http.StatusNotModified || b.body != "" {
			t.Error(b.status)
		}
		doc, err := openapi3.NewLoader().LoadFromData([]byte(a.body))
		must(t, err)
		if doc.Info.Version != "v9.8.7-3-gabc: x" {
			t.Errorf("%s: version %q", path, doc.Info.Version)
		}
		text, err := json.Marshal(doc)
		must(t, err)
		var document any
		must(t, json.Unmarshal(text, &document))
		documents = append(documents, document)
	}
	if !reflect.DeepEqual(documents[0], documents[1]) {
		t.Error("/openapi.json is not /openapi.yaml")
	}
}

// brokenAudit is a log that cannot be read.
type brokenAudit struct{ err error }

func (b brokenAudit) AuditEntries(context.Context, audit.Filter) ([]audit.Entry, error) {
	return nil, b.err
}

// A panic in the middle of a response closes the connection, so that the client does not take a
// part of the response for the whole.
func TestPanicInTheMiddleOfAnAnswer(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	w := newWorld(t, func(c *api.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		c.MetricsPublic = true
		c.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("half of"))
			panic("broken")
		})
	})
	rec := httptest.NewRecorder()
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) || rec.Body.String() != "half of" || !strings.Contains(logged.String(), "broken") {
			t.Errorf("%v, %q, log %s", err, rec.Body, &logged)
		}
	}()
	w.api.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
}

// A key shows which key created it. If asked, its revocation also revokes the keys that it
// created, directly or through other keys, in all tenants, with an audit line each. No
// other key changes.
func TestRevokeWhatAKeyCreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	type issued struct {
		Token string
		Key   struct {
			ID        string
			CreatedBy string `json:"created_by"`
		}
	}
	issue := func(key, path string) (made issued) {
		t.Helper()
		got := w.do(call{method: "POST", path: path, key: key, body: `{"name":"k","scopes":["manage"]}`})
		if got.status != 201 {
			t.Fatalf("%s: %d %s", path, got.status, got.body)
		}
		must(t, json.Unmarshal([]byte(got.body), &made))
		return made
	}
	const operators, acme = "/v1/operator-keys", "/v1/tenants/acme/keys"
	root := w.operatorKey(t.Context(), "root", tenants.ScopeManage)
	must(t, w.watcher.Refresh(t.Context()))
	leaked := issue(root, operators)
	child, beside := issue(leaked.Token, operators), issue(root, operators)
	grandchild, other := issue(child.Token, acme), issue(beside.Token, acme)
	greatGrandchild := issue(grandchild.Token, acme)
	if child.Key.CreatedBy != leaked.Key.ID || grandchild.Key.CreatedBy != child.Key.ID || greatGrandchild.Key.CreatedBy != grandchild.Key.ID {
		t.Errorf("created by %q, %q, %q", child.Key.CreatedBy, grandchild.Key.CreatedBy, greatGrandchild.Key.CreatedBy)
	}
	if got := w.do(call{path: acme + "/" + grandchild.Key.ID, key: root}); !strings.Contains(got.body, `"created_by":"`+child.Key.ID+`"`) {
		t.Errorf("read: %s", got.body)
	}
	works := func(what string, k issued, want bool) {
		t.Helper()
		if got := w.do(call{path: acme, key: k.Token}); (got.status == 200) != want {
			t.Errorf("%s: %d, works should be %v", what, got.status, want)
		}
	}
	revoke := func(path, query string, want int) {
		t.Helper()
		if got := w.do(call{method: "DELETE", path: path + query, key: root}); got.status != want {
			t.Errorf("revoke %s%s: %d %s", path, query, got.status, got.body)
		}
	}
	revoke(operators+"/"+leaked.Key.ID, "?with_created=perhaps", 400)
	revoke(operators+"/"+leaked.Key.ID, "", 200)
	works("leaked", leaked, false)
	works("its child, not asked for", child, true)
	for range 2 { // also if the key is already revoked; a repetition changes nothing
		revoke(operators+"/"+leaked.Key.ID, "?with_created=true", 200)
		works("child", child, false)
		works("grandchild", grandchild, false)
		works("great-grandchild", greatGrandchild, false)
		works("the other's key", other, true)
		works("the other", beside, true)
	}
	lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Limit: 100})
	must(t, err)
	revoked := map[string]int{}
	for _, l := range lines {
		if strings.HasSuffix(l.Action, "key.revoke") {
			revoked[l.Object]++
		}
	}
	want := map[string]int{leaked.Key.ID: 1, child.Key.ID: 1, grandchild.Key.ID: 1, greatGrandchild.Key.ID: 1}
	if !maps.Equal(revoked, want) {
		t.Errorf("audit lines %v, want %v", revoked, want)
	}
	revoke(acme+"/"+other.Key.ID, "?with_created=true", 200)
	works("the other's key, revoked by its tenant", other, false)
}

// A key cannot create or rotate a key with a scope that it does not have.
func TestKeysIssueNoMoreThanTheyHave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := w.operatorKey(t.Context(), "root", tenants.ScopeCheck, tenants.ScopeManage)
	must(t, w.watcher.Refresh(t.Context()))
	issue := func(key, path, scopes string) answer {
		return w.do(call{method: "POST", path: path, key: key, body: `{"name":"k","scopes":` + scopes + `}`})
	}
	token := func(a answer) (made struct {
		Token string
		Key   struct{ ID string }
	},
	) {
		t.Helper()
		must(t, json.Unmarshal([]byte(a.body), &made))
		return made
	}
	for _, path := range []string{"/v1/tenants/acme/keys", "/v1/operator-keys"} {
		all := token(issue(root, path, `["check","manage"]`))
		manager := token(issue(all.Token, path, `["manage"]`))
		for scopes, want := range map[string]int{`["check"]`: 403, `["check","manage"]`: 403, `["read"]`: 201, `["manage"]`: 201, `["admin"]`: 422} {
			if got := issue(manager.Token, path, scopes); got.status != want {
				t.Errorf("%s, %s: %d %s", path, scopes, got.status, got.body)
			}
		}
		if got := w.do(call{method: "POST", path: path + "/" + all.Key.ID + "/rotate", key: manager.Token, body: `{}`}); got.status != 403 {
			t.Errorf("%s: rotated: %d %s", path, got.status, got.body)
		}
	}
}

// A key that expires extends no access: it creates and rotates no key that expires later.
func TestExpiringKeysIssueNoLaterOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := w.operatorKey(t.Context(), "root", tenants.ScopeCheck, tenants.ScopeManage)
	must(t, w.watcher.Refresh(t.Context()))
	now := w.clock()
	issue := func(key, path string, life time.Duration) answer {
		body := `{"name":"k","scopes":["manage"]}`
		if life != 0 {
			body = `{"name":"k","scopes":["manage"],"expires_at":"` + now.Add(life).Format(time.RFC3339) + `"}`
		}
		return w.do(call{method: "POST", path: path, key: key, body: body})
	}
	for _, path := range []string{"/v1/tenants/acme/keys", "/v1/operator-keys"} {
		var expiring, forever, short struct {
			Token string
			Key   struct{ ID string }
		}
		must(t, json.Unmarshal([]byte(issue(root, path, time.Hour).body), &expiring))
		must(t, json.Unmarshal([]byte(issue(root, path, 0).body), &forever))
		must(t, json.Unmarshal([]byte(issue(root, path, time.Minute).body), &short))
		for life, want := range map[time.Duration]int{0: 403, time.Hour + time.Second: 403, time.Hour: 201, time.Minute: 201} {
			got := issue(expiring.Token, path, life)
			if got.status != want || want == 403 && !strings.Contains(got.body, `"pointer":"/expires_at"`) {
				t.Errorf("%s for %v: %d %s", path, life, got.status, got.body)
			}
		}
		w.now.Add(time.Second.Microseconds())
		for id, want := range map[string]int{forever.Key.ID: 403, expiring.Key.ID: 403, short.Key.ID: 201} {
			got := w.do(call{method: "POST", path: path + "/" + id + "/rotate", key: expiring.Token, body: `{}`})
			if got.status != want || want == 403 && !strings.Contains(got.body, "expires_at") {
				t.Errorf("%s rotated: %d %s", path, got.status, got.body)
			}
		}
		if got := issue(forever.Token, path, 0); got.status != 201 {
			t.Errorf("%s with a key that does not expire: %d %s", path, got.status, got.body)
		}
	}
}
