package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/tenants"
)

var placeholders = regexp.MustCompile(`:[a-z]+`)

// Who it is and whether it may costs a check no allocation.
func TestAuthorizingAllocatesNothing(t *testing.T) {
	w := newWorld(t)
	for _, key := range []string{w.operator, w.acmeCheck} {
		ask := w.api.Asking(w.request(call{method: "POST", path: "/v1/check", key: key}), accounts.Check)
		if n := testing.AllocsPerRun(200, func() { must(t, ask()) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// Another tenant, real or not, is the same 403, whatever is asked.
func TestForeignTenantsAreAlike(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	globex, err := w.tenants.Tenant(t.Context(), "globex")
	must(t, err)
	id := map[string]string{"X-Request-Id": "same"}
	var first string
	for _, name := range []string{"globex", globex.ID, "nobody", "ACME", "01939c1e-0000-7000-8000-00000000ffff"} {
		for _, c := range []call{
			{method: "POST", path: "/v1/check", body: `{"tenant":"` + name + `"}`},
			{method: "GET", path: "/v1/tenants/" + name},
			{method: "GET", path: "/v1/tenants/" + name + "/keys"},
			{method: "GET", path: "/v1/audit?tenant=" + name},
		} {
			c.key, c.header = w.acme, id
			a := w.do(c)
			if first == "" {
				first = a.body
			}
			if a.status != http.StatusForbidden || a.body != first {
				t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, a.status, a.body)
			}
		}
	}
	if a := w.do(call{method: "GET", path: "/v1/audit", key: w.acme}); strings.Contains(a.body, globex.ID) || !strings.Contains(a.body, "acme") {
		t.Errorf("audit of acme: %s", a.body)
	}
}

// What a key may not do leaves a line in the audit log, one for all that are
// alike, under its own tenant.
func TestRefusedKeysLeaveALine(t *testing.T) {
	t.Parallel()
	var refusals *accounts.DeniedAccessLog
	w := newWorld(t, func(c *api.Config) {
		c.Refusals = accounts.NewDeniedAccessLog(c.Audit.(*store.Store), accounts.DeniedAccessConfig{})
		refusals = c.Refusals
	})
	for range 3 {
		w.do(call{method: "POST", path: "/v1/check", key: w.acme, body: `{"tenant":"globex"}`})
		w.do(call{method: "GET", path: "/v1/tenants/globex/keys", key: w.acme})
		w.do(call{method: "GET", path: "/v1/audit?tenant=globex", key: w.acme})
		w.do(call{method: "GET", path: "/v1/plans", key: w.acme})
		w.do(call{method: "GET", path: "/v1/plans", key: w.operatorCheck})
		w.do(call{method: "GET", path: "/v1/plans", key: w.operator})                                     // may
		w.do(call{method: "GET", path: "/v1/plans"})                                                      // nobody
		w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: `{"tenant":"globex"}`})       // a decision
		w.do(call{method: "GET", path: "/v1/tenants/" + strings.Repeat("x", 500) + "/keys", key: w.acme}) // cut
	}
	must(t, refusals.Flush(t.Context()))
	lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Action: "access.refused", Limit: 100})
	must(t, err)
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprint(l.Actor.Kind, " ", l.TenantID != "", " ", l.ObjectName, " ", string(l.After)))
		if l.Origin.RequestID == "" || l.Origin.Address != "192.0.2.1" {
			t.Errorf("%+v", l)
		}
	}
	slices.Sort(got)
	want := []string{
		`operator_key false GET /v1/plans {"action":"plans.read","route":"GET /v1/plans","count":3}`,
		`tenant_key true GET /v1/audit {"action":"tenant.read","route":"GET /v1/audit","tenant":"globex","count":3}`,
		`tenant_key true GET /v1/plans {"action":"plans.read","route":"GET /v1/plans","count":3}`,
		`tenant_key true GET /v1/tenants/:tenant/keys {"action":"keys.read","route":"GET /v1/tenants/:tenant/keys","tenant":"` + strings.Repeat("x", 64) + `","count":3}`,
		`tenant_key true GET /v1/tenants/:tenant/keys {"action":"keys.read","route":"GET /v1/tenants/:tenant/keys","tenant":"globex","count":3}`,
		`tenant_key true POST /v1/check {"action":"check","route":"POST /v1/check","count":3}`,
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestKeysEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.do(call{method: "POST", path: "/v1/tenants/acme/keys", key: w.operator, body: `{"name":"n","scopes":["check"],"expires_at":"2026-11-21T10:00:00Z"}`})
	token := between(a.body, `"token":"`, `"`)
	ask := call{method: "POST", path: "/v1/check", key: token, body: `{"mode":"peek"}`}
	if a := w.do(ask); a.status != 200 {
		t.Fatal(a)
	}
	w.now.Add(time.Hour.Microseconds())
	if a := w.do(ask); a.status != 401 {
		t.Error("expired:", a)
	}
	w.do(call{method: "DELETE", path: "/v1/tenants/acme/keys/" + w.ids["gateway"], key: w.operator})
	ask.key = w.acmeCheck
	if a := w.do(ask); a.status != 401 {
		t.Error("revoked:", a)
	}
}

