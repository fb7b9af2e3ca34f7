package accounts

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// maxInvitations is the maximum number of open invitations of each tenant. The operator has the
// same maximum.
const maxInvitations = 500

// maxMembers is the maximum number of members of one tenant. Each open invitation counts as a
// member.
const maxMembers = 500

// errNoLink is the error for every link that does not work: a used, expired, withdrawn or forged
// link. All of them have the same error, so that a caller does not find out the cause.
var errNoLink = problem.New(problem.NotFound, "this link is used, expired or unknown: ask for a new one")

// setsUp reports whether the invitation is the set-up link, with which the first owner creates an
// account after the first start.
func (i Invitation) setsUp() bool { return i.Email == "" && i.UserID == "" }

// If a tenant invites the address of a user who does not belong to the tenant, Invite succeeds,
// but the link does not work. So the caller does not find out that the address has an account.
func (p *People) Invite(ctx context.Context, by Principal, tenantID, email string, role Role) (Invitation, string, error) {
	return p.inviteNew(ctx, by, tenantID, Invitation{Email: email, Role: role})
}

// InviteByMail does the same as Invite, and also e-mails the link to the address. A further
// error is problem.Conflict with the code too_many_mails.
func (p *People) InviteByMail(ctx context.Context, by Principal, tenantID, email string, role Role) (Invitation, string, error) {
	return p.inviteNew(ctx, by, tenantID, Invitation{Email: email, Role: role, Mail: true})
}

func (p *People) inviteNew(ctx context.Context, by Principal, tenantID string, i Invitation) (Invitation, string, error) {
	email, role := i.Email, i.Role
	if err := mayWrite(by, tenantID); err != nil {
		return Invitation{}, "", err
	}
	email = strings.TrimSpace(email)
	var f problem.Fields
	if !ValidEmail(email) {
		f.Add("/email", "must be an e-mail address, like ann@example.com")
	}
	validRole(&f, role, tenantID)
	if err := cmp.Or(f.Err(), mayGive(by, role)); err != nil {
		return Invitation{}, "", err
	}
	u, err := p.byEmail(ctx, email)
	if err != nil {
		return Invitation{}, "", err
	}
	if u.ID != "" && by.Reaches(u.TenantID) {
		return Invitation{}, "", problem.WithCode(problem.Conflict, "email_taken", "another account has this e-mail address")
	}
	open, err := p.openInvitations(ctx, tenantID)
	if err != nil {
		return Invitation{}, "", err
	}
	if len(open) >= maxInvitations {
		return Invitation{}, "", problem.WithCode(problem.Conflict, "too_many_invitations", "%d invitations are open: withdraw some", len(open))
	}
	if tenantID != "" {
		members, err := p.store.Users(ctx, UserFilter{TenantID: tenantID, Limit: maxMembers})
		if err != nil {
			return Invitation{}, "", err
		}
		if len(members)+len(open) >= maxMembers {
			return Invitation{}, "", problem.WithCode(problem.Conflict, "too_many_members",
				"the tenant has %d people, with open invitations: remove some", len(members)+len(open))
		}
	}
	if i.Mail {
		if err := p.limit.chargeMail(ctx, email, tenantID); err != nil {
			return Invitation{}, "", err
		}
	}
	i.Email, i.TenantID = email, tenantID
	return p.invite(ctx, i, InvitationLife)
}

// MailedLink creates a new link for the e-mail of an invitation and returns its token. The link of
// an earlier e-mail no longer works; the link that Invite returned still works. MailedLink creates
// the token only when the e-mail is sent, so that the database never contains the token of an
// e-mail that waits. The error is problem.NotFound if the invitation has expired or is used, or if
// its creator no longer has the right to create it.
func (p *People) MailedLink(ctx context.Context, id string) (Invitation, string, error) {
	token, hash := newSecret()
	i, err := p.store.MailInvitation(ctx, id, hash, p.instant())
	if err != nil {
		return Invitation{}, "", err
	}
	return i, token, p.stillGranted(ctx, i)
}

