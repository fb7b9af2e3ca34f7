package accounts

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/audit"
)

// A Role is a set of rights of a person. The operator's roles apply to every tenant. A tenant's
// roles apply only to the tenant of the person.
type Role string

// The roles.
const (
	Owner        Role = "owner"         // may do everything, including people and operator keys
	Editor       Role = "editor"        // may change tenants, plans and exceptions, and read everything else
	Viewer       Role = "viewer"        // may read everything
	TenantAdmin  Role = "tenant_admin"  // may change the keys and members of one tenant, and read the rest of that tenant
	TenantViewer Role = "tenant_viewer" // may read one tenant
)

// Operator reports whether the role is a role of the operator.
func (r Role) Operator() bool { return r == Owner || r == Editor || r == Viewer }

// Tenant reports whether the role is a role of a tenant.
func (r Role) Tenant() bool { return r == TenantAdmin || r == TenantViewer }

// A User is a person who signs in.
type User struct {
	ID    string // UUIDv7
	Email string // as the person typed it; unique without regard to upper and lower case
	Name  string // 1 to 200 characters
	Role  Role
	// TenantID is the tenant of a member. It is "" for the operator's people.
	TenantID string
	// Password is an argon2id hash in PHC form. It is "" for a user who signs in with OpenID Connect only.
	Password string
	// Issuer and Subject identify the person at an OpenID provider. Both are "" if no provider is linked.
	Issuer, Subject string
	// SecondFactor says that the user has a second factor. The store computes it; writes ignore it.
	SecondFactor bool
	Disabled     bool
	CreatedAt    time.Time
	UpdatedAt    time.Time
	// SignedInAt is the time of the last sign-in; zero if the user has never signed in.
	SignedInAt time.Time
	Revision   int64
}

// A Session is one browser that is signed in.
type Session struct {
	ID string // UUIDv7; people see it and use it to end the session
	// Hash is the SHA-256 of the cookie's value. The value itself is not stored.
	Hash      [32]byte
	UserID    string
	Address   string // IP address from which the user signed in
	Agent     string // User-Agent header, shortened
	CreatedAt time.Time
	SeenAt    time.Time // time of the last request; up to SeenGranularity earlier than the true time
	ExpiresAt time.Time // time at which the session ends even if it is in use
	// ConfirmedAt is the time at which the person last typed the password in this session, and
	// used the second factor if there is one. It is zero for a session that began with OpenID
	// Connect.
	ConfirmedAt time.Time
}

// Lifetimes of sessions and links. A session ends SessionIdle after its last use, and at the
// latest SessionLife after its start. Session.SeenAt is written at most once per
// SeenGranularity.
const (
	SessionIdle     = 30 * time.Minute
	SessionLife     = 12 * time.Hour
	InvitationLife  = 7 * 24 * time.Hour
	SetupLife       = 24 * time.Hour
	SeenGranularity = time.Minute
)

// An Invitation is a link that one person can use once: to create an account, or to set a new
// password.
type Invitation struct {
	ID string // UUIDv7
	// Hash is the SHA-256 of the link's token. The token itself is not stored.
	Hash     [32]byte
	Email    string // "" for the set-up link, whose user enters an address
	Role     Role
	TenantID string
	// UserID is the existing user who sets a new password with the link. It is "" if the link creates a user.
	UserID    string
	CreatedBy audit.Actor
	CreatedAt time.Time
	ExpiresAt time.Time
	// Mail is set for CreateInvitation if the link is also e-mailed. It is not stored.
	Mail bool
}

// UserFilter selects users or invitations for a list. The zero value selects all users and
// invitations, of the operator and of all tenants. After is the ID of the last row of the previous
// page.
type UserFilter struct {
	TenantID string // selects only rows of this tenant; if it is "", Operator decides
	Operator bool   // selects only rows of the operator; ignored if TenantID is set
	Query    string // a part of the e-mail address or the name
	After    string
	Limit    int
}

