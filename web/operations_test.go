package web_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/admin"
)

// node stores the report of a healthy node, after change has changed it.
func (w *world) node(t *testing.T, name string, change func(*nodes.Node)) string {
	t.Helper()
	now := time.Now() // seen by the database's clock
	revision, err := w.store.Revision(t.Context())
	must(t, err)
	n := nodes.Node{
		ID: uuid.NewString(), Name: name, Version: "v1.2.3", GoVersion: "go1.26", StartedAt: now.Add(-3 * time.Hour), At: now,
		Limiter: nodes.LimiterRedis, Sharing: 3, Redis: nodes.Redis{
			Reachable: true, Since: now.Add(-time.Hour), Version: "8.2.1", RoundTrips: nodes.Latency{P50: 300 * time.Microsecond, P99: 2 * time.Millisecond, Calls: 90},
		},
		Snapshot: nodes.Snapshot{Revision: revision, ConfirmedAt: now, Listening: true},
		Database: nodes.Database{Report: 3 * time.Millisecond, Polls: nodes.Latency{P50: time.Millisecond, P99: 4 * time.Millisecond, Calls: 10}},
		Counts:   nodes.Counts{Decisions: 600, Interval: 5 * time.Second, WaitingRows: 12},
		Process:  nodes.Process{Heap: 40 << 20, Goroutines: 31},
	}
	change(&n)
	must(t, w.store.PutNode(t.Context(), n))
	return n.ID
}

func same(*nodes.Node) {}

// The page summarizes all nodes in one line, and lists the problems of each node.
func TestSystem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		nodes []func(*nodes.Node)
		want  []string
		not   []string
	}{
		"none": {nil, []string{"No node has reported yet"}, []string{"healthy"}},
		"alone": {
			[]func(*nodes.Node){func(n *nodes.Node) { n.Limiter, n.Redis, n.Sharing = nodes.LimiterInProcess, nodes.Redis{}, 1 }},
			[]string{"1 node, healthy, revision", "One node needs no other services", "120 / s", "40 MiB"},
			[]string{"Redis 8"},
		},
		"three": {[]func(*nodes.Node){same, same, same}, []string{"3 nodes, all healthy, one version", "Redis 8.2.1", "300 µs", "2.00 ms p99", "1.00 ms"}, []string{"Different versions"}},
		"upgrade": {
			[]func(*nodes.Node){same, same, func(n *nodes.Node) { n.Version = "v1.3.0" }},
			[]string{"2 versions", "v1.2.3 on 2 nodes, v1.3.0 on 1 node"},
			nil,
		},
		"away": {
			[]func(*nodes.Node){same, func(n *nodes.Node) { n.Redis.Reachable, n.Redis.Since = false, n.At.Add(-40*time.Second) }},
			[]string{"2 nodes, 1 with problems", "Redis unreachable for 4", "breaker open"},
			nil,
		},
		"refusing": {
			[]func(*nodes.Node){same, func(n *nodes.Node) {
				n.Redis.Refusal = nodes.Refusal{Since: n.At.Add(-40 * time.Second), Code: "OOM", Answer: "OOM command not allowed"}
			}},
			[]string{"2 nodes, 1 with problems", "Redis refuses writes for 4", "OOM command not allowed", "refuses writes"},
			[]string{"all healthy"},
		},
		"lost": {
			[]func(*nodes.Node){same, func(n *nodes.Node) { n.Redis.LostAt, n.Redis.Lost = n.At.Add(-40*time.Second), "Redis was emptied" }},
			[]string{"2 nodes, 1 with problems", "Redis lost counts 4", "Redis was emptied", "Lost counts"},
			[]string{"all healthy"},
		},
		"database": {
			[]func(*nodes.Node){same, func(n *nodes.Node) {
				n.Database.Refusal = nodes.Refusal{Since: n.At.Add(-40 * time.Second), Code: "full", Answer: "the database has no space left"}
			}},
			[]string{"2 nodes, 1 with problems", "the database refuses writes for 4", "no space left"},
			[]string{"all healthy"},
		},
		"waiting": {[]func(*nodes.Node){func(n *nodes.Node) { n.Counts.Waiting, n.Counts.WaitingRows = time.Minute, 4000 }}, []string{"1 with problems", "counts waiting: 4,000 rows"}, nil},
	} {
		w := newWorld(t)
		for i, change := range c.nodes {
			w.node(t, "web-"+string(rune('a'+i))+":8080", change)
		}
		page := textOf(w.get("/system", "viewer").tree(t))
		for _, words := range c.want {
			if !strings.Contains(page, words) {
				t.Errorf("%s: the page does not say %q:\n%s", name, words, page)
			}
		}
		for _, words := range c.not {
			if strings.Contains(page, words) {
				t.Errorf("%s: the page says %q", name, words)
			}
		}
	}
}

