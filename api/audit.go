package api

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/audit"
)

func showEntry(e audit.Entry) (AuditEntry, error) {
	id, err := parseUUID(e.ID)
	if err != nil {
		return AuditEntry{}, err
	}
	out := AuditEntry{
		Id: id, At: Instant{e.At}, Revision: e.Revision, Actor: showActor(e.Actor),
		Origin: Origin{RequestId: e.Origin.RequestID, Address: e.Origin.Address},
		Action: e.Action, Object: e.Object, ObjectName: e.ObjectName, Before: e.Before, After: e.After,
	}
	if e.TenantID != "" {
		out.TenantId, err = parseUUID(e.TenantID)
	}
	return out, err
}

// ListAudit is GET /v1/audit. A tenant key reads the lines of its own tenant.
func (a *API) ListAudit(ctx context.Context, r ListAuditRequestObject) (ListAuditResponseObject, error) {
	p := r.Params
	tenantID, err := a.auditedTenant(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	if own := callerOf(ctx).tenant(); own != nil {
		p.Tenant = own.Tenant // page rejects a cursor from the listing of another tenant
	}
	filter := filters("tenant", p.Tenant, "action", p.Action, "object", p.Object, "from", instant(p.From), "to", instant(p.To))
	view := a.auditView(ctx)
	out, link, err := list("/v1/audit", filter, p.Limit, p.Cursor, func(after string, limit int) ([]audit.Entry, error) {
		return a.cfg.Audit.AuditEntries(ctx, audit.Filter{
			TenantID: tenantID, Action: p.Action, Object: p.Object, From: p.From, To: p.To, After: after, Limit: limit,
		})
	}, func(e audit.Entry) string { return e.ID }, func(e audit.Entry) (AuditEntry, error) {
		return shown(showEntry)(view.Show(ctx, e))
	})
	return ListAudit200JSONResponse{AuditPage(out), ListAudit200ResponseHeaders{link}}, err
}

// auditedTenant returns the ID of the tenant whose audit entries the request is about. ref is the
// slug or ID in the request. Only the operator may leave it empty, to read all entries; the result
// is then "".
func (a *API) auditedTenant(ctx context.Context, ref string) (string, error) {
	who := callerOf(ctx)
	if own := who.tenant(); own != nil {
		if ref != "" && !who.is(ref) {
			return "", errForeign
		}
		return own.TenantID, nil
	}
	if ref == "" {
		return "", nil
	}
	t, err := a.cfg.Tenants.Tenant(ctx, ref)
	return t.ID, err
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
