package api

import (
	"context"

	"github.com/headgate/headgate/internal/exceptions"
)

// showListEntry is an entry of a list on the wire.
func (a *API) showListEntry(e exceptions.Entry) (ListEntry, error) {
	m, err := showMade(e.ID, e.TenantID, e.CreatedBy)
	if err != nil {
		return ListEntry{}, err
	}
	why := a.ended(e.ExpiresAt)
	return ListEntry{
		Id: m.id, TenantId: m.tenant, List: ListName(e.List), Attribute: e.Attribute, Value: e.Value, Reason: e.Reason,
		Active: why == "", InactiveBecause: why, ExpiresAt: utcOrZero(e.ExpiresAt), CreatedAt: e.CreatedAt.UTC(), CreatedBy: m.by,
	}, nil
}

// ListEntries is GET /v1/tenants/{tenant}/lists.
func (a *API) ListEntries(ctx context.Context, r ListEntriesRequestObject) (ListEntriesResponseObject, error) {
	s, err := a.exceptionService()
	if err != nil {
		return nil, err
	}
	p := r.Params
	l, err := page("/v1/tenants/"+r.Tenant+"/lists", filters("list", string(p.List), "q", p.Q), p.Limit, p.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := s.Entries(ctx, r.Tenant, exceptions.Filter{List: exceptions.List(p.List), Query: p.Q, After: l.after, Limit: l.fetch()})
	if err != nil {
		return nil, err
	}
	rows, next, link := cut(l, rows, func(e exceptions.Entry) string { return e.ID })
	data, err := each(rows, a.showListEntry)
	if err != nil {
		return nil, err
	}
	return ListEntries200JSONResponse{ListEntryPage{data, next != "", next}, ListEntries200ResponseHeaders{link}}, nil
}

// CreateEntry is POST /v1/tenants/{tenant}/lists.
func (a *API) CreateEntry(ctx context.Context, r CreateEntryRequestObject) (CreateEntryResponseObject, error) {
	s, err := a.exceptionService()
	if err != nil {
		return nil, err
	}
	b := r.Body
	e, err := s.CreateEntry(ctx, r.Tenant, exceptions.NewEntry{
		List: exceptions.List(b.List), Attribute: b.Attribute, Value: b.Value, Reason: b.Reason, ExpiresAt: b.ExpiresAt,
	})
	if err != nil {
		return nil, err
	}
	a.cfg.Changed(ctx)
	shown, err := a.showListEntry(e)
	if err != nil {
		return nil, err
	}
	return CreateEntry201JSONResponse{shown, CreateEntry201ResponseHeaders{"/v1/tenants/" + r.Tenant + "/lists/" + e.ID}}, nil
}

// GetEntry is GET /v1/tenants/{tenant}/lists/{entry}.
func (a *API) GetEntry(ctx context.Context, r GetEntryRequestObject) (GetEntryResponseObject, error) {
	s, err := a.exceptionService()
	if err != nil {
		return nil, err
	}
	e, err := s.Entry(ctx, r.Tenant, r.Entry.String())
	if err != nil {
		return nil, err
	}
	shown, err := a.showListEntry(e)
	return GetEntry200JSONResponse(shown), err
}

// DeleteEntry is DELETE /v1/tenants/{tenant}/lists/{entry}.
func (a *API) DeleteEntry(ctx context.Context, r DeleteEntryRequestObject) (DeleteEntryResponseObject, error) {
	s, err := a.exceptionService()
	if err != nil {
		return nil, err
	}
	if err := s.DeleteEntry(ctx, r.Tenant, r.Entry.String()); err != nil {
		return nil, err
	}
	a.cfg.Changed(ctx)
	return DeleteEntry204Response{}, nil
}
