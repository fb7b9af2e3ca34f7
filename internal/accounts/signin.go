package accounts

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// errSignIn is the same for an unknown person, a wrong password and a disabled
// account.
var errSignIn = problem.WithCode(problem.Unauthenticated, "sign_in_failed", "the e-mail address or the password is wrong")

// SignIn begins a session of whoever has the e-mail address and the password,
// and gives the cookie's value, which is shown this once and not kept.
// Unauthenticated (code sign_in_failed), *LimitedError, Unavailable.
//
// Answer and work are the same for an unknown person, a disabled one and a
// wrong password: one look into the store, one hash, one line.
func (p *People) SignIn(ctx context.Context, email, password, address, agent string) (string, Session, User, error) {
	email = strings.TrimSpace(email)
	tried, err := p.limit.charge(ctx, FoldEmail(email), address)
	if err != nil {
		return "", Session{}, User{}, err
	}
	u, err := p.byEmail(ctx, email)
	if err != nil {
		tried.refund(ctx) // nobody learnt anything
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
	token, session, u, err := p.begin(ctx, u, "password", address, agent)
	if problem.Is(err, problem.NotFound) {
		err = errSignIn // removed or disabled meanwhile
	}
	return token, session, u, err
}

// noAddress stands in the audit log for what was typed as an e-mail address and
// is none: it may well be a password.
const noAddress = "(no e-mail address)"

// byEmail finds a user; the zero User when there is none.
func (p *People) byEmail(ctx context.Context, email string) (User, error) {
	if !ValidEmail(email) {
		return User{}, nil
	}
	return orNobody(p.store.UserByEmail(ctx, email))
}

// orNobody makes the zero User of one that is not found.
func orNobody(u User, err error) (User, error) {
	if problem.Is(err, problem.NotFound) {
		return User{}, nil
	}
	return u, err
}

// failed writes the line of a sign-in that failed, and gives the answer. u is
// whose account was tried, or nobody. The actor is whoever typed the name: the
// line does not say that it was the user.
func (p *People) failed(ctx context.Context, u User, name string, s auditSession, answer error) error {
	e := audit.Entry{Action: "session.sign_in_failed", TenantID: u.TenantID, Object: u.ID, ObjectName: audit.Clean(name)}
	e.Actor = audit.Actor{Kind: "user", Name: audit.Clean(name)}
	_, e.Origin = audit.Who(ctx)
	var err error
	if e.After, err = json.Marshal(s); err != nil {
		return fmt.Errorf("describe a failed sign-in for the audit log: %w", err)
	}
	if err := p.store.WriteAudit(ctx, e); err != nil {
		return err
	}
	return answer
}

// rehash makes the stored hash anew when hashes take more than they did. Other
// sessions of the user end with that, as with every new hash.
func (p *People) rehash(ctx context.Context, u User, password string) (User, error) {
	if !p.passwords.outdated(u.Password) {
		return u, nil
	}
	after := u
	var err error
	if after.Password, err = p.passwords.hash(ctx, password); err != nil {
		return User{}, err
	}
	e, err := ownEntry(ctx, "user.update", u, &u, &after)
	if err != nil {
		return User{}, err
	}
	after, err = p.store.UpdateUser(ctx, after, u.Revision, "", e)
	if problem.Is(err, problem.Stale) {
		return u, nil // the next sign-in will do it
	}
	return after, err
}

// maxAgent is how much of a User-Agent is kept, in characters.
const maxAgent = 200

func cutAgent(agent string) string {
	cut := []rune(audit.Clean(agent))
	return string(cut[:min(len(cut), maxAgent)])
}

// begin makes a session; NotFound for somebody who is gone or disabled.
func (p *People) begin(ctx context.Context, u User, by, address, agent string) (string, Session, User, error) {
	id, err := newID()
	if err != nil {
		return "", Session{}, User{}, err
	}
	if _, canonical, err := enforcement.CanonicalIP(address); err == nil {
		address = canonical
	}
	now := p.instant()
	token, hash := newSecret()
	s := Session{
		ID: id, Hash: hash, UserID: u.ID, Address: audit.Clean(address), Agent: cutAgent(agent),
		CreatedAt: now, SeenAt: now, ExpiresAt: now.Add(SessionLife),
	}
	e, err := sessionEntry(ctx, "session.sign_in", u, auditSession{Session: id, By: by, Agent: s.Agent})
	if err != nil {
		return "", Session{}, User{}, err
	}
	if s, err = p.store.CreateSession(ctx, s, e); err != nil {
		return "", Session{}, User{}, err
	}
	u.SignedInAt = now
	return token, s, u, nil
}

// An Identity is what an OpenID provider says of somebody.
type Identity struct {
	Issuer, Subject string
	Email           string // "": it does not say
	// Verified: the provider has made sure that the address is theirs.
	Verified bool
	Name     string
}

// errUnknownIdentity is the same for whoever may not sign in this way.
var errUnknownIdentity = problem.WithCode(problem.Unauthenticated, "unknown_person",
	"nobody here has this account: ask for an invitation to the e-mail address that your provider has verified")

// SignInWith is SignIn for somebody whom an OpenID provider has signed in: the
// user who is linked to them, else the one with the same verified e-mail
// address, who is linked by that, else whoever holds an open invitation for it.
// Nobody is made otherwise. Unauthenticated (code unknown_person).
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
		if name == "" {
			name = who.Subject
		}
		return "", Session{}, User{}, p.failed(ctx, u, name, auditSession{By: "oidc", Agent: cutAgent(agent)}, errUnknownIdentity)
	}
	token, session, u, err := p.begin(ctx, u, "oidc", address, agent)
	if problem.Is(err, problem.NotFound) {
		err = errUnknownIdentity // removed or disabled meanwhile
	}
	return token, session, u, err
}

// identified finds, links or makes the user; the zero User for a stranger.
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
		return User{}, nil // linked to somebody else: the address has moved on
	case u.Disabled:
		return u, nil
	}
	after := u
	after.Issuer, after.Subject = who.Issuer, who.Subject
	e, err := ownEntry(ctx, "user.update", u, &u, &after)
	if err != nil {
		return User{}, err
	}
	return p.store.UpdateUser(ctx, after, u.Revision, "", e)
}
