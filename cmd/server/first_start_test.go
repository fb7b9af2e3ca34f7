package main

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var (
	operatorKeyLine = regexp.MustCompile(`operator key\s+(\S+)`)
	tenantKeyLine   = regexp.MustCompile(`tenant key\s+(\S+)`)
	curlCall        = regexp.MustCompile(`(?s)(curl -i .*?\}\}')`)
)

const login = `{"method": "POST", "path": "/v1/login", "attributes": {"ip": "203.0.113.9"}}`

// A new user types make run, sends the printed curl command six times, and is denied.
func TestFirstRefusal(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	settings := map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(folder), "HEADGATE_LOG_LEVEL": "debug"}
	node := start(t, settings)
	key := node.await(node.out, tenantKeyLine)[1]
	operator := node.await(node.out, operatorKeyLine)[1]

	paste := node.await(node.out, curlCall)[1]
	checkREADMECall(t, paste, node.origin, key)
	for i := 1; i <= 6; i++ {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", paste).Output()
		if err != nil {
			t.Fatalf("paste %d of %s: %v", i, paste, err)
		}
		status := strings.Fields(string(out))[1]
		if i <= 5 && status != "200" || i == 6 && status != "429" {
			t.Fatalf("paste %d answered %s:\n%s", i, status, out)
		}
		if i == 6 {
			checkRefusal(t, string(out))
			checkREADMERefusal(t, string(out))
		}
	}
	call(t, operator, "GET", node.origin+"/v1/tenants/demo", "").want(t, 200)
	if err := node.end(); err != nil {
		t.Fatalf("stop: %v", err)
	}
	for _, secret := range []string{key, operator} {
		if strings.Contains(node.logs.String(), secret) {
			t.Fatal("a secret is in the log")
		}
	}

	// A restart keeps all data and does not print secrets again.
	again := start(t, settings)
	if again.out.String() == "" || keyPrefix.MatchString(again.out.String()) {
		t.Fatalf("the second start shows a key:\n%s", again.out)
	}
	if !strings.Contains(again.out.String(), "$HEADGATE_TOKEN") {
		t.Fatalf("the second start's curl does not name $HEADGATE_TOKEN:\n%s", again.out)
	}
	call(t, key, "POST", again.origin+"/v1/check", login).want(t, 200)
	call(t, operator, "GET", again.origin+"/v1/plans/starter/draft", "").want(t, 200)
}

// checkRefusal checks a response with status 429.
func checkRefusal(t *testing.T, out string) {
	t.Helper()
	for _, want := range []string{
		"Content-Type: application/problem+json",
		"Retry-After: ",
		`RateLimit-Policy: "login-per-ip";q=5;w=60, "tenant-total";q=100000;w=3600`,
		`RateLimit: "login-per-ip";r=0;t=`,
		`"allowed":false`, `"reason":"over_limit"`, `"violated-policies":["login-per-ip"]`,
		`"type":"https://iana.org/assignments/http-problem-types#quota-exceeded"`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the refusal has no %s:\n%s", want, out)
		}
	}
}

func TestBootstrapKey(t *testing.T) {
	t.Parallel()
	const secret = "bootstrap-0123456789-0123456789-0123456789"
	file := t.TempDir() + "/key"
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY_FILE": file})
	call(t, secret, "GET", node.origin+"/v1/tenants", "").want(t, 200)
	if strings.Contains(node.out.String()+node.logs.String(), secret) {
		t.Fatal("the bootstrap key was printed")
	}
	// The bootstrap key is valid only while no operator key exists.
	call(t, secret, "POST", node.origin+"/v1/operator-keys", `{"name": "real", "scopes": ["manage"]}`).want(t, 201)
	call(t, secret, "GET", node.origin+"/v1/tenants", "").want(t, 401)
}

// keyPrefix matches the beginning of a key. A random link can contain "hg_".
var keyPrefix = regexp.MustCompile(`hg_(op|tn)_`)

func TestNoSample(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_SAMPLE": "false"})
	if keyPrefix.MatchString(node.out.String()) {
		t.Fatalf("keys without a sample:\n%s", node.out)
	}
	call(t, "", "GET", node.origin+"/readyz", "").want(t, 200)
	if !strings.Contains(node.out.String(), "headgate key create") {
		t.Errorf("nobody can come in, and it is not said how:\n%s", node.out)
	}
}

