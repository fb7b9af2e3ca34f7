package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/export"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
)

// A download is a response that is a CSV file.
type download struct {
	export.File
	log *slog.Logger
}

func (d download) VisitDownloadAuditResponse(w http.ResponseWriter) error { return d.Serve(w, d.log) }

func (d download) VisitDownloadRefusalsResponse(w http.ResponseWriter) error {
	return d.Serve(w, d.log)
}

func (d download) VisitDownloadUsageResponse(w http.ResponseWriter) error { return d.Serve(w, d.log) }

// DownloadAudit is GET /v1/audit.csv.
func (a *API) DownloadAudit(ctx context.Context, r DownloadAuditRequestObject) (DownloadAuditResponseObject, error) {
	p := r.Params
	tenantID, err := a.auditedTenant(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	f := audit.Filter{TenantID: tenantID, Action: p.Action, Object: p.Object, From: p.From, To: p.To}
	return download{export.Audit(ctx, a.cfg.Audit, f, a.auditView(ctx), a.cfg.Now()), a.cfg.Logger}, nil
}

// auditView returns the restricted view of the audit log for a key of a tenant. It is nil if the
// caller may see everything.
func (a *API) auditView(ctx context.Context) *audit.TenantView {
	own := callerOf(ctx).tenant()
	if own == nil {
		return nil
	}
	return audit.NewTenantView(a.cfg.Audit, own.TenantID, func(ctx context.Context, user string) (bool, error) {
		if a.cfg.People == nil {
			return false, nil
		}
		return a.cfg.People.IsMember(ctx, own.TenantID, user)
	})
}

// DownloadRefusals is GET /v1/analytics/refusals.csv.
func (a *API) DownloadRefusals(ctx context.Context, r DownloadRefusalsRequestObject) (DownloadRefusalsResponseObject, error) {
	p := r.Params
	if p.Outcome != "" && !p.Outcome.Valid() {
		return nil, errOutcome
	}
	tenant, err := a.countedTenant(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	f := metrics.RefusalFilter{
		Outcome: metrics.Outcome(p.Outcome), Tenant: tenant, Policy: p.Policy, Route: p.Route, Degraded: p.Degraded,
		Reason: enforcement.Reason(p.Reason), From: p.From, To: p.To,
	}
	return download{export.Denials(ctx, a.cfg.Analytics, f, a.cfg.Now()), a.cfg.Logger}, nil
}

// usageSpan is the length of the time range of a usage file if the request has no parameter from.
const usageSpan = 24 * time.Hour

// DownloadUsage is GET /v1/tenants/{tenant}/usage.csv.
func (a *API) DownloadUsage(ctx context.Context, r DownloadUsageRequestObject) (DownloadUsageResponseObject, error) {
	p := r.Params
	file, err := counted(ctx, a, r.Tenant, p.From, p.To, func(q *metrics.Query) {
		if p.From.IsZero() {
			q.From = q.To.Add(-usageSpan)
		}
		q.Step = metrics.Step(p.Step)
	}, func(ctx context.Context, q metrics.Query) (export.File, error) {
		s, known := callerOf(ctx).snapshot.SubjectByNumber(q.Tenant)
		if !known {
			return export.File{}, problem.New(problem.NotFound, "this tenant does not exist")
		}
		var policies []string
		if s.Plan != nil {
			for _, r := range s.Plan.Rules {
				policies = append(policies, r.Policy)
			}
		}
		return export.Usage(ctx, a.cfg.Analytics, s.Tenant, q, 0, policies, time.UTC)
	})
	return download{file, a.cfg.Logger}, err
}
