package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/tenants"
)

// A neighbour is a second tenant, initech, with one object of each kind. It has their IDs by
// the name of the path parameter. acme has its own objects.
type neighbour struct {
	key string
	ids map[string]string
}

// populateBoth creates two objects of each kind for acme and for initech.
func (w *world) populateBoth() neighbour {
	w.t.Helper()
	_, err := w.tenants.CreateTenant(w.t.Context(), "initech", tenants.Document{Name: "Initech", Plan: "pro", RouteOptional: true})
	must(w.t, err)
	w.ids = maps.Clone(w.ids) // the fixture's are everybody's
	_ = w.key(w.t.Context(), "initech", "spare", tenants.ScopeRead)
	n := neighbour{key: w.key(w.t.Context(), "initech", "all", tenants.ScopeCheck, tenants.ScopeManage), ids: map[string]string{":key": w.ids["all"]}}
	must(w.t, w.watcher.Refresh(w.t.Context()))
	for _, tenant := range []string{"acme", "initech"} {
		for _, name := range []string{"ann-", "bob-"} {
			n.ids[":member"] = w.user(name+tenant, tenant, accounts.TenantAdmin).ID
		}
		for _, user := range []string{tenant + "-1", tenant + "-2"} {
			for param, ask := range map[string]call{
				":override": {path: "/overrides", body: `{"policy":"login-per-ip","attribute":"ip","value":"203.0.113.77","factor":2,"reason":"r"}`},
				":entry":    {path: "/lists", body: `{"list":"deny","attribute":"user","value":"` + user + `","reason":"r"}`},
				":block":    {path: "/blocks", body: `{"policy":"reports-per-user","key":{"user":"` + user + `"},"reason":"r","expires_at":"2026-11-22T10:00:00Z"}`},
				":grant":    {path: "/grants", body: `{"policy":"reports-per-user","units":1,"reason":"r","expires_at":"2026-11-22T10:00:00Z"}`},
			} {
				ask.method, ask.path, ask.as = http.MethodPost, "/v1/tenants/"+tenant+ask.path, param
				n.ids[param] = w.made(ask)
			}
			n.ids[":decision"] = w.made(call{
				method: http.MethodPost, path: "/v1/check", as: ":decision",
				body: `{"tenant":"` + tenant + `","path":"/v1/search","attributes":{"user":"` + user + `"}}`, // deny-listed
			})
			n.ids[":reservation"] = w.made(call{
				method: http.MethodPost, path: "/v1/reservations", as: ":reservation",
				body: `{"tenant":"` + tenant + `","path":"/v1/search","ttl_ms":86400000,"cost":0}`, // its id is that of the decision
			})
		}
	}
	w.populateInvitations(n)
	w.flush()
	w.populateAlerts(n)
	return n
}

// populateInvitations makes two invitations of each tenant.
func (w *world) populateInvitations(n neighbour) {
	w.t.Helper()
	for _, tenant := range []string{"acme", "initech"} {
		for _, name := range []string{"carl-", "dora-"} {
			a := w.do(call{
				method: http.MethodPost, path: "/v1/tenants/" + tenant + "/members", key: w.operator,
				body: `{"email":"` + name + tenant + `@example.com","role":"tenant_viewer"}`,
			})
			var made struct{ Invitation struct{ ID string } }
			must(w.t, json.Unmarshal([]byte(a.body), &made))
			n.ids[":invitation"] = made.Invitation.ID
		}
	}
}

