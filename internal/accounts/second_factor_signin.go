package accounts

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/secondfactor"
)

// This file has the second step of a sign-in with a password. In this step, a person uses a code, a
// recovery code or a passkey. If the person's role requires a second factor and the person has
// none, the person adds the first one in this step.

// errNoPending is the error for a token of a SecondFactorError that is unknown or expired.
var errNoPending = problem.WithCode(problem.Unauthenticated, "sign_in_expired",
	"the sign-in took too long, or was finished in another tab: sign in again")

// errCode is the error for a code that is wrong, was used, or is too old.
var errCode = problem.WithCode(problem.Unauthenticated, "code_wrong", "the code is wrong, too old, or was used already")

// errPasskey is the error for a passkey that was not accepted.
var errPasskey = problem.WithCode(problem.Unauthenticated, "passkey_wrong", "the passkey was not accepted, or took too long: try again")

// errUnreadable is the error for a TOTP secret that this node cannot decrypt.
var errUnreadable = problem.WithCode(problem.Unavailable, "second_factor_unreadable",
	"this server cannot read the secret of your authenticator app, because HEADGATE_SECRETS_KEY is missing or has changed: "+
		"use a recovery code or a passkey")

// A SignedIn is the result of a completed sign-in.
type SignedIn struct {
	Token   string // the value of the session cookie
	Session Session
	User    User
	// Codes are new recovery codes. They are set if the sign-in added the first second factor.
	// Only their hashes are stored.
	Codes []string
}

// needsSecond reports whether a sign-in of the user with a password needs a second step: the
// user has a second factor, or the user's role requires one.
func (p *People) needsSecond(u User) bool { return u.SecondFactor || p.requires(u.Role) }

// requires reports whether a role requires a second factor.
func (p *People) requires(role Role) bool { return slices.Contains(p.required, role) }

// pend creates a pending sign-in. It returns a *SecondFactorError that contains the token of this sign-in.
func (p *People) pend(ctx context.Context, u User) error {
	token, hash := newSecret()
	now := p.instant()
	err := p.store.CreatePending(ctx, PendingSignIn{
		ID: audit.NewID(), Hash: hash, UserID: u.ID, CreatedAt: now, ExpiresAt: now.Add(PendingLife),
	})
	if err != nil {
		return err
	}
	return &SecondFactorError{Token: token}
}

// Pending returns a pending sign-in, its user, and the user's second factors. token is the Token of
// the SecondFactorError. If the user has no second factor, only EnrollTOTP or EnrollPasskey can
// finish the sign-in. The error is problem.Unauthenticated if the token is unknown or has expired.
func (p *People) Pending(ctx context.Context, token string) (PendingSignIn, User, Factors, error) {
	hash, ok := hashSecret(token)
	if !ok {
		return PendingSignIn{}, User{}, Factors{}, errNoPending
	}
	pending, u, err := p.store.Pending(ctx, hash, p.instant())
	if problem.Is(err, problem.NotFound) {
		err = errNoPending
	}
	if err != nil {
		return PendingSignIn{}, User{}, Factors{}, err
	}
	f, err := p.FactorsOf(ctx, u)
	return pending, u, f, err
}

// FinishSignIn finishes a sign-in with a code of an authenticator app or a recovery code. token is
// the Token of the SecondFactorError. browser is a value of RememberBrowser, or "". The error is
// problem.Unauthenticated with the code sign_in_expired or code_wrong, a *LimitedError, or
// problem.Unavailable.
//
// FinishSignIn counts wrong codes for the account. If the person has signed in with this browser
// before, it counts them only for this browser. Therefore an attacker who knows the password cannot
// lock out the person.
func (p *People) FinishSignIn(ctx context.Context, browser, token, code, address, agent string) (SignedIn, error) {
	pending, u, f, err := p.Pending(ctx, token)
	if err != nil {
		return SignedIn{}, err
	}
	tried, err := p.limit.chargeCode(ctx, codeCounter(u, browser))
	if err != nil {
		return SignedIn{}, err
	}
	by, err := p.verifyCode(ctx, u, f, code)
	if err != nil {
		return SignedIn{}, p.wrongFactor(ctx, u, tried, err, auditSession{By: "code", Agent: cutAgent(agent)})
	}
	tried.refund(ctx)
	return p.finish(ctx, pending, u, by, address, agent)
}

