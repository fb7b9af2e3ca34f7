package plans

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// Config configures a Service.
type Config struct {
	// SearchWork bounds the search for the request with the most charges, in steps. A plan whose
	// search needs more steps is rejected, even if it is valid. The default of 20,000 steps takes a
	// fraction of a second. Usual plans need far fewer steps.
	SearchWork int
}

// A Service validates changes of plans, stores them, and records them in the audit log. If one
// request could charge more than MaxCharges counters with a plan, the Service does not publish the
// plan. A parameter that names a plan is an ID or a slug. A Service is safe for concurrent use.
type Service struct {
	store Store
	work  int
}

// NewService returns a Service that stores plans in store.
func NewService(store Store, cfg Config) *Service {
	cfg.SearchWork = cmp.Or(cfg.SearchWork, 20_000)
	return &Service{store: store, work: cfg.SearchWork}
}

// defaultPage is the maximum number of rows in a list if the filter has no limit.
const defaultPage = 100

// Plan returns a plan. The error is problem.NotFound if there is none.
func (s *Service) Plan(ctx context.Context, idOrSlug string) (Plan, error) {
	return s.store.Plan(ctx, idOrSlug)
}

// Plans lists the plans that match f by ID, oldest first.
func (s *Service) Plans(ctx context.Context, f Filter) ([]Plan, error) {
	if f.Limit <= 0 {
		f.Limit = defaultPage
	}
	return s.store.Plans(ctx, f)
}

// CreatePlan creates a plan with a draft and without a published version. The error is problem.Invalid if the slug or the draft
// has faults, or problem.Conflict with the code slug_taken.
func (s *Service) CreatePlan(ctx context.Context, slug string, draft Document) (Plan, error) {
	var f problem.Fields
	f.NewSlug("/slug", slug)
	f.AddAll("", draft.savingFaults())
	if err := f.Err(); err != nil {
		return Plan{}, err
	}
	p := Plan{ID: audit.NewID(), Slug: slug, Draft: draft}
	e := entry(ctx, "plan.create", p, nil, &auditPlan{Draft: &draft})
	return s.store.CreatePlan(ctx, p, e)
}

// SaveDraft replaces the draft of a plan. The error is problem.NotFound, problem.Stale if the revision of the stored draft is not
// ifRevision, or problem.Invalid if the new draft has faults.
func (s *Service) SaveDraft(ctx context.Context, idOrSlug string, draft Document, ifRevision int64) (Plan, error) {
	p, err := s.draftAt(ctx, idOrSlug, ifRevision)
	if err != nil {
		return Plan{}, err
	}
	if err := draft.Validate(); err != nil {
		return Plan{}, err
	}
	e := entry(ctx, "plan.save_draft", p, &auditPlan{Draft: &p.Draft}, &auditPlan{Draft: &draft})
	return s.store.SaveDraft(ctx, p.ID, draft, ifRevision, e)
}

// ValidateDraft inspects the stored draft as Inspect does. If the draft equals the published
// version, it adds a warning. The error is problem.NotFound if there is no such plan.
func (s *Service) ValidateDraft(ctx context.Context, idOrSlug string) (Review, error) {
	p, err := s.store.Plan(ctx, idOrSlug)
	if err != nil {
		return Review{}, err
	}
	r := s.Inspect(p.Draft)
	diff, err := s.diff(ctx, p)
	if err != nil {
		return Review{}, err
	}
	if p.Published > 0 && diff.Empty() {
		r.Warnings.Add("", "the draft is equal to the published version %d", p.Published)
	}
	return r, nil
}

// Diff returns the differences from the published version to the saved draft. If no version is
// published, it compares the draft with an empty document. The error is problem.NotFound if
// there is no such plan.
func (s *Service) Diff(ctx context.Context, idOrSlug string) (Diff, error) {
	p, err := s.store.Plan(ctx, idOrSlug)
	if err != nil {
		return Diff{}, err
	}
	return s.diff(ctx, p)
}

func (s *Service) diff(ctx context.Context, p Plan) (Diff, error) {
	if p.Published == 0 {
		d, err := Compare(Document{}, p.Draft)
		return d, err
	}
	v, err := s.store.Version(ctx, p.ID, p.Published)
	if err != nil {
		return Diff{}, fmt.Errorf("read version %d of plan %s: %w", p.Published, p.Slug, err)
	}
	d, err := Compare(v.Document, p.Draft)
	d.Published = p.Published
	return d, err
}

