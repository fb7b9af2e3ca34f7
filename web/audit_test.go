package web_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
)

// as returns a context with which a person of the fixture makes the changes of a test.
func (w *world) as(t testing.TB, name string) context.Context {
	t.Helper()
	return audit.With(t.Context(), audit.Actor{Kind: "user", ID: w.ids[name], Name: name + "@people.example"},
		audit.Origin{RequestID: "request-of-" + name, Address: "192.0.2.77"})
}

// linesOn returns the lines of a page of the audit log, each as one text.
func linesOn(t *testing.T, page reply) []string {
	t.Helper()
	var list []string
	for n := range page.tree(t).Descendants() {
		if n.Data == "tr" && n.Parent.Data == "tbody" {
			list = append(list, strings.Join(strings.Fields(textOf(n)), " "))
		}
	}
	return list
}

// changed creates a plan with two versions as the editor, and an API key as the admin of acme.
func (w *world) changed(t *testing.T) tenants.Key {
	t.Helper()
	ctx := w.as(t, "editor")
	p, err := w.plans.CreatePlan(ctx, "pro", plans.New(plans.Content{Name: "Pro"}))
	must(t, err)
	p, err = w.plans.SaveDraft(ctx, p.ID, plans.New(plans.Content{Name: "Pro and more"}), p.DraftRevision)
	must(t, err)
	_, _, err = w.plans.Publish(ctx, p.ID, plans.Publish{IfRevision: p.DraftRevision})
	must(t, err)
	k, _, err := w.tenants.CreateKey(w.as(t, "acme-admin"), w.ids["acme"], tenants.NewKey{Name: "=gateway", Scopes: []tenants.Scope{tenants.ScopeCheck}})
	must(t, err)
	acme, err := w.tenants.Tenant(ctx, "acme")
	must(t, err)
	acme.Name = "Acme Ltd."
	_, err = w.tenants.UpdateTenant(ctx, acme.ID, acme.Document, acme.Revision)
	must(t, err)
	return k
}

// The log shows who did what, newest first, with the changes and links.
func TestAuditPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.changed(t)
	lines := linesOn(t, w.get("/audit", "viewer"))
	for i, want := range [][]string{
		{"editor@people.example", "changed the tenant acme", "name", "Acme Inc.", "→", "Acme Ltd.", "192.0.2.77"},
		{"acme-admin@people.example", "created the API key =gateway", "scopes", "check", "Acme Ltd."},
		{"editor@people.example", "published the plan pro"},
		{"editor@people.example", "edited the draft of the plan pro", "Pro → Pro and more"},
		{"editor@people.example", "created the plan pro"},
	} {
		for _, words := range want {
			if !strings.Contains(lines[i], words) {
				t.Errorf("line %d does not say %q: %s", i+1, words, lines[i])
			}
		}
	}
	links := map[string]bool{}
	for n := range w.get("/audit", "viewer").tree(t).Descendants() {
		if n.Data == "a" {
			links[attr(n, "href")] = true
		}
	}
	for _, r := range w.table(t) {
		if want := "/tenants/" + w.ids["acme"]; r.Path == web.TenantPath && !links[want] {
			t.Errorf("no link to %s", want)
		}
	}
	for query, want := range map[string]int{
		"kind=plan": 3, "kind=plan&actor=editor": 3, "kind=plan&actor=viewer": 0, "kind=key": 1, "action=plan.publish": 1, "object=pro": 3,
		"kind=key&tenant=acme": 1, "kind=key&tenant=" + w.ids["acme"]: 1, "tenant=globex&kind=key": 0, "actor=" + w.ids["acme-admin"] + "&kind=key": 1,
		"kind=plan&from=2026-11-21T08:00&to=2026-11-21T08:30": 0, "kind=plan&from=2026-11-21T08:59&to=2026-11-21T10:00": 3, "kind=plan&range=24h": 3,
		"actor=%00&kind=plan": 0, "object=%ff": 0,
	} {
		page := w.get("/audit?"+query, "owner")
		if got := len(linesOn(t, page)); got != want || page.Code != http.StatusOK {
			t.Errorf("%s: %d with %d lines, want %d", query, page.Code, got, want)
		}
		if !strings.Contains(page.body, "/audit.csv?") {
			t.Errorf("%s: the file does not have the filters", query)
		}
	}
	for query, want := range map[string]string{
		"tenant=none": "No tenant has this slug", "from=x&to=y": "Enter both times",
	} {
		if page := w.get("/audit?"+query, "owner"); page.Code != http.StatusUnprocessableEntity || !strings.Contains(page.body, want) {
			t.Errorf("%s: %d, does not say %q", query, page.Code, want)
		}
	}
}

