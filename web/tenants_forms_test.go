package web_test

import (
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/tenants"
)

const acme = "/tenants/acme"

func (w *world) tenant(slug string) tenants.Tenant {
	w.t.Helper()
	t, err := w.tenants.Tenant(w.t.Context(), slug)
	must(w.t, err)
	return t
}

// If another person changed the tenant meanwhile, the page shows both versions field by field.
// The selected values are saved.
func TestSettingsAndStaleEdits(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	const settings = acme + "/settings"
	opened := typedIn(t, w.get(settings, "editor"), "version")
	to(t, "save", w.post(settings, "owner", url.Values{"name": {"Acme Ltd."}, "no_policy": {"deny"}, "redact_values": {"keep"}, "version": {opened}}), settings+"?done=tenant-saved")
	late := w.post(settings, "editor", url.Values{"name": {"Acme GmbH"}, "no_policy": {"allow"}, "redact_values": {"keep"}, "version": {opened}})
	text := words(t, late)
	if late.Code != http.StatusConflict || !strings.Contains(text, "Acme GmbH your value") || !strings.Contains(text, "Acme Ltd. stored value") || !strings.Contains(text, "Allow your value") ||
		!strings.Contains(text, "Deny stored value") || strings.Contains(text, "Attribute values") {
		t.Fatalf("%d %s", late.Code, text)
	}
	if got := w.tenant("acme"); got.Name != "Acme Ltd." || got.NoPolicy != tenants.Deny {
		t.Fatalf("a late edit was saved: %+v", got.Document)
	}
	chosen := url.Values{"name": {"Acme GmbH"}, "no_policy": {"deny"}, "redact_values": {typedIn(t, late, "redact_values")}, "version": {typedIn(t, late, "version")}}
	to(t, "choose", w.post(settings, "editor", chosen), settings+"?done=tenant-saved")
	if got := w.tenant("acme"); got.Name != "Acme GmbH" || got.NoPolicy != tenants.Deny || got.RedactValues || got.Plan != "metered" {
		t.Errorf("%+v", got.Document)
	}
	bad := w.post(settings, "editor", url.Values{"name": {""}, "no_policy": {"deny"}, "redact_values": {"hash"}, "version": {strconv.FormatInt(w.tenant("acme").Revision, 10)}})
	if bad.Code != http.StatusUnprocessableEntity || wrongIn(t, bad) != "name" || typedIn(t, bad, "redact_values") != "hash" {
		t.Errorf("%d %q %q", bad.Code, wrongIn(t, bad), typedIn(t, bad, "redact_values"))
	}
	version := func() []string { return []string{strconv.FormatInt(w.tenant("acme").Revision, 10)} }
	for _, wrong := range []string{"999", "1,000,000,001", "many", "-1"} {
		form := url.Values{"name": {"Acme"}, "no_policy": {"deny"}, "redact_values": {"keep"}, "max_keys": {wrong}, "version": version()}
		if r := w.post(settings, "editor", form); r.Code != http.StatusUnprocessableEntity || wrongIn(t, r) != "max_keys" || typedIn(t, r, "max_keys") != wrong {
			t.Errorf("bound %q: %d %q %q", wrong, r.Code, wrongIn(t, r), typedIn(t, r, "max_keys"))
		}
	}
	form := url.Values{"name": {"Acme"}, "no_policy": {"deny"}, "require_route": {"no"}, "redact_values": {"keep"}, "max_keys": {" 2,000,000 "}, "version": version()}
	to(t, "bound", w.post(settings, "editor", form), settings+"?done=tenant-saved")
	if !w.tenant("acme").RouteOptional {
		t.Error("checks without a route are still rejected")
	}
	if got, shown := w.tenant("acme").MaxKeys, typedIn(t, w.get(settings, "editor"), "max_keys"); got != 2_000_000 || shown != "2000000" {
		t.Errorf("bound %d, shown as %q", got, shown)
	}
	if none := w.post(settings, "editor", url.Values{"name": {"x"}}); none.Code != http.StatusBadRequest {
		t.Errorf("without a version: %d", none.Code)
	}
}

