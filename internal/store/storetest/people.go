package storetest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// peopleTests are those of accounts.PeopleStore.
var peopleTests = []struct {
	name string
	run  func(*suite)
}{
	{"users are made, read, changed and removed", testUserLife},
	{"a user's writes are refused for a reason", testUserRefusals},
	{"users are found by tenant, address and name", testUserFilter},
	{"the first user is made once", testSetup},
	{"an owner who can sign in stays", testLastOwner},
	{"two owners who leave at once do not both", testLastOwnerAtOnce},
	{"a tenant goes with its people", testTenantPeople},
	{"sessions begin, are seen and end", testSessionLife},
	{"sessions are over by the caller's time", testSessionOver},
	{"a change of rights ends sessions and links", testSessionsOfAChangedUser},
	{"what is over is removed in pieces", testEndOverSessions},
	{"invitations make users, once", testInvitationLife},
	{"invitations are refused for a reason", testInvitationRefusals},
	{"of many who take an invitation at once one does", testInvitationAtOnce},
	{"a link gives somebody who exists another password", testPasswordLink},
	{"writes of people leave one line each", testPeopleLines},
	{"a line that cannot be written stops what people do", testPeopleAuditFailure},
}

// newUser is a person with a password; tenantID "" is the operator's.
func (s *suite) newUser(role accounts.Role, tenantID string) accounts.User {
	s.count++
	return accounts.User{
		Email: fmt.Sprintf("User%d@Example.com", s.count), Name: fmt.Sprintf("User %d", s.count),
		Role: role, TenantID: tenantID, Password: "$argon2id$of one",
	}
}

func (s *suite) user(role accounts.Role, tenantID string) accounts.User {
	s.Helper()
	u, err := s.Store.CreateUser(s.ctx, s.newUser(role, tenantID), false, entry("user.create"))
	s.must(err)
	return u
}

func (s *suite) update(u accounts.User) (accounts.User, error) {
	return s.Store.UpdateUser(s.ctx, u, u.Revision, "", entry("user.update"))
}

// hash is another one each time.
func (s *suite) hash() (h [32]byte) {
	s.count++
	copy(h[:], fmt.Sprintf("%032d", s.count))
	return h
}

func (s *suite) session(userID string) accounts.Session {
	s.Helper()
	n, err := s.Store.CreateSession(s.ctx, accounts.Session{
		Hash: s.hash(), UserID: userID, Address: "192.0.2.1", Agent: "Browser/1", CreatedAt: s.Clock.Now(),
	}, entry("user.sign_in"))
	s.must(err)
	return n
}

// signedIn tells whether a session is found at the clock's time.
func (s *suite) signedIn(n accounts.Session) bool {
	s.Helper()
	_, _, err := s.Other.Session(s.ctx, n.Hash, s.Clock.Now())
	if err != nil {
		s.wantKind(err, problem.NotFound, "")
	}
	return err == nil
}

func (s *suite) invite(i accounts.Invitation) accounts.Invitation {
	s.Helper()
	i.Hash, i.ExpiresAt = s.hash(), s.Clock.Now().Add(accounts.InvitationLife)
	i.CreatedBy = audit.Actor{Kind: "user", ID: "u1", Name: "Ada"}
	made, err := s.Store.CreateInvitation(s.ctx, i, entry("invitation.create"))
	s.must(err)
	return made
}

func (s *suite) accept(i accounts.Invitation, u accounts.User) (accounts.User, error) {
	return s.Store.AcceptInvitation(s.ctx, i.Hash, s.Clock.Now(), u, entry("invitation.accept"))
}

func userID(u accounts.User) string             { return u.ID }
func sessionID(n accounts.Session) string       { return n.ID }
func invitationID(i accounts.Invitation) string { return i.ID }

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
	_, err = s.Store.CreateUser(s.ctx, ask, false, entry("user.create")) // address and link are free again
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
	s.wantKind(update(member, member.Revision, func(u *accounts.User) { u.Issuer, u.Subject = "https://id", "1" }), problem.Conflict, "link_taken")
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

// atOnce does something n times at once, at two processes, and tells how often it
// went well.
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
	// None of these can sign in as an owner.
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

// clear takes the people away past the Store.
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