// Consecutive pages have no gap, and keep the filters.
func TestAuditPaging(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := w.as(t, "owner")
	for i := range 2*50 + 7 {
		must(t, w.store.WriteAudit(ctx, audit.Entry{Action: "setting.put", Object: fmt.Sprintf("s%03d", i), ObjectName: fmt.Sprintf("s%03d", i)}))
	}
	var seen []string
	for address, pages := "/audit?kind=setting", 0; address != ""; pages++ {
		page := w.get(address, "owner")
		next := ""
		for n := range page.tree(t).Descendants() {
			if attr(n, "rel") == "next" {
				next = attr(n, "href")
			}
		}
		lines := linesOn(t, page)
		if len(lines) > 50 || pages > 3 {
			t.Fatalf("%s: %d lines on page %d", address, len(lines), pages)
		}
		seen = append(seen, lines...)
		address = next
	}
	if len(seen) != 2*50+7 {
		t.Fatalf("%d lines", len(seen))
	}
	for i, line := range seen {
		if want := fmt.Sprintf("s%03d", len(seen)-1-i); !strings.Contains(line, want) {
			t.Errorf("line %d is %q, want %s", i, line, want)
		}
	}
}

// Members of a tenant read the entries about their own tenant. No entry, file or filter shows
// them who works for the operator.
func TestAuditOfATenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.changed(t)
	_, _, err := w.people.Invite(w.as(t, "editor"), accounts.Principal{Kind: "user", ID: w.ids["editor"], Role: accounts.Editor}, w.ids["acme"], "joins@acme.example", accounts.TenantViewer)
	must(t, err)
	lines, failed := w.store.AuditEntries(t.Context(), audit.Filter{TenantID: w.ids["acme"], Limit: 100})
	must(t, failed)
	pages := []string{"/tenants/acme/audit", "/tenants/acme/audit.csv", "/tenants/acme/audit?actor=" + w.ids["acme-admin"], "/tenants/acme/audit?actor=editor", "/tenants/acme/audit?actor=" + w.ids["editor"]}
	for _, l := range lines {
		pages = append(pages, "/tenants/acme/audit/"+l.ID)
	}
	for _, path := range pages {
		page := w.get(path, "acme-viewer")
		for _, secret := range []string{"editor@", w.ids["editor"], "owner@", w.ids["owner"], "request-of-editor"} {
			typed := strings.Contains(path, secret) // the searched text may be shown again
			if strings.Contains(page.body, secret) && !typed {
				t.Errorf("%s has %q", path, secret)
			}
		}
	}
	page := w.get("/tenants/acme/audit", "acme-viewer")
	if all := strings.Join(linesOn(t, page), "\n"); len(linesOn(t, page)) != len(lines) || !strings.Contains(all, "operator changed the tenant acme") ||
		!strings.Contains(all, "acme-admin@people.example created the API key") {
		t.Errorf("%d of %d lines:\n%s", len(linesOn(t, page)), len(lines), all)
	}
	for _, actor := range []string{"editor", "acme-admin", w.ids["editor"], w.ids["globex-admin"]} {
		if page := w.get("/tenants/acme/audit?actor="+actor, "acme-viewer"); page.Code != http.StatusUnprocessableEntity || len(linesOn(t, page)) != 0 {
			t.Errorf("actor %s: %d with %d lines", actor, page.Code, len(linesOn(t, page)))
		}
	}
	if page := w.get("/tenants/acme/audit?actor="+w.ids["acme-admin"]+"&kind=key", "acme-viewer"); page.Code != http.StatusOK || len(linesOn(t, page)) != 1 {
		t.Errorf("one's own: %d with %d lines", page.Code, len(linesOn(t, page)))
	}
	if page := w.get("/tenants/acme/audit?kind=tenant", "viewer"); !strings.Contains(page.body, "editor@people.example") {
		t.Error("the operator's people do not see who it was")
	}
	foreign, err := w.store.AuditEntries(t.Context(), audit.Filter{TenantID: w.ids["globex"], Limit: 1})
	must(t, err)
	for _, id := range []string{foreign[0].ID, w.ids["acme"], "x"} {
		if page := w.get("/tenants/acme/audit/"+id, "acme-admin"); page.Code != http.StatusNotFound {
			t.Errorf("line %s: %d", id, page.Code)
		}
	}
}

