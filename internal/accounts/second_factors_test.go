package accounts_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/secondfactor"
)

// code is the code of an authenticator app whose clock differs by so many steps.
func (h *house) code(secret string, steps int) string {
	h.t.Helper()
	code, err := totp.GenerateCode(secret, h.clock.now().Add(time.Duration(steps)*secondfactor.TOTPStep))
	h.must(err)
	return code
}

// withApp adds an authenticator app and returns its secret and the recovery codes.
func (h *house) withApp(u accounts.User, s accounts.Session) (string, []string) {
	h.t.Helper()
	made, err := secondfactor.NewTOTP(u.Email)
	h.must(err)
	codes, err := h.AddTOTP(h.as(u), u, s, made.Secret, h.code(made.Secret, 0), "Phone")
	h.must(err)
	return made.Secret, codes
}

// password is the first step of a sign-in.
func (h *house) password(email string) string {
	h.t.Helper()
	cookie, s, _, err := h.SignIn(h.t.Context(), email, goodPassword, "192.0.2.1", "Browser/1")
	second := (*accounts.SecondFactorError)(nil)
	if !errors.As(err, &second) || cookie != "" || s != (accounts.Session{}) {
		h.t.Fatalf("the password alone: %v, cookie %q, %+v", err, cookie, s)
	}
	return second.Token
}

func (h *house) finish(token, code string) (accounts.SignedIn, error) {
	return h.FinishSignIn(h.t.Context(), "", token, code, "192.0.2.1", "Browser/1")
}

func TestSecondFactor(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.owner()
	_, s, u := h.signIn("olga@example.com")
	other, _, _ := h.signIn("olga@example.com")
	secret, codes := h.withApp(u, s)
	if len(codes) != secondfactor.RecoveryCodes {
		t.Fatalf("%d recovery codes", len(codes))
	}
	_, _, err := h.Session(t.Context(), other)
	h.kind(err, problem.Unauthenticated, "") // the other sessions end
	for _, line := range h.lines() {
		if text := string(line.Before) + string(line.After); strings.Contains(text, secret) || strings.Contains(text, codes[0]) {
			t.Errorf("the audit log has a secret: %s", text)
		}
	}

	// The token of the first step is no session.
	pending := h.password("olga@example.com")
	_, _, err = h.Session(t.Context(), pending)
	h.kind(err, problem.Unauthenticated, "")

	// The code with which the app was added is used. One of the next step is valid once.
	_, err = h.finish(pending, h.code(secret, 0))
	h.kind(err, problem.Unauthenticated, "code_wrong")
	in, err := h.finish(pending, " "+h.code(secret, 1)[:3]+" "+h.code(secret, 1)[3:])
	h.must(err)
	if _, who, err := h.Session(t.Context(), in.Token); err != nil || who.ID != u.ID || !in.Session.Confirmed(h.clock.now()) {
		t.Errorf("signed in as %+v, %v", who, err)
	}
	_, err = h.finish(pending, h.code(secret, 1)) // the other tab
	h.kind(err, problem.Unauthenticated, "sign_in_expired")
	_, err = h.finish(h.password("olga@example.com"), h.code(secret, 1))
	h.kind(err, problem.Unauthenticated, "code_wrong")

	// The clock of the app may differ by one step.
	h.clock.advance(accounts.FailureWindow)
	for steps, right := range map[int]bool{-2: false, 2: false, -1: true} {
		if _, err = h.finish(h.password("olga@example.com"), h.code(secret, steps)); (err == nil) != right {
			t.Errorf("an app that differs by %d steps: %v", steps, err)
		}
	}
	_, err = h.finish(h.password("olga@example.com"), h.code(secret, 1))
	h.must(err)

	// A recovery code works once, in any form; the last one too.
	h.clock.advance(accounts.FailureWindow)
	for _, code := range codes {
		_, err = h.finish(h.password("olga@example.com"), " "+strings.ToUpper(strings.ReplaceAll(code, "-", " ")))
		h.must(err)
	}
	_, err = h.finish(h.password("olga@example.com"), codes[9])
	h.kind(err, problem.Unauthenticated, "code_wrong")
	if f, err := h.FactorsOf(t.Context(), u); err != nil || f.Codes != 0 || len(f.List) != 1 {
		t.Errorf("%+v, %v", f, err)
	}

	// The first step ends after a time.
	pending = h.password("olga@example.com")
	h.clock.advance(accounts.PendingLife)
	_, err = h.finish(pending, h.code(secret, 0))
	h.kind(err, problem.Unauthenticated, "sign_in_expired")
}

// Wrong codes are limited. Who knows the password cannot lock out the person's own browser.
func TestWrongCodesAreLimited(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.owner()
	_, s, u := h.signIn("olga@example.com")
	mine := h.RememberBrowser(u, "")
	secret, _ := h.withApp(u, s)
	h.clock.advance(secondfactor.TOTPStep)
	limited := (*accounts.LimitedError)(nil)
	for i := range accounts.WrongCodes + 1 {
		_, err := h.finish(h.password("olga@example.com"), "000000")
		if i < accounts.WrongCodes {
			h.kind(err, problem.Unauthenticated, "code_wrong")
		} else if !errors.As(err, &limited) {
			t.Errorf("one too many: %v", err)
		}
	}
	if _, err := h.finish(h.password("olga@example.com"), h.code(secret, 0)); !errors.As(err, &limited) {
		t.Errorf("the right code after too many wrong ones: %v", err)
	}
	if _, err := h.FinishSignIn(t.Context(), mine, h.password("olga@example.com"), h.code(secret, 0), "192.0.2.1", ""); err != nil {
		t.Errorf("in the browser of the person: %v", err)
	}
}

