package accounts

import (
	"context"

	"github.com/headgate/headgate/internal/problem"
)

// The first run: while there is no user, whoever has the link that the program
// prints becomes the first owner; or automation names one.

// errSetUp is what a set-up is told once there is a user.
var errSetUp = problem.WithCode(problem.Conflict, "already_set_up", "this server has been set up already: sign in, or ask for an invitation")

// SetupLink makes the token of a link by which the first owner sets themselves
// up, once, within SetupLife; "" when there is a user.
func (p *People) SetupLink(ctx context.Context) (string, error) {
	if some, err := p.anybody(ctx); some || err != nil {
		return "", err
	}
	_, token, err := p.invite(ctx, Invitation{Role: Owner}, SetupLife)
	return token, err
}

// ReadySetup says whether a set-up link can be used; NotFound, Conflict (code
// already_set_up).
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

// SetUp makes the first owner; Invalid, NotFound, Conflict (code already_set_up).
func (p *People) SetUp(ctx context.Context, token string, n NewPerson) (User, error) {
	if err := p.ReadySetup(ctx, token); err != nil {
		return User{}, err
	}
	return p.firstOwner(ctx, n)
}

// FirstOwner makes an owner for automation, while there is no user; false when
// there is one. Invalid.
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
	e, err := ownEntry(ctx, "user.set_up", u, nil, &u)
	if err != nil {
		return User{}, err
	}
	return p.store.CreateUser(ctx, u, true, e)
}

// person validates and hashes.
func (p *People) person(ctx context.Context, n NewPerson, role Role, tenantID string) (User, error) {
	if err := n.validate(); err != nil {
		return User{}, err
	}
	id, err := newID()
	if err != nil {
		return User{}, err
	}
	u := User{ID: id, Email: n.Email, Name: n.Name, Role: role, TenantID: tenantID}
	u.Password, err = p.passwords.hash(ctx, n.Password)
	return u, err
}
