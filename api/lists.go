package api

import (
	"context"

	"github.com/headgate/headgate/internal/exceptions"
)

// showListEntry returns an entry of a list in its wire format.
func (a *API) showListEntry(e exceptions.Entry) (ListEntry, error) {
	m, err := showMade(e.ID, e.TenantID, e.CreatedBy)
	if err != nil {
		return ListEntry{}, err
	}
	why := InactiveBecause(e.Idle(a.cfg.Now()).Code)
	return ListEntry{
		Id: m.id, TenantId: m.tenant, List: ListName(e.List), Attribute: e.Attribute, Value: e.Value, Reason: e.Reason,
		Active: why == "", InactiveBecause: why, ExpiresAt: utcOrZero(e.ExpiresAt), CreatedAt: e.CreatedAt.UTC(), CreatedBy: m.by,
	}, nil
}

// ListEntries is GET /v1/tenants/{tenant}/lists.
func (a *API) ListEntries(ctx context.Context, r ListEntriesRequestObject) (ListEntriesResponseObject, error) {
	p, at := r.Params, "/v1/tenants/"+r.Tenant+"/lists"
	filter := filters("list", string(p.List), "q", p.Q)
	out, link, err := list(at, filter, p.Limit, p.Cursor, func(after string, limit int) ([]exceptions.Entry, error) {
		return a.cfg.Exceptions.Entries(ctx, r.Tenant, exceptions.Filter{List: exceptions.List(p.List), Query: p.Q, After: after, Limit: limit})
	}, func(e exceptions.Entry) string { return e.ID }, a.showListEntry)
	return ListEntries200JSONResponse{ListEntryPage(out), ListEntries200ResponseHeaders{link}}, err
}

// CreateEntry is POST /v1/tenants/{tenant}/lists.
func (a *API) CreateEntry(ctx context.Context, r CreateEntryRequestObject) (CreateEntryResponseObject, error) {
	b := r.Body
	e, err := written(ctx, a, a.showListEntry)(a.cfg.Exceptions.CreateEntry(ctx, r.Tenant, exceptions.NewEntry{
		List: exceptions.List(b.List), Attribute: b.Attribute, Value: b.Value, Reason: b.Reason, ExpiresAt: b.ExpiresAt,
	}))
	at := "/v1/tenants/" + r.Tenant + "/lists/" + e.Id.String()
	return CreateEntry201JSONResponse{e, CreateEntry201ResponseHeaders{at}}, err
}

// GetEntry is GET /v1/tenants/{tenant}/lists/{entry}.
func (a *API) GetEntry(ctx context.Context, r GetEntryRequestObject) (GetEntryResponseObject, error) {
	e, err := shown(a.showListEntry)(a.cfg.Exceptions.Entry(ctx, r.Tenant, r.Entry.String()))
	return GetEntry200JSONResponse(e), err
}

// DeleteEntry is DELETE /v1/tenants/{tenant}/lists/{entry}.
func (a *API) DeleteEntry(ctx context.Context, r DeleteEntryRequestObject) (DeleteEntryResponseObject, error) {
	return DeleteEntry204Response{}, a.changed(ctx, a.cfg.Exceptions.DeleteEntry(ctx, r.Tenant, r.Entry.String()))
}