func testSessionLife(s *suite) {
	u := s.user(accounts.Owner, "")
	other := s.user(accounts.Viewer, "")
	before := s.world()
	ask := accounts.Session{
		Hash: s.hash(), UserID: u.ID, Address: "192.0.2.1", Agent: strings.Repeat("a", 300) + "\n", CreatedAt: s.Clock.Now(),
		ExpiresAt: s.Clock.Now().Add(time.Hour),
	}
	made, err := s.Store.CreateSession(s.ctx, ask, entry("user.sign_in"))
	s.must(err)
	want := ask
	want.ID, want.Agent, want.CreatedAt, want.SeenAt = made.ID, strings.Repeat("a", 255)+"…", s.Clock.stored(), s.Clock.stored()
	want.ExpiresAt = s.Clock.stored().Add(time.Hour)
	s.same("made", made, want)
	u.SignedInAt = s.Clock.stored()
	find := func() accounts.Session {
		s.Helper()
		n, by, err := s.Other.Session(s.ctx, made.Hash, s.Clock.Now())
		s.must(err)
		s.same("its user", by, u)
		return n
	}
	s.same("found", find(), want)
	s.Clock.Add(accounts.SeenGranularity)
	s.same("seen within a minute", find(), want)
	s.Clock.Add(time.Second)
	want.SeenAt = s.Clock.stored()
	s.same("seen later", find(), want)
	s.Clock.Add(-time.Hour)
	s.same("seen by a clock behind", find(), want)
	s.Clock.Add(time.Hour)

	renewed := s.hash()
	s.must(s.Store.RenewSession(s.ctx, made.ID, renewed))
	_, _, err = s.Store.Session(s.ctx, made.Hash, s.Clock.Now())
	s.wantKind(err, problem.NotFound, "")
	made.Hash, want.Hash = renewed, renewed
	s.same("renewed", find(), want)

	second, third, foreign := s.session(u.ID), s.session(u.ID), s.session(other.ID)
	list, err := s.Store.Sessions(s.ctx, u.ID, s.Clock.Now())
	s.must(err)
	s.same("listed, newest first", ids(list, sessionID), []string{third.ID, second.ID, made.ID})
	end := func(id, keep string, want int) {
		s.Helper()
		n, err := s.Store.EndSession(s.ctx, u.ID, id, keep, entry("session.end"))
		s.must(err)
		s.same("ended", n, want)
	}
	end(foreign.ID, "", 0) // another's
	end(third.ID, "", 1)
	end(third.ID, "", 0)
	end("", made.ID, 1)
	end("", "", 1)
	if s.signedIn(made) || s.signedIn(second) || s.signedIn(third) || !s.signedIn(foreign) {
		s.Error("a session outlived its end, or another's did not")
	}
	s.same("the world", s.world(), before)

	_, err = s.Store.CreateSession(s.ctx, accounts.Session{Hash: s.hash(), UserID: nobody}, entry("user.sign_in"))
	s.wantKind(err, problem.NotFound, "")
	_, err = s.Store.CreateSession(s.ctx, accounts.Session{Hash: foreign.Hash, UserID: u.ID}, entry("user.sign_in"))
	s.wantKind(err, problem.Conflict, "session_exists")
	s.wantKind(s.Store.RenewSession(s.ctx, nobody, s.hash()), problem.NotFound, "")
	_, err = s.Store.EndSession(s.ctx, nobody, "", "", entry("session.end"))
	s.wantKind(err, problem.NotFound, "")
}

func testSessionOver(s *suite) {
	u := s.user(accounts.Owner, "")
	idle := s.session(u.ID)
	at := s.Clock.Now()
	signedIn := func(n accounts.Session, now time.Time) bool {
		s.Helper()
		_, _, err := s.Store.Session(s.ctx, n.Hash, now)
		list, listErr := s.Store.Sessions(s.ctx, u.ID, now)
		s.must(listErr)
		if (err == nil) != (len(list) == 1) {
			s.Errorf("at %s: found with %v, but %d listed", now, err, len(list))
		}
		return err == nil
	}
	if signedIn(idle, at.Add(accounts.SessionIdle)) {
		s.Error("a session is found when it was idle for so long")
	}
	if !signedIn(idle, at.Add(accounts.SessionIdle-time.Second)) { // which notes that it was seen
		s.Error("a session is over before it was idle for so long")
	}
	now := at
	for ; now.Before(at.Add(accounts.SessionLife)); now = now.Add(20 * time.Minute) {
		if !signedIn(idle, now) {
			s.Fatalf("a session in use is over after %s", now.Sub(at))
		}
	}
	if signedIn(idle, at.Add(accounts.SessionLife)) {
		s.Error("a session in use has no end")
	}
	disabled := s.user(accounts.Viewer, "")
	kept := s.session(disabled.ID)
	disabled.Disabled = true
	_, err := s.Store.UpdateUser(s.ctx, disabled, disabled.Revision, kept.ID, entry("user.update"))
	s.must(err)
	if s.signedIn(kept) {
		s.Error("a disabled user is signed in")
	}
	_, err = s.Store.CreateSession(s.ctx, accounts.Session{Hash: s.hash(), UserID: disabled.ID}, entry("user.sign_in"))
	s.wantKind(err, problem.NotFound, "")
}

