package accounts

import (
	"bytes"
	"context"
	"strings"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/secondfactor"
	"github.com/headgate/headgate/tenants"
)

// With most methods of this file, people change their own second factors. With ResetSecondFactor,
// administrators reset the second factors of other people.

// errUnconfirmed is the error for a change of second factors in a session that is not Confirmed.
var errUnconfirmed = problem.WithCode(problem.Forbidden, "confirm_first",
	"confirm your password, and your second factor if you have one, first")

// errNoPassword is the error for adding a second factor to an account without a password.
var errNoPassword = problem.WithCode(problem.Conflict, "no_password",
	"you sign in with the account of your organization, which asks for a second factor itself: there is none here")

// FactorsOf returns the second factors of a user.
func (p *People) FactorsOf(ctx context.Context, u User) (Factors, error) {
	list, codes, err := p.store.Factors(ctx, u.ID)
	return Factors{List: list, Codes: codes, Required: p.requires(u.Role)}, err
}

// mayChange returns nil if the session may change the second factors of its user.
func (p *People) mayChange(u User, s Session) error {
	switch {
	case u.Password == "":
		return errNoPassword
	case !s.Confirmed(p.now()):
		return errUnconfirmed
	}
	return nil
}

// Confirm records that the person of a session has typed the password, and a code if the person has
// a second factor. The session may then change second factors for the duration ConfirmedFor. The
// error is problem.Invalid at /password or /code, a *LimitedError, or problem.Unavailable. Failed
// attempts count only for this session.
func (p *People) Confirm(ctx context.Context, u User, s Session, password, code string) error {
	return p.confirm(ctx, u, s, password, func(ctx context.Context, f Factors) error {
		if len(f.List) == 0 {
			return nil
		}
		_, err := p.verifyCode(ctx, u, f, code)
		if problem.Is(err, problem.Unauthenticated) {
			err = problem.At("/code", "is wrong, too old, or was used already")
		}
		return err
	})
}

// ConfirmWithPasskey is like Confirm, with a passkey instead of a code. response is the
// browser's response to BeginUsePasskey.
func (p *People) ConfirmWithPasskey(ctx context.Context, u User, s Session, password, origin string, response []byte) error {
	return p.confirm(ctx, u, s, password, func(ctx context.Context, f Factors) error {
		err := p.verifyPasskey(ctx, u, f, s.ID, origin, response)
		if problem.Is(err, problem.Unauthenticated) {
			err = problem.New(problem.Invalid, "%s", errPasskey.Message)
		}
		return err
	})
}

func (p *People) confirm(ctx context.Context, u User, s Session, password string, second func(context.Context, Factors) error) error {
	if u.Password == "" {
		return errNoPassword
	}
	tried, err := p.limit.chargeCode(ctx, "session "+s.ID)
	if err != nil {
		return err
	}
	err = p.confirmBoth(ctx, u, password, second)
	switch {
	case problem.Is(err, problem.Invalid):
		return p.failed(ctx, u, u.Email, auditSession{Session: s.ID, By: "password", Why: "confirmation of a change"}, err)
	case err != nil:
		tried.refund(ctx)
		return err
	}
	tried.refund(ctx)
	return p.store.ConfirmSession(ctx, s.ID, p.instant())
}

func (p *People) confirmBoth(ctx context.Context, u User, password string, second func(context.Context, Factors) error) error {
	right, err := p.passwords.verify(ctx, u.Password, password)
	if err != nil {
		return err
	}
	if !right {
		return problem.At("/password", "is not your password")
	}
	f, err := p.FactorsOf(ctx, u)
	if err != nil {
		return err
	}
	return second(ctx, f)
}

// AddTOTP adds an authenticator app and ends the other sessions of the user. secret is a result
// of secondfactor.NewTOTP, and code is a code that the app computed from it. If the app is the
// user's first second factor, AddTOTP returns new recovery codes, of which only hashes are
// stored.
//
// The error is problem.Forbidden with the code confirm_first, problem.Invalid at /code or
// /name, a *LimitedError, or problem.Conflict with the code no_password, second_factor_exists
// or too_many_second_factors.
func (p *People) AddTOTP(ctx context.Context, u User, s Session, secret, code, name string) ([]string, error) {
	if err := p.mayChange(u, s); err != nil {
		return nil, err
	}
	return p.addTOTP(ctx, u, s.ID, secret, code, name)
}

// addTOTP does the work of AddTOTP. keep is the ID of the session or of the pending sign-in in
// which the person adds the app.
func (p *People) addTOTP(ctx context.Context, u User, keep, secret, code, name string) ([]string, error) {
	if !secondfactor.ValidSecret(secret) {
		return nil, problem.New(problem.Malformed, "the secret of the authenticator app is malformed: open the page again")
	}
	tried, err := p.limit.chargeCode(ctx, "session "+keep)
	if err != nil {
		return nil, err
	}
	step, ok := secondfactor.TOTPCode(secret, code, p.now(), 0)
	if !ok {
		return nil, problem.At("/code", "is not the code that the app shows for this secret; check the clock of the device")
	}
	tried.refund(ctx)
	return p.add(ctx, u, keep, Factor{
		ID: audit.NewID(), UserID: u.ID, Kind: TOTP, Name: name, Data: p.sealer.Seal(secret, u.ID), Step: step,
	})
}

