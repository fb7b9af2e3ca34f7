// Package exceptions holds what an operator sets for one tenant beside its plan:
// overrides of a policy's numbers, deny and allow lists, blocks of one key, and the
// reset of one key.
//
// A request enters at Service, which validates it with the tenant's published plan
// and audits it, and leaves at Store. A Sweeper removes ended exceptions. Package
// enforcement defines their effect on checks. The package must not depend on HTTP,
// SQL, and how limits are counted.
package exceptions

import (
	"context"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
)

// Bounds of what can be set for one tenant.
const (
	DefaultLife  = 7 * 24 * time.Hour   // of an override or a block that does not say
	MaxLife      = 366 * 24 * time.Hour // every override and block ends
	MaxReason    = 500                  // characters
	MaxOverrides = 100_000              // in force, of one tenant
	MaxBlocks    = 100_000
	MaxEntries   = 100_000 // of both lists together
)

// An Override replaces the numbers of one policy for a tenant until it ends. It never changes: a
// newer one has precedence, and it can be ended early.
type Override struct {
	ID       string // UUIDv7
	TenantID string
	Policy   string // slug
	// Attribute is one of the policy's count_by names; "" means all keys of the tenant. Otherwise
	// either Value or Prefix is set; a Prefix of ip is a network.
	Attribute, Value, Prefix string
	// Factor in thousandths, 1 to enforcement.MaxFactor; 0: Limits say.
	Factor    int64
	Limits    []enforcement.OverrideLimit
	Reason    string // 1 to MaxReason characters
	ExpiresAt time.Time
	CreatedAt time.Time
	CreatedBy audit.Actor
	Revision  int64
}

// A List is one of a tenant's two lists.
type List string

// The lists.
const (
	Deny  List = "deny"
	Allow List = "allow"
)

// An Entry is one value of a list.
type Entry struct {
	ID        string // UUIDv7
	TenantID  string
	List      List
	Attribute string // name
	Value     string // exact; for ip an address or a network, canonical
	Reason    string // up to MaxReason characters
	ExpiresAt time.Time
	CreatedAt time.Time
	CreatedBy audit.Actor
	Revision  int64
}

// A Block denies one key of one policy until it ends.
type Block struct {
	ID       string // UUIDv7
	TenantID string
	Policy   string // slug
	// Key has the values of count_by by attribute name; the value of ip/64 has the name ip. An
	// absent name is the key of requests without that attribute.
	Key       map[string]string
	Reason    string // 1 to MaxReason characters
	ExpiresAt time.Time
	CreatedAt time.Time
	CreatedBy audit.Actor
	Revision  int64
}

// A Change is the revision at which an override of a policy last began or ended for a tenant. It
// outlives the override.
type Change struct {
	TenantID string
	Policy   string
	Revision int64
}

// A Filter selects rows of a listing. After is the ID of the last row of the previous page.
type Filter struct {
	Policy string // slug; of overrides and blocks
	List   List   // of entries
	Query  string // part of an entry's value
	After  string
	Limit  int
}

// A Store stores exceptions, with the contract of tenants.Store: one transaction with audit entry,
// revision and tombstone. An ended exception is listed until EndExpired removes it.
// Implementations pass storetest.Run.
type Store interface {
	// Overrides of one tenant, newest first.
	Overrides(ctx context.Context, tenantID string, f Filter) ([]Override, error)
	// Override of one tenant by ID; NotFound also for another tenant's.
	Override(ctx context.Context, tenantID, id string) (Override, error)
	// CreateOverride sets Revision, CreatedAt and the tenant's Change of the
	// policy; NotFound, Conflict (code too_many_overrides).
	CreateOverride(ctx context.Context, o Override, e audit.Entry) (Override, error)
	// DeleteOverride ends an override now; NotFound.
	DeleteOverride(ctx context.Context, tenantID, id string, e audit.Entry) error

	// Entries of one tenant's lists, newest first.
	Entries(ctx context.Context, tenantID string, f Filter) ([]Entry, error)
	Entry(ctx context.Context, tenantID, id string) (Entry, error)
	// CreateEntry adds to a list; NotFound, Conflict (codes entry_exists, too_many_entries).
	CreateEntry(ctx context.Context, n Entry, e audit.Entry) (Entry, error)
	DeleteEntry(ctx context.Context, tenantID, id string, e audit.Entry) error

	// Blocks of one tenant, newest first.
	Blocks(ctx context.Context, tenantID string, f Filter) ([]Block, error)
	Block(ctx context.Context, tenantID, id string) (Block, error)
	// CreateBlock adds a block; NotFound, Conflict (code too_many_blocks).
	CreateBlock(ctx context.Context, b Block, e audit.Entry) (Block, error)
	DeleteBlock(ctx context.Context, tenantID, id string, e audit.Entry) error

	// NoteReset writes the audit line of a reset, which has no row of its own.
	NoteReset(ctx context.Context, tenantID string, e audit.Entry) error

	// EndExpired removes at most limit rows that ended at or before now, in one edit, each with an
	// audit entry of the system and a tombstone. It returns their number. Without such rows it
	// writes nothing.
	EndExpired(ctx context.Context, now time.Time, limit int) (int, error)
}