// The stream of the page sends the nodes in the same form as the page.
func TestSystemLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, live)
	w.node(t, "web-a:8080", same)
	if page := w.get("/system", "owner"); !strings.Contains(page.body, `sse-connect="/system/live"`) || !strings.Contains(page.body, `sse-swap="fleet"`) {
		t.Error("the page is not live")
	}
	server := httptest.NewServer(w.handler)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/system/live", nil)
	must(t, err)
	r.AddCookie(&http.Cookie{Name: "headgate", Value: w.cookies["owner"]})
	answer, err := http.DefaultClient.Do(r)
	must(t, err)
	defer answer.Body.Close()
	said := false
	for lines := bufio.NewScanner(answer.Body); lines.Scan() && !strings.Contains(lines.Text(), "web-a:8080"); {
		said = said || lines.Text() == "event: fleet"
	}
	if !said || ctx.Err() != nil {
		t.Errorf("%d: the stream does not send the nodes", answer.StatusCode)
	}
}

// The page of roles agrees with the function Authorize.
func TestRolesPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	told := map[accounts.Action]bool{accounts.Public: true}
	for n := range w.get("/settings/roles", "viewer").tree(t).Descendants() {
		if n.Data != "tr" || n.Parent.Data != "tbody" {
			continue
		}
		var cells []string
		for c := range n.ChildNodes() {
			if c.Data == "th" || c.Data == "td" {
				cells = append(cells, textOf(c))
			}
		}
		for i, role := range accounts.Roles() {
			for _, a := range accounts.Actions() {
				if !strings.HasSuffix(cells[0], " "+string(a)) {
					continue
				}
				told[a] = true
				p := accounts.Principal{Kind: "user", ID: "x", Role: role}
				if role.Tenant() {
					p.TenantID = "t"
				}
				if want := accounts.Authorize(p, a) == nil; (cells[i+1] == "yes") != want {
					t.Errorf("%s by %s: the page says %q, the table %v", a, role, cells[i+1], want)
				}
			}
		}
	}
	for _, a := range accounts.Actions() {
		if !told[a] {
			t.Errorf("the page does not tell of %s", a)
		}
	}
}

// An operator key is created, shown once, rotated and revoked. The last key with the scope
// manage cannot be revoked.
func TestOperatorKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	service := tenants.NewService(w.store, tenants.Config{Now: w.clock})
	if page := w.get("/settings/keys", "viewer"); page.Code != http.StatusOK || strings.Contains(page.body, "/settings/keys/new") {
		t.Errorf("a viewer: %d, and may make a key", page.Code)
	}
	bad := w.post("/settings/keys", "owner", url.Values{"name": {""}, "life": {"none"}, "until": {""}})
	if bad.Code != http.StatusUnprocessableEntity {
		t.Errorf("a bad form: %d", bad.Code)
	}
	made := w.once(w.post("/settings/keys", "owner", url.Values{"name": {"terraform"}, "scope-manage": {"on"}, "life": {"90d"}, "until": {""}}), "owner")
	if made.Code != http.StatusOK || !strings.Contains(made.body, "hg_") || !strings.Contains(made.body, "/v1/tenants") {
		t.Fatalf("%d %s", made.Code, made.body)
	}
	list, err := service.OperatorKeys(t.Context(), tenants.Filter{})
	must(t, err)
	k := list[len(list)-1]
	if k.Name != "terraform" || !k.ExpiresAt.Equal(start.Add(90*web.Day)) {
		t.Errorf("%+v", k)
	}
	page := w.get("/settings/keys", "owner")
	token := regexp.MustCompile(`hg_[a-z]+_[0-9A-Za-z]{49}`).FindString(made.body)
	if token == "" || strings.Contains(page.body, token) || !strings.Contains(page.body, "/settings/keys/"+k.ID+"/rotate") {
		t.Error("the list has a token, or no way to rotate")
	}
	if last := w.post("/settings/keys/"+k.ID+"/revoke", "owner", nil); last.Code != http.StatusConflict || !strings.Contains(last.body, `role="alert"`) {
		t.Errorf("the last key: %d", last.Code)
	}
	rotated := w.once(w.post("/settings/keys/"+k.ID+"/rotate", "owner", url.Values{"overlap": {"1h"}}), "owner")
	if rotated.Code != http.StatusOK || !strings.Contains(rotated.body, "hg_") {
		t.Fatalf("rotate: %d", rotated.Code)
	}
	if wrong := w.post("/settings/keys/"+k.ID+"/rotate", "owner", url.Values{"overlap": {"x"}}); wrong.Code != http.StatusUnprocessableEntity {
		t.Errorf("a wrong overlap: %d", wrong.Code)
	}
	if gone := w.post("/settings/keys/"+k.ID+"/revoke", "owner", nil); gone.Code != http.StatusSeeOther {
		t.Errorf("revoke: %d", gone.Code)
	}
	if none := w.get("/settings/keys/"+w.ids["acme"]+"/revoke", "owner"); none.Code != http.StatusNotFound {
		t.Errorf("no key: %d", none.Code)
	}
}

