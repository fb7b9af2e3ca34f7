package tenants

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/audit"
)

// A Filter selects rows of a list. After is the ID of the last row of the previous page, or "".
type Filter struct {
	Query  string // a part of the slug or name; for keys, of the name
	Status Status
	Plan   string // slug
	After  string
	Limit  int
}

// A Store stores tenants and keys. Each method that changes something is one transaction. The transaction also writes
// the audit entry, raises the revision of the installation, and adds tombstones for deleted rows. The Store sets ID,
// At and Revision of the entry. Implementations pass storetest.Run.
type Store interface {
	// Tenant returns the tenant with an ID or slug. The error is problem.NotFound if there is none.
	Tenant(ctx context.Context, idOrSlug string) (Tenant, error)
	// Tenants lists the tenants that match f in the order of their IDs, oldest first.
	Tenants(ctx context.Context, f Filter) ([]Tenant, error)
	// CreateTenant creates a tenant and sets its Number and Home. The error is problem.Conflict
	// with the code slug_taken, or problem.Invalid at /plan if the plan does not exist or was never
	// published.
	CreateTenant(ctx context.Context, t Tenant, e audit.Entry) (Tenant, error)
	// UpdateTenant replaces the document of a tenant. If the plan of the tenant changes,
	// UpdateTenant sets PlanRevision. The error is problem.Stale if the stored revision is not
	// ifRevision, problem.NotFound, or problem.Invalid at /plan.
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
	// RotateKey stores the key next, which replaces the key with the given ID. It sets the end of
	// the old key to until. If the old key ends earlier, its end does not change.
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
