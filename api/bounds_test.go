package api_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/simulation"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// property returns the schema of a member. way is the path from a named schema; "[]" stands for
// the elements of an array.
func property(t *testing.T, way string) *openapi3.Schema {
	t.Helper()
	doc, _ := contract()
	steps := strings.Split(way, ".")
	s := doc.Components.Schemas[steps[0]]
	for _, step := range steps[1:] {
		switch {
		case s == nil:
		case step == "[]":
			s = s.Value.Items
		case step == "{}":
			s = s.Value.AdditionalProperties.Schema
		default:
			s = s.Value.Properties[step]
		}
	}
	if s == nil {
		t.Fatalf("openapi.yaml has no %s", way)
	}
	return s.Value
}

// The bounds in openapi.yaml are those that the code checks. An SDK that checks before it sends
// must accept and reject the same values as the server.
func TestBoundsAreTheDocuments(t *testing.T) {
	t.Parallel()
	for way, want := range map[string]int{
		"PlanDocument.name":        plans.MaxName,
		"PlanDocument.description": plans.MaxDescription,
		"PlanDocument.policies":    plans.MaxPolicies,
		"Policy.description":       plans.MaxDescription,
		"Policy.count_by":          plans.MaxCountBy,
		"Policy.replaces":          plans.MaxPolicies,
		"Policy.limits":            plans.MaxLimits,
		"Match.methods":            plans.MaxMethods,
		"Match.attributes":         plans.MaxAttributes,
		"TenantDocument.name":      tenants.MaxName,
		"NewKey.name":              tenants.MaxName,
		"Attributes":               enforcement.MaxAttributes,
		"Attributes.{}":            enforcement.MaxAttributeValue,
		"Match.attributes.{}":      enforcement.MaxAttributeValue,
		"Policy.count_by.[]":       enforcement.MaxAttributeName,
		"Scenario.limits":          simulation.MaxLimits,
		"Step.limits":              simulation.MaxLimits,
		"DecisionBase.limits":      plans.MaxCharges,
		"ViolatedPolicies":         plans.MaxCharges,
		"NewOverride.reason":       exceptions.MaxReason,
		"NewOverride.attribute":    enforcement.MaxAttributeName,
		"NewOverride.value":        enforcement.MaxAttributeValue,
		"NewOverride.prefix":       enforcement.MaxAttributeValue,
		"NewOverride.limits":       plans.MaxLimits,
		"NewListEntry.reason":      exceptions.MaxReason,
		"NewListEntry.attribute":   enforcement.MaxAttributeName,
		"NewListEntry.value":       enforcement.MaxAttributeValue,
		"NewBlock.reason":          exceptions.MaxReason,
		"Reset.reason":             exceptions.MaxReason,
		"PartitionKey":             plans.MaxCountBy,
		"PartitionKey.{}":          enforcement.MaxAttributeValue,
		"Explanation.policies":     plans.MaxPolicies,
		"KeptRefusal.limits":       plans.MaxCharges,
	} {
		s := property(t, way)
		for name, most := range map[string]*uint64{"maxLength": s.MaxLength, "maxItems": s.MaxItems, "maxProperties": s.MaxProps} {
			if most != nil && *most != uint64(want) {
				t.Errorf("%s: %s is %d, the code says %d", way, name, *most, want)
			}
		}
		if want > 0 && s.MaxLength == nil && s.MaxItems == nil && s.MaxProps == nil {
			t.Errorf("%s has no bound, the code says %d", way, want)
		}
	}
	for way, want := range map[string]int64{
		"Limit.quota":              enforcement.MaxQuota,
		"Limit.burst":              enforcement.MaxQuota,
		"SimulatedLimit.quota":     enforcement.MaxQuota,
		"SimulatedLimit.window_ms": enforcement.MaxWindow.Milliseconds(),
		"LimitState.window_ms":     enforcement.Year.Longest().Milliseconds(),
		"CheckRequest.cost":        enforcement.MaxCost,
		"Step.cost":                enforcement.MaxCost,
		"Step.repeat":              simulation.MaxRepeat,
		"RotateKey.overlap_ms":     tenants.MaxOverlap.Milliseconds(),
		"OverrideLimit.quota":      enforcement.MaxQuota,
		"OverrideLimit.burst":      enforcement.MaxQuota,
		"NewOverride.factor":       enforcement.MaxFactor / 1000,
	} {
		if most := property(t, way).Max; most == nil || int64(*most) != want {
			t.Errorf("%s: maximum is %v, the code says %d", way, most, want)
		}
	}
}