// The list of keys names the key that created one. The page that confirms a revocation
// lists the keys that the key created, and revokes them only if the box is checked.
func TestKeysThatAKeyCreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	service := tenants.NewService(w.store, tenants.Config{Now: w.clock})
	made := func(by tenants.Key, tenant, name string) tenants.Key {
		t.Helper()
		kind := "tenant_key"
		if by.Operator() {
			kind = "operator_key"
		}
		ctx := audit.With(t.Context(), audit.Actor{Kind: kind, ID: by.ID, Name: by.Name}, audit.Origin{})
		n := tenants.NewKey{Name: name, Scopes: []tenants.Scope{tenants.ScopeManage}}
		create := service.CreateOperatorKey
		if tenant != "" {
			create = func(ctx context.Context, n tenants.NewKey) (tenants.Key, string, error) {
				return service.CreateKey(ctx, tenant, n)
			}
		}
		k, _, err := create(ctx, n)
		must(t, err)
		return k
	}
	made(tenants.Key{}, "", "last")
	leaked := made(tenants.Key{}, "", "terra\u202eform")
	if page := w.get("/settings/keys/"+leaked.ID+"/revoke", "owner"); strings.Contains(page.body, "with-created") {
		t.Error("a key that created nothing: its page has the box")
	}
	child := made(leaked, "", "child")
	inTenant := made(child, "acme", "grandchild")
	for i := range 25 {
		made(inTenant, "acme", fmt.Sprintf("k%02d", i))
	}
	if text := words(t, w.get("/settings/keys", "owner")); !strings.Contains(text, "by the key terra") {
		t.Errorf("the list: %s", text)
	}
	if text := words(t, w.get("/tenants/acme/keys", "acme-viewer")); !strings.Contains(text, "by an operator key") || !strings.Contains(text, "by the key grandchild") {
		t.Errorf("the tenant's list: %s", text)
	}
	page := w.get("/settings/keys/"+leaked.ID+"/revoke", "owner")
	if text := words(t, page); !strings.Contains(text, "child ("+child.Hint+"), grandchild (") || !strings.Contains(text, ", 7 more") ||
		!strings.Contains(text, "The keys that it created (27)") || strings.Contains(page.body, `name="with-created" value="on" checked`) {
		t.Errorf("asks: %s", text)
	}
	revoked := func(want int) {
		t.Helper()
		n := 0
		list, err := service.Keys(t.Context(), "acme", tenants.Filter{})
		must(t, err)
		for _, k := range list {
			if !k.RevokedAt.IsZero() {
				n++
			}
		}
		if n != want {
			t.Errorf("%d keys of the tenant are revoked, want %d", n, want)
		}
	}
	to(t, "without", w.post("/settings/keys/"+leaked.ID+"/revoke", "owner", nil), "/settings/keys?done=key-revoked")
	revoked(0)
	to(t, "with", w.post("/settings/keys/"+child.ID+"/revoke", "owner", url.Values{"with-created": {"on"}}), "/settings/keys?done=keys-revoked")
	revoked(26)
}

