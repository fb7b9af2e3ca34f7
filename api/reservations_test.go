package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// reserveBody is the body of a reservation of 4 logins of 5, with other members.
func reserveBody(members string) string {
	return `{"ttl_ms":30000,"method":"POST","path":"/v1/login","attributes":{"ip":"203.0.113.9"},"cost":4` + members + `}`
}

// A reserved is a part of an answer.
type reservedAnswer struct {
	ID          string
	State       string
	Reservation *reservedAnswer
	Limits      []struct {
		Cost, Estimate, Remaining int64
	}
	Data    []reservedAnswer
	HasMore bool   `json:"has_more"`
	Next    string `json:"next_cursor"`
}

func readReserved(t *testing.T, a answer) (r reservedAnswer) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &r); err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return r
}

func TestReservations(t *testing.T) {
	t.Parallel()
	w := newStrictWorld(t)
	ask := func(method, path, body string, header ...string) answer {
		c := call{method: method, path: path, body: body, key: w.acme, header: map[string]string{}}
		for i := 0; i < len(header); i += 2 {
			c.header[header[i]] = header[i+1]
		}
		return w.do(c)
	}

	is(t, ask("POST", "/v1/reservations", reserveBody(`,"id":"job-1"`)), 201, `"reservation":{`, `"state":"active"`)
	again := ask("POST", "/v1/reservations", reserveBody(`,"id":"job-1"`))
	is(t, again, 201, `"replayed":true`, `"state":"active"`)
	if again.header.Get("Idempotent-Replayed") != "true" {
		t.Error("a repetition without Idempotent-Replayed")
	}
	is(t, ask("POST", "/v1/reservations", reserveBody(`,"id":"job-1","mode":"force"`)), 409, `"reservation_exists"`)
	is(t, ask("POST", "/v1/reservations", reserveBody(`,"id":"job-2"`)), 429, `"over_limit"`)
	is(t, ask("GET", "/v1/reservations/job-2", ""), 404, "no such reservation")

	is(t, ask("POST", "/v1/reservations/job-1/extend", `{"ttl_ms":60000}`), 200, `"state":"active"`)
	is(t, ask("GET", "/v1/reservations", ""), 200, `"id":"job-1"`)
	settled := ask("POST", "/v1/reservations/job-1/settle", `{"cost":1}`)
	is(t, settled, 200, `"state":"settled"`, `"cost":1,"estimate":4`)
	again = ask("POST", "/v1/reservations/job-1/settle", `{"cost":1}`)
	if again.body != settled.body || again.header.Get("Idempotent-Replayed") != "true" || settled.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("a repeated settle: %s", again.body)
	}
	is(t, ask("POST", "/v1/reservations/job-1/settle", `{"cost":2}`), 409, `"reservation_ended"`, "was settled at", "1 of 4 charged")
	is(t, ask("DELETE", "/v1/reservations/job-1", ""), 409, `"reservation_ended"`)
	is(t, ask("GET", "/v1/reservations", ""), 200, `"data":[]`)

	// The refund is in the window that was charged: 1 of 5 is used.
	made := ask("POST", "/v1/reservations", reserveBody(""), "Idempotency-Key", "k1")
	is(t, made, 201, `"remaining":0`)
	is(t, ask("POST", "/v1/reservations", reserveBody(""), "Idempotency-Key", "k1"), 201, `"replayed":true`)
	id := readReserved(t, made).Reservation.ID
	is(t, ask("DELETE", "/v1/reservations/"+id, ""), 200, `"state":"released"`, `"cost":0`)
	is(t, ask("DELETE", "/v1/reservations/"+id, ""), 200, `"state":"released"`)

	// Another tenant does not find it, and an operator must name the tenant.
	is(t, w.do(call{method: "GET", path: "/v1/reservations/job-1", key: w.globex}), 404)
	is(t, w.do(call{method: "POST", path: "/v1/reservations/job-1/settle", body: `{"cost":1}`, key: w.globex}), 404)
	is(t, w.do(call{method: "GET", path: "/v1/reservations/job-1", key: w.operator}), 400, "is required with an operator key")
	is(t, w.do(call{method: "GET", path: "/v1/reservations/job-1?tenant=acme", key: w.operator}), 200, `"settled"`)
	is(t, w.do(call{method: "GET", path: "/v1/reservations/job-1?tenant=nobody", key: w.operator}), 404)
}

