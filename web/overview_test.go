package web_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/net/html"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/plans"
)

// checkOf returns a check from text, such as "POST /v1/login" with the attribute
// "ip=203.0.113.9".
func checkOf(t testing.TB, request string, attributes ...string) enforcement.Check {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	c := enforcement.Check{Method: method, Path: path, Cost: 1}
	for _, a := range attributes {
		name, value, _ := strings.Cut(a, "=")
		if name == "ip" {
			var err error
			c.IP, value, err = enforcement.CanonicalIP(value)
			must(t, err)
		}
		c.Attributes = append(c.Attributes, enforcement.Attribute{Name: name, Value: value})
	}
	return c
}

// login sends n checks of logins from an IP address, and returns the ID of the last decision.
func (w *world) login(tenant, ip string, n int) string {
	w.t.Helper()
	checks := make([]enforcement.Check, n)
	for i := range checks {
		checks[i] = checkOf(w.t, "POST /v1/login", "ip="+ip, "user=u1")
	}
	return uuid.UUID(w.decide(tenant, checks...)[n-1].ID).String()
}

// flushNow writes the counts to the database without moving the clock.
func (w *world) flushNow() {
	w.t.Helper()
	must(w.t, w.flusher.Flush(w.t.Context()))
}

// busyPlan returns a plan that limits logins by IP address, counts searches in shadow mode, and
// limits reports, which must have a user.
func busyPlan() plans.Content {
	return plans.Content{Name: "Pro", Description: "For teams.", Policies: []plans.Policy{
		{
			Slug: "login-per-ip", Match: plans.Match{Methods: []string{"POST"}, Path: "/v1/login"}, CountBy: []string{"ip"},
			Limits: []enforcement.Limit{{Algorithm: enforcement.SlidingWindowLog, Quota: 5, Window: time.Minute}},
		},
		{
			Slug: "reports-per-user", Match: plans.Match{Path: "/v1/reports"}, CountBy: []string{"user"}, Missing: enforcement.MissingDeny,
			Limits: []enforcement.Limit{{Algorithm: enforcement.TokenBucket, Quota: 100, Window: time.Hour, Burst: 20}},
		},
		{
			Slug: "search-per-user", Match: plans.Match{Path: "/v1/search"}, CountBy: []string{"user"}, Mode: enforcement.PolicyShadow,
			Limits: []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: 2, Window: time.Hour}},
		},
	}}
}

// busyWorld has decisions: a login limit denied three of eight requests of an IP address, and a
// report without a user was denied.
func busyWorld(t testing.TB, change ...func(*config)) *world {
	t.Helper()
	w := newWorld(t, change...)
	w.publish("busy", busyPlan(), "acme")
	w.login("acme", "203.0.113.9", 8)
	w.decide("acme", checkOf(t, "GET /v1/reports"), checkOf(t, "GET /v1/search", "user=u2"))
	w.flushNow()
	return w
}

