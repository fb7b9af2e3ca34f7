package web_test

import (
	"cmp"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
)

var update = flag.Bool("update", false, "write the golden files again")

// callers returns the callers of the matrix: without a session, with an invalid session,
// and everybody of the fixture.
func callers() []string {
	list := []string{"", strings.Repeat("A", 43)}
	for _, f := range folk {
		list = append(list, f.name)
	}
	return list
}

const operatorKeysPath = "/settings/keys"

// at replaces the parameters of a route: the tenant is acme, and users are those of the place
// that the route is about.
func (w *world) at(path string) string {
	person := w.ids["viewer"]
	path = strings.NewReplacer(":line", w.ids["line"], operatorKeysPath+"/:key", operatorKeysPath+"/"+w.ids["operator_key"]).Replace(path)
	owner := ""
	if strings.HasPrefix(path, web.TenantPath) {
		owner = "acme"
	}
	for _, name := range []string{":alert", ":rule", ":channel", ":message", ":maintenance", ":link", ":filter"} {
		path = regexp.MustCompile(name+`\b`).ReplaceAllString(path, w.ids[owner+name])
	}
	if strings.Contains(path, "/members") {
		person = w.ids["acme-viewer"]
	}
	return strings.NewReplacer(":tenant", "acme", ":user", person, ":type", "no-policy", ":guide", "api", ":file", "none",
		":token", "none", ":page", "denials", ":session", w.ids["owner"], ":invitation", w.ids["owner"], ":decision", w.ids["decision"], ":plan", "pro", ":version", "1",
		":key", w.ids["key"], ":override", w.ids["override"], ":entry", w.ids["entry"], ":block", w.ids["block"], ":grant", w.ids["grant"], ":reservation", "job", ":policy", cmp.Or(w.ids["policy"], "tenant-total")).Replace(path)
}

// expected returns the response that the table requires for a caller, or "" if the handler
// answers.
func expected(r web.Route, caller string) string {
	p, ofAcme := accounts.Principal{}, true
	for _, f := range folk {
		if f.name == caller {
			p = accounts.Principal{Kind: "user", ID: "x", Role: f.role, TenantID: f.tenant}
			ofAcme = f.tenant == "" || f.tenant == "acme"
		}
	}
	switch {
	case r.Action == accounts.Public:
		return ""
	case p.Kind == "":
		return "303 /sign-in"
	case strings.Contains(r.Path, ":tenant") && !ofAcme:
		return "404"
	case accounts.Authorize(p, r.Action) != nil:
		return "403"
	}
	return ""
}

// Every page with every caller: the answer is that of the table. A permitted write fails at
// its form, so that nothing changes.
func TestMatrix(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withIssuer(true))
	w.publish("pro", plans.Sample().Content(), "acme")
	w.addExceptions()
	w.addGrant()
	w.addReservation("job")
	var golden strings.Builder
	fmt.Fprintf(&golden, "%-6s %-60s %-18s", "", "", "")
	for _, caller := range callers() {
		fmt.Fprintf(&golden, " %-12s", called(caller))
	}
	golden.WriteString("\n")
	for _, r := range w.table(t) {
		fmt.Fprintf(&golden, "%-6s %-60s %-18s", r.Method, r.Path, r.Action)
		for _, caller := range callers() {
			answer := w.answer(r, r.Method, caller)
			want, refused := expected(r, caller), (r.Action != accounts.Public) && (answer == "403" || answer == "404" || answer == "303 /sign-in")
			if want != "" && answer != want || want == "" && refused {
				t.Errorf("%s %s as %q: %s, the table says %q", r.Method, r.Path, caller, answer, want)
			}
			fmt.Fprintf(&golden, " %-12s", answer[:3])
			if r.Method == http.MethodGet {
				if head := w.answer(r, http.MethodHead, caller); head != answer {
					t.Errorf("HEAD %s as %q: %s, GET %s", r.Path, caller, head, answer)
				}
			}
		}
		golden.WriteString("\n")
	}
	const file = "testdata/matrix.txt"
	got := regexp.MustCompile(` +\n`).ReplaceAllString(golden.String(), "\n")
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got != string(want) {
		t.Errorf("the matrix is not %s (go test ./web -update):\n%s", file, got)
	}
}

// called returns the name of a caller in the golden file.
func called(caller string) string {
	switch {
	case caller == "":
		return "nobody"
	case strings.HasPrefix(caller, "AAAA"):
		return "no-session"
	}
	return caller
}

// table returns the route table. It fails the test if a route has no row.
func (w *world) table(t *testing.T) []web.Route {
	t.Helper()
	rows := newWorld(t, withIssuer(true)).shell.Table()
	have := map[string]bool{}
	for _, r := range rows {
		if r.Kind == web.Open && r.Action != accounts.Public || !slices.Contains(accounts.Actions(), r.Action) {
			t.Errorf("%s %s: the action %q is not in the table", r.Method, r.Path, r.Action)
		}
		if have[r.Method+" "+r.Path] {
			t.Errorf("%s %s has two rows", r.Method, r.Path)
		}
		have[r.Method+" "+r.Path] = true
		if r.Method == http.MethodGet {
			have["HEAD "+r.Path] = true
		}
	}
	for _, route := range w.handler.(*echo.Echo).Routes() {
		if !have[route.Method+" "+route.Path] {
			t.Errorf("%s %s has no row", route.Method, route.Path)
		}
	}
	return rows
}