// In the log of a tenant, a person who left is shown like a member.
func TestAuditOfThoseWhoLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.changed(t)
	if gone := w.post("/tenants/acme/members/"+w.ids["acme-admin"]+"/remove", "owner", url.Values{"confirm": {"acme-admin@people.example"}}); gone.Code != http.StatusSeeOther {
		t.Fatalf("%d", gone.Code)
	}
	if page := w.get("/tenants/acme/audit?kind=key", "acme-viewer"); !strings.Contains(page.body, "acme-admin@people.example") {
		t.Error("they are called operator")
	}
}

// The file has the same entries as the page. No cell is a formula for a spreadsheet.
func TestAuditCSV(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.changed(t)
	must(t, w.store.WriteAudit(w.as(t, "owner"), audit.Entry{Action: "setting.put", Object: "@x", ObjectName: `-1+cmd|' /C calc'!A0`, After: json.RawMessage(`{"a":"x,\"y"}`)}))
	page := w.get("/audit.csv", "viewer")
	if page.Code != http.StatusOK || !strings.HasPrefix(page.Header().Get("Content-Type"), "text/csv") || !strings.Contains(page.Header().Get("Content-Disposition"), ".csv") {
		t.Fatalf("%d %v", page.Code, page.Header())
	}
	rows, err := csv.NewReader(strings.NewReader(page.body)).ReadAll()
	must(t, err)
	lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Limit: 1000})
	must(t, err)
	if len(rows) != len(lines)+1 || len(rows[0]) != 16 {
		t.Fatalf("%d rows of %d lines", len(rows), len(lines))
	}
	for i, l := range lines {
		row := rows[i+1]
		if row[0] != l.ID || row[1] != fmt.Sprint(l.Seq) || row[6] != l.Actor.Name || row[13] != string(l.Before) || row[14] != string(l.After) || row[15] != l.Hash.String() {
			t.Errorf("row %d: %q", i+1, row)
		}
		for _, field := range row {
			if field != "" && strings.Contains("=+-@\t\r", field[:1]) {
				t.Errorf("row %d: a spreadsheet would run %q", i+1, field)
			}
		}
	}
	if rows[1][11] != "'@x" || rows[1][12] != `'-1+cmd|' /C calc'!A0` {
		t.Errorf("%q", rows[1])
	}
	for query, want := range map[string]int{"kind=plan": 3, "tenant=acme&kind=key": 1, "object=none": 0} {
		rows, err := csv.NewReader(strings.NewReader(w.get("/audit.csv?"+query, "owner").body)).ReadAll()
		if err != nil || len(rows) != want+1 {
			t.Errorf("%s: %d rows, %v", query, len(rows), err)
		}
	}
	if page := w.get("/audit.csv?tenant=none", "owner"); page.Code != http.StatusUnprocessableEntity {
		t.Errorf("of no tenant: %d", page.Code)
	}
	guest, err := csv.NewReader(strings.NewReader(w.get("/tenants/acme/audit.csv", "acme-viewer").body)).ReadAll()
	must(t, err)
	for _, row := range guest[1:] {
		if row[9] != w.ids["acme"] || row[1] != "" || row[15] != "" {
			t.Errorf("a tenant's file has %q", row)
		}
	}
}

