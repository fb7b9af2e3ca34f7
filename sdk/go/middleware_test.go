package headgate

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

const denied = `{"kind":"denial","type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
	`"detail":"over the limit of policy login-per-ip","violated-policies":["login-per-ip"],"allowed":false,"decision_id":"d-1","tenant":"acme","plan":"pro",` +
	`"plan_version":1,"mode":"enforce","reason":"over_limit","retry_after_ms":1340,"delay_ms":0,"degraded":false,"limits":[]}`

func serve(t *testing.T, config MiddlewareConfig, target string) *httptest.ResponseRecorder {
	t.Helper()
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, ok := FromContext(r.Context())
		_, _ = io.WriteString(w, "served "+string(d.Kind))
		if !ok && config.Skip == nil {
			t.Error("the context has no decision")
		}
	})
	w := httptest.NewRecorder()
	Middleware(config)(next).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", target, nil))
	return w
}

func TestMiddlewareAllows(t *testing.T) {
	c := newClient(t, Config{URL: answering(t, 200, allowed).URL})
	w := serve(t, MiddlewareConfig{Client: c}, "/v1/items")
	if w.Code != 200 || w.Body.String() != "served decision" || w.Header().Get("RateLimit") != `"login-per-ip";r=4;t=60` ||
		w.Header().Get("RateLimit-Policy") != `"login-per-ip";q=5;w=60` || w.Header().Get("Retry-After") != "" {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
}

func TestMiddlewareDenies(t *testing.T) {
	c := newClient(t, Config{URL: answering(t, 429, denied).URL})
	w := serve(t, MiddlewareConfig{Client: c}, "/v1/items")
	if w.Code != 429 || w.Header().Get("Retry-After") != "2" || w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get("RateLimit") == "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body["title"] != "Quota exceeded" || body["status"] != 429.0 || body["decision_id"] != "d-1" {
		t.Errorf("%v %v", err, body)
	}
	if body["tenant"] != nil || body["plan"] != nil || body["limits"] != nil {
		t.Errorf("the answer shows the tenant's plan: %v", body)
	}
}

func TestMiddlewareInShadowOnlyLogs(t *testing.T) {
	c := newClient(t, Config{URL: answering(t, 429, denied).URL})
	var log bytes.Buffer
	w := serve(t, MiddlewareConfig{Client: c, Shadow: true, Log: slog.New(slog.NewTextHandler(&log, nil))}, "/v1/items")
	if w.Code != 200 || w.Body.String() != "served denial" || w.Header().Get("RateLimit") != "" || w.Header().Get("Retry-After") != "" {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
	if !strings.Contains(log.String(), "reason=over_limit") {
		t.Errorf("the log is %q", log.String())
	}
}

// delayed is an allowed decision with a delay of an hour.
var delayed = strings.Replace(allowed, `"delay_ms":0`, `"delay_ms":3600000`, 1)

// A request whose client leaves while it waits is not served.
func TestMiddlewareWaits(t *testing.T) {
	decided := make(chan struct{}, 2)
	c := newClient(t, Config{URL: answering(t, 200, delayed).URL, Hooks: Hooks{
		Decided: func(context.Context, CheckRequest, Decision, time.Duration) { decided <- struct{}{} },
	}})
	ctx, leave := context.WithCancel(t.Context())
	served := 0
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })
	config := MiddlewareConfig{Client: c}
	waits := Middleware(config)(next)
	done := make(chan struct{})
	go func() {
		waits.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/v1/items", nil))
		close(done)
	}()
	<-decided
	leave()
	<-done
	config.Shadow = true
	Middleware(config)(next).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/v1/items", nil))
	if served != 1 {
		t.Errorf("%d requests were served, want that in shadow mode, which does not wait", served)
	}
	short := newClient(t, Config{URL: answering(t, 200, strings.Replace(allowed, `"delay_ms":0`, `"delay_ms":1`, 1)).URL})
	if w := serve(t, MiddlewareConfig{Client: short}, "/v1/items"); w.Body.String() != "served decision" {
		t.Errorf("a short delay: %d %s", w.Code, w.Body)
	}
}

func TestMiddlewareSendsTenantAttributesAndCost(t *testing.T) {
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, allowed)
	}))
	t.Cleanup(server.Close)
	c := newClient(t, Config{URL: server.URL})
	serve(t, MiddlewareConfig{
		Client:     c,
		Tenant:     func(*http.Request) string { return "acme" },
		Attributes: func(r *http.Request) map[string]string { return map[string]string{"user": r.URL.Query().Get("u")} },
		Cost:       func(*http.Request) int64 { return 0 },
	}, "/v1/a%2fb?u=u1")
	if want := `{"tenant":"acme","method":"GET","path":"/v1/a%2fb","attributes":{"user":"u1"},"cost":0}`; string(body) != want {
		t.Errorf("the call is %s, want %s", body, want)
	}
}

func TestMiddlewareSkips(t *testing.T) {
	c := newClient(t, Config{URL: answering(t, 429, denied).URL})
	if w := serve(t, MiddlewareConfig{Client: c, Skip: func(r *http.Request) bool { return r.URL.Path == "/healthz" }}, "/healthz"); w.Code != 200 {
		t.Errorf("%d", w.Code)
	}
}

func TestConfigIsValidated(t *testing.T) {
	for text, config := range map[string]Config{
		"Config.URL is \"\"":           {Token: "x"},
		"Config.URL is \"ftp://x\"":    {URL: "ftp://x", Token: "x"},
		"Config.Token":                 {URL: "http://x"},
		"Config.Token is":              {URL: "http://x", Token: "a b"},
		"Config.Timeout":               {URL: "http://x", Token: "x", Timeout: -1},
		"set Config.Decide":            {URL: "http://x", Token: "x", OnUnreachable: Callback},
		"must be open, closed or call": {URL: "http://x", Token: "x", OnUnreachable: "ajar"},
	} {
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v, want %q", config, err, text)
		}
	}
}

// Remembered denials stay within their bound, and a full memory gives way to new denials
// when the old ones end.
func TestDenialsAreBounded(t *testing.T) {
	var m denials
	now := time.Now()
	after := int64(1000)
	d := Decision{Kind: KindDenial, Reason: ReasonOverLimit, RetryAfterMS: &after}
	for i := range denialsLimit + 10 {
		m.put([]byte{byte(i), byte(i >> 8), byte(i >> 16)}, d, now)
	}
	if len(m.until) != denialsLimit {
		t.Errorf("%d denials are remembered", len(m.until))
	}
	m.put([]byte("later"), d, now.Add(2*time.Second))
	if _, ok := m.get([]byte("later"), now.Add(2*time.Second)); !ok || len(m.until) != 1 {
		t.Errorf("%d denials are remembered", len(m.until))
	}
}

// Concurrent checks share one client.
func TestConcurrentChecks(t *testing.T) {
	c := newClient(t, Config{URL: answering(t, 429, denied).URL, RememberDenials: true, Hooks: Hooks{
		Decided: func(context.Context, CheckRequest, Decision, time.Duration) {},
	}})
	var group sync.WaitGroup
	for range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 50 {
				if d := c.Check(t.Context(), login); d.Reason != ReasonOverLimit || d.Err != nil {
					t.Errorf("%+v", d)
					return
				}
			}
		}()
	}
	group.Wait()
}
