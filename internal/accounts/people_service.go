package accounts

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/secondfactor"
	"github.com/headgate/headgate/tenants"
)

// PeopleConfig configures a People.
type PeopleConfig struct {
	// Limiter has the counters of failed sign-ins. Required.
	Limiter enforcement.Limiter
	// Local has the counters of failed sign-ins while Limiter is unavailable. Default: none.
	// Without it, every sign-in with a password fails while Limiter is unavailable.
	Local enforcement.Limiter
	// RequireSecondFactor contains the roles whose users must have a second factor to sign in
	// with a password.
	RequireSecondFactor []Role
	// Sealer encrypts the secrets of authenticator apps. Default: they are stored unencrypted.
	Sealer secondfactor.Sealer
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
	// Logger logs that the limiter is unavailable, and why a passkey was rejected. Default: no
	// logging.
	Logger *slog.Logger
}

// Methods about other people have two parameters: the Principal of the caller, and the ID of
// the tenant to which these people belong, or "" for the operator. If the caller may not access
// that tenant, the error is the same as for an unknown ID.
type People struct {
	store     PeopleStore
	limit     *signInLimit
	passwords *passwords
	required  []Role
	sealer    secondfactor.Sealer
	now       func() time.Time
	log       *slog.Logger
}

// NewPeople returns a People that stores its data in store.
func NewPeople(store PeopleStore, cfg PeopleConfig) (*People, error) {
	if cfg.Limiter == nil {
		return nil, fmt.Errorf("PeopleConfig.Limiter is required: it counts failed sign-ins")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	limit, err := newSignInLimit(cfg)
	if err != nil {
		return nil, err
	}
	return &People{
		store: store, limit: limit, passwords: newPasswords(), required: cfg.RequireSecondFactor, sealer: cfg.Sealer,
		now: cfg.Now, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
	}, nil
}

// Principal returns the user as a caller for Authorize.
func (u User) Principal() Principal {
	return Principal{Kind: "user", ID: u.ID, Name: u.Email, Role: u.Role, TenantID: u.TenantID}
}

// Actor returns the user as an actor for the audit log.
func (u User) Actor() audit.Actor { return audit.Actor{Kind: "user", ID: u.ID, Name: u.Email} }

// CommandPrincipal returns the Principal of a command of the program that accesses the database
// directly. name is the name of the command. The command has the rights of an operator key with
// every scope.
func CommandPrincipal(name string) Principal {
	return Principal{Kind: "command", ID: name, Name: name, Scopes: []tenants.Scope{tenants.ScopeCheck, tenants.ScopeManage}}
}

// instant returns the current time in UTC, rounded down to milliseconds. Every store can store
// this precision.
func (p *People) instant() time.Time { return p.now().UTC().Truncate(time.Millisecond) }

// secretBytes is the number of random bytes in a session cookie, and in the token of a link.
const secretBytes = 32

// newSecret returns a random value for a session cookie or a link, and its hash. The store
// stores only the hash.
func newSecret() (string, [32]byte) {
	var raw [secretBytes]byte
	rand.Read(raw[:]) // rand.Read never returns an error
	secret := base64.RawURLEncoding.EncodeToString(raw[:])
	return secret, sha256.Sum256([]byte(secret))
}

// hashSecret returns the hash under which a value of newSecret is stored. It returns false if the
// text does not have the form of such a value.
func hashSecret(secret string) ([32]byte, bool) {
	if len(secret) != base64.RawURLEncoding.EncodedLen(secretBytes) {
		return [32]byte{}, false
	}
	if _, err := base64.RawURLEncoding.Strict().DecodeString(secret); err != nil {
		return [32]byte{}, false
	}
	return sha256.Sum256([]byte(secret)), true
}

// hasUsers reports whether at least one user exists.
func (p *People) hasUsers(ctx context.Context) (bool, error) {
	some, err := p.store.Users(ctx, UserFilter{Limit: 1})
	return len(some) > 0, err
}

// A NewPerson contains what a person enters to create an account.
type NewPerson struct {
	Email    string // only for a set-up link; otherwise the address comes from the invitation
	Name     string // 1 to 200 characters
	Password string
}

// validate returns a problem.Invalid that names each invalid field by its JSON pointer, or nil.
func (n NewPerson) validate() error {
	var f problem.Fields
	if !ValidEmail(n.Email) {
		f.Add("/email", "must be an e-mail address, like ann@example.com")
	}
	f.Line("/name", n.Name, 1, tenants.MaxName)
	if fault := passwordFault(n.Password, n.Email, n.Name); fault != "" {
		f.Add("/password", "%s", fault)
	}
	return f.Err()
}
