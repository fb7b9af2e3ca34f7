package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/admission"
)

// A heldDecider decides each check when proceed receives.
type heldDecider struct {
	enforcement.Decider
	proceed chan struct{}
}

func (d heldDecider) Decide(ctx context.Context, s *enforcement.Subject, c *enforcement.Check, out *enforcement.Decision) {
	<-d.proceed
	d.Decider.Decide(ctx, s, c, out)
}

func (d heldDecider) DecideBatch(ctx context.Context, items []enforcement.BatchItem, atomic bool) {
	<-d.proceed
	d.Decider.DecideBatch(ctx, items, atomic)
}

// If the queue of a node is full, it answers with status 503 immediately and does not call the
// limiter. A tenant that uses less than its share is still served.
func TestOverloaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate, proceed := admission.New(admission.Config{Slots: 1, Waiting: 4}), make(chan struct{})
		var log bytes.Buffer
		w := newWorld(t, func(c *api.Config) {
			c.Admission, c.Decider = gate, heldDecider{c.Decider, proceed}
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		results := make(chan string, 20)
		send := func(name, path, body string) {
			go func() {
				a := w.do(call{method: "POST", path: path, key: w.operator, body: body})
				var p struct {
					Reason, Type, Code string
					Retry              int64 `json:"retry_after_ms"`
					Degraded           bool
					Results            []struct{ Reason string }
				}
				must(t, json.Unmarshal([]byte(a.body), &p))
				if a.status == http.StatusServiceUnavailable {
					after := a.header.Get("Retry-After")
					if p.Type != "/docs/problems/overloaded" || after != "1" && after != "2" || p.Degraded || p.Retry > 2000 || p.Reason == "" && p.Code == "" {
						t.Errorf("%s: Retry-After %s, %s", name, after, a.body)
					}
					results <- name + " " + p.Reason + p.Code
					return
				}
				for _, r := range p.Results {
					p.Reason += r.Reason + ","
				}
				results <- name + " " + p.Reason
			}()
			synctest.Wait()
		}
		want := func(want string) {
			t.Helper()
			synctest.Wait()
			if len(results) == 0 {
				t.Fatalf("no answer, want %s", want)
			}
			if got := <-results; got != want || len(results) != 0 {
				t.Errorf("got %s and %d more, want %s", got, len(results), want)
			}
		}
		globex := strings.Replace(login, "acme", "globex", 1)
		for _, name := range strings.Fields("a1 a2 a3 a4 a5") {
			send(name, "/v1/check", login)
		}
		if len(results) != 0 {
			t.Fatal(<-results)
		}
		send("a6", "/v1/check", login)
		want("a6 overloaded")
		send("a7", "/v1/check?deny_status=200", login)
		want("a7 overloaded")
		send("a8", "/v1/check/batch", `{"checks":[`+login+`,`+login+`]}`)
		want("a8 overloaded")
		if n := w.counter.asked.Load(); n != 0 {
			t.Errorf("the limiter was asked %d times", n)
		}
		if n := strings.Count(log.String(), "overloaded"); n != 1 || !strings.Contains(log.String(), "tenant=acme") {
			t.Errorf("logged: %s", log.String())
		}
		send("g1", "/v1/check", globex) // replaces the newest check of acme in the queue
		want("a5 overloaded")
		send("g2", "/v1/check/batch", `{"checks":[`+globex+`,`+globex+`,{"tenant":"nobody"}]}`)
		want("a4 overloaded")
		for _, next := range []string{"a1 ok", "a2 ok", "g1 tenant_suspended", "a3 ok", "g2 tenant_suspended,tenant_suspended,,"} {
			proceed <- struct{}{}
			want(next)
		}
		if s := gate.Status(); s != (admission.Status{Overloaded: 5}) {
			t.Errorf("at the end: %+v", s)
		}
	})
}

// A node that is overloaded closes the connections of forward authentication, so that gateways take
// it for a node that is gone. It answers /v1/check with 503, and charges nothing.
func TestOverloadedNodeIsGoneForGateways(t *testing.T) {
	t.Parallel()
	gate := admission.New(admission.Config{Slots: 1, Waiting: -1})
	w := newWorld(t, func(c *api.Config) { c.Admission = gate })
	forwarded := []call{
		{method: "GET", path: "/v1/forward-auth", key: w.acmeCheck, header: map[string]string{"X-Forwarded-Method": "POST", "X-Forwarded-Uri": "/v1/login"}},
		{method: "GET", path: "/v1/forward-auth?deny_status=403", key: w.acmeCheck, header: map[string]string{"X-Forwarded-Method": "POST", "X-Forwarded-Uri": "/v1/login"}},
		{method: "POST", path: "/v1/forward-auth/v1/login", key: w.acmeCheck},
	}
	must(t, gate.Enter(t.Context(), 0, 1))
	for _, c := range forwarded {
		rec := httptest.NewRecorder()
		func() {
			defer func() {
				if cause, _ := recover().(error); !errors.Is(cause, http.ErrAbortHandler) {
					t.Errorf("%s %s ended with %v", c.method, c.path, cause)
				}
			}()
			w.api.ServeHTTP(rec, w.request(c))
		}()
		if rec.Body.Len() > 0 {
			t.Errorf("%s %s: %s", c.method, c.path, rec.Body)
		}
	}
	if a := w.do(call{method: "POST", path: "/v1/check", key: w.acmeCheck, body: `{}`}); a.status != http.StatusServiceUnavailable {
		t.Errorf("/v1/check: %d %s", a.status, a.body)
	}
	if n := w.counter.asked.Load(); n != 0 {
		t.Errorf("the limiter was asked %d times", n)
	}
	gate.Leave(1)
	for _, c := range forwarded {
		rec := httptest.NewRecorder()
		if w.api.ServeHTTP(rec, w.request(c)); rec.Code != http.StatusOK {
			t.Errorf("%s %s afterwards: %d %s", c.method, c.path, rec.Code, rec.Body)
		}
	}
}

// If the client disconnects while its check is in the queue, the check is removed without a
// decision.
func TestClientThatGoesLeavesTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := admission.New(admission.Config{Slots: 1})
		w := newWorld(t, func(c *api.Config) { c.Admission = gate })
		must(t, gate.Enter(t.Context(), 0, 1))
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan any, 1)
		go func() {
			defer func() { ended <- recover() }()
			w.send(w.request(call{method: "POST", path: "/v1/check", key: w.operator, body: login}).WithContext(ctx))
		}()
		synctest.Wait()
		if s := gate.Status(); s.Waiting != 1 {
			t.Fatalf("%+v", s)
		}
		leave()
		if cause, _ := (<-ended).(error); !errors.Is(cause, http.ErrAbortHandler) {
			t.Errorf("ended with %v", cause)
		}
		gate.Leave(1)
		if s := gate.Status(); s != (admission.Status{}) || w.counter.asked.Load() != 0 {
			t.Errorf("%+v, asked %d times", s, w.counter.asked.Load())
		}
	})
}
