// Package tenants holds the customers of the operator, and all API keys: those of
// tenants, and those of the operator.
//
// A request comes in at Service (validated, audited) and goes out at Store.
// The package refuses to know HTTP, SQL, and how quota is counted; what a
// tenant may call is its plan's matter.
package tenants

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/audit"
)

// Status of a tenant.
type Status string

// The statuses. A suspended tenant's checks are refused, and its keys may only read.
const (
	Active    Status = "active"
	Suspended Status = "suspended"
)

// NoPolicy says what happens to a request that matches no policy.
type NoPolicy string

// The answers to a request that matches no policy.
const (
	Allow NoPolicy = "allow"
	Deny  NoPolicy = "deny"
)

// A Document is what an administrator writes of a tenant: exactly what
// PUT /v1/tenants/{tenant} takes and GET shows under "tenant".
type Document struct {
	Name             string   // 1 to 200 characters
	Status           Status   // default active
	Plan             string   // slug of a published plan; empty: none
	TimeZone         string   // IANA name, default UTC
	BillingAnchorDay int      // 1 to 31, default 1
	NoPolicy         NoPolicy // default allow
	RedactValues     bool     // attribute values are not kept for people to look at
}

// A Tenant is a customer: the isolation boundary.
type Tenant struct {
	ID   string // UUIDv7
	Slug string // never changed
	// Number is the short identity in counter keys, allocated once, never reused.
	Number uint32
	// Home is the opaque hash tag under which all counters of the tenant lie;
	// by default one of 64, from the Number.
	Home string
	Document
	// PlanID is the plan behind Document.Plan; empty: none.
	PlanID string
	// PlanRevision is the revision at which the tenant was put on its plan.
	PlanRevision int64
	// Revision at which the tenant was last changed: its ETag.
	Revision  int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Scope is what a key may do. Manage implies Read.
type Scope string

// The scopes.
const (
	ScopeCheck  Scope = "check"
	ScopeRead   Scope = "read"
	ScopeManage Scope = "manage"
)

// A Key is an API key of a tenant or of the operator, without its token.
type Key struct {
	ID        string // UUIDv7
	TenantID  string // empty: the operator's, which acts on every tenant
	Name      string
	Hash      [32]byte // SHA-256 of the token
	Hint      string   // first and last characters, for people: "hg_tn_Ab3d…9xYz"
	Scopes    []Scope
	ExpiresAt time.Time // zero: never
	RevokedAt time.Time // zero: not revoked; in the future: rotated, still valid until then
	CreatedAt time.Time
	// CreatedBy is the ID of the key whose request created this one, also as the
	// successor in a rotation; empty if a person, a command or the bootstrap key did.
	CreatedBy string
	Revision  int64
}

// Operator reports whether the key is the operator's.
func (k Key) Operator() bool { return k.TenantID == "" }

// Kind returns the first part of the actions on the key in the audit log: "key"
// or "operator_key".
func (k Key) Kind() string {
	if k.Operator() {
		return "operator_key"
	}
	return "key"
}

// Filter of a listing; After is the id of the last row of the page before.
type Filter struct {
	Query  string // part of slug or name
	Status Status
	Plan   string // slug
	After  string
	Limit  int
}

// A Store keeps tenants and keys. Every method is one transaction: the change,
// its audit line, the tombstone of what it removes, and the revision. The audit
// entry's Revision, At and ID are filled by the Store. Implementations pass
// storetest.Run.
type Store interface {
	// Tenant finds by id or slug; NotFound.
	Tenant(ctx context.Context, idOrSlug string) (Tenant, error)
	// Tenants lists by id, oldest first.
	Tenants(ctx context.Context, f Filter) ([]Tenant, error)
	// CreateTenant allocates Number and Home and sets the revisions and times;
	// Conflict (code slug_taken); Invalid at /plan when the plan is unknown or unpublished.
	CreateTenant(ctx context.Context, t Tenant, e audit.Entry) (Tenant, error)
	// UpdateTenant writes the Document if the stored revision is ifRevision;
	// NotFound, Stale, Invalid at /plan. PlanRevision moves when the plan changes.
	UpdateTenant(ctx context.Context, t Tenant, ifRevision int64, e audit.Entry) (Tenant, error)
	// DeleteTenant removes the tenant with its keys; NotFound, Stale.
	DeleteTenant(ctx context.Context, id string, ifRevision int64, e audit.Entry) error

	// Keys of one tenant, or of the operator if tenantID is "", oldest first,
	// revoked ones too.
	Keys(ctx context.Context, tenantID string, f Filter) ([]Key, error)
	// Key of one tenant, or of the operator, by id; NotFound also for another's.
	Key(ctx context.Context, tenantID, id string) (Key, error)
	CreateKey(ctx context.Context, k Key, e audit.Entry) (Key, error)
	// RotateKey adds next and ends the old key at until, in one transaction.
	RotateKey(ctx context.Context, tenantID, id string, until time.Time, next Key, e audit.Entry) (Key, error)
	// RevokeKey ends a key at an instant. A key that ends no later stays as it is.
	// The operator's last valid key with the scope manage cannot be revoked:
	// Conflict (code last_operator_key).
	RevokeKey(ctx context.Context, tenantID, id string, at time.Time, e audit.Entry) (Key, error)
	// RevokeKeyAndCreated is RevokeKey, and ends the keys of KeysCreatedBy at the
	// same instant, all or none. entry returns the audit line of each of those.
	RevokeKeyAndCreated(ctx context.Context, tenantID, id string, at time.Time, e audit.Entry, entry func(Key) audit.Entry) (Key, error)
	// KeysCreatedBy returns the keys that are valid at an instant and that a key
	// created, directly or through other keys, oldest first: of one tenant, or of
	// the operator and all tenants if tenantID is "".
	KeysCreatedBy(ctx context.Context, tenantID, id string, at time.Time) ([]Key, error)
}
