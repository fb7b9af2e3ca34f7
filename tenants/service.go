package tenants

import (
	"context"
	"encoding/json"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// Config configures a Service.
type Config struct {
	// Now returns the current time. The default is time.Now.
	Now func() time.Time
}

// A Service changes tenants and API keys. For each change, it fills in defaults, validates the
// input, and calls the Store, which also writes an entry of the audit log. A parameter that
// names a tenant is an ID or a slug. A Service is safe for concurrent use.
type Service struct {
	store Store
	now   func() time.Time
}

// NewService returns a Service that stores tenants in store.
func NewService(store Store, cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{store: store, now: cfg.Now}
}

// DefaultPage is the maximum number of rows in a list if the filter has no limit.
const DefaultPage = 100

// Tenant returns a tenant. The error is problem.NotFound if there is no such tenant.
func (s *Service) Tenant(ctx context.Context, idOrSlug string) (Tenant, error) {
	return s.store.Tenant(ctx, idOrSlug)
}

// Tenants lists the tenants that match f in the order of their IDs, oldest first.
func (s *Service) Tenants(ctx context.Context, f Filter) ([]Tenant, error) {
	if f.Limit <= 0 {
		f.Limit = DefaultPage
	}
	return s.store.Tenants(ctx, f)
}

// CreateTenant creates a tenant. The error is problem.Invalid, or problem.Conflict with the code
// slug_taken.
func (s *Service) CreateTenant(ctx context.Context, slug string, d Document) (Tenant, error) {
	d = Normalise(d)
	var f problem.Fields
	f.NewSlug("/slug", slug)
	faults(&f, d)
	if err := f.Err(); err != nil {
		return Tenant{}, err
	}
	t := Tenant{ID: audit.NewID(), Slug: slug, Document: d}
	e := tenantEntry(ctx, "tenant.create", t, nil, t)
	return s.store.CreateTenant(ctx, t, e)
}

// UpdateTenant replaces the document of a tenant. The error is problem.Stale if the tenant's
// revision is not ifRevision, or problem.Invalid or problem.NotFound.
func (s *Service) UpdateTenant(ctx context.Context, idOrSlug string, d Document, ifRevision int64) (Tenant, error) {
	before, err := s.store.Tenant(ctx, idOrSlug)
	if err != nil {
		return Tenant{}, err
	}
	if before.Revision != ifRevision {
		return Tenant{}, stale(before.Slug)
	}
	after := before
	after.Document = Normalise(d)
	if err := Validate(after.Document); err != nil {
		return Tenant{}, err
	}
	e := tenantEntry(ctx, "tenant.update", before, before, after)
	return s.store.UpdateTenant(ctx, after, ifRevision, e)
}

// DeleteTenant deletes a tenant and its keys. The error is problem.Stale if the tenant's revision
// is not ifRevision, or problem.NotFound.
func (s *Service) DeleteTenant(ctx context.Context, idOrSlug string, ifRevision int64) error {
	t, err := s.store.Tenant(ctx, idOrSlug)
	if err != nil {
		return err
	}
	if t.Revision != ifRevision {
		return stale(t.Slug)
	}
	e := tenantEntry(ctx, "tenant.delete", t, t, nil)
	return s.store.DeleteTenant(ctx, t.ID, ifRevision, e)
}

// stale returns the error for a tenant whose revision differs from the revision that the caller
// expects. The Service compares the revisions before it validates the change. The Store compares
// them again when it writes.
func stale(slug string) error {
	return problem.New(problem.Stale, "tenant %s was changed since it was read", slug)
}

func tenantEntry(ctx context.Context, action string, t Tenant, before, after any) audit.Entry {
	return audit.Complete(ctx, audit.Entry{TenantID: t.ID, Action: action, Object: t.ID, ObjectName: t.Slug}, before, after)
}

// JSON returns the form of the tenant that the audit log contains.
func (t Tenant) JSON() (json.RawMessage, error) {
	type document struct {
		Name             string   `json:"name"`
		Status           Status   `json:"status"`
		Plan             string   `json:"plan,omitempty"`
		TimeZone         string   `json:"time_zone"`
		BillingAnchorDay int      `json:"billing_anchor_day"`
		NoPolicy         NoPolicy `json:"no_policy"`
		RedactValues     bool     `json:"redact_values"`
		RequireRoute     bool     `json:"require_route"`
		MaxKeys          int64    `json:"max_keys,omitempty"`
		SampleAllowed    uint32   `json:"sample_allowed,omitempty"`
		NoTrace          bool     `json:"no_trace,omitempty"`
	}
	d := t.Document
	return json.Marshal(struct {
		ID     string   `json:"id"`
		Slug   string   `json:"slug"`
		Tenant document `json:"tenant"`
	}{t.ID, t.Slug, document{
		d.Name, d.Status, d.Plan, d.TimeZone, d.BillingAnchorDay, d.NoPolicy, d.RedactValues, !d.RouteOptional, d.MaxKeys, d.SampleAllowed,
		d.NoTrace,
	}})
}