// populateAlerts makes two alert rules, channels, messages and alerts of each tenant.
func (w *world) populateAlerts(n neighbour) {
	w.t.Helper()
	for _, tenant := range []string{"acme", "initech"} {
		t, err := w.tenants.Tenant(w.t.Context(), tenant)
		must(w.t, err)
		for range 2 {
			n.ids[":channel"] = w.made(call{
				method: http.MethodPost, path: "/v1/alert-channels?tenant=" + tenant, as: ":channel",
				body: `{"name":"` + tenant + `","kind":"webhook","url":"https://hooks.example.com/"}`,
			})
			n.ids[":delivery"] = w.made(call{
				method: http.MethodPost, path: "/v1/alert-channels/" + n.ids[":channel"] + "/test?tenant=" + tenant, as: ":delivery",
			})
			n.ids[":rule"] = w.made(call{
				method: http.MethodPost, path: "/v1/alert-rules?tenant=" + tenant, as: ":rule",
				body: `{"name":"` + tenant + `","metric":"denials","window":"5m","threshold":1}`,
			})
			incident := alerts.Incident{ID: audit.NewID(), TenantID: t.ID, RuleID: n.ids[":rule"], Rule: alerts.Document{Name: tenant, Metric: alerts.Denials, Threshold: 1}, BeganAt: w.clock()}
			_, err := w.store.Advance(w.t.Context(), alerts.Advance{RuleID: n.ids[":rule"], Seq: 1, Began: []alerts.Incident{incident}})
			must(w.t, err)
			n.ids[":alert"] = incident.ID
			n.ids[":maintenance"] = w.made(call{
				method: http.MethodPost, path: "/v1/alert-maintenance?tenant=" + tenant, as: ":maintenance",
				body: `{"name":"` + tenant + `","starts_at":"2026-11-21T22:00:00Z","ends_at":"2026-11-21T23:00:00Z"}`,
			})
			n.ids[":link"] = w.made(call{
				method: http.MethodPost, path: "/v1/shared-links?tenant=" + tenant, as: ":link", body: `{"name":"` + tenant + `","shows":"traffic"}`,
			})
		}
	}
}

// Each call on an object of another tenant gets the same answer, byte for byte, as a call
// on an object that does not exist, and changes nothing.
func TestForeignObjectsAreLikeNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.populateBoth()
	seen := 0
	for _, r := range w.api.RouteTable() {
		param := objectParam(r.Path)
		if param == "" {
			continue
		}
		seen++
		for _, c := range []struct{ key, tenant, nothing string }{
			{w.acme, "acme", "acme"}, {w.acmeRead, "acme", "acme"}, {w.operator, "acme", "acme"}, {w.acme, "initech", madeUpTenant},
		} {
			if param == ":decision" && c.key == w.operator { // an operator can read all decisions
				continue
			}
			ask := call{method: r.Method, key: c.key, header: map[string]string{"X-Request-Id": "same"}}
			if r.IfMatch {
				ask.header["If-Match"] = "*"
			}
			if r.Body && !r.BodyOptional {
				ask.body = string(firstExample(t, r.Operation))
			}
			path := func(tenant, id string) string {
				return strings.NewReplacer(":tenant", tenant, param, id).Replace(r.Path)
			}
			ask.path = path(c.tenant, n.ids[param])
			theirs := w.do(ask)
			ask.path = path(c.nothing, madeUpID)
			none := w.do(ask)
			// A different date or length would also show that the object exists.
			if theirs.status != none.status || theirs.body != none.body || !maps.EqualFunc(theirs.header, none.header, slices.Equal) {
				t.Errorf("%s %s: theirs %+v, none %+v", r.Operation, c.tenant, theirs, none)
			}
			if theirs.status < 400 {
				t.Errorf("%s: %+v", r.Operation, theirs)
			}
		}
	}
	if seen < 9 {
		t.Errorf("only %d routes have an object", seen)
	}
	for _, r := range w.api.RouteTable() {
		if param := objectParam(r.Path); param != "" && r.Method == http.MethodGet {
			path := strings.NewReplacer(":tenant", "initech", param, n.ids[param]).Replace(r.Path)
			if a := w.do(call{method: "GET", path: path, key: n.key}); a.status != http.StatusOK || strings.Contains(a.body, `"revoked_at"`) {
				t.Errorf("%s is gone: %d %s", path, a.status, a.body)
			}
		}
	}
}

// objectParam returns the path parameter that names an object of a tenant, or "" if there is
// none.
func objectParam(path string) string {
	for _, p := range placeholders.FindAllString(path, -1) {
		if p != ":tenant" && (strings.HasPrefix(path, "/v1/tenants/") || p == ":decision") {
			return p
		}
	}
	return ""
}

