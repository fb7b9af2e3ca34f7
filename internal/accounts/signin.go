package accounts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// errSignIn is the error for an unknown address, a wrong password and a disabled account. All
// of them have the same error, so that a caller does not find out whether the account exists.
var errSignIn = problem.WithCode(problem.Unauthenticated, "sign_in_failed", "the e-mail address or the password is wrong")

// SignIn starts a session of the user with this e-mail address and password. It returns the
// value of the session cookie, of which only a hash is stored. The error is
// problem.Unauthenticated with the code sign_in_failed, a *LimitedError, or
// problem.Unavailable. If the user also needs a second factor, no session begins. The error is
// then a *SecondFactorError, whose token FinishSignIn needs.
//
// An unknown address, a disabled account and a wrong password cause the same response and the
// same work: one read of the store, one hash, and one audit line.
func (p *People) SignIn(ctx context.Context, email, password, address, agent string) (string, Session, User, error) {
	return p.SignInFrom(ctx, "", email, password, address, agent)
}

// SignInFrom is like SignIn, for a browser that sends a value of RememberBrowser. If the value is
// valid for this user, the failed sign-ins of this browser have their own counter. Therefore failed
// sign-ins from other browsers do not lock out the user. An invalid value has no effect.
func (p *People) SignInFrom(ctx context.Context, browser, email, password, address, agent string) (string, Session, User, error) {
	email = strings.TrimSpace(email)
	u, tried, err := p.try(ctx, browser, email, address)
	if err != nil {
		return "", Session{}, User{}, err
	}
	right, err := p.passwords.verify(ctx, u.Password, password)
	if err != nil {
		return "", Session{}, User{}, err
	}
	if !right || u.Disabled {
		if !ValidEmail(email) {
			email = noAddress
		}
		return "", Session{}, User{}, p.failed(ctx, u, email, auditSession{By: "password", Agent: cutAgent(agent)}, errSignIn)
	}
	tried.refund(ctx)
	if u, err = p.rehash(ctx, u, password); err != nil {
		return "", Session{}, User{}, err
	}
	if p.needsSecond(u) {
		return "", Session{}, User{}, p.pend(ctx, u)
	}
	token, session, u, err := p.begin(ctx, u, "password", address, agent)
	if problem.Is(err, problem.NotFound) {
		err = errSignIn // the user was deleted or disabled after the password was checked
	}
	return token, session, u, err
}

// try finds the user with an e-mail address and charges one failed sign-in. SignInFrom checks
// the password after that, and refunds the charge if the password is right. If there is no such
// user, try returns the zero User.
func (p *People) try(ctx context.Context, browser, email, address string) (User, *attempt, error) {
	if nonce, _ := splitBrowser(browser); nonce != nil {
		u, err := p.byEmail(ctx, email)
		if err != nil {
			return User{}, nil, err
		}
		if remembers(u, browser) {
			tried, err := p.limit.chargeBrowser(ctx, string(nonce), u.ID)
			return u, tried, err
		}
	}
	tried, err := p.limit.charge(ctx, FoldEmail(email), address)
	if err != nil {
		return User{}, nil, err
	}
	u, err := p.byEmail(ctx, email)
	if err != nil {
		tried.refund(ctx) // the caller has learned nothing about the password, so the charge is refunded
	}
	return u, tried, err
}

// noAddress replaces an invalid e-mail address in the audit log, because people sometimes type
// their password into this field.
const noAddress = "(no e-mail address)"

// byEmail finds a user by e-mail address. If there is none, it returns the zero User.
func (p *People) byEmail(ctx context.Context, email string) (User, error) {
	if !ValidEmail(email) {
		return User{}, nil
	}
	return orNobody(p.store.UserByEmail(ctx, email))
}

// orNobody returns u and err. If err is problem.NotFound, it returns the zero User and no error.
func orNobody(u User, err error) (User, error) {
	if problem.Is(err, problem.NotFound) {
		return User{}, nil
	}
	return u, err
}

// failed writes the audit line of a failed sign-in and returns the error answer. u is the user with
// the typed address, or the zero User. The actor in the line has only the typed name and no ID,
// because a failed sign-in does not prove the identity of the person.
func (p *People) failed(ctx context.Context, u User, name string, s auditSession, answer error) error {
	name = audit.Clean(name)
	e := audit.Complete(ctx, audit.Entry{
		Actor:  audit.Actor{Kind: "user", Name: name},
		Action: "session.sign_in_failed", TenantID: u.TenantID, Object: u.ID, ObjectName: name,
	}, nil, s)
	if err := p.store.WriteAudit(ctx, e); err != nil {
		return err
	}
	return answer
}

// rehash replaces the user's password hash if its cost is lower than that of new hashes. It returns
// the user after the change. Like every change of the hash, this change ends the other sessions of
// the user.
func (p *People) rehash(ctx context.Context, u User, password string) (User, error) {
	if !p.passwords.outdated(u.Password) {
		return u, nil
	}
	after := u
	var err error
	if after.Password, err = p.passwords.hash(ctx, password); err != nil {
		return User{}, err
	}
	e := userEntry(ctx, u.Actor(), "user.update", u, u, after)
	after, err = p.store.UpdateUser(ctx, after, u.Revision, "", e)
	if problem.Is(err, problem.Stale) {
		return u, nil // rehash ignores the error, because the next sign-in tries again
	}
	return after, err
}