// MaxNote is the maximum length of a publication's note, in characters.
const MaxNote = 500

// Publish contains the parameters of Service.Publish.
type Publish struct {
	// IfRevision is the revision of the draft that the caller has read.
	IfRevision int64
	// Note is the reason for the publication, up to MaxNote characters. The audit log stores it.
	Note string
}

// Publish creates the next version from the draft and makes it the current version, which
// applies to all tenants of the plan. If the draft equals the current version, Publish returns
// that version and changes nothing. The error is problem.Invalid if the draft has faults or the
// note is too long, problem.NotFound, or problem.Stale if the revision of the draft is not
// how.IfRevision.
func (s *Service) Publish(ctx context.Context, idOrSlug string, how Publish) (Plan, Version, error) {
	note, err := cleanNote(how.Note)
	if err != nil {
		return Plan{}, Version{}, err
	}
	p, err := s.draftAt(ctx, idOrSlug, how.IfRevision)
	if err != nil {
		return Plan{}, Version{}, err
	}
	if err := s.Inspect(p.Draft).Faults.Err(); err != nil {
		return Plan{}, Version{}, err
	}
	e, err := s.publishEntry(ctx, p, auditPlan{Version: p.Latest + 1, Plan: &p.Draft, Note: note})
	if err != nil {
		return Plan{}, Version{}, err
	}
	return s.store.Publish(ctx, p.ID, how.IfRevision, e)
}

// PublishVersion contains the parameters of Service.PublishVersion.
type PublishVersion struct {
	Number int // number of the version to make current
	// IfPublished is the number of the current version that the caller has read. 0 means that any
	// version may be current.
	IfPublished int
	// Note is the reason for the publication, up to MaxNote characters. The audit log stores it.
	Note string
}

// PublishVersion makes an existing version the current one. The draft does not change. The
// error is problem.Invalid if the note is too long, problem.NotFound if the plan or the version
// does not exist, or problem.Stale if the current version is not how.IfPublished.
func (s *Service) PublishVersion(ctx context.Context, idOrSlug string, how PublishVersion) (Plan, Version, error) {
	note, err := cleanNote(how.Note)
	if err != nil {
		return Plan{}, Version{}, err
	}
	p, err := s.store.Plan(ctx, idOrSlug)
	if err != nil {
		return Plan{}, Version{}, err
	}
	v, err := s.store.Version(ctx, p.ID, how.Number)
	if err != nil {
		return Plan{}, Version{}, err
	}
	e, err := s.publishEntry(ctx, p, auditPlan{Version: how.Number, Plan: &v.Document, Note: note})
	if err != nil {
		return Plan{}, Version{}, err
	}
	return s.store.PublishVersion(ctx, p.ID, how.Number, cmp.Or(how.IfPublished, AnyVersion), e)
}

// publishEntry returns the audit entry of a publication. after describes the version that becomes
// current.
func (s *Service) publishEntry(ctx context.Context, p Plan, after auditPlan) (audit.Entry, error) {
	before, err := s.published(ctx, p)
	if err != nil {
		return audit.Entry{}, err
	}
	return entry(ctx, "plan.publish", p, before, &after), nil
}

// DeletePlan deletes a plan and its versions. The error is problem.NotFound, problem.Stale if
// the revision of the plan is not ifRevision, or problem.Conflict with the code plan_in_use if
// tenants have the plan.
func (s *Service) DeletePlan(ctx context.Context, idOrSlug string, ifRevision int64) error {
	p, err := s.store.Plan(ctx, idOrSlug)
	if err != nil {
		return err
	}
	if p.Revision != ifRevision {
		return stale(p.Slug)
	}
	before, err := s.published(ctx, p)
	if err != nil {
		return err
	}
	if before == nil {
		before = &auditPlan{}
	}
	before.Draft = &p.Draft
	e := entry(ctx, "plan.delete", p, before, nil)
	return s.store.DeletePlan(ctx, p.ID, ifRevision, e)
}

// Version returns one version of a plan. The error is problem.NotFound if the plan or the version does not exist.
func (s *Service) Version(ctx context.Context, idOrSlug string, number int) (Version, error) {
	p, err := s.store.Plan(ctx, idOrSlug)
	if err != nil {
		return Version{}, err
	}
	return s.store.Version(ctx, p.ID, number)
}