// AddPasskey adds a passkey and ends the other sessions of the user. response is the browser's
// response to BeginAddPasskey. AddPasskey returns recovery codes like AddTOTP. Further errors
// are problem.Invalid for the passkey, and problem.Conflict with the code passkey_exists.
func (p *People) AddPasskey(ctx context.Context, u User, s Session, origin, name string, response []byte) ([]string, error) {
	if err := p.mayChange(u, s); err != nil {
		return nil, err
	}
	return p.addPasskey(ctx, u, s.ID, origin, name, response)
}

func (p *People) addPasskey(ctx context.Context, u User, keep, origin, name string, response []byte) ([]string, error) {
	state, err := p.store.TakeChallenge(ctx, keep, p.instant())
	if problem.Is(err, problem.NotFound) {
		return nil, problem.New(problem.Invalid, "creating the passkey took too long: try again")
	}
	if err != nil {
		return nil, err
	}
	f, err := p.FactorsOf(ctx, u)
	if err != nil {
		return nil, err
	}
	made, err := secondfactor.FinishCreate(origin, owner(u, f), state, response)
	if err != nil {
		if err = p.passkeyError(ctx, err); problem.Is(err, problem.Unauthenticated) {
			err = problem.New(problem.Invalid, "%s", errPasskey.Message)
		}
		return nil, err
	}
	return p.add(ctx, u, keep, Factor{
		ID: audit.NewID(), UserID: u.ID, Kind: Passkey, Name: name, Credential: made.ID, Data: made.Stored,
	})
}

func (p *People) add(ctx context.Context, u User, keep string, f Factor) (codes []string, err error) {
	var faults problem.Fields
	f.Name = strings.TrimSpace(f.Name)
	if faults.Line("/name", f.Name, 1, tenants.MaxName); faults.Err() != nil {
		return nil, faults.Err()
	}
	var hashes [][32]byte
	if !u.SecondFactor {
		codes, hashes = secondfactor.NewRecoveryCodes()
	}
	e := userEntry(ctx, u.Actor(), "second_factor.add", u, nil, f)
	if _, err := p.store.AddFactor(ctx, f, hashes, keep, e); err != nil {
		return nil, err
	}
	return codes, nil
}

// RemoveFactor removes one of the user's own second factors. With the last factor, it also
// removes the recovery codes. The error is problem.Forbidden with the code confirm_first,
// problem.NotFound, or problem.Conflict with the code second_factor_required.
func (p *People) RemoveFactor(ctx context.Context, u User, s Session, id string) error {
	if err := p.mayChange(u, s); err != nil {
		return err
	}
	f, err := p.FactorsOf(ctx, u)
	if err != nil {
		return err
	}
	for _, factor := range f.List {
		if factor.ID == id {
			e := userEntry(ctx, u.Actor(), "second_factor.remove", u, factor, nil)
			return p.store.RemoveFactor(ctx, u.ID, id, f.Required, e)
		}
	}
	return problem.New(problem.NotFound, "there is no such second factor")
}

// NewRecoveryCodes replaces the user's recovery codes and returns the new ones, of which only
// hashes are stored. The error is problem.Forbidden with the code confirm_first, or
// problem.Conflict with the code no_second_factor.
func (p *People) NewRecoveryCodes(ctx context.Context, u User, s Session) ([]string, error) {
	if err := p.mayChange(u, s); err != nil {
		return nil, err
	}
	codes, hashes := secondfactor.NewRecoveryCodes()
	e := userEntry(ctx, u.Actor(), "second_factor.recovery_codes", u, nil, nil)
	if err := p.store.PutRecoveryCodes(ctx, u.ID, hashes, e); err != nil {
		return nil, err
	}
	return codes, nil
}

// A Reencryption contains the numbers of secrets of authenticator apps, by what Reencrypt did with
// them.
type Reencryption struct {
	Reencrypted int // now encrypted with the current key
	Current     int // already encrypted with the current key
	Unreadable  int // encrypted with an unknown key, and not changed
}

// Reencrypt encrypts the secrets of authenticator apps of all people with the current key. It does
// not change secrets that it cannot decrypt.
func (p *People) Reencrypt(ctx context.Context) (Reencryption, error) {
	var done Reencryption
	e := audit.Complete(ctx, audit.Entry{
		Action: "second_factor.reencrypt", Object: "authenticator apps", ObjectName: "authenticator apps",
	}, nil, nil)
	_, err := p.store.ResealFactors(ctx, func(f Factor) []byte {
		data, err := p.sealer.Reseal(f.Data, f.UserID)
		switch {
		case err != nil:
			done.Unreadable++
		case bytes.Equal(data, f.Data):
			done.Current++
		default:
			done.Reencrypted++
		}
		return data
	}, e)
	return done, err
}

// ResetSecondFactor removes all second factors and recovery codes of another person, who has lost them, and ends the
// person's sessions. The person then signs in with the password. The error is problem.NotFound,
// problem.Forbidden, or problem.Conflict with the code no_second_factor.
func (p *People) ResetSecondFactor(ctx context.Context, by Principal, tenantID, id string) (User, error) {
	u, err := p.other(ctx, by, tenantID, id)
	if err != nil {
		return User{}, err
	}
	e := userEntry(ctx, audit.Actor{}, "second_factor.reset", u, nil, nil)
	n, err := p.store.ResetFactors(ctx, u.ID, e)
	if err == nil && n == 0 {
		err = problem.WithCode(problem.Conflict, "no_second_factor", "this account has no second factor")
	}
	u.SecondFactor = u.SecondFactor && err != nil
	return u, err
}
