package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

// inAWeek is the last member of a grant of a test, and grant its JSON document with more members.
const inAWeek = `,"expires_at":"2026-11-28T09:00:00.000Z"`

func grant(members, end string) string {
	reason := `,"reason":"r"`
	if strings.Contains(members, "reason") {
		reason = ""
	}
	return `{"policy":"reports-per-user",` + members + reason + end + `}`
}

// reports sends checks of one user with one cost, and returns how many units passed.
func (w *world) reports(user string, cost, n int) (passed int) {
	w.t.Helper()
	for range n {
		body, err := json.Marshal(map[string]any{
			"tenant": "acme", "method": "GET", "path": "/v1/reports", "attributes": map[string]string{"user": user}, "cost": cost,
		})
		must(w.t, err)
		if a := w.do(call{method: http.MethodPost, path: "/v1/check", key: w.operator, body: string(body)}); a.status == http.StatusOK {
			passed += cost
		}
	}
	return passed
}

// A grant is spent after the window, shown with what is left, voided at once, and its end is audited.
func TestGrants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := w.made(call{method: http.MethodPost, path: "/v1/tenants/acme/grants", as: "own", body: grant(`"units":7,"key":{"user":"u1"}`, inAWeek)})
	all := w.made(call{method: http.MethodPost, path: "/v1/tenants/acme/grants", as: "all", body: grant(`"units":10`, `,"expires_at":"2026-11-22T09:00:00.000Z"`)})
	left := func(id, want string) {
		t.Helper()
		if a := w.do(call{method: http.MethodGet, path: "/v1/tenants/acme/grants/" + id, key: w.operator}); !strings.Contains(a.body, `"left":`+want+`,`) {
			t.Errorf("want %s left: %s", want, a.body)
		}
	}
	if got := w.reports("u1", 4, 28); got != 112 { // 100 of the window, and 12 of 17 of the grants
		t.Errorf("u1 passed %d units", got)
	}
	left(all, "0") // it ends first
	left(own, "5")
	if got := w.reports("u2", 50, 3); got != 100 {
		t.Errorf("u2 passed %d units", got)
	}
	usage := w.do(call{method: http.MethodGet, path: "/v1/tenants/acme/usage?policy=reports-per-user&key%5Buser%5D=u1", key: w.operator}).body
	explained := w.do(call{
		method: http.MethodPost, path: "/v1/explain", key: w.operator,
		body: `{"tenant":"acme","method":"GET","path":"/v1/reports","attributes":{"user":"u1"}}`,
	}).body
	for name, body := range map[string]string{"usage": usage, "explain": explained} {
		grants := regexp.MustCompile(`"grants":(\[[^\]]*\])`).FindStringSubmatch(body)
		var shown []struct {
			ID          string
			Units, Left int64
		}
		if grants != nil {
			must(t, json.Unmarshal([]byte(grants[1]), &shown))
		}
		if want := fmt.Sprintf("[{%s 10 0} {%s 7 5}]", all, own); fmt.Sprint(shown) != want || !strings.Contains(body, `"remaining":5,`) {
			t.Errorf("%s: grants %v, want %s\n%s", name, shown, want, body)
		}
	}
	if a := w.do(call{method: http.MethodDelete, path: "/v1/tenants/acme/grants/" + own, key: w.operator}); a.status != http.StatusNoContent {
		t.Errorf("void: %d %s", a.status, a.body)
	}
	if got := w.reports("u1", 1, 3); got != 0 {
		t.Errorf("u1 passed %d units after the grant was voided", got)
	}
	for action, n := range map[string]int{"grant.create": 2, "grant.delete": 1} {
		audit := w.do(call{method: http.MethodGet, path: "/v1/audit?action=" + action, key: w.operator}).body
		if strings.Count(audit, `"action":"`+action+`"`) != n {
			t.Errorf("audit: %s", audit)
		}
	}
}

