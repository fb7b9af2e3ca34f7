package plans

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// Config of a Service.
type Config struct {
	// SearchWork bounds the search for the request with the most charges, in
	// steps; where it does not suffice, a plan is refused that could be in
	// order. Default 20,000: a fraction of a second, far more than plans
	// written by people need.
	SearchWork int
}

// A Service is the one way to change plans: it normalises and validates
// drafts, refuses to publish what a limiter could not carry, and writes what is
// done into the audit log. Wherever an id of a plan is asked for, its slug will
// do. It is safe for concurrent use.
type Service struct {
	store Store
	work  int
}

// NewService makes a Service on a Store.
func NewService(store Store, cfg Config) *Service {
	if cfg.SearchWork == 0 {
		cfg.SearchWork = 20_000
	}
	return &Service{store: store, work: cfg.SearchWork}
}

// DefaultPage is how many rows a listing has when its filter does not say.
const DefaultPage = 100

// Plan finds a plan; NotFound.
func (s *Service) Plan(ctx context.Context, idOrSlug string) (Plan, error) {
	return s.store.Plan(ctx, idOrSlug)
}

// Plans lists plans by id, oldest first.
func (s *Service) Plans(ctx context.Context, f Filter) ([]Plan, error) {
	if f.Limit <= 0 {
		f.Limit = DefaultPage
	}
	return s.store.Plans(ctx, f)
}

// CreatePlan makes a plan with this draft and nothing published; Invalid,
// Conflict (code slug_taken).
func (s *Service) CreatePlan(ctx context.Context, slug string, draft Document) (Plan, error) {
	draft = Normalise(draft)
	var f problem.Fields
	f.NewSlug("/slug", slug)
	faults(&f, draft)
	if err := f.Err(); err != nil {
		return Plan{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Plan{}, fmt.Errorf("make an id for plan %s: %w", slug, err)
	}
	p := Plan{ID: id.String(), Slug: slug, Draft: draft}
	e, err := entry(ctx, "plan.create", p, nil, &auditPlan{draft: &draft})
	if err != nil {
		return Plan{}, err
	}
	return s.store.CreatePlan(ctx, p, e)
}

// SaveDraft replaces the draft of a plan if the draft's revision is ifRevision;
// Invalid, NotFound, Stale.
func (s *Service) SaveDraft(ctx context.Context, idOrSlug string, draft Document, ifRevision int64) (Plan, error) {
	p, err := s.draftAt(ctx, idOrSlug, ifRevision)
	if err != nil {
		return Plan{}, err
	}
	draft = Normalise(draft)
	if err := Validate(draft); err != nil {
		return Plan{}, err
	}
	e, err := entry(ctx, "plan.save_draft", p, &auditPlan{draft: &p.Draft}, &auditPlan{draft: &draft})
	if err != nil {
		return Plan{}, err
	}
	return s.store.SaveDraft(ctx, p.ID, draft, ifRevision, e)
}

// ValidateDraft says what Publish would refuse of the saved draft, and what its
// writer may not have meant; NotFound.
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
		r.Warnings.Add("", "the draft is what is published already, as version %d", p.Published)
	}
	return r, nil
}

// Diff tells what publishing the saved draft would change; NotFound.
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

// Publish makes the draft the next version, which tenants then follow, if the
// draft's revision is ifRevision. A draft under which more than MaxCharges
// charges could fall on one request is Invalid; NotFound, Stale.
func (s *Service) Publish(ctx context.Context, idOrSlug string, ifRevision int64) (Plan, Version, error) {
	return s.PublishNoted(ctx, idOrSlug, ifRevision, "")
}

// MaxNote is the longest note of a publication, in characters.
const MaxNote = 500

// PublishNoted is Publish with a note that says why, for the audit log; Invalid
// (at /note) when it is longer than MaxNote.
func (s *Service) PublishNoted(ctx context.Context, idOrSlug string, ifRevision int64, note string) (Plan, Version, error) {
	note, err := cleanNote(note)
	if err != nil {
		return Plan{}, Version{}, err
	}
	p, err := s.draftAt(ctx, idOrSlug, ifRevision)
	if err != nil {
		return Plan{}, Version{}, err
	}
	if err := s.Inspect(p.Draft).Faults.Err(); err != nil {
		return Plan{}, Version{}, err
	}
	before, err := s.published(ctx, p)
	if err != nil {
		return Plan{}, Version{}, err
	}
	e, err := entry(ctx, "plan.publish", p, before, &auditPlan{version: p.Latest + 1, plan: &p.Draft, note: note})
	if err != nil {
		return Plan{}, Version{}, err
	}
	return s.store.Publish(ctx, p.ID, ifRevision, e)
}

// PublishVersion makes tenants follow a version that was published before; the
// draft stays as it is. NotFound.
func (s *Service) PublishVersion(ctx context.Context, idOrSlug string, number int) (Plan, Version, error) {
	return s.PublishVersionNoted(ctx, idOrSlug, number, AnyVersion, "")
}