func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

func TestBootstrapKey(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("b", 32)
	empty, _ := snapshot.Compile(nil, snapshot.Changes{}, snapshot.Options{})
	w := newWorld(t, func(c *api.Config) { c.BootstrapKey = key })
	if a := w.do(call{method: "GET", path: "/v1/tenants", key: key}); a.status != 401 {
		t.Error("while an operator key exists:", a)
	}
	w = newWorld(t, func(c *api.Config) {
		c.BootstrapKey = key
		c.Snapshot = func() *snapshot.Snapshot { return empty }
	})
	if a := w.do(call{method: "GET", path: "/v1/tenants", key: key}); a.status != 200 {
		t.Error("without one:", a)
	}
	if a := w.do(call{method: "GET", path: "/v1/tenants", key: key + "b"}); a.status != 401 {
		t.Error("another one:", a)
	}
}

func TestBeforeTheFirstSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Snapshot = func() *snapshot.Snapshot { return nil } })
	if a := w.do(call{method: "POST", path: "/v1/check", key: w.acme, body: `{}`}); a.status != 503 {
		t.Error(a)
	}
	if a := w.do(call{method: "GET", path: "/readyz?verbose", key: ""}); a.status != 503 || !strings.Contains(a.body, "not_ready") {
		t.Error(a)
	}
	if a := w.do(call{method: "GET", path: "/livez"}); a.status != 200 {
		t.Error(a)
	}
}

func TestAuthorizationForms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for header, status := range map[string]int{
		"Bearer " + w.acme: 200, "bearer " + w.acme: 200, "Bearer  " + w.acme: 401, "Bearer" + w.acme: 401, w.acme: 401,
		"Basic " + w.acme: 401, "Bearer": 401, "Bearer ": 401, "Bearer " + w.acme + " ": 401, "Bearer " + strings.Repeat("a", 5000): 401,
		"Bearer " + strings.ToUpper(w.acme): 401,
	} {
		a := w.do(call{method: "POST", path: "/v1/check", body: `{"mode":"peek"}`, header: map[string]string{"Authorization": header}})
		if a.status != status {
			t.Errorf("%.40q: %d", header, a.status)
		}
	}
}

func FuzzAuthorization(f *testing.F) {
	f.Add("Bearer hg_op_0000000000000000000000000000000000000000000000000")
	f.Add("Bearer " + tenants.NewToken(tenants.TenantToken))
	f.Fuzz(func(t *testing.T, header string) {
		token, ok := api.Bearer([]string{header})
		if ok && (token == "" || len(token) > 128 || !strings.HasSuffix(header, token)) {
			t.Fatalf("%q gives %q", header, token)
		}
		tenants.WellFormed(token)
	})
}

