package api_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// refundableBody is the body of a login with other members.
func refundableBody(members string) string {
	return `{"method":"POST","path":"/v1/login","attributes":{"ip":"203.0.113.9"},"refundable":true` + members + `}`
}

func TestRefundOfACheck(t *testing.T) {
	t.Parallel()
	w := newStrictWorld(t)
	check := func(body string) (id string) {
		a := w.do(call{method: "POST", path: "/v1/check", body: body, key: w.acme})
		var d struct {
			Decision string `json:"decision_id"`
			Until    string `json:"refundable_until"`
		}
		if err := json.Unmarshal([]byte(a.body), &d); err != nil || a.status != 200 || d.Until != "2026-11-21T09:01:00.000Z" {
			t.Fatalf("%d %s: %v", a.status, a.body, err)
		}
		return d.Decision
	}
	refund := func(key, id, query string, header ...string) answer {
		c := call{method: "POST", path: "/v1/checks/" + id + "/refund" + query, key: key, header: map[string]string{}}
		if len(header) > 0 {
			c.header["Idempotency-Key"] = header[0]
		}
		return w.do(c)
	}

	id := check(refundableBody(`,"cost":4`))
	is(t, refund(w.globex, id, ""), 404, "no check with this decision id")
	is(t, refund(w.acmeRead, id, ""), 403)
	is(t, refund(w.acme, "0", ""), 404, "no check with this decision id")
	is(t, refund(w.acme, id, "", strings.Repeat("k", 256)), 400, `"pointer":"Idempotency-Key"`)
	is(t, refund(w.acme, id, "", "ü"), 400, `"pointer":"Idempotency-Key"`)
	is(t, refund(w.operator, id, ""), 400, `"pointer":"tenant"`)
	is(t, refund(w.operator, id, "?tenant=nobody"), 404)
	is(t, refund(w.acme, id, "?tenant=globex"), 403)

	first := refund(w.acme, id, "", "k")
	is(t, first, 200, `"policy":"login-per-ip","refunded":4`, `"charged":4`, `"tenant":"acme"`)
	again := refund(w.acme, id, "", "k")
	if again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" || first.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("a repetition: %s, %v", again.body, again.header)
	}
	is(t, refund(w.acme, id, ""), 409, `"code":"check_refunded"`, "was refunded at 2026-11-21T09:00:00.000Z; policy login-per-ip, limit l1: 4 of 4 given back")
	is(t, refund(w.operator, id, "?tenant=acme"), 409, `"code":"check_refunded"`)
	id = check(refundableBody(`,"cost":5`)) // all 5 units are available again

	w.now.Add(61_000_000)
	is(t, refund(w.acme, id, ""), 409, `"code":"refund_too_late"`, "the windows that it charged ended at 2026-11-21T09:01:00.000Z")
}

// In a batch, each check can be refunded by itself.
func TestRefundOfABatch(t *testing.T) {
	t.Parallel()
	w := newStrictWorld(t)
	body := `{"checks":[` + refundableBody("") + `,` + refundableBody(`,"cost":2`) + `]}`
	a := w.do(call{method: "POST", path: "/v1/check/batch", body: body, key: w.acme})
	var out struct {
		Results []struct {
			Decision string `json:"decision_id"`
		}
	}
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || len(out.Results) != 2 || strings.Count(a.body, "refundable_until") != 2 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	a = w.do(call{method: "POST", path: "/v1/checks/" + out.Results[1].Decision + "/refund", key: w.acme})
	if a.status != 200 || !strings.Contains(a.body, `"refunded":2`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	a = w.do(call{method: "POST", path: "/v1/check", body: login, key: w.operator})
	if !strings.Contains(a.body, `"remaining":3`) {
		t.Error(a.body)
	}
}

// Bad input names the field and charges nothing.
func TestRefundableInput(t *testing.T) {
	t.Parallel()
	w := newStrictWorld(t)
	for _, c := range []struct{ path, body, pointer string }{
		{"/v1/check", refundableBody(`,"mode":"peek"`), "/refundable"},
		{"/v1/check", strings.Replace(refundableBody(""), "true", `"yes"`, 1), "/refundable"},
		{"/v1/check", strings.Replace(refundableBody(""), "true", "null", 1), "/refundable"},
		{"/v1/check/batch", `{"atomic":true,"checks":[` + refundableBody("") + `]}`, "/checks/0/refundable"},
		{"/v1/check/batch", `{"checks":[` + refundableBody("") + `,` + refundableBody(`,"mode":"peek"`) + `]}`, "/checks/1/refundable"},
		{"/v1/reservations", refundableBody(`,"ttl_ms":60000`), "/refundable"},
	} {
		a := w.do(call{method: "POST", path: c.path, body: c.body, key: w.acme})
		if a.status != 400 || !strings.Contains(a.body, `"pointer":"`+c.pointer+`"`) {
			t.Errorf("%s %s: %d %s", c.path, c.body, a.status, a.body)
		}
	}
	if left := w.left(); left != `"login-per-ip";r=5;t=0` {
		t.Error("charged:", left)
	}
	if a := w.do(call{method: "POST", path: "/v1/explain", body: refundableBody(""), key: w.acme}); a.status != 200 || strings.Contains(a.body, "refundable_until") {
		t.Errorf("an explanation: %d %s", a.status, a.body)
	}
}
