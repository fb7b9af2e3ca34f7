package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
)

// user adds a user to the database, with values that the API must not show.
func (w *world) user(name, tenant string, role accounts.Role) accounts.User {
	w.t.Helper()
	u := accounts.User{
		ID: uuid.Must(uuid.NewV7()).String(), Email: name + "@example.com", Name: strings.ToUpper(name[:1]) + name[1:], Role: role,
		Password: "$argon2id$secret", Issuer: "https://secret.example", Subject: "secret-" + name, CreatedAt: w.clock().UTC(), UpdatedAt: w.clock().UTC(),
	}
	if tenant != "" {
		t, err := w.tenants.Tenant(w.t.Context(), tenant)
		must(w.t, err)
		u.TenantID = t.ID
	}
	u, err := w.store.CreateUser(w.t.Context(), u, false, audit.Entry{Action: "user.create", Object: u.ID, ObjectName: u.Email, TenantID: u.TenantID, Actor: audit.Actor{Kind: "command", ID: "c", Name: "c"}})
	must(w.t, err)
	return u
}

// populatePeople adds the users of the examples, and one more user at each place.
func (w *world) populatePeople() {
	w.t.Helper()
	w.ids = maps.Clone(w.ids) // the fixture's are everybody's
	for _, tenant := range []string{"acme"} {
		w.ids["01939c1e-0000-7000-8000-000000000091"] = w.user("ann", tenant, accounts.TenantAdmin).ID
		w.user("bob", tenant, accounts.TenantViewer)
	}
	w.ids["01939c1e-0000-7000-8000-0000000000a1"] = w.user("olga", "", accounts.Editor).ID
	w.user("omar", "", accounts.Owner)
}

// hasNoSecrets fails if an answer contains a member of a person that must not be shown.
func (w *world) hasNoSecrets(a answer) answer {
	w.t.Helper()
	for _, secret := range []string{"argon2id", "secret", "password", "issuer", "subject", "hash"} {
		if strings.Contains(strings.ToLower(a.body), secret) {
			w.t.Errorf("%q is shown: %s", secret, a.body)
		}
	}
	return a
}

// A place is a tenant, or the operator, with its users.
type place struct {
	path, key      string // key has manage there
	first, other   string // ids
	role, wrong    string
	actor, firstAt string // kind of actor; e-mail of the first
}

func (w *world) places() []place {
	w.populatePeople()
	ann, olga := w.ids["01939c1e-0000-7000-8000-000000000091"], w.ids["01939c1e-0000-7000-8000-0000000000a1"]
	return []place{
		{"/v1/tenants/acme/members", w.acme, ann, olga, "tenant_viewer", "owner", "tenant_key", "ann@example.com"},
		{"/v1/tenants/acme/members", w.operator, ann, olga, "tenant_viewer", "viewer", "operator_key", "ann@example.com"},
		{"/v1/people", w.operator, olga, ann, "viewer", "tenant_viewer", "operator_key", "olga@example.com"},
	}
}

