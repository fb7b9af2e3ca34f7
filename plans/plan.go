// Package plans holds what tenants may call, and how much: plans with a draft
// and immutable published versions, made of policies.
//
// Requests enter at Service, which validates and audits them, and leave at
// Store. The package knows neither HTTP nor SQL, nor how limits are counted.
package plans

import (
	"context"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
)

// A Plan is named and versioned.
type Plan struct {
	ID    string // UUIDv7
	Slug  string // never changes
	Draft Document
	// DraftRevision is the revision at which the draft was last saved: its ETag.
	DraftRevision int64
	// Published is the number of the version that tenants follow; 0: none yet.
	Published int
	// Latest is the highest version number; 0: none.
	Latest int
	// Tenants is the number of tenants on the plan.
	Tenants int
	// Revision is the revision at which anything of the plan last changed.
	Revision  int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// A Version is a published document. It never changes.
type Version struct {
	PlanID      string
	Number      int
	Document    Document
	PublishedAt time.Time // of the first publication
	PublishedBy audit.Actor
	Revision    int64 // of the first publication
}

// AnyVersion stands for any version in force, or none.
const AnyVersion = -1

// A Cell is the identity that all counters of one limit share. The store
// allocates one Number for its five parts, the same in all plans.
type Cell struct {
	Number    uint32
	Policy    string // slug
	Limit     string // name
	Algorithm enforcement.Algorithm
	CountBy   []string
	Anchor    enforcement.Anchor
}

// A Published limit is a cell of a plan with its numbers in force and the
// numbers before them.
type Published struct {
	Cell    Cell
	Rev     int64 // revision at which the numbers came into force
	Limit   enforcement.Limit
	Formers []enforcement.Former // oldest first, at most MaxFormers
}

// MaxFormers is the number of former numbers that the store keeps for a limit.
const MaxFormers = 4

// A Filter selects the rows of a listing. After is the ID of the last row of the
// page before.
type Filter struct {
	Query string
	After string
	Limit int
}

// A Store stores plans. As in tenants.Store, each method is one transaction that
// includes the audit entry and the revision. Implementations pass storetest.Run.
type Store interface {
	// Plan finds a plan by ID or slug; NotFound.
	Plan(ctx context.Context, idOrSlug string) (Plan, error)
	Plans(ctx context.Context, f Filter) ([]Plan, error)
	// CreatePlan creates a plan with a draft; Conflict (code slug_taken).
	CreatePlan(ctx context.Context, p Plan, e audit.Entry) (Plan, error)
	// SaveDraft replaces the draft if its revision is ifRevision; NotFound, Stale.
	SaveDraft(ctx context.Context, planID string, d Document, ifRevision int64, e audit.Entry) (Plan, error)
	// Publish makes the draft the next version if its revision is ifRevision, and
	// points the plan to it. It allocates cells. Numbers that changed get the new
	// revision, and the old numbers become formers; NotFound, Stale.
	Publish(ctx context.Context, planID string, ifRevision int64, e audit.Entry) (Plan, Version, error)
	// PublishVersion points the plan to an existing version if ifPublished is in
	// force (AnyVersion: no condition); NotFound, Stale.
	PublishVersion(ctx context.Context, planID string, number, ifPublished int, e audit.Entry) (Plan, Version, error)
	// DeletePlan deletes a plan without tenants if its Revision is ifRevision;
	// NotFound, Stale, Conflict (code plan_in_use).
	DeletePlan(ctx context.Context, planID string, ifRevision int64, e audit.Entry) error
	// Version returns a version of a plan; NotFound.
	Version(ctx context.Context, planID string, number int) (Version, error)
	// Versions lists the versions below the number before, newest first; 0 lists
	// from the newest.
	Versions(ctx context.Context, planID string, before, limit int) ([]Version, error)
}
