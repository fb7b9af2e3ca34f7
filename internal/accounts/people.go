package accounts

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/audit"
)

// A Role is what a person may do. Those of the operator reach every tenant,
// those of a tenant only theirs.
type Role string

// The roles.
const (
	Owner        Role = "owner"         // everything, people and operator keys included
	Editor       Role = "editor"        // tenants, plans and exceptions; reads the rest
	Viewer       Role = "viewer"        // reads
	TenantAdmin  Role = "tenant_admin"  // its tenant's keys and members; reads the rest of its tenant
	TenantViewer Role = "tenant_viewer" // reads its tenant
)

// Operator reports whether the role is one of the operator's.
func (r Role) Operator() bool { return r == Owner || r == Editor || r == Viewer }

// Tenant reports whether the role is one of a tenant's.
func (r Role) Tenant() bool { return r == TenantAdmin || r == TenantViewer }

// A User is a person who signs in.
type User struct {
	ID    string // UUIDv7
	Email string // as written; unique in lower case
	Name  string // 1 to 200 characters
	Role  Role
	// TenantID is the tenant of a tenant's role; "" for the operator's.
	TenantID string
	// Password is an argon2id hash in PHC form; "": signs in by OpenID Connect only.
	Password string
	// Issuer and Subject are the person at an OpenID provider; "": none linked.
	Issuer, Subject string
	Disabled        bool
	CreatedAt       time.Time
	UpdatedAt       time.Time
	// SignedInAt is the last sign-in; zero: never.
	SignedInAt time.Time
	Revision   int64
}

// A Session is one browser that is signed in.
type Session struct {
	ID   string // UUIDv7: for people, and to end it
	Hash [32]byte
	// Hash is the SHA-256 of the cookie's value, which is not kept.
	UserID    string
	Address   string // where it signed in from
	Agent     string // User-Agent, cut
	CreatedAt time.Time
	SeenAt    time.Time // at most a minute late
	ExpiresAt time.Time // absolute
}

// How long sessions and links live.
const (
	SessionIdle     = 30 * time.Minute
	SessionLife     = 12 * time.Hour
	InvitationLife  = 7 * 24 * time.Hour
	SetupLife       = 24 * time.Hour
	SeenGranularity = time.Minute
)

// An Invitation is a link by which one person sets a name and a password, once.
type Invitation struct {
	ID   string // UUIDv7
	Hash [32]byte
	// Hash is the SHA-256 of the link's token, which is not kept.
	Email    string // "": of the set-up link, whose user chooses it
	Role     Role
	TenantID string
	// UserID is of a person who exists and gets a new password; "": a new one.
	UserID    string
	CreatedBy audit.Actor
	CreatedAt time.Time
	ExpiresAt time.Time
}

// UserFilter narrows a listing; After is the id of the last row of the page
// before. The zero value is everybody, of all tenants and the operator.
type UserFilter struct {
	TenantID string // of one tenant; "": see Operator
	Operator bool   // only the operator's people
	Query    string // part of e-mail or name
	After    string
	Limit    int
}

// A PeopleStore keeps users, sessions and invitations. Changes of users and
// invitations are edits like those of tenants.Store: one transaction with the
// audit line and the revision. Sessions come and go without one, but with the
// line that is handed over. Implementations pass storetest.Run.
type PeopleStore interface {
	// User finds by id; UserByEmail by address in any case; NotFound.
	User(ctx context.Context, id string) (User, error)
	UserByEmail(ctx context.Context, email string) (User, error)
	UserBySubject(ctx context.Context, issuer, subject string) (User, error)
	Users(ctx context.Context, f UserFilter) ([]User, error)
	// CreateUser: Conflict (code email_taken). With setup the user is made only
	// while there is no user at all: Conflict (code already_set_up).
	CreateUser(ctx context.Context, u User, setup bool, e audit.Entry) (User, error)
	// UpdateUser writes name, role, password, link and disabled if the revision is
	// ifRevision, and ends the sessions that keep does not name when any of role,
	// password or disabled changed; NotFound, Stale, Conflict (code last_owner).
	UpdateUser(ctx context.Context, u User, ifRevision int64, keep string, e audit.Entry) (User, error)
	// DeleteUser removes a user with sessions; NotFound, Conflict (code last_owner).
	DeleteUser(ctx context.Context, id string, e audit.Entry) error

	// CreateInvitation: NotFound for a tenant that is not there. Whether somebody
	// has the address already is not its matter: whoever invites for one tenant must
	// not learn who belongs to another. AcceptInvitation
	// takes it and makes the user u, or, with UserID, gives that user u's password
	// and nothing else of u, in one transaction; NotFound for one that is used, over
	// or unknown, Conflict (code email_taken).
	CreateInvitation(ctx context.Context, i Invitation, e audit.Entry) (Invitation, error)
	Invitation(ctx context.Context, hash [32]byte, now time.Time) (Invitation, error)
	// Invitations lists by id, also those that are over and not removed yet.
	Invitations(ctx context.Context, f UserFilter) ([]Invitation, error)
	AcceptInvitation(ctx context.Context, hash [32]byte, now time.Time, u User, e audit.Entry) (User, error)
	DeleteInvitation(ctx context.Context, tenantID, id string, e audit.Entry) error

	// CreateSession adds a session, notes the sign-in on its user and writes the line.
	CreateSession(ctx context.Context, s Session, e audit.Entry) (Session, error)
	// Session finds a session with its user, unless it is over at now (absolute or
	// idle) or its user is disabled; NotFound. It notes that it was seen when the
	// last note is older than SeenGranularity.
	Session(ctx context.Context, hash [32]byte, now time.Time) (Session, User, error)
	// RenewSession gives a session another hash; NotFound.
	RenewSession(ctx context.Context, id string, hash [32]byte) error
	Sessions(ctx context.Context, userID string, now time.Time) ([]Session, error)
	// EndSession of a user; id "" ends all but keep. It gives how many ended.
	EndSession(ctx context.Context, userID, id, keep string, e audit.Entry) (int, error)
	// EndOverSessions removes what is over.
	EndOverSessions(ctx context.Context, now time.Time) error

	// WriteAudit adds a line that belongs to no change: a sign-in that failed, an
	// access that was refused.
	WriteAudit(ctx context.Context, e audit.Entry) error
}
