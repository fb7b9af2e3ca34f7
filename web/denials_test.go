package web_test

import (
	"bufio"
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/net/html"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
)

// denied returns the decision IDs of a list, in its order.
func denied(page *html.Node) (list []string) {
	for n := range page.Descendants() {
		if n.Data == "code" && strings.HasPrefix(attr(n, "id"), "id-") {
			list = append(list, textOf(n))
		}
	}
	return list
}

// deniedWorld has denials with three reasons and of two tenants, oldest first.
func deniedWorld(t *testing.T, change ...func(*config)) (w *world, ids map[string]string) {
	t.Helper()
	w = newWorld(t, change...)
	w.publish("busy", busyPlan(), "acme")
	ids = map[string]string{"nothing": w.ids["decision"]}
	tick := func() { w.now.Add((10 * time.Second).Microseconds()) }
	ids["login"] = w.login("acme", "203.0.113.9", 6)
	tick()
	ids["other login"] = w.login("acme", "203.0.113.66", 6)
	tick()
	ids["report"] = uuid.UUID(w.decide("acme", checkOf(t, "GET /v1/reports", "ip=203.0.113.9"))[0].ID).String()
	tick()
	ids["costly"] = func() string {
		c := checkOf(t, "POST /v1/login", "ip=203.0.113.70")
		c.Cost = 6
		return uuid.UUID(w.decide("acme", c)[0].ID).String()
	}()
	tick()
	ids["globex"] = uuid.UUID(w.decide("globex", checkOf(t, "GET /v1/x"))[0].ID).String()
	w.flushNow()
	return w, ids
}