func testSessionsOfAChangedUser(s *suite) {
	s.user(accounts.Owner, "")
	for what, change := range map[string]func(*accounts.User){
		"role":     func(u *accounts.User) { u.Role = accounts.Editor },
		"password": func(u *accounts.User) { u.Password = "another" },
		"name":     func(u *accounts.User) { u.Name = "Another" },
		"link":     func(u *accounts.User) { u.Issuer, u.Subject = "https://id", "1" },
	} {
		u := s.user(accounts.Viewer, "")
		kept, ends, other := s.session(u.ID), s.session(u.ID), s.session(s.user(accounts.Viewer, "").ID)
		link := s.invite(accounts.Invitation{Email: u.Email, Role: u.Role, UserID: u.ID})
		change(&u)
		_, err := s.Store.UpdateUser(s.ctx, u, u.Revision, kept.ID, entry("user.update"))
		s.must(err)
		if !s.signedIn(kept) || !s.signedIn(other) {
			s.Errorf("%s: a session ended that should be kept", what)
		}
		rights := what == "role" || what == "password"
		if s.signedIn(ends) == rights {
			s.Errorf("%s: the other session ended: %t, want %t", what, !rights, rights)
		}
		if _, err := s.Store.Invitation(s.ctx, link.Hash, s.Clock.Now()); (err == nil) == rights {
			s.Errorf("%s: the open link: %v", what, err)
		}
	}
}

func testEndOverSessions(s *suite) {
	u := s.user(accounts.Owner, "")
	s.copies(s.session(u.ID).ID, 3, 700) // more than one piece has
	first := s.session(u.ID)
	s.Clock.Add(accounts.SessionIdle)
	stays := s.session(u.ID)
	_, err := s.Store.CreateInvitation(s.ctx, accounts.Invitation{
		Hash: s.hash(), Email: "old@example.com", Role: accounts.Viewer, ExpiresAt: s.Clock.Now().Add(-accounts.InvitationLife),
	}, entry("invitation.create"))
	s.must(err)
	over, err := s.Store.CreateInvitation(s.ctx, accounts.Invitation{
		Hash: s.hash(), Email: "new@example.com", Role: accounts.Viewer, ExpiresAt: s.Clock.Now(),
	}, entry("invitation.create"))
	s.must(err)
	before, lines := s.revision(), len(s.lines(audit.Filter{Limit: 1000}))
	s.must(s.Store.EndOverSessions(s.ctx, s.Clock.Now()))
	earlier := s.Clock.Now().Add(-accounts.SessionIdle)
	list, err := s.Store.Sessions(s.ctx, u.ID, earlier)
	s.must(err)
	s.same("sessions that are left", ids(list, sessionID), []string{stays.ID})
	_, _, err = s.Store.Session(s.ctx, first.Hash, earlier)
	s.wantKind(err, problem.NotFound, "")
	links, err := s.Store.Invitations(s.ctx, accounts.UserFilter{})
	s.must(err)
	s.same("invitations that are left", ids(links, invitationID), []string{over.ID})
	if s.revision() != before || len(s.lines(audit.Filter{Limit: 1000})) != lines {
		s.Error("removing what is over raised the revision or left a line")
	}
}

// copies adds so many sessions like one past the Store.
func (s *suite) copies(id string, statements, rows int) {
	s.Helper()
	for range statements {
		var values []string
		args := []any{id}
		for range rows {
			h := s.hash()
			args = append(args, fmt.Sprintf("01900000-0000-7000-8000-%012d", s.count), h[:])
			values = append(values, fmt.Sprintf(`($%d, $%d, %s, '', '', %s, %s, %s)`, len(args)-1, len(args),
				of("user_id"), of("created_at"), of("seen_at"), of("expires_at")))
		}
		s.must(s.Exec(`INSERT INTO sessions (id, hash, user_id, address, agent, created_at, seen_at, expires_at)
			VALUES `+strings.Join(values, ", "), args...))
	}
}