// A quota of 0 denies everything. So a grant for it is rejected, and a grant that exists is not spent, also by force.
func TestGrantsOfAQuotaOfZero(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	none := enforcement.Limit{Name: "l1", Algorithm: enforcement.FixedWindow, Window: time.Hour}
	some := none
	some.Quota = 5
	of := func(slug string, l enforcement.Limit) plans.Policy {
		return plans.Policy{Slug: slug, Match: plans.Match{Path: "/" + slug}, Limits: []enforcement.Limit{l}}
	}
	w.policies(of("none", none), of("some", some))
	create := func(policy string) answer {
		return w.do(call{
			method: http.MethodPost, path: "/v1/tenants/acme/grants", key: w.operator,
			body: `{"policy":"` + policy + `","units":4,"reason":"r"` + inAWeek + `}`,
		})
	}
	if a := create("none"); a.status != 422 || !strings.Contains(a.body, `"pointer":"/limit"`) || !strings.Contains(a.body, "has the quota 0") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := create("some"); a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	w.policies(of("none", some), of("some", none)) // a later version of the plan
	force := w.do(call{method: http.MethodPost, path: "/v1/check", key: w.operator, body: `{"tenant":"acme","method":"GET","path":"/some","cost":3,"mode":"force"}`})
	list := w.do(call{method: http.MethodGet, path: "/v1/tenants/acme/grants", key: w.operator}).body
	if force.status != 200 || !strings.Contains(list, `"left":4,`) || !strings.Contains(list, `"active":false,`) || !strings.Contains(list, `"inactive_because":"not_possible"`) {
		t.Errorf("forced: %d %s\nlist: %s", force.status, force.body, list)
	}
	if a := w.do(call{method: http.MethodPost, path: "/v1/check", key: w.operator, body: `{"tenant":"acme","method":"GET","path":"/some"}`}); a.status != 429 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A repetition of a creation with its Idempotency-Key makes no second grant.
func TestGrantsAreMadeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	create := call{
		method: http.MethodPost, path: "/v1/tenants/acme/grants", key: w.operator, body: grant(`"units":7`, inAWeek),
		header: map[string]string{"Idempotency-Key": "invoice-4711"},
	}
	first, again := w.do(create), w.do(create)
	if first.status != http.StatusCreated || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%d %s, then %d %s", first.status, first.body, again.status, again.body)
	}
	list := w.do(call{method: http.MethodGet, path: "/v1/tenants/acme/grants", key: w.operator}).body
	if strings.Count(list, `"units":7`) != 1 {
		t.Errorf("list: %s", list)
	}
}

// A check cannot be spent from more grants than the bound of one key.
func TestTooManyGrants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	create := func(user string) answer {
		return w.do(call{method: http.MethodPost, path: "/v1/tenants/acme/grants", key: w.operator, body: grant(`"units":1,"key":{"user":"`+user+`"}`, inAWeek)})
	}
	for range 16 {
		if a := create("u1"); a.status != http.StatusCreated {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if a := create("u1"); a.status != http.StatusConflict || !strings.Contains(a.body, "too_many_grants") {
		t.Errorf("a 17th grant: %d %s", a.status, a.body)
	}
	if a := create("u2"); a.status != http.StatusCreated {
		t.Errorf("a grant for another key: %d %s", a.status, a.body)
	}
	if got := w.reports("u1", 1, 120); got != 116 {
		t.Errorf("u1 passed %d units", got)
	}
}

// A refund returns the units to the grant first, and to the window last.
func TestRefundsOfGrants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.made(call{method: http.MethodPost, path: "/v1/tenants/acme/grants", as: "grant", body: grant(`"units":50,"key":{"user":"u1"}`, inAWeek)})
	w.reports("u1", 80, 1)
	check := w.do(call{
		method: http.MethodPost, path: "/v1/check", key: w.operator,
		body: `{"tenant":"acme","method":"GET","path":"/v1/reports","attributes":{"user":"u1"},"cost":30,"refundable":true}`,
	})
	var d struct {
		ID    string    `json:"decision_id"`
		Until time.Time `json:"refundable_until"`
	}
	must(t, json.Unmarshal([]byte(check.body), &d))
	refund := w.do(call{method: http.MethodPost, path: "/v1/checks/" + d.ID + "/refund?tenant=acme", key: w.operator})
	if !strings.Contains(refund.body, `"refunded":30`) {
		t.Errorf("check %s\nrefund: %d %s", check.body, refund.status, refund.body)
	}
	a := w.do(call{method: http.MethodGet, path: "/v1/tenants/acme/grants/" + id, key: w.operator})
	if !strings.Contains(a.body, `"left":50,`) {
		t.Errorf("after the refund: %s", a.body)
	}
	if got := w.reports("u1", 10, 10); got != 70 { // 20 of the window and 50 of the grant
		t.Errorf("%d units passed after the refund", got)
	}
}

// A reservation is settled by what each counter was charged.
func TestReservationsOfGrants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.made(call{method: http.MethodPost, path: "/v1/tenants/acme/grants", as: "grant", body: grant(`"units":50,"key":{"user":"u1"}`, inAWeek)})
	w.reports("u1", 80, 1)
	w.made(call{
		method: http.MethodPost, path: "/v1/reservations",
		body: `{"id":"job","ttl_ms":60000,"tenant":"acme","method":"GET","path":"/v1/reports","attributes":{"user":"u1"},"cost":40}`,
	})
	settle := w.do(call{method: http.MethodPost, path: "/v1/reservations/job/settle?tenant=acme", key: w.operator, body: `{"cost":25}`})
	if !strings.Contains(settle.body, `"cost":25,"estimate":40`) || strings.Count(settle.body, `"estimate"`) != 1 {
		t.Errorf("settle: %d %s", settle.status, settle.body)
	}
	a := w.do(call{method: http.MethodGet, path: "/v1/tenants/acme/grants/" + id, key: w.operator})
	if !strings.Contains(a.body, `"left":45,`) {
		t.Errorf("after the settlement: %s", a.body)
	}
}