// The list has the denials that match the address, newest first.
func TestDenialsAreNarrowed(t *testing.T) {
	t.Parallel()
	w, ids := deniedWorld(t)
	for address, want := range map[string]string{
		"/denials":                                           "globex costly report other login login nothing",
		"/denials?tenant=globex":                             "globex",
		"/denials?tenant=acme&reason=limited":                "costly other login login",
		"/denials?reason=other":                              "globex report nothing",
		"/denials?reason=missing_attribute":                  "report",
		"/denials?reason=tenant_suspended":                   "globex",
		"/denials?policy=login-per-ip":                       "costly other login login",
		"/denials?route=/v1/reports":                         "report",
		"/denials?attribute=ip%3D203.0.113.9":                "report login",
		"/denials?k.ip=203.0.113.9&k.user=u1":                "login",
		"/denials?attribute=ip%3D::ffff:203.0.113.9":         "report login",
		"/denials?degraded=1":                                "",
		"/denials?from=2026-11-21T08:00&to=2026-11-21T09:00": "nothing",
		"/denials?k.ip=203.0.113.0/28":                       "report login",
		"/denials?attribute=ip%3D::ffff:203.0.113.0/124":     "report login",
		"/tenants/acme/denials":                              "costly report other login login nothing",
		"/tenants/acme/denials?tenant=globex":                "costly report other login login nothing",
		"/denials?before=" + ids["report"]:                   "other login login nothing",
	} {
		page := w.get(address, "viewer")
		if page.Code != http.StatusOK {
			t.Fatalf("%s: %d", address, page.Code)
		}
		var names []string
		for _, id := range denied(page.tree(t)) {
			for name, known := range ids {
				if id == known {
					names = append(names, name)
				}
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	page := w.get("/denials?tenant=nobody&attribute=x", "viewer")
	if faults := texts(page.tree(t), classed("error")); len(faults) != 2 {
		t.Errorf("the faults are %q", faults)
	}
	row := texts(w.get("/denials?reason=over_limit&tenant=acme", "viewer").tree(t), func(n *html.Node) bool { return n.Data == "tr" })
	if len(row) != 3 || !strings.Contains(row[2], "09:00:00 POST /v1/login Over the limit login-per-ip ip 203.0.113.9 1 min") {
		t.Errorf("the rows are %q", row)
	}
}

// A decision ID leads to its denial. An ID without one is an error at the field.
func TestDenialsAreFoundByID(t *testing.T) {
	t.Parallel()
	w, ids := deniedWorld(t)
	if got := w.get("/denials?decision="+strings.ToUpper(ids["login"]), "viewer"); got.Code != http.StatusSeeOther || got.Header().Get("Location") != "/denials/"+ids["login"] {
		t.Errorf("%d %s", got.Code, got.Header().Get("Location"))
	}
	if got := w.get("/tenants/acme/denials?decision="+ids["globex"], "acme-viewer"); got.Header().Get("Location") != "/tenants/acme/denials/"+ids["globex"] {
		t.Errorf("%d %s", got.Code, got.Header().Get("Location"))
	}
	page := w.get("/denials?decision=xyz", "viewer")
	if faults := texts(page.tree(t), classed("error")); page.Code != http.StatusOK || len(faults) != 1 {
		t.Errorf("%d %q", page.Code, faults)
	}
}

// Older denials are on the next page, each once.
func TestDenialsAreTurned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	const all = 2*50 + 7 // two full pages and one more
	for n := range all {
		w.now.Add(time.Second.Microseconds()) // only a bounded number of denials is kept for each second
		w.decide("acme", checkOf(t, "GET /v1/reports", "n="+strconv.Itoa(n)))
	}
	w.flushNow()
	seen := map[string]bool{}
	pages := 0
	for address := "/denials?tenant=acme&reason=missing_attribute"; address != ""; pages++ {
		tree := w.get(address, "viewer").tree(t)
		for _, id := range denied(tree) {
			if seen[id] {
				t.Errorf("%s is there twice", id)
			}
			seen[id] = true
		}
		address = ""
		for n := range tree.Descendants() {
			if n.Data == "a" && attr(n, "rel") == "next" {
				address = attr(n, "href")
			}
		}
	}
	if len(seen) != all || pages != 3 {
		t.Errorf("%d refusals on %d pages", len(seen), pages)
	}
}

// The page of a denial says why the request was denied and what can be done.
func TestOneDenial(t *testing.T) {
	t.Parallel()
	w, ids := deniedWorld(t)
	for name, want := range map[string][]string{
		"login": {
			"Denied with 429: over the limit of policy login-per-ip.", "The same request passes after 1 min without other requests.",
			"5 per minute", "5 of 5 used", "The policy was for another path.", "curl -i 'http://limits.example/v1/check'", `"ip":"203.0.113.9"`, "busy, version 1", "node-1",
		},
		"report":  {"Denied with 403: policy reports-per-user counts by the attribute user, which was not sent.", "denied"},
		"costly":  {"policy login-per-ip can never hold this cost.", "0 of 5 used, this request costs 6", "Waiting does not help"},
		"globex":  {"tenant globex is suspended."},
		"nothing": {"no policy of the tenant's plan matches"},
	} {
		page := w.get("/denials/"+ids[name], "viewer")
		text := strings.NewReplacer("  ", " ").Replace(textOf(page.tree(t)))
		for _, part := range want {
			if page.Code != http.StatusOK || !strings.Contains(text, part) {
				t.Errorf("%s: %d, it does not say %q: %s", name, page.Code, part, text)
			}
		}
	}
	// Members of a tenant can open denials of their tenant, and none of another tenant by its
	// ID.
	if page := w.get("/tenants/acme/denials/"+ids["login"], "acme-viewer"); page.Code != http.StatusOK {
		t.Errorf("one's own: %d", page.Code)
	}
	for _, id := range []string{ids["globex"], "01a1fd54-9020-7b3c-8d2e-000000000000", "nonsense"} {
		page := w.get("/tenants/acme/denials/"+id, "acme-viewer")
		if page.Code != http.StatusNotFound || !strings.Contains(page.body, "Headgate keeps denials for 24 hours") {
			t.Errorf("%s: %d", id, page.Code)
		}
	}
}

// Actions that the visitor may not do are not offered.
func TestDenialActions(t *testing.T) {
	t.Parallel()
	w, ids := deniedWorld(t)
	offersExceptions := func(path, by string) bool {
		for _, href := range hrefs(w.get(path, by).tree(t)) {
			for _, page := range []string{"/overrides/new", "/blocks/new", "/reset?", "/lists/new"} {
				if strings.Contains(href, page) {
					u, err := url.Parse(href)
					must(t, err)
					if u.Query().Get("value") != "203.0.113.9" && u.Query().Get("k.ip") != "203.0.113.9" {
						t.Errorf("%s is not filled in", href)
					}
					return true
				}
			}
		}
		return false
	}
	const explained = "/tenants/acme/explain?cost=1&method=POST&name=ip&name=user&path=%2Fv1%2Flogin&value=203.0.113.9&value=u1"
	if links := hrefs(w.get("/denials/"+ids["login"], "viewer").tree(t)); !hasPrefix(links, explained) {
		t.Errorf("it is not explained from %q", links)
	}
	_, there := w.rowOf(t, "/tenants/:tenant/overrides/new")
	for by, may := range map[string]bool{"owner": true, "viewer": false, "acme-viewer": false, "acme-admin": accounts.Authorize(accounts.Principal{Kind: "user", ID: "x", Role: accounts.TenantAdmin, TenantID: "acme"}, accounts.ExceptionsWrite) == nil} {
		if got := offersExceptions("/tenants/acme/denials/"+ids["login"], by); got != (may && there) {
			t.Errorf("%s is offered to set exceptions: %v, want %v", by, got, may && there)
		}
	}
}

// rowOf returns the route with a path.
func (w *world) rowOf(t *testing.T, path string) (web.Route, bool) {
	t.Helper()
	for _, r := range w.table(t) {
		if r.Path == path {
			return r, true
		}
	}
	return web.Route{}, false
}

// A tenant that samples its allowed requests has them on the page, by outcome. Its people see no
// others.
func TestAllowedRequestsAreShown(t *testing.T) {
	t.Parallel()
	w, ids := deniedWorld(t)
	form := url.Values{
		"name": {"Acme"}, "no_policy": {"deny"}, "require_route": {"no"}, "redact_values": {"keep"}, "max_keys": {""}, "sample_allowed": {"1"},
		"version": {strconv.FormatInt(w.tenant("acme").Revision, 10)},
	}
	to(t, "save", w.post("/tenants/acme/settings", "editor", form), "/tenants/acme/settings?done=tenant-saved")
	form.Set("version", strconv.FormatInt(w.tenant("acme").Revision, 10))
	for _, wrong := range []string{"-1", "x", "1000001"} {
		form.Set("sample_allowed", wrong)
		if page := w.post("/tenants/acme/settings", "editor", form); page.Code != http.StatusUnprocessableEntity || wrongIn(t, page) != "sample_allowed" {
			t.Errorf("%s: %d, fault of %q", wrong, page.Code, wrongIn(t, page))
		}
	}
	w.now.Add(time.Second.Microseconds())
	passed := uuid.UUID(w.decide("acme", checkOf(t, "POST /v1/login", "ip=203.0.113.80"))[0].ID).String()
	w.decide("globex", checkOf(t, "GET /v1/x"))
	w.flushNow()
	for address, want := range map[string]int{
		"/denials?outcome=allowed": 1, "/denials?outcome=allowed&tenant=globex": 0, "/denials?outcome=allowed&policy=login-per-ip": 1,
		"/denials?outcome=allowed&k.ip=203.0.113.80": 1, "/denials?outcome=allowed&k.ip=203.0.113.9": 0, "/denials?outcome=allowed&reason=ok": 1,
		"/denials?outcome=any": 2 + len(ids), "/denials?outcome=allowed&route=/v1/reports": 0, "/denials?outcome=allowed&degraded=1": 0,
	} {
		page := w.get(address, "viewer")
		if got := denied(page.tree(t)); page.Code != http.StatusOK || len(got) != want || want == 1 && got[0] != passed {
			t.Errorf("%s: %d, %v, want %d", address, page.Code, got, want)
		}
	}
	for who, status := range map[string]int{"viewer": 200, "acme-viewer": 403} {
		if page := w.get("/denials/"+passed, who); page.Code != status {
			t.Errorf("%s: %d", who, page.Code)
		}
	}
	page := w.get("/tenants/acme/denials/"+passed, "acme-viewer")
	if page.Code != http.StatusOK || !strings.Contains(page.body, "Allowed: 4 of 5 left in policy login-per-ip after it.") || !strings.Contains(page.body, "passed") {
		t.Errorf("%d %s", page.Code, page.body)
	}
	if page := w.get("/tenants/acme/denials?outcome=allowed", "acme-viewer"); len(denied(page.tree(t))) != 1 {
		t.Error("a member does not see the allowed request")
	}
	if page := w.get("/tenants/globex/denials/"+passed, "viewer"); page.Code != http.StatusNotFound {
		t.Errorf("on the pages of another tenant: %d", page.Code)
	}
	if page := w.get("/denials?outcome=refused", "viewer"); page.Code != http.StatusUnprocessableEntity ||
		!strings.Contains(page.body, "No outcome has this name. This filter is not applied.") {
		t.Errorf("an unknown outcome: %d %s", page.Code, page.body)
	}
	if page := w.get("/denials?outcome=any&group=policy", "viewer"); !strings.Contains(page.body, "The groups with most decisions are first.") {
		t.Error("groups of decisions are called denials")
	}
}

// The pages say that values of a tenant with redact_values are redacted. No page contains the
// values.
func TestRedactedDenials(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant, err := w.tenants.Tenant(t.Context(), "acme")
	must(t, err)
	tenant.RedactValues = true
	_, err = w.tenants.UpdateTenant(t.Context(), tenant.ID, tenant.Document, tenant.Revision)
	must(t, err)
	w.publish("busy", busyPlan(), "acme")
	id := w.login("acme", "203.0.113.9", 6)
	w.flushNow()
	for _, path := range []string{"/denials", "/denials/" + id, "/overview"} {
		page := w.get(path, "owner")
		if page.Code != http.StatusOK || strings.Contains(page.body, "203.0.113.9") {
			t.Errorf("%s: %d, with the value", path, page.Code)
		}
		if path != "/overview" && !strings.Contains(page.body, "redacted") {
			t.Errorf("%s does not say that values are redacted", path)
		}
	}
}

// Degraded denials are marked and can be filtered.
func TestDegradedDenials(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := busyPlan()
	d.Policies[0].OnFailure = enforcement.OnFailureClosed
	w.publish("busy", d, "acme")
	away := enforcement.NewEngine(nobody{}, enforcement.Config{Now: w.clock, NewID: w.newID, Recorder: w.recorder})
	subject, _ := w.watcher.Current().Subject("acme")
	var decision enforcement.Decision
	check := checkOf(t, "POST /v1/login", "ip=203.0.113.9")
	away.Decide(t.Context(), subject, &check, &decision)
	w.flushNow()
	page := w.get("/denials?degraded=1", "viewer")
	if list := denied(page.tree(t)); len(list) != 1 || !strings.Contains(page.body, "Limiter unavailable") {
		t.Errorf("%q", list)
	}
	if page := w.get("/denials/"+uuid.UUID(decision.ID).String(), "viewer"); !strings.Contains(page.body, "the limiter is unavailable") || !strings.Contains(page.body, ">503<") {
		t.Errorf("%s", page.body)
	}
	if tile := texts(w.get("/overview", "viewer").tree(t), classed("tile-warn")); len(tile) != 1 || !strings.HasPrefix(tile[0], "Degraded 100%") {
		t.Errorf("the tile is %q", tile)
	}
}

// nobody is a limiter for which every call fails.
type nobody struct{}

func (nobody) Take(_ context.Context, _ []enforcement.Request, outcomes []enforcement.Outcome) {
	for i := range outcomes {
		outcomes[i].Verdict, outcomes[i].Err = enforcement.Failed, enforcement.ErrNotReached
	}
}

// An event is an event of a stream, as a browser receives it.
type event struct{ name, data string }

// listen opens a stream like a browser and returns its events. The channel is closed when the
// stream ends.
func (w *world) listen(t *testing.T, path, by string) <-chan event {
	t.Helper()
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	return w.listenAt(t, server, path, by)
}

// listenAt is listen on a server.
func (w *world) listenAt(t *testing.T, server *httptest.Server, path, by string) <-chan event {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, http.NoBody)
	must(t, err)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.AddCookie(&http.Cookie{Name: "headgate", Value: w.cookies[by]})
	response, err := server.Client().Do(r)
	must(t, err)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %d %s", path, response.StatusCode, response.Header.Get("Content-Type"))
	}
	events := make(chan event, 100)
	go func() {
		defer close(events)
		defer response.Body.Close()
		var e event
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch {
			case name == "event":
				e.name = value
			case name == "data":
				e.data += value + "\n"
			case lines.Text() == "" && e.name != "":
				events <- e
				e = event{}
			}
		}
	}()
	return events
}

