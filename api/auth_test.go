package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
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

// Authentication and authorization of a check allocate no memory.
func TestAuthorizingAllocatesNothing(t *testing.T) {
	w := newWorld(t)
	k, bound, err := w.tenants.CreateKey(t.Context(), "acme", tenants.NewKey{
		Name: "bound", Scopes: []tenants.Scope{tenants.ScopeCheck}, AllowedIPs: []string{"10.0.0.0/8", "2001:db8::/32", "192.0.2.0/24"},
	})
	must(t, err)
	if len(k.AllowedIPs) != 3 {
		t.Fatal(k.AllowedIPs)
	}
	must(t, w.watcher.Refresh(t.Context()))
	for _, key := range []string{w.operator, w.acmeCheck, bound} {
		ask := w.api.Asking(w.request(call{method: "POST", path: "/v1/check", key: key}), accounts.Check)
		if n := testing.AllocsPerRun(200, func() { must(t, ask()) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// A tenant key gets the same 403 for any other tenant, whether that tenant exists or not.
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

// A denied action of a key writes one line to the audit log of its tenant. Repeated actions
// of one kind share a line.
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
		w.do(call{method: "GET", path: "/v1/plans", key: w.operator})                                     // allowed
		w.do(call{method: "GET", path: "/v1/plans"})                                                      // no key
		w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: `{"tenant":"globex"}`})       // rejected in a decision
		w.do(call{method: "GET", path: "/v1/tenants/" + strings.Repeat("x", 500) + "/keys", key: w.acme}) // too long: the line is cut
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
	if a := w.do(call{method: "GET", path: "/v1/tenants", key: key}); a.status != 401 || !strings.Contains(a.body, "the bootstrap key ended") {
		t.Error("while an operator key exists:", a)
	}
	w = newWorld(t, func(c *api.Config) {
		c.BootstrapKey = key
		c.Snapshot = func() *snapshot.Snapshot { return empty }
	})
	if a := w.do(call{method: "GET", path: "/v1/tenants", key: key}); a.status != 200 {
		t.Error("without one:", a)
	}
	if a := w.do(call{method: "GET", path: "/v1/tenants", key: key + "b"}); a.status != 401 || strings.Contains(a.body, "bootstrap") {
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

// A key with bounds cannot send a check outside of them and cannot create a key with wider
// ones. In a batch, only that check gets the error; an atomic batch is rejected.
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

// A key with allowed addresses works only from these, on every path. A rejected request
// gets 403 with a code and without an address, writes an audit line, and does not count as
// a use of the key.
func TestKeyAddresses(t *testing.T) {
	t.Parallel()
	var refusals *accounts.DeniedAccessLog
	w := newWorld(t, func(c *api.Config) {
		c.Refusals = accounts.NewDeniedAccessLog(c.Audit.(*store.Store), accounts.DeniedAccessConfig{})
		refusals = c.Refusals
		c.TrustedProxy = func(*http.Request) bool { return true }
		c.ClientIP = func(r *http.Request) netip.Addr { at, _ := netip.ParseAddr(r.Header.Get("X-Forwarded-For")); return at }
	})
	a := w.do(call{
		method: "POST", path: "/v1/tenants/acme/keys", key: w.acme,
		body: `{"name":"k","scopes":["check","manage"],"allowed_ips":["203.0.113.9/24","::ffff:198.51.100.7"]}`,
	})
	if !strings.Contains(a.body, `"allowed_ips":["203.0.113.0/24","198.51.100.7"]`) {
		t.Fatal(a.status, a.body)
	}
	var made struct {
		Token string
		Key   struct{ ID string }
	}
	must(t, json.Unmarshal([]byte(a.body), &made))
	uses := func() int {
		n := 0
		for _, u := range w.watcher.Current().KeyUses(time.Time{}) {
			if u.ID == made.Key.ID {
				n++
			}
		}
		return n
	}
	calls := []call{
		{method: "POST", path: "/v1/check", body: `{"method":"POST","path":"/v1/login"}`},
		{method: "POST", path: "/v1/check/batch", body: `{"checks":[{"method":"POST","path":"/v1/login"}]}`},
		{method: "GET", path: "/v1/tenants/acme/keys"},
	}
	for _, from := range []string{"203.0.114.1", "198.51.100.8", "2001:db8::1", "", "unknown"} {
		for _, c := range calls {
			c.key, c.header = made.Token, map[string]string{"X-Forwarded-For": from}
			a := w.do(c)
			if a.status != http.StatusForbidden || !strings.Contains(a.body, `"code":"key_address"`) || strings.Contains(a.body, "203.0") {
				t.Errorf("%s from %q: %d %s", c.path, from, a.status, a.body)
			}
		}
	}
	if n := uses(); n != 0 {
		t.Errorf("%d uses of a key that was refused", n)
	}
	must(t, refusals.Flush(t.Context()))
	if a := w.do(call{method: "GET", path: "/v1/audit?tenant=acme", key: w.operator}); !strings.Contains(a.body, made.Key.ID) {
		t.Errorf("audit of acme: %s", a.body)
	}
	for _, from := range []string{"203.0.113.1", "::ffff:203.0.113.255", "198.51.100.7"} {
		for _, c := range calls {
			c.key, c.header = made.Token, map[string]string{"X-Forwarded-For": from}
			if a := w.do(c); a.status != http.StatusOK {
				t.Errorf("%s from %q: %d %s", c.path, from, a.status, a.body)
			}
		}
	}
	if n := uses(); n != 1 {
		t.Errorf("%d uses of the key", n)
	}
	// The proxy has the key of forward-auth, so that the address of its client does not matter. Requests of tests come
	// from 192.0.2.1.
	forward := func(key string) answer {
		return w.do(call{method: "GET", path: "/v1/forward-auth", key: key, header: map[string]string{
			"X-Forwarded-For": "203.0.113.1", "X-Forwarded-Method": "POST", "X-Forwarded-Uri": "/v1/login",
		}})
	}
	if a := forward(made.Token); a.status != http.StatusForbidden || !strings.Contains(a.body, `"code":"key_address"`) {
		t.Errorf("forward-auth of another proxy: %d %s", a.status, a.body)
	}
	_, proxy, err := w.tenants.CreateKey(t.Context(), "acme", tenants.NewKey{
		Name: "proxy", Scopes: []tenants.Scope{tenants.ScopeCheck}, AllowedIPs: []string{"192.0.2.1"},
	})
	must(t, err)
	must(t, w.watcher.Refresh(t.Context()))
	if a := forward(proxy); a.status != http.StatusOK {
		t.Errorf("forward-auth of the proxy: %d %s", a.status, a.body)
	}
	for from, ok := range map[string]bool{"203.0.113.1": true, "203.0.114.1": false} {
		if _, err := w.api.CallerOf(made.Token, netip.MustParseAddr(from)); (err == nil) != ok {
			t.Errorf("another protocol from %s: %v", from, err)
		}
	}
}

// A key with addresses makes and rotates no key with more, and wrong entries are named.
func TestKeyAddressesAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	issue := func(key, members string) (answer, string) {
		a := w.do(call{method: "POST", path: "/v1/tenants/acme/keys", key: key, body: `{"name":"k","scopes":["manage"]` + members + `}`})
		var made struct{ Token string }
		if a.status == http.StatusCreated {
			must(t, json.Unmarshal([]byte(a.body), &made))
		}
		return a, made.Token
	}
	_, bound := issue(w.acme, `,"allowed_ips":["192.0.2.0/24"]`)
	for _, c := range []struct {
		key, members string
		status       int
		says         string
	}{
		{bound, "", 403, "allowed_ips"},
		{bound, `,"allowed_ips":["192.0.2.0/23"]`, 403, "allowed_ips"},
		{bound, `,"allowed_ips":["192.0.2.1","10.0.0.1"]`, 403, "allowed_ips"},
		{bound, `,"allowed_ips":["192.0.2.1","192.0.2.128/25"]`, 201, ""},
		{bound, `,"allowed_ips":["x"]`, 422, `"pointer":"/allowed_ips/0"`},
		{w.acme, `,"allowed_ips":[]`, 201, ""}, // the default: all addresses
		{bound, `,"allowed_ips":[]`, 403, "allowed_ips"},
		{w.acme, `,"allowed_ips":["10.0.0.1","10.0.0.2","10.0.0.300"]`, 422, `"pointer":"/allowed_ips/2"`},
		{w.acme, `,"allowed_ips":["fe80::1%eth0"]`, 422, `"pointer":"/allowed_ips/0"`},
		{w.acme, `,"allowed_ips":["10.0.0.1",7]`, 400, `"pointer":"/allowed_ips/1"`},
		{w.acme, `,"allowed_ips":"10.0.0.1"`, 400, `"pointer":"/allowed_ips"`},
	} {
		if a, _ := issue(c.key, c.members); a.status != c.status || !strings.Contains(a.body, c.says) {
			t.Errorf("a key with %s: %d %s", c.members, a.status, a.body)
		}
	}
	rotate := func(key, id string) answer {
		return w.do(call{method: "POST", path: "/v1/tenants/acme/keys/" + id + "/rotate", key: key})
	}
	k, _, err := w.tenants.CreateKey(t.Context(), "acme", tenants.NewKey{
		Name: "n", Scopes: []tenants.Scope{tenants.ScopeManage}, AllowedIPs: []string{"10.0.0.0/8"},
	})
	must(t, err)
	if a := rotate(bound, k.ID); a.status != http.StatusForbidden {
		t.Errorf("rotated a key of other addresses: %d %s", a.status, a.body)
	}
	if a := rotate(w.acme, k.ID); a.status != http.StatusCreated || !strings.Contains(a.body, `"allowed_ips":["10.0.0.0/8"]`) {
		t.Errorf("rotated: %d %s", a.status, a.body)
	}
}