// The server accepts what is at a bound of a plan or a tenant, and rejects one more.
func TestBoundsAreHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	limit := map[string]any{"algorithm": "gcra", "quota": 1, "window": "1s"}
	names := func(n int, prefix string) (list []string) {
		for i := range n {
			list = append(list, prefix+strconv.Itoa(i))
		}
		return list
	}
	policy := func(member string, value any) map[string]any {
		p := map[string]any{"slug": "p", "limits": []any{limit}}
		p[member] = value
		return map[string]any{"name": "n", "policies": []any{p}}
	}
	repeat := func(n int, make func(i int) any) (list []any) {
		for i := range n {
			list = append(list, make(i))
		}
		return list
	}
	attributes := func(n int) map[string]string {
		m := map[string]string{}
		for _, name := range names(n, "a") {
			m[name] = "v"
		}
		return m
	}
	for way, document := range map[string]func(n int) any{
		"PlanDocument.name":        func(n int) any { return map[string]any{"name": strings.Repeat("ä", n)} },
		"PlanDocument.description": func(n int) any { return map[string]any{"name": "n", "description": strings.Repeat("ä", n)} },
		"PlanDocument.policies": func(n int) any {
			return map[string]any{"name": "n", "policies": repeat(n, func(i int) any {
				return map[string]any{"slug": "p" + strconv.Itoa(i), "mode": "off", "limits": []any{limit}}
			})}
		},
		"Policy.description": func(n int) any { return policy("description", strings.Repeat("ä", n)) },
		"Policy.count_by":    func(n int) any { return policy("count_by", names(n, "a")) },
		"Policy.count_by.[]": func(n int) any { return policy("count_by", []string{strings.Repeat("a", n)}) },
		"Policy.limits":      func(n int) any { return policy("limits", repeat(n, func(int) any { return limit })) },
		"Match.methods":      func(n int) any { return policy("match", map[string]any{"methods": names(n, "M")}) },
		"Match.methods.[]":   func(n int) any { return policy("match", map[string]any{"methods": []string{strings.Repeat("M", n)}}) },
		"Match.path":         func(n int) any { return policy("match", map[string]any{"path": "/" + strings.Repeat("a", n-1)}) },
		"Match.attributes":   func(n int) any { return policy("match", map[string]any{"attributes": attributes(n)}) },
		"Match.attributes.{}": func(n int) any {
			return policy("match", map[string]any{"attributes": map[string]string{"a": strings.Repeat("v", n)}})
		},
	} {
		put := func(n int) answer {
			body, err := json.Marshal(document(n))
			must(t, err)
			return w.do(call{method: "PUT", path: "/v1/plans/trial/draft", key: w.operator, body: string(body), header: map[string]string{"If-Match": "*"}})
		}
		s := property(t, way)
		for _, most := range []*uint64{s.MaxLength, s.MaxItems, s.MaxProps} {
			if most == nil {
				continue
			}
			if a := put(int(*most)); a.status != http.StatusOK {
				t.Errorf("%s at its bound: %d %s", way, a.status, a.body)
			}
			if a := put(int(*most) + 1); a.status != http.StatusUnprocessableEntity {
				t.Errorf("%s one above its bound: %d", way, a.status)
			}
		}
	}
	for n, status := range map[int]int{200: 200, 201: 422} {
		a := w.do(call{method: "PUT", path: "/v1/tenants/acme", key: w.operator, body: `{"name":"` + strings.Repeat("ä", n) + `","plan":"pro"}`, header: map[string]string{"If-Match": "*"}})
		if a.status != status {
			t.Errorf("a tenant's name of %d characters: %d", n, a.status)
		}
	}
}

// A body with a plan document may have 1 MiB, any other body 64 KiB. A body at the bound is
// accepted. One more byte is rejected with the bound in the message.
func TestBodyBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, c := range map[string]struct {
		method, body string
		most, taken  int
	}{
		"/v1/plans/trial/draft":   {"PUT", `{"name":"n"}`, plans.MaxBytes, 200},
		"/v1/plans":               {"POST", `{"slug":"large","draft":{"name":"n"}}`, plans.MaxBytes, 201},
		"/v1/plans/trial/publish": {"POST", `{}`, 64 << 10, 200},
		"/v1/tenants/acme/keys":   {"POST", `{"name":"n","scopes":["check"]}`, 64 << 10, 201},
	} {
		send := func(length int) answer {
			body := c.body + strings.Repeat(" ", length-len(c.body))
			return w.do(call{method: c.method, path: path, key: w.operator, body: body, header: map[string]string{"If-Match": "*"}})
		}
		if a := send(c.most + 1); a.status != 413 || !strings.Contains(a.body, "more than "+strconv.Itoa(c.most)+" bytes") {
			t.Errorf("%s of a byte too much: %d %s", path, a.status, a.body)
		}
		if a := send(c.most); a.status != c.taken {
			t.Errorf("%s at its bound: %d %s", path, a.status, a.body)
		}
	}
}

