package web_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/headgate/headgate/internal/accounts"
)

// A jar has the cookies of a browser that a test plays.
type jar map[string]string

func (w *world) play(t *testing.T, j jar, method, path string, f url.Values) reply {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, host+path, strings.NewReader(f.Encode()))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for name, value := range j {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, r)
	for _, c := range answer.Result().Cookies() {
		if j[c.Name] = c.Value; c.MaxAge < 0 {
			delete(j, c.Name)
		}
	}
	return reply{ResponseRecorder: answer, body: answer.Body.String()}
}

// hidden returns the value of a hidden field of a page.
func hidden(t *testing.T, page reply, name string) string {
	t.Helper()
	for n := range page.tree(t).Descendants() {
		if n.Data == "input" && attr(n, "name") == name {
			return attr(n, "value")
		}
	}
	t.Fatalf("the page has no field %s: %s", name, page.Body)
	return ""
}

// A person adds an authenticator app on pages without JavaScript and signs in with it. With the
// password alone, no page can be opened.
func TestSecondFactorPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	who := jar{}
	users, err := w.people.Users(t.Context(), accounts.CommandPrincipal("test"), "", accounts.UserFilter{Query: "viewer"})
	must(t, err)
	email := users[0].Email
	signIn := func(j jar, next string) reply {
		return w.play(t, j, http.MethodPost, "/sign-in", url.Values{"email": {email}, "password": {password}, "next": {next}})
	}
	leads := func(what string, got reply, to string) {
		t.Helper()
		if got.Code != http.StatusSeeOther || !strings.HasPrefix(got.Header().Get("Location"), to) {
			t.Fatalf("%s: %d to %q\n%s", what, got.Code, got.Header().Get("Location"), got.Body)
		}
	}
	leads("the password without a second factor", signIn(who, ""), "/")
	page := w.play(t, who, http.MethodGet, "/account/second-factor/app", nil)
	secret := hidden(t, page, "secret")
	code := func(steps int) string {
		code, err := totp.GenerateCode(secret, time.UnixMicro(w.now.Load()).Add(time.Duration(steps)*30*time.Second))
		must(t, err)
		return code
	}
	add := func(code string) reply {
		return w.play(t, who, http.MethodPost, "/account/second-factor/app", url.Values{"secret": {secret}, "code": {code}, "name": {"Phone"}})
	}
	if wrong := add("000000"); wrong.Code != http.StatusUnprocessableEntity || hidden(t, wrong, "secret") != secret {
		t.Errorf("a wrong code: %d", wrong.Code)
	}
	if got := w.play(t, who, http.MethodGet, "/account/second-factor/passkey", nil); !strings.Contains(got.body, "need https and a host name") || strings.Contains(got.body, "data-passkey") {
		t.Errorf("a passkey over plain HTTP: %d %s", got.Code, got.body)
	}
	added := add(code(0))
	leads("the right code", added, "/account/second-factor/codes/")
	once := added.Header().Get("Location")
	codes := w.play(t, who, http.MethodGet, once, nil)
	if codes.Code != http.StatusOK || strings.Count(textOf(codes.tree(t)), "-") < 30 {
		t.Errorf("the recovery codes: %d %s", codes.Code, codes.Body)
	}
	if again := w.play(t, who, http.MethodGet, once, nil); again.Code != http.StatusGone {
		t.Errorf("the recovery codes a second time: %d", again.Code)
	}

	// Two tabs of another browser.
	thief := jar{}
	leads("the password", signIn(thief, "/plans"), "/sign-in/second?next=")
	if _, has := thief["headgate"]; has || thief["headgate-second"] == "" || thief["headgate-browser"] != "" {
		t.Fatalf("the password gives the cookies %v", thief)
	}
	pending := thief["headgate-second"]
	for _, cookie := range []string{"headgate-second", "headgate"} {
		for _, path := range []string{"/overview", "/account", "/account/second-factor", "/account/second-factor/app", "/people", "/jump"} {
			leads(cookie+" "+path, w.play(t, jar{cookie: pending}, http.MethodGet, path, nil), "/sign-in?next=")
		}
		leads(cookie+" a write", w.play(t, jar{cookie: pending}, http.MethodPost, "/account/name", url.Values{"name": {"x"}}), "/sign-in")
	}
	if got := w.play(t, thief, http.MethodGet, "/sign-in/second", nil); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), "one-time-code") {
		t.Errorf("the second step: %d", got.Code)
	}
	second := func(j jar, code string) reply {
		return w.play(t, j, http.MethodPost, "/sign-in/second", url.Values{"code": {code}, "next": {"/plans"}})
	}
	if got := second(thief, "123 456"); got.Code != http.StatusUnprocessableEntity || thief["headgate"] != "" {
		t.Errorf("a wrong code: %d", got.Code)
	}
	if got := second(thief, code(0)); got.Code != http.StatusUnprocessableEntity {
		t.Errorf("a replayed code: %d", got.Code)
	}
	tab := jar{"headgate-second": pending}
	leads("the code", second(thief, code(1)), "/plans")
	if got := w.play(t, thief, http.MethodGet, "/account", nil); got.Code != http.StatusOK || thief["headgate-second"] != "" || thief["headgate-browser"] == "" {
		t.Errorf("signed in: %d with %v", got.Code, thief)
	}
	if got := second(tab, code(1)); got.Code != http.StatusUnprocessableEntity || !strings.Contains(got.Body.String(), "another tab") {
		t.Errorf("the other tab: %d", got.Code)
	}
	leads("the other tab of a browser that is signed in", second(jar{"headgate-second": pending, "headgate": thief["headgate"]}, code(1)), "/plans")

	// An owner resets the second factor.
	if got := w.get("/people/"+users[0].ID, "owner"); !strings.Contains(got.Body.String(), "reset-second-factor") {
		t.Errorf("the page of the person: %s", got.Body)
	}
	leads("the reset", w.post("/people/"+users[0].ID+"/reset-second-factor", "owner", nil), "/people/"+users[0].ID+"?done=factor-reset")
	leads("the session after the reset", w.play(t, thief, http.MethodGet, "/account", nil), "/sign-in")
	leads("the password after the reset", signIn(jar{}, ""), "/")
}
