// Package tenants manages tenants, which are the customers of the operator, and all API keys:
// those of tenants and those of the operator.
//
// Callers use a Service, which validates changes. A Store stores tenants and keys, and writes
// the audit log. The package does not depend on HTTP, SQL or limiters. The limits of a tenant
// come from its plan; see package plans.
package tenants

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/audit"
)

// Status says whether a tenant is active or suspended.
type Status string

// The statuses. While a tenant is suspended, its checks are denied, and its keys can only read.
const (
	Active    Status = "active"
	Suspended Status = "suspended"
)

// NoPolicy says how a check is decided that no policy matches.
type NoPolicy string

// The values of NoPolicy.
const (
	Allow NoPolicy = "allow"
	Deny  NoPolicy = "deny"
)

// A Document contains the fields of a tenant that an administrator sets. PUT /v1/tenants/{tenant}
// accepts it, and GET shows it as the member "tenant".
type Document struct {
	Name             string   // 1 to 200 characters
	Status           Status   // default active
	Plan             string   // slug of a published plan; empty for none
	TimeZone         string   // IANA name, default UTC
	BillingAnchorDay int      // 1 to 31, default 1
	NoPolicy         NoPolicy // default allow
	RedactValues     bool     // do not store the attribute values of denied checks
	RouteOptional    bool     // checks may leave out method and path; on the wire, the member require_route has the opposite value
	MaxKeys          int64    // maximum number of live counters in Redis, from MinKeys to MostKeys; 0: the nodes' setting applies
}