// A file has at most a bounded number of entries, from several queries. It says if it was cut.
func TestAuditCSVIsBounded(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]int{500 + 50: 500 + 50, 0: 500 + 100} {
		w := newWorld(t, func(c *config) { c.admin.AuditLines = most })
		ctx := w.as(t, "owner")
		for i := range 500 + 100 {
			must(t, w.store.WriteAudit(ctx, audit.Entry{Action: "setting.put", Object: fmt.Sprint(i)}))
		}
		r := csv.NewReader(strings.NewReader(w.get("/audit.csv?kind=setting", "owner").body))
		r.FieldsPerRecord = -1
		rows, err := r.ReadAll()
		must(t, err)
		cut := len(rows[len(rows)-1]) == 1 && strings.HasPrefix(rows[len(rows)-1][0], "cut off")
		if rows = rows[1:]; cut {
			rows = rows[:len(rows)-1]
		}
		if len(rows) != want || cut != (most > 0) {
			t.Errorf("at most %d: %d rows, cut: %v", most, len(rows), cut)
		}
		ids := map[string]bool{}
		for _, row := range rows {
			ids[row[0]] = true
		}
		if len(ids) != want {
			t.Errorf("%d different lines of %d", len(ids), want)
		}
	}
}

// tampered is a log whose chain is broken.
type tampered struct{ audit.Store }

func (tampered) VerifyAudit(context.Context, audit.Verification) (audit.Verdict, error) {
	return audit.Verdict{Lines: 2, Broken: &audit.Broken{Seq: 3, What: "is missing: the next one is 4"}}, nil
}

// The page says that the hash chain is correct only after it was verified, and shows where it
// is broken.
func TestVerifyTheChain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if page := w.get("/audit", "owner"); strings.Contains(page.body, "intact") {
		t.Error("the page speaks of a chain that nobody walked")
	}
	lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Limit: 1000})
	must(t, err)
	want := fmt.Sprintf("intact up to entry %d", len(lines))
	if page := w.post("/audit/verify", "viewer", nil); page.Code != http.StatusOK || !strings.Contains(page.body, want) {
		t.Errorf("verify: %d, does not say %q", page.Code, want)
	}
	if page := w.get("/audit", "owner"); !strings.Contains(page.body, want) {
		t.Error("the verdict is not remembered")
	}
	if page := w.get("/tenants/acme/audit", "acme-admin"); strings.Contains(page.body, "intact") || strings.Contains(page.body, "/audit/verify") {
		t.Error("a tenant's people see the chain of all")
	}
	w = newWorld(t, func(c *config) { c.admin.Audit = tampered{c.admin.Audit} })
	if page := w.post("/audit/verify", "viewer", nil); !strings.Contains(page.body, "changed after it was written: line 3 is missing") || strings.Contains(page.body, "intact") {
		t.Errorf("a broken chain: %d", page.Code)
	}
}

// Every action has words on the page.
func TestActionsHaveWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(t)
	lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Limit: 1000})
	must(t, err)
	seen := map[string]bool{}
	for _, l := range lines {
		if seen[l.Action] {
			continue
		}
		seen[l.Action] = true
		worded := false
		for n := range w.get("/audit/"+l.ID, "owner").tree(t).Descendants() {
			worded = worded || attr(n, "title") == l.Action && textOf(n) != "" && textOf(n) != l.Action
		}
		if !worded {
			t.Errorf("%s has no words", l.Action)
		}
	}
}