// next waits for the event that a test expects.
func next(t *testing.T, events <-chan event, what string, wanted func(event) bool) event {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		select {
		case e, open := <-events:
			if !open {
				t.Fatalf("%s: the stream ended", what)
			}
			if wanted(e) {
				return e
			}
		case <-deadline.C:
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func live(cfg *config) { cfg.shell.Stopping = context.Background() }

// A new denial appears without a reload, if it matches the filters of the page, and for
// people of a tenant only if it is theirs. Unchanged parts are not sent again.
func TestDenialsAreLive(t *testing.T) {
	t.Parallel()
	w, ids := deniedWorld(t, live)
	operator := w.listen(t, "/denials/live", "viewer")
	narrow := w.listen(t, "/denials/live?k.ip=203.0.113.70", "viewer")
	own := w.listen(t, "/tenants/acme/denials/live?tenant=globex", "acme-viewer")
	news := w.listen(t, "/denials/live?live=0&after="+ids["globex"], "viewer")
	shows := func(id string) func(event) bool {
		return func(e event) bool { return e.name == "denials" && strings.Contains(e.data, id) }
	}
	first := next(t, operator, "the list", shows(ids["globex"]))
	next(t, narrow, "the narrow list", shows(ids["costly"]))
	ownFirst := next(t, own, "the tenant's list", shows(ids["costly"]))
	if strings.Contains(ownFirst.data, ids["globex"]) {
		t.Error("a tenant sees another one's refusal")
	}
	w.now.Add(time.Second.Microseconds())
	c := checkOf(t, "POST /v1/login", "ip=203.0.113.70")
	c.Cost = 7
	acme := uuid.UUID(w.decide("acme", c)[0].ID).String()
	globex := uuid.UUID(w.decide("globex", checkOf(t, "GET /v1/y"))[0].ID).String()
	w.flushNow()
	second := next(t, operator, "a new refusal", shows(acme))
	if first.data == second.data || strings.Index(second.data, acme) > strings.Index(second.data, ids["globex"]) {
		t.Error("the new refusal is not above the old ones")
	}
	if e := next(t, narrow, "a new refusal that fits", shows(acme)); strings.Contains(e.data, globex) {
		t.Error("the filter does not hold in the stream")
	}
	if e := next(t, own, "a new refusal of one's own", shows(acme)); strings.Contains(e.data, globex) || strings.Contains(e.data, "/v1/y") {
		t.Error("a tenant sees another one's refusal in the stream")
	}
	next(t, news, "how many came", func(e event) bool { return e.name == "news" && strings.Contains(e.data, "2 new") })

	// This request is counted and allowed. The list of denials does not change and is not sent
	// again.
	w.decide("acme", checkOf(t, "GET /v1/search", "user=u1"))
	w.flushNow()
	w.now.Add(time.Second.Microseconds())
	c.Cost = 8
	last := uuid.UUID(w.decide("acme", c)[0].ID).String()
	w.flushNow()
	before := 0
	next(t, operator, "the next refusal", func(e event) bool {
		if e.name == "denials" && !strings.Contains(e.data, last) {
			before++
		}
		return strings.Contains(e.data, last)
	})
	if before > 0 {
		t.Errorf("the list was sent %d times without a change", before)
	}
}

// nextParts waits until each part was sent with its text, in any order. During a write of the
// counts, one part can have new counts and another part old ones; the rest follows in the next
// update.
func nextParts(t *testing.T, events <-chan event, what string, parts map[string]string) (seen map[string]bool) {
	t.Helper()
	seen, wanted := map[string]bool{}, maps.Clone(parts)
	next(t, events, what, func(e event) bool {
		seen[e.name] = true
		if text, isWanted := wanted[e.name]; isWanted && strings.Contains(e.data, text) {
			delete(wanted, e.name)
		}
		return len(wanted) == 0
	})
	return seen
}

// nextWhole waits for the whole page, and for a key in it or in the list that follows it.
func nextWhole(t *testing.T, events <-chan event, what, key string) {
	t.Helper()
	whole := false
	next(t, events, what, func(e event) bool {
		whole = whole || e.name == "traffic-all"
		return whole && strings.Contains(e.data, key)
	})
}

// The overview follows the counts, starts without a click, and sends only what changed.
func TestTheOverviewIsLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, live)
	w.publish("busy", busyPlan(), "acme")
	empty := w.listen(t, "/overview/live?empty=1", "viewer")
	events := w.listen(t, "/overview/live?range=15m", "viewer")
	w.login("acme", "203.0.113.9", 8)
	w.flushNow()
	nextWhole(t, empty, "all of the page", "203.0.113.9")
	nextParts(t, events, "the first requests", map[string]string{"tiles": "37.5%", "limited": "203.0.113.9", "tenants": "acme"})
	w.decide("acme", checkOf(t, "GET /v1/search", "user=u1"))
	w.flushNow()
	seen := nextParts(t, events, "the new request", map[string]string{"tiles": "", "traffic": "", "routes": "/v1/search", "tenants": ""})
	if seen["limited"] || seen["retry-after"] {
		t.Errorf("sent were %v: of what did not change", seen)
	}
}