// Operator task 6: the settings page of a tenant sets its time zone and the first day of its
// months.
func TestTenantCalendar(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	const settings = acme + "/settings"
	page := w.get(settings, "editor")
	if zone, day := typedIn(t, page, "time_zone"), typedIn(t, page, "billing_anchor_day"); zone != "UTC" || day != "1" {
		t.Errorf("the form has %q and %q", zone, day)
	}
	form := func(zone, day string) url.Values {
		return url.Values{
			"name": {"Acme"}, "no_policy": {"allow"}, "require_route": {"yes"}, "redact_values": {"keep"}, "time_zone": {zone}, "billing_anchor_day": {day},
			"version": {strconv.FormatInt(w.tenant("acme").Revision, 10)},
		}
	}
	for _, c := range []struct{ zone, day, wrong string }{
		{"Berlin", "15", "time_zone"},
		{"Local", "15", "time_zone"},
		{"Europe/Berlin", "32", "billing_anchor_day"},
		{"Europe/Berlin", "0", "billing_anchor_day"},
		{"Europe/Berlin", "the 15th", "billing_anchor_day"},
		{"Europe/Berlin", "", "billing_anchor_day"},
	} {
		r := w.post(settings, "editor", form(c.zone, c.day))
		if r.Code != http.StatusUnprocessableEntity || wrongIn(t, r) != c.wrong || typedIn(t, r, "time_zone") != c.zone || typedIn(t, r, "billing_anchor_day") != c.day {
			t.Errorf("%q, %q: %d %q", c.zone, c.day, r.Code, wrongIn(t, r))
		}
	}
	to(t, "the calendar", w.post(settings, "editor", form(" Europe/Berlin ", "15")), settings+"?done=tenant-saved")
	if got := w.tenant("acme"); got.TimeZone != "Europe/Berlin" || got.BillingAnchorDay != 15 {
		t.Errorf("%+v", got.Document)
	}
	// A form of the previous release has neither field. It keeps both values.
	old := form("", "")
	old.Del("time_zone")
	old.Del("billing_anchor_day")
	to(t, "the former form", w.post(settings, "editor", old), settings+"?done=tenant-saved")
	if got := w.tenant("acme"); got.TimeZone != "Europe/Berlin" || got.BillingAnchorDay != 15 {
		t.Errorf("%+v", got.Document)
	}
}

// A change of plan first shows the differences, and the exceptions that lose their effect.
func TestChangeOfPlan(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	w.addExceptions()
	other := metered()
	other.Policies = other.Policies[1:]
	other.Policies[0].Limits[0].Quota = 20
	w.publish("other", other, "")
	const plan = acme + "/settings/plan"
	page := w.get(plan+"?to=other", "editor")
	text := words(t, page)
	for _, want := range []string{"per-user", "10 per minute, bursts of 5", "20 per minute, bursts of 5", "changed", "total", "removed", "1 override and 1 block lose their effect"} {
		if !strings.Contains(text, want) {
			t.Errorf("the comparison does not say %q: %s", want, text)
		}
	}
	form := url.Values{"plan": {"other"}, "version": {typedIn(t, page, "version")}}
	w.now.Add(1000)
	late := url.Values{"plan": {"other"}, "version": {"1"}}
	if got := w.post(plan, "editor", late); got.Code != http.StatusConflict || !strings.Contains(words(t, got), "Another person changed the tenant") {
		t.Errorf("late: %d", got.Code)
	}
	to(t, "change", w.post(plan, "editor", form), acme+"/settings?done=tenant-plan")
	if w.tenant("acme").Plan != "other" {
		t.Error("the plan is the old one")
	}
	if d := w.decide("acme", enforcement.Check{Path: "/v1/other", Cost: 1000}); !d[0].Allowed {
		t.Error("this node still has the old plan in force")
	}
	if none := w.post(plan, "editor", url.Values{"version": {"1"}}); none.Code != http.StatusBadRequest {
		t.Errorf("without a plan: %d", none.Code)
	}
}

