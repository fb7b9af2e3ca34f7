package storetest

import (
	"fmt"
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
	{"an invitation has a second link for its e-mail", testInvitationMail},
	{"a link gives somebody who exists another password", testPasswordLink},
	{"second factors are added, used and removed", testFactorLife},
	{"second factors are refused for a reason", testFactorRefusals},
	{"secrets of authenticator apps are replaced together", testResealFactors},
	{"a pending sign-in becomes one session", testPendingSignIns},
	{"a challenge is taken once", testChallenges},
	{"writes of people leave one line each", testPeopleLines},
	{"a line that cannot be written stops what people do", testPeopleAuditFailure},
}

// newUser returns a person with a password. If tenantID is "", the person belongs to the operator.
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

// signedIn reports whether a session is valid at the time of the clock.
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
	for range 2 { // the second call ends nothing and writes no audit line
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
