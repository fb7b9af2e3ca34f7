// Package exceptions manages what an operator sets for one tenant in addition to its plan:
// overrides with other limits for a policy, entries of the deny list and the allow list, blocks of
// one key, grants of more units, and resets of one key.
//
// Service validates a change against the tenant's published plan, and calls Store, which writes the
// change and its audit line. A Sweeper deletes expired exceptions. Package enforcement defines the
// effect of exceptions on checks. The package must not depend on HTTP, SQL, or how limits are
// counted.
package exceptions

import (
	"context"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
)

// Bounds of the exceptions of one tenant.
const (
	DefaultLife  = 7 * 24 * time.Hour   // time after which an override or a block ends if no end is given
	MaxLife      = 366 * 24 * time.Hour // longest time after which an override or a block can end
	MaxReason    = 500                  // characters
	MaxOverrides = 100_000              // expired ones are not counted
	MaxBlocks    = 100_000
	MaxEntries   = 100_000 // entries of both lists together
	MaxGrants    = 10_000
)

// An Override replaces numbers of one policy for a tenant until it expires. If several
// overrides apply to a key, the one that was created or changed last has precedence. An
// operator can change an override, and delete it before it expires.
type Override struct {
	ID       string // UUIDv7
	TenantID string
	Policy   string // slug
	// Attribute is one of the attributes by which the policy counts. If it is "", the override
	// applies to all keys of the tenant. If it is set, either Value or Prefix is set too, and
	// the override applies only to keys with this value or prefix. If Attribute is ip, Prefix
	// is a network.
	Attribute, Value, Prefix string
	// Factor multiplies all quotas and bursts of the policy. It is in thousandths, from 1 to
	// enforcement.MaxFactor. If it is 0, Limits contains the limits with other numbers.
	Factor    int64
	Limits    []enforcement.OverrideLimit
	Reason    string // 1 to MaxReason characters
	ExpiresAt time.Time
	CreatedAt time.Time
	CreatedBy audit.Actor
	Revision  int64
}

// A List is the deny list or the allow list of a tenant.
type List string

// The two lists of a tenant. A request with a value on the deny list is denied, whatever its
// policies decide, unless its mode is force. A request with a value on the allow list is allowed,
// unless the deny list denies it.
const (
	Deny  List = "deny"
	Allow List = "allow"
)

// An Entry is an attribute value on a list of a tenant.
type Entry struct {
	ID        string // UUIDv7
	TenantID  string
	List      List
	Attribute string // name
	Value     string // compared exactly; if Attribute is ip, an address or a network in canonical form
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
	// Key contains a value for each attribute by which the policy counts. If the policy counts by
	// ip/64, the name of the attribute in Key is ip. If Key does not contain an attribute, the
	// block applies to requests without this attribute.
	Key       map[string]string
	Reason    string // 1 to MaxReason characters
	ExpiresAt time.Time
	CreatedAt time.Time
	CreatedBy audit.Actor
	Revision  int64
}

// A Grant gives one limit of a tenant additional units beyond its quota. The units can be spent
// once, until the grant expires. An operator can delete the grant before it expires. The limiter
// stores how many units are left.
type Grant struct {
	ID       string // UUIDv7
	TenantID string
	Policy   string // slug
	Limit    string // name
	// Key has the same form as Block.Key. If Key is empty, all keys of the policy share the units.
	Key       map[string]string
	Units     int64
	Reason    string // 1 to MaxReason characters
	ExpiresAt time.Time
	CreatedAt time.Time
	CreatedBy audit.Actor
	Revision  int64
}

// A Change contains the revision at which an override of a policy was last added, changed or
// deleted for a tenant. It stays stored after the override is deleted.
type Change struct {
	TenantID string
	Policy   string
	Revision int64
}

