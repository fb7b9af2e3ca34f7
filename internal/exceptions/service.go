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

// Config configures a Service.
type Config struct {
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

// A Service manages the exceptions of tenants. It validates them against the published version
// of the tenant's plan, sets defaults, and makes the entry for the audit log. The parameter
// tenant is the ID or the slug of a tenant. If an exception belongs to another tenant, the
// error is problem.NotFound. A Service is safe for concurrent use.
type Service struct {
	store   Store
	tenants *tenants.Service
	plans   *plans.Service
	now     func() time.Time
}

// NewService returns a Service that stores exceptions in store.
func NewService(store Store, t *tenants.Service, p *plans.Service, cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{store: store, tenants: t, plans: p, now: cfg.Now}
}

// defaultPage is the maximum number of rows in a list if the filter has no limit.
const defaultPage = 100

// Overrides returns the overrides of one tenant, newest first.
func (s *Service) Overrides(ctx context.Context, tenant string, f Filter) ([]Override, error) {
	return list(ctx, s, tenant, f, s.store.Overrides)
}

// Override returns one override of a tenant. The error is problem.NotFound if the tenant has no such override.
func (s *Service) Override(ctx context.Context, tenant, id string) (Override, error) {
	return one(ctx, s, tenant, id, s.store.Override)
}

// CreateOverride adds an override for a policy of the tenant's plan. The error is problem.Invalid,
// problem.NotFound, or problem.Conflict with the code too_many_overrides.
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

// UpdateOverride replaces all fields of an override except its policy. n.Policy is ignored.
// Errors: problem.Invalid, problem.NotFound, and problem.Stale if the revision of the override
// is not ifRevision.
func (s *Service) UpdateOverride(ctx context.Context, tenant, id string, n NewOverride, ifRevision int64) (Override, error) {
	before, err := s.Override(ctx, tenant, id)
	if err != nil {
		return Override{}, err
	}
	t, err := s.tenantWithPlan(ctx, tenant)
	if err != nil {
		return Override{}, err
	}
	n.Policy = before.Policy
	var f problem.Fields
	o := n.validate(&f, t, s.instant())
	if err := f.Err(); err != nil {
		return Override{}, err
	}
	o.ID, o.TenantID, o.CreatedAt, o.CreatedBy = before.ID, before.TenantID, before.CreatedAt, before.CreatedBy
	e := entry(ctx, "override.update", o.TenantID, o.ID, o.Policy, before, o)
	return s.store.UpdateOverride(ctx, o, ifRevision, e)
}

// DeleteOverride deletes an override, so that it ends immediately. The error is problem.NotFound if there is none.
func (s *Service) DeleteOverride(ctx context.Context, tenant, id string) error {
	o, err := s.Override(ctx, tenant, id)
	if err != nil {
		return err
	}
	e := entry(ctx, "override.delete", o.TenantID, o.ID, o.Policy, o, nil)
	return s.store.DeleteOverride(ctx, o.TenantID, o.ID, e)
}

// Entries returns the list entries of one tenant, newest first.
func (s *Service) Entries(ctx context.Context, tenant string, f Filter) ([]Entry, error) {
	return list(ctx, s, tenant, f, s.store.Entries)
}

// Entry returns one list entry of a tenant. The error is problem.NotFound if the tenant has no such entry.
func (s *Service) Entry(ctx context.Context, tenant, id string) (Entry, error) {
	return one(ctx, s, tenant, id, s.store.Entry)
}

// CreateEntry adds a value to a list of a tenant. The error is problem.Invalid, problem.NotFound,
// or problem.Conflict with the code entry_exists or too_many_entries.
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

// DeleteEntry removes a value from its list. The error is problem.NotFound if there is none.
func (s *Service) DeleteEntry(ctx context.Context, tenant, id string) error {
	n, err := s.Entry(ctx, tenant, id)
	if err != nil {
		return err
	}
	e := entry(ctx, "list_entry.delete", n.TenantID, n.ID, n.Value, n, nil)
	return s.store.DeleteEntry(ctx, n.TenantID, n.ID, e)
}

// Blocks returns the blocks of one tenant, newest first.
func (s *Service) Blocks(ctx context.Context, tenant string, f Filter) ([]Block, error) {
	return list(ctx, s, tenant, f, s.store.Blocks)
}

// Block returns one block of a tenant. The error is problem.NotFound if the tenant has no such block.
func (s *Service) Block(ctx context.Context, tenant, id string) (Block, error) {
	return one(ctx, s, tenant, id, s.store.Block)
}

// CreateBlock adds a block for one key of a policy. The error is problem.Invalid, problem.NotFound,
// or problem.Conflict with the code too_many_blocks.
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

// DeleteBlock deletes a block, so that it ends immediately. The error is problem.NotFound if there is none.
func (s *Service) DeleteBlock(ctx context.Context, tenant, id string) error {
	b, err := s.Block(ctx, tenant, id)
	if err != nil {
		return err
	}
	e := entry(ctx, "block.delete", b.TenantID, b.ID, b.Policy, b, nil)
	return s.store.DeleteBlock(ctx, b.TenantID, b.ID, e)
}

// Grants returns the grants of one tenant, newest first.
func (s *Service) Grants(ctx context.Context, tenant string, f Filter) ([]Grant, error) {
	return list(ctx, s, tenant, f, s.store.Grants)
}

// Grant returns one grant of a tenant. The error is problem.NotFound if the tenant has no such grant.
func (s *Service) Grant(ctx context.Context, tenant, id string) (Grant, error) {
	return one(ctx, s, tenant, id, s.store.Grant)
}

// CreateGrant adds a grant for one limit of the tenant's plan. The error is problem.Invalid,
// problem.NotFound, or problem.Conflict with the code too_many_grants.
func (s *Service) CreateGrant(ctx context.Context, tenant string, n NewGrant) (Grant, error) {
	t, err := s.tenantWithPlan(ctx, tenant)
	if err != nil {
		return Grant{}, err
	}
	now := s.instant()
	var f problem.Fields
	g := n.validate(&f, t, now)
	if err := f.Err(); err != nil {
		return Grant{}, err
	}
	g.ID, g.TenantID, g.CreatedAt = audit.NewID(), t.ID, now
	e := entry(ctx, "grant.create", g.TenantID, g.ID, g.Policy, nil, g)
	g.CreatedBy = e.Actor
	return s.store.CreateGrant(ctx, g, e)
}

// DeleteGrant deletes a grant, so that it ends immediately. The error is problem.NotFound if there
// is none.
func (s *Service) DeleteGrant(ctx context.Context, tenant, id string) error {
	g, err := s.Grant(ctx, tenant, id)
	if err != nil {
		return err
	}
	e := entry(ctx, "grant.delete", g.TenantID, g.ID, g.Policy, g, nil)
	return s.store.DeleteGrant(ctx, g.TenantID, g.ID, e)
}

// A Reset is a request to delete the counters of one key of a policy, or to end one lease of its
// concurrency limits.
type Reset struct {
	Tenant tenants.Tenant
	Policy string            // slug
	Key    map[string]string // like Block.Key, in canonical form
	Reason string            // up to MaxReason characters
	Lease  string            // ID of the lease to end; if it is "", the counters are deleted
}

// PlanReset validates a reset and returns it. It changes nothing. The caller must then call
// NoteReset, and after that delete the counters in the limiter. The error is problem.Invalid or
// problem.NotFound.
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

// NoteReset writes the audit line of a reset. The caller must call it before it deletes the
// counters. If the process crashes between these two steps, the audit log has a line for a reset
// that did not happen. In the other order, a reset could happen without an audit line.
func (s *Service) NoteReset(ctx context.Context, r Reset) error {
	action := "counter.reset"
	if r.Lease != "" {
		action = "lease.revoke"
	}
	e := entry(ctx, action, r.Tenant.ID, r.Policy, r.Policy, nil, r)
	return s.store.NoteReset(ctx, r.Tenant.ID, e)
}

// A ReservationNote is the content of an audit line about a person's change of a reservation.
type ReservationNote struct {
	// Action is "reservation.settle", "reservation.extend" or "reservation.release".
	Action      string
	Reservation string // ID
	Reason      string // up to MaxReason characters
	// Cost and Attributes are the values with which the person settles the reservation. TTL is the
	// time from now to the new end.
	Cost       *int64
	Attributes map[string]string
	TTL        time.Duration
}

// NoteReservation validates the reason, and writes the audit line of a change of a tenant's
// reservation. Like NoteReset, it must be called before the change.
func (s *Service) NoteReservation(ctx context.Context, tenantID string, n ReservationNote) error {
	var f problem.Fields
	f.Line("/reason", n.Reason, 0, MaxReason)
	if err := f.Err(); err != nil {
		return err
	}
	return s.store.NoteReset(ctx, tenantID, entry(ctx, n.Action, tenantID, n.Reservation, n.Reservation, nil, n))
}

// A tenantWithPlan is a tenant with the policies of its published plan. If the tenant has no
// plan, policies is empty.
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

// instant returns the current time, rounded down to milliseconds. Every store can store this
// precision.
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