func TestSuspendResumeDelete(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	const settings = acme + "/settings"
	if text := words(t, w.get(settings+"/suspend", "owner")); !strings.Contains(text, "answers every check of this tenant with 403") {
		t.Errorf("%s", text)
	}
	to(t, "suspend", w.post(settings+"/suspend", "owner", nil), settings+"?done=tenant-suspended")
	if d := w.decide("acme", enforcement.Check{Path: "/", Cost: 1}); d[0].Reason != enforcement.ReasonTenantSuspended {
		t.Errorf("%s", d[0].Reason)
	}
	to(t, "resume", w.post(settings+"/resume", "owner", nil), settings+"?done=tenant-resumed")
	if d := w.decide("acme", enforcement.Check{Path: "/", Cost: 1}); !d[0].Allowed {
		t.Errorf("%s", d[0].Reason)
	}
	version := typedIn(t, w.get(settings, "owner"), "version")
	if wrong := w.post(settings+"/delete", "owner", url.Values{"confirm": {"acm"}, "version": {version}}); wrong.Code != http.StatusUnprocessableEntity || wrongIn(t, wrong) != "confirm" || typedIn(t, wrong, "confirm") != "acm" {
		t.Errorf("%d %q", wrong.Code, wrongIn(t, wrong))
	}
	if late := w.post(settings+"/delete", "owner", url.Values{"confirm": {"acme"}, "version": {"1"}}); late.Code != http.StatusConflict {
		t.Errorf("late: %d", late.Code)
	}
	to(t, "delete", w.post(settings+"/delete", "owner", url.Values{"confirm": {"acme"}, "version": {version}}), "/tenants?done=tenant-deleted")
	if gone := w.get(acme, "owner"); gone.Code != http.StatusNotFound {
		t.Errorf("deleted: %d", gone.Code)
	}
}

