package storetest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
)

func testUserLife(s *suite) {
	acme := s.tenant("acme", "")
	ask := s.newUser(accounts.TenantAdmin, acme.ID)
	ask.Email, ask.Name = "Ädele@Example.COM", "Ädele"
	ask.Issuer, ask.Subject = "https://id.example.com", "42"
	made, err := s.Store.CreateUser(s.ctx, ask, false, entry("user.create"))
	s.must(err)
	want := ask
	want.ID, want.CreatedAt, want.UpdatedAt, want.Revision = made.ID, s.Clock.stored(), s.Clock.stored(), s.revision()
	s.same("made", made, want)
	for how, find := range map[string]func() (accounts.User, error){
		"by id":                  func() (accounts.User, error) { return s.Other.User(s.ctx, made.ID) },
		"by address in any case": func() (accounts.User, error) { return s.Other.UserByEmail(s.ctx, "äDELE@example.com") },
		"by subject": func() (accounts.User, error) {
			return s.Other.UserBySubject(s.ctx, "https://id.example.com", "42")
		},
	} {
		got, err := find()
		s.must(err)
		s.same(how, got, want)
	}

	s.Clock.Add(time.Hour)
	want.Name, want.Role, want.Password, want.Issuer, want.Subject = "A", accounts.TenantViewer, "", "https://other", "43"
	asked := want
	asked.Email = "other@example.com" // an address stays
	changed, err := s.Store.UpdateUser(s.ctx, asked, made.Revision, "", entry("user.update"))
	s.must(err)
	want.UpdatedAt, want.Revision = s.Clock.stored(), s.revision()
	s.same("changed", changed, want)
	list, err := s.Store.Users(s.ctx, accounts.UserFilter{TenantID: acme.ID})
	s.must(err)
	s.same("listed", list, []accounts.User{want})

	s.must(s.Store.DeleteUser(s.ctx, made.ID, entry("user.delete")))
	_, err = s.Store.User(s.ctx, made.ID)
	s.wantKind(err, problem.NotFound, "")
	_, err = s.Store.CreateUser(s.ctx, ask, false, entry("user.create")) // the address and the provider identity can be used again
	s.must(err)
	if c := s.since(changed.Revision); len(c.Removed) != 0 {
		s.Errorf("people left tombstones: %v", c.Removed)
	}
}

func testUserRefusals(s *suite) {
	acme, other := s.tenant("acme", ""), s.tenant("other", "")
	is := s.newUser(accounts.Editor, "")
	is.Issuer, is.Subject = "https://id", "1"
	is, err := s.Store.CreateUser(s.ctx, is, false, entry("user.create"))
	s.must(err)
	member := s.user(accounts.TenantViewer, acme.ID)
	before := s.revision()

	create := func(change func(*accounts.User)) error {
		u := s.newUser(accounts.Viewer, "")
		change(&u)
		_, err := s.Store.CreateUser(s.ctx, u, false, entry("user.create"))
		return err
	}
	s.wantKind(create(func(u *accounts.User) { u.Email = strings.ToUpper(is.Email) }), problem.Conflict, "email_taken")
	s.wantKind(create(func(u *accounts.User) { u.Issuer, u.Subject = "https://id", "1" }), problem.Conflict, "link_taken")
	s.wantKind(create(func(u *accounts.User) { u.ID = is.ID }), problem.Conflict, "already_exists")
	s.wantKind(create(func(u *accounts.User) { u.Role, u.TenantID = accounts.TenantAdmin, nobody }), problem.NotFound, "")
	s.wantKind(create(func(u *accounts.User) { u.TenantID = acme.ID }), problem.Invalid, "")            // an operator's role
	s.wantKind(create(func(u *accounts.User) { u.Role = accounts.TenantAdmin }), problem.Invalid, "")   // without a tenant
	s.wantKind(create(func(u *accounts.User) { u.Role = "root" }), problem.Invalid, "")                 //
	s.wantKind(create(func(u *accounts.User) { u.Email = "" }), problem.Invalid, "")                    //
	s.wantKind(create(func(u *accounts.User) { u.Issuer = "https://id without" }), problem.Invalid, "") // a subject

	update := func(u accounts.User, revision int64, change func(*accounts.User)) error {
		change(&u)
		_, err := s.Store.UpdateUser(s.ctx, u, revision, "", entry("user.update"))
		return err
	}
	s.wantKind(update(is, is.Revision-1, func(*accounts.User) {}), problem.Stale, "")
	s.wantKind(update(is, is.Revision, func(u *accounts.User) { u.ID = nobody }), problem.NotFound, "")
	s.wantKind(update(is, is.Revision, func(u *accounts.User) { u.Role = accounts.TenantAdmin }), problem.Invalid, "")
	s.wantKind(update(member, member.Revision, func(u *accounts.User) { u.TenantID = other.ID }), problem.NotFound, "")
	s.wantKind(update(member, member.Revision, func(u *accounts.User) { u.TenantID, u.Role = "", accounts.Owner }), problem.NotFound, "")
	s.wantKind(update(member, member.Revision, func(u *accounts.User) { u.Issuer, u.Subject = "https://id", "1" }), problem.Conflict,
		"link_taken")
	s.wantKind(s.Store.DeleteUser(s.ctx, nobody, entry("user.delete")), problem.NotFound, "")
	for _, find := range []func() (accounts.User, error){
		func() (accounts.User, error) { return s.Store.User(s.ctx, nobody) },
		func() (accounts.User, error) { return s.Store.UserByEmail(s.ctx, "") },
		func() (accounts.User, error) { return s.Store.UserBySubject(s.ctx, "", "") },
		func() (accounts.User, error) { return s.Store.UserBySubject(s.ctx, "https://ID", "1") },
	} {
		_, err := find()
		s.wantKind(err, problem.NotFound, "")
	}
	got, err := s.Store.Users(s.ctx, accounts.UserFilter{})
	s.must(err)
	s.same("users after refusals", got, []accounts.User{is, member})
	if n := s.revision(); n != before {
		s.Errorf("refusals took the revision from %d to %d", before, n)
	}
}