func TestChangesOfFactorsNeedAConfirmation(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.owner()
	cookie, s, u := h.signIn("olga@example.com")
	secret, _ := h.withApp(u, s)
	again := func() (accounts.Session, accounts.User) {
		t.Helper()
		s, u, err := h.Session(t.Context(), cookie)
		h.must(err)
		return s, u
	}
	h.clock.advance(accounts.ConfirmedFor)
	s, u = again()
	f, err := h.FactorsOf(t.Context(), u)
	h.must(err)
	for what, change := range map[string]func() error{
		"add": func() error {
			_, err := h.AddTOTP(h.as(u), u, s, secret, h.code(secret, 0), "x")
			return err
		},
		"remove": func() error { return h.RemoveFactor(h.as(u), u, s, f.List[0].ID) },
		"codes":  func() error { _, err := h.NewRecoveryCodes(h.as(u), u, s); return err },
	} {
		t.Log(what)
		h.kind(change(), problem.Forbidden, "confirm_first")
	}
	h.kind(h.Confirm(h.as(u), u, s, "wrong", h.code(secret, 0)), problem.Invalid, "")
	h.kind(h.Confirm(h.as(u), u, s, goodPassword, "000000"), problem.Invalid, "")
	h.kind(h.Confirm(h.as(u), u, s, goodPassword, ""), problem.Invalid, "")
	h.must(h.Confirm(h.as(u), u, s, goodPassword, h.code(secret, 0)))
	s, u = again()
	codes, err := h.NewRecoveryCodes(h.as(u), u, s)
	h.must(err)
	if len(codes) != secondfactor.RecoveryCodes {
		t.Errorf("%d codes", len(codes))
	}
	h.must(h.RemoveFactor(h.as(u), u, s, f.List[0].ID))
	h.kind(h.RemoveFactor(h.as(u), u, s, f.List[0].ID), problem.NotFound, "")
	h.signIn("olga@example.com") // with the password alone again
}

func TestRequiredSecondFactor(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	h.join(owner, "", "vera@example.com", accounts.Viewer)
	var err error
	h.People, err = accounts.NewPeople(h.store, accounts.PeopleConfig{
		Limiter: h.limiter, Now: h.clock.now, RequireSecondFactor: []accounts.Role{accounts.Owner},
	})
	h.must(err)
	accounts.CountHashes(h.People)
	h.signIn("vera@example.com")
	pending := h.password("olga@example.com")
	_, err = h.finish(pending, "000000")
	h.kind(err, problem.Unauthenticated, "code_wrong")
	made, err := secondfactor.NewTOTP("olga@example.com")
	h.must(err)
	enroll := func(token, code string) (accounts.SignedIn, error) {
		return h.EnrollTOTP(t.Context(), token, made.Secret, code, "Phone", "192.0.2.1", "")
	}
	_, err = enroll(pending, "000000")
	h.kind(err, problem.Invalid, "")
	second := h.password("olga@example.com")
	in, err := enroll(pending, h.code(made.Secret, 0))
	h.must(err)
	if _, u, err := h.Session(t.Context(), in.Token); err != nil || !u.SecondFactor || len(in.Codes) != secondfactor.RecoveryCodes {
		t.Errorf("signed in as %+v with %d codes, %v", u, len(in.Codes), err)
	}
	_, err = enroll(second, h.code(made.Secret, 1)) // it ended with the others
	h.kind(err, problem.Unauthenticated, "sign_in_expired")
	_, err = enroll(h.password("olga@example.com"), h.code(made.Secret, 1))
	h.kind(err, problem.Conflict, "second_factor_exists") // the password alone adds no further one
	f, err := h.FactorsOf(t.Context(), in.User)
	h.must(err)
	h.kind(h.RemoveFactor(h.as(in.User), in.User, in.Session, f.List[0].ID), problem.Conflict, "second_factor_required")
}

func TestResetSecondFactor(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	viewer := h.join(owner, "", "vera@example.com", accounts.Viewer)
	cookie, s, viewer2 := h.signIn("vera@example.com")
	h.withApp(viewer2, s)
	reset := func(ctx context.Context, by accounts.User, tenantID, id string) error {
		_, err := h.ResetSecondFactor(ctx, by.Principal(), tenantID, id)
		return err
	}
	h.kind(reset(h.as(viewer), viewer, "", owner.ID), problem.Forbidden, "")
	h.kind(reset(h.as(owner), owner, "", owner.ID), problem.Forbidden, "own_account")
	h.kind(reset(h.as(owner), owner, h.tenant.ID, viewer.ID), problem.NotFound, "")
	h.must(reset(h.as(owner), owner, "", viewer.ID))
	if e := h.lines()[0]; e.Action != "second_factor.reset" || e.Object != viewer.ID || e.Actor != owner.Actor() {
		t.Errorf("line %+v", e)
	}
	_, _, err := h.Session(t.Context(), cookie)
	h.kind(err, problem.Unauthenticated, "")
	h.kind(reset(h.as(owner), owner, "", viewer.ID), problem.Conflict, "no_second_factor")
	h.signIn("vera@example.com")
}

// A sign-in at an OpenID provider needs no second factor here.
func TestOpenIDNeedsNoSecondFactor(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.owner()
	_, s, u := h.signIn("olga@example.com")
	h.withApp(u, s)
	who := accounts.Identity{Issuer: "https://id", Subject: "1", Email: "olga@example.com", Verified: true}
	_, in, _, err := h.SignInWith(t.Context(), who, "192.0.2.1", "")
	h.must(err)
	if in.Confirmed(h.clock.now()) {
		t.Error("a sign-in without the password confirms it")
	}
}
