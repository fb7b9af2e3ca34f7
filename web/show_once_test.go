package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// Each form that creates a secret redirects to a page that shows it to the same session,
// until five minutes later. Neither the address nor the cookie contains the secret. The
// secrets are long enough that a cookie does not contain one by chance.
func TestSecretsAreNotTheAnswerToAPost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	forms := map[string]struct {
		path, secret string
		form         url.Values
	}{
		"API key":      {"/tenants/acme/keys", "hg_tn_", url.Values{"name": {"x"}, "scope-check": {"on"}, "life": {"never"}}},
		"operator key": {"/settings/keys", "hg_op_", url.Values{"name": {"x"}, "scope-read": {"on"}, "life": {"never"}}},
		"rotated key":  {"/settings/keys/" + w.ids["operator_key"] + "/rotate", "hg_op_", url.Values{"overlap": {"1h"}}},
		"invitation":   {"/people", "/invite/", url.Values{"email": {"n@people.example"}, "role": {"viewer"}}},
		"member":       {"/tenants/acme/members", "/invite/", url.Values{"email": {"m@people.example"}, "role": {"tenant_viewer"}}},
		"shared link": {
			"/overview/share", "/shared/",
			url.Values{"name": {"x"}, "kind": {"display"}, "life": {"7d"}, "until": {""}, "query": {""}},
		},
		"password": {"/people/" + w.ids["viewer"] + "/link", "/invite/", nil},
	}
	for name, f := range forms {
		made := w.post(f.path, "owner", f.form)
		if made.Code != http.StatusSeeOther || made.body != "" || len(made.Result().Cookies()) != 1 {
			t.Errorf("%s: %d with %d cookies: %s", name, made.Code, len(made.Result().Cookies()), made.body)
			continue
		}
		to, cookie := made.Header().Get("Location"), made.Result().Cookies()[0]
		if cookie.Path != to || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.MaxAge != 300 ||
			strings.Contains(cookie.Value+to, f.secret) {
			t.Errorf("%s: %s, %v", name, to, cookie)
		}
		shown := w.once(made, "owner")
		removed := shown.Result().Cookies()
		if shown.Code != http.StatusOK || !strings.Contains(shown.body, f.secret) || len(removed) != 1 || removed[0].MaxAge >= 0 || removed[0].Path != to {
			t.Errorf("%s: %d %v", name, shown.Code, removed)
		}
		if other := w.once(made, "editor"); strings.Contains(other.body, f.secret) || other.Code == http.StatusOK {
			t.Errorf("%s: another session: %d", name, other.Code)
		}
		if again := w.get(to, "owner"); again.Code != http.StatusGone || strings.Contains(again.body, f.secret) {
			t.Errorf("%s: without the cookie: %d", name, again.Code)
		}
		elsewhere := w.send(http.MethodGet, strings.TrimRight(to, "0123456789abcdef")+strings.Repeat("0", 1), "owner", nil,
			func(r *http.Request) { r.AddCookie(cookie) })
		if elsewhere.Code == http.StatusOK {
			t.Errorf("%s: the cookie opens another address", name)
		}
	}
	made := w.post("/people", "owner", url.Values{"email": {"late@people.example"}, "role": {"viewer"}})
	w.now.Add((5 * time.Minute).Microseconds())
	if late := w.once(made, "owner"); late.Code != http.StatusGone {
		t.Errorf("after five minutes: %d", late.Code)
	}
}
