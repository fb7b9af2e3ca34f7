package api_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/api"
)

// Usage can be read for one policy, or for one key of it. A key is written as in a block,
// and the answer has the numbers in force.
func TestUsageOfOneKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.made(someOverride)
	w.made(call{method: "POST", path: "/v1/tenants/acme/blocks", body: `{"policy":"login-per-ip","key":{"ip":"203.0.113.77"},"reason":"a loop","expires_at":"2026-11-21T10:00:00Z"}`})
	for range 3 {
		w.do(call{method: "POST", path: "/v1/check", key: w.operator, body: strings.Replace(login, "203.0.113.9", "203.0.113.66", 1)})
	}
	type answerOf struct {
		Policies []api.PolicyUsage
	}
	get := func(key, query string) (a answer, u answerOf) {
		a = w.do(call{method: "GET", path: "/v1/tenants/acme/usage" + query, key: key})
		must(t, json.Unmarshal([]byte(a.body), &u))
		return a, u
	}
	one := func(attribute, value string) string {
		return "?policy=login-per-ip&key%5B" + url.QueryEscape(attribute) + "%5D=" + url.QueryEscape(value)
	}

	if a, u := get(w.acmeRead, "?policy=login-per-ip"); a.status != http.StatusOK || len(u.Policies) != 1 || u.Policies[0].Policy != "login-per-ip" {
		t.Errorf("one policy: %+v", a)
	}
	a, u := get(w.acmeRead, one("ip", "203.0.113.66"))
	if a.status != http.StatusOK || len(u.Policies) != 1 || len(u.Policies[0].Keys) != 1 {
		t.Fatalf("one key: %+v", a)
	}
	if k := u.Policies[0].Keys[0]; k.Key["ip"] != "203.0.113.66" || k.Limits[0].Used != 3 || k.Limits[0].Remaining != 2 || k.Override != nil || k.Block != nil {
		t.Errorf("one key: %s", a.body)
	}
	a, u = get(w.operator, one("ip", "203.0.113.77"))
	if k := u.Policies[0].Keys[0]; k.Limits[0].Quota != 12 || k.Override == nil || k.Override.Reason != "a load test" || k.Block == nil || k.Block.Reason != "a loop" {
		t.Errorf("a key with exceptions: %s", a.body)
	}
	if a, u := get(w.operator, one("ip", "")); a.status != http.StatusOK || len(u.Policies[0].Keys) != 1 || len(u.Policies[0].Keys[0].Key) != 0 {
		t.Errorf("requests without the attribute: %+v", a)
	}

	for query, at := range map[string]string{
		"?key[ip]=10.0.0.1":         `"pointer":"key"`,
		"?policy=login-per-ip&key=": `"pointer":"key"`,
		"?policy=login-per-ip&key=" + url.QueryEscape(`{"ip":"10.0.0.1"}`): `"pointer":"key"`,
		"?policy=login-per-ip&key[]=u":                                     `"pointer":"key[]"`,
		"?policy=login-per-ip&key[ip=u":                                    `"pointer":"key[ip"`,
		"?policy=login-per-ip&key[ip][a]=u":                                `"pointer":"key[ip][a]"`,
		"?policy=login-per-ip&keys[ip]=u":                                  `"pointer":"keys[ip]"`,
		"?policy=login-per-ip&key[ip]=10.0.0.1&key[ip]=10.0.0.2":           `"pointer":"key[ip]"`,
		one("ip", "10.0.0.1\n"):                                            `"pointer":"key[ip]"`,
		one("user", "u"):                                                   `"pointer":"/key/user"`,
		one("ip", "somewhere"):                                             `"pointer":"/key/ip"`,
		"?policy=Login":                                                    `"pointer":"policy"`,
		"?policy=login-per-ip&user=u":                                      `"pointer":"user"`,
		"?policy=login-per-ip&policy=login-per-i":                          `"pointer":"policy"`,
	} {
		if a, _ := get(w.operator, query); a.status != http.StatusBadRequest || !strings.Contains(a.body, at) {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	if a, _ := get(w.operator, "?policy=nothing"); a.status != http.StatusNotFound {
		t.Errorf("no such policy: %+v", a)
	}
	if a, _ := get(w.operator, "?limit=1&key[ip]=10.0.0.1"); a.status != http.StatusBadRequest {
		t.Errorf("an unknown parameter beside a key: %+v", a)
	}
	w.counter.away.Store(true)
	if a, _ := get(w.operator, ""); a.status != http.StatusOK { // no key was busy, so there is no key to read
		t.Errorf("nothing to ask: %+v", a)
	}
	if a, _ := get(w.operator, one("ip", "203.0.113.66")); a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, `"code":"limiter_unavailable"`) || a.header.Get("Retry-After") == "" {
		t.Errorf("away: %+v", a)
	}
}
