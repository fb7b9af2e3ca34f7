package api

import (
	"context"

	"github.com/headgate/headgate/internal/exceptions"
)

// showListEntry converts an entry of an allow or deny list to its wire format.
func (a *API) showListEntry(e exceptions.Entry) (ListEntry, error) {
	m, err := showMade(e.ID, e.TenantID, e.CreatedBy)
	if err != nil {
		return ListEntry{}, err
	}
	why := InactiveBecause(e.Idle(a.cfg.Now()).Code)
	return ListEntry{
		Id: m.id, TenantId: m.tenant, List: ListName(e.List), Attribute: e.Attribute, Value: e.Value, Reason: e.Reason,
		Active: why == "", InactiveBecause: why, ExpiresAt: Instant{e.ExpiresAt}, CreatedAt: Instant{e.CreatedAt}, CreatedBy: m.by,
	}, nil
}

// ListListEntries is GET /v1/tenants/{tenant}/lists.
func (a *API) ListListEntries(ctx context.Context, r ListListEntriesRequestObject) (ListListEntriesResponseObject, error) {
	p, at := r.Params, "/v1/tenants/"+r.Tenant+"/lists"
	filter := filters("list", string(p.List), "q", p.Q)
	out, link, err := list(at, filter, p.Limit, p.Cursor, func(after string, limit int) ([]exceptions.Entry, error) {
		return a.cfg.Exceptions.Entries(ctx, r.Tenant, exceptions.Filter{List: exceptions.List(p.List), Query: p.Q, After: after, Limit: limit})
	}, func(e exceptions.Entry) string { return e.ID }, a.showListEntry)
	return ListListEntries200JSONResponse{ListEntryPage(out), ListListEntries200ResponseHeaders{link}}, err
}

// CreateListEntry is POST /v1/tenants/{tenant}/lists.
func (a *API) CreateListEntry(ctx context.Context, r CreateListEntryRequestObject) (CreateListEntryResponseObject, error) {
	b := r.Body
	e, err := written(ctx, a, a.showListEntry)(a.cfg.Exceptions.CreateEntry(ctx, r.Tenant, exceptions.NewEntry{
		List: exceptions.List(b.List), Attribute: b.Attribute, Value: b.Value, Reason: b.Reason, ExpiresAt: b.ExpiresAt.Time,
	}))
	at := "/v1/tenants/" + r.Tenant + "/lists/" + e.Id.String()
	return CreateListEntry201JSONResponse{e, CreateListEntry201ResponseHeaders{at}}, err
}

// GetListEntry is GET /v1/tenants/{tenant}/lists/{entry}.
func (a *API) GetListEntry(ctx context.Context, r GetListEntryRequestObject) (GetListEntryResponseObject, error) {
	e, err := shown(a.showListEntry)(a.cfg.Exceptions.Entry(ctx, r.Tenant, r.Entry.String()))
	return GetListEntry200JSONResponse(e), err
}

// DeleteListEntry is DELETE /v1/tenants/{tenant}/lists/{entry}.
func (a *API) DeleteListEntry(ctx context.Context, r DeleteListEntryRequestObject) (DeleteListEntryResponseObject, error) {
	return DeleteListEntry204Response{}, a.changed(ctx, a.cfg.Exceptions.DeleteEntry(ctx, r.Tenant, r.Entry.String()))
}