// FinishWithPasskey finishes a sign-in with a passkey. response is the browser's response to
// BeginUsePasskey. origin is the address of the dashboard. The errors are those of
// FinishSignIn, with the code passkey_wrong in place of code_wrong.
func (p *People) FinishWithPasskey(
	ctx context.Context, browser, token, origin string, response []byte, address, agent string,
) (SignedIn, error) {
	pending, u, f, err := p.Pending(ctx, token)
	if err != nil {
		return SignedIn{}, err
	}
	tried, err := p.limit.chargeCode(ctx, codeCounter(u, browser)+" passkey")
	if err != nil {
		return SignedIn{}, err
	}
	if err := p.verifyPasskey(ctx, u, f, pending.ID, origin, response); err != nil {
		return SignedIn{}, p.wrongFactor(ctx, u, tried, err, auditSession{By: "passkey", Agent: cutAgent(agent)})
	}
	tried.refund(ctx)
	return p.finish(ctx, pending, u, "password and passkey", address, agent)
}

// codeCounter returns the name of the counter for wrong codes. If browser is a valid value of
// RememberBrowser for this user, it is the counter of the browser. Otherwise it is the counter of
// the account.
func codeCounter(u User, browser string) string {
	if nonce, _ := splitBrowser(browser); nonce != nil && remembers(u, browser) {
		return "browser " + string(nonce) + " " + u.ID
	}
	return "account " + u.ID
}

// wrongFactor writes the audit line if err means that the code or the passkey is wrong. After any
// other error, it refunds the charge, because the caller has learned nothing about the code.
func (p *People) wrongFactor(ctx context.Context, u User, tried *attempt, err error, s auditSession) error {
	if !problem.Is(err, problem.Unauthenticated) {
		tried.refund(ctx)
		return err
	}
	return p.failed(ctx, u, u.Email, s, err)
}

// finish replaces a pending sign-in with a session. by names the used second factor for the audit
// log.
func (p *People) finish(ctx context.Context, pending PendingSignIn, u User, by, address, agent string) (SignedIn, error) {
	token, s := p.newSession(u, address, agent)
	s.ConfirmedAt = s.CreatedAt
	e := userEntry(ctx, u.Actor(), "session.sign_in", u, nil, auditSession{Session: s.ID, By: by, Agent: s.Agent})
	s, err := p.store.FinishPending(ctx, pending.ID, s, e)
	if problem.Is(err, problem.NotFound) {
		err = errNoPending
	}
	if err != nil {
		return SignedIn{}, err
	}
	u.SignedInAt = s.CreatedAt
	return SignedIn{Token: token, Session: s, User: u}, p.endOldest(ctx, u, s)
}

// EnrollTOTP finishes the sign-in of a person whose role requires a second factor and who has none.
// It adds an authenticator app. The result has new recovery codes. Further errors are those of
// AddTOTP.
func (p *People) EnrollTOTP(ctx context.Context, token, secret, code, name, address, agent string) (SignedIn, error) {
	return p.enroll(ctx, token, address, agent, func(ctx context.Context, pending PendingSignIn, u User) ([]string, error) {
		return p.addTOTP(ctx, u, pending.ID, secret, code, name)
	})
}

// EnrollPasskey does the same as EnrollTOTP for a passkey. response is the browser's response
// to BeginAddPasskey.
func (p *People) EnrollPasskey(ctx context.Context, token, origin, name string, response []byte, address, agent string) (SignedIn, error) {
	return p.enroll(ctx, token, address, agent, func(ctx context.Context, pending PendingSignIn, u User) ([]string, error) {
		return p.addPasskey(ctx, u, pending.ID, origin, name, response)
	})
}

func (p *People) enroll(ctx context.Context, token, address, agent string,
	add func(context.Context, PendingSignIn, User) ([]string, error),
) (SignedIn, error) {
	pending, u, _, err := p.Pending(ctx, token)
	if err != nil {
		return SignedIn{}, err
	}
	if u.SecondFactor {
		return SignedIn{}, errEnrolled
	}
	codes, err := add(ctx, pending, u)
	if err != nil {
		return SignedIn{}, err
	}
	in, err := p.finish(ctx, pending, u, "password and new second factor", address, agent)
	in.Codes = codes
	return in, err
}

// errEnrolled is the error for a sign-in that adds the first second factor to an account that
// already has one.
var errEnrolled = problem.WithCode(problem.Conflict, "second_factor_exists", "the account has a second factor already: sign in with it")