// PublishVersionNoted is PublishVersion if the version ifPublished is in force (0:
// none; AnyVersion: whatever is), with a note as PublishNoted takes it. Stale.
func (s *Service) PublishVersionNoted(ctx context.Context, idOrSlug string, number, ifPublished int, note string) (Plan, Version, error) {
	note, err := cleanNote(note)
	if err != nil {
		return Plan{}, Version{}, err
	}
	p, err := s.store.Plan(ctx, idOrSlug)
	if err != nil {
		return Plan{}, Version{}, err
	}
	v, err := s.store.Version(ctx, p.ID, number)
	if err != nil {
		return Plan{}, Version{}, err
	}
	before, err := s.published(ctx, p)
	if err != nil {
		return Plan{}, Version{}, err
	}
	e, err := entry(ctx, "plan.publish", p, before, &auditPlan{version: number, plan: &v.Document, note: note})
	if err != nil {
		return Plan{}, Version{}, err
	}
	return s.store.PublishVersion(ctx, p.ID, number, ifPublished, e)
}

// DeletePlan removes a plan with its versions if the plan's revision is
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
	before.draft = &p.Draft
	e, err := entry(ctx, "plan.delete", p, before, nil)
	if err != nil {
		return err
	}
	return s.store.DeletePlan(ctx, p.ID, ifRevision, e)
}

// Version gives a version of a plan; NotFound.
func (s *Service) Version(ctx context.Context, idOrSlug string, number int) (Version, error) {
	p, err := s.store.Plan(ctx, idOrSlug)
	if err != nil {
		return Version{}, err
	}
	return s.store.Version(ctx, p.ID, number)
}

// Versions lists the versions of a plan below a number, newest first; 0 begins
// with the newest. NotFound.
func (s *Service) Versions(ctx context.Context, idOrSlug string, before, limit int) ([]Version, error) {
	p, err := s.store.Plan(ctx, idOrSlug)
	if err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = DefaultPage
	}
	return s.store.Versions(ctx, p.ID, before, limit)
}

// draftAt gives a plan whose draft is of a revision. It says Stale early; the
// Store says it for what changes after that look.
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

// cleanNote gives a note its one form.
func cleanNote(note string) (string, error) {
	note = strings.TrimSpace(lineBreaks(note))
	var f problem.Fields
	f.Text("/note", note, MaxNote)
	return note, f.Err()
}

// A Publication is one time at which a version of a plan was made the one that
// tenants follow.
type Publication struct {
	Version int
	// Note says why; "" without one.
	Note string
	By   audit.Actor
	At   time.Time
	// Revision at which it came into force.
	Revision int64
	// Entry is the id of its line in the audit log.
	Entry string
}

// PublicationOf reads a line "plan.publish" of the audit log; false for any
// other line, and for one that cannot be read.
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

// DraftOf reads the draft that a line of the audit log left behind it: of
// "plan.create" and "plan.save_draft"; false for any other line, and for one that
// cannot be read.
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
	d, err := DecodeDocument(after.Draft)
	return d, err == nil
}

func stale(slug string) error {
	return problem.New(problem.Stale, "plan %s was changed since it was read", slug)
}

// published is the version that tenants follow, for the audit log; nil without.
// One that cannot be read must not keep its successor from being published: it
// is shown by its number alone.
func (s *Service) published(ctx context.Context, p Plan) (*auditPlan, error) {
	if p.Published == 0 {
		return nil, nil
	}
	v, err := s.store.Version(ctx, p.ID, p.Published)
	if problem.Is(err, problem.Unavailable) || ctx.Err() != nil {
		return nil, fmt.Errorf("read version %d of plan %s: %w", p.Published, p.Slug, err)
	}
	out := &auditPlan{version: p.Published}
	if err == nil {
		out.plan = &v.Document
	}
	return out, nil
}

// An auditPlan is what a line of the audit log shows of a plan: its draft, or a
// version of it, or both.
type auditPlan struct {
	draft   *Document
	version int
	plan    *Document
	note    string
}

func (a *auditPlan) json(p Plan) (json.RawMessage, error) {
	if a == nil {
		return nil, nil
	}
	out := struct {
		ID      string          `json:"id"`
		Slug    string          `json:"slug"`
		Draft   json.RawMessage `json:"draft,omitempty"`
		Version int             `json:"version,omitempty"`
		Plan    json.RawMessage `json:"plan,omitempty"`
		Note    string          `json:"note,omitempty"`
	}{ID: p.ID, Slug: p.Slug, Version: a.version, Note: a.note}
	var err error
	if a.draft != nil {
		out.Draft, err = EncodeDocument(*a.draft)
	}
	if a.plan != nil && err == nil {
		out.Plan, err = EncodeDocument(*a.plan)
	}
	if err != nil {
		return nil, err
	}
	return marshal(out)
}

func entry(ctx context.Context, action string, p Plan, before, after *auditPlan) (audit.Entry, error) {
	e := audit.Entry{Action: action, Object: p.ID, ObjectName: p.Slug}
	e.Actor, e.Origin = audit.Who(ctx)
	var err error
	if e.Before, err = before.json(p); err == nil {
		e.After, err = after.json(p)
	}
	if err != nil {
		return audit.Entry{}, fmt.Errorf("describe plan %s for the audit log: %w", p.Slug, err)
	}
	return e, nil
}
