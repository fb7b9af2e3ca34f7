package api_test

import (
	"strings"
	"testing"
)

func TestTakeUpTo(t *testing.T) {
	t.Parallel()
	w := newStrictWorld(t)
	body := func(members string) string {
		return `{"method":"POST","path":"/v1/login","attributes":{"ip":"203.0.113.9"},"mode":"take_up_to"` + members + `}`
	}
	is := func(path, body string, status int, parts ...string) {
		t.Helper()
		a := w.do(call{method: "POST", path: path, body: body, key: w.acme})
		if a.status != status {
			t.Fatalf("%d, want %d: %s", a.status, status, a.body)
		}
		for _, part := range parts {
			if !strings.Contains(a.body, part) {
				t.Errorf("%s\nlacks %s", a.body, part)
			}
		}
	}
	// Bad input names the field and charges nothing.
	is("/v1/check", body(`,"cost":0`), 400, `"pointer":"/cost"`)
	is("/v1/check", body(`,"refundable":true`), 400, `"pointer":"/refundable"`)
	is("/v1/check/batch", `{"atomic":true,"checks":[`+body("")+`]}`, 400, `"pointer":"/checks/0/mode"`)
	is("/v1/reservations", body(`,"ttl_ms":60000`), 400, `"pointer":"/mode"`)
	is("/v1/check", strings.Replace(body(""), "take_up_to", "take", 1), 400, `"pointer":"/mode"`, "take_up_to")
	is("/v1/explain", body(`,"cost":9`), 200, `"mode":"peek"`, `"allowed":false`)

	is("/v1/check", body(`,"cost":3`), 200, `"mode":"take_up_to"`, `"taken":3`, `"cost":3,"remaining":2`)
	is("/v1/check/batch", `{"checks":[`+body(`,"cost":9`)+`,`+body(`,"cost":9`)+`]}`, 200, `"taken":2`, `"cost":2,"remaining":0`, `"status":429`, `"taken":0`)
	is("/v1/check", body(""), 429, `"reason":"over_limit"`, `"taken":0`, `"retry_after_ms":60000`)
	if a := w.do(call{method: "POST", path: "/v1/check", body: login, key: w.operator}); strings.Contains(a.body, "taken") {
		t.Errorf("another mode: %s", a.body)
	}
}
