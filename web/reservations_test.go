package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/plans"
)

// addReservation makes a reservation of acme for user u1 that lasts a day.
func (w *world) addReservation(id string) *enforcement.Decision {
	w.t.Helper()
	d := w.decide("acme", enforcement.Check{
		Method: "GET", Path: "/v1/items", Cost: 1, DefaultCost: true, Attributes: attributes("user", "u1", "ip", "198.51.100.7", "tokens", "60"),
		Reservation: &enforcement.CheckReservation{ID: id, Life: 24 * time.Hour},
	})
	if !d[0].Allowed {
		w.t.Fatalf("reservation %s: %+v", id, d[0])
	}
	return &d[0]
}

// reserving returns a world in which acme has a plan with a token limit and a concurrency limit.
func reserving(t *testing.T) *world {
	w := newMetered(t)
	w.publish("llm", plans.Content{Name: "LLM", Policies: []plans.Policy{
		{Slug: "tokens", CostFrom: "tokens", Limits: []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 100, Window: time.Hour}}},
		{Slug: "streams", Limits: []enforcement.Limit{{Algorithm: enforcement.Concurrency, Quota: 3, Window: time.Hour}}},
	}}, "acme")
	return w
}

// left returns what the limits of acme have left, by a peek.
func (w *world) left() string {
	d := w.decide("acme", enforcement.Check{
		Method: "GET", Path: "/", Cost: 1, DefaultCost: true, Mode: enforcement.Peek, Attributes: attributes("tokens", "0"),
	})
	return fmt.Sprint(d[0].Limits[0].Remaining, " ", d[0].Limits[1].Remaining+1)
}

// The list shows what each reservation charges and holds. Its page leads to the forms that extend, settle and give it back.
func TestReservationPages(t *testing.T) {
	t.Parallel()
	w := reserving(t)
	const list, one = "/tenants/acme/reservations", "/tenants/acme/reservations/stream-1"
	if text := words(t, w.get(list, "acme-viewer")); !strings.Contains(text, "No open reservations") {
		t.Errorf("%s", text)
	}
	for i := range 3 {
		w.addReservation(fmt.Sprintf("stream-%d", i))
		w.now.Add(1_000_000)
		if i == 0 {
			to(t, "settle 0", w.post(list+"/stream-0/settle", "editor", url.Values{"a.tokens": {"5"}, "cost": {""}, "reason": {""}}), list+"/stream-0?done=reservation-settled")
		}
		if i == 1 {
			break
		}
	}
	text := words(t, w.get(list, "acme-viewer"))
	for _, want := range []string{"stream-1", "tokens, limit l1: 60 units", "streams, limit l1: holds 1 place", "in 23 hours"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	if strings.Contains(text, "stream-0") {
		t.Errorf("a settled reservation is listed: %s", text)
	}
	if page := w.get(one, "acme-viewer"); strings.Contains(page.body, one+"/settle") || !strings.Contains(words(t, page), "open") {
		t.Errorf("the page of a viewer: %s", words(t, page))
	}
	for _, action := range []string{"/extend", "/settle", "/release"} {
		if page := w.get(one, "editor"); !strings.Contains(page.body, one+action) {
			t.Errorf("the page has no link to %s", action)
		}
		if page := w.get(one+action, "editor"); page.Code != http.StatusOK || !strings.Contains(words(t, page), "60 units") {
			t.Errorf("%s: %d %s", action, page.Code, words(t, page))
		}
		if page := w.get(one+action, "acme-admin"); page.Code != http.StatusForbidden {
			t.Errorf("%s by a member: %d", action, page.Code)
		}
		if page := w.get(list+"/nothing"+action, "editor"); page.Code != http.StatusNotFound {
			t.Errorf("%s of nothing: %d", action, page.Code)
		}
	}
	if got := w.left(); got != "35 2" {
		t.Errorf("left %s", got)
	}

	for field, f := range map[string]url.Values{
		"life":     {"life": {"never"}},
		"cost":     {"cost": {"many"}},
		"a.tokens": {"a.tokens": {"-1"}},
	} {
		path := one + "/settle"
		if field == "life" {
			path = one + "/extend"
		}
		if bad := w.post(path, "editor", f); bad.Code != http.StatusUnprocessableEntity || wrongIn(t, bad) != field {
			t.Errorf("%s: %d %q", field, bad.Code, wrongIn(t, bad))
		}
	}
	if bad := w.post(one+"/release", "editor", url.Values{"reason": {strings.Repeat("x", 501)}}); bad.Code != http.StatusUnprocessableEntity || wrongIn(t, bad) != "reason" {
		t.Errorf("a long reason: %d %q", bad.Code, wrongIn(t, bad))
	}
	to(t, "extend", w.post(one+"/extend", "editor", url.Values{"life": {"5m"}, "reason": {"the stream goes on"}}), one+"?done=reservation-extended")
	if text := words(t, w.get(one, "editor")); !strings.Contains(text, "in 5 min") {
		t.Errorf("after the extension: %s", text)
	}
	to(t, "settle", w.post(one+"/settle", "editor", url.Values{"a.tokens": {"25"}, "cost": {""}, "reason": {"it crashed"}}), one+"?done=reservation-settled")
	if text := words(t, w.get(one, "editor")); !strings.Contains(text, "settled") || !strings.Contains(text, "60 units 25 units") || strings.Contains(text, "Give back") {
		t.Errorf("after the settlement: %s", text)
	}
	if got := w.left(); got != "70 3" {
		t.Errorf("left after the settlement %s", got)
	}
	if again := w.post(one+"/release", "editor", url.Values{}); again.Code != http.StatusConflict || !strings.Contains(words(t, again), "was settled at") {
		t.Errorf("a second end: %d %s", again.Code, words(t, again))
	}
	w.addReservation("stream-9")
	to(t, "release", w.post(list+"/stream-9/release", "editor", url.Values{}), list+"/stream-9?done=reservation-released")
	if got := w.left(); got != "70 3" {
		t.Errorf("left after the release %s", got)
	}
	for action, n := range map[string]int{"reservation.extend": 1, "reservation.settle": 2, "reservation.release": 1} {
		lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Action: action, Limit: 10})
		must(t, err)
		if len(lines) != n || lines[0].Actor.Name != "editor@people.example" {
			t.Errorf("%s: %+v", action, lines)
		}
	}
	if text := words(t, w.get("/tenants/acme/audit", "acme-viewer")); !strings.Contains(text, "settled the reservation stream-1") {
		t.Errorf("audit: %s", text)
	}
}