// The token of an API key is shown once on one page, and is not in a URL, the log, or the audit
// log. The old token of a rotated key stays valid beside the new one. A revoked key is invalid.
func TestKeysAreShownOnce(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	const keys = acme + "/keys"
	if bad := w.post(keys, "acme-admin", url.Values{"name": {" "}, "life": {"at"}, "until": {"soon"}}); bad.Code != http.StatusUnprocessableEntity ||
		wrongIn(t, bad) != "until" || typedIn(t, bad, "until") != "soon" || typedIn(t, bad, "life") != "at" {
		t.Errorf("%d %q", bad.Code, wrongIn(t, bad))
	}
	if bad := w.post(keys, "acme-admin", url.Values{"name": {" "}, "life": {"never"}}); bad.Code != http.StatusUnprocessableEntity || wrongIn(t, bad) != "name scopes" {
		t.Errorf("%d %q", bad.Code, wrongIn(t, bad))
	}
	for _, wrong := range []string{"0", "-1", "many", "2147483648"} {
		bad := w.post(keys, "acme-admin", url.Values{"name": {"edge"}, "scope-check": {"on"}, "max_cost": {wrong}, "life": {"never"}})
		if bad.Code != http.StatusUnprocessableEntity || wrongIn(t, bad) != "max_cost" || typedIn(t, bad, "max_cost") != wrong {
			t.Errorf("largest cost %q: %d %q", wrong, bad.Code, wrongIn(t, bad))
		}
	}
	if bad := w.post(keys, "acme-admin", url.Values{"name": {"edge"}, "scope-check": {"on"}, "allowed_ips": {"192.0.2.1, nonsense"}, "life": {"never"}}); bad.Code != http.StatusUnprocessableEntity ||
		wrongIn(t, bad) != "allowed_ips" || typedIn(t, bad, "allowed_ips") != "192.0.2.1, nonsense" {
		t.Errorf("allowed addresses: %d %q", bad.Code, wrongIn(t, bad))
	}
	form := url.Values{"name": {"edge"}, "scope-check": {"on"}, "max_cost": {"1,000"}, "peek-only": {"on"}, "allowed_ips": {"192.0.2.1 10.0.0.0/8"}, "life": {"30d"}}
	made := w.once(w.post(keys, "acme-admin", form), "acme-admin")
	token := ""
	for n := range made.tree(t).Descendants() {
		if attr(n, "id") == "token" {
			token = attr(n, "value")
		}
	}
	if made.Code != http.StatusOK || !tenants.WellFormed(token) || made.Header().Get("Cache-Control") != "no-store" || !strings.Contains(made.body, "Authorization: Bearer "+token) {
		t.Fatalf("%d %q %v", made.Code, token, made.Header())
	}
	if _, ok := w.watcher.Current().Key(tenants.HashToken(token)); !ok {
		t.Error("this node does not know the key at once")
	}
	list := w.get(keys, "acme-viewer")
	if strings.Contains(list.body, token) || !strings.Contains(words(t, list), "edge "+tenants.TokenHint(token)+" check peek only cost up to 1000 from 192.0.2.1 from 10.0.0.0/8 Active just now never 21 December 2026") || strings.Contains(list.body, "/revoke") {
		t.Errorf("%s", words(t, list))
	}
	all, err := w.tenants.Keys(t.Context(), w.ids["acme"], tenants.Filter{Limit: 10})
	must(t, err)
	one := keys + "/" + all[0].ID
	if bad := w.post(one+"/rotate", "acme-admin", url.Values{"overlap": {"8d"}}); bad.Code != http.StatusUnprocessableEntity || wrongIn(t, bad) != "overlap" {
		t.Errorf("%d %q", bad.Code, wrongIn(t, bad))
	}
	next := w.once(w.post(one+"/rotate", "acme-admin", url.Values{"overlap": {"24h"}}), "acme-admin")
	if next.Code != http.StatusOK || strings.Contains(next.body, token) || !strings.Contains(words(t, next), "The old key ends in 24 hours") {
		t.Errorf("%d %s", next.Code, words(t, next))
	}
	if again := w.post(one+"/rotate", "acme-admin", url.Values{"overlap": {"24h"}}); again.Code != http.StatusConflict {
		t.Errorf("rotated twice: %d", again.Code)
	}
	to(t, "revoke", w.post(one+"/revoke", "acme-admin", nil), keys+"?done=key-revoked")
	if text := words(t, w.get(keys, "acme-admin")); !strings.Contains(text, "Revoked") || !strings.Contains(text, "Active") {
		t.Errorf("%s", text)
	}
	lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Limit: 100})
	must(t, err)
	for _, l := range lines {
		if strings.Contains(string(l.After)+string(l.Before)+l.ObjectName, token) {
			t.Errorf("the audit log has the token: %s", l.Action)
		}
	}
	if strings.Contains(w.log.String(), token) {
		t.Error("the log has the token")
	}
}

