package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement/inprocess"
)

// Requests to the API have limits by key and by address, and stricter ones without a valid key. A denial says when to
// try again, and checks are not limited.
func TestRequestLimits(t *testing.T) {
	t.Parallel()
	var now, denied atomic.Int64
	now.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	var address atomic.Value
	address.Store("192.0.2.1")
	w := newWorld(t, func(c *api.Config) {
		c.Requests = api.RequestLimits{Limiter: inprocess.New(inprocess.Config{Now: now.Load}), PerKey: 60, PerAddress: 100, Denied: &denied}
		c.ClientAddress = func(*http.Request) string { return address.Load().(string) }
	})
	list := func(key string) answer { return w.do(call{method: "GET", path: "/v1/plans", key: key}) }
	refused := func(a answer, after string) {
		t.Helper()
		if a.status != http.StatusTooManyRequests || !strings.Contains(a.body, "/docs/problems/too-many-requests") || a.header.Get("Retry-After") != after {
			t.Fatalf("%d %v %s", a.status, a.header, a.body)
		}
	}
	wants := func(a answer, status int) {
		t.Helper()
		if a.status != status {
			t.Fatalf("%d %s, want %d", a.status, a.body, status)
		}
	}
	for i := range 60 {
		a := list(w.operator)
		if want := fmt.Sprintf(`"api-key";r=%d;t=`, 59-i); a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("RateLimit"), want) ||
			a.header.Get("RateLimit-Policy") != `"api-key";q=60;w=60, "api-address";q=100;w=60` {
			t.Fatalf("request %d: %d %v", i, a.status, a.header)
		}
	}
	refused(list(w.operator), "1")
	if denied.Load() != 1 {
		t.Errorf("%d denied requests are counted, want 1", denied.Load())
	}
	// Checks and health checks are not limited. Another key has its own limit.
	wants(w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: `{"tenant": "none", "method": "GET", "path": "/"}`}), http.StatusNotFound)
	wants(w.do(call{method: "POST", path: "/v1/check/batch", key: w.operator, body: `{"checks": [{"tenant": "none", "method": "GET", "path": "/"}]}`}), http.StatusOK)
	wants(w.do(call{method: "GET", path: "/livez"}), http.StatusOK)
	// A twentieth of the requests of an address may have no valid key.
	for range 5 {
		wants(list("hg_op_wrong"), http.StatusUnauthorized)
	}
	refused(list("hg_op_wrong"), "12")
	address.Store("2001:db8::1")
	for i := range 5 {
		address.Store(fmt.Sprintf("2001:db8::%d", i))
		wants(list("hg_op_wrong"), http.StatusUnauthorized)
	}
	refused(list("hg_op_wrong"), "12")
	now.Add(int64(time.Second / time.Microsecond))
	wants(list(w.operator), http.StatusOK)
	refused(list(w.operator), "1")
}
