package storetest

import (
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

func (s *suite) factors(userID string) ([]accounts.Factor, int) {
	s.Helper()
	list, codes, err := s.Other.Factors(s.ctx, userID)
	s.must(err)
	return list, codes
}

func (s *suite) totp(userID string, codes [][32]byte, keep string) (accounts.Factor, error) {
	return s.Store.AddFactor(s.ctx, accounts.Factor{
		UserID: userID, Kind: accounts.TOTP, Name: "App", Data: []byte("secret"), Step: 7,
	}, codes, keep, entry("second_factor.add"))
}

func (s *suite) passkey(userID, credential string) (accounts.Factor, error) {
	return s.Store.AddFactor(s.ctx, accounts.Factor{
		UserID: userID, Kind: accounts.Passkey, Name: "Key", Credential: []byte(credential), Data: []byte("public"),
	}, nil, "", entry("second_factor.add"))
}

// pending adds a pending sign-in.
func (s *suite) pending(userID string) accounts.PendingSignIn {
	s.Helper()
	p := accounts.PendingSignIn{
		ID: audit.NewID(), Hash: s.hash(), UserID: userID, CreatedAt: s.Clock.stored(), ExpiresAt: s.Clock.stored().Add(accounts.PendingLife),
	}
	s.must(s.Store.CreatePending(s.ctx, p))
	return p
}

func testFactorLife(s *suite) {
	u, other := s.user(accounts.Owner, ""), s.user(accounts.Viewer, "")
	kept, ends, foreign := s.session(u.ID), s.session(u.ID), s.session(other.ID)
	codes := [][32]byte{s.hash(), s.hash()}
	app, err := s.totp(u.ID, codes, kept.ID)
	s.must(err)
	want := accounts.Factor{
		ID: app.ID, UserID: u.ID, Kind: accounts.TOTP, Name: "App", Data: []byte("secret"), Step: 7, CreatedAt: s.Clock.stored(),
	}
	s.same("made", app, want)
	if !s.signedIn(kept) || s.signedIn(ends) || !s.signedIn(foreign) {
		s.Error("a second factor did not end the other sessions of its user, or more")
	}
	found, err := s.Store.User(s.ctx, u.ID)
	s.must(err)
	if !found.SecondFactor {
		s.Error("the user has no second factor")
	}
	key, err := s.passkey(u.ID, "credential 1")
	s.must(err)
	list, left := s.factors(u.ID)
	s.same("listed", list, []accounts.Factor{want, key})
	s.same("codes", left, 2)
	if list, left = s.factors(other.ID); len(list) != 0 || left != 0 {
		s.Errorf("another user has %v and %d codes", list, left)
	}

	// Each step of an authenticator app is used only once, and the stored step never decreases.
	use := func(f accounts.Factor, step int64) error {
		f.Step, f.UsedAt = step, s.Clock.Now()
		return s.Store.UseFactor(s.ctx, f)
	}
	s.must(use(app, 8))
	s.wantKind(use(app, 8), problem.Conflict, "code_used")
	s.wantKind(use(app, 7), problem.Conflict, "code_used")
	well, refused := s.atOnce(4, func(at Store, _ int) error {
		f := app
		f.Step, f.UsedAt = 9, s.Clock.Now()
		return at.UseFactor(s.ctx, f)
	})
	s.same("uses of one step at once", well, 1)
	for _, err := range refused {
		s.wantKind(err, problem.Conflict, "code_used")
	}
	key.Data = []byte("counter 2")
	s.must(use(key, 0))
	s.must(use(key, 0))
	list, _ = s.factors(u.ID)
	key.UsedAt, want.UsedAt, want.Step = s.Clock.stored(), s.Clock.stored(), 9
	s.same("used", list, []accounts.Factor{want, key})
	foreignUse := app
	foreignUse.UserID = other.ID
	s.wantKind(use(foreignUse, 20), problem.NotFound, "")

	// Recovery codes work once.
	s.wantKind(s.Store.UseRecoveryCode(s.ctx, other.ID, codes[0], entry("a")), problem.NotFound, "")
	well, _ = s.atOnce(4, func(at Store, _ int) error { return at.UseRecoveryCode(s.ctx, u.ID, codes[0], entry("a")) })
	s.same("uses of one recovery code at once", well, 1)
	s.wantKind(s.Store.UseRecoveryCode(s.ctx, u.ID, codes[0], entry("a")), problem.NotFound, "")
	fresh := [][32]byte{s.hash(), s.hash(), s.hash()}
	s.must(s.Store.PutRecoveryCodes(s.ctx, u.ID, fresh, entry("a")))
	s.wantKind(s.Store.UseRecoveryCode(s.ctx, u.ID, codes[1], entry("a")), problem.NotFound, "")
	if _, left = s.factors(u.ID); left != 3 {
		s.Errorf("%d recovery codes", left)
	}
	s.wantKind(s.Store.PutRecoveryCodes(s.ctx, other.ID, fresh, entry("a")), problem.Conflict, "no_second_factor")

	// Factors are removed one by one. The recovery codes are removed with the last factor.
	remove := func(userID, id string, required bool) error {
		return s.Store.RemoveFactor(s.ctx, userID, id, required, entry("second_factor.remove"))
	}
	s.wantKind(remove(other.ID, app.ID, false), problem.NotFound, "")
	s.must(remove(u.ID, app.ID, true))
	s.wantKind(use(app, 99), problem.NotFound, "")
	s.wantKind(remove(u.ID, key.ID, true), problem.Conflict, "second_factor_required")
	s.must(remove(u.ID, key.ID, false))
	if list, left = s.factors(u.ID); len(list) != 0 || left != 0 {
		s.Errorf("after the last was removed: %v and %d codes", list, left)
	}
}

func testFactorRefusals(s *suite) {
	u, other := s.user(accounts.Owner, ""), s.user(accounts.Viewer, "")
	first := [][32]byte{s.hash()}
	well, refused := s.atOnce(4, func(at Store, _ int) error {
		_, err := at.AddFactor(s.ctx, accounts.Factor{UserID: u.ID, Kind: accounts.TOTP, Name: "App", Data: []byte("x")}, first, "", entry("a"))
		return err
	})
	s.same("first factors at once", well, 1)
	for _, err := range refused {
		s.wantKind(err, problem.Conflict, "second_factor_exists")
	}
	_, err := s.passkey(u.ID, "one")
	s.must(err)
	_, err = s.passkey(other.ID, "one")
	s.wantKind(err, problem.Conflict, "passkey_exists")
	_, err = s.passkey(nobody, "two")
	s.wantKind(err, problem.NotFound, "")
	for range accounts.MaxFactors - 2 {
		_, err = s.totp(u.ID, nil, "")
		s.must(err)
	}
	_, err = s.totp(u.ID, nil, "")
	s.wantKind(err, problem.Conflict, "too_many_second_factors")
	n, err := s.Store.ResetFactors(s.ctx, other.ID, entry("second_factor.reset"))
	s.must(err)
	s.same("reset of none", n, 0)
	lines := len(s.lines(audit.Filter{Limit: 1000}))
	session, pending := s.session(u.ID), s.pending(u.ID)
	n, err = s.Store.ResetFactors(s.ctx, u.ID, entry("second_factor.reset"))
	s.must(err)
	s.same("reset", n, accounts.MaxFactors)
	if list, codes := s.factors(u.ID); len(list) != 0 || codes != 0 || s.signedIn(session) {
		s.Errorf("after the reset: %v, %d codes, signed in %t", list, codes, s.signedIn(session))
	}
	_, _, err = s.Store.Pending(s.ctx, pending.Hash, s.Clock.Now())
	s.wantKind(err, problem.NotFound, "")
	if line := s.lines(audit.Filter{Limit: 1})[0]; line.Action != "second_factor.reset" || line.Object != u.ID {
		s.Errorf("line %+v", line)
	}
	if now := len(s.lines(audit.Filter{Limit: 1000})); now != lines+2 { // with the session
		s.Errorf("%d lines, want %d", now, lines+2)
	}
	_, err = s.Store.ResetFactors(s.ctx, nobody, entry("a"))
	s.wantKind(err, problem.NotFound, "")
}

func testPendingSignIns(s *suite) {
	u, other := s.user(accounts.Owner, ""), s.user(accounts.Viewer, "")
	p := s.pending(u.ID)
	got, who, err := s.Other.Pending(s.ctx, p.Hash, s.Clock.Now())
	s.must(err)
	s.same("found", got, p)
	s.same("its user", who, u)
	_, _, err = s.Store.Session(s.ctx, p.Hash, s.Clock.Now())
	s.wantKind(err, problem.NotFound, "") // it is no session
	_, _, err = s.Store.Pending(s.ctx, p.Hash, s.Clock.Now().Add(accounts.PendingLife))
	s.wantKind(err, problem.NotFound, "")

	finish := func(at Store, id, userID string, hash [32]byte) error {
		_, err := at.FinishPending(s.ctx, id, accounts.Session{
			Hash: hash, UserID: userID, CreatedAt: s.Clock.Now(), ConfirmedAt: s.Clock.Now(),
		}, entry("session.sign_in"))
		return err
	}
	s.wantKind(finish(s.Store, p.ID, other.ID, s.hash()), problem.NotFound, "")
	hashes := [][32]byte{s.hash(), s.hash(), s.hash(), s.hash()}
	well, refused := s.atOnce(4, func(at Store, i int) error { return finish(at, p.ID, u.ID, hashes[i]) })
	s.same("sessions of one sign-in", well, 1)
	for _, err := range refused {
		s.wantKind(err, problem.NotFound, "")
	}
	list, err := s.Store.Sessions(s.ctx, u.ID, s.Clock.Now())
	s.must(err)
	if len(list) != 1 || !list[0].ConfirmedAt.Equal(s.Clock.stored()) {
		s.Fatalf("sessions %+v", list)
	}
	later := s.Clock.Now().Add(time.Minute)
	s.must(s.Store.ConfirmSession(s.ctx, list[0].ID, later))
	list, err = s.Store.Sessions(s.ctx, u.ID, s.Clock.Now())
	s.must(err)
	if !list[0].ConfirmedAt.Equal(later.UTC().Truncate(time.Microsecond)) {
		s.Errorf("confirmed at %v", list[0].ConfirmedAt)
	}
	s.wantKind(s.Store.ConfirmSession(s.ctx, nobody, later), problem.NotFound, "")

	// The number of pending sign-ins is bounded. A change of rights ends all of them.
	oldest := s.pending(u.ID)
	for range accounts.MaxPending {
		p = s.pending(u.ID)
	}
	_, _, err = s.Store.Pending(s.ctx, oldest.Hash, s.Clock.Now())
	s.wantKind(err, problem.NotFound, "")
	of := s.pending(other.ID)
	u, err = s.Store.User(s.ctx, u.ID)
	s.must(err)
	u.Password = "$argon2id$of another"
	_, err = s.update(u)
	s.must(err)
	_, _, err = s.Store.Pending(s.ctx, p.Hash, s.Clock.Now())
	s.wantKind(err, problem.NotFound, "")
	_, _, err = s.Store.Pending(s.ctx, of.Hash, s.Clock.Now())
	s.must(err)
	s.must(s.Store.EndOverSessions(s.ctx, s.Clock.Now().Add(accounts.PendingLife)))
	_, _, err = s.Store.Pending(s.ctx, of.Hash, s.Clock.Now())
	s.wantKind(err, problem.NotFound, "")
	other.Disabled = true
	before := s.pending(other.ID)
	_, err = s.update(s.again(other))
	s.must(err)
	_, _, err = s.Store.Pending(s.ctx, before.Hash, s.Clock.Now())
	s.wantKind(err, problem.NotFound, "")
}

// again returns the user with the stored revision.
func (s *suite) again(u accounts.User) accounts.User {
	s.Helper()
	now, err := s.Store.User(s.ctx, u.ID)
	s.must(err)
	u.Revision = now.Revision
	return u
}

func testChallenges(s *suite) {
	id := audit.NewID()
	put := func(text string) {
		s.Helper()
		s.must(s.Store.PutChallenge(s.ctx, id, []byte(text), s.Clock.Now().Add(time.Minute)))
	}
	put("one")
	put("two")
	_, err := s.Other.TakeChallenge(s.ctx, audit.NewID(), s.Clock.Now())
	s.wantKind(err, problem.NotFound, "")
	got, err := s.Other.TakeChallenge(s.ctx, id, s.Clock.Now())
	s.must(err)
	s.same("taken", string(got), "two")
	_, err = s.Store.TakeChallenge(s.ctx, id, s.Clock.Now())
	s.wantKind(err, problem.NotFound, "")
	put("three")
	_, err = s.Store.TakeChallenge(s.ctx, id, s.Clock.Now().Add(time.Minute))
	s.wantKind(err, problem.NotFound, "")
	put("four")
	well, _ := s.atOnce(4, func(at Store, _ int) error {
		_, err := at.TakeChallenge(s.ctx, id, s.Clock.Now())
		return err
	})
	s.same("taken at once", well, 1)
	put("five")
	s.must(s.Store.EndOverSessions(s.ctx, s.Clock.Now().Add(time.Minute)))
	_, err = s.Store.TakeChallenge(s.ctx, id, s.Clock.Now())
	s.wantKind(err, problem.NotFound, "")
}

func testResealFactors(s *suite) {
	ann, bob := s.user(accounts.Owner, ""), s.user(accounts.Viewer, "")
	one, err := s.totp(ann.ID, nil, "")
	s.must(err)
	two, err := s.totp(bob.ID, nil, "")
	s.must(err)
	key, err := s.passkey(ann.ID, "credential")
	s.must(err)
	line := entry("second_factor.reencrypt")
	before := s.lines(audit.Filter{Limit: 1})[0]
	n, err := s.Store.ResealFactors(s.ctx, func(f accounts.Factor) []byte { return f.Data }, line)
	s.must(err)
	if n != 0 || s.lines(audit.Filter{Limit: 1})[0].ID != before.ID {
		s.Errorf("%d replaced by the same, and the line %+v", n, s.lines(audit.Filter{Limit: 1})[0])
	}
	n, err = s.Store.ResealFactors(s.ctx, func(f accounts.Factor) []byte {
		if f.Kind != accounts.TOTP {
			s.Errorf("a %s is replaced", f.Kind)
		}
		if f.UserID == bob.ID {
			return f.Data
		}
		return append([]byte("other "), f.Data...)
	}, line)
	s.must(err)
	s.same("replaced", n, 1)
	if got := s.lines(audit.Filter{Limit: 1})[0]; got.Action != "second_factor.reencrypt" {
		s.Errorf("the line is %+v", got)
	}
	list, _ := s.factors(ann.ID)
	one.Data = []byte("other secret")
	s.same("of ann", list, []accounts.Factor{one, key})
	list, _ = s.factors(bob.ID)
	s.same("of bob", list, []accounts.Factor{two})
	// A sign-in that read the secret before it was replaced does not restore the old secret.
	stale := one
	stale.Data, stale.Step, stale.UsedAt = []byte("secret"), 8, s.Clock.Now()
	s.must(s.Store.UseFactor(s.ctx, stale))
	list, _ = s.factors(ann.ID)
	s.same("used meanwhile", string(list[0].Data), "other secret")
}
