// Package plans manages plans. A plan consists of policies, which define the limits of the
// tenants on the plan. It has a draft and immutable published versions.
//
// Callers use a Service, which validates changes and records them in the audit log. A Store
// stores plans. The package does not depend on HTTP, SQL or limiters.
package plans

import (
	"context"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
)

// A Plan is a named set of policies with a draft and published versions.
type Plan struct {
	ID    string // UUIDv7
	Slug  string // never changes
	Draft Document
	// DraftRevision is the revision at which the draft was last saved. It is the draft's ETag.
	DraftRevision int64
	// Published is the number of the version that applies to tenants, or 0 if no version is
	// published.
	Published int
	// Latest is the highest version number, or 0 if the plan has no version.
	Latest int
	// Tenants is the number of tenants on the plan.
	Tenants int
	// Revision is the revision of the last change to the plan, its draft, or its published
	// version.
	Revision  int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// A Version is a published document. It never changes.
type Version struct {
	PlanID      string
	Number      int
	Document    Document
	PublishedAt time.Time // time of the first publication
	PublishedBy audit.Actor
	Revision    int64 // revision of the first publication
}

// AnyVersion as ifPublished means that a publication does not depend on the current version.
const AnyVersion = -1

// A Cell identifies the counters of one limit. The store allocates one Number for each
// combination of the other five fields. Plans with the same combination share the Number.
type Cell struct {
	Number    uint32
	Policy    string // slug
	Limit     string // name
	Algorithm enforcement.Algorithm
	CountBy   []string
	Anchor    enforcement.Anchor
}

// A Published is a limit of the published version, with its current and its former numbers.
type Published struct {
	Cell    Cell
	Rev     int64 // revision at which the current numbers came into force
	Limit   enforcement.Limit
	Formers []enforcement.Former // oldest first, at most MaxFormers
}

// MaxFormers is the maximum number of former numbers that the store keeps for one limit.
const MaxFormers = 4

// A Filter selects the rows of a listing. After is the ID of the last row of the previous page.
type Filter struct {
	Query string
	After string
	Limit int
}

// A Store stores plans. Each method is one transaction, which includes the audit entry and the
// new revision. Implementations pass storetest.Run. The comments list the possible kinds of
// problems.
type Store interface {
	// Plan returns the plan with an ID or slug; NotFound.
	Plan(ctx context.Context, idOrSlug string) (Plan, error)
	Plans(ctx context.Context, f Filter) ([]Plan, error)
	// CreatePlan creates a plan with a draft; Conflict (code slug_taken) if the slug exists.
	CreatePlan(ctx context.Context, p Plan, e audit.Entry) (Plan, error)
	// SaveDraft replaces the draft if its revision is ifRevision; NotFound, or Stale if it is
	// not.
	SaveDraft(ctx context.Context, planID string, d Document, ifRevision int64, e audit.Entry) (Plan, error)
	// Publish creates the next version from the draft if the draft's revision is ifRevision,
	// and puts it into force. It allocates Cells for new limits. If the numbers of a limit
	// changed, it stores the old ones in Formers. If the draft equals the version in force,
	// Publish returns that version and changes nothing. NotFound, Stale.
	Publish(ctx context.Context, planID string, ifRevision int64, e audit.Entry) (Plan, Version, error)
	// PublishVersion puts an existing version into force if the current version is ifPublished
	// (AnyVersion: no condition); NotFound, Stale.
	PublishVersion(ctx context.Context, planID string, number, ifPublished int, e audit.Entry) (Plan, Version, error)
	// DeletePlan deletes a plan if its Revision is ifRevision and it has no tenants; NotFound,
	// Stale, Conflict (code plan_in_use).
	DeletePlan(ctx context.Context, planID string, ifRevision int64, e audit.Entry) error
	// Version returns one version of a plan; NotFound.
	Version(ctx context.Context, planID string, number int) (Version, error)
	// Versions lists the versions with numbers lower than before, newest first. If before is 0,
	// the list starts with the newest.
	Versions(ctx context.Context, planID string, before, limit int) ([]Version, error)
}
