package main

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// asked sends a forward-auth request for GET /v1/items/1 and returns the response.
func asked(t *testing.T, node *running, key, query string, header ...string) answer {
	t.Helper()
	proxy := []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/v1/items/1", "X-Forwarded-For", "203.0.113.9"}
	return call(t, key, "GET", node.origin+"/v1/forward-auth?"+query, "", append(proxy, header...)...)
}

// tenantIn returns the tenant of a decision.
func tenantIn(t *testing.T, a answer) string {
	t.Helper()
	var d struct{ Tenant string }
	a.into(t, &d)
	return d.Tenant
}

// The host name or the API key of a customer selects the tenant. No other part of the client's
// request does.
func TestForwardAuthFindsTheTenant(t *testing.T) {
	t.Parallel()
	node, operator, key := forwardNode(t, "127.0.0.1/32")
	const customers = "customer-key-of-globex-0001"
	var issued struct {
		Token string
		Key   struct{ ID string }
	}
	call(t, operator, "POST", node.origin+"/v1/tenants/globex/keys", `{"name": "shop", "scopes": ["identify"], "token": "`+customers+`"}`).want(t, 201).into(t, &issued)
	if issued.Token != customers {
		t.Errorf("issued %q", issued.Token)
	}
	var own struct{ Token string }
	call(t, operator, "POST", node.origin+"/v1/tenants/acme/keys", `{"name": "new", "scopes": ["identify"]}`).want(t, 201).into(t, &own)
	const byHost, byKey = "tenant=host:*.api.example.com", "tenant=key:header:X-Api-Key"
	for _, c := range []struct {
		query  string
		header []string
		status int
		want   string // the tenant, or a part of the error
	}{
		{byHost, []string{"X-Forwarded-Host", "acme.api.example.com"}, 200, "acme"},
		{byHost, []string{"X-Forwarded-Host", "GLOBEX.API.example.com:8443"}, 200, "globex"},
		{"tenant=host:api-*.example.com", []string{"X-Forwarded-Host", "api-globex.example.com."}, 200, "globex"},
		{byHost, []string{"X-Forwarded-Host", "a.acme.api.example.com"}, 404, "no tenant has this host"},
		{byHost, []string{"X-Forwarded-Host", "acme.api.example.com.evil.example"}, 404, "no tenant has this host"},
		{byHost, []string{"X-Forwarded-Host", "acme.evil.example/.api.example.com"}, 404, "no tenant has this host"},
		{byHost, []string{"X-Forwarded-Host", "none.api.example.com"}, 404, "no such tenant"},
		{byHost, nil, 400, `"pointer":"X-Forwarded-Host"`},
		{byHost, []string{"X-Forwarded-Host", "acme.api.example.com", "X-Forwarded-Host", "globex.api.example.com"}, 400, `"pointer":"X-Forwarded-Host"`},
		{"tenant=host:api.example.com", []string{"X-Forwarded-Host", "acme.api.example.com"}, 400, `"pointer":"tenant"`},
		{byKey, []string{"X-Api-Key", customers}, 200, "globex"},
		{byKey, []string{"X-Api-Key", "Bearer " + customers}, 200, "globex"},
		{"tenant=key:cookie:key", []string{"Cookie", "key=" + customers}, 200, "globex"},
		{byKey, []string{"X-Api-Key", own.Token}, 200, "acme"},
		{byKey, []string{"X-Api-Key", key}, 401, `"code":"customer_key"`}, // a key with the scope check
		{byKey, []string{"X-Api-Key", customers + `","tenant":"acme`}, 401, `"code":"customer_key"`},
		{byKey, []string{"X-Api-Key", customers, "X-Api-Key", own.Token}, 400, `"pointer":"X-Api-Key"`},
		{byKey, nil, 401, `"code":"customer_key"`},
		{"tenant=key:query:key", nil, 400, `"pointer":"tenant"`},
	} {
		a := asked(t, node, operator, c.query, append(c.header, "X-Tenant", "other", "X-Original-Host", "other.api.example.com")...)
		if a.status != c.status || a.status == 200 && tenantIn(t, a) != c.want || a.status != 200 && !strings.Contains(a.body, c.want) || strings.Contains(a.body, customers) {
			t.Errorf("%s %q: %d %s, want %d %s", c.query, c.header, a.status, a.body, c.status, c.want)
		}
	}
	if a := asked(t, node, key, byKey, "X-Api-Key", customers); a.status != 403 {
		t.Errorf("the key of another tenant: %d %s", a.status, a.body)
	}
	kong := []string{
		"X-Forwarded-Method", "GET", "X-Forwarded-Path", "/v1/items/1", "X-Forwarded-For", "203.0.113.9", "X-Forwarded-Host", "acme.example.com",
		"X-Forwarded-Uri", "/free",
	}
	if a := call(t, operator, "GET", node.origin+"/v1/forward-auth?headers=kong&tenant=host:*.example.com", "", kong...); a.status != 200 || tenantIn(t, a) != "acme" {
		t.Errorf("kong: %d %s", a.status, a.body)
	}

	// A customer key cannot be used for anything else, and can be revoked.
	call(t, own.Token, "GET", node.origin+"/v1/tenants/acme", "").want(t, 403)
	call(t, own.Token, "POST", node.origin+"/v1/check", `{"method": "GET", "path": "/"}`).want(t, 403)
	call(t, customers, "GET", node.origin+"/v1/tenants/globex", "").want(t, 401)
	call(t, operator, "DELETE", node.origin+"/v1/tenants/globex/keys/"+issued.Key.ID, "").want(t, 200)
	if a := asked(t, node, operator, byKey, "X-Api-Key", customers); a.status != 401 {
		t.Errorf("after the revocation: %d %s", a.status, a.body)
	}
	for body, want := range map[string]string{
		`{"name": "n", "scopes": ["identify", "check"]}`:                                      `"pointer":"/scopes"`,
		`{"name": "n", "scopes": ["check"], "token": "0123456789abcdef"}`:                     `"pointer":"/token"`,
		`{"name": "n", "scopes": ["identify"], "token": "short"}`:                             `"pointer":"/token"`,
		`{"name": "n", "scopes": ["identify"], "token": "with blanks 0123456789"}`:            `"pointer":"/token"`,
		`{"name": "n", "scopes": ["identify"], "token": "` + customers + `"}`:                 `"code":"key_exists"`,
		`{"name": "n", "scopes": ["identify"], "token": "` + strings.Repeat("x", 5000) + `"}`: `"pointer":"/token"`,
	} {
		a := call(t, operator, "POST", node.origin+"/v1/tenants/acme/keys", body)
		if a.status < 400 || a.status >= 500 || !strings.Contains(a.body, want) {
			t.Errorf("%.80s: %d %s, want %s", body, a.status, a.body, want)
		}
	}
	if a := call(t, operator, "POST", node.origin+"/v1/operator-keys", `{"name": "n", "scopes": ["identify"]}`); a.status != 422 {
		t.Errorf("an operator's key: %d %s", a.status, a.body)
	}
	if text, _ := node.logs.read(); strings.Contains(text, customers) {
		t.Error("the log has the key of a customer")
	}
}