// maxAgent is the maximum number of characters of a User-Agent that are stored.
const maxAgent = 200

func cutAgent(agent string) string {
	cut := []rune(audit.Clean(agent))
	return string(cut[:min(len(cut), maxAgent)])
}

// newSession returns a new session of a user and the value of its cookie. It stores nothing.
func (p *People) newSession(u User, address, agent string) (string, Session) {
	if _, canonical, err := enforcement.CanonicalIP(address); err == nil {
		address = canonical
	}
	now := p.instant()
	token, hash := newSecret()
	return token, Session{
		ID: audit.NewID(), Hash: hash, UserID: u.ID, Address: audit.Clean(address), Agent: cutAgent(agent),
		CreatedAt: now, SeenAt: now, ExpiresAt: now.Add(SessionLife),
	}
}

// begin creates a session of u. by is "password" or "oidc". The error is problem.NotFound if the
// user was deleted or disabled in the meantime.
func (p *People) begin(ctx context.Context, u User, by, address, agent string) (string, Session, User, error) {
	token, s := p.newSession(u, address, agent)
	if by == "password" {
		s.ConfirmedAt = s.CreatedAt
	}
	e := userEntry(ctx, u.Actor(), "session.sign_in", u, nil, auditSession{Session: s.ID, By: by, Agent: s.Agent})
	s, err := p.store.CreateSession(ctx, s, e)
	if err != nil {
		return "", Session{}, User{}, err
	}
	u.SignedInAt = s.CreatedAt
	return token, s, u, p.endOldest(ctx, u, s)
}

// maxSessions is the maximum number of sessions of one person.
const maxSessions = 20

// endOldest ends the oldest sessions of the user u if the user has more than maxSessions, until
// maxSessions are left. It never ends the session s.
func (p *People) endOldest(ctx context.Context, u User, s Session) error {
	list, err := p.store.Sessions(ctx, u.ID, s.CreatedAt)
	if err != nil || len(list) <= maxSessions {
		return err
	}
	slices.SortFunc(list, func(a, b Session) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(b.ID, a.ID))
	})
	for _, old := range list[maxSessions:] {
		e := userEntry(ctx, u.Actor(), "session.end", u, nil, auditSession{Session: old.ID, Why: "too many sessions"})
		if _, err := p.store.EndSession(ctx, u.ID, old.ID, "", e); err != nil {
			return err
		}
	}
	return nil
}

// An Identity is a person as an OpenID provider describes it.
type Identity struct {
	Issuer, Subject string
	Email           string // "" if the provider does not report one
	// Verified says that the provider has verified that Email belongs to the person.
	Verified bool
	Name     string
}

// errUnknownIdentity is the error for an identity that is linked to no user and has no
// invitation, and for a disabled user.
var errUnknownIdentity = problem.WithCode(problem.Unauthenticated, "unknown_person",
	"no user here is linked to this account: ask for an invitation to the e-mail address that your provider has verified")

// SignInWith starts a session for a person whom an OpenID provider has authenticated. It uses
// the user that is linked to the identity. If there is none, it links the identity to the user
// with the same verified e-mail address. If there is no such user either, it accepts an open
// invitation for the address, which creates a user. Otherwise the error is
// problem.Unauthenticated with the code unknown_person.
func (p *People) SignInWith(ctx context.Context, who Identity, address, agent string) (string, Session, User, error) {
	if who.Issuer == "" || who.Subject == "" {
		return "", Session{}, User{}, fmt.Errorf("sign in with an identity that has no issuer or subject")
	}
	u, err := p.identified(ctx, who)
	if err != nil {
		return "", Session{}, User{}, err
	}
	if u.ID == "" || u.Disabled {
		name := who.Email
		name = cmp.Or(name, who.Subject)
		return "", Session{}, User{}, p.failed(ctx, u, name, auditSession{By: "oidc", Agent: cutAgent(agent)}, errUnknownIdentity)
	}
	token, session, u, err := p.begin(ctx, u, "oidc", address, agent)
	if problem.Is(err, problem.NotFound) {
		err = errUnknownIdentity // the user was deleted or disabled in the meantime
	}
	return token, session, u, err
}

// identified returns the user of an identity. If no user is linked to the identity, identified
// links a user to it, or creates a user from an invitation. If neither is possible, it returns
// the zero User.
func (p *People) identified(ctx context.Context, who Identity) (User, error) {
	u, err := orNobody(p.store.UserBySubject(ctx, who.Issuer, who.Subject))
	if err != nil || u.ID != "" || !who.Verified || !ValidEmail(who.Email) {
		return u, err
	}
	if u, err = p.byEmail(ctx, who.Email); err != nil {
		return User{}, err
	}
	switch {
	case u.ID == "":
		return p.invited(ctx, who)
	case u.Issuer != "":
		return User{}, nil // the user is linked to another identity, so the address now belongs to another person
	case u.Disabled:
		return u, nil
	}
	after := u
	after.Issuer, after.Subject = who.Issuer, who.Subject
	e := userEntry(ctx, u.Actor(), "user.update", u, u, after)
	return p.store.UpdateUser(ctx, after, u.Revision, "", e)
}
