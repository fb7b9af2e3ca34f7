package accounts

import (
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
	"github.com/headgate/headgate/tenants"
)

// PeopleConfig configures a People.
type PeopleConfig struct {
	// Limiter counts failed sign-ins. Required.
	Limiter enforcement.Limiter
	// Local counts failed sign-ins while Limiter is unavailable. Default: none; then passwords are not accepted while
	// Limiter is unavailable.
	Local enforcement.Limiter
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
	// Logger logs when the limiter is unavailable. Default: no logging.
	Logger *slog.Logger
}

// People implements sign-in and all changes of users, sessions and invitations. It validates input, limits failed
// sign-ins, authorizes the caller, and writes audit lines. It is safe for concurrent use.
//
// Methods that concern other people take the Principal of the caller and the tenant of those people; "" means the
// operator. If the caller may not access that tenant, the error is the same as for an unknown ID.
type People struct {
	store     PeopleStore
	limit     *signInLimit
	passwords *passwords
	now       func() time.Time
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
	return &People{store: store, limit: limit, passwords: newPasswords(), now: cfg.Now}, nil
}

// Principal returns the Principal of the user, for Authorize.
func (u User) Principal() Principal {
	return Principal{Kind: "user", ID: u.ID, Name: u.Email, Role: u.Role, TenantID: u.TenantID}
}

// Actor returns the user in the form in which the audit log names who made a change.
func (u User) Actor() audit.Actor { return audit.Actor{Kind: "user", ID: u.ID, Name: u.Email} }

// CommandPrincipal returns the Principal of a command that runs on the server with direct access to the database. It
// has the rights of an operator key with every scope.
func CommandPrincipal(name string) Principal {
	return Principal{Kind: "command", ID: name, Name: name, Scopes: []tenants.Scope{tenants.ScopeCheck, tenants.ScopeManage}}
}

// instant returns the current time in UTC, truncated to milliseconds, which every store can represent.
func (p *People) instant() time.Time { return p.now().UTC().Truncate(time.Millisecond) }

// secretBytes is the size of the random value of a session cookie or of a link's token.
const secretBytes = 32

// newSecret returns a random value for a session cookie or a link, and the hash of it that is stored.
func newSecret() (string, [32]byte) {
	var raw [secretBytes]byte
	rand.Read(raw[:]) // never fails: crypto/rand ends the program instead
	secret := base64.RawURLEncoding.EncodeToString(raw[:])
	return secret, sha256.Sum256([]byte(secret))
}

// hashSecret returns the hash under which a secret is stored. It returns false if the secret is malformed.
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

// A NewPerson holds what a person enters to create an account.
type NewPerson struct {
	Email    string // only for a set-up link; otherwise the address comes from the invitation
	Name     string // 1 to 200 characters
	Password string
}

// validate returns nil, or a problem.Invalid that lists each faulty field with its JSON pointer.
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
