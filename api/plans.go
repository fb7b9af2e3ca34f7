package api

import (
	"context"
	"encoding/json"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

// showPlan is a plan on the wire, without its documents.
func showPlan(p plans.Plan) (Plan, error) {
	id, err := parseUUID(p.ID)
	return Plan{
		Id: id, Slug: p.Slug, Name: p.Draft.Name(), PublishedVersion: p.Published, LatestVersion: p.Latest, Tenants: p.Tenants,
		Revision: p.Revision, DraftRevision: p.DraftRevision, CreatedAt: p.CreatedAt.UTC(), UpdatedAt: p.UpdatedAt.UTC(),
	}, err
}

func showDraft(p plans.Plan) (Draft, error) {
	id, err := parseUUID(p.ID)
	if err != nil {
		return Draft{}, err
	}
	document, err := p.Draft.MarshalJSON()
	return Draft{Id: id, Slug: p.Slug, Revision: p.DraftRevision, Draft: document}, err
}

// ListPlans is GET /v1/plans.
func (a *API) ListPlans(ctx context.Context, r ListPlansRequestObject) (ListPlansResponseObject, error) {
	l, err := page("/v1/plans", filters("q", r.Params.Q), r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := a.cfg.Plans.Plans(ctx, plans.Filter{Query: r.Params.Q, After: l.after, Limit: l.fetch()})
	if err != nil {
		return nil, err
	}
	rows, next, link := cut(l, rows, func(p plans.Plan) string { return p.ID })
	data, err := each(rows, showPlan)
	if err != nil {
		return nil, err
	}
	return ListPlans200JSONResponse{PlanPage{data, next != "", next}, ListPlans200ResponseHeaders{link}}, nil
}

// CreatePlan is POST /v1/plans.
func (a *API) CreatePlan(ctx context.Context, r CreatePlanRequestObject) (CreatePlanResponseObject, error) {
	draft, err := plans.Parse(r.Body.Draft)
	if err != nil {
		return nil, under("/draft", err)
	}
	p, err := a.cfg.Plans.CreatePlan(ctx, r.Body.Slug, draft)
	if err != nil {
		return nil, underUnless("/slug", "/draft", err)
	}
	a.cfg.Changed(ctx)
	shown, err := showPlan(p)
	if err != nil {
		return nil, err
	}
	return CreatePlan201JSONResponse{shown, CreatePlan201ResponseHeaders{etag(p.Revision), "/v1/plans/" + p.ID}}, nil
}

// GetPlan is GET /v1/plans/{plan}.
func (a *API) GetPlan(ctx context.Context, r GetPlanRequestObject) (GetPlanResponseObject, error) {
	p, err := a.cfg.Plans.Plan(ctx, r.Plan)
	if err != nil {
		return nil, err
	}
	shown, err := showPlan(p)
	if err != nil {
		return nil, err
	}
	return GetPlan200JSONResponse{shown, GetPlan200ResponseHeaders{etag(p.Revision)}}, nil
}

// DeletePlan is DELETE /v1/plans/{plan}.
func (a *API) DeletePlan(ctx context.Context, r DeletePlanRequestObject) (DeletePlanResponseObject, error) {
	p, err := a.cfg.Plans.Plan(ctx, r.Plan)
	if err != nil {
		return nil, err
	}
	if err := ifMatch(r.Params.IfMatch, p.Revision); err != nil {
		return nil, err
	}
	if err := a.cfg.Plans.DeletePlan(ctx, p.ID, p.Revision); err != nil {
		return nil, err
	}
	a.cfg.Changed(ctx)
	return DeletePlan204Response{}, nil
}

// GetDraft is GET /v1/plans/{plan}/draft.
func (a *API) GetDraft(ctx context.Context, r GetDraftRequestObject) (GetDraftResponseObject, error) {
	p, err := a.cfg.Plans.Plan(ctx, r.Plan)
	if err != nil {
		return nil, err
	}
	shown, err := showDraft(p)
	if err != nil {
		return nil, err
	}
	return GetDraft200JSONResponse{shown, GetDraft200ResponseHeaders{etag(p.DraftRevision)}}, nil
}

// SaveDraft is PUT /v1/plans/{plan}/draft.
func (a *API) SaveDraft(ctx context.Context, r SaveDraftRequestObject) (SaveDraftResponseObject, error) {
	draft, err := plans.Parse(*r.Body)
	if err != nil {
		return nil, err
	}
	p, err := a.cfg.Plans.Plan(ctx, r.Plan)
	if err != nil {
		return nil, err
	}
	if err := ifMatch(r.Params.IfMatch, p.DraftRevision); err != nil {
		return nil, err
	}
	p, err = a.cfg.Plans.SaveDraft(ctx, p.ID, draft, p.DraftRevision)
	if err != nil {
		return nil, err
	}
	a.cfg.Changed(ctx)
	shown, err := showDraft(p)
	if err != nil {
		return nil, err
	}
	return SaveDraft200JSONResponse{shown, SaveDraft200ResponseHeaders{etag(p.DraftRevision)}}, nil
}

// ValidateDraft is POST /v1/plans/{plan}/draft/validate.
func (a *API) ValidateDraft(ctx context.Context, r ValidateDraftRequestObject) (ValidateDraftResponseObject, error) {
	review, err := a.cfg.Plans.ValidateDraft(ctx, r.Plan)
	if err != nil {
		return nil, err
	}
	return ValidateDraft200JSONResponse{
		Valid: len(review.Faults) == 0, Charges: review.Charges,
		Errors: faultsOf(review.Faults), Warnings: faultsOf(review.Warnings),
	}, nil
}

// DiffPlan is GET /v1/plans/{plan}/diff.
func (a *API) DiffPlan(ctx context.Context, r DiffPlanRequestObject) (DiffPlanResponseObject, error) {
	p, err := a.cfg.Plans.Plan(ctx, r.Plan)
	if err != nil {
		return nil, err
	}
	id, err := parseUUID(p.ID)
	if err != nil {
		return nil, err
	}
	d, err := a.cfg.Plans.Diff(ctx, p.ID)
	if err != nil {
		return nil, err
	}
	changes, err := showChanges(d)
	return DiffPlan200JSONResponse{Id: id, Slug: p.Slug, PublishedVersion: d.Published, Reordered: d.Reordered, Changes: changes}, err
}

// showChanges lists a diff: the plan's own fields, then policies that are added,
// changed and removed, each named by its slug.
func showChanges(d plans.Diff) ([]Change, error) {
	changes := []Change{}
	note := func(at string, fields []plans.Change) {
		for _, f := range fields {
			c := Change{Pointer: at + f.Field, Kind: ChangeKindChanged, Before: f.From, After: f.To}
			switch {
			case len(f.From) == 0:
				c.Kind = ChangeKindAdded
			case len(f.To) == 0:
				c.Kind = ChangeKindRemoved
			}
			changes = append(changes, c)
		}
	}
	whole := func(list []plans.Policy, set func(c *Change, policy json.RawMessage)) error {
		documents, err := policyDocuments(list)
		for i := range documents {
			c := Change{Pointer: "/policies/" + list[i].Slug}
			set(&c, documents[i])
			changes = append(changes, c)
		}
		return err
	}
	note("", d.Fields)
	for _, p := range d.Changed {
		note("/policies/"+p.Slug, p.Fields)
	}
	if err := whole(d.Added, func(c *Change, p json.RawMessage) { c.Kind, c.After = ChangeKindAdded, p }); err != nil {
		return nil, err
	}
	err := whole(d.Removed, func(c *Change, p json.RawMessage) { c.Kind, c.Before = ChangeKindRemoved, p })
	return changes, err
}

// policyDocuments returns the JSON form of policies.
func policyDocuments(list []plans.Policy) ([]json.RawMessage, error) {
	out := make([]json.RawMessage, len(list))
	for i, p := range list {
		text, err := enforcement.MarshalJSON(p)
		if err != nil {
			return nil, err
		}
		out[i] = text
	}
	return out, nil
}
