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

// PeopleConfig of a People.
type PeopleConfig struct {
	// Limiter counts failed sign-ins. Required.
	Limiter enforcement.Limiter
	// Local counts failed sign-ins while Limiter is unavailable. Default: none;
	// then nobody can sign in by password.
	Local enforcement.Limiter
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
	// Logger reports an unavailable limiter. Default: none.
	Logger *slog.Logger
}

// People is the only way to sign in and to change users, sessions and
// invitations. It validates, limits, authorizes, and writes audit lines. It is
// safe for concurrent use.
//
// Methods that concern other people take the Principal who asks and the tenant
// of those people; "" is the operator. For a Principal who does not reach that
// tenant, the error is the same as for an unknown id.
type People struct {
	store     PeopleStore
	limit     *signInLimit
	passwords *passwords
	now       func() time.Time
}

// NewPeople returns a People on a PeopleStore.
func NewPeople(store PeopleStore, cfg PeopleConfig) (*People, error) {
	if cfg.Limiter == nil {
		return nil, fmt.Errorf("people without a limiter: sign-ins must be counted")
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

// Principal returns the user as a Principal.
func (u User) Principal() Principal {
	return Principal{Kind: "user", ID: u.ID, Name: u.Email, Role: u.Role, TenantID: u.TenantID}
}

// Actor returns the user as an actor of the audit log.
func (u User) Actor() audit.Actor { return audit.Actor{Kind: "user", ID: u.ID, Name: u.Email} }

// CommandPrincipal returns the Principal of a command on the machine with the
// database. It has the rights of an operator key with every scope.
func CommandPrincipal(name string) Principal {
	return Principal{Kind: "command", ID: name, Name: name, Scopes: []tenants.Scope{tenants.ScopeCheck, tenants.ScopeManage}}
}

// instant returns the current time in the precision that every store keeps.
func (p *People) instant() time.Time { return p.now().UTC().Truncate(time.Millisecond) }

// secretBytes is the size of a cookie's value or a link's token: 256 random
// bits.
const secretBytes = 32

// newSecret returns a cookie's value or a link's token, and the hash that is
// stored.
func newSecret() (string, [32]byte) {
	var raw [secretBytes]byte
	rand.Read(raw[:]) // never fails: crypto/rand ends the program instead
	secret := base64.RawURLEncoding.EncodeToString(raw[:])
	return secret, sha256.Sum256([]byte(secret))
}

// hashSecret returns the stored hash of a secret. It returns false for an
// impossible secret.
func hashSecret(secret string) ([32]byte, bool) {
	if len(secret) != base64.RawURLEncoding.EncodedLen(secretBytes) {
		return [32]byte{}, false
	}
	if _, err := base64.RawURLEncoding.Strict().DecodeString(secret); err != nil {
		return [32]byte{}, false
	}
	return sha256.Sum256([]byte(secret)), true
}

// anybody reports whether there is a user.
func (p *People) anybody(ctx context.Context) (bool, error) {
	some, err := p.store.Users(ctx, UserFilter{Limit: 1})
	return len(some) > 0, err
}

// A NewPerson has what a person enters to get an account.
type NewPerson struct {
	Email    string // only of a set-up: an invitation has its own
	Name     string // 1 to 200 characters
	Password string
}

// validate returns all faults, as an Invalid problem with JSON pointers.
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