// Query parameters have the bounds in openapi.yaml, too.
func TestQueryBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	doc, _ := contract()
	ask := func(path, name, value string) answer {
		return w.do(call{method: "GET", path: path + "?" + name + "=" + value, key: w.operator})
	}
	for path, item := range doc.Paths.Map() {
		if item.Get == nil || !strings.HasPrefix(path, "/v1/") || strings.Contains(path, "{") {
			continue
		}
		for _, p := range item.Get.Parameters {
			s := p.Value.Schema.Value
			if p.Value.In != "query" || s.MaxLength == nil {
				continue
			}
			if a := ask(path, p.Value.Name, strings.Repeat("a", int(*s.MaxLength)+1)); a.status != 400 || !strings.Contains(a.body, `"pointer":"`+p.Value.Name+`"`) {
				t.Errorf("%s?%s of %d characters: %d %s", path, p.Value.Name, *s.MaxLength+1, a.status, a.body)
			}
			if a := ask(path, p.Value.Name, strings.Repeat("a", int(*s.MaxLength))); p.Value.Name != "cursor" && a.status != 200 && a.status != 404 {
				t.Errorf("%s?%s of %d characters: %d %s", path, p.Value.Name, *s.MaxLength, a.status, a.body)
			}
		}
	}
	for query, status := range map[string]int{
		"from=2026-01-01T00:00:00Z": 200, "from=2026-01-01T00:00:00.123456789%2B23:59": 200, "to=9999-12-31T23:59:59Z": 200,
		"from=2026-01-01": 400, "from=2026": 400, "from=2026-01-01T00:00:00,5Z": 400, "from=2026-01-01T0:00:00Z": 400, "from=2026-01-01T00:00:00": 400,
		"from=2026-01-01T00:00:00%2B24:00": 400, "from=0001-01-01T00:00:00Z": 400, "to=9999-12-31T23:59:59-00:01": 400, "limit=007": 400,
	} {
		if a := w.do(call{method: "GET", path: "/v1/audit?" + query, key: w.operator}); a.status != status {
			t.Errorf("%s: %d, want %d", query, a.status, status)
		}
	}
	if a := ask("/v1/tenants", "plan", "Not-A-Slug"); a.status != 400 {
		t.Error("a plan that is no slug:", a)
	}
}

// If a parameter has a list of values in openapi.yaml, the server accepts all of them and no
// other.
func TestQueryWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	doc, _ := contract()
	for path, item := range doc.Paths.Map() {
		if item.Get == nil || !strings.HasPrefix(path, "/v1/") || item.Get.OperationID == "forwardAuth" {
			continue // forwardAuth also needs headers: TestForwardAuthOptions
		}
		path = strings.Replace(path, "{tenant}", "acme", 1)
		for _, p := range item.Get.Parameters {
			if p.Value.In != "query" || p.Value.Schema == nil || len(p.Value.Schema.Value.Enum) == 0 {
				continue // one without a schema is JSON
			}
			words := p.Value.Schema.Value.Enum
			for _, word := range append(words, "nothing") {
				a := w.do(call{method: "GET", path: path + "?" + p.Value.Name + "=" + word.(string), key: w.operator})
				if want := map[bool]int{true: 400, false: 200}[word == "nothing"]; a.status != want {
					t.Errorf("%s?%s=%s: %d %s", path, p.Value.Name, word, a.status, a.body)
				}
			}
		}
	}
}

// Year 1 is the zero time of Go. A key that ends then would never end, so it is rejected.
func TestInstantsOfKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for at, status := range map[string]int{
		"2027-01-01T00:00:00Z": 201, "2027-01-01T00:00:00.5+02:00": 201, "9999-12-31T23:59:59Z": 201,
		"0001-01-01T00:00:00Z": 400, "9999-12-31T23:59:59-23:00": 400, "2027-01-01T00:00:00,5Z": 400, "2027-01-01T00:00:00+24:00": 400,
		"2027-01-01": 400, "": 400, "2026-11-21T09:00:00Z": 422, // now
	} {
		a := w.do(call{method: "POST", path: "/v1/tenants/acme/keys", key: w.operator, body: `{"name":"n","scopes":["check"],"expires_at":"` + at + `"}`})
		if a.status != status || status == 400 && !strings.Contains(a.body, `"/expires_at"`) || status == 201 && !strings.Contains(a.body, `"expires_at"`) {
			t.Errorf("%q: %d %s", at, a.status, a.body)
		}
	}
}

// Responses with a secret are not cached. A header with conditions can have several lines.
func TestManagementHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.do(call{method: "POST", path: "/v1/tenants/acme/keys", key: w.operator, body: `{"name":"n","scopes":["check"]}`})
	if a.status != 201 || a.header.Get("Cache-Control") != "no-store" {
		t.Error("a new key:", a)
	}
	r := w.request(call{method: "DELETE", path: "/v1/plans/trial", key: w.operator})
	r.Header["If-Match"] = []string{`"0"`, "*"}
	if a := w.send(r); a.status != 204 {
		t.Error("If-Match on two lines:", a)
	}
}

// A cursor that is not an ID is rejected before the query, because the databases differ in
// what they accept.
func TestForgedCursors(t *testing.T) {
	t.Parallel()
	for after, fine := range map[string]bool{uuid.NewString(): true, "17": true, "\x00": false, "\xff": false, "'; --": false, "A": false} {
		if err := api.Page(api.Forge(after)); (err == nil) != fine {
			t.Errorf("%q: %v", after, err)
		}
	}
}