// An override applies to one policy. The page describes it before it is created, and it applies
// immediately. The override that is most specific for a key applies.
func TestOverrides(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	const overrides = acme + "/overrides"
	if pick := words(t, w.get(overrides+"/new?attribute=user&value=u1", "editor")); !strings.Contains(pick, "Choose the policy first") {
		t.Errorf("%s", pick)
	}
	filled := w.get(overrides+"/new?policy=per-user&attribute=user&value=u1", "editor")
	if typedIn(t, filled, "scope") != "value" || typedIn(t, filled, "value") != "u1" || !strings.Contains(words(t, filled), "The plan has 10 per minute, bursts of 5.") {
		t.Errorf("%q %s", typedIn(t, filled, "scope"), words(t, filled))
	}
	form := url.Values{
		"policy": {"per-user"}, "scope": {"value"}, "attribute": {"user"}, "value": {"u1"}, "how": {"limits"}, "quota.l1": {"60"}, "burst.l1": {"30"},
		"reason": {"launch week"}, "life": {"24h"}, "step": {"look"},
	}
	if look := w.post(overrides, "editor", form); look.Code != http.StatusOK || !strings.Contains(words(t, look), "l1: 60 per minute, bursts of 30 (plan: 10 per minute, bursts of 5)") || typedIn(t, look, "quota.l1") != "60" {
		t.Errorf("%d %s", look.Code, words(t, look))
	}
	for name, c := range map[string]struct {
		change map[string]string
		faulty string
	}{
		"no reason":  {map[string]string{"reason": ""}, "reason"},
		"no value":   {map[string]string{"value": ""}, "value"},
		"no number":  {map[string]string{"quota.l1": "many"}, "quota.l1"},
		"window":     {map[string]string{"window.l1": "1y"}, "window.l1"},
		"too far":    {map[string]string{"life": "at", "until": "2040-01-01T00:00"}, "until"},
		"no numbers": {map[string]string{"quota.l1": "", "burst.l1": ""}, "how"},
		"factor":     {map[string]string{"how": "factor", "factor": "twice"}, "factor"},
		"attribute":  {map[string]string{"attribute": "ip", "value": "192.0.2.1"}, "attribute"},
		"too much":   {map[string]string{"quota.l1": "9000000000000000"}, "quota.l1"},
	} {
		bad := url.Values{}
		for n, v := range form {
			bad[n] = v
		}
		bad.Set("step", "create")
		for n, v := range c.change {
			bad.Set(n, v)
		}
		got := w.post(overrides, "editor", bad)
		if got.Code != http.StatusUnprocessableEntity || wrongIn(t, got) != c.faulty {
			t.Errorf("%s: %d %q, want %q", name, got.Code, wrongIn(t, got), c.faulty)
		}
	}
	form.Set("step", "create")
	to(t, "create", w.post(overrides, "editor", form), overrides+"?done=override-created")
	to(t, "for all", w.post(overrides, "editor", url.Values{"policy": {"per-user"}, "scope": {"all"}, "how": {"factor"}, "factor": {"0.5"}, "reason": {"quiet"}, "life": {"1h"}}), overrides+"?done=override-created")
	to(t, "prefix", w.post(overrides, "editor", url.Values{"policy": {"per-user"}, "scope": {"prefix"}, "attribute": {"user"}, "value": {"u"}, "how": {"factor"}, "factor": {"3"}, "reason": {"users"}, "life": {"1h"}}), overrides+"?done=override-created")
	if d := w.decide("acme", enforcement.Check{Path: "/v1/search", Attributes: attributes("user", "u1"), Cost: 30}); !d[0].Allowed {
		t.Error("the override does not hold")
	}
	for user, want := range map[string]string{
		"u1": "per-user in force user u1 this exact value",
		"u2": "per-user in force user with the prefix u a prefix of 1 byte",
		"x":  "per-user in force every key of the tenant every key",
	} {
		text := words(t, w.get(overrides+"?policy=per-user&k.user="+user, "acme-viewer"))
		if _, preview, _ := strings.Cut(text, "Find the override of a key"); !strings.Contains(preview, want) || strings.Count(preview, " in force ") != 1 {
			t.Errorf("%s: %s", user, preview)
		}
	}
	list, err := w.exceptions.Overrides(t.Context(), "acme", exceptions.Filter{Limit: 10})
	must(t, err)
	one := overrides + "/" + list[0].ID + "/delete"
	if ask := words(t, w.get(one, "editor")); !strings.Contains(ask, "user with the prefix u") {
		t.Errorf("%s", ask)
	}
	to(t, "end", w.post(one, "editor", nil), overrides+"?done=override-deleted")
	if again := w.post(one, "editor", nil); again.Code != http.StatusNotFound {
		t.Errorf("ended twice: %d", again.Code)
	}
}

