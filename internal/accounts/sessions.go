package accounts

import (
	"cmp"
	"context"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// This file has the methods with which people change their own sessions and accounts.

// errNoSession is the error for every session cookie that does not work: a forged cookie, an
// expired cookie, or the cookie of a session that was ended.
var errNoSession = problem.New(problem.Unauthenticated, "sign in")

// Session returns the session to which the value of a cookie belongs, and the user of the session.
// It also stores the current time as the time of the session's last use. The error is
// problem.Unauthenticated if there is no such session or it has expired. If the value is malformed,
// Session does not read the store.
func (p *People) Session(ctx context.Context, cookie string) (Session, User, error) {
	hash, ok := hashSecret(cookie)
	if !ok {
		return Session{}, User{}, errNoSession
	}
	s, u, err := p.store.Session(ctx, hash, p.instant())
	if problem.Is(err, problem.NotFound) {
		return Session{}, User{}, errNoSession
	}
	return s, u, err
}

// KeepSession records that the session s is in use. A page that stays open without further
// requests calls it. The error is problem.Unauthenticated if the session has ended, or if Renew
// has changed its cookie value since s was read.
func (p *People) KeepSession(ctx context.Context, s Session) error {
	_, _, err := p.store.Session(ctx, s.Hash, p.instant())
	if problem.Is(err, problem.NotFound) {
		return errNoSession
	}
	return err
}

// Renew gives a session a new cookie value and returns it. The previous value stops working. The
// error is problem.Unauthenticated if the session has ended.
func (p *People) Renew(ctx context.Context, s Session) (string, error) {
	token, hash := newSecret()
	err := p.store.RenewSession(ctx, s.ID, hash)
	if problem.Is(err, problem.NotFound) {
		return "", errNoSession
	}
	if err != nil {
		return "", err
	}
	return token, nil
}

// SignOut ends the session s of the user u. If the session has already ended, SignOut returns nil.
func (p *People) SignOut(ctx context.Context, u User, s Session) error {
	_, err := p.end(ctx, u, "session.sign_out", s.ID, "")
	if problem.Is(err, problem.NotFound) {
		return nil // the user was deleted, which also deleted the session
	}
	return err
}

// Sessions lists the sessions of a user, newest first.
func (p *People) Sessions(ctx context.Context, u User) ([]Session, error) {
	return p.store.Sessions(ctx, u.ID, p.instant())
}

// EndSession ends one of a user's own sessions. The error is problem.NotFound if the user has no such session.
func (p *People) EndSession(ctx context.Context, u User, id string) error {
	n, err := p.end(ctx, u, "session.end", id, "")
	if err == nil && n == 0 {
		return problem.New(problem.NotFound, "there is no such session")
	}
	return err
}

// EndOtherSessions ends all sessions of a user except the session but, and returns their
// number.
func (p *People) EndOtherSessions(ctx context.Context, u User, but Session) (int, error) {
	return p.end(ctx, u, "session.end", "", but.ID)
}

func (p *People) end(ctx context.Context, u User, action, id, keep string) (int, error) {
	if id == "" && keep == "" {
		return 0, problem.New(problem.NotFound, "there is no such session")
	}
	e := userEntry(ctx, u.Actor(), action, u, nil, auditSession{Session: id})
	return p.store.EndSession(ctx, u.ID, id, keep, e)
}

// EndOverSessions deletes the sessions, pending sign-ins, challenges, shared links and old
// invitations that have expired. Any node may call it at any time.
func (p *People) EndOverSessions(ctx context.Context) error {
	return p.store.EndOverSessions(ctx, p.instant())
}

// ChangeName changes the name of a user. The error is problem.Invalid, problem.NotFound or
// problem.Stale.
func (p *People) ChangeName(ctx context.Context, u User, name string) (User, error) {
	var f problem.Fields
	if f.Line("/name", name, 1, tenants.MaxName); f.Err() != nil {
		return User{}, f.Err()
	}
	before, err := p.store.User(ctx, u.ID)
	if err != nil || before.Name == name {
		return before, err
	}
	after := before
	after.Name = name
	return p.update(ctx, "user.update", before, after, "")
}

// ChangePassword sets a new password for the user of the session s and ends the user's other
// sessions. It returns a new cookie value for s.
//
// The error is problem.Invalid at /current_password or /password, problem.NotFound, or
// problem.Stale. A wrong current password counts as a failed sign-in, so the error can also be
// a *LimitedError.
func (p *People) ChangePassword(ctx context.Context, u User, s Session, current, next string) (string, error) {
	_, origin := audit.Who(ctx)
	address := origin.Address
	address = cmp.Or(address, s.Address)
	tried, err := p.limit.charge(ctx, FoldEmail(u.Email), address)
	if err != nil {
		return "", err
	}
	before, err := p.store.User(ctx, u.ID)
	if err != nil {
		tried.refund(ctx)
		return "", err
	}
	right, err := p.passwords.verify(ctx, before.Password, current)
	if err != nil {
		return "", err
	}
	if !right {
		why := auditSession{Session: s.ID, By: "password", Why: "current password of a change"}
		return "", p.failed(ctx, before, before.Email, why, problem.At("/current_password", "is not your password"))
	}
	tried.refund(ctx)
	if err := p.replacePassword(ctx, before, s, current, next); err != nil {
		return "", err
	}
	return p.Renew(ctx, s)
}

func (p *People) replacePassword(ctx context.Context, before User, s Session, current, next string) error {
	if next == current {
		return problem.At("/password", "is your current password: choose another one")
	}
	if fault := passwordFault(next, before.Email, before.Name); fault != "" {
		return problem.At("/password", "%s", fault)
	}
	after := before
	var err error
	if after.Password, err = p.passwords.hash(ctx, next); err != nil {
		return err
	}
	_, err = p.update(ctx, "user.password", before, after, s.ID)
	return err
}