// of is a column of the session that is copied.
func of(column string) string { return `(SELECT ` + column + ` FROM sessions WHERE id = $1)` }

func testInvitationLife(s *suite) {
	acme := s.tenant("acme", "")
	s.user(accounts.Owner, "")
	ask := accounts.Invitation{
		Hash: s.hash(), Email: "Ada@Example.com", Role: accounts.TenantAdmin, TenantID: acme.ID,
		CreatedBy: audit.Actor{Kind: "user", ID: "u1", Name: "Ada"}, ExpiresAt: s.Clock.Now().Add(time.Hour),
	}
	made, err := s.Store.CreateInvitation(s.ctx, ask, entry("invitation.create"))
	s.must(err)
	want := ask
	want.ID, want.CreatedAt, want.ExpiresAt = made.ID, s.Clock.stored(), s.Clock.stored().Add(time.Hour)
	s.same("made", made, want)
	got, err := s.Other.Invitation(s.ctx, ask.Hash, s.Clock.Now())
	s.must(err)
	s.same("found", got, want)

	// Whatever is asked for, the link says who it makes.
	asked := s.newUser(accounts.Owner, "")
	asked.Disabled = true
	u, err := s.accept(made, asked)
	s.must(err)
	wantUser := asked
	wantUser.ID, wantUser.Email, wantUser.Role, wantUser.TenantID, wantUser.Disabled = u.ID, "Ada@Example.com", accounts.TenantAdmin, acme.ID, false
	wantUser.CreatedAt, wantUser.UpdatedAt, wantUser.Revision = s.Clock.stored(), s.Clock.stored(), s.revision()
	s.same("the user", u, wantUser)
	_, err = s.accept(made, s.newUser(accounts.Owner, ""))
	s.wantKind(err, problem.NotFound, "")
	_, err = s.Store.Invitation(s.ctx, ask.Hash, s.Clock.Now())
	s.wantKind(err, problem.NotFound, "")

	a := s.invite(accounts.Invitation{Email: "b@example.com", Role: accounts.Viewer})
	b := s.invite(accounts.Invitation{Email: "C@example.com", Role: accounts.TenantViewer, TenantID: acme.ID})
	for _, test := range []struct {
		what string
		f    accounts.UserFilter
		want []string
	}{
		{"all", accounts.UserFilter{}, []string{a.ID, b.ID}},
		{"the operator's", accounts.UserFilter{Operator: true}, []string{a.ID}},
		{"of a tenant", accounts.UserFilter{TenantID: acme.ID}, []string{b.ID}},
		{"by address", accounts.UserFilter{Query: "c@EXAMPLE"}, []string{b.ID}},
		{"a page", accounts.UserFilter{Limit: 1}, []string{a.ID}},
		{"the next page", accounts.UserFilter{After: a.ID}, []string{b.ID}},
	} {
		list, err := s.Store.Invitations(s.ctx, test.f)
		s.must(err)
		s.same(test.what, ids(list, invitationID), test.want)
	}
	s.wantKind(s.Store.DeleteInvitation(s.ctx, "", b.ID, entry("invitation.delete")), problem.NotFound, "")
	s.wantKind(s.Store.DeleteInvitation(s.ctx, acme.ID, a.ID, entry("invitation.delete")), problem.NotFound, "")
	s.must(s.Store.DeleteInvitation(s.ctx, "", a.ID, entry("invitation.delete")))
	s.must(s.Store.DeleteInvitation(s.ctx, acme.ID, b.ID, entry("invitation.delete")))
	s.wantKind(s.Store.DeleteInvitation(s.ctx, acme.ID, b.ID, entry("invitation.delete")), problem.NotFound, "")
}

