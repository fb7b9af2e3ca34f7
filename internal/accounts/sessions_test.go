package accounts_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
)

const newPassword = "copper kettle at noon"

func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.owner()
	ctx := t.Context()
	over := func(token string) {
		t.Helper()
		_, _, err := h.Session(ctx, token)
		h.kind(err, problem.Unauthenticated, "")
	}
	alive := func(token string) {
		t.Helper()
		_, _, err := h.Session(ctx, token)
		h.must(err)
	}
	for _, made := range []string{"", "abc", "********************************************"[:43], string(make([]byte, 43))} {
		over(made)
	}
	idle, _, _ := h.signIn("olga@example.com")
	h.clock.advance(accounts.SessionIdle - time.Millisecond)
	alive(idle)
	h.clock.advance(accounts.SessionIdle)
	over(idle)

	used, _, _ := h.signIn("olga@example.com")
	for range 36 { // 12 h, never idle
		alive(used)
		h.clock.advance(20 * time.Minute)
	}
	over(used)
	h.must(h.EndOverSessions(ctx))

	mine, s, u := h.signIn("olga@example.com")
	second, _, _ := h.signIn("olga@example.com")
	third, s3, _ := h.signIn("olga@example.com")
	if list, err := h.Sessions(ctx, u); len(list) != 3 || err != nil {
		t.Errorf("%d sessions, %v", len(list), err)
	}
	h.must(h.EndSession(h.as(u), u, s3.ID))
	over(third)
	h.kind(h.EndSession(h.as(u), u, s3.ID), problem.NotFound, "")
	h.kind(h.EndSession(h.as(u), u, ""), problem.NotFound, "")
	if n, err := h.EndOtherSessions(h.as(u), u, s); n != 1 || err != nil {
		t.Errorf("%d ended, %v", n, err)
	}
	over(second)
	alive(mine)
	renewed, err := h.Renew(ctx, s)
	h.must(err)
	over(mine)
	alive(renewed)
	h.must(h.SignOut(h.as(u), u, s))
	over(renewed)
	h.must(h.SignOut(h.as(u), u, s))
	_, err = h.Renew(ctx, s)
	h.kind(err, problem.Unauthenticated, "")
}

func TestNobodyEndsAnothersSession(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	viewer := h.join(owner, "", "vera@example.com", accounts.Viewer)
	token, s, _ := h.signIn("olga@example.com")
	h.kind(h.EndSession(h.as(viewer), viewer, s.ID), problem.NotFound, "")
	if _, _, err := h.Session(t.Context(), token); err != nil {
		t.Errorf("the owner's session has ended: %v", err)
	}
}

func TestChangePassword(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.owner()
	mine, s, u := h.signIn("olga@example.com")
	other, _, _ := h.signIn("olga@example.com")
	ctx := h.as(u)
	_, err := h.ChangePassword(ctx, u, s, "not this one at all", newPassword)
	h.field(err, "/current_password")
	if e := h.lines()[0]; e.Action != "session.sign_in_failed" || e.Object != u.ID {
		t.Errorf("line %+v", e)
	}
	for _, bad := range []string{"short", goodPassword, "olga likes rivers"} {
		_, err = h.ChangePassword(ctx, u, s, goodPassword, bad)
		h.field(err, "/password")
	}
	next, err := h.ChangePassword(ctx, u, s, goodPassword, newPassword)
	h.must(err)
	for _, token := range []string{mine, other} {
		_, _, err := h.Session(t.Context(), token)
		h.kind(err, problem.Unauthenticated, "")
	}
	if found, _, err := h.Session(t.Context(), next); err != nil || found.ID != s.ID {
		t.Errorf("this session: %+v, %v", found, err)
	}
	if e := h.lines()[0]; e.Action != "user.password" || e.Actor != u.Actor() {
		t.Errorf("line %+v", e)
	}
	_, _, _, err = h.SignIn(t.Context(), u.Email, goodPassword, "192.0.2.1", "")
	h.kind(err, problem.Unauthenticated, "sign_in_failed")

	// Wrong ones count like sign-ins that failed: the two above and three more.
	for range 3 {
		_, err = h.ChangePassword(ctx, u, s, "not this one at all", newPassword)
		h.field(err, "/current_password")
	}
	_, err = h.ChangePassword(ctx, u, s, newPassword, goodPassword)
	if limit := (*accounts.LimitedError)(nil); !errors.As(err, &limit) {
		t.Errorf("%v, want a limit", err)
	}
}

func TestChangeName(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.owner()
	token, _, u := h.signIn("olga@example.com")
	for _, bad := range []string{"", "  ", "a\nb"} {
		_, err := h.ChangeName(h.as(u), u, bad)
		h.field(err, "/name")
	}
	changed, err := h.ChangeName(h.as(u), u, "Olga B.")
	if err != nil || changed.Name != "Olga B." || changed.Role != accounts.Owner {
		t.Errorf("%+v, %v", changed, err)
	}
	if _, who, err := h.Session(t.Context(), token); err != nil || who.Name != "Olga B." {
		t.Errorf("the session has ended with the name: %+v, %v", who, err)
	}
	lines := len(h.lines())
	if _, err := h.ChangeName(h.as(u), u, "Olga B."); err != nil || len(h.lines()) != lines {
		t.Errorf("the same name: %v, %d lines more", err, len(h.lines())-lines)
	}
}
