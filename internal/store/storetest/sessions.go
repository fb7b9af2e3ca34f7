package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

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
	if !signedIn(idle, at.Add(accounts.SessionIdle-time.Second)) { // signedIn also stores the time of use
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

// copies adds copies of a session directly in the database.
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

// of returns an SQL expression for a column of the session that is copied.
func of(column string) string { return `(SELECT ` + column + ` FROM sessions WHERE id = $1)` }
