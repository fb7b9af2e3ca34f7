package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/tenants"
)

// tenantsPages returns the pages of tenants in each of their states. The text is in every place
// that accepts a text.
func (w *world) tenantsPages(t *testing.T, text string) map[string]reply {
	t.Helper()
	ctx := audit.With(t.Context(), audit.Actor{Kind: "command", ID: "test", Name: text}, audit.Origin{})
	tenant := w.tenant("acme")
	tenant.Name = text
	saved, err := w.tenants.UpdateTenant(ctx, tenant.ID, tenant.Document, tenant.Revision)
	must(t, err)
	k, _, err := w.tenants.CreateKey(ctx, "acme", tenants.NewKey{Name: text, Scopes: []tenants.Scope{tenants.ScopeCheck}})
	must(t, err)
	o, err := w.exceptions.CreateOverride(ctx, "acme", exceptions.NewOverride{Policy: "per-user", Attribute: "user", Value: text, Factor: 2000, Reason: text, ExpiresAt: w.clock().Add(time.Hour)})
	must(t, err)
	n, err := w.exceptions.CreateEntry(ctx, "acme", exceptions.NewEntry{List: exceptions.Deny, Attribute: "user", Value: "on the list " + text, Reason: text})
	must(t, err)
	b, err := w.exceptions.CreateBlock(ctx, "acme", exceptions.NewBlock{Policy: "per-user", Key: map[string]string{"user": text}, Reason: text, ExpiresAt: w.clock().Add(time.Hour)})
	must(t, err)
	must(t, w.watcher.Refresh(ctx))
	w.decide("acme", enforcement.Check{Method: "GET", Path: "/v1/search", Attributes: attributes("user", text), Cost: 1})
	must(t, w.flusher.Flush(ctx))
	w.now.Add(time.Millisecond.Microseconds()) // all within one minute, so that charts have the same number of points
	defer func() {
		must(t, w.exceptions.DeleteOverride(ctx, "acme", o.ID))
		must(t, w.exceptions.DeleteEntry(ctx, "acme", n.ID))
		must(t, w.exceptions.DeleteBlock(ctx, "acme", b.ID))
	}()
	q := url.QueryEscape(text)
	stale := url.Values{"name": {"another " + text}, "no_policy": {"deny"}, "redact_values": {"hash"}, "version": {"1"}}
	bad := url.Values{"name": {text + text + text + "\x01"}, "slug": {"Not " + text}, "plan": {"Not " + text}, "no_policy": {text}}
	pages := map[string]reply{
		"tenants": w.get("/tenants?q="+q, "owner"), "new": w.get("/tenants/new?name="+q, "owner"), "not made": w.post("/tenants", "owner", bad),
		"tenant": w.get(acme, "owner"), "its own": w.get(acme+"?range=24h", "acme-viewer"),
		"settings": w.get(acme+"/settings", "owner"), "stale": w.post(acme+"/settings", "owner", stale),
		"unsaved": w.post(acme+"/settings", "owner", url.Values{"name": {text + "\x01"}, "no_policy": {text}, "version": {"1"}}),
		"plan":    w.get(acme+"/settings/plan?to=", "owner"), "suspend": w.get(acme+"/settings/suspend", "owner"),
		"not deleted": w.post(acme+"/settings/delete", "owner", url.Values{"confirm": {text}, "version": {"1"}}),
		"keys":        w.get(acme+"/keys?after="+after(k.ID), "acme-admin"), "new key": w.get(acme+"/keys/new", "acme-admin"),
		"no key": w.post(acme+"/keys", "acme-admin", url.Values{"name": {text + "\x01"}, "life": {text}, "until": {text}}),
		"rotate": w.get(acme+"/keys/"+k.ID+"/rotate", "owner"), "revoke": w.get(acme+"/keys/"+k.ID+"/revoke", "owner"),
		"rotated":   w.post(acme+"/keys/"+k.ID+"/rotate", "owner", url.Values{"overlap": {"0"}}),
		"overrides": w.get(acme+"/overrides", "acme-viewer"), "wins": w.get(acme+"/overrides?policy=per-user&k.user="+q, "owner"),
		"override": w.get(acme+"/overrides/new?policy=per-user&attribute=user&value="+q+"&reason="+q, "owner"), "pick": w.get(acme+"/overrides/new?value="+q, "owner"),
		"no override":  w.post(acme+"/overrides", "owner", url.Values{"policy": {"per-user"}, "scope": {text}, "attribute": {text}, "value": {text}, "factor": {text}, "quota.l1": {text}, "reason": {""}, "life": {text}}),
		"end override": w.get(acme+"/overrides/"+o.ID+"/delete", "owner"),
		"lists":        w.get(acme+"/lists?q="+url.QueryEscape("on the list "+text), "owner"), "entry": w.get(acme+"/lists/new?value="+q+"&attribute="+q, "owner"),
		"no entry": w.post(acme+"/lists", "owner", url.Values{"list": {text}, "attribute": {""}, "value": {""}, "reason": {text}, "life": {"at"}, "until": {text}}),
		"take off": w.get(acme+"/lists/"+n.ID+"/delete", "owner"), "blocks": w.get(acme+"/blocks", "owner"),
		"block":    w.get(acme+"/blocks/new?policy=per-user&k.user="+q, "owner"),
		"no block": w.post(acme+"/blocks", "owner", url.Values{"policy": {"per-user"}, "k.user": {text}, "reason": {""}, "life": {"24h"}}),
		"end":      w.get(acme+"/blocks/"+b.ID+"/delete", "owner"), "reset": w.get(acme+"/reset?policy=per-user&k.user="+q, "owner"),
		"key": w.get(acme+"/usage/per-user?k.user="+q, "owner"), "whole": w.get(acme+"/usage/total", "acme-viewer"),
	}
	if saved.Name != text {
		t.Fatalf("the tenant's name is %q", saved.Name)
	}
	return pages
}

// after returns the cursor before an ID, so that its row is the first one of the page.
func after(id string) string {
	const digits = "0123456789abcdef"
	before := []byte(id)
	for i := len(before) - 1; i >= 0; i-- {
		switch at := strings.IndexByte(digits, before[i]); at {
		case -1: // a hyphen
		case 0:
			before[i] = 'f' // and decrease the digit before it
		default:
			before[i] = digits[at-1]
			return string(before)
		}
	}
	return string(before)
}

// For every name, value and reason, the pages of tenants have the same elements and headers, no
// inline scripts or styles, and no page fails.
func TestTenantsPagesAreStrict(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	var want map[string]string
	for i, payload := range append([]string{"plain"}, payloads...) {
		if i%3 != 0 {
			continue // the names of users are tested with all texts
		}
		got := map[string]string{}
		for name, page := range w.tenantsPages(t, payload) {
			if page.Code >= http.StatusInternalServerError || page.Code == http.StatusNotFound || page.Code == http.StatusBadRequest {
				t.Errorf("%q on the page %s: %d", payload, name, page.Code)
			}
			if page.Header().Get("Content-Security-Policy") != policy || page.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %v", name, page.Header())
			}
			tree := page.tree(t)
			strict(t, name, tree)
			if name != "tenant" && name != "its own" { // these pages grow with the counts
				got[name] = shape(tree)
			}
		}
		if i == 0 {
			want = got
			continue
		}
		for name := range got {
			if got[name] != want[name] {
				t.Errorf("%q on the page %s:\n%s\nwant\n%s", payload, name, got[name], want[name])
			}
		}
	}
}
