package api_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// hostileValues are JSON values that replace each value of each request body. Some are valid
// in some places.
var hostileValues = []string{
	`null`, `true`, `0`, `-1`, `1.5`, `1e400`, `9007199254740993`, `9223372036854775808`, `""`, `[]`, `{}`, `[null]`, `[[[[[[[[[[]]]]]]]]]]`,
	`"\u0000"`, `"\u202e"`, `"` + "\u0130\u212a" + `"`, `"<script>alert(1)</script>"`, `"' OR 1=1; --"`, `"../../etc/passwd"`, `"{{7*7}}"`, `"=1+1"`,
	`"9999-12-31T23:59:60Z"`, `"` + strings.Repeat("x", 5000) + `"`,
}

// The test replaces each value in each request body with each hostile value. No response has a
// 5xx status. An error has the form in openapi.yaml, and an accepted body is valid according to
// openapi.yaml. A rejected body causes no call of the limiter and no new revision.
func TestHostileValues(t *testing.T) {
	t.Parallel()
	w, sent := newWorld(t), 0
	for _, r := range w.api.RouteTable() {
		if !r.Body {
			continue
		}
		path := strings.NewReplacer(":tenant", "acme", ":plan", "pro", ":key", w.ids["gateway"]).Replace(r.Path)
		if strings.HasPrefix(r.Path, "/v1/operator-keys") {
			path = strings.Replace(r.Path, ":key", w.ids["console"], 1)
		}
		path = placeholders.ReplaceAllString(path, madeUpID)
		for _, body := range withHostileValues(t, firstExample(t, r.Operation)) {
			sent++
			calls, revision := w.counter.asked.Load(), w.revision()
			a := w.do(call{method: r.Method, path: path, key: w.operator, body: body, header: map[string]string{"If-Match": "*"}})
			switch {
			case a.status >= http.StatusInternalServerError:
				t.Errorf("%s %.300s: %d %s", r.Operation, body, a.status, a.body)
			case a.status >= http.StatusBadRequest && a.status != http.StatusTooManyRequests &&
				(w.counter.asked.Load() != calls || w.revision() != revision):
				t.Errorf("%s %.300s: %d, but it called the limiter or changed something", r.Operation, body, a.status)
			}
		}
	}
	if sent < 320 {
		t.Errorf("%d bodies", sent)
	}
}

func (w *world) revision() int64 {
	revision, err := w.store.Revision(w.t.Context())
	must(w.t, err)
	return revision
}

// withHostileValues returns the body once for each value in it, at every depth, and each
// hostile value.
func withHostileValues(t *testing.T, body []byte) (out []string) {
	t.Helper()
	const mark = "the value to replace"
	var whole any
	must(t, json.Unmarshal(body, &whole))
	add := func() {
		text, err := json.Marshal(whole)
		must(t, err)
		for _, value := range hostileValues {
			out = append(out, strings.Replace(string(text), `"`+mark+`"`, value, 1))
		}
	}
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				inner := v[name]
				v[name] = mark
				add()
				v[name] = inner
				visit(inner)
			}
		case []any:
			for i, inner := range v {
				v[i] = mark
				add()
				v[i] = inner
				visit(inner)
			}
		}
	}
	visit(whole)
	return out
}