// operationOf finds an operation of the document.
func operationOf(t *testing.T, id string) *openapi3.Operation {
	t.Helper()
	doc, _ := contract()
	for _, item := range doc.Paths.Map() {
		for _, op := range item.Operations() {
			if op.OperationID == id {
				return op
			}
		}
	}
	t.Fatalf("no operation %s", id)
	return nil
}

// firstExample is a request body of an operation: the first example by name.
func firstExample(t *testing.T, id string) []byte {
	t.Helper()
	examples := operationOf(t, id).RequestBody.Value.Content["application/json"].Examples
	text, err := json.Marshal(examples[slices.Min(slices.Collect(maps.Keys(examples)))].Value.Value)
	must(t, err)
	return text
}

// ownFields lists bodies that have a valid member with the name of a member that only the
// server sets.
var ownFields = map[string]string{
	"simulate": "id", "inviteMember": "role", "invitePerson": "role", "updateMember": "role", "updatePerson": "role",
	"patchMember": "role", "patchPerson": "role", "reserve": "id", "releaseLease": "id", "revokeLease": "id",
}

// Members that only the server sets are rejected in every body and at every depth, and
// nothing changes.
func TestMassAssignment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, err := w.store.Revision(t.Context())
	must(t, err)
	seen := 0
	for _, r := range w.api.RouteTable() {
		if !r.Body {
			continue
		}
		seen++
		path := strings.NewReplacer(":tenant", "acme", ":plan", "pro", ":key", w.ids["gateway"]).Replace(r.Path)
		if strings.HasPrefix(r.Path, "/v1/operator-keys") {
			path = strings.Replace(r.Path, ":key", w.ids["console"], 1)
		}
		path = placeholders.ReplaceAllString(path, madeUpID)
		for _, field := range []string{"id", "tenant_id", "role", "created_by", "revision", "created_at"} {
			if ownFields[r.Operation] == field {
				continue
			}
			for _, body := range withExtra(t, firstExample(t, r.Operation), field) {
				a := w.do(call{method: r.Method, path: path, key: w.operator, body: body, header: map[string]string{"If-Match": "*"}})
				if a.status != http.StatusBadRequest || !strings.Contains(a.body, `/`+field+`"`) {
					t.Errorf("%s %s: %d %s", r.Operation, body, a.status, a.body)
				}
			}
		}
	}
	after, err := w.store.Revision(t.Context())
	must(t, err)
	if seen < 15 || before != after {
		t.Errorf("%d bodies, revision %d, was %d", seen, after, before)
	}
}

// withExtra returns bodies with one additional member: in the body itself, and in each
// document inside of it.
func withExtra(t *testing.T, body []byte, field string) []string {
	t.Helper()
	var whole map[string]any
	must(t, json.Unmarshal(body, &whole))
	var out []string
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			v[field] = "x"
			text, err := json.Marshal(whole)
			must(t, err)
			out = append(out, string(text))
			delete(v, field)
			for name, inner := range v {
				if name != "attributes" && name != "key" { // these have members with any name
					visit(inner)
				}
			}
		case []any:
			for _, inner := range v {
				visit(inner)
			}
		}
	}
	visit(whole)
	return out
}