// Users can be listed, changed with the ETag of the last read, and removed. Each change writes
// an audit entry. No response contains a secret.
func TestPeopleAreManaged(t *testing.T) {
	t.Parallel()
	for at := range 3 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.places()[at]
			do := func(method, path, body, match string) answer {
				t.Helper()
				return w.hasNoSecrets(w.do(call{method: method, path: p.path + path, key: p.key, body: body, header: map[string]string{"If-Match": match}}))
			}
			if a := do("GET", "", "", ""); a.status != 200 || strings.Count(a.body, `"email"`) != 2 || !strings.Contains(a.body, p.firstAt) {
				t.Errorf("list: %d %s", a.status, a.body)
			}
			if a := do("GET", "?q="+p.firstAt[:3], "", ""); strings.Count(a.body, `"email"`) != 1 {
				t.Errorf("list of %s: %s", p.firstAt[:3], a.body)
			}
			for _, id := range []string{p.other, madeUpID, "x"} {
				if a := do("GET", "/"+id, "", ""); a.status != http.StatusNotFound {
					t.Errorf("%s: %d %s", id, a.status, a.body)
				}
			}
			tag := do("GET", "/"+p.first, "", "").header.Get("ETag")
			to := `{"role":"` + p.role + `","disabled":true}`
			for match, want := range map[string]int{"": 428, `"0"`: 412, "W/" + tag: 412} {
				if a := do("PUT", "/"+p.first, to, match); a.status != want {
					t.Errorf("If-Match %s: %d %s", match, a.status, a.body)
				}
			}
			if a := do("PUT", "/"+p.first, strings.Replace(to, p.role, p.wrong, 1), tag); a.status != 422 || !strings.Contains(a.body, `"/role"`) {
				t.Errorf("role %s: %d %s", p.wrong, a.status, a.body)
			}
			a := do("PUT", "/"+p.first, to, tag)
			if a.status != 200 || a.header.Get("ETag") == tag || !strings.Contains(a.body, `"disabled":true`) || !strings.Contains(a.body, `"role":"`+p.role+`"`) {
				t.Errorf("PUT: %d %s", a.status, a.body)
			}
			w.lastLine("user.update", p)
			if a := do("DELETE", "/"+p.other, "", ""); a.status != 404 {
				t.Errorf("DELETE elsewhere: %d %s", a.status, a.body)
			}
			if a := do("DELETE", "/"+p.first, "", ""); a.status != 204 {
				t.Errorf("DELETE: %d %s", a.status, a.body)
			}
			w.lastLine("user.remove", p)
			if a := do("GET", "/"+p.first, "", ""); a.status != 404 {
				t.Errorf("removed: %d %s", a.status, a.body)
			}
		})
	}
}

// lastLine compares the newest line of the audit log with the action of a key.
func (w *world) lastLine(action string, p place) audit.Entry {
	w.t.Helper()
	lines, err := w.store.AuditEntries(w.t.Context(), audit.Filter{Limit: 1})
	must(w.t, err)
	l := lines[0]
	if l.Action != action || l.Actor.Kind != p.actor || l.Origin.RequestID == "" || (l.TenantID == "") != (p.path == "/v1/people") {
		w.t.Errorf("the line of %s is %+v", action, l)
	}
	if text := string(l.Before) + string(l.After); strings.Contains(text, "argon2id") {
		w.t.Errorf("the line shows a password: %s", text)
	}
	return l
}