// The settings pages show the values of the process.
func TestSettingsPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *config) {
		c.admin.Process = admin.Process{Database: "SQLite", Build: "abc123", Retention: []admin.Retention{
			{What: "Counts by the minute", Kept: 2 * web.Day, Setting: "HEADGATE_RETENTION_MINUTES"}, {What: "Refusals", Kept: web.Day, Most: 5000}, {What: "Lines"},
		}}
	})
	if to := w.get("/settings", "viewer"); to.Code != http.StatusSeeOther || to.Header().Get("Location") != "/settings/keys" {
		t.Errorf("%d %q", to.Code, to.Header().Get("Location"))
	}
	page := textOf(w.get("/settings/retention", "viewer").tree(t))
	for _, words := range []string{"Counts by the minute 2 days HEADGATE_RETENTION_MINUTES", "24 h, at most 5,000", "Lines forever"} {
		if !strings.Contains(page, words) {
			t.Errorf("the page does not say %q:\n%s", words, page)
		}
	}
	about := w.get("/settings/about", "viewer")
	if !strings.Contains(about.body, "abc123") || !strings.Contains(about.body, "v1.2.3") || !strings.Contains(about.body, "/static/LICENSES.") {
		t.Error("the page does not say what runs")
	}
}

// The pages of a demo database show a banner, except to the people of a tenant.
func TestDemoBanner(t *testing.T) {
	t.Parallel()
	const banner = "Demo data:"
	w := newWorld(t, func(c *config) { c.shell.Demo = true })
	for _, by := range []string{"owner", "editor", "viewer"} {
		if page := w.get("/audit", by); !strings.Contains(page.body, banner) {
			t.Errorf("%s: the page has no banner", by)
		}
	}
	if page := w.get("/tenants/acme/audit", "acme-admin"); strings.Contains(page.body, banner) {
		t.Error("people of a tenant see the banner")
	}
	if page := newWorld(t).get("/audit", "owner"); strings.Contains(page.body, banner) {
		t.Error("a database without demo data has the banner")
	}
}

// hanging is an audit log that does not answer before its context ends.
type hanging struct{ audit.Store }

func (hanging) AuditEntries(ctx context.Context, _ audit.Filter) ([]audit.Entry, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// If the database does not answer, the page shows "not available" in time, with the navigation
// and a link to try again.
func TestSlowDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *config) { c.admin.Audit, c.shell.Timeout = hanging{c.admin.Audit}, 2*time.Second })
	page := w.get("/audit?kind=plan", "owner")
	tree := textOf(page.tree(t))
	if page.Code != http.StatusServiceUnavailable || !strings.Contains(tree, "Temporarily unavailable") || !strings.Contains(page.body, page.Header().Get("X-Request-Id")) {
		t.Errorf("%d %s", page.Code, tree)
	}
	if !strings.Contains(page.body, `href="/audit?kind=plan"`) || !strings.Contains(page.body, "Other pages") {
		t.Error("the page has no way on")
	}
}

// A browser gets an error as a page, with the navigation of the signed-in person.
func TestErrorsArePages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, c := range map[string]struct {
		page   reply
		status int
	}{
		"malformed": {w.post("/account/name", "owner", url.Values{"role": {"owner"}}), http.StatusBadRequest},
		"forbidden": {w.get("/people", "acme-admin"), http.StatusForbidden},
		"not found": {w.get("/audit/none", "owner"), http.StatusNotFound},
		"method":    {w.get("/audit/verify/", "owner"), http.StatusNotFound},
		"a form":    {w.get("/account/name", "owner"), http.StatusMethodNotAllowed},
		"media":     {w.send("POST", "/account/name", "owner", nil, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }), http.StatusUnsupportedMediaType},
	} {
		if c.page.Code != c.status || !strings.HasPrefix(c.page.Header().Get("Content-Type"), "text/html") || !strings.Contains(c.page.body, "<h1>") {
			t.Errorf("%s: %d %s", name, c.page.Code, c.page.Header().Get("Content-Type"))
		}
		if c.status != http.StatusNotFound && !strings.Contains(c.page.body, c.page.Header().Get("X-Request-Id")) {
			t.Errorf("%s: the page does not have the number of the request", name)
		}
	}
	for _, page := range []reply{w.get("/audit/none", "owner"), w.get("/people", "acme-admin"), w.post("/account/name", "owner", url.Values{"role": {"owner"}})} {
		if !strings.Contains(page.body, "Other pages") || !strings.Contains(page.body, `id="navigation"`) {
			t.Errorf("%d: not in the frame", page.Code)
		}
	}
}
