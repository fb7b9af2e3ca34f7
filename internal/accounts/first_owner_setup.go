package accounts

import (
	"context"
	"regexp"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// This file is about the first start of a server. While no user exists, the server prints a set-up
// link. With this link, the first owner creates an account. Instead of the link, settings can
// contain the e-mail address and the password of the first owner.

// errSetUp is the error for the use of a set-up link after a user exists.
var errSetUp = problem.WithCode(problem.Conflict, "already_set_up",
	"this server has been set up already: sign in, or ask for an invitation")

// NeedsSetup reports whether no user exists. In that case, only a set-up link or the settings
// can create a user.
func (p *People) NeedsSetup(ctx context.Context) (bool, error) {
	some, err := p.hasUsers(ctx)
	return !some, err
}

// SetupLink creates a link with which the first owner creates an account, and returns its token.
// The link works once, within SetupLife. If a user exists, SetupLink returns "".
func (p *People) SetupLink(ctx context.Context) (string, error) {
	if some, err := p.hasUsers(ctx); some || err != nil {
		return "", err
	}
	_, token, err := p.invite(ctx, Invitation{Role: Owner}, SetupLife)
	return token, err
}

// ReadySetup returns nil if the set-up link with this token can be used. The error is
// problem.NotFound if the link does not work, or problem.Conflict with the code already_set_up
// if a user exists.
func (p *People) ReadySetup(ctx context.Context, token string) error {
	i, err := p.open(ctx, token)
	if err != nil {
		return err
	}
	if !i.setsUp() {
		return errNoLink
	}
	if some, err := p.hasUsers(ctx); err != nil {
		return err
	} else if some {
		return errSetUp
	}
	return nil
}

// SetUp creates the first owner with the set-up link that has this token. The error is
// problem.Invalid, problem.NotFound, or problem.Conflict with the code already_set_up.
func (p *People) SetUp(ctx context.Context, token string, n NewPerson) (User, error) {
	if err := p.ReadySetup(ctx, token); err != nil {
		return User{}, err
	}
	return p.firstOwner(ctx, n)
}

// FirstOwner creates the first owner with the e-mail address and the password from the
// settings. If a user exists, it changes nothing and returns false. The error is
// problem.Invalid if the address or the password is invalid.
func (p *People) FirstOwner(ctx context.Context, email, password string) (User, bool, error) {
	if some, err := p.hasUsers(ctx); some || err != nil {
		return User{}, false, err
	}
	u, err := p.firstOwner(ctx, NewPerson{Email: email, Name: firstOwnerName, Password: password})
	if problem.Is(err, problem.Conflict) {
		return User{}, false, nil // another node was first
	}
	return u, err == nil, err
}

func (p *People) firstOwner(ctx context.Context, n NewPerson) (User, error) {
	u, err := p.person(ctx, n, Owner, "")
	if err != nil {
		return User{}, err
	}
	e := userEntry(ctx, u.Actor(), "user.set_up", u, nil, u)
	return p.store.CreateUser(ctx, u, true, e)
}

// person validates n and returns a new user with the hash of the password in n. It stores nothing.
func (p *People) person(ctx context.Context, n NewPerson, role Role, tenantID string) (User, error) {
	if err := n.validate(); err != nil {
		return User{}, err
	}
	u := User{ID: audit.NewID(), Email: n.Email, Name: n.Name, Role: role, TenantID: tenantID}
	var err error
	u.Password, err = p.passwords.hash(ctx, n.Password)
	return u, err
}

// ValidFirstOwner validates the e-mail address and the password of the first owner in the
// settings. The server calls it before it opens the database. The error is problem.Invalid.
func ValidFirstOwner(email, password string) error {
	return NewPerson{Email: email, Name: firstOwnerName, Password: password}.validate()
}

// firstOwnerName is the initial name of a first owner that the settings create. The owner can
// change it.
const firstOwnerName = "Owner"

var bootstrapForm = regexp.MustCompile(`^[A-Za-z0-9._~+/=-]{32,128}$`)

// ValidBootstrapKey returns an error if a key does not have the form that HEADGATE_BOOTSTRAP_KEY
// requires. Deployment tools generate this key. Therefore it has no checksum, but a form that every
// secret store can generate. The error does not contain the key.
func ValidBootstrapKey(key string) error {
	if !bootstrapForm.MatchString(key) {
		return problem.New(problem.Invalid, "must be 32 to 128 characters out of A-Z a-z 0-9 . _ ~ + / = -")
	}
	return nil
}