// The list has pages, and each reservation is on one of them.
func TestReservationListHasPages(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	w.publish("many", plans.Content{Name: "Many", Policies: []plans.Policy{
		{Slug: "all", Limits: []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 1000, Window: time.Hour}}},
	}}, "acme")
	for i := range 120 {
		w.addReservation(fmt.Sprintf("r-%03d", i))
		w.now.Add(1000)
	}
	seen, next := map[string]bool{}, "/tenants/acme/reservations"
	pages := 0
	for ; next != "" && pages < 5; pages++ {
		page := w.get(next, "viewer")
		next = ""
		for n := range page.tree(t).Descendants() {
			if attr(n, "rel") == "next" {
				next = attr(n, "href")
			}
			if id, of := strings.CutPrefix(attr(n, "href"), "/tenants/acme/reservations/"); of {
				seen[id] = true
			}
		}
	}
	if len(seen) != 120 || pages != 3 {
		t.Errorf("%d reservations on %d pages", len(seen), pages)
	}
	for path, code := range map[string]int{"?after=x": http.StatusOK, "?after=" + strings.Repeat("f", 99): http.StatusOK} {
		if page := w.get("/tenants/acme/reservations"+path, "viewer"); page.Code != code {
			t.Errorf("%s: %d", path, page.Code)
		}
	}
}

// The palette and the page of a denial lead to the list.
func TestWaysToReservations(t *testing.T) {
	t.Parallel()
	w := reserving(t)
	for _, q := range []string{"acme+reservations", "reserv+acme"} {
		to(t, q, w.get("/jump?q="+q, "viewer"), "/tenants/acme/reservations")
	}
	if page := w.get("/jump?q=reservations", "acme-viewer"); page.Header().Get("Location") != "/tenants/acme/reservations" {
		t.Errorf("a member: %d %s", page.Code, page.Header().Get("Location"))
	}
	if page := w.get("/jump/found?q=acme+grants", "viewer"); !strings.Contains(page.body, `href="/tenants/acme/grants"`) {
		t.Errorf("the script: %s", page.body)
	}
	d := w.decide("acme", enforcement.Check{Method: "GET", Path: "/", Attributes: attributes("tokens", "101")})
	w.flush()
	denial := fmt.Sprintf("/tenants/acme/denials/%x-%x-%x-%x-%x", d[0].ID[:4], d[0].ID[4:6], d[0].ID[6:8], d[0].ID[8:10], d[0].ID[10:])
	if page := w.get(denial, "viewer"); !strings.Contains(page.body, `href="/tenants/acme/reservations"`) {
		t.Errorf("%s: %d %s", denial, page.Code, words(t, page))
	}
}