// A key with bounds sends no check beyond them, and makes no key with wider ones. A batch
// answers such a check for itself; an atomic batch is refused.
func TestKeyBounds(t *testing.T) {
	t.Parallel()
	w := newStrictWorld(t)
	issue := func(key, members string) (answer, string) {
		a := w.do(call{method: "POST", path: "/v1/tenants/acme/keys", key: key, body: `{"name":"k","scopes":["check","manage"]` + members + `}`})
		var made struct{ Token string }
		if a.status == http.StatusCreated {
			must(t, json.Unmarshal([]byte(a.body), &made))
		}
		return a, made.Token
	}
	a, cheap := issue(w.acme, `,"max_cost":2`)
	if !strings.Contains(a.body, `"max_cost":2`) || strings.Contains(a.body, "peek_only") {
		t.Fatal(a.body)
	}
	a, peeks := issue(w.acme, `,"peek_only":true`)
	if !strings.Contains(a.body, `"peek_only":true`) {
		t.Fatal(a.body)
	}
	check := func(members string) string { return `{"method":"POST","path":"/v1/login"` + members + `}` }
	for _, c := range []struct {
		key, path, body string
		status          int
		code            string
	}{
		{cheap, "/v1/check", check(`,"cost":2`), 200, ""},
		{cheap, "/v1/check", check(`,"cost":3`), 403, "key_max_cost"},
		{cheap, "/v1/check", check(`,"cost":3,"mode":"force"`), 403, "key_max_cost"},
		{cheap, "/v1/check/batch", `{"atomic":true,"checks":[` + check("") + `,` + check(`,"cost":3`) + `]}`, 403, "key_max_cost"},
		{peeks, "/v1/check", check(`,"mode":"peek"`), 200, ""},
		{peeks, "/v1/check", check(""), 403, "key_peek_only"},
		{peeks, "/v1/check", check(`,"mode":"force"`), 403, "key_peek_only"},
	} {
		a := w.do(call{method: "POST", path: c.path, key: c.key, body: c.body})
		if a.status != c.status || c.code != "" && !strings.Contains(a.body, `"code":"`+c.code+`"`) {
			t.Errorf("%s %s: %d %s", c.path, c.body, a.status, a.body)
		}
	}
	batch := w.do(call{method: "POST", path: "/v1/check/batch", key: cheap, body: `{"checks":[` + check(`,"cost":3`) + `,` + check("") + `,` + check(`,"cost":4`) + `]}`})
	if statuses := regexp.MustCompile(`"status":\d+`).FindAllString(batch.body, -1); fmt.Sprint(statuses) != `["status":403 "status":200 "status":403]` {
		t.Errorf("%s", batch.body)
	}
	for _, c := range []struct {
		key, members string
		status       int
	}{
		{cheap, "", 403},
		{cheap, `,"max_cost":3`, 403},
		{cheap, `,"max_cost":2`, 201},
		{cheap, `,"max_cost":1,"peek_only":true`, 201},
		{peeks, `,"max_cost":1`, 403},
		{peeks, `,"peek_only":true`, 201},
		{w.acme, `,"max_cost":2147483648`, 422},
		{w.acme, `,"max_cost":0`, 422},
		{w.acme, `,"max_cost":-1`, 422},
	} {
		if a, _ := issue(c.key, c.members); a.status != c.status {
			t.Errorf("a key with %s: %d %s", c.members, a.status, a.body)
		}
	}
	k, _, err := w.tenants.CreateKey(t.Context(), "acme", tenants.NewKey{Name: "n", Scopes: []tenants.Scope{tenants.ScopeCheck}, Bounds: tenants.Bounds{MaxCost: 3}})
	must(t, err)
	if a := w.do(call{method: "POST", path: "/v1/tenants/acme/keys/" + k.ID + "/rotate", key: cheap}); a.status != http.StatusForbidden {
		t.Errorf("rotate a wider key: %d %s", a.status, a.body)
	}
	if a := w.do(call{method: "POST", path: "/v1/tenants/acme/keys/" + k.ID + "/rotate", key: w.acme}); a.status != http.StatusCreated || !strings.Contains(a.body, `"max_cost":3`) {
		t.Errorf("rotate: %d %s", a.status, a.body)
	}
}