// unsigned returns a JWT without a signature.
func unsigned(claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(claims)) + "."
}

// Without keys, the claims of a JWT are used without verification.
func TestForwardAuthReadsClaims(t *testing.T) {
	t.Parallel()
	node, _, key := forwardNode(t, "127.0.0.1/32")
	const query = "jwt=header:X-Client-Authorization&attributes=user:claim:sub"
	left := func(token string) string {
		t.Helper()
		text, _, _ := strings.Cut(asked(t, node, key, query, "X-Client-Authorization", token, "X-Cost", "0").want(t, 200).header.Get("RateLimit"), ";t=")
		return text
	}
	for i, token := range []string{
		"Bearer " + unsigned(`{"sub": "u1"}`), unsigned(`{"sub": "u1", "tenant": "globex", "cost": 0, "mode": "peek"}`), "bearer " + unsigned(`{"sub": "u1"}`),
	} {
		if got, want := left(token), `"items";r=`+string(rune('9'-i)); got != want {
			t.Errorf("%s: %s, want %s", token, got, want)
		}
	}
	for _, sub := range []string{`12345678901234567890`, `true`, `"u1\",\"cost\":0,\"mode\":\"peek"`, `"u1,team:header:X"`, `"u1&cost=0"`} {
		if got := left(unsigned(`{"sub": ` + sub + `}`)); got != `"items";r=9` {
			t.Errorf("sub %s: %s: it is another user", sub, got)
		}
	}
	const header = "X-Client-Authorization"
	for _, c := range []struct {
		query  string
		header []string
		status int
		want   string
	}{
		{query, []string{header, "nonsense"}, 401, `"code":"invalid_jwt"`},
		{query, []string{header, "a.b.c"}, 401, `"code":"invalid_jwt"`},
		{query, []string{header, unsigned(`[1]`)}, 401, `"code":"invalid_jwt"`},
		{query, []string{header, strings.Repeat("x", 9<<10)}, 401, `"code":"invalid_jwt"`},
		{query, []string{header, unsigned(`{"sub": {"a": 1}}`)}, 400, "object or a list"},
		{query, []string{header, unsigned(`{"sub": "` + strings.Repeat("x", 2000) + `"}`)}, 400, `"pointer":"sub"`},
		{query, []string{header, unsigned(`{"sub": "u1"}`), header, unsigned(`{"sub": "u2"}`)}, 400, "more than once"},
		{"attributes=user:claim:sub", nil, 400, `"pointer":"jwt"`},
		{"jwt=header:X&attributes=user:claim:", nil, 400, `"pointer":"attributes"`},
	} {
		if a := asked(t, node, key, c.query, c.header...); a.status != c.status || !strings.Contains(a.body, c.want) {
			t.Errorf("%s %.60q: %d %s, want %d %s", c.query, c.header, a.status, a.body, c.status, c.want)
		}
	}
}