// The link of an invitation can be used once, for its tenant and role. The token is only in the
// response.
func TestPeopleAreInvited(t *testing.T) {
	t.Parallel()
	for at := range 3 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.places()[at]
			invite := func(email, role string) answer {
				t.Helper()
				return w.hasNoSecrets(w.do(call{method: "POST", path: p.path, key: p.key, body: `{"email":"` + email + `","role":"` + role + `"}`}))
			}
			for _, c := range []struct {
				email, role, has string
				status           int
			}{
				{"new@example.com", p.wrong, `"/role"`, 422},
				{"new@example.com", "root", `"/role"`, 422},
				{"nobody", p.role, `"/email"`, 422},
				{strings.ToUpper(p.firstAt), p.role, "email_taken", 409},
			} {
				if a := invite(c.email, c.role); a.status != c.status || !strings.Contains(a.body, c.has) {
					t.Errorf("%s as %s: %d %s", c.email, c.role, a.status, a.body)
				}
			}
			a := invite("new@example.com", p.role)
			var made struct {
				Token, Link string
				Invitation  struct{ ID string }
			}
			must(t, json.Unmarshal([]byte(a.body), &made))
			if a.status != 201 || made.Link != "/invite/"+made.Token || made.Invitation.ID == "" {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if l := w.lastLine("user.invite", p); strings.Contains(string(l.After), made.Token) || l.Object != made.Invitation.ID {
				t.Errorf("the line is %+v", l)
			}
			u, err := w.people.Accept(t.Context(), made.Token, accounts.NewPerson{Name: "New", Password: "nine brave otters swim"})
			must(t, err)
			if string(u.Role) != p.role || u.Email != "new@example.com" {
				t.Errorf("%+v", u)
			}
			if _, err := w.people.Accept(t.Context(), made.Token, accounts.NewPerson{Name: "New", Password: "nine brave otters swim"}); err == nil {
				t.Error("the link works twice")
			}
			if a := w.hasNoSecrets(w.do(call{method: "GET", path: p.path + "/" + u.ID, key: p.key})); a.status != 200 || !strings.Contains(a.body, `"name":"New"`) {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
}

// The last owner cannot be removed.
func TestLastOwnerStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.user("omar", "", accounts.Owner)
	for _, c := range []call{
		{method: "DELETE", path: "/v1/people/" + owner.ID},
		{method: "PUT", path: "/v1/people/" + owner.ID, body: `{"role":"viewer","disabled":false}`},
		{method: "PUT", path: "/v1/people/" + owner.ID, body: `{"role":"owner","disabled":true}`},
	} {
		c.key, c.header = w.operator, map[string]string{"If-Match": "*"}
		if a := w.do(c); a.status != 409 || !strings.Contains(a.body, "last_owner") {
			t.Errorf("%s %s: %d %s", c.method, c.body, a.status, a.body)
		}
	}
}

// An invitation is listed until it is withdrawn. Its link is invalid afterwards.
func TestInvitationsAreWithdrawn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct{ key, invite, list, role string }{
		{w.acme, "/v1/tenants/acme/members", "/v1/tenants/acme/invitations", "tenant_viewer"},
		{w.operator, "/v1/people", "/v1/invitations", "viewer"},
	} {
		var ids []string
		for _, name := range []string{"a", "b", "c"} {
			a := w.do(call{method: "POST", path: c.invite, key: c.key, body: `{"email":"` + name + `@example.com","role":"` + c.role + `"}`})
			var made struct {
				Token      string
				Invitation struct{ ID string }
			}
			must(t, json.Unmarshal([]byte(a.body), &made))
			if ids = append(ids, made.Invitation.ID); made.Token == "" || strings.Contains(w.do(call{method: "GET", path: c.list, key: c.key}).body, made.Token) {
				t.Errorf("%s: %s", c.list, a.body)
			}
		}
		listed := func(path string) (found []string, next string) {
			var page struct {
				Data []struct{ ID string }
				Next string `json:"next_cursor"`
			}
			must(t, json.Unmarshal([]byte(w.hasNoSecrets(w.do(call{method: "GET", path: path, key: c.key})).body), &page))
			for _, i := range page.Data {
				found = append(found, i.ID)
			}
			return found, page.Next
		}
		first, next := listed(c.list + "?limit=2")
		rest, end := listed(c.list + "?limit=2&cursor=" + next)
		if !slices.Equal(append(first, rest...), ids) || end != "" {
			t.Errorf("%s: %v %v, want %v", c.list, first, rest, ids)
		}
		for _, status := range []int{204, 404} {
			if a := w.do(call{method: "DELETE", path: c.list + "/" + ids[1], key: c.key}); a.status != status {
				t.Errorf("%s: %d %s", c.list, a.status, a.body)
			}
		}
		if left, _ := listed(c.list); !slices.Equal(left, []string{ids[0], ids[2]}) {
			t.Errorf("%s: %v", c.list, left)
		}
	}
}