func TestListsAndBlocks(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	const lists, blocks = acme + "/lists", acme + "/blocks"
	entry := url.Values{"list": {"deny"}, "attribute": {"ip"}, "value": {"203.0.113.7/24"}, "reason": {"scrapers"}, "life": {"never"}}
	if bad := w.post(lists, "editor", url.Values{"list": {"both"}, "attribute": {""}, "value": {""}, "life": {"at"}, "until": {"2020-01-01T00:00"}}); bad.Code != http.StatusUnprocessableEntity || wrongIn(t, bad) != "list attribute value until" {
		t.Errorf("%d %q", bad.Code, wrongIn(t, bad))
	}
	if bad := w.post(lists, "editor", entry); bad.Code != http.StatusUnprocessableEntity || wrongIn(t, bad) != "value" || typedIn(t, bad, "value") != "203.0.113.7/24" {
		t.Errorf("%d %q", bad.Code, wrongIn(t, bad))
	}
	entry.Set("value", "203.0.113.0/24")
	to(t, "entry", w.post(lists, "editor", entry), lists+"?done=entry-created")
	if again := w.post(lists, "editor", entry); again.Code != http.StatusConflict {
		t.Errorf("twice: %d", again.Code)
	}
	if d := w.decide("acme", enforcement.Check{Path: "/", Attributes: attributes("ip", "203.0.113.9"), IP: netip.MustParseAddr("203.0.113.9"), Cost: 1}); d[0].Reason != enforcement.ReasonDeniedByList {
		t.Errorf("%s", d[0].Reason)
	}
	if text := words(t, w.get(lists+"?list=allow", "acme-viewer")); !strings.Contains(text, "No entry matches") {
		t.Errorf("%s", text)
	}
	if text := words(t, w.get(lists+"?list=deny&q=203", "acme-viewer")); !strings.Contains(text, "203.0.113.0/24 ip deny never scrapers by") {
		t.Errorf("%s", text)
	}
	rows, err := w.exceptions.Entries(t.Context(), "acme", exceptions.Filter{Limit: 10})
	must(t, err)
	to(t, "take off", w.post(lists+"/"+rows[0].ID+"/delete", "editor", nil), lists+"?done=entry-deleted")
	if d := w.decide("acme", enforcement.Check{Path: "/", Attributes: attributes("ip", "203.0.113.9"), IP: netip.MustParseAddr("203.0.113.9"), Cost: 1}); !d[0].Allowed {
		t.Errorf("%s", d[0].Reason)
	}

	block := url.Values{"policy": {"per-user"}, "k.user": {"u9"}, "reason": {""}, "life": {"24h"}}
	if bad := w.post(blocks, "editor", block); bad.Code != http.StatusUnprocessableEntity || wrongIn(t, bad) != "reason" || typedIn(t, bad, "k.user") != "u9" {
		t.Errorf("%d %q", bad.Code, wrongIn(t, bad))
	}
	if gone := w.post(blocks, "editor", url.Values{"policy": {"none"}, "reason": {"x"}, "life": {"24h"}}); gone.Code != http.StatusConflict {
		t.Errorf("of no policy: %d", gone.Code)
	}
	block.Set("reason", "abuse")
	to(t, "block", w.post(blocks, "editor", block), blocks+"?done=block-created")
	if d := w.decide("acme", enforcement.Check{Path: "/v1/search", Attributes: attributes("user", "u9"), Cost: 1}); d[0].Reason != enforcement.ReasonBlocked {
		t.Errorf("%s", d[0].Reason)
	}
	page := w.get(blocks, "acme-viewer")
	if text := words(t, page); !strings.Contains(text, "user u9 per-user in 24 hours abuse by") || !strings.Contains(page.body, acme+"/usage/per-user?k.user=u9") {
		t.Errorf("%s", text)
	}
	held, err := w.exceptions.Blocks(t.Context(), "acme", exceptions.Filter{Limit: 10})
	must(t, err)
	to(t, "end", w.post(blocks+"/"+held[0].ID+"/delete", "editor", nil), blocks+"?done=block-deleted")
}

