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
	// SearchWork bounds the search for the request with the most charges, in
	// steps. A plan that needs more steps is rejected, even if it is valid. Default
	// 20,000: a fraction of a second, and far more than usual plans need.
	SearchWork int
}

// A Service changes plans. It validates drafts, rejects publications that exceed
// MaxCharges, and writes each change into the audit log. A plan's slug can replace
// its ID everywhere. A Service is safe for concurrent use.
type Service struct {
	store Store
	work  int
}

// NewService returns a Service on a Store.
func NewService(store Store, cfg Config) *Service {
	cfg.SearchWork = cmp.Or(cfg.SearchWork, 20_000)
	return &Service{store: store, work: cfg.SearchWork}
}

// defaultPage is the number of rows of a listing whose filter has no limit.
const defaultPage = 100

// Plan finds a plan; NotFound.
func (s *Service) Plan(ctx context.Context, idOrSlug string) (Plan, error) {
	return s.store.Plan(ctx, idOrSlug)
}

// Plans lists plans by id, oldest first.
func (s *Service) Plans(ctx context.Context, f Filter) ([]Plan, error) {
	if f.Limit <= 0 {
		f.Limit = defaultPage
	}
	return s.store.Plans(ctx, f)
}

// CreatePlan creates a plan with this draft and no published version; Invalid,
// Conflict (code slug_taken).
func (s *Service) CreatePlan(ctx context.Context, slug string, draft Document) (Plan, error) {
	var f problem.Fields
	f.NewSlug("/slug", slug)
	f.AddAll("", draft.faults())
	if err := f.Err(); err != nil {
		return Plan{}, err
	}
	p := Plan{ID: audit.NewID(), Slug: slug, Draft: draft}
	e := entry(ctx, "plan.create", p, nil, &auditPlan{Draft: &draft})
	return s.store.CreatePlan(ctx, p, e)
}

// SaveDraft replaces the draft of a plan if the draft's revision is ifRevision;
// Invalid, NotFound, Stale.
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

// ValidateDraft reviews the saved draft as Inspect does, and warns if it is equal
// to the published version; NotFound.
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

// Diff returns what publishing the saved draft would change; NotFound.
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

// MaxNote is the length of the longest note of a publication, in characters.
const MaxNote = 500

// Publish says how to publish the draft of a plan.
type Publish struct {
	// IfRevision is the revision that the draft must have.
	IfRevision int64
	// Note says why, for the audit log: up to MaxNote characters.
	Note string
}

// Publish makes the draft the next version, which tenants then follow. A
// draft with faults (see Inspect) or a long note is Invalid; NotFound, Stale.
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

// PublishVersion says which version of a plan to publish again.
type PublishVersion struct {
	Number int
	// IfPublished is the version that must be in force; 0: no condition.
	IfPublished int
	// Note says why, for the audit log: up to MaxNote characters.
	Note string
}

// PublishVersion makes tenants follow a version that was published before. It
// does not change the draft; Invalid (at /note), NotFound, Stale.
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

// publishEntry returns the audit entry of a publication.
func (s *Service) publishEntry(ctx context.Context, p Plan, after auditPlan) (audit.Entry, error) {
	before, err := s.published(ctx, p)
	if err != nil {
		return audit.Entry{}, err
	}
	return entry(ctx, "plan.publish", p, before, &after), nil
}

// DeletePlan deletes a plan with its versions if the plan's revision is
// ifRevision; NotFound, Stale, Conflict (code plan_in_use) while it has tenants.
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

// Version returns a version of a plan; NotFound.
func (s *Service) Version(ctx context.Context, idOrSlug string, number int) (Version, error) {
	p, err := s.store.Plan(ctx, idOrSlug)
	if err != nil {
		return Version{}, err
	}
	return s.store.Version(ctx, p.ID, number)
}

// Versions lists the versions of a plan below the number before, newest first; 0
// lists from the newest. NotFound.
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

// draftAt returns a plan if its draft has this revision. The Store checks the
// revision again, for changes after this read.
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

// cleanNote validates a note and returns it in canonical form.
func cleanNote(note string) (string, error) {
	note = strings.TrimSpace(strings.ReplaceAll(note, "\r\n", "\n"))
	var f problem.Fields
	f.Text("/note", note, MaxNote)
	return note, f.Err()
}

// A Publication is one event of the audit log: from it on, tenants follow a
// version of a plan.
type Publication struct {
	Version int
	Note    string // why; may be empty
	By      audit.Actor
	At      time.Time
	// Revision at which it came into force.
	Revision int64
	// Entry is the ID of the audit entry.
	Entry string
}

// PublicationOf reads an audit entry "plan.publish". It returns false for other
// entries and for entries that it cannot read.
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

// DraftOf returns the draft after an audit entry "plan.create" or
// "plan.save_draft". It returns false for other entries and for entries that it
// cannot read.
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

// published returns the version that tenants follow, for the audit log; nil if
// there is none. A version that the store cannot read appears by its number only,
// so that its successor can be published.
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

// An auditPlan is what the audit log shows of a plan.
type auditPlan struct {
	ID      string    `json:"id"`
	Slug    string    `json:"slug"`
	Draft   *Document `json:"draft,omitempty"`
	Version int       `json:"version,omitempty"`
	Plan    *Document `json:"plan,omitempty"` // of the version
	Note    string    `json:"note,omitempty"`
}

// of returns the document of plan p for the audit log, or nil.
func (a *auditPlan) of(p Plan) any {
	if a == nil {
		return nil
	}
	a.ID, a.Slug = p.ID, p.Slug
	return a
}

// JSON encodes the document without escapes for HTML.
func (a *auditPlan) JSON() (json.RawMessage, error) { return enforcement.MarshalJSON(a) }

func entry(ctx context.Context, action string, p Plan, before, after *auditPlan) audit.Entry {
	return audit.Complete(ctx, audit.Entry{Action: action, Object: p.ID, ObjectName: p.Slug}, before.of(p), after.of(p))
}
