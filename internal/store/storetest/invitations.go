package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

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

	// The role and the tenant of the new user come from the invitation, not from the request.
	asked := s.newUser(accounts.Owner, "")
	asked.Disabled = true
	u, err := s.accept(made, asked)
	s.must(err)
	wantUser := asked
	wantUser.ID, wantUser.Email = u.ID, "Ada@Example.com"
	wantUser.Role, wantUser.TenantID, wantUser.Disabled = accounts.TenantAdmin, acme.ID, false
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
	// only the person who accepts the invitation learns this
	s.invite(accounts.Invitation{Email: strings.ToUpper(is.Email), Role: accounts.Viewer})
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
	s.wantKind(create(accounts.Invitation{Email: "a@example.com", Role: accounts.Viewer, Hash: link.Hash}), problem.Conflict,
		"invitation_exists")
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

func testInvitationMail(s *suite) {
	acme := s.tenant("acme", "")
	i := s.invite(accounts.Invitation{Email: "ann@example.com", Role: accounts.TenantViewer, TenantID: acme.ID, Mail: true})
	silent := s.invite(accounts.Invitation{Email: "bob@example.com", Role: accounts.TenantViewer, TenantID: acme.ID})
	now := s.Clock.Now()
	due, err := s.Other.ClaimDeliveries(s.ctx, now, now.Add(time.Minute), 10)
	s.must(err)
	if len(due) != 1 || due[0].InvitationID != i.ID || due[0].TenantID != acme.ID ||
		due[0].Event != alerts.EventInvited || due[0].ChannelID != "" {
		s.Fatalf("queued: %+v", due)
	}
	// Each attempt to send the e-mail creates a link, which replaces the link of the previous
	// attempt. The first link stays valid.
	var links [3][32]byte
	for n := range links[1:] {
		links[n] = s.hash()
		found, err := s.Store.MailInvitation(s.ctx, i.ID, links[n], now)
		s.must(err)
		s.same("whose link", found.ID, i.ID)
	}
	_, err = s.Store.MailInvitation(s.ctx, silent.ID, links[1], now)
	if err == nil {
		s.Error("two invitations have one link")
	}
	for hash, works := range map[[32]byte]bool{i.Hash: true, links[0]: false, links[1]: true} {
		found, err := s.Store.Invitation(s.ctx, hash, now)
		if works != (err == nil) || works && found.ID != i.ID {
			s.Errorf("link %x: %v, want %v", hash[:2], err, works)
		}
	}
	_, err = s.accept(i, s.newUser("", ""))
	s.must(err)
	_, err = s.Store.Invitation(s.ctx, links[1], now)
	s.wantKind(err, problem.NotFound, "")
	_, err = s.Store.MailInvitation(s.ctx, i.ID, s.hash(), now)
	s.wantKind(err, problem.NotFound, "")
	s.Clock.Add(2 * time.Minute)
	due, err = s.Store.ClaimDeliveries(s.ctx, s.Clock.Now(), s.Clock.Now().Add(time.Minute), 10)
	s.must(err)
	s.same("e-mails of a used invitation", len(due), 0)
	_, err = s.Store.MailInvitation(s.ctx, silent.ID, s.hash(), silent.ExpiresAt)
	s.wantKind(err, problem.NotFound, "")
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
	got, err := s.accept(link, accounts.User{
		Email: "other@example.com", Name: "Other", Password: "another", Role: accounts.Owner,
		Issuer: "x", Subject: "y",
	})
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
	s.must(s.Exec(`UPDATE users SET disabled = true WHERE id = $1`, u.ID)) // directly in the database, because the Store would end the link
	_, err = s.accept(link, accounts.User{Password: "back"})
	s.wantKind(err, problem.NotFound, "")
}
