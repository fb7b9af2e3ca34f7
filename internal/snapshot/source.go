package snapshot

import (
	"context"

	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// A Source returns the stored rows of tenants, keys, plans and exceptions. store.Store implements
// it.
type Source interface {
	// Revision returns the latest revision, which increases by one with each edit.
	Revision(ctx context.Context) (int64, error)
	// Changes returns all objects that changed after the revision since, or all objects if since is
	// 0. All objects in the result belong to the same moment. The result includes invalid rows;
	// Compile validates them.
	Changes(ctx context.Context, since int64) (Changes, error)
	// Notify calls changed after increases of the revision, until ctx ends. It may miss some
	// increases, so the Watcher also polls the revision.
	Notify(ctx context.Context, changed func()) error
}

// Changes contains the objects that changed after a revision. The field Revision is the latest
// revision whose changes are included.
type Changes struct {
	Revision int64 // the latest revision at the time of reading
	Plans    []PublishedPlan
	Tenants  []tenants.Tenant
	Keys     []tenants.Key // keys of tenants and of the operator
	// The exceptions of tenants.
	Overrides     []exceptions.Override
	Entries       []exceptions.Entry
	Blocks        []exceptions.Block
	Grants        []exceptions.Grant
	PolicyChanges []exceptions.Change
	Removed       []Tombstone
}

// A PublishedPlan is the current version of a plan.
type PublishedPlan struct {
	ID       string
	Slug     string
	Version  int
	Revision int64
	// Document is the stored version. If it cannot be decoded, Document is empty and Broken is the
	// error.
	Document plans.Document
	Broken   string
	Limits   []plans.Published
}

// A Tombstone identifies a deleted object.
type Tombstone struct {
	Kind string // "plan", "tenant", "key", "operator_key", "override", "list_entry", "block", "grant"
	ID   string
}
