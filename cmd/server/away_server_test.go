//go:build !quick

package main

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/servertest"
)

// While the database hangs, pages answer that they are not available, and checks are
// decided as before. When the database answers again, the pages work again.
func TestPagesWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	server := servertest.StartPostgres(t)
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": server.URL(), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_SHUTDOWN_DELAY": "0s",
		"HEADGATE_ADMIN_EMAIL": "ann@example.com", "HEADGATE_ADMIN_PASSWORD": ownerPassword,
	})
	const policies = `[{"slug": "daily", "limits": [{"algorithm": "fixed_window", "quota": 2, "window": "1d", "anchor": "clock"}]}]`
	made := call(t, bootstrap, "POST", node.origin+"/v1/plans", `{"slug": "pro", "draft": {"name": "Pro", "policies": `+policies+`}}`).want(t, 201)
	call(t, bootstrap, "POST", node.origin+"/v1/plans/pro/publish", "", "If-Match", made.header.Get("ETag")).want(t, 200)
	call(t, bootstrap, "POST", node.origin+"/v1/tenants", `{"slug": "acme", "tenant": {"require_route": false, "name": "Acme", "plan": "pro"}}`).want(t, 201)
	b := newBrowser(t, node.origin)
	b.signIn("ann@example.com", ownerPassword).want(t, 303)
	b.get("/audit").want(t, 200)

	server.Pause()
	defer server.Resume()
	for _, path := range []string{"/audit", "/system", "/settings/keys"} {
		page := call(t, "", "GET", node.origin+path, "", "Accept", "text/html", "Cookie", "headgate="+b.session()).want(t, 503)
		if !strings.Contains(page.body, "Temporarily unavailable") || !strings.Contains(page.body, page.header.Get("X-Request-Id")) {
			t.Errorf("%s: %s", path, page.body)
		}
	}
	const check = `{"tenant": "acme", "path": "/v1/items"}`
	for _, status := range []int{200, 200, 429} {
		call(t, bootstrap, "POST", node.origin+"/v1/check", check).want(t, status)
	}
	server.Resume()
	b.get("/audit").want(t, 200)
}