func testInvitationRefusals(s *suite) {
	acme, other := s.tenant("acme", ""), s.tenant("other", "")
	is, member := s.user(accounts.Owner, ""), s.user(accounts.TenantAdmin, acme.ID)
	link := s.invite(accounts.Invitation{Email: "soon@example.com", Role: accounts.Viewer})
	setup := s.invite(accounts.Invitation{Role: accounts.Owner})
	s.invite(accounts.Invitation{Email: strings.ToUpper(is.Email), Role: accounts.Viewer}) // only whoever accepts it is told
	before := s.revision()
	create := func(i accounts.Invitation) error {
		if i.Hash == [32]byte{} {
			i.Hash = s.hash()
		}
		i.ExpiresAt = s.Clock.Now().Add(time.Hour)
		_, err := s.Store.CreateInvitation(s.ctx, i, entry("invitation.create"))
		return err
	}
	s.wantKind(create(accounts.Invitation{Email: "a@example.com", Role: accounts.TenantAdmin, TenantID: nobody}), problem.NotFound, "")
	s.wantKind(create(accounts.Invitation{Email: "a@example.com", Role: accounts.TenantAdmin}), problem.Invalid, "")
	s.wantKind(create(accounts.Invitation{Email: "a@example.com", Role: accounts.Owner, TenantID: acme.ID}), problem.Invalid, "")
	s.wantKind(create(accounts.Invitation{Email: is.Email, Role: accounts.Owner, UserID: nobody}), problem.NotFound, "")
	s.wantKind(create(accounts.Invitation{
		Email: member.Email, Role: accounts.TenantAdmin, TenantID: other.ID, UserID: member.ID,
	}), problem.NotFound, "")
	s.wantKind(create(accounts.Invitation{Email: "a@example.com", Role: accounts.Viewer, Hash: link.Hash}), problem.Conflict, "invitation_exists")
	_, err := s.accept(setup, s.newUser("", ""))
	s.wantKind(err, problem.Conflict, "already_set_up")
	_, err = s.accept(accounts.Invitation{Hash: s.hash()}, s.newUser("", ""))
	s.wantKind(err, problem.NotFound, "")
	if n := s.revision(); n != before {
		s.Errorf("refusals took the revision from %d to %d", before, n)
	}

	late := s.Clock.Now().Add(accounts.InvitationLife)
	_, err = s.Store.Invitation(s.ctx, link.Hash, late)
	s.wantKind(err, problem.NotFound, "")
	_, err = s.Store.AcceptInvitation(s.ctx, link.Hash, late, s.newUser("", ""), entry("invitation.accept"))
	s.wantKind(err, problem.NotFound, "")
	quicker := s.newUser(accounts.Viewer, "")
	quicker.Email = "SOON@example.com"
	_, err = s.Store.CreateUser(s.ctx, quicker, false, entry("user.create"))
	s.must(err)
	_, err = s.accept(link, s.newUser("", ""))
	s.wantKind(err, problem.Conflict, "email_taken")
	_, err = s.Store.Invitation(s.ctx, link.Hash, s.Clock.Now()) // it was not taken
	s.must(err)
}

func testInvitationAtOnce(s *suite) {
	for name, i := range map[string]accounts.Invitation{
		"invitation": {Email: "new@example.com", Role: accounts.Viewer},
		"set-up":     {Role: accounts.Owner},
	} {
		s.clear()
		link := s.invite(i)
		well, refused := s.atOnce(6, func(at Store, n int) error {
			u := accounts.User{Email: fmt.Sprintf("u%d@example.com", n), Name: "U", Password: "x"}
			_, err := at.AcceptInvitation(s.ctx, link.Hash, s.Clock.Now(), u, entry("invitation.accept"))
			return err
		})
		if well != 1 {
			s.Errorf("%s: taken %d times", name, well)
		}
		for _, err := range refused {
			s.wantKind(err, problem.NotFound, "")
		}
	}
}

func testPasswordLink(s *suite) {
	s.user(accounts.Owner, "")
	u := s.user(accounts.Editor, "")
	n := s.session(u.ID)
	older := s.invite(accounts.Invitation{Email: u.Email, Role: u.Role, UserID: u.ID})
	link := s.invite(accounts.Invitation{Email: u.Email, Role: accounts.Owner, UserID: u.ID})
	got, err := s.accept(link, accounts.User{Email: "other@example.com", Name: "Other", Password: "another", Role: accounts.Owner, Issuer: "x", Subject: "y"})
	s.must(err)
	want := u
	want.Password, want.SignedInAt, want.UpdatedAt, want.Revision = "another", s.Clock.stored(), s.Clock.stored(), s.revision()
	s.same("the user", got, want)
	if s.signedIn(n) {
		s.Error("a session outlived the password")
	}
	_, err = s.accept(older, accounts.User{Password: "mine"})
	s.wantKind(err, problem.NotFound, "")

	link = s.invite(accounts.Invitation{Email: u.Email, Role: u.Role, UserID: u.ID})
	s.must(s.Exec(`UPDATE users SET disabled = true WHERE id = $1`, u.ID)) // past the Store, which would have ended the link
	_, err = s.accept(link, accounts.User{Password: "back"})
	s.wantKind(err, problem.NotFound, "")
}

