//go:build !quick

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	shownStatus = regexp.MustCompile(`data-status="(\d+)" data-reason="([a-z_]+)" data-passes-at="([^"]*)"`)
	shownPolicy = regexp.MustCompile(`data-applies="(true|false)" data-policy="([^"]+)"`)
	shownLimit  = regexp.MustCompile(`data-limit="([^"]+)" data-remaining="(\d+)"`)
	shownHeader = regexp.MustCompile(`(?m)^(RateLimit-Policy|RateLimit): (.*)$`)
)

// The explain page and the API agree, and both agree with the check that follows, including
// its headers.
func TestExplainPageSaysWhatTheAPISays(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap})
	const policies = `[
		{"slug": "daily", "limits": [{"algorithm": "fixed_window", "quota": 20, "window": "1d", "anchor": "clock"}]},
		{"slug": "login", "match": {"methods": ["POST"], "path": "/v1/login"}, "count_by": ["user"], "limits": [{"algorithm": "sliding_window_log", "quota": 2, "window": "1d"}]},
		{"slug": "none", "match": {"path": "/v1/none"}, "limits": [{"algorithm": "fixed_window", "quota": 0, "window": "1d"}]},
		{"slug": "app", "match": {"path": "/v1/app/*"}, "count_by": ["app"], "missing": "deny", "replaces": ["daily"], "limits": [{"algorithm": "fixed_window", "quota": 3, "window": "1d"}]}]`
	made := call(t, bootstrap, "POST", node.origin+"/v1/plans", `{"slug": "pro", "draft": {"name": "Pro", "policies": `+policies+`}}`).want(t, 201)
	call(t, bootstrap, "POST", node.origin+"/v1/plans/pro/publish", "", "If-Match", made.header.Get("ETag")).want(t, 200)
	call(t, bootstrap, "POST", node.origin+"/v1/tenants", `{"slug": "acme", "tenant": {"require_route": false, "name": "Acme", "plan": "pro"}}`).want(t, 201)
	b := newBrowser(t, node.origin)
	b.post(node.await(node.out, setupLink)[1], "email", "ann@example.com", "name", "Ann", "password", ownerPassword).want(t, 303)
	b.signIn("ann@example.com", ownerPassword).want(t, 303)

	dice := rand.New(rand.NewPCG(5, 5))
	pick := func(list ...string) string { return list[dice.IntN(len(list))] }
	reasons := map[string]bool{}
	for range 60 {
		asked := map[string]any{"tenant": "acme", "method": pick("GET", "POST"), "path": pick("/v1/login", "/v1/login", "/v1/none", "/v1/app/x", "/v1/else")}
		attributes := map[string]string{}
		for _, name := range []string{"user", "app"} {
			if value := pick("", "a", "b"); value != "" {
				attributes[name] = value
			}
		}
		asked["attributes"] = attributes
		body, err := json.Marshal(asked)
		if err != nil {
			t.Fatal(err)
		}
		q := url.Values{"tenant": {"acme"}, "method": {asked["method"].(string)}, "path": {asked["path"].(string)}, "cost": {"1"}}
		for name, value := range attributes {
			q.Add("name", name)
			q.Add("value", value)
		}
		var told struct {
			Status   int
			Decision struct{ Reason string }
			PassesAt *string `json:"passes_at"`
			Policies []struct {
				Policy  string
				Applies bool
				Limits  []struct {
					Limit     string
					Remaining int64
				}
			}
		}
		call(t, bootstrap, "POST", node.origin+"/v1/explain", string(body)).want(t, 200).into(t, &told)
		page := b.get("/explain?"+q.Encode()).want(t, 200)
		check := call(t, bootstrap, "POST", node.origin+"/v1/check", string(body)).want(t, told.Status)
		reasons[told.Decision.Reason] = true

		verdict := shownStatus.FindStringSubmatch(page.body)
		if verdict == nil || verdict[1] != fmt.Sprint(told.Status) || verdict[2] != told.Decision.Reason {
			t.Errorf("%s: the page says %q, the API %d %s", body, verdict, told.Status, told.Decision.Reason)
			continue
		}
		if refused := told.Status != 200; (verdict[3] != "") != (refused && told.PassesAt != nil) {
			t.Errorf("%s: the page says it passes at %q, the API %v", body, verdict[3], told.PassesAt)
		}
		var want, limits, shown, held []string
		for _, p := range told.Policies {
			want = append(want, fmt.Sprint(p.Policy, p.Applies))
			for _, l := range p.Limits {
				limits = append(limits, fmt.Sprint(l.Limit, l.Remaining))
			}
		}
		for _, m := range shownPolicy.FindAllStringSubmatch(page.body, -1) {
			shown = append(shown, m[2]+m[1])
		}
		for _, m := range shownLimit.FindAllStringSubmatch(page.body, -1) {
			held = append(held, m[1]+m[2])
		}
		if !slices.Equal(shown, want) || !slices.Equal(held, limits) {
			t.Errorf("%s: the page says %v, %v, the API %v, %v", body, shown, held, want, limits)
		}
		headers := map[string]string{}
		for _, m := range shownHeader.FindAllStringSubmatch(strings.ReplaceAll(page.body, "&#34;", `"`), -1) {
			value, _, _ := strings.Cut(m[2], "</code>")
			headers[m[1]] = value
		}
		for _, name := range []string{"RateLimit-Policy", "RateLimit"} {
			// The seconds to the reset may be one less by the time of the check.
			if got, want := untimed(headers[name]), untimed(check.header.Get(name)); got != want {
				t.Errorf("%s: %s on the page is %q, the check was answered %q", body, name, got, want)
			}
		}
	}
	if len(reasons) < 4 {
		t.Errorf("the requests were only answered %v", reasons)
	}
}

var resetSeconds = regexp.MustCompile(`;t=\d+`)

func untimed(header string) string { return resetSeconds.ReplaceAllString(header, ";t") }
