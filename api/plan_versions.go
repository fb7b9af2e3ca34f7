package api

import (
	"cmp"
	"context"
	"strconv"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/plans"
)

func showActor(a audit.Actor) Actor { return Actor{Kind: ActorKind(a.Kind), Id: a.ID, Name: a.Name} }

// showSummary converts a version of the plan p to its JSON form in the API, without the document.
func showSummary(p plans.Plan, v plans.Version) (VersionSummary, error) {
	id, err := parseUUID(p.ID)
	return VersionSummary{
		PlanId: id, Plan: p.Slug, Version: v.Number, Current: v.Number == p.Published,
		PublishedAt: Instant{v.PublishedAt}, PublishedBy: showActor(v.PublishedBy),
	}, err
}

func showVersion(p plans.Plan, v plans.Version) (Version, error) {
	s, err := showSummary(p, v)
	if err != nil {
		return Version{}, err
	}
	document, err := v.Document.MarshalJSON()
	return Version{
		PlanId: s.PlanId, Plan: s.Plan, Version: s.Version, Current: s.Current,
		PublishedAt: s.PublishedAt, PublishedBy: s.PublishedBy, Document: document,
	}, err
}

// PublishPlan is POST /v1/plans/{plan}/publish.
func (a *API) PublishPlan(ctx context.Context, r PublishPlanRequestObject) (PublishPlanResponseObject, error) {
	p, err := a.cfg.Plans.Plan(ctx, r.Plan)
	if err != nil {
		return nil, err
	}
	if r.Params.IfMatch != "" {
		if err := ifMatch(r.Params.IfMatch, p.DraftRevision); err != nil {
			return nil, err
		}
	}
	var v plans.Version
	if r.Body != nil && r.Body.Version != 0 {
		p, v, err = a.cfg.Plans.PublishVersion(ctx, p.ID, plans.PublishVersion{Number: r.Body.Version})
	} else {
		p, v, err = a.cfg.Plans.Publish(ctx, p.ID, plans.Publish{IfRevision: p.DraftRevision})
	}
	if err != nil {
		return nil, err
	}
	a.cfg.Changed(ctx)
	shown, err := showVersion(p, v)
	return PublishPlan200JSONResponse(shown), err
}

// ListVersions is GET /v1/plans/{plan}/versions.
func (a *API) ListVersions(ctx context.Context, r ListVersionsRequestObject) (ListVersionsResponseObject, error) {
	path := "/v1/plans/" + r.Plan + "/versions"
	var p plans.Plan
	out, link, err := list(path, nil, r.Params.Limit, r.Params.Cursor, func(after string, limit int) ([]plans.Version, error) {
		before, err := strconv.Atoi(cmp.Or(after, "0"))
		if err != nil {
			return nil, errCursor
		}
		if p, err = a.cfg.Plans.Plan(ctx, r.Plan); err != nil {
			return nil, err
		}
		return a.cfg.Plans.Versions(ctx, p.ID, before, limit)
	}, func(v plans.Version) string { return strconv.Itoa(v.Number) },
		func(v plans.Version) (VersionSummary, error) { return showSummary(p, v) })
	return ListVersions200JSONResponse{VersionPage(out), ListVersions200ResponseHeaders{link}}, err
}

// GetVersion is GET /v1/plans/{plan}/versions/{version}.
func (a *API) GetVersion(ctx context.Context, r GetVersionRequestObject) (GetVersionResponseObject, error) {
	p, err := a.cfg.Plans.Plan(ctx, r.Plan)
	if err != nil {
		return nil, err
	}
	v, err := a.cfg.Plans.Version(ctx, p.ID, int(r.Version))
	if err != nil {
		return nil, err
	}
	shown, err := showVersion(p, v)
	return GetVersion200JSONResponse(shown), err
}