// texts returns the texts of the elements that choose selects, with single spaces.
func texts(page *html.Node, choose func(*html.Node) bool) (list []string) {
	for n := range page.Descendants() {
		if n.Type == html.ElementNode && choose(n) {
			list = append(list, textOf(n))
		}
	}
	return list
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func classed(class string) func(*html.Node) bool {
	return func(n *html.Node) bool { return strings.Contains(" "+attr(n, "class")+" ", " "+class+" ") }
}

func withID(id string) func(*html.Node) bool {
	return func(n *html.Node) bool { return attr(n, "id") == id }
}

// hrefs returns the targets of the links of a page.
func hrefs(page *html.Node) (list []string) {
	for n := range page.Descendants() {
		if n.Data == "a" {
			list = append(list, attr(n, "href"))
		}
	}
	return list
}

func hasPrefix(list []string, prefix string) bool {
	for _, s := range list {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}

// The first page shows the counts, and each of them is a link.
func TestOverviewShowsWhatWasCounted(t *testing.T) {
	t.Parallel()
	w := busyWorld(t)
	page := w.get("/overview", "viewer")
	if page.Code != http.StatusOK {
		t.Fatalf("%d %s", page.Code, page.body)
	}
	tree := page.tree(t)
	tiles := texts(tree, classed("tile"))
	for i, want := range []string{"Requests 10", "Allowed 6", "Denied by limits 3", "429 rate 30.0%", "Limiter, p95", "Degraded 0%"} {
		if i >= len(tiles) || !strings.HasPrefix(tiles[i], want) {
			t.Errorf("the tiles are %q, want %q", tiles, want)
		}
	}
	for id, want := range map[string][]string{
		"traffic":     {"10 requests: 60.0% allowed, 30.0% denied by limits, 10.0% denied for other reasons."},
		"rate":        {"Limits denied 30.0%"},
		"split":       {"The shared limiter made all decisions."},
		"retry-after": {"50% of the denials had a retry time of up to"},
	} {
		figure := texts(tree, withID(id))
		for _, text := range want {
			if len(figure) != 1 || !strings.Contains(figure[0], text) {
				t.Errorf("%s says %q, want %q", id, figure, text)
			}
		}
	}
	links := hrefs(tree)
	for _, want := range []string{
		"/tenants/acme/usage/login-per-ip?k.ip=203.0.113.9", "/tenants/acme/denials?k.ip=203.0.113.9&policy=login-per-ip",
		"/denials?reason=limited", "/denials?degraded=1", "/overview?route=%2Fv1%2Flogin", "/overview?tenant=acme", "/overview?range=15m",
	} {
		if !hasPrefix(links, want) {
			t.Errorf("no link leads to %s: %q", want, links)
		}
	}
	if rank := texts(tree, classed("rank")); len(rank) != 4 || !strings.Contains(rank[0], "ip 203.0.113.9 login-per-ip") {
		t.Errorf("the tables are %q", rank)
	}
}

// Filters by tenant, policy and route apply to the page, and each can be removed.
func TestOverviewIsNarrowed(t *testing.T) {
	t.Parallel()
	w := busyWorld(t)
	w.publish("calm", plans.Content{Name: "Calm"}, "globex")
	for address, want := range map[string]struct {
		requests string
		chips    int
	}{
		"/overview?tenant=acme":                        {"Requests 10", 1},
		"/overview?tenant=acme&policy=login-per-ip":    {"Requests 8", 2},
		"/overview?route=/v1/login":                    {"Requests 8", 1},
		"/overview?route=/v1/reports&range=15m&live=0": {"Requests 1", 1},
	} {
		page := w.get(address, "owner")
		tree := page.tree(t)
		tiles := texts(tree, classed("tile"))
		if page.Code != http.StatusOK || len(tiles) == 0 || !strings.HasPrefix(tiles[0], want.requests) {
			t.Errorf("%s: %d %q, want %s", address, page.Code, tiles, want.requests)
		}
		if chips := texts(tree, classed("chip")); len(chips) != want.chips {
			t.Errorf("%s: the chips %q", address, chips)
		}
		if faults := texts(tree, classed("error")); len(faults) > 0 {
			t.Errorf("%s: the faults %q", address, faults)
		}
	}
	// Issue 13, 1.8: an invalid filter has an error, and the page ignores it.
	for address, typed := range map[string]string{
		"/overview%s?tenant=nobody": "nobody", "/overview?policy=none%.0s": "none", "/denials?policy=none%.0s": "none", "/denials?route=/x%.0s": "/x", "/overview%s?policy=login-per-ip&route=/v1/login": "/v1/login",
		"/denials%s?tenant=nobody": "nobody", "/denials%s?reason=none": "", "/denials%s?attribute=x": "x", "/denials%s?k.ip=1&attribute=ip%%3D2": "ip=2",
	} {
		page := w.get(fmt.Sprintf(address, ""), "owner")
		tree := page.tree(t)
		if page.Code != http.StatusUnprocessableEntity || len(texts(tree, classed("error"))) != 1 {
			t.Errorf("%s: %d, the faults %q", address, page.Code, texts(tree, classed("error")))
		}
		narrow := strings.Contains(address, "k.ip=1") // the other filter of the page is valid
		if strings.Contains(page.body, "203.0.113.9") == narrow || !strings.Contains(page.body, "sse-connect") || !strings.Contains(page.body, `value="`+typed+`"`) {
			t.Errorf("%s shows no numbers, does not stream, or has lost what was typed", address)
		}
		if strings.Contains(address, "%.0s") {
			continue // the filter has a name that no plan has, so the stream sends nothing
		}
		if stream := w.get(fmt.Sprintf(address, "/live"), "owner"); stream.Code != http.StatusUnprocessableEntity {
			t.Errorf("the stream of %s: %d", address, stream.Code)
		}
	}
	for _, address := range []string{"/overview?tenant=globex", "/overview?policy=reports-per-user&from=2026-11-21T05:00&to=2026-11-21T06:00"} {
		if page := w.get(address, "owner"); page.Code != http.StatusOK || !strings.Contains(page.body, "No requests in this time") {
			t.Errorf("%s is not empty: %s", address, page.body)
		}
	}
}

// A page without traffic says what to do.
func TestOverviewWithoutTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	page := w.get("/overview", "owner")
	if !strings.Contains(page.body, "curl -i &#39;http://limits.example/v1/check&#39;") || !strings.Contains(page.body, "&#34;tenant&#34;:&#34;") {
		t.Errorf("there is no command to paste: %s", page.body)
	}
	if live := texts(page.tree(t), func(n *html.Node) bool { return attr(n, "sse-connect") != "" }); len(live) != 1 || !strings.Contains(page.body, "empty=1") {
		t.Errorf("the page does not wait for the first request")
	}
}

// Before the first count, a minute without counts is a gap in the charts, and not a zero.
func TestGaps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy", busyPlan(), "acme")
	w.now.Add((5 * time.Minute).Microseconds())
	w.login("acme", "203.0.113.9", 8)
	w.now.Add((5 * time.Minute).Microseconds())
	w.decide("acme", checkOf(t, "GET /v1/search"))
	w.flushNow()
	var traffic, rate []string
	for n := range w.get("/overview?range=15m", "owner").tree(t).Descendants() {
		if n.Data != "tr" || attr(n, "data-x") == "" {
			continue
		}
		cells := texts(n, func(n *html.Node) bool { return n.Data == "td" })
		switch len(cells) {
		case 3:
			if len(traffic) < 16 {
				traffic = append(traffic, cells[0])
			}
		case 1:
			rate = append(rate, cells[0])
		}
	}
	if got := strings.Join(traffic, " "); got != "– – – – – – – – – – 5 0 0 0 0 1" {
		t.Errorf("requests: %s", got)
	}
	if got := strings.Join(rate, " "); got != "– – – – – – – – – – 37.5% – – – – 0%" {
		t.Errorf("rates: %s", got)
	}
}