// If the last request of a page is outside of its time range, the page is empty again. After
// the next request, it shows charts.
func TestTheOverviewEmptiesItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, live)
	w.publish("busy", busyPlan(), "acme")
	w.login("acme", "203.0.113.9", 8)
	w.flushNow()
	events := w.listen(t, "/overview/live?range=15m", "viewer")
	all := func(e event) bool { return e.name == "traffic-all" }
	next(t, events, "the tiles", func(e event) bool {
		if all(e) {
			t.Error("the page was not empty")
		}
		return e.name == "tiles" && strings.Contains(e.data, "37.5%")
	})
	w.now.Add((20 * time.Minute).Microseconds())
	if e := next(t, events, "the empty page", all); !strings.Contains(e.data, "No requests in this time") || strings.Contains(e.data, "37.5") {
		t.Errorf("after a quarter of an hour of silence: %s", e.data)
	}
	w.login("acme", "203.0.113.10", 1)
	w.flushNow()
	nextWhole(t, events, "the next request", "203.0.113.10")
}

// A list that is filtered by a tenant stays filtered when the tenant is deleted.
func TestDenialsOfADeletedTenant(t *testing.T) {
	t.Parallel()
	w, ids := deniedWorld(t, live)
	events := w.listen(t, "/denials/live?tenant=globex", "viewer")
	next(t, events, "the list", func(e event) bool { return strings.Contains(e.data, ids["globex"]) })
	globex, err := w.tenants.Tenant(t.Context(), "globex")
	must(t, err)
	must(t, w.tenants.DeleteTenant(t.Context(), "globex", globex.Revision))
	w.now.Add((50 * time.Minute).Microseconds())
	w.login("acme", "203.0.113.99", 7)
	w.now.Add((20 * time.Minute).Microseconds()) // the old denials are outside the time range now
	w.flushNow()
	if e := next(t, events, "the list again", func(e event) bool { return e.name == "denials" }); strings.Contains(e.data, "203.0.113.99") || strings.Contains(e.data, "acme") {
		t.Errorf("the list of a deleted tenant shows another one's: %s", e.data)
	}
}