// Issue 13: the second factor of a person who has lost it is reset with an audit line, and only where the person is.
func TestResetSecondFactor(t *testing.T) {
	t.Parallel()
	for at := range 3 {
		w := newWorld(t)
		p := w.places()[at]
		_, err := w.store.AddFactor(t.Context(), accounts.Factor{ID: uuid.Must(uuid.NewV7()).String(), UserID: p.first, Kind: accounts.TOTP, Name: "phone", Data: []byte{0, 1}}, make([][32]byte, 1), "", audit.Entry{Action: "second_factor.add", Object: p.first})
		must(t, err)
		one := p.path + "/" + p.first
		if a := w.do(call{method: "GET", path: one, key: p.key}); !strings.Contains(a.body, `"second_factor":true`) {
			t.Fatal(a)
		}
		if a := w.do(call{method: "DELETE", path: p.path + "/" + p.other + "/second-factor", key: p.key}); a.status != 404 {
			t.Errorf("%s: somebody else's: %+v", p.path, a)
		}
		if a := w.do(call{method: "DELETE", path: one + "/second-factor", key: w.operatorRead}); a.status != 403 {
			t.Errorf("%s: without the scope manage: %+v", p.path, a)
		}
		if a := w.do(call{method: "DELETE", path: one + "/second-factor", key: p.key}); a.status != 204 || a.body != "" {
			t.Errorf("%s: %+v", p.path, a)
		}
		if a := w.do(call{method: "GET", path: one, key: p.key}); !strings.Contains(a.body, `"second_factor":false`) {
			t.Errorf("%s: %s", p.path, a.body)
		}
		if a := w.do(call{method: "DELETE", path: one + "/second-factor", key: p.key}); a.status != 409 || !strings.Contains(a.body, `"code":"no_second_factor"`) {
			t.Errorf("%s: again: %+v", p.path, a)
		}
		factors, codes, err := w.store.Factors(t.Context(), p.first)
		must(t, err)
		lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Action: "second_factor.reset", Limit: 10})
		must(t, err)
		if len(factors) != 0 || codes != 0 || len(lines) != 1 || lines[0].Object != p.first || lines[0].Actor.Kind != p.actor {
			t.Errorf("%s: %d factors, %d codes; %+v", p.path, len(factors), codes, lines)
		}
	}
}

// A key of a tenant gets the same answers about an invitation of an address without an account, of one with an account of
// the operator, and of one with an account of another tenant: when it creates, lists, repeats, and withdraws the
// invitation. Their e-mails and audit lines are alike too.
func TestInvitationsAreAlike(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.populatePeople()
	w.user("gina", "globex", accounts.TenantAdmin)
	perInvitation := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|"(token|link)":"[^"]+"|[a-z]+@example\.com|\d{4}-\d{2}-\d{2}T[0-9:.]+Z`)
	var first []string
	for _, email := range []string{"nobody@example.com", "olga@example.com", "gina@example.com"} {
		var said []string
		ask := func(method, path, body string) answer {
			t.Helper()
			a := w.hasNoSecrets(w.do(call{method: method, path: "/v1/tenants/acme" + path, key: w.acme, body: body}))
			said = append(said, fmt.Sprint(method, path, " ", a.status, perInvitation.ReplaceAllString(a.body, "…")))
			return a
		}
		ids := []string{}
		for range 2 {
			var made struct{ Invitation struct{ ID string } }
			must(t, json.Unmarshal([]byte(ask("POST", "/members", `{"email":"`+email+`","role":"tenant_viewer"}`).body), &made))
			ids = append(ids, made.Invitation.ID)
		}
		ask("GET", "/invitations", "")
		ask("GET", "/members", "")
		for _, id := range ids {
			if a := w.do(call{method: "DELETE", path: "/v1/tenants/acme/invitations/" + id, key: w.acme}); a.status != http.StatusNoContent {
				t.Errorf("%s: withdraw: %d %s", email, a.status, a.body)
			}
		}
		lines, err := w.store.AuditEntries(t.Context(), audit.Filter{Limit: 4})
		must(t, err)
		for _, l := range lines {
			said = append(said, perInvitation.ReplaceAllString(fmt.Sprint(l.Action, l.Actor.Kind, string(l.Before), string(l.After)), "…"))
		}
		if first == nil {
			first = said
		}
		for i := range said {
			if said[i] != first[i] {
				t.Errorf("%s differs from nobody@example.com:\n%s\n%s", email, said[i], first[i])
			}
		}
	}
}