func testUserFilter(s *suite) {
	acme, other := s.tenant("acme", ""), s.tenant("other", "")
	named := func(email, name string, role accounts.Role, tenantID string) string {
		u, err := s.Store.CreateUser(s.ctx, accounts.User{Email: email, Name: name, Role: role, TenantID: tenantID}, false, entry("user.create"))
		s.must(err)
		return u.ID
	}
	a := named("ada@example.com", "Ädele 100%", accounts.Owner, "")
	b := named("bob@example.com", "ADA_B", accounts.Viewer, "")
	c := named("cy@example.com", "Cy", accounts.TenantAdmin, acme.ID)
	d := named("di@example.com", "Ada's twin", accounts.TenantViewer, other.ID)
	for _, test := range []struct {
		what string
		f    accounts.UserFilter
		want []string
	}{
		{"all", accounts.UserFilter{}, []string{a, b, c, d}},
		{"the operator's", accounts.UserFilter{Operator: true}, []string{a, b}},
		{"of a tenant", accounts.UserFilter{TenantID: acme.ID}, []string{c}},
		{"of no tenant", accounts.UserFilter{TenantID: "nobody"}, nil},
		{"a tenant goes before the operator", accounts.UserFilter{TenantID: acme.ID, Operator: true}, []string{c}},
		{"address or name, any case", accounts.UserFilter{Query: "ADA"}, []string{a, b, d}},
		{"letters beyond ASCII", accounts.UserFilter{Query: "äDELE"}, []string{a}},
		{"an underscore is itself", accounts.UserFilter{Query: "_"}, []string{b}},
		{"together", accounts.UserFilter{Query: "ada", TenantID: other.ID}, []string{d}},
		{"a page", accounts.UserFilter{After: a, Limit: 2}, []string{b, c}},
		{"the last page", accounts.UserFilter{After: c, Limit: 2}, []string{d}},
	} {
		list, err := s.Store.Users(s.ctx, test.f)
		s.must(err)
		s.same(test.what, ids(list, userID), test.want)
	}
}

func testSetup(s *suite) {
	const people = 6
	made, refused := s.atOnce(people, func(at Store, i int) error {
		u := accounts.User{Email: fmt.Sprintf("u%d@example.com", i), Name: "U", Role: accounts.Owner, Password: "x"}
		_, err := at.CreateUser(s.ctx, u, true, entry("user.create"))
		return err
	})
	if made != 1 {
		s.Errorf("%d first users", made)
	}
	for _, err := range refused {
		s.wantKind(err, problem.Conflict, "already_set_up")
	}
}