// verifyCode returns nil if code is a code of one of the user's authenticator apps, or an unused
// recovery code. The code then becomes invalid. by names the used factor for the audit log.
func (p *People) verifyCode(ctx context.Context, u User, f Factors, code string) (by string, err error) {
	if hash, ok := secondfactor.RecoveryHash(code); ok {
		e := userEntry(ctx, u.Actor(), "second_factor.use_recovery_code", u, nil, nil)
		err := p.store.UseRecoveryCode(ctx, u.ID, hash, e)
		if problem.Is(err, problem.NotFound) {
			err = errCode
		}
		return "password and recovery code", err
	}
	unreadable := false
	for _, factor := range f.List {
		if factor.Kind != TOTP {
			continue
		}
		secret, err := p.sealer.Open(factor.Data, u.ID)
		if err != nil {
			unreadable = true
			continue
		}
		step, ok := secondfactor.TOTPCode(secret, code, p.now(), factor.Step)
		if !ok {
			continue
		}
		factor.Step, factor.UsedAt = step, p.instant()
		err = p.store.UseFactor(ctx, factor)
		if problem.Is(err, problem.Conflict) || problem.Is(err, problem.NotFound) {
			err = errCode // another request has used or removed the factor since it was read
		}
		return "password and code", err
	}
	if unreadable {
		return "", errUnreadable
	}
	return "", errCode
}

// verifyPasskey returns nil if response is a valid response of one of the user's passkeys to the
// challenge that is stored for id. id is the ID of a session or of a pending sign-in. verifyPasskey
// makes the challenge invalid.
func (p *People) verifyPasskey(ctx context.Context, u User, f Factors, id, origin string, response []byte) error {
	state, err := p.store.TakeChallenge(ctx, id, p.instant())
	if problem.Is(err, problem.NotFound) {
		return errPasskey
	}
	if err != nil {
		return err
	}
	used, err := secondfactor.FinishUse(origin, owner(u, f), state, response)
	if err != nil {
		return p.passkeyError(ctx, err)
	}
	i := slices.IndexFunc(f.List, func(f Factor) bool { return string(f.Credential) == string(used.ID) })
	factor := f.List[i] // FinishUse accepts only passkeys of f
	factor.Data, factor.UsedAt = used.Stored, p.instant()
	err = p.store.UseFactor(ctx, factor)
	if problem.Is(err, problem.NotFound) {
		err = errPasskey // another request has removed the passkey since it was read
	}
	return err
}

// passkeyError returns the error that the person sees. If err says why a passkey was rejected,
// passkeyError logs this reason, and the result does not contain it.
func (p *People) passkeyError(ctx context.Context, err error) error {
	if invalid := (*secondfactor.ErrPasskey)(nil); errors.As(err, &invalid) {
		p.log.InfoContext(ctx, "a passkey was not accepted", "error", invalid.Cause)
		return errPasskey
	}
	return originError(err)
}

// originError returns problem.Conflict if err means that browsers allow no passkeys at the
// address of the dashboard. It returns any other error unchanged.
func originError(err error) error {
	if errors.Is(err, secondfactor.ErrOrigin) {
		return problem.WithCode(problem.Conflict, "passkeys_unavailable", "%s", secondfactor.ErrOrigin.Error())
	}
	return err
}

// owner returns the user u in the form of package secondfactor, with the passkeys in f.
func owner(u User, f Factors) secondfactor.Person {
	p := secondfactor.Person{ID: u.ID, Email: u.Email, Name: u.Name}
	for _, factor := range f.List {
		if factor.Kind == Passkey {
			p.Passkeys = append(p.Passkeys, factor.Data)
		}
	}
	return p
}

// BeginUsePasskey returns the options that the browser needs to use one of the user's passkeys.
// id is the ID of the session or of the pending sign-in. origin is the address of the
// dashboard. The error is problem.Conflict with the code passkeys_unavailable if browsers allow
// no passkeys at this address.
func (p *People) BeginUsePasskey(ctx context.Context, u User, f Factors, id, origin string) (json.RawMessage, error) {
	return p.challenge(ctx, id, func() (secondfactor.Ceremony, error) { return secondfactor.BeginUse(origin, owner(u, f)) })
}

// BeginAddPasskey returns the options that the browser needs to create a passkey. The
// parameters and errors are those of BeginUsePasskey.
func (p *People) BeginAddPasskey(ctx context.Context, u User, f Factors, id, origin string) (json.RawMessage, error) {
	return p.challenge(ctx, id, func() (secondfactor.Ceremony, error) { return secondfactor.BeginCreate(origin, owner(u, f)) })
}

func (p *People) challenge(ctx context.Context, id string, begin func() (secondfactor.Ceremony, error)) (json.RawMessage, error) {
	c, err := begin()
	if err != nil {
		return nil, originError(err)
	}
	return c.Options, p.store.PutChallenge(ctx, id, c.State, p.instant().Add(secondfactor.ChallengeLife))
}