// Versions lists at most limit versions of a plan whose number is lower than before, newest
// first. If before is 0, the list starts with the newest version. The error is problem.NotFound
// if the plan does not exist.
func (s *Service) Versions(ctx context.Context, idOrSlug string, before, limit int) ([]Version, error) {
	p, err := s.store.Plan(ctx, idOrSlug)
	if err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = defaultPage
	}
	return s.store.Versions(ctx, p.ID, before, limit)
}

// draftAt returns a plan if its draft has the given revision. Otherwise the error is problem.Stale.
// The draft can change after this call, so the Store compares the revision again when it writes.
func (s *Service) draftAt(ctx context.Context, idOrSlug string, revision int64) (Plan, error) {
	p, err := s.store.Plan(ctx, idOrSlug)
	if err != nil {
		return Plan{}, err
	}
	if p.DraftRevision != revision {
		return Plan{}, stale(p.Slug)
	}
	return p, nil
}

// cleanNote validates a note and returns it without leading and trailing spaces and line breaks.
func cleanNote(note string) (string, error) {
	note = strings.TrimSpace(strings.ReplaceAll(note, "\r\n", "\n"))
	var f problem.Fields
	f.Text("/note", note, MaxNote)
	return note, f.Err()
}

// A Publication says which version became current, when, and who published it. PublicationOf reads
// it from an audit entry.
type Publication struct {
	Version int
	Note    string // reason for the publication; may be empty
	By      audit.Actor
	At      time.Time
	// Revision is the revision of the whole installation at which this version of the plan became the current one.
	Revision int64
	// Entry is the ID of the audit entry.
	Entry string
}

// PublicationOf converts an audit entry with the action "plan.publish". It returns false if the
// entry has another action or cannot be parsed.
func PublicationOf(e audit.Entry) (Publication, bool) {
	var after struct {
		Version int    `json:"version"`
		Note    string `json:"note"`
	}
	if e.Action != "plan.publish" || json.Unmarshal(e.After, &after) != nil || after.Version <= 0 {
		return Publication{}, false
	}
	return Publication{Version: after.Version, Note: after.Note, By: e.Actor, At: e.At, Revision: e.Revision, Entry: e.ID}, true
}

// DraftOf returns the draft in an audit entry with the action "plan.create" or "plan.save_draft".
// It returns false if the entry has another action or cannot be parsed.
func DraftOf(e audit.Entry) (Document, bool) {
	if e.Action != "plan.create" && e.Action != "plan.save_draft" {
		return Document{}, false
	}
	var after struct {
		Draft json.RawMessage `json:"draft"`
	}
	if json.Unmarshal(e.After, &after) != nil {
		return Document{}, false
	}
	d, err := Parse(after.Draft)
	return d, err == nil
}

func stale(slug string) error {
	return problem.New(problem.Stale, "plan %s was changed since it was read", slug)
}

// published returns the current version in the form of the audit log, or nil if there is none. If
// the stored version cannot be parsed, the result has only the number of the version. So an
// operator can still publish another version.
func (s *Service) published(ctx context.Context, p Plan) (*auditPlan, error) {
	if p.Published == 0 {
		return nil, nil
	}
	v, err := s.store.Version(ctx, p.ID, p.Published)
	if problem.Is(err, problem.Unavailable) || ctx.Err() != nil {
		return nil, fmt.Errorf("read version %d of plan %s: %w", p.Published, p.Slug, err)
	}
	out := &auditPlan{Version: p.Published}
	if err == nil {
		out.Plan = &v.Document
	}
	return out, nil
}

// An auditPlan is the JSON form of a plan in the audit log.
type auditPlan struct {
	ID      string    `json:"id"`
	Slug    string    `json:"slug"`
	Draft   *Document `json:"draft,omitempty"`
	Version int       `json:"version,omitempty"`
	Plan    *Document `json:"plan,omitempty"` // the document of the version
	Note    string    `json:"note,omitempty"`
}

// of sets the ID and the slug in a to those of p, and returns a. If the plan does not exist before
// or after the change, a is nil, and of returns nil.
func (a *auditPlan) of(p Plan) any {
	if a == nil {
		return nil
	}
	a.ID, a.Slug = p.ID, p.Slug
	return a
}

// JSON returns the JSON of the entry without HTML escapes.
func (a *auditPlan) JSON() (json.RawMessage, error) { return enforcement.MarshalJSON(a) }

func entry(ctx context.Context, action string, p Plan, before, after *auditPlan) audit.Entry {
	return audit.Complete(ctx, audit.Entry{Action: action, Object: p.ID, ObjectName: p.Slug}, before.of(p), after.of(p))
}
