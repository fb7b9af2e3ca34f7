package accounts

import (
	"context"
	"encoding/json"
	"time"

	"github.com/headgate/headgate/internal/audit"
)

// This file has the JSON forms of users, invitations and sessions in the audit log. They
// contain no passwords, hashes, tokens or cookies.

// JSON returns the form of the user that the audit log contains.
func (u User) JSON() (json.RawMessage, error) {
	return json.Marshal(struct {
		ID          string `json:"id"`
		Email       string `json:"email"`
		Name        string `json:"name"`
		Role        Role   `json:"role"`
		TenantID    string `json:"tenant_id,omitempty"`
		Disabled    bool   `json:"disabled"`
		HasPassword bool   `json:"has_password"`
		Issuer      string `json:"issuer,omitempty"`
		Subject     string `json:"subject,omitempty"`
	}{u.ID, u.Email, u.Name, u.Role, u.TenantID, u.Disabled, u.Password != "", u.Issuer, u.Subject})
}

// JSON returns the form of the invitation that the audit log contains.
func (i Invitation) JSON() (json.RawMessage, error) {
	return json.Marshal(struct {
		ID        string    `json:"id"`
		Email     string    `json:"email,omitempty"`
		Role      Role      `json:"role"`
		TenantID  string    `json:"tenant_id,omitempty"`
		UserID    string    `json:"user_id,omitempty"`
		ExpiresAt time.Time `json:"expires_at"`
	}{i.ID, i.Email, i.Role, i.TenantID, i.UserID, i.ExpiresAt.UTC()})
}

// An auditSession is the JSON form of a session, a failed sign-in, or the end of sessions in
// the audit log.
type auditSession struct {
	Session string `json:"session,omitempty"`
	By      string `json:"by,omitempty"` // "password" or "oidc"
	Why     string `json:"why,omitempty"`
	Agent   string `json:"agent,omitempty"`
	Ended   int    `json:"ended,omitempty"`
}

// userEntry returns the audit entry for a change of the user u. If by is the zero Actor, the entry
// gets the actor in ctx.
func userEntry(ctx context.Context, by audit.Actor, action string, u User, before, after any) audit.Entry {
	e := audit.Entry{Actor: by, TenantID: u.TenantID, Action: action, Object: u.ID, ObjectName: u.Email}
	return audit.Complete(ctx, e, before, after)
}

// invitationEntry returns the audit entry for a change of the invitation i, with the actor in ctx.
func invitationEntry(ctx context.Context, action string, i Invitation, before, after any) audit.Entry {
	return audit.Complete(ctx, audit.Entry{TenantID: i.TenantID, Action: action, Object: i.ID, ObjectName: i.Email}, before, after)
}