// A Tenant is a customer of the operator, with its own keys, counters and members.
type Tenant struct {
	ID   string // UUIDv7
	Slug string // never changes
	// Number identifies the tenant in counter keys. It is allocated once and never reused.
	Number uint32
	// Home is the hash tag in the Redis keys of all counters of the tenant. In a Redis cluster,
	// it puts these counters on the same node. By default, it is one of 64 tags and is computed
	// from Number.
	Home string
	Document
	// PlanID is the ID of the plan whose slug is Document.Plan; "" if the tenant has no plan.
	PlanID string
	// PlanRevision is the revision at which the tenant last got another plan.
	PlanRevision int64
	// Revision is the revision of the last change of the tenant. The API uses it as the ETag.
	Revision  int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// A Scope is a permission of an API key. ScopeManage includes ScopeRead.
type Scope string

// The scopes.
const (
	ScopeCheck  Scope = "check"
	ScopeRead   Scope = "read"
	ScopeManage Scope = "manage"
	// ScopeIdentify is the scope of a key that a tenant's customer sends. Such a key only says
	// from which customer a request is that a gateway forwards.
	ScopeIdentify Scope = "identify"
)

// A Key is an API key of a tenant or of the operator, without its token.
type Key struct {
	ID        string // UUIDv7
	TenantID  string // "" for a key of the operator, which can access every tenant
	Name      string
	Hash      [32]byte // SHA-256 of the token
	Hint      string   // first and last characters of the token, by which people recognize the key, like "hg_tn_Ab3d…9xYz"
	Scopes    []Scope
	ExpiresAt time.Time // zero if the key does not expire
	RevokedAt time.Time // zero if the key is not revoked; in the future if the key was rotated: it is valid until then
	CreatedAt time.Time
	// CreatedBy is the ID of the API key that was used to create or rotate this key. It is ""
	// if a person, a command or the bootstrap key created or rotated it.
	CreatedBy string
	// LastUsedAt is the last time at which the key authenticated a request on any node. It is
	// zero if the key was never used. Nodes store it once a minute, so it can be a minute too
	// early.
	LastUsedAt time.Time
	// AllowedIPs are the ranges of addresses from which the key may be used. If it is empty,
	// the key may be used from all addresses.
	AllowedIPs Networks
	Bounds
	Revision int64
}

// A KeyUse is the last time at which one node used a key.
type KeyUse struct {
	ID string // of the key
	At time.Time
}

// Bounds restrict which checks may be sent with a key. Without a bound, the holder of a key
// could use up the quota of the tenant with one check.
type Bounds struct {
	MaxCost  int64 // maximum cost of one check; 0: no maximum
	PeekOnly bool  // set if checks must have the mode peek
}

// Within reports whether wide allows every check that b allows.
func (b Bounds) Within(wide Bounds) bool {
	return (wide.MaxCost == 0 || b.MaxCost > 0 && b.MaxCost <= wide.MaxCost) && (b.PeekOnly || !wide.PeekOnly)
}

// Operator reports whether the key belongs to the operator.
func (k Key) Operator() bool { return k.TenantID == "" }

// Kind returns the first part of the audit actions about the key: "key", or "operator_key" if
// the key belongs to the operator.
func (k Key) Kind() string {
	if k.Operator() {
		return "operator_key"
	}
	return "key"
}

// A Filter selects rows of a list. After is the ID of the last row of the previous page, or "".
type Filter struct {
	Query  string // a part of the slug or name; for keys, of the name
	Status Status
	Plan   string // slug
	After  string
	Limit  int
}

// A Store stores tenants and keys. Each method that changes something is one transaction. The
// transaction also writes the audit entry e, raises the revision, and adds tombstones for
// deleted rows. The Store sets ID, At and Revision of the entry. Implementations pass
// storetest.Run.
type Store interface {
	// Tenant returns the tenant with an ID or slug. The error is problem.NotFound if there is none.
	Tenant(ctx context.Context, idOrSlug string) (Tenant, error)
	// Tenants lists the tenants that match f in the order of their IDs, oldest first.
	Tenants(ctx context.Context, f Filter) ([]Tenant, error)
	// CreateTenant creates a tenant and sets its Number and Home. The error is problem.Conflict
	// with the code slug_taken, or problem.Invalid at /plan if the plan does not exist or was never
	// published.
	CreateTenant(ctx context.Context, t Tenant, e audit.Entry) (Tenant, error)
	// UpdateTenant replaces the document of a tenant. If the tenant gets another plan, it sets
	// PlanRevision. The error is problem.Stale if the stored revision is not ifRevision,
	// problem.NotFound, or problem.Invalid at /plan.
	UpdateTenant(ctx context.Context, t Tenant, ifRevision int64, e audit.Entry) (Tenant, error)
	// DeleteTenant deletes a tenant and its keys. The error is problem.Stale if the stored revision
	// is not ifRevision, or problem.NotFound.
	DeleteTenant(ctx context.Context, id string, ifRevision int64, e audit.Entry) error

	// Keys lists the keys of one tenant, or of the operator if tenantID is "", oldest first. The
	// list includes revoked keys.
	Keys(ctx context.Context, tenantID string, f Filter) ([]Key, error)
	// Key returns a key of one tenant, or of the operator if tenantID is "". The error is
	// problem.NotFound if there is no such key, or if it belongs to another tenant.
	Key(ctx context.Context, tenantID, id string) (Key, error)
	CreateKey(ctx context.Context, k Key, e audit.Entry) (Key, error)
	// RotateKey stores the key next, and sets the end of the old key, which has the given ID,
	// to until. If the old key ends earlier, that end stays.
	RotateKey(ctx context.Context, tenantID, id string, until time.Time, next Key, e audit.Entry) (Key, error)
	// RevokeKey sets the end of a key to at, unless the key ends earlier. The error is
	// problem.Conflict with the code last_operator_key if the operator would then have no valid
	// key with the scope manage.
	RevokeKey(ctx context.Context, tenantID, id string, at time.Time, e audit.Entry) (Key, error)
	// RevokeKeyAndCreated revokes a key like RevokeKey, and also the keys that KeysCreatedBy
	// lists. If there is an error, it revokes none of them. entry returns the audit entry for
	// each of the listed keys.
	RevokeKeyAndCreated(ctx context.Context, tenantID, id string, at time.Time, e audit.Entry, entry func(Key) audit.Entry) (Key, error)
	// KeysCreatedBy lists the keys that were created with the key with this ID, directly or
	// through other keys, oldest first. It leaves out keys that are not valid at the time at.
	// If tenantID is "", the list contains keys of the operator and of all tenants, otherwise
	// only keys of this tenant.
	KeysCreatedBy(ctx context.Context, tenantID, id string, at time.Time) ([]Key, error)
}