// NewLink creates a link with which an existing user sets a new password. The error is
// problem.NotFound, problem.Conflict with the code disabled, or problem.Forbidden. If callers ask
// for a link for their own account, the error is problem.Forbidden too.
func (p *People) NewLink(ctx context.Context, by Principal, tenantID, id string) (Invitation, string, error) {
	u, err := p.other(ctx, by, tenantID, id)
	if err != nil {
		return Invitation{}, "", err
	}
	if u.Disabled {
		return Invitation{}, "", problem.WithCode(problem.Conflict, "disabled", "this account is disabled: enable it first")
	}
	return p.invite(ctx, Invitation{Email: u.Email, Role: u.Role, TenantID: u.TenantID, UserID: u.ID}, InvitationLife)
}

func (p *People) invite(ctx context.Context, i Invitation, life time.Duration) (Invitation, string, error) {
	var token string
	token, i.Hash = newSecret()
	i.ID = audit.NewID()
	i.CreatedBy, _ = audit.Who(ctx)
	i.CreatedAt = p.instant()
	i.ExpiresAt = i.CreatedAt.Add(life)
	e := invitationEntry(ctx, "user.invite", i, nil, i)
	made, err := p.store.CreateInvitation(ctx, i, e)
	if err != nil {
		return Invitation{}, "", err
	}
	return made, token, nil
}

// Invitations lists the open invitations of a tenant, or of the operator if tenantID is "",
// oldest first. The list includes links with which users set new passwords, but not the set-up
// link. The error is problem.NotFound or problem.Forbidden.
func (p *People) Invitations(ctx context.Context, by Principal, tenantID string) ([]Invitation, error) {
	if err := mayRead(by, tenantID); err != nil {
		return nil, err
	}
	return p.openInvitations(ctx, tenantID)
}

func (p *People) openInvitations(ctx context.Context, tenantID string) ([]Invitation, error) {
	var open []Invitation
	err := p.eachInvitation(ctx, UserFilter{TenantID: tenantID, Operator: tenantID == ""}, func(i Invitation) bool {
		if !i.setsUp() {
			open = append(open, i)
		}
		return true
	})
	return open, err
}

// eachInvitation calls do for each invitation that matches f and has not expired. It stops when
// do returns false.
func (p *People) eachInvitation(ctx context.Context, f UserFilter, do func(Invitation) bool) error {
	now := p.instant()
	f.Limit = tenants.DefaultPage
	for {
		page, err := p.store.Invitations(ctx, f)
		if err != nil {
			return err
		}
		for _, i := range page {
			if i.ExpiresAt.After(now) && !do(i) {
				return nil
			}
		}
		if len(page) < f.Limit {
			return nil
		}
		f.After = page[len(page)-1].ID
	}
}

// Withdraw deletes an open invitation, so that its link no longer works. The error is
// problem.NotFound or problem.Forbidden.
func (p *People) Withdraw(ctx context.Context, by Principal, tenantID, id string) error {
	if err := mayWrite(by, tenantID); err != nil {
		return err
	}
	open, err := p.openInvitations(ctx, tenantID)
	if err != nil {
		return err
	}
	for _, i := range open {
		if i.ID != id {
			continue
		}
		e := invitationEntry(ctx, "invitation.withdraw", i, i, nil)
		return p.store.DeleteInvitation(ctx, tenantID, id, e)
	}
	return problem.New(problem.NotFound, "there is no such invitation")
}

// Invitation returns the invitation whose link has this token. The error is problem.NotFound
// for every link that does not work, and for the set-up link.
func (p *People) Invitation(ctx context.Context, token string) (Invitation, error) {
	i, err := p.open(ctx, token)
	if err != nil {
		return Invitation{}, err
	}
	if i.setsUp() {
		return Invitation{}, errNoLink
	}
	if err := p.stillGranted(ctx, i); err != nil {
		return Invitation{}, err
	}
	return i, nil
}

// open returns the invitation whose link has this token. The error is errNoLink if there is no
// such invitation or it has expired.
func (p *People) open(ctx context.Context, token string) (Invitation, error) {
	hash, ok := hashSecret(token)
	if !ok {
		return Invitation{}, errNoLink
	}
	i, err := p.store.Invitation(ctx, hash, p.instant())
	if problem.Is(err, problem.NotFound) {
		return Invitation{}, errNoLink
	}
	return i, err
}