// One person cannot use all live pages of the node.
func TestStreamsOfOnePersonAreBounded(t *testing.T) {
	t.Parallel()
	w, _ := deniedWorld(t, live)
	w.shell.SetStreamsOf(w.ids["viewer"], web.MaxOwnStreams)
	if got := w.get("/denials/live", "viewer"); got.Code != http.StatusServiceUnavailable {
		t.Errorf("one stream too many: %d", got.Code)
	}
	next(t, w.listen(t, "/denials/live", "owner"), "another person's", func(e event) bool { return e.name == "denials" })
}

// Elements in a live part that the keyboard can reach have an ID, which keeps the focus
// when the part is drawn again. Elements that open are found by their position.
func TestLivePartsKeepTheFocus(t *testing.T) {
	t.Parallel()
	w, _ := deniedWorld(t)
	w.login("acme", "203.0.113.9", 8)
	w.flushNow()
	reached := 0
	for _, address := range []string{"/overview", "/denials", "/tenants/acme", "/tenants/acme/denials", "/system"} {
		for part := range w.get(address, "owner").tree(t).Descendants() {
			if attr(part, "sse-swap") == "" || attr(part, "sse-swap") == "traffic-all" {
				continue
			}
			for n := range part.Descendants() {
				if n.Data != "a" && n.Data != "button" && n.Data != "input" && attr(n, "tabindex") == "" {
					continue
				}
				if reached++; attr(n, "id") == "" {
					t.Errorf("%s: %s in the live part %s has no id: %q", address, n.Data, attr(part, "sse-swap"), textOf(n))
				}
			}
		}
	}
	if reached < 30 {
		t.Errorf("only %d were found", reached)
	}
}

