package snapshot

import (
	"context"

	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// A Source provides the rows of the control plane. store implements it.
type Source interface {
	// Revision returns the revision, which rises by one with each edit.
	Revision(ctx context.Context) (int64, error)
	// Changes returns what changed after revision since, in one state of the database; 0 returns
	// everything. It also returns invalid rows: Compile validates them.
	Changes(ctx context.Context, since int64) (Changes, error)
	// Notify runs until the context ends and calls changed when the revision rises. It may miss
	// changes: the Watcher also polls.
	Notify(ctx context.Context, changed func()) error
}

// Changes is what changed between two revisions.
type Changes struct {
	Revision int64 // of the moment of reading
	Plans    []PublishedPlan
	Tenants  []tenants.Tenant
	Keys     []tenants.Key // of tenants and of the operator
	// What was set for tenants beside their plans.
	Overrides     []exceptions.Override
	Entries       []exceptions.Entry
	Blocks        []exceptions.Block
	PolicyChanges []exceptions.Change
	Removed       []Tombstone
}

// A PublishedPlan is the version of a plan that tenants follow.
type PublishedPlan struct {
	ID       string
	Slug     string
	Version  int
	Revision int64
	// Document is the stored version. If it cannot be read, it is empty and Broken says why.
	Document plans.Document
	Broken   string
	Limits   []plans.Published
}

// A Tombstone is a removed object.
type Tombstone struct {
	Kind string // "plan", "tenant", "key", "operator_key", "override", "list_entry", "block"
	ID   string
}