// The log shows how to create a first operator key until one exists.
func TestKeyHint(t *testing.T) {
	t.Parallel()
	url := sqliteIn(t.TempDir())
	environment := func(name string) string { return map[string]string{"HEADGATE_DATABASE_URL": url}[name] }
	var token bytes.Buffer
	p := program{getenv: environment, stdin: strings.NewReader(""), stdout: &token, stderr: io.Discard}
	if err := p.run(t.Context(), []string{"key", "create", "--name", "first"}); err != nil {
		t.Fatal(err)
	}
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": url, "HEADGATE_SAMPLE": "false"})
	if strings.Contains(node.out.String(), "headgate key create") {
		t.Errorf("there is an operator key already:\n%s", node.out)
	}
	call(t, strings.TrimSpace(token.String()), "GET", node.origin+"/v1/tenants", "").want(t, 200)
}

// /metrics has the sums of all tenants. On the port of the API it needs an operator key with
// the scope read, unless a setting opens it. On its own port it needs no key.
func TestMetricsNeedAKey(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		settings                   map[string]string
		none, tenant, operator, at int
	}{
		{map[string]string{"HEADGATE_METRICS_PUBLIC": "false"}, 401, 403, 200, 0},
		{map[string]string{"HEADGATE_METRICS_PUBLIC": "true"}, 200, 200, 200, 0},
		{map[string]string{"HEADGATE_METRICS_PUBLIC": "auto"}, 200, 403, 200, 0},
		{map[string]string{"HEADGATE_METRICS_PUBLIC": "auto", "HEADGATE_ADDR": "0.0.0.0:0"}, 401, 403, 200, 0},
		{map[string]string{"HEADGATE_METRICS_PUBLIC": "false", "HEADGATE_METRICS_ADDR": freeAddr(t)}, 401, 403, 404, 200},
	} {
		settings := map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_SAMPLE": "false", "HEADGATE_BOOTSTRAP_KEY": bootstrap}
		maps.Copy(settings, test.settings)
		node := start(t, settings)
		call(t, bootstrap, "POST", node.origin+"/v1/tenants", `{"slug":"acme","tenant":{"require_route":false,"name":"Acme"}}`).want(t, 201)
		var made struct{ Token string }
		call(t, bootstrap, "POST", node.origin+"/v1/tenants/acme/keys", `{"name":"k","scopes":["manage"]}`).want(t, 201).into(t, &made)
		for key, want := range map[string]int{"": test.none, made.Token: test.tenant, bootstrap: test.operator} {
			got := call(t, key, "GET", node.origin+"/metrics", "")
			if got.status != want || (got.status == 200) != strings.Contains(got.body, "headgate_build_info") {
				t.Errorf("%v, key %.6s: %d, want %d", test.settings, key, got.status, want)
			}
		}
		if at := test.settings["HEADGATE_METRICS_ADDR"]; at != "" {
			if got := call(t, "", "GET", "http://"+at+"/metrics", ""); got.status != test.at || !strings.Contains(got.body, "headgate_build_info") {
				t.Errorf("its own listener: %d", got.status)
			}
		}
	}
}

// By default, an embedded node serves its metrics only to clients on the same machine.
func TestMetricsForThisMachine(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_METRICS_PUBLIC": ""})
	for _, c := range []struct {
		name, header, value string
		want                int
	}{
		{"directly", "Accept", "text/plain", 200},
		{"through a proxy", "X-Forwarded-For", "203.0.113.9", 401},
		{"through a proxy of RFC 7239", "Forwarded", "for=203.0.113.9", 401},
		{"through a cache", "Via", "1.1 cache", 401},
		{"from the page of another site", "Host", "evil.example", 401},
		{"by another loopback name", "Host", "localhost:8080", 200},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, node.origin+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(c.header, c.value)
		if c.header == "Host" {
			r.Host = c.value
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != c.want || answer.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d, want %d, %v", c.name, answer.StatusCode, c.want, answer.Header)
		}
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())})
	for path, want := range map[string]int{
		"/": http.StatusSeeOther, "/docs": 200, "/docs/problems": 200, "/docs/problems/no-policy": 200, "/docs/problems/none": 404,
		"/openapi.yaml": 200, "/livez": 200, "/healthz": 200, "/readyz": 200, "/readyz?verbose": 200, "/metrics": 200, "/nothing": 404, "/v1/nothing": 404,
	} {
		if got := call(t, "", "GET", node.origin+path, ""); got.status != want {
			t.Errorf("GET %s: %d, want %d: %.200s", path, got.status, want, got.body)
		}
	}
	if page := call(t, "", "GET", node.origin+"/docs", ""); !strings.Contains(page.body, node.origin+"/v1/check") {
		t.Error("/docs has no curl for /v1/check at this address")
	}
}