// A stream ends when the node stops. Above the maximum number of streams, no further stream
// starts.
func TestStreamsEnd(t *testing.T) {
	t.Parallel()
	node, stop := context.WithCancel(t.Context())
	defer stop()
	w, _ := deniedWorld(t, func(cfg *config) { cfg.shell.Stopping = node })
	events := w.listen(t, "/denials/live", "viewer")
	next(t, events, "the list", func(e event) bool { return e.name == "denials" })
	stop()
	for range events { // until it ends
	}
	w.shell.SetStreams(web.MaxStreams)
	if got := w.get("/denials/live", "viewer"); got.Code != http.StatusServiceUnavailable {
		t.Errorf("one stream too many: %d", got.Code)
	}
	if got := w.get("/overview", "viewer"); got.Code != http.StatusOK || w.shell.Streams() != web.MaxStreams {
		t.Errorf("the page beside it: %d, and %d streams are counted", got.Code, w.shell.Streams())
	}
}

// A stream ends when its session does.
func TestStreamsEndWithTheirSession(t *testing.T) {
	t.Parallel()
	w, _ := deniedWorld(t, live)
	w.shell.RecheckSessionsEvery(time.Millisecond)
	events := w.listen(t, "/denials/live", "viewer")
	others := w.listen(t, "/denials/live", "editor")
	next(t, events, "the list", func(e event) bool { return e.name == "denials" })
	next(t, others, "the list", func(e event) bool { return e.name == "denials" })
	if got := w.post("/sign-out", "viewer", nil); got.Code != http.StatusSeeOther {
		t.Fatalf("sign out: %d", got.Code)
	}
	for range events { // until it ends
	}
	id := w.login("acme", "203.0.113.67", 6)
	w.flushNow()
	next(t, others, "a new refusal", func(e event) bool { return strings.Contains(e.data, id) })
}

