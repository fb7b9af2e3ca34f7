package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/api"
)

func (w *world) batch(key, query, body string) (answer, []string) {
	a := w.do(call{method: "POST", path: "/v1/check/batch" + query, key: key, body: body})
	var out struct {
		Results []struct {
			Status int
			Reason string
		}
	}
	must(w.t, json.Unmarshal([]byte(a.body), &out))
	words := []string{}
	for _, r := range out.Results {
		words = append(words, strings.TrimSpace(fmt.Sprintf("%d %s", r.Status, r.Reason)))
	}
	return a, words
}

func TestBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seven := strings.TrimSuffix(strings.Repeat(login+",", 7), ",")
	a, words := w.batch(w.operator, "", `{"checks":[`+seven+`,{"tenant":"nobody"},{"tenant":"globex"},{"tenant":"acme"}]}`)
	want := "[200 ok 200 ok 200 ok 200 ok 200 ok 429 over_limit 429 over_limit 404 403 tenant_suspended 200 no_policy]"
	if a.status != 200 || fmt.Sprint(words) != want || !strings.Contains(a.body, `"pointer":"/checks/7/tenant"`) {
		t.Errorf("%d %v\n%s", a.status, words, a.body)
	}
	_, words = w.batch(w.operator, "?deny_status=200", `{"checks":[`+login+`]}`)
	if fmt.Sprint(words) != "[200 over_limit]" {
		t.Error(words)
	}
	_, words = w.batch(w.acme, "", `{"checks":[{},{"tenant":"globex"},{"tenant":"nobody"}]}`)
	if fmt.Sprint(words) != "[200 no_policy 403 403]" {
		t.Error(words)
	}
}

func TestAtomicBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	three := login + "," + login + "," + login
	other := strings.Replace(login, "203.0.113.9", "203.0.113.10", 1)
	w.batch(w.operator, "", `{"atomic":true,"checks":[`+three+`]}`)
	_, words := w.batch(w.operator, "", `{"atomic":true,"checks":[`+three+`,`+other+`]}`)
	if fmt.Sprint(words) != "[429 over_limit 429 over_limit 429 over_limit 429 batch_refused]" {
		t.Error(words)
	}
	if left := w.left(); left != `"login-per-ip";r=2;t=60` {
		t.Error("charged:", left)
	}
	_, words = w.batch(w.operator, "", `{"atomic":true,"checks":[`+login+`,`+other+`]}`)
	if fmt.Sprint(words) != "[200 ok 200 ok]" {
		t.Error(words)
	}
	_, words = w.batch(w.operator, "", `{"atomic":true,"checks":[{"tenant":"nobody"},{"tenant":"nobody"}]}`)
	if fmt.Sprint(words) != "[404 404]" {
		t.Error(words)
	}
	id, err := w.tenants.Tenant(t.Context(), "acme")
	must(t, err)
	_, words = w.batch(w.operator, "", `{"atomic":true,"checks":[{"tenant":"acme"},{"tenant":"`+id.ID+`"}]}`)
	if fmt.Sprint(words) != "[200 no_policy 200 no_policy]" {
		t.Error(words)
	}
}

// If any check of a batch is invalid, the whole batch is rejected. The error names the check,
// and nothing is charged.
func TestBatchIsRefusedWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct{ body, pointer string }{
		{`{}`, "/checks"},
		{`{"checks":[]}`, "/checks"},
		{`{"checks":{}}`, "/checks"},
		{`{"checks":[` + login + `],"Atomic":true}`, "/Atomic"},
		{`{"checks":[` + login + `],"atomic":1}`, "/atomic"},
		{`{"checks":[` + login + `,` + login + `,` + login + `,{"tenant":"acme","cost":-1}]}`, "/checks/3/cost"},
		{`{"checks":[` + login + `,{"tenant":"acme","x":1}]}`, "/checks/1/x"},
		{`{"checks":[` + login + `,{}]}`, "/checks/1/tenant"},
		{`{"checks":[` + login + `,null]}`, "/checks/1"},
		{`{"checks":[` + login + `,{"tenant":"acme","attributes":{"ip":"x"}}]}`, "/checks/1/attributes/ip"},
		{`{"checks":[` + strings.Repeat(login+",", 1000) + login + `]}`, "/checks"},
		{`{"atomic":true,"checks":[` + strings.Repeat(login+",", 100) + login + `]}`, "/checks"},
		{`{"atomic":true,"checks":[` + login + `,{"tenant":"globex"}]}`, "/checks/1/tenant"},
		{`{"atomic":true,"checks":[` + login + `,{"tenant":"nobody"}]}`, "/checks/1/tenant"},
		{`{"atomic":true,"checks":[{"tenant":"nobody"},{"tenant":"neither"}]}`, "/checks/1/tenant"},
		{`{"atomic":true,"checks":[` + login + `,{"tenant":"acme","mode":"peek"}]}`, "/checks/1/mode"},
		{`{"checks":[` + login + `]} {}`, ""},
		{`{"checks":[` + login + `],"checks":[]}`, "/checks"},
	} {
		a := w.do(call{method: "POST", path: "/v1/check/batch", key: w.operator, body: c.body})
		if a.status != 400 || !strings.Contains(a.body, `"pointer":"`+c.pointer+`"`) {
			t.Errorf("%.200s: %d %s", c.body, a.status, a.body)
		}
	}
	if a := w.do(call{method: "POST", path: "/v1/check/batch", key: w.operator, body: `{"checks":[` + login + strings.Repeat(" ", 1<<20) + `]}`}); a.status != 413 {
		t.Error(a.status)
	}
	if n := w.counter.asked.Load(); n != 0 {
		t.Errorf("the limiter was asked %d times", n)
	}
	if a, words := w.batch(w.operator, "", `{"checks":[`+strings.Repeat(`{"tenant":"acme"},`, 999)+`{"tenant":"acme"}]}`); a.status != 200 || len(words) != 1000 {
		t.Error(a.status, len(words))
	}
}

func FuzzBatchBody(f *testing.F) {
	f.Add(`{"checks":[`+login+`],"atomic":true}`, true)
	f.Fuzz(func(t *testing.T, text string, operator bool) {
		n, err := api.DecodeBatch(text, operator)
		if err == nil && (n < 1 || n > 1000 || !json.Valid([]byte(text))) {
			t.Fatalf("%d checks", n)
		}
	})
}
