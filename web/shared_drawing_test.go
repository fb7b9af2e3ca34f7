package web_test

import (
	"fmt"
	"maps"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
)

// Two people with the same rights who look at the same page with the same query share one drawing, and see the same. A
// person with other rights, and another query, have their own.
func TestPeopleShareOneDrawing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, live)
	ctx := audit.With(t.Context(), audit.Actor{Kind: "command", ID: "test", Name: "test"}, audit.Origin{})
	const email = "viewer2@people.example"
	_, token, err := w.people.Invite(ctx, accounts.CommandPrincipal("test"), "", email, accounts.Viewer)
	must(t, err)
	_, err = w.people.Accept(ctx, token, accounts.NewPerson{Email: email, Name: "Viewer 2", Password: password})
	must(t, err)
	cookie, _, _, err := w.people.SignIn(ctx, email, password, "192.0.2.1", "Firefox/140.0")
	must(t, err)
	w.cookies = maps.Clone(w.cookies) // other tests use the map of the fixture
	w.cookies["viewer2"] = cookie

	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	seen := map[string]string{}
	for i, c := range []struct {
		by, path string
		want     string // number of streams of each drawing
	}{
		{"viewer", "/overview/live?route=/a", "[1]"},
		{"viewer2", "/overview/live?route=/a", "[2]"},
		{"viewer", "/overview/live?route=/b", "[1 2]"},
		{"owner", "/overview/live?route=/a", "[1 1 2]"},
		{"viewer2", "/overview/live?route=/b", "[1 2 2]"},
	} {
		events := w.listenAt(t, server, c.path, c.by)
		first := next(t, events, fmt.Sprint("the first event of stream ", i), func(e event) bool { return e.name != "beat" })
		if got := fmt.Sprint(w.shell.Drawings()); got != c.want {
			t.Errorf("%s looks at %s: the drawings have %s streams, want %s", c.by, c.path, got, c.want)
		}
		if before, known := seen[c.path]; known && c.by != "owner" && before != first.data {
			t.Errorf("%s sees another page at %s", c.by, c.path)
		} else if !known {
			seen[c.path] = first.data
		}
	}
}
