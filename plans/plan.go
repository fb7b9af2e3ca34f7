// Package plans manages plans. A plan consists of policies, which define the limits of the
// tenants with this plan. A plan has a draft and published versions. A published version never
// changes.
//
// Callers use a Service, which validates changes. A Store stores plans and writes the audit
// log. The package does not depend on HTTP, SQL or limiters.
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
	// DraftRevision is the revision at which the draft was last saved. The API uses it as the ETag
	// of the draft.
	DraftRevision int64
	// Published is the number of the current version, whose policies apply to the tenants of
	// the plan. It is 0 if no version was published.
	Published int
	// Latest is the highest version number. It is 0 if no version was published.
	Latest int
	// Tenants is the number of tenants that have the plan.
	Tenants int
	// Revision is the revision of the last change of the plan. A change of the draft or of the
	// current version counts as a change of the plan.
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

// AnyVersion is a value of the argument ifPublished. With it, the change is made regardless of
// which version is current.
const AnyVersion = -1

// A Cell identifies the counters of one limit. The keys of these counters contain Number in place
// of the limit. The store allocates one Number for each combination of the other five fields. If
// two plans have limits with the same combination, these limits have the same Number.
type Cell struct {
	Number    uint32
	Policy    string // slug
	Limit     string // name
	Algorithm enforcement.Algorithm
	CountBy   []string
	Anchor    enforcement.Anchor
}

// A Published is a limit in the published version, with its cell and its earlier values.
type Published struct {
	Cell    Cell
	Rev     int64 // revision at which the limit got its current quota, window and burst
	Limit   enforcement.Limit
	Formers []enforcement.Former // oldest first, at most MaxFormers
}

// MaxFormers is the maximum number of earlier values that are stored for one limit.
const MaxFormers = 4

// A Filter selects rows of a list. After is the ID of the last row of the previous page, or "".
type Filter struct {
	Query string
	After string
	Limit int
}

// A Store stores plans. Each method that changes something is one transaction. The transaction
// also writes the audit entry e and raises the revision. Implementations pass storetest.Run.
type Store interface {
	// Plan returns the plan with an ID or slug. The error is problem.NotFound if there is none.
	Plan(ctx context.Context, idOrSlug string) (Plan, error)
	Plans(ctx context.Context, f Filter) ([]Plan, error)
	// CreatePlan creates a plan with a draft. The error is problem.Conflict with the code
	// slug_taken.
	CreatePlan(ctx context.Context, p Plan, e audit.Entry) (Plan, error)
	// SaveDraft replaces the draft. The error is problem.Stale if the draft's revision is not
	// ifRevision, or problem.NotFound.
	SaveDraft(ctx context.Context, planID string, d Document, ifRevision int64, e audit.Entry) (Plan, error)
	// Publish makes the draft the next version, and makes this version current. It allocates
	// Cells for new limits. If the values of a limit change, it adds the old values to the
	// Formers of the limit. If the draft equals the current version, Publish returns the
	// current version and changes nothing. The error is problem.Stale if the draft's revision
	// is not ifRevision, or problem.NotFound.
	Publish(ctx context.Context, planID string, ifRevision int64, e audit.Entry) (Plan, Version, error)
	// PublishVersion makes an existing version current. The error is problem.NotFound, or
	// problem.Stale if the current version is not ifPublished. If ifPublished is AnyVersion, any
	// version may be current.
	PublishVersion(ctx context.Context, planID string, number, ifPublished int, e audit.Entry) (Plan, Version, error)
	// DeletePlan deletes a plan that no tenant has. The error is problem.Stale if the plan's
	// revision is not ifRevision, problem.NotFound, or problem.Conflict with the code
	// plan_in_use.
	DeletePlan(ctx context.Context, planID string, ifRevision int64, e audit.Entry) error
	// Version returns one version of a plan. The error is problem.NotFound if there is none.
	Version(ctx context.Context, planID string, number int) (Version, error)
	// Versions lists at most limit versions whose number is below before, newest first. If before
	// is 0, the list starts with the newest version.
	Versions(ctx context.Context, planID string, before, limit int) ([]Version, error)
}
