package accounts

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// PeopleConfig of a People.
type PeopleConfig struct {
	// Limiter counts failed sign-ins. Needed.
	Limiter enforcement.Limiter
	// Local counts them while Limiter is away. Default: none, and nobody signs in
	// by password then.
	Local enforcement.Limiter
	// Now tells the time; default time.Now.
	Now func() time.Time
	// Logger hears of a limiter that is away. Default: none.
	Logger *slog.Logger
}

// People is the one way to sign in and to change users, sessions and
// invitations: it validates, limits, decides who may, and writes what is done
// into the audit log. It is safe for concurrent use.
//
// What concerns other people takes the Principal who asks, and the tenant that
// they belong to: "" is the operator. Whoever does not reach that tenant is
// told what a random id is told.
type People struct {
	store     PeopleStore
	limit     *signInLimit
	passwords *passwords
	now       func() time.Time
}

// NewPeople makes a People on a PeopleStore.
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

// Principal is the user as one who asks.
func (u User) Principal() Principal {
	return Principal{Kind: "user", ID: u.ID, Name: u.Email, Role: u.Role, TenantID: u.TenantID}
}

// Actor is the user in the audit log.
func (u User) Actor() audit.Actor { return audit.Actor{Kind: "user", ID: u.ID, Name: u.Email} }

// CommandPrincipal is whoever can run commands on the machine with the
// database: they may do what an operator key with every scope may.
func CommandPrincipal(name string) Principal {
	return Principal{Kind: "command", ID: name, Name: name, Scopes: []tenants.Scope{tenants.ScopeCheck, tenants.ScopeManage}}
}

// instant is now in the precision that every store keeps.
func (p *People) instant() time.Time { return p.now().UTC().Truncate(time.Millisecond) }

// newID makes an id.
func newID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	return id.String(), nil
}

// secretBytes of a cookie's value or a link's token: 256 random bits.
const secretBytes = 32

// newSecret makes the value of a cookie or a link's token, and what is stored of it.
func newSecret() (string, [32]byte) {
	var raw [secretBytes]byte
	rand.Read(raw[:]) // never fails: crypto/rand ends the program instead
	secret := base64.RawURLEncoding.EncodeToString(raw[:])
	return secret, sha256.Sum256([]byte(secret))
}

// hashSecret gives what is stored of a secret; false when it cannot be one, so
// that no store is asked for it.
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

// A NewPerson is what somebody says of themselves when they get an account.
type NewPerson struct {
	Email    string // only of a set-up: an invitation has its own
	Name     string // 1 to 200 characters
	Password string
}

// validate reports all faults, as an Invalid problem with JSON pointers.
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
