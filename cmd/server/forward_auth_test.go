package main

import (
	"net/http"
	"strings"
	"testing"
)

// forwardPolicies count the logins of each IP address, and all requests of each user.
const forwardPolicies = `[
	{"slug": "login", "match": {"path": "/v1/login", "methods": ["POST"]}, "count_by": ["ip"], "limits": [{"algorithm": "fixed_window", "quota": 5, "window": "1h"}]},
	{"slug": "items", "match": {"path": "/v1/items/*"}, "count_by": ["user"], "limits": [{"algorithm": "fixed_window", "quota": 10, "window": "1h"}]},
	{"slug": "jobs", "match": {"path": "/v1/jobs"}, "limits": [{"algorithm": "concurrency", "quota": 9, "window": "1h"}]}
]`

// forwardNode starts a node that trusts proxies on this machine, with the tenants acme and globex.
func forwardNode(t *testing.T, proxies string) (node *running, operator, key string) {
	t.Helper()
	node = start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_TRUSTED_PROXIES": proxies})
	operator = node.await(node.out, operatorKeyLine)[1]
	made := call(t, operator, "POST", node.origin+"/v1/plans", `{"slug": "pro", "draft": {"name": "Pro", "policies": `+forwardPolicies+`}}`).want(t, 201)
	call(t, operator, "POST", node.origin+"/v1/plans/pro/publish", "", "If-Match", made.header.Get("ETag")).want(t, 200)
	for _, slug := range []string{"acme", "globex"} {
		call(t, operator, "POST", node.origin+"/v1/tenants", `{"slug": "`+slug+`", "tenant": {"name": "Customer", "plan": "pro"}}`).want(t, 201)
	}
	var created struct{ Token string }
	call(t, operator, "POST", node.origin+"/v1/tenants/acme/keys", `{"name": "proxy", "scopes": ["check"]}`).want(t, 201).into(t, &created)
	return node, operator, created.Token
}

