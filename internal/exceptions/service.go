package exceptions

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// Config of a Service.
type Config struct {
	// Now tells the time; default time.Now.
	Now func() time.Time
}

// A Service sets exceptions. It validates them with the published version of the tenant's plan,
// fills in defaults, and writes the audit log. A tenant's slug can replace its ID. Exceptions of
// other tenants are NotFound. A Service is safe for concurrent use.
type Service struct {
	store   Store
	tenants *tenants.Service
	plans   *plans.Service
	now     func() time.Time
}

// NewService makes a Service on a Store.
func NewService(store Store, t *tenants.Service, p *plans.Service, cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{store: store, tenants: t, plans: p, now: cfg.Now}
}

// defaultPage is the number of rows of a listing whose filter has no limit.
const defaultPage = 100

// Overrides lists the overrides of one tenant, newest first.
func (s *Service) Overrides(ctx context.Context, tenant string, f Filter) ([]Override, error) {
	return list(ctx, s, tenant, f, s.store.Overrides)
}

// Override finds an override of one tenant; NotFound.
func (s *Service) Override(ctx context.Context, tenant, id string) (Override, error) {
	return one(ctx, s, tenant, id, s.store.Override)
}

// CreateOverride replaces numbers of a policy of the tenant's plan; Invalid, NotFound, Conflict
// (code too_many_overrides).
func (s *Service) CreateOverride(ctx context.Context, tenant string, n NewOverride) (Override, error) {
	t, err := s.tenantWithPlan(ctx, tenant)
	if err != nil {
		return Override{}, err
	}
	now := s.instant()
	var f problem.Fields
	o := n.validate(&f, t, now)
	if err := f.Err(); err != nil {
		return Override{}, err
	}
	o.ID, o.TenantID, o.CreatedAt = audit.NewID(), t.ID, now
	e := entry(ctx, "override.create", o.TenantID, o.ID, o.Policy, nil, o)
	o.CreatedBy = e.Actor
	return s.store.CreateOverride(ctx, o, e)
}

// DeleteOverride ends an override now; NotFound.
func (s *Service) DeleteOverride(ctx context.Context, tenant, id string) error {
	o, err := s.Override(ctx, tenant, id)
	if err != nil {
		return err
	}
	e := entry(ctx, "override.delete", o.TenantID, o.ID, o.Policy, o, nil)
	return s.store.DeleteOverride(ctx, o.TenantID, o.ID, e)
}

// Entries lists what is on the lists of one tenant, newest first.
func (s *Service) Entries(ctx context.Context, tenant string, f Filter) ([]Entry, error) {
	return list(ctx, s, tenant, f, s.store.Entries)
}

// Entry finds an entry of one tenant's lists; NotFound.
func (s *Service) Entry(ctx context.Context, tenant, id string) (Entry, error) {
	return one(ctx, s, tenant, id, s.store.Entry)
}

// CreateEntry puts a value on a list; Invalid, NotFound, Conflict (codes
// entry_exists, too_many_entries).
func (s *Service) CreateEntry(ctx context.Context, tenant string, n NewEntry) (Entry, error) {
	now := s.instant()
	var f problem.Fields
	made := n.validate(&f, now)
	if err := f.Err(); err != nil {
		return Entry{}, err
	}
	t, err := s.tenants.Tenant(ctx, tenant)
	if err != nil {
		return Entry{}, err
	}
	made.ID, made.TenantID, made.CreatedAt = audit.NewID(), t.ID, now
	e := entry(ctx, "list_entry.create", made.TenantID, made.ID, made.Value, nil, made)
	made.CreatedBy = e.Actor
	return s.store.CreateEntry(ctx, made, e)
}

// DeleteEntry takes a value off its list; NotFound.
func (s *Service) DeleteEntry(ctx context.Context, tenant, id string) error {
	n, err := s.Entry(ctx, tenant, id)
	if err != nil {
		return err
	}
	e := entry(ctx, "list_entry.delete", n.TenantID, n.ID, n.Value, n, nil)
	return s.store.DeleteEntry(ctx, n.TenantID, n.ID, e)
}

// Blocks lists the blocks of one tenant, newest first.
func (s *Service) Blocks(ctx context.Context, tenant string, f Filter) ([]Block, error) {
	return list(ctx, s, tenant, f, s.store.Blocks)
}

// Block finds a block of one tenant; NotFound.
func (s *Service) Block(ctx context.Context, tenant, id string) (Block, error) {
	return one(ctx, s, tenant, id, s.store.Block)
}

