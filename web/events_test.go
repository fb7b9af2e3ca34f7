package web_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/nodes"
)

// eventRows returns the rows of the list of events of a page, without their times.
func eventRows(t *testing.T, page reply) (rows []string) {
	t.Helper()
	for n := range page.tree(t).Descendants() {
		if n.Type == html.ElementNode && n.Data == "tr" && attr(n, "data-mark") != "" {
			_, row, _ := strings.Cut(strings.Join(strings.Fields(textOf(n)), " "), " "+attr(n, "data-mark")+" ")
			rows = append(rows, attr(n, "data-mark")+" "+row)
		}
	}
	return rows
}

func (w *world) override(tenant, policy, user string) {
	w.t.Helper()
	_, err := w.exceptions.CreateOverride(w.t.Context(), tenant, exceptions.NewOverride{
		Policy: policy, Attribute: "user", Value: user, Factor: 2000, Reason: "launch week", ExpiresAt: w.clock().Add(48 * time.Hour),
	})
	must(w.t, err)
}

// Issue 13, 2: the pages with charts list publications, overrides, blocks, starts of nodes, and alerts. A tenant's own people
// see what is about their tenant, and no node, no alert of the operator, and nothing of another tenant.
func TestEventsOfCharts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	w.publish("other", busyPlan(), "globex")
	w.override("acme", "reports-per-user", "u1")
	w.override("globex", "reports-per-user", "u1")
	_, err := w.exceptions.CreateBlock(t.Context(), "acme", exceptions.NewBlock{
		Policy: "login-per-ip", Key: map[string]string{"ip": "203.0.113.77"}, Reason: "abuse", ExpiresAt: w.clock().Add(time.Hour),
	})
	must(t, err)
	must(t, w.store.PutNode(t.Context(), nodes.Node{ID: "01a1fd54-9020-7b3c-8d2e-0123456789ac", Name: "node-7", StartedAt: w.clock().Add(time.Second)}))
	must(t, w.watcher.Refresh(t.Context()))
	w.login("acme", "203.0.113.9", 6)
	w.flushNow()
	staff := "B Key blocked login-per-ip"
	for _, test := range []struct{ path, by, want string }{
		{"/overview", "owner", "N Node started node-7; B Key blocked login-per-ip of acme; O Override created (2) reports-per-user of globex , reports-per-user of acme; " +
			"P Plan published (2) other , busy; A Alert began Many requests are denied; A Alert began Many requests are denied"},
		{"/overview?tenant=acme", "viewer", "N Node started node-7; " + staff + "; O Override created reports-per-user; P Plan published busy; A Alert began (2) Many requests are denied , Many requests are denied; A Alert began (2) Many requests are denied , Many requests are denied"},
		{"/tenants/acme", "acme-viewer", "B Key blocked login-per-ip; O Override created reports-per-user; P Plan published busy; A Alert began Many requests are denied; A Alert began Many requests are denied"},
	} {
		page := w.get(test.path, test.by)
		if got := strings.Join(eventRows(t, page), "; "); got != test.want {
			t.Errorf("%s for %s lists %q, want %q", test.path, test.by, got, test.want)
		}
		if test.by == "acme-viewer" && (strings.Contains(page.body, "/plans/busy") || strings.Contains(page.body, `href="/alerts/`) || strings.Contains(page.body, "203.0.113.77")) {
			t.Error("the list leads a member to a page of the operator, or shows a value")
		}
	}
	if got := eventRows(t, w.get("/overview?from=2026-11-20T09:00&to=2026-11-20T10:00", "owner")); len(got) > 0 {
		t.Errorf("the day before has %q", got)
	}
}

// A step of a chart with many events of one kind has one row, which names three objects. The list ends after 50 rows.
func TestManyEventsAreFolded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	must(t, w.watcher.Refresh(t.Context()))
	for i := range 7 {
		w.override("acme", "reports-per-user", fmt.Sprintf("u%d", i))
		w.publish(fmt.Sprintf("plan-%d", i), busyPlan(), "")
	}
	w.login("acme", "203.0.113.9", 6)
	w.flushNow()
	rows := eventRows(t, w.get("/overview", "owner"))
	if len(rows) < 2 || rows[0] != "P Plan published (8) plan-6 , plan-5 , plan-4 and 5 more" || rows[1] != "O Override created (7) reports-per-user of acme" {
		t.Errorf("the rows are %q", rows)
	}
	for i := range 55 {
		w.now.Add(time.Minute.Microseconds())
		w.override("acme", "reports-per-user", fmt.Sprintf("v%d", i))
		w.get("/account", "owner") // otherwise the session would end
	}
	w.login("acme", "203.0.113.9", 1)
	w.flushNow()
	page := w.get("/overview?range=6h", "owner")
	if n := len(eventRows(t, page)); n > 50 || n < 20 {
		t.Errorf("%d rows", n)
	}
	if page := w.get("/overview?from=2026-11-21T08:50&to=2026-11-21T10:00", "owner"); len(eventRows(t, page)) != 50 || !strings.Contains(page.body, "Older changes and alerts") {
		t.Errorf("%d rows, and no word about older ones", len(eventRows(t, page)))
	}
}