// A gateway describes the request with headers, or with the path of the original request. Both
// charge the same counters as POST /v1/check.
func TestForwardAuth(t *testing.T) {
	t.Parallel()
	node, _, key := forwardNode(t, "127.0.0.1/32")
	ways := []struct {
		method, path string
		header       []string
	}{
		{"GET", "/v1/forward-auth", []string{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/v1/login?next=%2F"}},
		{"POST", "/v1/forward-auth?headers=forwarded", []string{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "//v1/./login"}},
		{"GET", "/v1/forward-auth?headers=original", []string{"X-Original-Method", "POST", "X-Original-URI", "/v1/login"}},
		{"POST", "/v1/forward-auth/v1/login?tenant=globex&cost=0", nil},
		{"POST", "/v1/check", nil},
		{"HEAD", "/v1/forward-auth", []string{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/v1/login"}},
	}
	for i, way := range ways {
		body := ""
		if way.path == "/v1/check" {
			body = `{"method": "POST", "path": "/v1/login", "attributes": {"ip": "203.0.113.9"}}`
		}
		a := call(t, key, way.method, node.origin+way.path, body, append(way.header, "X-Forwarded-For", "203.0.113.9")...)
		want, left := http.StatusOK, `"login";r=`+string(rune('4'-i))
		if i == 5 {
			want, left = http.StatusTooManyRequests, `"login";r=0`
			if a.header.Get("Retry-After") == "" {
				t.Error("the denial has no Retry-After")
			}
		}
		if a.status != want || !strings.HasPrefix(a.header.Get("RateLimit"), left) {
			t.Errorf("%s %s %q: %d, RateLimit %q, want %d, %q\n%s", way.method, way.path, way.header, a.status, a.header.Get("RateLimit"), want, left, a.body)
		}
	}
	denied := call(t, key, "PUT", node.origin+"/v1/forward-auth?deny_status=401", "", "X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/v1/login",
		"X-Forwarded-For", "203.0.113.9").want(t, 401)
	if got := denied.header.Get("Content-Type"); got != "application/problem+json" || !strings.Contains(denied.body, `"reason":"over_limit"`) {
		t.Errorf("the denial: %s %s", got, denied.body)
	}
}

// With body=denied, the answer to an allowed request has all headers and no body, so that a gateway that reads no
// body can keep its connection.
func TestForwardAuthWithoutABody(t *testing.T) {
	t.Parallel()
	node, _, key := forwardNode(t, "127.0.0.1/32")
	proxy := []string{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/v1/login", "X-Forwarded-For", "203.0.113.9"}
	for i := range 6 {
		a := call(t, key, "GET", node.origin+"/v1/forward-auth?body=denied", "", proxy...)
		if a.header.Get("RateLimit") == "" || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%d: %v", i, a.header)
		}
		if i < 5 {
			if a.status != 200 || a.body != "" || a.header.Get("Content-Length") != "0" || a.header.Get("Content-Type") != "" {
				t.Errorf("%d: %d %v %s", i, a.status, a.header, a.body)
			}
		} else if a.status != 429 || !strings.Contains(a.body, `"reason":"over_limit"`) || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("the denial: %d %v %s", a.status, a.header, a.body)
		}
	}
}

// Headers of a client that the gateway passes on do not change the tenant, the cost, the mode,
// the policy, the idempotency key, or the lease.
func TestForwardAuthIgnoresTheClient(t *testing.T) {
	t.Parallel()
	node, operator, key := forwardNode(t, "127.0.0.1/32")
	const ask = "/v1/forward-auth?attributes=user:header:X-User"
	proxy := []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/v1/items/1", "X-Forwarded-For", "203.0.113.9"}
	remaining := func(path string, header ...string) string {
		a := call(t, key, "GET", node.origin+path, "", append(header, proxy...)...).want(t, 200)
		left, _, _ := strings.Cut(a.header.Get("RateLimit"), ";t=")
		return left
	}
	for i, forged := range [][]string{
		{"Idempotency-Key", "k1"},
		{"X-Tenant", "globex", "X-Headgate-Tenant", "globex", "Tenant", "globex"},
		{"X-Cost", "0", "Cost", "0", "X-Headgate-Cost", "0"},
		{"X-Mode", "peek", "Mode", "peek", "X-Headgate-Mode", "peek"},
		{"X-Original-URI", "/free", "X-Original-Method", "POST", "X-Original-Url", "/free"},
		{"X-Http-Method-Override", "POST", "X-Rewrite-Url", "/free", "Forwarded", `for=198.51.100.1;proto=https`},
		{"X-Forwarded-Path", "/free", "X-Forwarded-Prefix", "/free", "X-Forwarded-Host", `evil","cost":0,"mode":"peek`},
		{"User-Agent", `x","cost":0,"mode":"peek`, "Cookie", "tenant=globex; cost=0; user=u2"},
	} {
		want := `"items";r=` + string(rune('9'-i))
		if got := remaining(ask, append(forged, "X-User", "u1")...); got != want {
			t.Errorf("%q: RateLimit %s, want %s", forged, got, want)
		}
	}
	// The same headers twice: neither is the second request a repetition of the first, nor does it renew its lease.
	forged := []string{
		"Idempotency-Key", "k1", "X-Idempotency-Key", "k1", "X-Headgate-Idempotency", "k1", "Headgate-Idempotency", "k1", "X-Request-Id", "k1", "X-Request-Key", "k1",
		"Lease", "l1", "X-Lease", "l1", "X-Headgate-Lease", "l1", "Headgate-Lease", "l1", "Lease-Ttl-Ms", "1", "X-Headgate-Lease-Ttl-Ms", "1", "Refundable", "true",
	}
	for i := range 3 {
		if got, want := remaining(ask, append(forged, "X-User", "u7")...), `"items";r=`+string(rune('9'-i)); got != want {
			t.Errorf("%d: RateLimit %s, want %s", i, got, want)
		}
		a := call(t, key, "GET", node.origin+"/v1/forward-auth", "", append(forged, "X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/v1/jobs")...).want(t, 200)
		if want := `"jobs";r=` + string(rune('8'-i)) + ";"; !strings.HasPrefix(a.header.Get("RateLimit"), want) || strings.Contains(a.body, `"l1"},`) ||
			strings.Contains(a.body, "refundable_until") || strings.Contains(a.body, `"id":"l1"`) {
			t.Errorf("%d: RateLimit %s, want %s: %s", i, a.header.Get("RateLimit"), want, a.body)
		}
	}
	// Separators do not end a value: each value is a different user with a full quota.
	for _, user := range []string{`u1","cost":0,"mode":"peek`, "u1&cost=0", "u1,team:header:X", "u1;r=9"} {
		if got := remaining(ask, "X-User", user); got != `"items";r=9` {
			t.Errorf("user %q: RateLimit %s", user, got)
		}
	}
	for _, bad := range []struct {
		key, path, want string
		header          []string
		status          int
	}{
		{key, ask, `"pointer":"X-User"`, append([]string{"X-User", "u1", "X-User", "u2"}, proxy...), 400},
		{key, "/v1/forward-auth", `"pointer":"X-Forwarded-Method"`, proxy[2:], 400},
		{key, "/v1/forward-auth", `"pointer":"X-Forwarded-Uri"`, append([]string{"X-Forwarded-Uri", "/free"}, proxy...), 400},
		{key, "/v1/forward-auth?headers=original", `"pointer":"X-Original-Method"`, proxy, 400},
		{key, "/v1/forward-auth", `"pointer":"X-Forwarded-Uri"`, []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", `/v1/login","cost":0,"mode":"peek\`}, 400},
		{key, "/v1/forward-auth", `"pointer":"X-Forwarded-Method"`, []string{"X-Forwarded-Method", "get", "X-Forwarded-Uri", "/"}, 400},
		{key, "/v1/forward-auth?tenant=globex", "only its own tenant", proxy, 403},
		{operator, "/v1/forward-auth", `"pointer":"/tenant"`, proxy, 400},
		{operator, "/v1/forward-auth?tenant=none", "no such tenant", proxy, 404},
		{"", "/v1/forward-auth", "a valid API key", proxy, 401},
		// A proxy that keeps the query of the client, as Caddy does after a rewrite without a question mark.
		{key, "/v1/forward-auth?cost=0", "the query is that of the client", []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/v1/items/1?cost=0"}, 400},
	} {
		if a := call(t, bad.key, "GET", node.origin+bad.path, "", bad.header...); a.status != bad.status || !strings.Contains(a.body, bad.want) {
			t.Errorf("%s %q: %d %s, want %d %s", bad.path, bad.header, a.status, a.body, bad.status, bad.want)
		}
	}
	call(t, operator, "GET", node.origin+"/v1/forward-auth?tenant=globex", "", proxy...).want(t, 200)
	byHeader := node.origin + "/v1/forward-auth?tenant=header:X-Tenant"
	call(t, operator, "GET", byHeader, "", append([]string{"X-Tenant", "globex"}, proxy...)...).want(t, 200)
	call(t, operator, "GET", byHeader, "", append([]string{"X-Tenant", "none"}, proxy...)...).want(t, 404)
	if a := call(t, operator, "GET", byHeader, "", proxy...).want(t, 400); !strings.Contains(a.body, "X-Tenant") {
		t.Errorf("no header: %s", a.body)
	}
}

// If an option is invalid, the error names it.
func TestForwardAuthOptions(t *testing.T) {
	t.Parallel()
	node, _, key := forwardNode(t, "127.0.0.1/32")
	proxy := []string{
		"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/v1/items/1", "X-Forwarded-For", "203.0.113.9",
		"X-Cost", "4", "X-Wrong", "-1", "Cookie", "session=s1", "X-Spaces", "a key", "X-Long", strings.Repeat("l", 129),
	}
	for query, want := range map[string]struct {
		status int
		text   string
	}{
		"cost=3&attributes=user:cookie:session":        {200, `"cost":3`},
		"cost=header:X-Cost":                           {200, `"cost":4`},
		"headers=forwarded":                            {200, `"cost":1`},
		"headers=both":                                 {400, `"pointer":"headers"`},
		"cost=-1":                                      {400, `"pointer":"cost"`},
		"cost=header:X-Wrong":                          {400, `"pointer":"X-Wrong"`},
		"cost=header:X-Missing":                        {400, `"pointer":"X-Missing"`},
		"attributes=user":                              {400, `"pointer":"attributes"`},
		"attributes=user:query:q":                      {400, `"pointer":"attributes"`},
		"attributes=ip:header:X-Cost":                  {400, `"pointer":"attributes"`},
		"attributes=user:header:X-Cost,user:cookie:se": {400, "twice"},
		"deny_status=200":                              {400, `"pointer":"deny_status"`},
		"mode=peek":                                    {400, `"pointer":"mode"`},
		"body=none":                                    {400, `"pointer":"body"`},
		"refundable=true":                              {200, `"refundable_until":"`},
		"refundable=1":                                 {400, `"pointer":"refundable"`},
		"idempotency=k1":                               {400, `"pointer":"idempotency"`},
		"idempotency=cookie:session":                   {400, `"pointer":"idempotency"`},
		"idempotency=header:X-Missing":                 {400, `"pointer":"X-Missing"`},
		"idempotency=header:X-Spaces":                  {400, `"pointer":"X-Spaces"`},
		"lease=job":                                    {400, `"pointer":"lease"`},
		"lease=header:X-Missing":                       {400, `"pointer":"X-Missing"`},
		"lease=header:X-Long":                          {400, `"pointer":"X-Long"`},
		"lease_ttl_ms=0":                               {400, `"pointer":"lease_ttl_ms"`},
		"lease_ttl_ms=1m":                              {400, `"pointer":"lease_ttl_ms"`},
	} {
		if a := call(t, key, "GET", node.origin+"/v1/forward-auth?"+query, "", proxy...); a.status != want.status || !strings.Contains(a.body, want.text) {
			t.Errorf("%s: %d %s, want %d %s", query, a.status, a.body, want.status, want.text)
		}
	}
}

// A proxy that repeats a request with the same key pays for it once. A lease by the ID of the request
// holds a place until the service behind the proxy releases it.
func TestForwardAuthRepetitionsAndLeases(t *testing.T) {
	t.Parallel()
	node, _, key := forwardNode(t, "127.0.0.1/32")
	ask := func(query, method, uri string, header ...string) answer {
		header = append(header, "X-Forwarded-Method", method, "X-Forwarded-Uri", uri, "X-Forwarded-For", "203.0.113.9")
		return call(t, key, "GET", node.origin+"/v1/forward-auth?"+query, "", header...)
	}
	const once = "idempotency=header:X-Request-Key&refundable=true"
	first := ask(once, "GET", "/v1/items/1", "X-Request-Key", "k1").want(t, 200)
	again := ask(once, "GET", "/v1/items/1", "X-Request-Key", "k1").want(t, 200)
	if again.header.Get("Idempotent-Replayed") != "true" || !strings.Contains(again.body, `"replayed":true`) || !strings.Contains(again.body, `"remaining":9`) {
		t.Errorf("the repetition: %v %s", again.header, again.body)
	}
	if a := ask(once, "GET", "/v1/items/2", "X-Request-Key", "k1").want(t, 409); !strings.Contains(a.body, `"idempotency_key_reused"`) {
		t.Errorf("another request: %s", a.body)
	}
	var d struct {
		ID string `json:"decision_id"`
	}
	first.into(t, &d)
	if a := call(t, key, "POST", node.origin+"/v1/checks/"+d.ID+"/refund", "").want(t, 200); !strings.Contains(a.body, `"refunded":1`) {
		t.Errorf("the refund: %s", a.body)
	}

	const leased = "lease=header:X-Job&lease_ttl_ms=60000"
	for i, job := range []string{"j1", "j1", "j2"} {
		left := []string{`"remaining":8`, `"remaining":8`, `"remaining":7`}[i]
		if a := ask(leased, "POST", "/v1/jobs", "X-Job", job).want(t, 200); !strings.Contains(a.body, left) || !strings.Contains(a.body, `"lease":{"id":"`+job+`","ttl_ms":60000}`) {
			t.Errorf("%s: %s", job, a.body)
		}
	}
	a := call(t, key, "POST", node.origin+"/v1/leases/release", `{"method": "POST", "path": "/v1/jobs", "lease": {"id": "j1"}}`).want(t, 200)
	if !strings.Contains(a.body, `"released":1`) {
		t.Errorf("the release: %s", a.body)
	}
}

// A client that is not a trusted proxy could describe any request. It gets an error that names
// the setting.
func TestForwardAuthNeedsATrustedProxy(t *testing.T) {
	t.Parallel()
	for _, proxies := range []string{"", "203.0.113.0/24"} {
		node, _, key := forwardNode(t, proxies)
		for _, path := range []string{"/v1/forward-auth", "/v1/forward-auth/v1/login"} {
			a := call(t, key, "POST", node.origin+path, "", "X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/v1/login", "X-Forwarded-For", "203.0.113.9")
			if a.status != 403 || !strings.Contains(a.body, "HEADGATE_TRUSTED_PROXIES") || !strings.Contains(a.body, `"code":"untrusted_proxy"`) {
				t.Errorf("trusted %q, %s: %d %s", proxies, path, a.status, a.body)
			}
		}
	}
}
