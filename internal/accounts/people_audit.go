package accounts

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/audit"
)

// What people leave in the audit log. No document has a password, a hash, a
// token or a cookie in it.

// auditUser is a user in the audit log.
type auditUser struct {
	ID          string `json:"id"`
	Email       string `json:"email"`
	Name        string `json:"name"`
	Role        Role   `json:"role"`
	TenantID    string `json:"tenant_id,omitempty"`
	Disabled    bool   `json:"disabled"`
	HasPassword bool   `json:"has_password"`
	Issuer      string `json:"issuer,omitempty"`
	Subject     string `json:"subject,omitempty"`
}

// auditInvitation is an invitation in the audit log.
type auditInvitation struct {
	ID        string    `json:"id"`
	Email     string    `json:"email,omitempty"`
	Role      Role      `json:"role"`
	TenantID  string    `json:"tenant_id,omitempty"`
	UserID    string    `json:"user_id,omitempty"`
	ExpiresAt time.Time `json:"expires_at"`
}

// auditSession is a sign-in, or one that failed, in the audit log.
type auditSession struct {
	Session string `json:"session,omitempty"`
	By      string `json:"by,omitempty"` // "password" or "oidc"
	Why     string `json:"why,omitempty"`
	Agent   string `json:"agent,omitempty"`
	Ended   int    `json:"ended,omitempty"`
}

// userEntry is the line of a change of a user.
func userEntry(ctx context.Context, action string, u User, before, after *User) (audit.Entry, error) {
	e := audit.Entry{TenantID: u.TenantID, Action: action, Object: u.ID, ObjectName: u.Email}
	e.Actor, e.Origin = audit.Who(ctx)
	var err error
	if e.Before, err = document(before, describeUser); err == nil {
		e.After, err = document(after, describeUser)
	}
	if err != nil {
		return audit.Entry{}, fmt.Errorf("describe user %s for the audit log: %w", u.ID, err)
	}
	return e, nil
}

// ownEntry is the line of what a person does before being signed in, by which
// they become one: the actor is that person.
func ownEntry(ctx context.Context, action string, u User, before, after *User) (audit.Entry, error) {
	e, err := userEntry(ctx, action, u, before, after)
	e.Actor = u.Actor()
	return e, err
}

// invitationEntry is the line of a change of an invitation.
func invitationEntry(ctx context.Context, action string, before, after *Invitation) (audit.Entry, error) {
	i := after
	if i == nil {
		i = before
	}
	e := audit.Entry{TenantID: i.TenantID, Action: action, Object: i.ID, ObjectName: i.Email}
	e.Actor, e.Origin = audit.Who(ctx)
	var err error
	if e.Before, err = document(before, describeInvitation); err == nil {
		e.After, err = document(after, describeInvitation)
	}
	if err != nil {
		return audit.Entry{}, fmt.Errorf("describe invitation %s for the audit log: %w", i.ID, err)
	}
	return e, nil
}

// sessionEntry is the line of a session of a user, whose actor is the user.
func sessionEntry(ctx context.Context, action string, u User, s auditSession) (audit.Entry, error) {
	e := audit.Entry{Actor: u.Actor(), TenantID: u.TenantID, Action: action, Object: u.ID, ObjectName: u.Email}
	_, e.Origin = audit.Who(ctx)
	var err error
	if e.After, err = json.Marshal(s); err != nil {
		return audit.Entry{}, fmt.Errorf("describe a session of user %s for the audit log: %w", u.ID, err)
	}
	return e, nil
}

func describeUser(u *User) any {
	return auditUser{
		ID: u.ID, Email: u.Email, Name: u.Name, Role: u.Role, TenantID: u.TenantID, Disabled: u.Disabled,
		HasPassword: u.Password != "", Issuer: u.Issuer, Subject: u.Subject,
	}
}

func describeInvitation(i *Invitation) any {
	return auditInvitation{
		ID: i.ID, Email: i.Email, Role: i.Role, TenantID: i.TenantID, UserID: i.UserID, ExpiresAt: i.ExpiresAt.UTC(),
	}
}

func document[T any](object *T, describe func(*T) any) (json.RawMessage, error) {
	if object == nil {
		return nil, nil
	}
	return json.Marshal(describe(object))
}
