package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/audit"
)

// A leaseWorld is a world in which acme is on a plan with a concurrency limit of 2 places.
type leaseWorld struct{ *world }

func newLeaseWorld(t *testing.T) leaseWorld {
	t.Helper()
	w := newStrictWorld(t)
	for _, c := range onJobs() {
		w.made(c)
	}
	return leaseWorld{w}
}

// check sends a check of a job with other members, and compares the status and parts of the answer.
func (w leaseWorld) check(members string, status int, parts ...string) answer {
	w.t.Helper()
	return w.is(call{method: "POST", path: "/v1/check", body: `{"method":"POST","path":"/v1/jobs"` + members + `}`, key: w.acme}, status, parts...)
}

func (w leaseWorld) release(lease string, status int, parts ...string) {
	w.t.Helper()
	body := `{"method":"POST","path":"/v1/jobs","lease":{"id":"` + lease + `"}}`
	w.is(call{method: "POST", path: "/v1/leases/release", body: body, key: w.acme}, status, parts...)
}

func (w leaseWorld) is(c call, status int, parts ...string) answer {
	w.t.Helper()
	a := w.do(c)
	if a.status != status {
		w.t.Fatalf("%s %s %s: %d, want %d: %s", c.method, c.path, c.body, a.status, status, a.body)
	}
	for _, part := range parts {
		if !strings.Contains(a.body, part) {
			w.t.Errorf("%s\nlacks %s", a.body, part)
		}
	}
	return a
}

func (w leaseWorld) after(d time.Duration) { w.now.Add(d.Microseconds()) }

// If a client crashes, its place is free when the time to live of its lease ends, exact to the
// millisecond.
func TestLeases(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	a := w.check(`,"lease":{"id":"a","ttl_ms":5000}`, 200, `"lease":{"id":"a","ttl_ms":5000}`, `"remaining":1,"reset_after_ms":5000`)
	if got := a.header.Get("RateLimit-Policy"); got != `"jobs";q=2;qu="concurrent-requests"` {
		t.Errorf("RateLimit-Policy: %s", got)
	}
	if got := a.header.Get("RateLimit"); got != `"jobs";r=1;t=5` {
		t.Errorf("RateLimit: %s", got)
	}
	w.check(`,"lease":{"id":"b"}`, 200, `"lease":{"id":"b","ttl_ms":60000}`, `"remaining":0`)
	w.after(4 * time.Second)
	w.check(`,"lease":{"id":"c"}`, 429, `"over_limit"`, `"retry_after_ms":1000`)
	w.check(`,"lease":{"id":"a","ttl_ms":5000}`, 200, `"remaining":0`)
	w.after(4*time.Second + 999*time.Millisecond)
	w.check(`,"lease":{"id":"c"}`, 429, `"retry_after_ms":1`)
	w.after(time.Millisecond)
	w.check(`,"lease":{"id":"c"}`, 200, `"remaining":0`)
	for _, want := range []string{`"released":1`, `"released":0`} {
		w.release("b", 200, `"lease":{"id":"b"}`, want)
	}
	w.check(`,"mode":"peek","lease":{"id":"p"}`, 200, `"remaining":0`)
	w.check(`,"cost":0,"lease":{"id":"p"}`, 200, `"remaining":1`)
	own := w.check("", 200, `"remaining":0`, `"lease":{"id":"`)
	id := textBetween(own.body, `"decision_id":"`, `"`)
	if textBetween(own.body, `"lease":{"id":"`, `"`) != id {
		t.Errorf("the lease of a check without one is not its decision: %s", own.body)
	}
	w.release(id, 200, `"released":1`)
	w.check(`,"cost":3`, 429, `"cost_exceeds_quota"`)
	w.check(`,"mode":"force","cost":3,"lease":{"id":"f"}`, 200, `"lease":{"id":"f"`, `"allowed":false`)
	w.release("f", 200, `"released":3`)
}

