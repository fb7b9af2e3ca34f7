package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/savedfilters"
)

// saveFilter saves a filter with the form of a page, and returns the answer.
func (w *world) saveFilter(action, by, name, query string, shared bool) reply {
	f := url.Values{"name": {name}, "query": {query}}
	if shared {
		f.Set("shared", "1")
	}
	return w.post(action, by, f)
}

// filterOf returns the ID of a filter of a person by its name.
func (w *world) filterOf(p savedfilters.Place, by, name string) string {
	w.t.Helper()
	list, err := w.filters.Filters(w.t.Context(), p, w.ids[by])
	must(w.t, err)
	for _, f := range list {
		if f.Name == name {
			return f.ID
		}
	}
	return ""
}

// A person saves the filter of each page with filters, opens it again, and finds it in the palette.
// Others see it when it is shared, and only those who may see the page.
func TestSavedFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, test := range []struct{ page, action, query, kept string }{
		{"/overview", "/filters/overview", "done=renamed&live=0&range=6h&tenant=acme", "range=6h&tenant=acme"},
		{"/denials", "/filters/denials", "before=x&outcome=allowed&reason=ok", "outcome=allowed&reason=ok"},
		{"/tenants", "/filters/tenants", "page=2&sort=rate&status=active", "sort=rate&status=active"},
		{"/audit", "/filters/audit", "kind=plan", "kind=plan"},
		{"/tenants/acme/denials", "/tenants/acme/filters/denials", "reason=limited", "reason=limited"},
		{"/tenants/acme/audit", "/tenants/acme/filters/audit", "", ""},
	} {
		form := w.get(test.page+"?"+test.query, "viewer")
		if !strings.Contains(form.body, `action="`+test.action+`"`) || !strings.Contains(form.body, "Saved (0)") {
			t.Errorf("%s has no form", test.page)
		}
		saved := w.saveFilter(test.action, "viewer", "Mine & <yours>", test.query, false)
		to := saved.Header().Get("Location")
		u, err := url.Parse(to)
		must(t, err)
		q := u.Query()
		q.Del("done")
		if saved.Code != http.StatusSeeOther || u.Path != test.page || q.Encode() != test.kept {
			t.Errorf("%s: %d to %s", test.page, saved.Code, to)
		}
		shows := func(by string) bool {
			page := w.get(test.page, by).body
			return strings.Contains(page, "Saved (1)") && strings.Contains(page, "Mine &amp; &lt;yours&gt;")
		}
		if !strings.Contains(w.get(to, "viewer").body, "The filter is saved.") || !shows("viewer") || shows("editor") {
			t.Errorf("%s: the filter is not shown to its owner only", test.page)
		}
		place := savedfilters.Place{Page: test.page[strings.LastIndex(test.page, "/")+1:]}
		if strings.HasPrefix(test.page, "/tenants/") {
			place.TenantID = w.ids["acme"]
		}
		id := w.filterOf(place, "viewer", "Mine & <yours>")
		change := test.action + "/" + id
		if got := w.post(change, "editor", url.Values{"name": {"x"}}); got.Code != http.StatusNotFound {
			t.Errorf("%s: another person changes it: %d", test.page, got.Code)
		}
		if got := w.post(change, "viewer", url.Values{"name": {"Mine & <yours>"}, "shared": {"1"}}); got.Code != http.StatusSeeOther || !shows("editor") {
			t.Errorf("%s: share: %d, the editor sees it: %t", test.page, got.Code, shows("editor"))
		}
		if place.TenantID != "" && (!shows("acme-viewer") || w.get(test.action, "globex-admin").Code != http.StatusNotFound) {
			t.Errorf("%s: members of the tenant do not see it", test.page)
		}
		if place.TenantID == "" && w.get(test.action, "acme-admin").Code != http.StatusForbidden {
			t.Errorf("%s: members of a tenant see filters of the operator", test.page)
		}
		if got := w.post(change, "editor", url.Values{"name": {"x"}}); got.Code != http.StatusForbidden {
			t.Errorf("%s: another person renames a shared one: %d", test.page, got.Code)
		}
		found := w.get("/jump/found?q=%26+%3Cyours", "editor")
		if !strings.Contains(found.body, "Mine &amp; &lt;yours&gt;") || !strings.Contains(found.body, "Saved filters") {
			t.Errorf("%s: the palette does not find it: %s", test.page, found.body)
		}
		if got := w.post(change+"/delete", "editor", nil); got.Code != http.StatusSeeOther || shows("viewer") {
			t.Errorf("%s: an editor removes a shared one: %d", test.page, got.Code)
		}
	}
	lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Group: "saved_filter", Limit: 100})
	must(t, err)
	if len(lines) != 12 || lines[0].Action != "saved_filter.delete" || lines[1].Action != "saved_filter.share" {
		t.Errorf("%d audit lines, want one for each filter that was shared and one for its removal: %+v", len(lines), lines)
	}
}

// The form says what is wrong, and the bounds hold.
func TestSavedFilterForms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if got := w.saveFilter("/filters/denials", "viewer", "", "reason=limited", true); got.Code != http.StatusUnprocessableEntity ||
		!strings.Contains(got.body, "Name must have") || !strings.Contains(got.body, `value="reason=limited"`) {
		t.Errorf("no name: %d %s", got.Code, got.body)
	}
	for _, path := range []string{"/filters/none", "/tenants/acme/filters/overview", "/tenants/acme/filters/tenants"} {
		if got := w.get(path, "owner"); got.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, got.Code)
		}
	}
	for range savedfilters.MaxShared {
		_, err := w.filters.Save(t.Context(), savedfilters.Place{Page: "denials"}, w.ids["editor"], savedfilters.Document{Name: "x", Shared: true})
		must(t, err)
	}
	if got := w.saveFilter("/filters/denials", "viewer", "one more", "", true); got.Code != http.StatusConflict {
		t.Errorf("one shared filter too many: %d", got.Code)
	}
	for range savedfilters.MaxOwn {
		_, err := w.filters.Save(t.Context(), savedfilters.Place{Page: "audit"}, w.ids["viewer"], savedfilters.Document{Name: "x"})
		must(t, err)
	}
	if got := w.saveFilter("/filters/denials", "viewer", "one more", "", false); got.Code != http.StatusConflict || !strings.Contains(got.body, "200 saved filters") {
		t.Errorf("one filter too many: %d", got.Code)
	}
	if list, err := w.store.AuditEntries(t.Context(), audit.Filter{Group: "saved_filter", Action: "saved_filter.share", Limit: 1}); err != nil || len(list) != 1 {
		t.Errorf("a filter that is shared at once has an audit line: %v", err)
	}
}
