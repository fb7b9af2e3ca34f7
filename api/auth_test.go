package api_test

import (
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