// An open stream keeps its session from becoming idle. The session still ends at its end time.
func TestStreamsKeepTheirSession(t *testing.T) {
	t.Parallel()
	w, _ := deniedWorld(t, live)
	w.shell.RecheckSessionsEvery(time.Millisecond)
	events := w.listen(t, "/denials/live", "viewer")
	next(t, events, "the list", func(e event) bool { return e.name == "denials" })
	session, viewer, err := w.people.Session(t.Context(), w.cookies["viewer"])
	must(t, err)
	pass := func(d time.Duration) { w.now.Add(d.Microseconds()) }
	const step = accounts.SessionIdle * 2 / 3
	for time.UnixMicro(w.now.Load()).Add(step).Before(session.ExpiresAt) {
		pass(step)
		at := time.UnixMicro(w.now.Load()).UTC()
		for deadline := time.Now().Add(time.Minute); ; {
			list, err := w.people.Sessions(t.Context(), viewer) // this does not extend the sessions
			must(t, err)
			if len(list) == 1 && !list[0].SeenAt.Before(at.Truncate(time.Millisecond)) {
				break
			}
			if len(list) != 1 || time.Now().After(deadline) {
				t.Fatalf("at %v: sessions %+v", at, list)
			}
			runtime.Gosched()
		}
	}
	pass(step)
	for range events { // until it ends
	}
}