// The page of a key shows the remaining quota, its usage, the reasons of denials, and forms for
// exceptions that are filled in. A reset deletes its counters.
func TestCountedKey(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	for range 7 {
		w.decide("acme", enforcement.Check{Method: "GET", Path: "/v1/search", Attributes: attributes("user", "u1"), Cost: 1})
	}
	w.decide("acme", enforcement.Check{Method: "GET", Path: "/v1/search", Attributes: attributes("user", "u2"), Cost: 9})
	must(t, w.flusher.Flush(t.Context()))
	w.now.Add(1_000_000)
	const key = acme + "/usage/per-user?k.user=u1"
	page := w.get(key, "editor")
	text := words(t, page)
	for _, want := range []string{
		"user u1", "5 of 5 used", "used up", "Allowed 5 times, denied by a limit or a block 2 times.", "GET /v1/search",
		"Over the limit of policy per-user.", "after 6 s", `"user":"u1"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %s", want, text)
		}
	}
	if strings.Contains(text, "cost 9") {
		t.Error("another key's refusal is there")
	}
	for _, link := range []string{
		acme + "/overrides/new?attribute=user&back=" + url.QueryEscape(key) + "&policy=per-user&value=u1", acme + "/reset?k.user=u1&policy=per-user",
		acme + "/blocks/new?k.user=u1&policy=per-user", acme + "/lists/new?attribute=user&list=allow&value=u1",
	} {
		found := false
		for n := range page.tree(t).Descendants() {
			found = found || attr(n, "href") == link
		}
		if !found {
			t.Errorf("there is no %s", link)
		}
		if form := w.get(link, "editor"); form.Code != http.StatusOK || !strings.Contains(form.body, `value="u1"`) {
			t.Errorf("%s is not filled in: %d", link, form.Code)
		}
	}
	if seen := w.get(key, "acme-viewer"); strings.Contains(seen.body, "/overrides/new") || seen.Code != http.StatusOK {
		t.Errorf("a viewer is offered to set exceptions: %d", seen.Code)
	}
	to(t, "reset", w.post(acme+"/reset", "editor", url.Values{"policy": {"per-user"}, "k.user": {"u1"}, "reason": {"a mistake"}}), key+"&done=key-reset")
	if d := w.decide("acme", enforcement.Check{Path: "/v1/search", Attributes: attributes("user", "u1"), Cost: 5}); !d[0].Allowed {
		t.Error("the counters are not new")
	}
	lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Action: "counter.reset", Limit: 10})
	must(t, err)
	if len(lines) != 1 || lines[0].Actor.Name != "editor@people.example" || !strings.Contains(string(lines[0].After), "a mistake") {
		t.Errorf("%+v", lines)
	}
	if bad := w.post(acme+"/reset", "editor", url.Values{"policy": {"per-user"}, "k.user": {strings.Repeat("x", 2000)}}); bad.Code != http.StatusUnprocessableEntity || wrongIn(t, bad) != "k.user" {
		t.Errorf("%d %q", bad.Code, wrongIn(t, bad))
	}
	if whole := words(t, w.get(acme+"/usage/total", "acme-viewer")); !strings.Contains(whole, "the whole tenant") || !strings.Contains(whole, "21 of 100 used") && !strings.Contains(whole, "of 100 used") {
		t.Errorf("%s", whole)
	}
	if none := w.get(acme+"/usage/none", "owner"); none.Code != http.StatusNotFound {
		t.Errorf("%d", none.Code)
	}
}

// The file has a row for every policy and step of the charts. Text that could be a formula is escaped.
func TestUsageCSV(t *testing.T) {
	t.Parallel()
	w := newMetered(t)
	w.decide("acme", enforcement.Check{Path: "/v1/search", Attributes: attributes("user", "u1"), Cost: 2}, enforcement.Check{Path: "/v1/search", Attributes: attributes("user", "u1"), Cost: 4})
	w.flush()
	got := w.get(acme+"/usage.csv", "acme-viewer")
	want := "policy,at,step,requests,allowed,limited,cost,time_zone\ntotal,2026-11-21T09:00:00Z,minute,2,1,0,2,UTC\nper-user,2026-11-21T09:00:00Z,minute,2,1,1,2,UTC\n"
	if got.body != want || got.Header().Get("Content-Type") != "text/csv; charset=utf-8; header=present" || !strings.Contains(got.Header().Get("Content-Disposition"), "attachment") {
		t.Errorf("%q %v", got.body, got.Header())
	}
	for length, want := range map[string]string{"6h": "09:00:00Z,2 minutes,", "24h": "09:00:00Z,10 minutes,", "7d": "09:00:00Z,hour,", "30d": "06:00:00Z,6 hours,"} {
		if file := w.get(acme+"/usage.csv?range="+length, "acme-viewer").body; strings.Count(file, "T"+want) != 2 {
			t.Errorf("%s: %q has no %s", length, file, want)
		}
	}
	if bad := w.get(acme+"/usage.csv?from=x&to=y", "acme-viewer"); bad.Code != http.StatusUnprocessableEntity {
		t.Errorf("%d", bad.Code)
	}
}