// A cursor is valid for one listing of one tenant. A cursor of another tenant and a forged
// cursor are rejected. A position in the list of another tenant returns none of its rows.
func TestCursorsKeepToTheTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.populateBoth()
	first := func(path, key string) (cursor string) {
		a := w.do(call{method: "GET", path: path + "?limit=1", key: key})
		var page struct {
			Next string `json:"next_cursor"`
		}
		must(t, json.Unmarshal([]byte(a.body), &page))
		if page.Next == "" {
			t.Fatalf("%s: one page only: %s", path, a.body)
		}
		return page.Next
	}
	for _, r := range api.Routes() {
		row := slices.IndexFunc(w.api.RouteTable(), func(row api.RouteRow) bool { return row.Method == r.Method && row.Path == r.Path })
		if !slices.Contains(w.api.RouteTable()[row].Query, "cursor") || accounts.Authorize(accounts.Principal{
			Kind: "tenant_key", TenantID: "x", Scopes: []tenants.Scope{tenants.ScopeRead},
		}, r.Action) != nil {
			continue
		}
		theirs, mine := strings.Replace(r.Path, ":tenant", "initech", 1), strings.Replace(r.Path, ":tenant", "acme", 1)
		cursor, own := first(theirs, n.key), first(mine, w.acme)
		for _, c := range []struct {
			path, cursor, key string
			status            int
		}{
			{mine, own, w.acmeRead, http.StatusOK},
			{theirs, cursor, n.key, http.StatusOK},
			{mine, cursor, w.acme, http.StatusBadRequest},
			{mine, own + "AA", w.acme, http.StatusBadRequest},
			{mine, "AAAAAAAAAAAAAAAAAAAA", w.acme, http.StatusBadRequest},
			{mine, api.ForgeFor(mine, "nothing"), w.acme, http.StatusBadRequest},
		} {
			a := w.do(call{method: "GET", path: c.path + "?limit=1&cursor=" + c.cursor, key: c.key})
			if a.status != c.status {
				t.Errorf("%s with %s: %d %s", c.path, c.cursor, a.status, a.body)
			}
		}
		// A forged cursor in the right form is accepted, but returns only rows of the caller's
		// tenant.
		for _, id := range n.ids {
			a := w.do(call{method: "GET", path: mine + "?cursor=" + api.ForgeFor(mine, id), key: w.acme})
			if a.status == http.StatusOK {
				w.showsNothingOf(n, r.Path, a)
			}
		}
	}
}

// showsNothingOf fails the test if a response contains IDs or names of the neighbour.
func (w *world) showsNothingOf(n neighbour, what string, a answer) {
	w.t.Helper()
	for _, text := range append(slices.Collect(maps.Values(n.ids)), "initech") {
		if strings.Contains(a.body, text) || strings.Contains(a.header.Get("Link"), text) {
			w.t.Errorf("%s shows %s: %s", what, text, a.body)
		}
	}
}

// The filters of a tenant key find only rows of its tenant.
func TestFiltersKeepToTheTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.populateBoth()
	for param, id := range n.ids {
		a := w.do(call{method: "GET", path: "/v1/audit?object=" + id, key: w.acme})
		if a.status != http.StatusOK || !strings.Contains(a.body, `"data":[]`) {
			t.Errorf("audit of %s: %s", param, a.body)
		}
	}
	for _, path := range []string{
		"/v1/audit", "/v1/audit?action=key.create", "/v1/audit?tenant=acme", "/v1/tenants/acme", "/v1/tenants/acme/keys",
		"/v1/tenants/acme/lists", "/v1/tenants/acme/lists?q=i", "/v1/tenants/acme/overrides?policy=login-per-ip", "/v1/tenants/acme/blocks",
		"/v1/analytics/refusals", "/v1/analytics/refusals?reason=denied_by_list", "/v1/analytics/keys", "/v1/analytics/traffic",
		"/v1/analytics/routes", "/v1/analytics/policies", "/v1/analytics/live",
	} {
		a := w.do(call{method: "GET", path: path, key: w.acme})
		if a.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
		w.showsNothingOf(n, path, a)
	}
	for _, r := range w.api.RouteTable() {
		if !slices.Contains(r.Query, "tenant") {
			continue
		}
		var alike []string
		for _, tenant := range []string{"initech", "globex", madeUpTenant, "ACME", madeUpID} {
			a := w.do(call{method: r.Method, path: r.Path + "?tenant=" + tenant, key: w.acme, header: map[string]string{"X-Request-Id": "same"}})
			alike = append(alike, fmt.Sprint(a.status, a.body))
		}
		if len(slices.Compact(alike)) != 1 || !strings.HasPrefix(alike[0], "403") {
			t.Errorf("%s: %q", r.Path, alike)
		}
	}
}
