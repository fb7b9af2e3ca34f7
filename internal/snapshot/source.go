package snapshot

import (
	"context"

	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// A Source is where the world comes from. store implements it.
type Source interface {
	// Revision is the control plane's revision: it rises by one with every edit.
	Revision(ctx context.Context) (int64, error)
	// Changes gives what changed after revision since, all of one moment: 0
	// gives the whole world. Rows come as they are, also bad ones: judging them
	// is the compiler's work.
	Changes(ctx context.Context, since int64) (Changes, error)
	// Notify runs until the context ends and calls changed whenever the source
	// says that the revision rose. It is a hint: the Watcher also polls.
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
	// Document is the version as stored; Broken says why it cannot be read, then
	// Document is empty.
	Document plans.Document
	Broken   string
	Limits   []plans.Published
}

// A Tombstone is an object that was removed.
type Tombstone struct {
	Kind string // "plan", "tenant", "key", "operator_key", "override", "list_entry", "block"
	ID   string
}