func testPeopleLines(s *suite) {
	acme := s.tenant("acme", "")
	written := int64(1)
	wrote := func(action, tenant, object, name string) {
		s.Helper()
		written++
		list := s.lines(audit.Filter{Action: action})
		want := entry(action)
		want.ID, want.At, want.Revision = list[0].ID, s.Clock.stored(), s.revision()
		want.Seq, want.Hash = written, list[0].Hash
		want.TenantID, want.Object, want.ObjectName = tenant, object, name
		s.same("the line of "+action, list[0], want)
		s.unbroken(written)
	}
	u := s.user(accounts.TenantAdmin, acme.ID)
	wrote("user.create", acme.ID, u.ID, u.Email)
	u.Name = "Another"
	u, err := s.update(u)
	s.must(err)
	wrote("user.update", acme.ID, u.ID, u.Email)
	n := s.session(u.ID)
	wrote("user.sign_in", acme.ID, u.ID, u.Email)
	for range 2 { // the second one ends nothing and leaves no line
		_, err = s.Store.EndSession(s.ctx, u.ID, n.ID, "", entry("session.end"))
		s.must(err)
	}
	wrote("session.end", acme.ID, u.ID, u.Email)
	link := s.invite(accounts.Invitation{Email: "new@example.com", Role: accounts.TenantViewer, TenantID: acme.ID})
	wrote("invitation.create", acme.ID, link.ID, "new@example.com")
	added, err := s.accept(link, s.newUser("", ""))
	s.must(err)
	wrote("invitation.accept", acme.ID, added.ID, "new@example.com")
	link = s.invite(accounts.Invitation{Email: u.Email, Role: u.Role, TenantID: acme.ID, UserID: u.ID})
	written++
	s.must(s.Store.DeleteInvitation(s.ctx, acme.ID, link.ID, entry("invitation.delete")))
	wrote("invitation.delete", acme.ID, link.ID, u.Email)
	s.must(s.Store.DeleteUser(s.ctx, u.ID, entry("user.delete")))
	wrote("user.delete", acme.ID, u.ID, u.Email)
}

func testPeopleAuditFailure(s *suite) {
	u := s.user(accounts.Viewer, "")
	n := s.session(u.ID)
	link := s.invite(accounts.Invitation{Email: "new@example.com", Role: accounts.Viewer})
	u, err := s.Store.User(s.ctx, u.ID)
	s.must(err)
	s.Clock.Add(time.Second)
	unwritable := audit.Entry{Actor: entry("").Actor}
	for what, write := range map[string]func() error{
		"create user": func() error {
			_, err := s.Store.CreateUser(s.ctx, s.newUser(accounts.Viewer, ""), false, unwritable)
			return err
		},
		"update user": func() error {
			after := u
			after.Password = "another"
			_, err := s.Store.UpdateUser(s.ctx, after, u.Revision, "", unwritable)
			return err
		},
		"delete user": func() error { return s.Store.DeleteUser(s.ctx, u.ID, unwritable) },
		"create invitation": func() error {
			_, err := s.Store.CreateInvitation(s.ctx, accounts.Invitation{Hash: s.hash(), Email: "x@example.com", Role: accounts.Viewer}, unwritable)
			return err
		},
		"accept invitation": func() error {
			_, err := s.Store.AcceptInvitation(s.ctx, link.Hash, s.Clock.Now(), s.newUser("", ""), unwritable)
			return err
		},
		"delete invitation": func() error { return s.Store.DeleteInvitation(s.ctx, "", link.ID, unwritable) },
		"create session": func() error {
			_, err := s.Store.CreateSession(s.ctx, accounts.Session{Hash: s.hash(), UserID: u.ID}, unwritable)
			return err
		},
		"end session": func() error {
			_, err := s.Store.EndSession(s.ctx, u.ID, n.ID, "", unwritable)
			return err
		},
	} {
		if err := write(); err == nil {
			s.Errorf("%s passed without its line", what)
		}
	}
	users, err := s.Store.Users(s.ctx, accounts.UserFilter{})
	s.must(err)
	s.same("users", users, []accounts.User{u})
	links, err := s.Store.Invitations(s.ctx, accounts.UserFilter{})
	s.must(err)
	s.same("invitations", ids(links, invitationID), []string{link.ID})
	list, err := s.Store.Sessions(s.ctx, u.ID, s.Clock.Now())
	s.must(err)
	s.same("sessions", list, []accounts.Session{n})
}
