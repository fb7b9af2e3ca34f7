package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/audit"
	"github.com/headgate/headgate/metrics"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/problem"
	"github.com/headgate/headgate/steering"
	"github.com/headgate/headgate/tenants"
)

// setting is the name of the row that says what was made. Nothing else is the
// demo's, whatever it is called.
const setting = "demo"

// The lease of who makes traffic, or removes what was made: one process at a time.
const (
	lease     = "demo"
	leaseLife = 10 * time.Second
)

// nodePrefix begins the name of every process of which history tells; those of
// real ones are UUIDs.
const nodePrefix = "demo-"

// A Store keeps what the demo needs beside tenants, plans and counts.
type Store interface {
	// Setting gives "" without one.
	Setting(ctx context.Context, name string) (string, error)
	PutSetting(ctx context.Context, name, value string, e audit.Entry) error
	// DeleteSetting removes a setting; one that is not there is no error.
	DeleteSetting(ctx context.Context, name string, e audit.Entry) error
	// DropLease gives a lease back that TakeLease gave to a holder.
	DropLease(ctx context.Context, name, holder string) error
	// ForgetCounts removes every count, sketch and kept refusal of tenants by
	// their numbers, takes them out of those of all tenants together, and removes
	// the marks of nodes whose name begins with a prefix. It is several
	// transactions: when one fails, asking again goes on.
	ForgetCounts(ctx context.Context, numbers []uint32, nodes string, without metrics.Without) (metrics.Forgotten, error)
	// The store of counts, for the history and the lease.
	metrics.Store
}

// Config of a Service; the zero value is usable.
type Config struct {
	// Now tells the time. Default time.Now.
	Now func() time.Time
	// Logger hears how far making has come. Default: silent.
	Logger *slog.Logger
}

// A Service knows the demo of one database. It is safe for concurrent use.
type Service struct {
	store    Store
	tenants  *tenants.Service
	plans    *plans.Service
	steering *steering.Service
	now      func() time.Time
	log      *slog.Logger
}

// NewService makes a Service on a Store.
func NewService(s Store, t *tenants.Service, p *plans.Service, st *steering.Service, c Config) *Service {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Service{store: s, tenants: t, plans: p, steering: st, now: c.Now, log: c.Logger}
}

// A Made is one tenant or plan that the demo made.
type Made struct {
	ID   string `json:"id"`
	Slug string `json:"slug"`
	// Number of a tenant; 0 of a plan.
	Number uint32 `json:"number,omitempty"`
}

// Info is what there is of the demo in the database.
type Info struct {
	// Present: there is something. The other fields are empty without.
	Present bool      `json:"-"`
	MadeAt  time.Time `json:"made_at"`
	Tenants []Made    `json:"tenants"`
	Plans   []Made    `json:"plans"`
	// Making: it is not all there, because it is being made or whoever made it
	// was stopped.
	Making bool `json:"making,omitempty"`
}

// Present tells what there is of the demo: one read of one row.
func (s *Service) Present(ctx context.Context) (Info, error) {
	text, err := s.store.Setting(ctx, setting)
	if err != nil || text == "" {
		return Info{}, err
	}
	var i Info
	if err := json.Unmarshal([]byte(text), &i); err != nil {
		return Info{}, fmt.Errorf("read what the demo made: %w", err)
	}
	i.Present = true
	return i, nil
}

// numbers of the tenants.
func (i Info) numbers() []uint32 {
	list := make([]uint32, len(i.Tenants))
	for k, t := range i.Tenants {
		list[k] = t.Number
	}
	return list
}

// note writes what was made.
func (s *Service) note(ctx context.Context, i Info, action string) error {
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	e := audit.Entry{Action: action, After: text}
	e.Actor, e.Origin = audit.Who(ctx)
	return s.store.PutSetting(ctx, setting, string(text), e)
}

// Removed is what Remove took out.
type Removed struct {
	Tenants, Plans []string // slugs
	// Kept are plans of the demo that other tenants are on. They are no longer
	// the demo's.
	Kept []string
	metrics.Forgotten
}

// Remove takes out everything that the demo made, and nothing else: tenants with
// their keys, members, overrides, lists and blocks, plans, counts and kept
// refusals. Lines of the audit log stay. Traffic that runs somewhere ends first,
// which may take some seconds. It can be repeated when it fails on its way;
// NotFound without a demo.
func (s *Service) Remove(ctx context.Context) (Removed, error) {
	var r Removed
	i, err := s.Present(ctx)
	if err != nil {
		return r, err
	}
	if !i.Present {
		return r, problem.New(problem.NotFound, "there is no demo data")
	}
	for _, made := range i.Tenants {
		if err := s.removeTenant(ctx, made, &r); err != nil {
			return r, err
		}
	}
	for _, made := range i.Plans {
		if err := s.removePlan(ctx, made, &r); err != nil {
			return r, err
		}
	}
	holder := uuid.NewString()
	if err := s.awaitQuiet(ctx, holder); err != nil {
		return r, fmt.Errorf("wait for the demo's traffic to end: %w", err)
	}
	defer func() { _ = s.store.DropLease(context.WithoutCancel(ctx), lease, holder) }()
	r.Forgotten, err = s.store.ForgetCounts(ctx, i.numbers(), nodePrefix, metrics.WithoutTenants)
	if err != nil {
		return r, err
	}
	before, err := json.Marshal(i)
	if err != nil {
		return r, err
	}
	e := audit.Entry{Action: "demo.remove", Before: before}
	e.Actor, e.Origin = audit.Who(ctx)
	return r, s.store.DeleteSetting(ctx, setting, e)
}

// tries is how often something is removed that changes meanwhile.
const tries = 5

func (s *Service) removeTenant(ctx context.Context, made Made, r *Removed) error {
	for try := 1; ; try++ {
		t, err := s.tenants.Tenant(ctx, made.ID)
		if err == nil {
			err = s.tenants.DeleteTenant(ctx, t.ID, t.Revision)
		}
		switch {
		case err == nil:
			r.Tenants = append(r.Tenants, made.Slug)
			return nil
		case problem.Is(err, problem.NotFound):
			return nil // somebody did it before
		case !problem.Is(err, problem.Stale) || try == tries:
			return fmt.Errorf("remove tenant %s: %w", made.Slug, err)
		}
	}
}

func (s *Service) removePlan(ctx context.Context, made Made, r *Removed) error {
	for try := 1; ; try++ {
		p, err := s.plans.Plan(ctx, made.ID)
		if err == nil {
			err = s.plans.DeletePlan(ctx, p.ID, p.Revision)
		}
		switch {
		case err == nil:
			r.Plans = append(r.Plans, made.Slug)
			return nil
		case problem.Is(err, problem.NotFound):
			return nil
		case problem.Is(err, problem.Conflict): // plan_in_use
			r.Kept = append(r.Kept, made.Slug)
			return nil
		case !problem.Is(err, problem.Stale) || try == tries:
			return fmt.Errorf("remove plan %s: %w", made.Slug, err)
		}
	}
}

// awaitQuiet takes the lease, which whoever makes traffic gives back when it
// finds its tenants gone and its counts written. One that was killed has it no
// longer than its life.
func (s *Service) awaitQuiet(ctx context.Context, holder string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		mine, err := s.store.TakeLease(ctx, lease, holder, time.Minute)
		if err != nil || mine {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// holds reports whether all of the names are those of the demo's tenants.
func (i Info) holds(slug string) bool {
	return slices.ContainsFunc(i.Tenants, func(m Made) bool { return m.Slug == slug })
}