// Bad input names the field and charges nothing.
func TestReservationInput(t *testing.T) {
	t.Parallel()
	w := newStrictWorld(t)
	for body, want := range map[string]string{
		`{"method":"POST","path":"/v1/login"}`:                                    "/ttl_ms",
		reserveBody(`,"ttl_ms":1`):                                                "/ttl_ms",
		`{"ttl_ms":999,"method":"POST","path":"/v1/login"}`:                       "/ttl_ms",
		`{"ttl_ms":86400001,"method":"POST","path":"/v1/login"}`:                  "/ttl_ms",
		reserveBody(`,"id":""`):                                                   "/id",
		reserveBody(`,"id":"a b"`):                                                "/id",
		reserveBody(`,"id":".a"`):                                                 "/id",
		reserveBody(`,"id":"` + strings.Repeat("a", 65) + `"`):                    "/id",
		reserveBody(`,"mode":"peek"`):                                             "/mode",
		reserveBody(`,"unknown":1`):                                               "/unknown",
		`{"ttl_ms":30000}`:                                                        "/method",
		`{"ttl_ms":30000,"method":"POST","path":"/v1/login","cost":"1"}`:          "/cost",
		`{"ttl_ms":30000,"method":"POST","path":"/v1/login","cost":-1}`:           "/cost",
		`{"ttl_ms":30000,"method":"POST","path":"/v1/login","cost":9999999999}`:   "/cost",
		`{"ttl_ms":30000,"method":"POST","path":"/v1/login","tenant":"globex00"}`: "",
	} {
		a := w.do(call{method: "POST", path: "/v1/reservations", body: body, key: w.acme})
		if a.status != 400 && a.status != 403 || want != "" && !strings.Contains(a.body, `"pointer":"`+want+`"`) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	// If the request has an id, the Idempotency-Key has no effect. SDKs send a random key with
	// each call that creates an object.
	for _, key := range []string{"k1", "k2"} {
		a := w.do(call{
			method: "POST", path: "/v1/reservations", body: reserveBody(`,"id":"a"`), key: w.acme, header: map[string]string{"Idempotency-Key": key},
		})
		if a.status != 201 || !strings.Contains(a.body, `"id":"a"`) {
			t.Errorf("an id and a key: %d %s", a.status, a.body)
		}
	}
	for _, c := range [][2]string{
		{"/settle", `{"cost":-1}`},
		{"/settle", `{"cost":3000000000}`},
		{"/settle", `{"cots":1}`},
		{"/settle", `{"cost":null}`},
		{"/settle", `{"attributes":{"":"1"}}`},
		{"/extend", `{}`},
		{"/extend", `{"ttl_ms":0}`},
		{"/extend", `{"ttl_ms":86400001}`},
		{"/extend", `{"ttl_ms":-9000000000000000000}`},
	} {
		if a := w.do(call{method: "POST", path: "/v1/reservations/a" + c[0], body: c[1], key: w.acme}); a.status != 400 {
			t.Errorf("%s: %d %s", c, a.status, a.body)
		}
	}
	if a := w.do(call{method: "GET", path: "/v1/reservations/a", key: w.acme}); !strings.Contains(a.body, `"active"`) {
		t.Error(a.body)
	}
}

// A list has pages, in the order of the ends.
func TestListReservations(t *testing.T) {
	t.Parallel()
	w := newStrictWorld(t)
	for i := range 5 {
		body := fmt.Sprintf(`{"id":"r%d","ttl_ms":%d,"method":"GET","path":"/v1/items","cost":0}`, i, 60_000-1000*i)
		if a := w.do(call{method: "POST", path: "/v1/reservations", body: body, key: w.acme}); a.status != 201 {
			t.Fatal(a.status, a.body)
		}
	}
	var ids []string
	for path := "/v1/reservations?limit=2"; path != ""; {
		page := readReserved(t, w.do(call{method: "GET", path: path, key: w.acme}))
		for _, r := range page.Data {
			ids = append(ids, r.ID)
		}
		if path = ""; page.HasMore {
			path = "/v1/reservations?limit=2&cursor=" + page.Next
		}
	}
	if got := strings.Join(ids, " "); got != "r4 r3 r2 r1 r0" {
		t.Error(got)
	}
}

// Without the limiter, a settle gets status 503 with Retry-After. A degraded decision creates
// no reservation.
func TestReservationsWithoutTheLimiter(t *testing.T) {
	t.Parallel()
	w := newStrictWorld(t)
	w.counter.away.Store(true)
	a := w.do(call{method: "POST", path: "/v1/reservations/a/settle", body: `{"cost":1}`, key: w.acme})
	if a.status != 503 || a.header.Get("Retry-After") != "1" || !strings.Contains(a.body, "at most once") {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	a = w.do(call{method: "POST", path: "/v1/reservations", body: reserveBody(""), key: w.acme})
	if strings.Contains(a.body, `"reservation"`) || !strings.Contains(a.body, `"degraded":true`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Without a key, a repeated extension moves the end again. With the key of the last extension, it
// changes nothing.
func TestExtensionWithAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := newStrictWorld(t)
	ask := func(path, body, key string) answer {
		c := call{method: "POST", path: path, body: body, key: w.acme}
		if key != "" {
			c.header = map[string]string{"Idempotency-Key": key}
		}
		return w.do(c)
	}
	end := func(a answer) string {
		t.Helper()
		is(t, a, 200, `"state":"active"`)
		return textBetween(a.body, `"expires_at":"`, `"`)
	}
	is(t, ask("/v1/reservations", reserveBody(`,"id":"job-1"`), ""), 201)
	const extend = "/v1/reservations/job-1/extend"
	first := end(ask(extend, `{"ttl_ms":60000}`, "k1"))
	w.now.Add(5_000_000)
	again := ask(extend, `{"ttl_ms":60000}`, "k1")
	if got := end(again); got != first || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a repetition ends at %s, want %s; headers %v", got, first, again.header)
	}
	is(t, ask(extend, `{"ttl_ms":70000}`, "k1"), 409, `"idempotency_key_reused"`)
	is(t, ask(extend, `{"ttl_ms":60000}`, "a key"), 400, `"pointer":"Idempotency-Key"`)
	is(t, ask(extend, `{"ttl_ms":60000}`, "k2"), 200)
	w.now.Add(5_000_000)
	second := end(ask(extend, `{"ttl_ms":60000}`, ""))
	if second <= first {
		t.Errorf("without a key, the end is %s", second)
	}
	w.now.Add(1_000_000)
	if third := end(ask(extend, `{"ttl_ms":60000}`, "k2")); third <= second {
		t.Errorf("k2 is not the key of the last extension any more, and the end is %s", third)
	}
	is(t, ask("/v1/reservations/job-1/settle", `{"cost":1}`, ""), 200)
	is(t, ask(extend, `{"ttl_ms":60000}`, "k2"), 409, `"reservation_ended"`)
}

// A key that may only peek changes no reservation, and refunds no check. deny_status is not for
// reservations.
func TestReservationsOfBoundedKeys(t *testing.T) {
	t.Parallel()
	w := newStrictWorld(t)
	is(t, w.do(call{method: "POST", path: "/v1/reservations", body: reserveBody(`,"id":"job-1"`), key: w.acme}), 201)
	made := w.do(call{method: "POST", path: "/v1/tenants/acme/keys", body: `{"name":"peeks","scopes":["check"],"peek_only":true}`, key: w.operator})
	is(t, made, 201)
	peeks := textBetween(made.body, `"token":"`, `"`)
	for path, body := range map[string]string{
		"/v1/reservations/job-1/settle": `{"cost":0}`, "/v1/reservations/job-1/extend": `{"ttl_ms":60000}`,
		"/v1/checks/01939c1e-5a7b-7c3d-9e2f-0a1b2c3d4e5f/refund": "",
	} {
		is(t, w.do(call{method: "POST", path: path, body: body, key: peeks}), 403, `"key_peek_only"`)
	}
	is(t, w.do(call{method: "DELETE", path: "/v1/reservations/job-1", key: peeks}), 403, `"key_peek_only"`)
	made = w.do(call{method: "POST", path: "/v1/tenants/acme/keys", body: `{"name":"cheap","scopes":["check"],"max_cost":2}`, key: w.operator})
	is(t, made, 201)
	cheap := textBetween(made.body, `"token":"`, `"`)
	is(t, w.do(call{method: "POST", path: "/v1/reservations/job-1/settle", body: `{"cost":3}`, key: cheap}), 403, `"key_max_cost"`)
	is(t, w.do(call{method: "GET", path: "/v1/reservations/job-1", key: w.acme}), 200, `"state":"active"`)
	is(t, w.do(call{method: "POST", path: "/v1/reservations/job-1/settle", body: `{"cost":2}`, key: cheap}), 200, `"state":"settled"`)
	is(t, w.do(call{method: "POST", path: "/v1/reservations?deny_status=200", body: reserveBody(""), key: w.acme}), 400, `"pointer":"deny_status"`)
}