// A Filter selects rows of a list. After is the ID of the last row of the previous page, or "".
type Filter struct {
	Policy string // slug; for overrides, blocks and grants
	List   List   // only for list entries; "": both lists
	Query  string // only for list entries: a part of the value
	After  string
	Limit  int
}

// A Store stores exceptions. As in tenants.Store, each change is one transaction that also
// writes the audit line, the revision and, for a deletion, a tombstone. Lists contain expired
// exceptions until EndExpired deletes them. Implementations pass storetest.Run.
type Store interface {
	// Overrides returns the overrides of one tenant, newest first.
	Overrides(ctx context.Context, tenantID string, f Filter) ([]Override, error)
	// Override returns one override of a tenant. The error is problem.NotFound if the tenant has no such override.
	Override(ctx context.Context, tenantID, id string) (Override, error)
	// CreateOverride adds an override. It sets Revision and CreatedAt of the override, and
	// stores the new revision as the Change of the policy for the tenant. The error is
	// problem.NotFound if the tenant does not exist, or problem.Conflict with the code
	// too_many_overrides.
	CreateOverride(ctx context.Context, o Override, e audit.Entry) (Override, error)
	// UpdateOverride replaces the keys, the numbers, the Reason, and the ExpiresAt of an override.
	// It sets the Revision of the override, and the Change of the policy for the tenant. The error
	// is problem.NotFound if there is no such override, or problem.Stale if ifRevision is not the
	// stored revision.
	UpdateOverride(ctx context.Context, o Override, ifRevision int64, e audit.Entry) (Override, error)
	// DeleteOverride deletes an override. The error is problem.NotFound if the tenant has no such override.
	DeleteOverride(ctx context.Context, tenantID, id string, e audit.Entry) error

	// Entries returns the list entries of one tenant, newest first.
	Entries(ctx context.Context, tenantID string, f Filter) ([]Entry, error)
	Entry(ctx context.Context, tenantID, id string) (Entry, error)
	// CreateEntry adds a value to a list. The error is problem.NotFound if the tenant does not
	// exist, or problem.Conflict with the code entry_exists or too_many_entries.
	CreateEntry(ctx context.Context, n Entry, e audit.Entry) (Entry, error)
	DeleteEntry(ctx context.Context, tenantID, id string, e audit.Entry) error

	// Blocks returns the blocks of one tenant, newest first.
	Blocks(ctx context.Context, tenantID string, f Filter) ([]Block, error)
	Block(ctx context.Context, tenantID, id string) (Block, error)
	// CreateBlock adds a block. The error is problem.NotFound if the tenant does not exist, or
	// problem.Conflict with the code too_many_blocks.
	CreateBlock(ctx context.Context, b Block, e audit.Entry) (Block, error)
	DeleteBlock(ctx context.Context, tenantID, id string, e audit.Entry) error

	// Grants returns the grants of one tenant, newest first.
	Grants(ctx context.Context, tenantID string, f Filter) ([]Grant, error)
	Grant(ctx context.Context, tenantID, id string) (Grant, error)
	// CreateGrant adds a grant. The error is problem.NotFound if the tenant does not exist, or
	// problem.Conflict with the code too_many_grants if the tenant already has MaxGrants grants, or
	// if the limit and the key already have enforcement.MaxGrantsOfKey grants.
	CreateGrant(ctx context.Context, g Grant, e audit.Entry) (Grant, error)
	DeleteGrant(ctx context.Context, tenantID, id string, e audit.Entry) error

	// NoteReset writes the audit line of a reset of counters. It changes nothing else but the revision
	// of the database, because the counters are not in the database.
	NoteReset(ctx context.Context, tenantID string, e audit.Entry) error

	// EndExpired deletes at most limit exceptions that have expired at now, in one edit, and
	// returns their number. For each of them, it writes a tombstone and an audit line with the
	// actor "system". If no exception has expired, EndExpired writes nothing.
	EndExpired(ctx context.Context, now time.Time, limit int) (int, error)
}