func (w *world) answer(r web.Route, method, caller string) string {
	var f url.Values
	if method == http.MethodPost {
		f = url.Values{"no_such_field": {"x"}}
	}
	got := w.send(method, w.at(r.Path), caller, f)
	if location, _, _ := strings.Cut(got.Header().Get("Location"), "?"); got.Code == http.StatusSeeOther {
		return fmt.Sprintf("%d %s", got.Code, location)
	}
	return fmt.Sprint(got.Code)
}

// Methods and paths without a row are rejected for everybody.
func TestOtherMethods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rows := w.table(t)
	for _, r := range rows {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			if slices.ContainsFunc(rows, func(other web.Route) bool { return other.Path == r.Path && other.Method == method }) {
				continue
			}
			if method == "GET" && strings.HasPrefix(r.Path, "/account/") || strings.HasSuffix(r.Path, ":user") || method == "POST" && strings.HasSuffix(r.Path, "/new") {
				// Some of these paths match another route, because a word is in the place of an
				// ID.
				continue
			}
			if got := w.send(method, w.at(r.Path), "owner", nil); got.Code != http.StatusMethodNotAllowed && got.Code != http.StatusNotFound {
				t.Errorf("%s %s: %d", method, r.Path, got.Code)
			}
		}
	}
}

// For members of a tenant, another tenant and its members look as if they did not exist.
func TestForeignTenantsAreNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nobody := "0190f5c4-7e1a-7b3c-8d2e-0123456789ab"
	for _, r := range w.table(t) {
		if !strings.Contains(r.Path, ":tenant") {
			continue
		}
		for _, caller := range []string{"acme-admin", "acme-viewer"} {
			var bodies []string
			for _, tenant := range []string{"globex", w.ids["globex"], "none", nobody, "ACME", "acme%00"} {
				path := strings.NewReplacer(":tenant", tenant, ":user", w.ids["globex-admin"], ":invitation", nobody).Replace(r.Path)
				got := w.send(r.Method, path, caller, map[string]url.Values{"POST": {}}[r.Method])
				header := got.Header().Clone()
				header.Del(web.RequestIDHeader)
				bodies = append(bodies, fmt.Sprint(got.Code, header, got.body))
				if got.Code != http.StatusNotFound {
					t.Errorf("%s %s as %s: %d", r.Method, path, caller, got.Code)
				}
			}
			if len(slices.Compact(bodies)) != 1 {
				t.Errorf("%s %s as %s: the answers differ: %q", r.Method, r.Path, caller, bodies)
			}
		}
		// One's own tenant with a user of another tenant.
		if strings.Contains(r.Path, ":user") && r.Method == http.MethodGet {
			real := w.get("/tenants/acme/members/"+w.ids["globex-admin"], "acme-admin")
			made := w.get("/tenants/acme/members/"+nobody, "acme-admin")
			if real.Code != http.StatusNotFound || real.body != made.body {
				t.Errorf("a foreign person: %d, a made-up one: %d", real.Code, made.Code)
			}
		}
	}
}

// Members of a suspended tenant can read pages and change nothing.
func TestSuspendedTenantsPeopleOnlyRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if got := w.get("/tenants/globex/members", "globex-admin"); got.Code != http.StatusOK {
		t.Errorf("read: %d", got.Code)
	}
	form := url.Values{"email": {"x@people.example"}, "role": {"tenant_viewer"}}
	if got := w.post("/tenants/globex/members", "globex-admin", form); got.Code != http.StatusForbidden {
		t.Errorf("write: %d", got.Code)
	}
	if got := w.post("/tenants/globex/members", "editor", form); got.Code != http.StatusSeeOther {
		t.Errorf("an operator's write: %d", got.Code)
	}
}

// A denied access of a signed-in person writes a line to the audit log, with a count and
// the tenant in the address. Without a session, no line is written.
func TestRefusalsAreNoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 3 {
		w.get("/people", "acme-admin")
	}
	w.get("/tenants/globex/members", "acme-viewer")
	w.get("/people", "")
	must(t, w.refusals.Flush(t.Context()))
	lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Action: "access.refused", Limit: 10})
	must(t, err)
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprintf("%s %s %s", l.Actor.Name, l.ObjectName, l.After))
	}
	slices.Sort(got)
	if len(got) != 2 || !strings.HasPrefix(got[0], "acme-admin@people.example GET /people ") || !strings.Contains(got[0], `"count":3`) ||
		!strings.HasPrefix(got[1], "acme-viewer@people.example GET /tenants/:tenant/members ") || !strings.Contains(got[1], `"tenant":"globex"`) {
		t.Errorf("the log has %q", got)
	}
}
