// Package exceptions manages what an operator sets for one tenant in addition to its plan: overrides of a policy's
// numbers, deny and allow lists, blocks of one key, and the reset of one key.
//
// Service validates a request against the tenant's published plan, writes the audit log, and calls Store. A Sweeper
// deletes expired exceptions. Package enforcement defines their effect on checks. The package must not depend on
// HTTP, SQL, or how limits are counted.
package exceptions

import (
	"context"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
)

// Bounds of the exceptions of one tenant.
const (
	DefaultLife  = 7 * 24 * time.Hour   // of an override or a block whose end is not given
	MaxLife      = 366 * 24 * time.Hour // the longest time after which an override or a block ends
	MaxReason    = 500                  // characters
	MaxOverrides = 100_000              // not counting expired ones
	MaxBlocks    = 100_000
	MaxEntries   = 100_000 // entries of both lists together
)

// An Override replaces numbers of one policy for a tenant until it expires. An override never changes. If several
// apply, the newest one has precedence. An operator can delete it before it expires.
type Override struct {
	ID       string // UUIDv7
	TenantID string
	Policy   string // slug
	// Attribute is one of the attributes that the policy counts by. If it is "", the override applies to all keys of
	// the tenant. Otherwise either Value or Prefix is set, and it applies to matching keys. A Prefix of ip is a
	// network.
	Attribute, Value, Prefix string
	// Factor multiplies all quotas, in thousandths, from 1 to enforcement.MaxFactor. If it is 0, Limits has the
	// numbers.
	Factor    int64
	Limits    []enforcement.OverrideLimit
	Reason    string // 1 to MaxReason characters
	ExpiresAt time.Time
	CreatedAt time.Time
	CreatedBy audit.Actor
	Revision  int64
}

// A List is one of the two lists of a tenant: values that are always denied, or values that are always allowed.
type List string

// The lists of a tenant.
const (
	Deny  List = "deny"
	Allow List = "allow"
)

// An Entry is one attribute value on a list.
type Entry struct {
	ID        string // UUIDv7
	TenantID  string
	List      List
	Attribute string // name
	Value     string // matches exactly; for ip, an address or a network in canonical form
	Reason    string // up to MaxReason characters
	ExpiresAt time.Time
	CreatedAt time.Time
	CreatedBy audit.Actor
	Revision  int64
}

// A Block denies all requests of one key of a policy until it expires.
type Block struct {
	ID       string // UUIDv7
	TenantID string
	Policy   string // slug
	// Key contains the key's value for each attribute that the policy counts by. The value of ip/64 has the name ip.
	// If a name is absent, the block applies to requests without that attribute.
	Key       map[string]string
	Reason    string // 1 to MaxReason characters
	ExpiresAt time.Time
	CreatedAt time.Time
	CreatedBy audit.Actor
	Revision  int64
}

// A Change is the revision at which an override of a policy was last added or removed for a tenant. It remains after
// the override is deleted.
type Change struct {
	TenantID string
	Policy   string
	Revision int64
}

// A Filter selects the rows of a listing. After is the ID of the last row of the previous page.
type Filter struct {
	Policy string // slug; for overrides and blocks
	List   List   // for list entries
	Query  string // a part of a list entry's value
	After  string
	Limit  int
}

// A Store stores exceptions. As in tenants.Store, each change is one transaction with its audit line, revision and
// tombstone. An expired exception is listed until EndExpired deletes it. Implementations pass storetest.Run.
type Store interface {
	// Overrides returns the overrides of one tenant, newest first.
	Overrides(ctx context.Context, tenantID string, f Filter) ([]Override, error)
	// Override returns one override of a tenant. The error is problem.NotFound if the tenant has no such override.
	Override(ctx context.Context, tenantID, id string) (Override, error)
	// CreateOverride adds an override, and sets its Revision, its CreatedAt, and the tenant's Change of the policy.
	// Errors: problem.NotFound if the tenant does not exist; problem.Conflict with the code too_many_overrides.
	CreateOverride(ctx context.Context, o Override, e audit.Entry) (Override, error)
	// DeleteOverride deletes an override. The error is problem.NotFound if the tenant has no such override.
	DeleteOverride(ctx context.Context, tenantID, id string, e audit.Entry) error

	// Entries returns the list entries of one tenant, newest first.
	Entries(ctx context.Context, tenantID string, f Filter) ([]Entry, error)
	Entry(ctx context.Context, tenantID, id string) (Entry, error)
	// CreateEntry adds a value to a list. Errors: problem.NotFound if the tenant does not exist; problem.Conflict
	// with the code entry_exists or too_many_entries.
	CreateEntry(ctx context.Context, n Entry, e audit.Entry) (Entry, error)
	DeleteEntry(ctx context.Context, tenantID, id string, e audit.Entry) error

	// Blocks returns the blocks of one tenant, newest first.
	Blocks(ctx context.Context, tenantID string, f Filter) ([]Block, error)
	Block(ctx context.Context, tenantID, id string) (Block, error)
	// CreateBlock adds a block. Errors: problem.NotFound if the tenant does not exist; problem.Conflict with the code
	// too_many_blocks.
	CreateBlock(ctx context.Context, b Block, e audit.Entry) (Block, error)
	DeleteBlock(ctx context.Context, tenantID, id string, e audit.Entry) error

	// NoteReset writes the audit line of a reset of counters. A reset changes no row of the database.
	NoteReset(ctx context.Context, tenantID string, e audit.Entry) error

	// EndExpired deletes at most limit exceptions that expired at or before now, in one edit. Each gets an audit line
	// of the actor "system" and a tombstone. It returns the number of deleted exceptions. If there are none, it
	// writes nothing.
	EndExpired(ctx context.Context, now time.Time, limit int) (int, error)
}