// A PeopleStore stores users, sessions and invitations. A change of a user or an invitation is an edit as in
// tenants.Store: one transaction that also writes the audit line and a new revision. A change of a session writes the
// audit line that the caller passes, but no new revision. Implementations pass storetest.Run.
type PeopleStore interface {
	FactorStore

	// User finds a user by ID. UserByEmail finds a user by e-mail address and ignores case.
	// UserBySubject finds the user that is linked to an identity at an OpenID provider. The
	// error is problem.NotFound if there is no such user.
	User(ctx context.Context, id string) (User, error)
	UserByEmail(ctx context.Context, email string) (User, error)
	UserBySubject(ctx context.Context, issuer, subject string) (User, error)
	Users(ctx context.Context, f UserFilter) ([]User, error)
	// CreateUser adds a user. The error is problem.Conflict with the code email_taken if the address is in use. If
	// setup is true, the error is problem.Conflict with the code already_set_up if any user exists.
	CreateUser(ctx context.Context, u User, setup bool, e audit.Entry) (User, error)
	// UpdateUser writes the name, role, password, provider link and disabled state of a user. The
	// error is problem.Stale if ifRevision is not the user's revision. If the role, the password or
	// the disabled state changes, UpdateUser ends the user's sessions except the session with the
	// ID keep. Other errors are problem.NotFound, and problem.Conflict with the code last_owner.
	UpdateUser(ctx context.Context, u User, ifRevision int64, keep string, e audit.Entry) (User, error)
	// DeleteUser removes a user and the user's sessions. Errors: problem.NotFound, problem.Conflict with the code
	// last_owner.
	DeleteUser(ctx context.Context, id string, e audit.Entry) error

	// CreateInvitation adds an invitation. If i.Mail is set, it also queues the e-mail with the
	// link. The error is problem.NotFound if the tenant does not exist. CreateInvitation does not
	// check whether the address has an account, because a tenant must not find out who belongs to
	// another tenant.
	CreateInvitation(ctx context.Context, i Invitation, e audit.Entry) (Invitation, error)
	// Invitation finds an invitation by the hash of its link. The error is problem.NotFound if
	// the invitation is unknown or has expired at now.
	Invitation(ctx context.Context, hash [32]byte, now time.Time) (Invitation, error)
	// MailInvitation stores the hash of a second link for an invitation. It replaces the second
	// link that was stored before. The error is problem.NotFound if the invitation is unknown
	// or has expired at now.
	MailInvitation(ctx context.Context, id string, hash [32]byte, now time.Time) (Invitation, error)
	// Invitations lists invitations by ID, including expired ones that are not deleted yet.
	Invitations(ctx context.Context, f UserFilter) ([]Invitation, error)
	AcceptInvitation(ctx context.Context, hash [32]byte, now time.Time, u User, e audit.Entry) (User, error)
	DeleteInvitation(ctx context.Context, tenantID, id string, e audit.Entry) error

	// CreateSession adds a session, sets the user's SignedInAt, and writes the audit line e.
	CreateSession(ctx context.Context, s Session, e audit.Entry) (Session, error)
	// Session finds a session by the hash of its cookie value, and its user. The error is
	// problem.NotFound if the session is expired or idle at now, or if its user is disabled.
	// Session updates SeenAt if the stored time is older than SeenGranularity.
	Session(ctx context.Context, hash [32]byte, now time.Time) (Session, User, error)
	// RenewSession replaces the hash of a session. The error is problem.NotFound if there is no such session.
	RenewSession(ctx context.Context, id string, hash [32]byte) error
	Sessions(ctx context.Context, userID string, now time.Time) ([]Session, error)
	// EndSession ends one session of a user. If id is "", it ends all sessions of the user
	// except the session with the ID keep. It returns the number of sessions that it ended.
	EndSession(ctx context.Context, userID, id, keep string, e audit.Entry) (int, error)
	// EndOverSessions deletes the sessions, the pending sign-ins and the challenges that have expired at now.
	EndOverSessions(ctx context.Context, now time.Time) error

	// WriteAudit writes an audit line for an event that changes no stored object, such as a
	// failed sign-in or a denied access.
	WriteAudit(ctx context.Context, e audit.Entry) error
}
