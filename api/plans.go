package api

import (
	"context"

	"github.com/headgate/headgate/plans"
)

// showPlan returns a plan in its wire format, without its documents.
func showPlan(p plans.Plan) (Plan, error) {
	id, err := parseUUID(p.ID)
	return Plan{
		Id: id, Slug: p.Slug, Name: p.Draft.Name(), PublishedVersion: p.Published, LatestVersion: p.Latest, Tenants: p.Tenants,
		Revision: p.Revision, DraftRevision: p.DraftRevision, CreatedAt: Instant{p.CreatedAt}, UpdatedAt: Instant{p.UpdatedAt},
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
	filter := filters("q", r.Params.Q)
	p, link, err := list("/v1/plans", filter, r.Params.Limit, r.Params.Cursor, func(after string, limit int) ([]plans.Plan, error) {
		return a.cfg.Plans.Plans(ctx, plans.Filter{Query: r.Params.Q, After: after, Limit: limit})
	}, func(p plans.Plan) string { return p.ID }, showPlan)
	return ListPlans200JSONResponse{PlanPage(p), ListPlans200ResponseHeaders{link}}, err
}

// CreatePlan is POST /v1/plans.
func (a *API) CreatePlan(ctx context.Context, r CreatePlanRequestObject) (CreatePlanResponseObject, error) {
	draft, err := plans.Parse(r.Body.Draft)
	if err != nil {
		return nil, under("/draft", err)
	}
	p, err := written(ctx, a, showPlan)(a.cfg.Plans.CreatePlan(ctx, r.Body.Slug, draft))
	if err != nil {
		return nil, underUnless("/slug", "/draft", err)
	}
	return CreatePlan201JSONResponse{p, CreatePlan201ResponseHeaders{etag(p.Revision), "/v1/plans/" + p.Id.String()}}, nil
}

// GetPlan is GET /v1/plans/{plan}.
func (a *API) GetPlan(ctx context.Context, r GetPlanRequestObject) (GetPlanResponseObject, error) {
	p, err := shown(showPlan)(a.cfg.Plans.Plan(ctx, r.Plan))
	return GetPlan200JSONResponse{p, GetPlan200ResponseHeaders{etag(p.Revision)}}, err
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
	return DeletePlan204Response{}, a.changed(ctx, a.cfg.Plans.DeletePlan(ctx, p.ID, p.Revision))
}

// GetDraft is GET /v1/plans/{plan}/draft.
func (a *API) GetDraft(ctx context.Context, r GetDraftRequestObject) (GetDraftResponseObject, error) {
	d, err := shown(showDraft)(a.cfg.Plans.Plan(ctx, r.Plan))
	return GetDraft200JSONResponse{d, GetDraft200ResponseHeaders{etag(d.Revision)}}, err
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
	d, err := written(ctx, a, showDraft)(a.cfg.Plans.SaveDraft(ctx, p.ID, draft, p.DraftRevision))
	return SaveDraft200JSONResponse{d, SaveDraft200ResponseHeaders{etag(d.Revision)}}, err
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

// GetDraftPreview is GET /v1/plans/{plan}/draft/preview.
func (a *API) GetDraftPreview(ctx context.Context, r GetDraftPreviewRequestObject) (GetDraftPreviewResponseObject, error) {
	p, err := a.cfg.Preview.Draft(ctx, r.Plan, r.Params.From, r.Params.To)
	if err != nil {
		return nil, asParameterFault(err)
	}
	return GetDraftPreview200JSONResponse(showPreview(p)), nil
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
	list, err := d.List()
	return DiffPlan200JSONResponse{
		Id: id, Slug: p.Slug, PublishedVersion: d.Published, Reordered: d.Reordered, Changes: showChanges(list),
	}, err
}

// showChanges converts changes to their JSON form in the API. In a change, an empty value means
// that this version does not have the field.
func showChanges(list []plans.Change) []Change {
	out := make([]Change, len(list))
	for i, f := range list {
		out[i] = Change{Pointer: f.Field, Kind: ChangeKindChanged, Before: f.From, After: f.To}
		switch {
		case len(f.From) == 0:
			out[i].Kind = ChangeKindAdded
		case len(f.To) == 0:
			out[i].Kind = ChangeKindRemoved
		}
	}
	return out
}
