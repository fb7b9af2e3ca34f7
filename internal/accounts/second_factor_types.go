package accounts

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/audit"
)

// A FactorKind is a kind of second factor.
type FactorKind string

// The kinds of second factors. Recovery codes are not a kind: they replace a second factor that
// is lost.
const (
	TOTP    FactorKind = "totp"    // codes of an authenticator app
	Passkey FactorKind = "passkey" // a device or a password manager, by WebAuthn
)

// A Factor is a second factor of a user.
type Factor struct {
	ID     string // UUIDv7
	UserID string
	Kind   FactorKind
	Name   string // 1 to 200 characters
	// Credential is the ID of a passkey; nil for TOTP.
	Credential []byte
	// Data is the encrypted secret of a TOTP (see secondfactor.Sealer), or the public key of a
	// passkey.
	Data []byte
	// Step is the time step of the last used code of a TOTP. Codes of this step or an earlier
	// one are invalid, so that each code works once.
	Step      int64
	CreatedAt time.Time
	UsedAt    time.Time // zero if the factor has not been used since it was added
}

// JSON returns the form of the factor that the audit log contains.
func (f Factor) JSON() (json.RawMessage, error) {
	return json.Marshal(struct {
		ID   string     `json:"id"`
		Kind FactorKind `json:"kind"`
		Name string     `json:"name"`
	}{f.ID, f.Kind, f.Name})
}

// A PendingSignIn is a sign-in that is waiting for the second factor, after the password was
// right. It is not a session and gives no rights.
type PendingSignIn struct {
	ID        string // UUIDv7
	Hash      [32]byte
	UserID    string
	CreatedAt time.Time
	ExpiresAt time.Time
}

const (
	// PendingLife is the time within which a person must use the second factor after the password.
	PendingLife = 10 * time.Minute
	// ConfirmedFor is how long a session may change second factors after the sign-in or after
	// Confirm.
	ConfirmedFor = 10 * time.Minute
	// MaxFactors is the maximum number of second factors of a user.
	MaxFactors = 10
	// MaxPending is the maximum number of pending sign-ins of a user; a further one ends the oldest.
	MaxPending = 20
)

// Confirmed reports whether the session may change second factors at now, because the person
// has signed in with a password, or has called Confirm, within ConfirmedFor.
func (s Session) Confirmed(now time.Time) bool { return now.Before(s.ConfirmedAt.Add(ConfirmedFor)) }

// A SecondFactorError means that the password was right, and that a second factor is needed
// before a session begins. Token identifies the pending sign-in. The server sends it as a
// cookie, and the methods that finish the sign-in need it.
type SecondFactorError struct{ Token string }

// Error returns the message for people.
func (e *SecondFactorError) Error() string {
	return fmt.Sprintf("the sign-in also needs a second factor within %v", PendingLife)
}

// A FactorStore stores second factors, recovery codes and pending sign-ins. A change of factors is an
// edit, as in PeopleStore. Implementations pass storetest.Run.
type FactorStore interface {
	// Factors returns the second factors of a user, oldest first, and the number of unused recovery
	// codes.
	Factors(ctx context.Context, userID string) ([]Factor, int, error)
	// AddFactor adds a second factor. It ends the user's sessions and pending sign-ins except the
	// one with the ID keep. If codes is not nil, the factor must be the user's first, and codes
	// replace the recovery codes. The error is problem.NotFound, or problem.Conflict with the code
	// too_many_second_factors or passkey_exists. If codes is not nil and the user already has a
	// factor, the code is second_factor_exists.
	AddFactor(ctx context.Context, f Factor, codes [][32]byte, keep string, e audit.Entry) (Factor, error)
	// RemoveFactor removes a second factor of a user. With the last factor, it also removes the
	// recovery codes. If required is true, RemoveFactor does not remove the last factor, and the
	// error is problem.Conflict with the code second_factor_required.
	RemoveFactor(ctx context.Context, userID, id string, required bool, e audit.Entry) error
	// ResetFactors removes all second factors and recovery codes of a user, and ends the user's
	// sessions. It returns the number of removed factors, and writes the audit line only if this
	// number is not 0.
	ResetFactors(ctx context.Context, userID string, e audit.Entry) (int, error)
	// ResealFactors calls reseal for each TOTP, and replaces its Data if the result differs. It
	// returns the number of replaced TOTPs, and writes the audit line only if this number is not 0.
	ResealFactors(ctx context.Context, reseal func(Factor) []byte, e audit.Entry) (int, error)
	// UseFactor stores Step and UsedAt of a used factor, and Data of a passkey. If the factor is a
	// TOTP whose stored step is not lower than f.Step, the error is problem.Conflict with the code
	// code_used. If the factor was removed, the error is problem.NotFound.
	UseFactor(ctx context.Context, f Factor) error

	// PutRecoveryCodes replaces the recovery codes of a user. The error is problem.Conflict with the code
	// no_second_factor if the user has no second factor.
	PutRecoveryCodes(ctx context.Context, userID string, codes [][32]byte, e audit.Entry) error
	// UseRecoveryCode deletes a recovery code. The error is problem.NotFound if the user has no such code.
	UseRecoveryCode(ctx context.Context, userID string, code [32]byte, e audit.Entry) error

	// CreatePending adds a pending sign-in. If the user has more than MaxPending, it deletes the oldest.
	CreatePending(ctx context.Context, p PendingSignIn) error
	// Pending finds a pending sign-in by the hash of its token, and its user. The error is
	// problem.NotFound if the sign-in has expired at now, or if its user is disabled.
	Pending(ctx context.Context, hash [32]byte, now time.Time) (PendingSignIn, User, error)
	// FinishPending deletes a pending sign-in and adds the session s like CreateSession, in one
	// transaction. The error is problem.NotFound if the pending sign-in does not exist.
	FinishPending(ctx context.Context, id string, s Session, e audit.Entry) (Session, error)
	// ConfirmSession sets ConfirmedAt of a session to at. The error is problem.NotFound if
	// there is no such session.
	ConfirmSession(ctx context.Context, id string, at time.Time) error

	// PutChallenge stores the challenge that a passkey must sign, for the session or the
	// pending sign-in with this ID. It replaces the challenge that was stored for the ID.
	// TakeChallenge returns a challenge and deletes it. Its error is problem.NotFound if there
	// is none, or if it has expired at now.
	PutChallenge(ctx context.Context, id string, data []byte, expires time.Time) error
	TakeChallenge(ctx context.Context, id string, now time.Time) ([]byte, error)
}

// Factors are the second factors of a user.
type Factors struct {
	List []Factor
	// Codes is the number of unused recovery codes.
	Codes int
	// Required says that the user's role requires a second factor.
	Required bool
}

// Has reports whether the user has a factor of a kind.
func (f Factors) Has(kind FactorKind) bool {
	return slices.ContainsFunc(f.List, func(f Factor) bool { return f.Kind == kind })
}