// asking counts the queries that reach the store.
type asking struct {
	metrics.Store
	asked atomic.Int64
	wait  chan struct{} // nil: nothing to wait for
}

func (a *asking) Counts(ctx context.Context, q metrics.CountQuery) ([]metrics.CountRow, error) {
	a.asked.Add(1)
	if a.wait != nil {
		select {
		case <-a.wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return a.Store.Counts(ctx, q)
}

// Equal queries share one result. If one caller leaves, the others still get the result. A
// query that comes after new counts gets a new result.
func TestAnswersAreShared(t *testing.T) {
	t.Parallel()
	store := &asking{wait: make(chan struct{})}
	var w *world
	w = busyWorld(t, func(cfg *config) {
		cfg.traffic.Analytics = metrics.NewAnalytics(store, metrics.AnalyticsConfig{Now: func() time.Time { return w.clock() }})
	})
	store.Store = w.store
	page := "/overview?from=" + start.Add(-time.Hour).Format("2006-01-02T15:04") + "&to=" + start.Add(time.Minute).Format("2006-01-02T15:04")
	requests := func(ctx context.Context, n int) error {
		got := w.send(http.MethodGet, page, "owner", nil, func(r *http.Request) { *r = *r.WithContext(ctx) })
		if text := textOf(got.tree(t)); got.Code != http.StatusOK || !strings.Contains(text, fmt.Sprintf("Requests %d ", n)) {
			return fmt.Errorf("%d: %s", got.Code, text)
		}
		return nil
	}
	left, leave := context.WithCancel(t.Context())
	results := make(chan error)
	ask := func(ctx context.Context) { results <- requests(ctx, 10) }
	go ask(left)
	poll(t, "the first question", func() bool { return store.asked.Load() > 0 })
	for range 7 {
		go ask(t.Context())
	}
	leave()
	if err := <-results; err == nil {
		t.Error("who left got an answer")
	}
	close(store.wait)
	for range 7 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	once := store.asked.Load()
	for range 3 {
		go ask(t.Context())
		must(t, <-results)
	}
	if store.asked.Load() != once {
		t.Errorf("what was not changed is asked again: %d, then %d", once, store.asked.Load())
	}
	w.decide("acme", checkOf(t, "GET /v1/search"))
	w.flushNow()
	poll(t, "an answer with the new request", func() bool { return requests(t.Context(), 11) == nil })
}

// poll waits until done returns true.
func poll(t testing.TB, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within a minute", what)
		case <-tick.C:
		}
	}
}