func textBetween(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

// For invalid input, the error names the field. No place is taken or released.
func TestLeaseInput(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	long := strings.Repeat("x", 129)
	for members, want := range map[string]string{
		`"lease":"a"`:                             "/lease",
		`"lease":null`:                            "/lease",
		`"lease":{"id":""}`:                       "/lease/id",
		`"lease":{"id":"` + long + `"}`:           "/lease/id",
		`"lease":{"id":"a\nb"}`:                   "/lease/id",
		`"lease":{"id":"a\u0000"}`:                "/lease/id",
		`"lease":{"id":7}`:                        "/lease/id",
		`"lease":{"id":"a","ttl_ms":0}`:           "/lease/ttl_ms",
		`"lease":{"id":"a","ttl_ms":-1}`:          "/lease/ttl_ms",
		`"lease":{"id":"a","ttl_ms":1.5}`:         "/lease/ttl_ms",
		`"lease":{"id":"a","ttl_ms":31622400001}`: "/lease/ttl_ms",
		`"lease":{"id":"a","ttl":1}`:              "/lease/ttl",
		`"lease":{"id":"a"},"lease":{"id":"b"}`:   "/lease",
		`"lease":{"id":"a"},"lease_id":"a"`:       "/lease_id",
	} {
		w.check(","+members, 400, `"pointer":"`+want+`"`)
		w.is(call{method: "POST", path: "/v1/check/batch", body: `{"checks":[{"method":"POST","path":"/v1/jobs",` + members + `}]}`, key: w.acme},
			400, `"pointer":"/checks/0`+want+`"`)
	}
	for body, want := range map[string]string{
		`{"method":"POST","path":"/v1/jobs"}`:                                   "/lease/id",
		`{"method":"POST","path":"/v1/jobs","lease":{}}`:                        "/lease/id",
		`{"method":"POST","path":"/v1/jobs","lease":{"id":"a","ttl_ms":1}}`:     "/lease/ttl_ms",
		`{"method":"POST","path":"/v1/jobs","lease":{"id":"a"},"cost":1}`:       "/cost",
		`{"method":"POST","path":"/v1/jobs","lease":{"id":"a"},"mode":"force"}`: "/mode",
		`{"method":"POST","path":"/v1/jobs","lease":{"id":"a"},"x":1}`:          "/x",
		`{"path":"/v1/jobs","lease":{"id":"a"}}`:                                "/method",
		`{"method":"POST","lease":{"id":"a"}}`:                                  "/path",
	} {
		w.is(call{method: "POST", path: "/v1/leases/release", body: body, key: w.acme}, 400, `"pointer":"`+want+`"`)
	}
	w.is(call{method: "POST", path: "/v1/leases/release", body: `{"method":"POST","path":"/v1/jobs","lease":{"id":"a"}}`, key: w.operator},
		400, `"pointer":"/tenant"`)
	w.is(call{method: "POST", path: "/v1/leases/release", body: `{"tenant":"acme","method":"POST","path":"/v1/jobs","lease":{"id":"a"}}`, key: w.globex}, 403)
	w.is(call{method: "POST", path: "/v1/reservations", body: `{"ttl_ms":1000,"method":"POST","path":"/v1/jobs","lease":{"id":"a"}}`, key: w.acme},
		400, `"pointer":"/lease"`, "under its own id")
	w.check(`,"mode":"peek"`, 200, `"remaining":1`)
}

// The same lease ID of another tenant or of another key is a different lease.
func TestLeasesAreApart(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	w.made(call{method: "PATCH", path: "/v1/tenants/globex", body: `{"plan":"batch","status":"active"}`, header: map[string]string{"If-Match": "*"}})
	w.check(`,"lease":{"id":"a"}`, 200)
	body := `{"method":"POST","path":"/v1/jobs","lease":{"id":"a"}}`
	w.is(call{method: "POST", path: "/v1/leases/release", body: body, key: w.globex}, 200, `"released":0`)
	w.check(`,"mode":"peek","lease":{"id":"b"}`, 200, `"remaining":0`)
	w.release("a", 200, `"released":1`)
}

// An atomic batch has one lease, and each check of another batch has its own.
func TestLeasesOfBatches(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	batch := func(status int, atomic bool, leases []string, parts ...string) {
		t.Helper()
		var checks []string
		for _, l := range leases {
			checks = append(checks, `{"method":"POST","path":"/v1/jobs","lease":`+l+`}`)
		}
		body := fmt.Sprintf(`{"atomic":%t,"checks":[%s]}`, atomic, strings.Join(checks, ","))
		w.is(call{method: "POST", path: "/v1/check/batch", body: body, key: w.acme}, status, parts...)
	}
	batch(400, true, []string{`{"id":"a"}`, `{"id":"b"}`}, `"/checks/1/lease"`, "one lease")
	batch(400, true, []string{`{"id":"a"}`, `{"id":"a","ttl_ms":1}`}, `"/checks/1/lease"`)
	batch(200, true, []string{`{"id":"a"}`, `{"id":"a"}`}, `"remaining":0`)
	w.release("a", 200, `"released":2`)
	batch(200, false, []string{`{"id":"a"}`, `{"id":"b"}`, `{"id":"c"}`}, `"lease":{"id":"a"`, `"lease":{"id":"b"`, `"status":429`)
	w.release("a", 200, `"released":1`)
}

// A reservation holds places under its own ID until it ends in any way.
func TestLeasesOfReservations(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	reserve := func(id string, status int) {
		t.Helper()
		body := `{"id":"` + id + `","ttl_ms":10000,"method":"POST","path":"/v1/jobs","cost":2}`
		w.is(call{method: "POST", path: "/v1/reservations", body: body, key: w.acme}, status)
	}
	ask := func(method, path, body string) {
		t.Helper()
		w.is(call{method: method, path: "/v1/reservations/" + path, body: body, key: w.acme}, 200)
	}
	free := func() { t.Helper(); w.check(`,"cost":2,"mode":"peek"`, 200) }
	full := func(retry int) { t.Helper(); w.check("", 429, fmt.Sprintf(`"retry_after_ms":%d`, retry)) }

	reserve("job-1", 201)
	full(10_000)
	w.after(6 * time.Second)
	ask("POST", "job-1/extend", `{"ttl_ms":10000}`)
	full(10_000)
	w.is(call{method: "GET", path: "/v1/tenants/acme/leases?policy=jobs", key: w.acme}, 200, `"id":"job-1"`, `"places":2`)
	ask("POST", "job-1/settle", `{"cost":2}`) // the work cost 2 units, and is over
	free()
	reserve("job-2", 201)
	ask("DELETE", "job-2", "")
	free()
	reserve("job-3", 201)
	w.after(9*time.Second + 999*time.Millisecond)
	full(1)
	w.after(time.Millisecond)
	free()
}

// The list shows who holds places, and an operator can revoke a lease. Both show the caller's ID
// if it is short.
func TestLeaseList(t *testing.T) {
	t.Parallel()
	w := newLeaseWorld(t)
	w.check(`,"lease":{"id":"a job of 16 long"}`, 200)
	w.check(`,"lease":{"id":"job-42","ttl_ms":30000}`, 200)
	list := func(query string, status int, parts ...string) answer {
		t.Helper()
		return w.is(call{method: "GET", path: "/v1/tenants/acme/leases" + query, key: w.acme}, status, parts...)
	}
	a := list("?policy=jobs", 200, `"limits":[{"limit":"l1","quota":2,"used":2}]`, `"leases":[{"expires_at":"2026-11-21T09:00:30.000Z","id":"job-42","limit":"l1","places":1},`)
	long := textBetween(a.body, `09:01:00.000Z","id":"`, `"`)
	list("", 400, `"pointer":"policy"`)
	list("?policy=nothing", 404)
	list("?policy=jobs&key[user]=u", 400, "counts the whole tenant")

	revoke := func(body string, status int, parts ...string) {
		t.Helper()
		w.is(call{method: "POST", path: "/v1/tenants/acme/leases/revoke", body: body, key: w.operator}, status, parts...)
	}
	revoke(`{"policy":"jobs","key":{},"lease":{"id":""}}`, 422, `"/lease/id"`)
	revoke(`{"policy":"jobs","key":{},"lease":{"id":"a"},"reason":"`+strings.Repeat("x", 501)+`"}`, 422, `"/reason"`)
	revoke(`{"policy":"other","key":{},"lease":{"id":"a"}}`, 422, `"/policy"`)
	revoke(`{"policy":"jobs","key":{},"lease":{"id":"nobody"}}`, 200, `"released":0`)
	revoke(`{"policy":"jobs","key":{},"lease":{"id":"`+long+`"},"reason":"hangs"}`, 200, `"released":1`)
	revoke(`{"policy":"jobs","key":{},"lease":{"id":"job-42"}}`, 200, `"released":1`)
	list("?policy=jobs", 200, `"leases":[]`, `"used":0`)
	w.is(call{method: "POST", path: "/v1/tenants/acme/leases/revoke", body: `{"policy":"jobs","key":{},"lease":{"id":"a"}}`, key: w.acme}, http.StatusForbidden)

	lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Action: "lease.revoke", Limit: 10})
	must(t, err)
	if len(lines) != 2 || !strings.Contains(string(lines[1].After), `"lease":"`+long+`"`) || !strings.Contains(string(lines[1].After), `"hangs"`) {
		t.Errorf("%d audit lines: %s", len(lines), lines[min(1, len(lines)-1)].After)
	}
}

// A policy without a concurrency limit has no leases.
func TestLeasesOfOtherPolicies(t *testing.T) {
	t.Parallel()
	w := newStrictWorld(t)
	c := call{
		method: "POST", path: "/v1/check", key: w.acme,
		body: `{"method":"POST","path":"/v1/login","attributes":{"ip":"203.0.113.9"},"lease":{"id":"a"}}`,
	}
	if a := w.do(c); a.status != 200 || strings.Contains(a.body, `"lease"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	a := w.do(call{method: "GET", path: "/v1/tenants/acme/leases?policy=login-per-ip&key[ip]=203.0.113.9", key: w.acme})
	if a.status != 200 || !strings.Contains(a.body, `"leases":[],"limits":[]`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	body := `{"policy":"login-per-ip","key":{"ip":"203.0.113.9"},"lease":{"id":"a"}}`
	a = w.do(call{method: "POST", path: "/v1/tenants/acme/leases/revoke", body: body, key: w.operator})
	if a.status != 422 || !strings.Contains(a.body, "no concurrency limit") {
		t.Errorf("%d %s", a.status, a.body)
	}
}
