package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/exceptions"
)

// formOf returns the values of a form of a page, by the action of the form.
func formOf(t *testing.T, page reply, action string) url.Values {
	t.Helper()
	f := url.Values{}
	for form := range page.tree(t).Descendants() {
		if form.Data != "form" || attr(form, "action") != action {
			continue
		}
		for n := range form.Descendants() {
			switch {
			case n.Data == "input" && attr(n, "type") == "radio" && !has(n, "checked"), n.Data == "button":
			case n.Data == "input" && attr(n, "name") != "":
				f.Set(attr(n, "name"), attr(n, "value"))
			case n.Data == "option" && has(n, "selected"):
				f.Set(attr(n.Parent, "name"), attr(n, "value"))
			}
		}
		return f
	}
	t.Fatalf("the page has no form %s", action)
	return nil
}

// Issue 13, 1.10: from a denial, its limits are doubled for an hour with two clicks, and the way leads back.
func TestDoubleForAnHour(t *testing.T) {
	t.Parallel()
	w, ids := deniedWorld(t)
	denial := "/tenants/acme/denials/" + ids["login"]
	double := ""
	for n := range w.get(denial, "owner").tree(t).Descendants() {
		if n.Data == "a" && strings.Contains(textOf(n), "Double the limits for an hour") {
			double = attr(n, "href")
		}
	}
	form := w.get(double, "owner")
	made := w.post("/tenants/acme/overrides", "owner", formOf(t, form, "/tenants/acme/overrides"))
	if to := made.Header().Get("Location"); made.Code != http.StatusSeeOther || to != denial+"?done=override-created" {
		t.Fatalf("%d to %q: %s", made.Code, to, texts(made.tree(t), classed("notice")))
	}
	if back := w.get(made.Header().Get("Location"), "owner"); !strings.Contains(back.body, "The override is in force.") {
		t.Error("the denial does not say that the override is in force")
	}
	list, err := w.exceptions.Overrides(t.Context(), "acme", exceptions.Filter{})
	must(t, err)
	if len(list) != 1 || list[0].Factor != 2000 || list[0].Attribute != "ip" || list[0].Value != "203.0.113.9" ||
		!list[0].ExpiresAt.Equal(w.clock().Add(time.Hour)) || !strings.Contains(list[0].Reason, ids["login"]) {
		t.Errorf("the override is %+v", list)
	}
	// A URL of another host is not used as the way back.
	evil := formOf(t, form, "/tenants/acme/overrides")
	evil.Set("back", "//evil.example/x")
	if to := w.post("/tenants/acme/overrides", "owner", evil).Header().Get("Location"); strings.Contains(to, "evil") {
		t.Errorf("the way back leads to %q", to)
	}
}

// Issue 13, 1.10: an override can be changed and prolonged.
func TestChangeAnOverride(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	made, err := w.exceptions.CreateOverride(t.Context(), "acme", exceptions.NewOverride{
		Policy: "login-per-ip", Attribute: "ip", Value: "203.0.113.9", Factor: 2000, Reason: "launch", ExpiresAt: w.clock().Add(time.Hour),
	})
	must(t, err)
	must(t, w.watcher.Refresh(t.Context()))
	change := "/tenants/acme/overrides/" + made.ID + "/change"
	if links := hrefs(w.get("/tenants/acme/overrides", "editor").tree(t)); !hasPrefix(links, change) {
		t.Errorf("the list does not lead to %s: %q", change, links)
	}
	if links := hrefs(w.get("/tenants/acme/overrides", "acme-admin").tree(t)); hasPrefix(links, change) {
		t.Error("the list offers a change to a person who must not")
	}
	page := w.get(change, "editor")
	f := formOf(t, page, change)
	if f.Get("scope") != "value" || f.Get("value") != "203.0.113.9" || f.Get("factor") != "2" || f.Get("reason") != "launch" || f.Get("life") != "keep" {
		t.Fatalf("the form has %v", f)
	}
	read := func() exceptions.Override {
		t.Helper()
		o, err := w.exceptions.Override(t.Context(), "acme", made.ID)
		must(t, err)
		return o
	}
	f.Set("factor", "4")
	if got := w.post(change, "editor", f); got.Code != http.StatusSeeOther {
		t.Fatalf("%d %q", got.Code, texts(got.tree(t), classed("notice")))
	}
	if o := read(); o.Factor != 4000 || !o.ExpiresAt.Equal(made.ExpiresAt) || o.Revision <= made.Revision {
		t.Errorf("the override is %+v", o)
	}
	subject, _ := w.watcher.Current().Subject("acme")
	rule, _ := subject.Plan.Rule("login-per-ip")
	check := checkOf(t, "POST /v1/login", "ip=203.0.113.9")
	if met := subject.Exceptions.OverridesOf(rule, check.Attributes); len(met) != 1 {
		t.Errorf("the node has %d overrides of the key", len(met))
	}
	for range 20 { // 4 times 5
		if d := w.decide("acme", checkOf(t, "POST /v1/login", "ip=203.0.113.9")); !d[0].Allowed {
			t.Fatal("the node decides without the new numbers")
		}
	}
	// A form with an old revision does not overwrite the change of another person.
	f.Set("factor", "8")
	stale := w.post(change, "editor", f)
	if stale.Code != http.StatusConflict || !strings.Contains(stale.body, "Another person changed this override meanwhile") || read().Factor != 4000 {
		t.Errorf("%d, the factor is %d", stale.Code, read().Factor)
	}
	f = formOf(t, stale, change)
	f.Set("life", "24h")
	if got := w.post(change, "editor", f); got.Code != http.StatusSeeOther {
		t.Errorf("saved again: %d", got.Code)
	}
	if o := read(); o.Factor != 8000 || !o.ExpiresAt.Equal(w.clock().Add(24*time.Hour)) {
		t.Errorf("the prolonged override is %+v", o)
	}
	for _, by := range []string{"viewer", "acme-admin"} {
		if got := w.post(change, by, f); got.Code == http.StatusSeeOther {
			t.Errorf("%s may change it", by)
		}
	}
	f.Set("factor", "none")
	if got := w.post(change, "editor", f); got.Code != http.StatusUnprocessableEntity || !strings.Contains(got.body, `aria-invalid`) {
		t.Errorf("a wrong factor: %d", got.Code)
	}
}
