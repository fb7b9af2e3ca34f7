package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every response has the header X-Content-Type-Options: nosniff.
func TestNoSniff(t *testing.T) {
	t.Parallel()
	metrics := freeAddr(t)
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_METRICS_ADDR": metrics,
	})
	if a := call(t, "", "GET", "http://"+metrics+"/metrics", ""); a.status != http.StatusOK || a.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("/metrics on its own port: %d %v", a.status, a.header)
	}
	for _, ask := range [][4]string{
		{bootstrap, "POST", "/v1/check", `{"tenant":"acme","method":"GET","path":"/"}`},
		{"", "POST", "/v1/check", "{}"},
		{bootstrap, "POST", "/v1/check?deny_status=200", "{}"},
		{bootstrap, "GET", "/v1/tenants", ""},
		{"", "GET", "/v1/tenants", ""},
		{bootstrap, "GET", "/v1/nothing", ""},
		{bootstrap, "PATCH", "/v1/check", ""},
		{"", "GET", "/livez", ""},
		{"", "GET", "/readyz", ""},
		{"", "GET", "/openapi.yaml", ""},
		{"", "GET", "/nothing", ""},
	} {
		if a := call(t, ask[0], ask[1], node.origin+ask[2], ask[3]); a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%v: %d %v", ask, a.status, a.header)
		}
	}
}

// If HEADGATE_ALLOWED_HOSTS is set, requests with another host are rejected. Health checks are
// not.
func TestAllowedHosts(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap,
		"HEADGATE_ALLOWED_HOSTS": "Limits.Internal, ::1", "HEADGATE_PUBLIC_URL": "https://limits.example.com",
	})
	at := node.await(node.logs, regexp.MustCompile(`"ready","addr":"([^"]+)"`))[1]
	for host, want := range map[string]int{
		"limits.internal": 200, "LIMITS.internal:8080": 200, "[::1]:80": 200, "[::1]": 200, "limits.example.com": 200,
		"evil.example.com": 421, "limits.internal.evil.example.com": 421, "127.0.0.1": 421,
	} {
		for path, want := range map[string]int{"/v1/tenants": want, "/readyz": 200} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			r.Header.Set("Authorization", "Bearer "+bootstrap)
			response, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("%s of %q: %d, want %d", path, host, response.StatusCode, want)
			}
		}
	}
}

// A file with a secret that other users may read is logged.
func TestOpenSecretFiles(t *testing.T) {
	t.Parallel()
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o604: true} {
		file := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(file, []byte(bootstrap), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY_FILE": file})
		if got := strings.Contains(node.logs.String(), "HEADGATE_BOOTSTRAP_KEY_FILE"); got != want {
			t.Errorf("mode %o: logged %v: %s", mode, got, node.logs)
		}
		node.end()
	}
}

// A node publishes the head of the audit log, and audit verify compares with it.
func TestAuditHead(t *testing.T) {
	t.Parallel()
	url := sqliteIn(t.TempDir())
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": url, "HEADGATE_BOOTSTRAP_KEY": bootstrap})
	headInLog := regexp.MustCompile(`audit head.*"head":"([0-9]+:[0-9a-f]{64})"`)
	head := node.await(node.logs, headInLog)[1]
	if a := call(t, "", "GET", node.origin+"/metrics", ""); !regexp.MustCompile(`(?m)^headgate_audit_lines [1-9]`).MatchString(a.body) {
		t.Errorf("/metrics does not have the number of lines: %s", head)
	}
	call(t, bootstrap, "POST", node.origin+"/v1/tenants", `{"slug": "acme", "tenant": {"require_route": false, "name": "Acme"}}`).want(t, 201)
	node.end()
	heads := headInLog.FindAllStringSubmatch(node.logs.String(), -1)
	head = heads[len(heads)-1][1]
	if first := heads[0][1]; head == first {
		t.Errorf("the log has no head of the lines after the start: %s", first)
	}
	verify := func(head string) (string, error) {
		out := newOutput()
		p := program{getenv: func(string) string { return "" }, stdin: strings.NewReader(""), stdout: out, stderr: out}
		err := p.run(t.Context(), []string{"audit", "verify", "--database-url", url, "--head", head})
		return out.String(), err
	}
	if text, err := verify(head); err != nil || !strings.Contains(text, "--head: "+head) {
		t.Errorf("the head at the stop is not the last one: %v: %s", err, text)
	}
	number, hash, _ := strings.Cut(head, ":")
	for _, other := range []string{number + ":" + strings.Repeat("0", 64), "999:" + hash} {
		if text, err := verify(other); err == nil {
			t.Errorf("%s: %s", other, text)
		}
	}
}
