package api_test

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/tenants"
)

var update = flag.Bool("update", false, "write testdata/matrix.txt again")

// A matrixCaller is a caller that sends a request to every route.
type matrixCaller struct {
	column, key string
	principal   accounts.Principal // the zero value is a caller without a key
	suspended   bool
	// own is the tenant of the caller. target is the tenant that the request is about.
	own, target string
}

const (
	madeUpTenant = "nobody"
	madeUpID     = "01939c1e-0000-7000-8000-00000000ffff"
)

// Every route with every method and every caller. The table of accounts and the wall
// between tenants decide which calls must be rejected. testdata/matrix.txt has the answers
// to the others; -update writes it again. The objects in the paths do not exist, so that
// the calls change nothing.
func TestMatrix(t *testing.T) {
	t.Parallel()
	w, callers := newMatrix(t)
	var b strings.Builder
	b.WriteString("# Every route with every caller, written by go test ./api -run TestMatrix -update. Three figures are a key with the\n" +
		"# scope check, read and manage. A and B are tenants, S is a suspended one. \"dead\" is the bootstrap key while an\n" +
		"# operator key exists. What stands behind a path's parameters does not exist, bodies and If-Match are left out:\n" +
		"# 404, 415 and 428 were let in. A check of a suspended tenant is let in too: 403 is its decision. In a batch every\n" +
		"# check is answered for itself: 200 has a 403 inside for another tenant.\n")
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line(table, "method", "path", "action", callers, func(c matrixCaller) string { return c.column })
	methods := map[string][]string{}
	for _, r := range w.api.RouteTable() {
		have := []string{r.Method}
		if r.Method == http.MethodGet {
			have = append(have, http.MethodHead)
		}
		methods[r.Path] = append(methods[r.Path], have...)
		action := actionOf(t, r)
		line(table, strings.Join(have, " "), r.Path, string(action), callers, func(c matrixCaller) string {
			status := w.ask(r, have[0], action, c)
			for _, other := range have[1:] {
				if again := w.ask(r, other, action, c); again != status {
					t.Errorf("%s %s by %s: %d, but %d with %s", other, r.Path, c.column, again, status, have[0])
				}
			}
			return strconv.Itoa(status)
		})
	}
	for _, r := range w.api.RouteTable() {
		if have, first := methods[r.Path]; first && r.Operation != "forwardAuth" { // which has every method: TestForwardAuth
			delete(methods, r.Path)
			w.askOtherMethods(table, r, have, callers)
		}
	}
	must(t, table.Flush())
	compareMatrix(t, b.String())
}

// actionOf returns the action of a route. It fails the test if the route has no action, or one
// that the table in package accounts does not have.
func actionOf(t *testing.T, row api.RouteRow) accounts.Action {
	t.Helper()
	for _, r := range api.Routes() {
		if r.Method == row.Method && r.Path == row.Path {
			if !slices.Contains(accounts.Actions(), r.Action) {
				t.Fatalf("%s %s: the action %q has no row", r.Method, r.Path, r.Action)
			}
			return r.Action
		}
	}
	t.Fatalf("%s %s is not of api.Routes", row.Method, row.Path)
	return ""
}

// line writes one line of the golden file: the results of the callers. Callers with the same
// kind of key share a column.
func line(table *tabwriter.Writer, method, path, action string, callers []matrixCaller, figure func(matrixCaller) string) {
	_, _ = fmt.Fprintf(table, "%s\t%s\t%s", method, path, action)
	for i, c := range callers {
		text := figure(c)
		if name, _, scoped := strings.Cut(c.column, ":"); scoped {
			first := i == 0 || !strings.HasPrefix(callers[i-1].column, name+":")
			switch {
			case first && method == "method":
				text = "\t" + name
			case first:
				text = "\t" + text
			case method == "method":
				text = ""
			default:
				text = "/" + text
			}
		} else {
			text = "\t" + text
		}
		_, _ = fmt.Fprint(table, text)
	}
	_, _ = fmt.Fprintln(table)
}

// newMatrix returns a world with every kind of caller.
func newMatrix(t *testing.T) (*world, []matrixCaller) {
	t.Helper()
	dead := strings.Repeat("b", 32)
	w := newWorld(t, func(c *api.Config) { c.BootstrapKey = dead })
	w.ids = maps.Clone(w.ids) // the fixture's are everybody's
	ctx := t.Context()
	for _, name := range []string{"tenant-a", "tenant-b"} {
		_, err := w.tenants.CreateTenant(ctx, name, tenants.Document{Name: name, Plan: "pro", RouteOptional: true})
		must(t, err)
	}
	expiring, expired, err := w.tenants.CreateKey(ctx, "tenant-a", tenants.NewKey{
		Name: "k", Scopes: []tenants.Scope{tenants.ScopeManage}, ExpiresAt: w.clock().Add(time.Hour),
	})
	must(t, err)
	revoked := w.operatorKey(ctx, "revoked", tenants.ScopeManage)
	_, err = w.tenants.RevokeOperatorKey(ctx, w.ids["revoked"])
	must(t, err)
	callers := []matrixCaller{
		{column: "none"},
		{column: "malformed", key: w.operator[:len(w.operator)-1] + "!"},
		{column: "unknown", key: tenants.NewToken(tenants.OperatorToken)},
		{column: "revoked", key: revoked},
		{column: "expired", key: expired},
		{column: "dead", key: dead},
	}
	scopes := []tenants.Scope{tenants.ScopeCheck, tenants.ScopeRead, tenants.ScopeManage}
	for _, s := range scopes {
		key := w.operatorKey(ctx, "op "+string(s), s)
		callers = append(callers, matrixCaller{
			column: "operator:" + string(s), key: key, target: "tenant-a",
			principal: accounts.Principal{Kind: "operator_key", Scopes: []tenants.Scope{s}},
		})
	}
	for _, group := range []struct{ column, own, target string }{
		{"A on A", "tenant-a", "tenant-a"},
		{"A on B", "tenant-a", "tenant-b"},
		{"A on none", "tenant-a", madeUpTenant},
		{"S on S", "globex", "globex"},
	} {
		of, err := w.tenants.Tenant(ctx, group.own)
		must(t, err)
		for _, s := range scopes {
			callers = append(callers, matrixCaller{
				column: group.column + ":" + string(s), key: w.key(ctx, group.own, "k", s), own: group.own, target: group.target,
				suspended: of.Status == tenants.Suspended,
				principal: accounts.Principal{Kind: "tenant_key", Scopes: []tenants.Scope{s}, TenantID: of.ID},
			})
		}
	}
	w.now.Store(expiring.ExpiresAt.UnixMicro())
	must(t, w.watcher.Refresh(ctx))
	return w, callers
}

