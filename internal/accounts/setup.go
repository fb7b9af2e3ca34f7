package accounts

import (
	"context"
	"regexp"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// The first run: while there is no user, the link that the program prints
// creates the first owner, or a setting names one.

// errSetUp is the error of every set-up after the first user exists.
var errSetUp = problem.WithCode(problem.Conflict, "already_set_up",
	"this server has been set up already: sign in, or ask for an invitation")

// SetupLink returns the token of a link that creates the first owner. The link
// works once, within SetupLife. The token is "" if there is a user.
func (p *People) SetupLink(ctx context.Context) (string, error) {
	if some, err := p.anybody(ctx); some || err != nil {
		return "", err
	}
	_, token, err := p.invite(ctx, Invitation{Role: Owner}, SetupLife)
	return token, err
}

// ReadySetup returns an error if a set-up link cannot be used: NotFound, or
// Conflict (code already_set_up).
func (p *People) ReadySetup(ctx context.Context, token string) error {
	i, err := p.open(ctx, token)
	if err != nil {
		return err
	}
	if !i.setsUp() {
		return errNoLink
	}
	if some, err := p.anybody(ctx); err != nil {
		return err
	} else if some {
		return errSetUp
	}
	return nil
}

// SetUp creates the first owner; Invalid, NotFound, Conflict (code
// already_set_up).
func (p *People) SetUp(ctx context.Context, token string, n NewPerson) (User, error) {
	if err := p.ReadySetup(ctx, token); err != nil {
		return User{}, err
	}
	return p.firstOwner(ctx, n)
}

// FirstOwner creates an owner from settings while there is no user. It returns
// false if there is one. Invalid.
func (p *People) FirstOwner(ctx context.Context, email, password string) (User, bool, error) {
	if some, err := p.anybody(ctx); some || err != nil {
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

// person returns a validated new user with a password hash.
func (p *People) person(ctx context.Context, n NewPerson, role Role, tenantID string) (User, error) {
	if err := n.validate(); err != nil {
		return User{}, err
	}
	u := User{ID: audit.NewID(), Email: n.Email, Name: n.Name, Role: role, TenantID: tenantID}
	var err error
	u.Password, err = p.passwords.hash(ctx, n.Password)
	return u, err
}

// ValidFirstOwner checks the e-mail address and the password of the first owner
// from the settings, before the database is opened; Invalid.
func ValidFirstOwner(email, password string) error {
	return NewPerson{Email: email, Name: firstOwnerName, Password: password}.validate()
}

// firstOwnerName is the name of the first owner from the settings, until they
// change it.
const firstOwnerName = "Owner"

var bootstrapForm = regexp.MustCompile(`^[A-Za-z0-9._~+/=-]{32,128}$`)

// ValidBootstrapKey returns an error for a key that HEADGATE_BOOTSTRAP_KEY cannot
// have. Automation chooses that key, so it needs no checksum, and its form is one
// that any secret store can generate. The error does not contain the key.
func ValidBootstrapKey(key string) error {
	if !bootstrapForm.MatchString(key) {
		return problem.New(problem.Invalid, "must be 32 to 128 characters out of A-Z a-z 0-9 . _ ~ + / = -")
	}
	return nil
}
