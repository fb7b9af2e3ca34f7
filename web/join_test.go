package web_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// perLink matches the parts of pages and headers that differ between two links.
var perLink = regexp.MustCompile(`/invite/[A-Za-z0-9_-]+|[0-9a-f]{8}-[0-9a-f-]{27}|[a-z]+@(?:people|new)\.example`)

// The admin of a tenant invites three addresses: one without an account, one with an account of
// the operator, and one with an account of another tenant. Every response until the second use
// of the link has the same status, headers and text.
func TestJoiningShowsNoOtherAccounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const good = "a long enough phrase 7"
	var first []string
	for _, email := range []string{"nobody@new.example", "viewer@people.example", "globex-admin@people.example"} {
		var got []string
		said := func(r reply) reply {
			text := fmt.Sprint(r.Code, " ", r.Header().Get("Location"), " ", r.body)
			for _, name := range slices.Sorted(maps.Keys(r.Header())) {
				if name != "X-Request-Id" && name != "Location" && name != "Content-Length" {
					text += fmt.Sprint(name, r.Header()[name])
				}
			}
			got = append(got, perLink.ReplaceAllString(strings.ReplaceAll(text, email, "a@new.example"), "…"))
			return r
		}
		invited := w.post("/tenants/acme/members", "acme-admin", url.Values{"email": {email}, "role": {"tenant_viewer"}})
		made := said(w.once(invited, "acme-admin"))
		link := regexp.MustCompile(`/invite/[A-Za-z0-9_-]+`).FindString(made.body)
		if made.Code >= 400 || link == "" {
			t.Fatalf("%s: %d %s", email, made.Code, made.body)
		}
		said(w.get(link, ""))
		said(w.post(link, "", url.Values{"name": {"Eve"}, "password": {"short"}}))
		said(w.post(link, "", url.Values{"name": {""}, "password": {good}}))
		joined := said(w.post(link, "", url.Values{"name": {"Eve"}, "password": {good}}))
		to(t, email, joined, "/sign-in?done=joined")
		said(w.get("/sign-in?done=joined", ""))
		said(w.get(link, ""))
		if again := said(w.post(link, "", url.Values{"name": {"Eve"}, "password": {good}})); again.Code != http.StatusNotFound {
			t.Errorf("%s: used twice: %d", email, again.Code)
		}
		said(w.post("/sign-in", "", url.Values{"email": {email}, "password": {"not this phrase 8"}}))
		if first == nil {
			first = got
		}
		for i := range got {
			if got[i] != first[i] {
				t.Errorf("%s, answer %d differs:\n%s\n%s", email, i, got[i], first[i])
			}
		}
	}
}