// stillGranted returns errNoLink if the user who created the invitation no longer has the right to
// create it. Otherwise people who were removed, disabled or demoted could use invitations that they
// had created for themselves.
func (p *People) stillGranted(ctx context.Context, i Invitation) error {
	if i.CreatedBy.Kind != "user" {
		return nil
	}
	maker, err := orNobody(p.store.User(ctx, i.CreatedBy.ID))
	if err != nil {
		return err
	}
	if maker.ID == "" || maker.Disabled || mayWrite(maker.Principal(), i.TenantID) != nil {
		return errNoLink
	}
	return nil
}

// Accept creates a user with the name and the password in n, and deletes the invitation. The
// e-mail address, the role and the tenant are those of the invitation. If the invitation is a
// link for a new password, Accept instead sets the password of the existing user and ends the
// sessions of this user. The error is problem.Invalid, problem.NotFound, or, for an invitation
// of the operator, problem.Conflict with the code email_taken.
//
// If the address of a tenant's invitation already belongs to a user, Accept deletes the
// invitation, changes no user, and returns the zero User without an error.
func (p *People) Accept(ctx context.Context, token string, n NewPerson) (User, error) {
	i, err := p.Invitation(ctx, token)
	if err != nil {
		return User{}, err
	}
	if i.UserID != "" {
		return p.acceptPassword(ctx, i, n.Password)
	}
	n.Email = i.Email
	u, err := p.person(ctx, n, i.Role, i.TenantID)
	if err != nil {
		return User{}, err
	}
	if u, err = p.take(ctx, i, u, "user.create", nil); i.TenantID == "" || !emailTaken(err) {
		return u, err
	}
	// The address belongs to a user of another tenant or of the operator. The response does not
	// show this, and the link stops working like any other used link.
	return User{}, p.store.DeleteInvitation(ctx, i.TenantID, i.ID, invitationEntry(ctx, "invitation.withdraw", i, i, nil))
}

func emailTaken(err error) bool {
	taken := (*problem.Problem)(nil)
	return errors.As(err, &taken) && taken.Code == "email_taken"
}

func (p *People) acceptPassword(ctx context.Context, i Invitation, password string) (User, error) {
	u, err := p.store.User(ctx, i.UserID)
	if problem.Is(err, problem.NotFound) {
		return User{}, errNoLink
	}
	if err != nil {
		return User{}, err
	}
	if fault := passwordFault(password, u.Email, u.Name); fault != "" {
		return User{}, problem.At("/password", "%s", fault)
	}
	after := u
	if after.Password, err = p.passwords.hash(ctx, password); err != nil {
		return User{}, err
	}
	return p.take(ctx, i, after, "user.password", u)
}

func (p *People) take(ctx context.Context, i Invitation, u User, action string, before any) (User, error) {
	e := userEntry(ctx, u.Actor(), action, u, before, u)
	u, err := p.store.AcceptInvitation(ctx, i.Hash, p.instant(), u, e)
	if problem.Is(err, problem.NotFound) {
		return User{}, errNoLink
	}
	return u, err
}

// invited creates a user from an open invitation for the e-mail address in who. The OpenID
// provider must have verified this address. If there is no such invitation, invited returns the
// zero User.
func (p *People) invited(ctx context.Context, who Identity) (User, error) {
	var found []Invitation
	err := p.eachInvitation(ctx, UserFilter{Query: who.Email}, func(i Invitation) bool {
		if i.UserID == "" && FoldEmail(i.Email) == FoldEmail(who.Email) {
			found = append(found, i)
		}
		return true
	})
	if err != nil {
		return User{}, err
	}
	for _, i := range found {
		if err := p.stillGranted(ctx, i); problem.Is(err, problem.NotFound) {
			continue
		} else if err != nil {
			return User{}, err
		}
		u := User{
			ID: audit.NewID(), Email: i.Email, Name: nameOf(who), Role: i.Role, TenantID: i.TenantID,
			Issuer: who.Issuer, Subject: who.Subject,
		}
		return p.take(ctx, i, u, "user.create", nil)
	}
	return User{}, nil
}

// nameOf returns the name in who, which the OpenID provider reported. If the name is invalid,
// nameOf returns the e-mail address, shortened to the maximum length of a name.
func nameOf(who Identity) string {
	var f problem.Fields
	if f.Line("/name", who.Name, 1, tenants.MaxName); f.Err() == nil {
		return who.Name
	}
	cut := []rune(who.Email)
	return string(cut[:min(len(cut), tenants.MaxName)])
}