// atOnce calls do n times concurrently, in two processes, and returns the number of successes.
func (s *suite) atOnce(n int, do func(at Store, i int) error) (well int, refused []error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range n {
		at := s.Store
		if i%2 == 1 {
			at = s.Other
		}
		wg.Go(func() {
			err := do(at, i)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				well++
			} else {
				refused = append(refused, err)
			}
		})
	}
	wg.Wait()
	return well, refused
}

func testLastOwner(s *suite) {
	owner := s.user(accounts.Owner, "")
	s.user(accounts.Editor, "")
	// None of these users can sign in as an owner.
	disabled, powerless := s.newUser(accounts.Owner, ""), s.newUser(accounts.Owner, "")
	disabled.Disabled, powerless.Password = true, ""
	for _, u := range []accounts.User{disabled, powerless} {
		_, err := s.Store.CreateUser(s.ctx, u, false, entry("user.create"))
		s.must(err)
	}
	before := s.revision()
	for what, change := range map[string]func(*accounts.User){
		"demoted": func(u *accounts.User) { u.Role = accounts.Editor }, "disabled": func(u *accounts.User) { u.Disabled = true },
		"without a way in": func(u *accounts.User) { u.Password = "" },
	} {
		u := owner
		change(&u)
		_, err := s.update(u)
		s.Log(what)
		s.wantKind(err, problem.Conflict, "last_owner")
	}
	s.wantKind(s.Store.DeleteUser(s.ctx, owner.ID, entry("user.delete")), problem.Conflict, "last_owner")
	got, err := s.Store.User(s.ctx, owner.ID)
	s.must(err)
	s.same("the owner after that", got, owner)
	if n := s.revision(); n != before {
		s.Errorf("refusals took the revision from %d to %d", before, n)
	}

	owner.Name = "Another name"
	owner, err = s.update(owner)
	s.must(err)
	owner.Password, owner.Issuer, owner.Subject = "", "https://id", "1" // another way in
	owner, err = s.update(owner)
	s.must(err)
	s.user(accounts.Owner, "")
	owner.Role = accounts.Viewer
	_, err = s.update(owner)
	s.must(err)
}

func testLastOwnerAtOnce(s *suite) {
	for round := range 5 {
		owners := []accounts.User{s.user(accounts.Owner, ""), s.user(accounts.Owner, "")}
		well, refused := s.atOnce(2, func(at Store, i int) error {
			if round%2 == 0 {
				return at.DeleteUser(s.ctx, owners[i].ID, entry("user.delete"))
			}
			owners[i].Role = accounts.Editor
			_, err := at.UpdateUser(s.ctx, owners[i], owners[i].Revision, "", entry("user.update"))
			return err
		})
		if well != 1 {
			s.Fatalf("%d of two owners left", well)
		}
		s.wantKind(refused[0], problem.Conflict, "last_owner")
		s.clear()
	}
}

// clear deletes all people directly in the database.
func (s *suite) clear() {
	s.Helper()
	s.must(s.Exec(`DELETE FROM users`))
}

func testTenantPeople(s *suite) {
	acme, other := s.tenant("acme", ""), s.tenant("other", "")
	member, stays := s.user(accounts.TenantAdmin, acme.ID), s.user(accounts.TenantAdmin, other.ID)
	gone, kept := s.session(member.ID), s.session(stays.ID)
	s.invite(accounts.Invitation{Email: "new@example.com", Role: accounts.TenantViewer, TenantID: acme.ID})
	s.invite(accounts.Invitation{Email: member.Email, Role: member.Role, TenantID: acme.ID, UserID: member.ID})
	link := s.invite(accounts.Invitation{Email: "new2@example.com", Role: accounts.TenantViewer, TenantID: other.ID})
	s.must(s.Store.DeleteTenant(s.ctx, acme.ID, acme.Revision, entry("tenant.delete")))
	users, err := s.Store.Users(s.ctx, accounts.UserFilter{})
	s.must(err)
	s.same("users", ids(users, userID), []string{stays.ID})
	links, err := s.Store.Invitations(s.ctx, accounts.UserFilter{})
	s.must(err)
	s.same("invitations", ids(links, invitationID), []string{link.ID})
	if s.signedIn(gone) || !s.signedIn(kept) {
		s.Error("a session outlived its tenant, or another's did not")
	}
}
