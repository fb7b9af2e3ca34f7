package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// From the link of the first run to the end of the session, as a person goes.
func TestSetUpSignInAndOut(t *testing.T) {
	t.Parallel()
	w := empty(t)
	token, err := w.people.SetupLink(t.Context())
	must(t, err)
	if page := w.get("/setup/"+token, ""); page.Code != http.StatusOK || !strings.Contains(page.body, "Set up Headgate") {
		t.Fatalf("set-up: %d %s", page.Code, page.body)
	}
	form := url.Values{"email": {"ada@example.com"}, "name": {"Ada"}, "password": {password}}
	if done := w.post("/setup/"+token, "", form); done.Code != http.StatusSeeOther || done.Header().Get("Location") != "/sign-in?done=joined" || done.cookie() != "" {
		t.Fatalf("set-up: %d %v", done.Code, done.Header())
	}
	for _, path := range []string{"/setup/" + token, "/setup/none", "/invite/" + token} {
		if again := w.get(path, ""); again.Code != http.StatusNotFound || !strings.Contains(again.body, "This link does not work") {
			t.Errorf("%s afterwards: %d", path, again.Code)
		}
	}
	in := w.post("/sign-in", "", url.Values{"email": {"ADA@example.com"}, "password": {password}, "next": {"/people"}})
	if in.Code != http.StatusSeeOther || in.Header().Get("Location") != "/people" || in.cookie() == "" {
		t.Fatalf("sign-in: %d %v", in.Code, in.Header())
	}
	if page := w.get("/account", in.cookie()); page.Code != http.StatusOK || !strings.Contains(page.body, "ada@example.com") {
		t.Fatalf("account: %d %s", page.Code, page.body)
	}
	out := w.post("/sign-out", in.cookie(), nil)
	if out.Code != http.StatusSeeOther || out.Header().Get("Location") != "/sign-in?done=left" {
		t.Fatalf("sign-out: %d %v", out.Code, out.Header())
	}
	if page := w.get("/account", in.cookie()); page.Code != http.StatusSeeOther || page.Header().Get("Location") != "/sign-in?next=%2Faccount" {
		t.Errorf("the cookie still works after sign-out: %d %v", page.Code, page.Header())
	}
}