// For every value, path and name in the traffic, the pages have the same elements.
func TestHostileTraffic(t *testing.T) {
	t.Parallel()
	var want map[string]string
	for n, payload := range append([]string{"plain"}, payloads[:12]...) {
		w := newWorld(t)
		d := plans.Content{Name: "P", Policies: []plans.Policy{{
			Slug: "per-user", CountBy: []string{"user"},
			Limits: []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 1, Window: time.Minute}},
		}}}
		w.publish("hostile", d, "acme")
		check := enforcement.Check{Method: "GET", Path: "/" + payload, Attributes: []enforcement.Attribute{{Name: "user", Value: payload}}, Cost: 1}
		id := uuid.UUID(w.decide("acme", check, check)[1].ID).String()
		w.flushNow()
		got := map[string]string{}
		for name, path := range map[string]string{
			"overview": "/overview", "denials": "/denials", "denial": "/denials/" + id, "of a key": "/tenants/acme/denials?k.user=" + url.QueryEscape(payload),
			"nothing": "/overview?policy=" + url.QueryEscape(payload), "cannot": "/overview?route=" + url.QueryEscape(payload) + "&policy=" + url.QueryEscape(payload),
			"no tenant": "/overview?tenant=" + url.QueryEscape(payload),
		} {
			page := w.get(path, "owner")
			tree := page.tree(t)
			strict(t, path, tree)
			got[name] = shape(tree)
			status := http.StatusOK
			if name == "cannot" || name == "no tenant" || name == "nothing" {
				status = http.StatusUnprocessableEntity
			}
			if page.Code != status {
				t.Errorf("%s: %d", path, page.Code)
			}
		}
		if n == 0 {
			want = got
		}
		for name := range got {
			if got[name] != want[name] {
				t.Errorf("%q on %s:\n%s\nwant\n%s", payload, name, got[name], want[name])
			}
		}
	}
}
