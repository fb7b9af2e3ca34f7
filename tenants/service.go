package tenants

import (
	"context"
	"encoding/json"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// Config of a Service.
type Config struct {
	// Now returns the current time. The default is time.Now.
	Now func() time.Time
}

// A Service changes tenants and their API keys. It fills in defaults, validates the change,
// stores it, and records it in the audit log. A tenant's slug is accepted wherever an ID is. A
// Service is safe for concurrent use. The comments list the possible kinds of problems.
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

// DefaultPage is the number of rows of a listing if its filter has no limit.
const DefaultPage = 100

// Tenant returns a tenant; NotFound.
func (s *Service) Tenant(ctx context.Context, idOrSlug string) (Tenant, error) {
	return s.store.Tenant(ctx, idOrSlug)
}

// Tenants lists tenants by id, oldest first.
func (s *Service) Tenants(ctx context.Context, f Filter) ([]Tenant, error) {
	if f.Limit <= 0 {
		f.Limit = DefaultPage
	}
	return s.store.Tenants(ctx, f)
}

// CreateTenant creates a tenant; Invalid, Conflict (code slug_taken).
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

// UpdateTenant replaces the document of a tenant if its current revision is ifRevision;
// Invalid, NotFound, Stale.
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

// DeleteTenant deletes a tenant and its keys if its current revision is ifRevision; NotFound,
// Stale.
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

// stale returns the error for a tenant with another revision than the caller expects. The
// Service checks the revision before the work, and the Store again during the write.
func stale(slug string) error {
	return problem.New(problem.Stale, "tenant %s was changed since it was read", slug)
}

func tenantEntry(ctx context.Context, action string, t Tenant, before, after any) audit.Entry {
	return audit.Complete(ctx, audit.Entry{TenantID: t.ID, Action: action, Object: t.ID, ObjectName: t.Slug}, before, after)
}

// JSON returns the tenant as the audit log shows it.
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
	}
	d := t.Document
	return json.Marshal(struct {
		ID     string   `json:"id"`
		Slug   string   `json:"slug"`
		Tenant document `json:"tenant"`
	}{t.ID, t.Slug, document{
		d.Name, d.Status, d.Plan, d.TimeZone, d.BillingAnchorDay, d.NoPolicy, d.RedactValues, !d.RouteOptional, d.MaxKeys,
	}})
}