// With keys, only JWTs that are signed with one of them are used. internal/oidc tests the
// rotation of keys.
func TestForwardAuthVerifiesClaims(t *testing.T) {
	t.Parallel()
	keys := make([]*rsa.PrivateKey, 2) // the first is in the set
	for i := range keys {
		var err error
		if keys[i], err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			t.Fatal(err)
		}
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: keys[0].Public(), KeyID: "a", Algorithm: "RS256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	token := func(key int, kid, claims string) string {
		t.Helper()
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: keys[key]}, (&jose.SignerOptions{}).WithHeader("kid", kid))
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign([]byte(claims))
		if err != nil {
			t.Fatal(err)
		}
		text, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	good := `{"iss": "https://id.example.com", "aud": "api", "sub": "u1", "exp": 4102444800}`
	var loads atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		loads.Add(1)
		_, _ = w.Write(set)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(file, set, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{server.URL, file} {
		node := start(t, map[string]string{
			"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_TRUSTED_PROXIES": "127.0.0.1/32",
			"HEADGATE_SAMPLE": "false", "HEADGATE_JWT_KEYS": source, "HEADGATE_JWT_ISSUER": "https://id.example.com", "HEADGATE_JWT_AUDIENCE": "api",
		})
		made := call(t, bootstrap, "POST", node.origin+"/v1/plans", `{"slug": "pro", "draft": {"name": "Pro", "policies": `+forwardPolicies+`}}`).want(t, 201)
		call(t, bootstrap, "POST", node.origin+"/v1/plans/pro/publish", "", "If-Match", made.header.Get("ETag")).want(t, 200)
		call(t, bootstrap, "POST", node.origin+"/v1/tenants", `{"slug": "acme", "tenant": {"name": "Acme", "plan": "pro"}}`).want(t, 201)
		ask := func(token string) answer {
			return asked(t, node, bootstrap, "tenant=acme&jwt=cookie:session&attributes=user:claim:sub", "Cookie", "session="+token)
		}
		if a := ask(token(0, "a", good)); a.status != 200 || !strings.HasPrefix(a.header.Get("RateLimit"), `"items";r=9`) {
			t.Fatalf("%s: a good JWT: %d %s", source, a.status, a.body)
		}
		changed := strings.Split(token(0, "a", good), ".")
		changed[1] = strings.Split(token(0, "a", strings.Replace(good, "u1", "u2", 1)), ".")[1]
		for name, bad := range map[string]string{
			"unsigned":    unsigned(good),
			"another key": token(1, "a", good),
			"unknown key": token(1, "z", good),
			"expired":     token(0, "a", strings.Replace(good, "4102444800", "1", 1)),
			"no expiry":   token(0, "a", strings.Replace(good, `, "exp": 4102444800`, "", 1)),
			"issuer":      token(0, "a", strings.Replace(good, "id.example", "evil.example", 1)),
			"audience":    token(0, "a", strings.Replace(good, `"api"`, `"other"`, 1)),
			"changed":     strings.Join(changed, "."),
		} {
			if a := ask(bad); a.status != 401 || !strings.Contains(a.body, `"code":"invalid_jwt"`) {
				t.Errorf("%s, %s: %d %s", source, name, a.status, a.body)
			}
		}
		if a := ask(token(0, "a", good)); a.status != 200 || !strings.HasPrefix(a.header.Get("RateLimit"), `"items";r=8`) {
			t.Errorf("%s: the wrong ones charged: %s", source, a.header.Get("RateLimit"))
		}
	}
	if loads.Load() == 0 {
		t.Error("the keys were never loaded from their address")
	}
	for want, settings := range map[string]map[string]string{
		"HEADGATE_JWT_KEYS: open":          {"HEADGATE_JWT_KEYS": filepath.Join(t.TempDir(), "none")},
		"HEADGATE_JWT_KEYS: is needed":     {"HEADGATE_JWT_ISSUER": "x"},
		"HEADGATE_JWT_KEYS: address: must": {"HEADGATE_JWT_KEYS": "http://id.example.com/keys"},
	} {
		err := (&program{getenv: func(name string) string { return settings[name] }, stdout: t.Output(), stderr: t.Output()}).run(t.Context(), []string{"serve"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
