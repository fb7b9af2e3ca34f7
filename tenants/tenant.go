// Package tenants manages tenants, which are the customers of the operator, and all API keys:
// those of tenants and those of the operator.
//
// Callers use a Service, which validates changes and records them in the audit log. A Store
// stores tenants. The package does not depend on HTTP, SQL or limiters. The plan of a tenant
// defines its limits; see package plans.
package tenants

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/audit"
)

// Status is the status of a tenant: active or suspended.
type Status string

// The statuses. Checks of a suspended tenant are denied, and its keys can only read.
const (
	Active    Status = "active"
	Suspended Status = "suspended"
)

// NoPolicy is the decision for a check that matches no policy: allow or deny.
type NoPolicy string

// The decisions for a check that matches no policy.
const (
	Allow NoPolicy = "allow"
	Deny  NoPolicy = "deny"
)

// A Document contains the fields of a tenant that an administrator sets. PUT
// /v1/tenants/{tenant} accepts them, and GET shows them under "tenant".
type Document struct {
	Name             string   // 1 to 200 characters
	Status           Status   // default active
	Plan             string   // slug of a published plan; empty for none
	TimeZone         string   // IANA name, default UTC
	BillingAnchorDay int      // 1 to 31, default 1
	NoPolicy         NoPolicy // default allow
	RedactValues     bool     // do not store attribute values of denied checks for the dashboard
	RouteOptional    bool     // checks may leave out method and path; its inverse is require_route on the wire
	MaxKeys          int64    // bound of live counters in Redis, MinKeys to MostKeys; 0: the setting of the nodes
}

// A Tenant is a customer of the operator, with its own keys, counters and members.
type Tenant struct {
	ID   string // UUIDv7
	Slug string // never changes
	// Number identifies the tenant in counter keys. It is allocated once and never reused.
	Number uint32
	// Home is the hash tag of all counters of the tenant in Redis Cluster, so that they are on
	// one node. By default it is one of 64 tags, computed from Number.
	Home string
	Document
	// PlanID is the ID of the plan in Document.Plan, or "".
	PlanID string
	// PlanRevision is the revision at which the tenant last changed its plan.
	PlanRevision int64
	// Revision is the revision of the last change to the tenant. It is the tenant's ETag.
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
	// ScopeIdentify is the scope of a customer's key, which says only whose request a gateway forwards.
	ScopeIdentify Scope = "identify"
)

// A Key is an API key of a tenant or of the operator, without its token.
type Key struct {
	ID        string // UUIDv7
	TenantID  string // "" for a key of the operator, which can access every tenant
	Name      string
	Hash      [32]byte // SHA-256 of the token
	Hint      string   // first and last characters, to recognize the key: "hg_tn_Ab3d…9xYz"
	Scopes    []Scope
	ExpiresAt time.Time // zero if the key does not expire
	RevokedAt time.Time // zero if not revoked; in the future if rotated: the key is valid until then
	CreatedAt time.Time
	// CreatedBy is the ID of the API key with which this key was created or rotated. It is ""
	// if a person, a command or the bootstrap key created this key.
	CreatedBy string
	// LastUsedAt is when the key last authenticated a request, on any node. Nodes store it once a
	// minute. It is zero if the key was never used.
	LastUsedAt time.Time
	// AllowedIPs are the addresses from which the key may be used; empty: all.
	AllowedIPs Networks
	Bounds
	Revision int64
}

// A KeyUse is the last use of a key on one node.
type KeyUse struct {
	ID string // of the key
	At time.Time
}

// Bounds restrict the checks that a key may send, so that its holder cannot spend the quota of
// the tenant with one check.
type Bounds struct {
	MaxCost  int64 // largest cost of one check; 0: no bound
	PeekOnly bool  // checks must have the mode peek
}

// Within reports whether b allows no check that wide does not allow.
func (b Bounds) Within(wide Bounds) bool {
	return (wide.MaxCost == 0 || b.MaxCost > 0 && b.MaxCost <= wide.MaxCost) && (b.PeekOnly || !wide.PeekOnly)
}

// Operator reports whether the key belongs to the operator.
func (k Key) Operator() bool { return k.TenantID == "" }

// Kind returns the prefix of audit actions on the key: "key" or "operator_key".
func (k Key) Kind() string {
	if k.Operator() {
		return "operator_key"
	}
	return "key"
}

// A Filter selects the rows of a listing. After is the ID of the last row of the previous page.
type Filter struct {
	Query  string // part of the slug or name
	Status Status
	Plan   string // slug
	After  string
	Limit  int
}

// A Store stores tenants and keys. Each method is one transaction, which includes the audit
// entry, the new revision, and tombstones of deleted rows. The Store sets Revision, At and ID
// of the audit entry. Implementations pass storetest.Run. The comments list the possible kinds
// of problems.
type Store interface {
	// Tenant returns the tenant with an id or slug; NotFound.
	Tenant(ctx context.Context, idOrSlug string) (Tenant, error)
	// Tenants lists tenants in the order of their ids, oldest first.
	Tenants(ctx context.Context, f Filter) ([]Tenant, error)
	// CreateTenant creates a tenant and allocates Number and Home; Conflict (code slug_taken);
	// Invalid at /plan if the plan is unknown or unpublished.
	CreateTenant(ctx context.Context, t Tenant, e audit.Entry) (Tenant, error)
	// UpdateTenant replaces the Document if the stored revision is ifRevision; NotFound, Stale,
	// Invalid at /plan. It sets PlanRevision if the plan changes.
	UpdateTenant(ctx context.Context, t Tenant, ifRevision int64, e audit.Entry) (Tenant, error)
	// DeleteTenant deletes a tenant and its keys; NotFound, Stale.
	DeleteTenant(ctx context.Context, id string, ifRevision int64, e audit.Entry) error

	// Keys lists the keys of one tenant, or of the operator if tenantID is "", oldest first,
	// including revoked keys.
	Keys(ctx context.Context, tenantID string, f Filter) ([]Key, error)
	// Key returns a key of one tenant, or of the operator if tenantID is "". NotFound also if
	// the key belongs to another owner.
	Key(ctx context.Context, tenantID, id string) (Key, error)
	CreateKey(ctx context.Context, k Key, e audit.Entry) (Key, error)
	// RotateKey stores next and ends the validity of the old key at until.
	RotateKey(ctx context.Context, tenantID, id string, until time.Time, next Key, e audit.Entry) (Key, error)
	// RevokeKey ends the validity of a key at the time at, unless it ends earlier. Conflict
	// (code last_operator_key) for the operator's last valid key with the scope manage.
	RevokeKey(ctx context.Context, tenantID, id string, at time.Time, e audit.Entry) (Key, error)
	// RevokeKeyAndCreated is RevokeKey, and also revokes the keys that KeysCreatedBy lists: all
	// or none. entry returns the audit entry for each of them.
	RevokeKeyAndCreated(ctx context.Context, tenantID, id string, at time.Time, e audit.Entry, entry func(Key) audit.Entry) (Key, error)
	// KeysCreatedBy lists the keys that were created with a key, directly or through other
	// keys, and are valid at the time at, oldest first. They are keys of one tenant or, if
	// tenantID is "", of the operator and all tenants.
	KeysCreatedBy(ctx context.Context, tenantID, id string, at time.Time) ([]Key, error)
}