// matrixCall returns the request of a caller to a route.
func (w *world) matrixCall(r api.RouteRow, method string, c matrixCaller) (ask call, named bool) {
	target := c.target
	if target == "" {
		target = "tenant-a"
	}
	path := strings.Replace(r.Path, ":tenant", target, 1)
	named = path != r.Path
	path = placeholders.ReplaceAllStringFunc(path, func(name string) string {
		if name == ":version" || name == ":plan" {
			return "0"
		}
		return madeUpID
	})
	if slices.Contains(r.Query, "tenant") {
		path, named = path+"?tenant="+target, true
	}
	ask = call{method: method, path: path, key: c.key}
	switch r.Operation {
	case "check", "explain":
		ask.body, named = `{"tenant":"`+target+`","mode":"peek"}`, true
	case "checkBatch":
		ask.body = `{"checks":[{"tenant":"` + target + `","mode":"peek"}]}` // each check has its own result
	case "simulate":
		ask.body = `{"limits":[],"steps":[]}`
	}
	return ask, named
}

// ask sends the request and compares the response with the table.
func (w *world) ask(r api.RouteRow, method string, action accounts.Action, c matrixCaller) int {
	w.t.Helper()
	ask, named := w.matrixCall(r, method, c)
	a := w.do(ask)
	want := 0 // not rejected
	switch err := accounts.Authorize(c.principal, action); {
	case action == accounts.Public:
	case c.principal.Kind == "":
		want = http.StatusUnauthorized
	case err != nil, c.own != "" && named && c.own != c.target, c.suspended && r.Scope == string(tenants.ScopeManage):
		want = http.StatusForbidden
	case c.suspended && r.Operation == "check": // the caller is authorized, and the check gets a decision
		if a.status != http.StatusForbidden || !strings.Contains(a.body, `"decision_id"`) {
			w.t.Errorf("%s %s by %s: %d %s", method, r.Path, c.column, a.status, a.body)
		}
		return a.status
	}
	in := a.status != http.StatusUnauthorized && a.status != http.StatusForbidden && a.status < 500
	if want == 0 && !in || want != 0 && a.status != want {
		w.t.Errorf("%s %s by %s: %d, want %d: %s", method, r.Path, c.column, a.status, want, a.body)
	}
	if r.Operation == "checkBatch" && a.status == 200 && c.own != c.target && c.own != "" && !strings.Contains(a.body, `{"results":[{"kind":"problem","type":"/docs/problems/forbidden"`) {
		w.t.Errorf("%s by %s: %s", r.Operation, c.column, a.body)
	}
	if a.status == http.StatusUnauthorized && a.header.Get("WWW-Authenticate") != "Bearer" {
		w.t.Errorf("%s %s by %s: no challenge", method, r.Path, c.column)
	}
	return a.status
}

// askOtherMethods requests a path with the methods that it does not support.
func (w *world) askOtherMethods(table *tabwriter.Writer, r api.RouteRow, have []string, callers []matrixCaller) {
	w.t.Helper()
	var others []string
	for _, m := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
		if !slices.Contains(have, m) {
			others = append(others, m)
		}
	}
	line(table, strings.Join(others, " "), r.Path, "-", callers, func(c matrixCaller) string {
		for _, method := range others {
			ask, _ := w.matrixCall(r, method, c)
			ask.body = ""
			if a := w.do(ask); a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") == "" {
				w.t.Errorf("%s %s by %s: %d, Allow %q", method, r.Path, c.column, a.status, a.header.Get("Allow"))
			}
		}
		return "405"
	})
}

func compareMatrix(t *testing.T, got string) {
	t.Helper()
	const golden = "testdata/matrix.txt"
	lines := strings.Split(got, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	got = strings.Join(lines, "\n")
	if *update {
		must(t, os.WriteFile(golden, []byte(got), 0o600))
	}
	text, err := os.ReadFile(golden)
	must(t, err)
	want := strings.Split(string(text), "\n")
	for i := range max(len(lines), len(want)) {
		var g, e string
		if i < len(lines) {
			g = lines[i]
		}
		if i < len(want) {
			e = want[i]
		}
		if g != e {
			t.Errorf("line %d of %s differs (-update renews it):\n got %s\nwant %s", i+1, golden, g, e)
		}
	}
}
