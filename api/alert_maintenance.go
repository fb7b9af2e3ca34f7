package api

import (
	"context"

	"github.com/headgate/headgate/internal/alerts"
)

func showMaintenance(m alerts.Maintenance) (AlertMaintenance, error) {
	id, err := ids(m.ID, m.TenantID)
	if err != nil {
		return AlertMaintenance{}, err
	}
	return AlertMaintenance{
		Id: id[0], TenantId: id[1], CreatedAt: Instant{m.CreatedAt},
		Window: AlertMaintenanceDocument{
			Name: m.Name, StartsAt: Instant{m.StartsAt}, EndsAt: Instant{m.EndsAt}, Repeat: AlertMaintenanceDocumentRepeat(m.Repeat), Rules: m.Rules,
		},
	}, nil
}

// ListAlertMaintenance is GET /v1/alert-maintenance.
func (a *API) ListAlertMaintenance(
	ctx context.Context, r ListAlertMaintenanceRequestObject,
) (ListAlertMaintenanceResponseObject, error) {
	p := r.Params
	owner, err := a.alertOwner(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	out, link, err := list(
		"/v1/alert-maintenance", filters("tenant", owner), p.Limit, p.Cursor,
		func(after string, limit int) ([]alerts.Maintenance, error) {
			return a.cfg.Alerts.Maintenances(ctx, owner, alerts.Filter{After: after, Limit: limit})
		}, func(m alerts.Maintenance) string { return m.ID }, showMaintenance)
	return ListAlertMaintenance200JSONResponse{AlertMaintenancePage(out), ListAlertMaintenance200ResponseHeaders{link}}, err
}

// CreateAlertMaintenance is POST /v1/alert-maintenance.
func (a *API) CreateAlertMaintenance(
	ctx context.Context, r CreateAlertMaintenanceRequestObject,
) (CreateAlertMaintenanceResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	b := r.Body
	m, err := a.cfg.Alerts.CreateMaintenance(ctx, owner, alerts.MaintenanceDocument{
		Name: b.Name, StartsAt: b.StartsAt.UTC(), EndsAt: b.EndsAt.UTC(), Repeat: alerts.Repeat(b.Repeat), Rules: b.Rules,
	})
	out, err := shown(showMaintenance)(m, err)
	return CreateAlertMaintenance201JSONResponse{
		out, CreateAlertMaintenance201ResponseHeaders{Location: "/v1/alert-maintenance/" + m.ID + ownerQuery(owner)},
	}, err
}

// GetAlertMaintenance is GET /v1/alert-maintenance/{maintenance}.
func (a *API) GetAlertMaintenance(
	ctx context.Context, r GetAlertMaintenanceRequestObject,
) (GetAlertMaintenanceResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err != nil {
		return nil, err
	}
	out, err := shown(showMaintenance)(a.cfg.Alerts.Maintenance(ctx, owner, r.Maintenance.String()))
	return GetAlertMaintenance200JSONResponse(out), err
}

// DeleteAlertMaintenance is DELETE /v1/alert-maintenance/{maintenance}.
func (a *API) DeleteAlertMaintenance(
	ctx context.Context, r DeleteAlertMaintenanceRequestObject,
) (DeleteAlertMaintenanceResponseObject, error) {
	owner, err := a.alertOwner(ctx, r.Params.Tenant)
	if err == nil {
		err = a.cfg.Alerts.DeleteMaintenance(ctx, owner, r.Maintenance.String())
	}
	return DeleteAlertMaintenance204Response{}, err
}
