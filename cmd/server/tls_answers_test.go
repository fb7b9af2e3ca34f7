package main

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Every answer of a handler over TLS has nosniff, over HTTP/1.1 and HTTP/2. net/http answers requests that it cannot
// parse without a handler, and has no hook for these answers. They are plain text and repeat nothing of the request.
// See docs/adr/0023-a-check-without-nethttp.md.
func TestAnswersOverTLS(t *testing.T) {
	t.Parallel()
	cert, key := writeCertificate(t, t.TempDir(), 1)
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_TLS_CERT_FILE": cert, "HEADGATE_TLS_KEY_FILE": key,
	})
	trusting := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the test looks at answers
	for proto, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		transport := &http.Transport{TLSClientConfig: trusting.Clone(), ForceAttemptHTTP2: h2}
		for _, path := range []string{"/livez", "/readyz", "/v1/tenants", "/v1/check", "/nothing", "/sign-in", "/docs", "/openapi.yaml"} {
			r, err := (&http.Client{Transport: transport, Timeout: patience}).Get(node.origin + path)
			if err != nil {
				t.Fatal(err)
			}
			_ = r.Body.Close()
			if r.Proto != proto || r.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s %s: %d %v", r.Proto, path, r.StatusCode, r.Header)
			}
		}
		transport.CloseIdleConnections()
	}
	const marker = "<b>marker</b>"
	for _, request := range []string{
		"GET /%zz" + marker + " HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: " + marker + "\r\n\r\n",
		"GET / HTTP/7.0\r\nHost: " + marker + "\r\n\r\n",
		marker + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nX: " + marker + strings.Repeat("x", 32<<10) + "\r\n\r\n",
	} {
		c, err := tls.Dial("tcp", strings.TrimPrefix(node.origin, "https://"), trusting)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%.60q: %v", request, err)
		}
		body, _ := io.ReadAll(r.Body) // the server may reset the connection after the body
		_ = c.Close()
		if r.StatusCode < 400 || r.Header.Get("Content-Type") != "text/plain; charset=utf-8" || !r.Close || len(body) == 0 || strings.Contains(string(body), "marker") {
			t.Errorf("%.60q: %d %v %q", request, r.StatusCode, r.Header, body)
		}
	}
}