// CreateBlock denies one key of one policy until an instant; Invalid, NotFound, Conflict (code
// too_many_blocks).
func (s *Service) CreateBlock(ctx context.Context, tenant string, n NewBlock) (Block, error) {
	t, err := s.tenantWithPlan(ctx, tenant)
	if err != nil {
		return Block{}, err
	}
	now := s.instant()
	var f problem.Fields
	b := n.validate(&f, t, now)
	if err := f.Err(); err != nil {
		return Block{}, err
	}
	b.ID, b.TenantID, b.CreatedAt = audit.NewID(), t.ID, now
	e := entry(ctx, "block.create", b.TenantID, b.ID, b.Policy, nil, b)
	b.CreatedBy = e.Actor
	return s.store.CreateBlock(ctx, b, e)
}

// DeleteBlock ends a block now; NotFound.
func (s *Service) DeleteBlock(ctx context.Context, tenant, id string) error {
	b, err := s.Block(ctx, tenant, id)
	if err != nil {
		return err
	}
	e := entry(ctx, "block.delete", b.TenantID, b.ID, b.Policy, b, nil)
	return s.store.DeleteBlock(ctx, b.TenantID, b.ID, e)
}

// A Reset deletes the counters of one key of one policy.
type Reset struct {
	Tenant tenants.Tenant
	Policy string            // slug
	Key    map[string]string // as Block.Key, canonical
	Reason string            // up to MaxReason characters
}

// PlanReset validates a reset; Invalid, NotFound. It changes nothing: the caller calls NoteReset
// and then the limiter.
func (s *Service) PlanReset(ctx context.Context, tenant, policy string, key map[string]string, reason string) (Reset, error) {
	t, err := s.tenantWithPlan(ctx, tenant)
	if err != nil {
		return Reset{}, err
	}
	var f problem.Fields
	r := Reset{Tenant: t.Tenant, Policy: policy, Reason: reason}
	r.Key = t.key(&f, policy, key)
	f.Line("/reason", reason, 0, MaxReason)
	return r, f.Err()
}

// NoteReset writes the audit entry of a reset, before the reset. An entry without its reset can be
// detected; a reset without its entry cannot.
func (s *Service) NoteReset(ctx context.Context, r Reset) error {
	e := entry(ctx, "counter.reset", r.Tenant.ID, r.Policy, r.Policy, nil, r)
	return s.store.NoteReset(ctx, r.Tenant.ID, e)
}

// A tenantWithPlan is a tenant with the policies of its published plan. The list is
// empty if the tenant has no plan.
type tenantWithPlan struct {
	tenants.Tenant
	policies []plans.Policy
}

func (s *Service) tenantWithPlan(ctx context.Context, idOrSlug string) (tenantWithPlan, error) {
	t, err := s.tenants.Tenant(ctx, idOrSlug)
	if err != nil || t.PlanID == "" {
		return tenantWithPlan{Tenant: t}, err
	}
	p, err := s.plans.Plan(ctx, t.PlanID)
	if err != nil {
		return tenantWithPlan{}, fmt.Errorf("read the plan of tenant %s: %w", t.Slug, err)
	}
	v, err := s.plans.Version(ctx, p.ID, p.Published)
	if err != nil {
		return tenantWithPlan{}, fmt.Errorf("read version %d of plan %s: %w", p.Published, p.Slug, err)
	}
	return tenantWithPlan{t, v.Document.Policies()}, nil
}

// instant is now in the precision that every store keeps.
func (s *Service) instant() time.Time { return s.now().UTC().Truncate(time.Millisecond) }

func list[T any](
	ctx context.Context, s *Service, tenant string, f Filter, read func(context.Context, string, Filter) ([]T, error),
) ([]T, error) {
	t, err := s.tenants.Tenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if f.Limit <= 0 {
		f.Limit = defaultPage
	}
	return read(ctx, t.ID, f)
}

func one[T any](ctx context.Context, s *Service, tenant, id string, read func(context.Context, string, string) (T, error)) (T, error) {
	t, err := s.tenants.Tenant(ctx, tenant)
	if err != nil {
		var none T
		return none, err
	}
	return read(ctx, t.ID, id)
}

func entry(ctx context.Context, action, tenantID, object, name string, before, after any) audit.Entry {
	e := audit.Entry{TenantID: tenantID, Action: action, Object: object, ObjectName: name}
	return audit.Complete(ctx, e, before, after)
}
