// Package plans holds what tenants may call, and how much: plans with a draft
// and immutable published versions, made of policies.
//
// A request comes in at Service (normalised, validated, audited) and goes out
// at Store. What a limit may be is said once, in enforcement; the package
// refuses to know HTTP, SQL and how limits are counted.
package plans

import (
	"context"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
)

// A Document is what is edited of a plan, whole: the draft, or a published
// version of it. Normalise fills every default, so that a document reads the
// same wherever it is shown.
type Document struct {
	Name        string // 1 to 200 characters
	Description string // up to 2,000
	Policies    []Policy
}

// A Policy is one rule of a plan.
type Policy struct {
	Slug        string
	Description string
	Match       Match
	// CountBy are attribute names, or "ip/64"; none counts the whole tenant.
	CountBy     []string
	Missing     enforcement.Missing
	Replaces    []string // slugs of policies of the same plan
	Mode        enforcement.PolicyMode
	OnFailure   enforcement.OnFailure
	Consistency enforcement.Consistency
	Limits      []enforcement.Limit
}

// Match is what a policy applies to; its zero value matches everything.
type Match struct {
	Methods    []string // none: all
	Path       string   // pattern; "" or "*": all
	Attributes map[string]string
}

// A Plan is named and versioned.
type Plan struct {
	ID   string // UUIDv7
	Slug string // never changed
	// Draft is what is being edited.
	Draft Document
	// DraftRevision is the revision at which the draft was last saved: its ETag.
	DraftRevision int64
	// Published is the number of the version that tenants follow; 0: none yet.
	Published int
	// Latest is the highest version number; 0: none.
	Latest int
	// Tenants is how many tenants are on the plan.
	Tenants int
	// Revision at which anything of the plan last changed.
	Revision  int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// A Version is a published document; it never changes.
type Version struct {
	PlanID      string
	Number      int
	Document    Document
	PublishedAt time.Time // when it was first published
	PublishedBy audit.Actor
	// Revision at which it was first published.
	Revision int64
}

// AnyVersion stands for whatever version is in force, or none.
const AnyVersion = -1

// A Cell is the identity that all counters of one limit share, allocated once
// for its five parts and the same in all plans.
type Cell struct {
	Number    uint32
	Policy    string // slug
	Limit     string // name
	Algorithm enforcement.Algorithm
	CountBy   []string
	Anchor    enforcement.Anchor
}

// A Published limit is a cell of a plan with the numbers in force, since when,
// and the few before.
type Published struct {
	Cell    Cell
	Rev     int64 // revision at which the numbers came into force
	Limit   enforcement.Limit
	Formers []enforcement.Former // oldest first, at most MaxFormers
}

// MaxFormers is how many former numbers of a limit are kept.
const MaxFormers = 4

// Filter of a listing; After is the id of the last row of the page before.
type Filter struct {
	Query string
	After string
	Limit int
}

// A Store keeps plans; the contract of tenants.Store (one transaction, audit
// line, revision) holds here too. Implementations pass storetest.Run.
type Store interface {
	// Plan finds by id or slug; NotFound.
	Plan(ctx context.Context, idOrSlug string) (Plan, error)
	Plans(ctx context.Context, f Filter) ([]Plan, error)
	// CreatePlan makes a plan with a draft; Conflict (code slug_taken).
	CreatePlan(ctx context.Context, p Plan, e audit.Entry) (Plan, error)
	// SaveDraft replaces the draft if its revision is ifRevision; NotFound, Stale.
	SaveDraft(ctx context.Context, planID string, d Document, ifRevision int64, e audit.Entry) (Plan, error)
	// Publish makes the draft the next version, if its revision is ifRevision,
	// and moves the pointer to it. Cells are allocated, and the numbers that
	// changed get the new revision with the old ones behind them; NotFound, Stale.
	Publish(ctx context.Context, planID string, ifRevision int64, e audit.Entry) (Plan, Version, error)
	// PublishVersion moves the pointer to a version that exists, if ifPublished is
	// in force (AnyVersion: whatever is); NotFound, Stale.
	PublishVersion(ctx context.Context, planID string, number, ifPublished int, e audit.Entry) (Plan, Version, error)
	// DeletePlan removes a plan without tenants if its Revision is ifRevision;
	// NotFound, Stale, Conflict (code plan_in_use).
	DeletePlan(ctx context.Context, planID string, ifRevision int64, e audit.Entry) error
	// Version of a plan; NotFound. Versions lists them, newest first; After is a number.
	Version(ctx context.Context, planID string, number int) (Version, error)
	Versions(ctx context.Context, planID string, before, limit int) ([]Version, error)
}
