package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A person uses the pages from the first set-up link to the end of the session.
func TestSetUpSignInAndOut(t *testing.T) {
	t.Parallel()
	w := empty(t)
	token, err := w.people.SetupLink(t.Context())
	must(t, err)
	if page := w.get("/setup/"+token, ""); page.Code != http.StatusOK || !strings.Contains(page.body, "Set up Headgate") {
		t.Fatalf("set-up: %d %s", page.Code, page.body)
	}
	form := url.Values{"email": {"ada@example.com"}, "name": {"Ada"}, "password": {password}}
	if page := w.get("/sign-in", ""); !strings.Contains(page.body, "Open the set-up link") {
		t.Error("the sign-in page of a new server does not say where its set-up link is")
	}
	done := w.post("/setup/"+token, "", form)
	if done.Code != http.StatusSeeOther || done.Header().Get("Location") != "/" || done.cookie() == "" {
		t.Fatalf("set-up: %d %v", done.Code, done.Header())
	}
	if page := w.get("/account", done.cookie()); page.Code != http.StatusOK || !strings.Contains(page.body, "ada@example.com") {
		t.Errorf("the first owner is not signed in: %d", page.Code)
	}
	if page := w.get("/sign-in", ""); strings.Contains(page.body, "set-up link") {
		t.Error("the sign-in page speaks of a set-up link when a user exists")
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

// linkOn returns the link that a page shows.
func linkOn(t *testing.T, page reply) string {
	t.Helper()
	for n := range page.tree(t).Descendants() {
		if attr(n, "id") == "link" {
			path, ours := strings.CutPrefix(attr(n, "value"), host)
			if !ours {
				t.Fatalf("the link leads to %s", attr(n, "value"))
			}
			return path
		}
	}
	t.Fatalf("%d: no link on the page", page.Code)
	return ""
}

// An admin invites a member, who joins. Then the admin changes the role, creates a link for a
// new password, which ends the sessions, and disables, enables and removes the member.
func TestAMembersWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const members = "/tenants/acme/members"
	link := linkOn(t, w.once(w.post(members, "acme-admin", url.Values{"email": {"bo@people.example"}, "role": {"tenant_viewer"}}), "acme-admin"))
	if list := w.get(members, "acme-viewer"); !strings.Contains(list.body, "Open invitations") || strings.Contains(list.body, "Withdraw") {
		t.Error("a viewer does not see the invitation, or may withdraw it")
	}
	if list := w.get("/people", "owner"); strings.Contains(list.body, "bo@people.example") {
		t.Error("a tenant's invitation is in the operator's list")
	}
	to := func(what string, r reply, location string) {
		t.Helper()
		if r.Code != http.StatusSeeOther || r.Header().Get("Location") != location {
			t.Fatalf("%s: %d %q, want %q\n%s", what, r.Code, r.Header().Get("Location"), location, r.body)
		}
	}
	if page := w.get(link, ""); !strings.Contains(page.body, "You are invited to Acme Inc. as ") {
		t.Error("the invitation does not name the tenant")
	}
	to("join", w.post(link, "", url.Values{"name": {"Bo"}, "password": {password}, "email": {"other@people.example"}}), "/sign-in?done=joined")
	if again := w.post(link, "", url.Values{"name": {"Bo"}, "password": {password}}); again.Code != http.StatusNotFound {
		t.Errorf("the link works twice: %d", again.Code)
	}
	signIn := func(password string) reply {
		return w.post("/sign-in", "", url.Values{"email": {"bo@people.example"}, "password": {password}})
	}
	in := signIn(password)
	to("sign in", in, "/")
	if page := w.get("/account", in.cookie()); !strings.Contains(page.body, "Tenant viewer") || !strings.Contains(page.body, "Acme Inc.") {
		t.Errorf("not a viewer of acme: %s", page.body)
	}
	users, err := w.people.Users(t.Context(), ownerOf(w), w.ids["acme"], usersFilter)
	must(t, err)
	bo := members + "/"
	for _, u := range users {
		if u.Email == "bo@people.example" {
			bo += u.ID
		}
	}
	to("role", w.post(bo+"/role", "acme-admin", url.Values{"role": {"tenant_admin"}}), bo+"?done=role")
	renew := linkOn(t, w.once(w.post(bo+"/link", "acme-admin", nil), "acme-admin"))
	in = signIn(password)
	to("new password", w.post(renew, "", url.Values{"password": {"nine loud geese at noon"}}), "/sign-in?done=password")
	if page := w.get("/account", in.cookie()); page.Code != http.StatusSeeOther {
		t.Errorf("a session outlives its password: %d", page.Code)
	}
	if old := signIn(password); old.Code != http.StatusUnprocessableEntity {
		t.Errorf("the old password: %d", old.Code)
	}
	to("disable", w.post(bo+"/disable", "acme-admin", nil), bo+"?done=disabled")
	if out := signIn("nine loud geese at noon"); out.Code != http.StatusUnprocessableEntity {
		t.Errorf("disabled: %d", out.Code)
	}
	to("enable", w.post(bo+"/enable", "acme-admin", nil), bo+"?done=enabled")
	to("sign in again", signIn("nine loud geese at noon"), "/")
	to("remove", w.post(bo+"/remove", "acme-admin", url.Values{"confirm": {"bo@people.example"}}), members+"?done=removed")
	if gone := w.get(bo, "acme-admin"); gone.Code != http.StatusNotFound {
		t.Errorf("removed: %d", gone.Code)
	}
}

// A withdrawn invitation is no longer in the list, and its link is invalid.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	link := linkOn(t, w.once(w.post("/people", "owner", url.Values{"email": {"bo@people.example"}, "role": {"viewer"}}), "owner"))
	action := ""
	for n := range w.get("/people", "owner").tree(t).Descendants() {
		if strings.HasSuffix(attr(n, "action"), "/withdraw") {
			action = attr(n, "action")
		}
	}
	if got := w.post(action, "owner", nil); got.Code != http.StatusSeeOther || got.Header().Get("Location") != "/people?done=withdrawn" {
		t.Fatalf("%q: %d", action, got.Code)
	}
	if got := w.get(link, ""); got.Code != http.StatusNotFound {
		t.Errorf("the link still works: %d", got.Code)
	}
	if got := w.post(action, "owner", nil); got.Code != http.StatusNotFound {
		t.Errorf("again: %d", got.Code)
	}
}
