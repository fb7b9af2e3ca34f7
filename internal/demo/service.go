package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// setting is the name of the row that says what was made. Nothing else is the
// demo's, whatever it is called.
const setting = "demo"

// Leases: of who makes traffic, and of who fills or removes the demo. Each is one
// process at a time.
const (
	trafficLease = "demo traffic"
	changeLease  = "demo change"
	leaseLife    = 15 * time.Second
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
	// History is how long what is told of the past is, or of the time since the
	// demo was last there. Default a week.
	History time.Duration
	// Logger hears how far making has come. Default: silent.
	Logger *slog.Logger
}

// A Service knows the demo of one database. It is safe for concurrent use.
type Service struct {
	store      Store
	tenants    *tenants.Service
	plans      *plans.Service
	exceptions *exceptions.Service
	now        func() time.Time
	history    time.Duration
	log        *slog.Logger
	observe    func(*enforcement.Decision) // of the history; for tests
}

// NewService makes a Service on a Store.
func NewService(s Store, t *tenants.Service, p *plans.Service, st *exceptions.Service, c Config) *Service {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.History <= 0 {
		c.History = 7 * 24 * time.Hour
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Service{store: s, tenants: t, plans: p, exceptions: st, now: c.Now, history: c.History, log: c.Logger}
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
	// Dated is when plans and tenants stand as made: before the history. Zero of
	// what was made by programs that did not date.
	Dated   time.Time `json:"dated,omitzero"`
	Tenants []Made    `json:"tenants"`
	Plans   []Made    `json:"plans"`
	// Making: it is not all there, because it is being made or whoever made it
	// was stopped. Ids are empty then.
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
	holder := uuid.NewString()
	if err := s.await(ctx, changeLease, holder); err != nil {
		return Removed{}, err
	}
	defer s.drop(ctx, changeLease, holder)
	i, err := s.Present(ctx)
	if err != nil {
		return Removed{}, err
	}
	if !i.Present {
		return Removed{}, problem.New(problem.NotFound, "there is no demo data")
	}
	return s.remove(ctx, i)
}

// remove is Remove, with the lease.
func (s *Service) remove(ctx context.Context, i Info) (r Removed, err error) {
	if i.Making {
		if i, err = s.find(ctx, i); err != nil {
			return r, err
		}
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
	// Whoever makes traffic gives its lease back when it finds its tenants gone
	// and its counts written.
	holder := uuid.NewString()
	if err := s.await(ctx, trafficLease, holder); err != nil {
		return r, fmt.Errorf("wait for the demo's traffic to end: %w", err)
	}
	defer s.drop(ctx, trafficLease, holder)
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

// find completes what was noted before it was made: slugs that were free then.
func (s *Service) find(ctx context.Context, i Info) (Info, error) {
	found := Info{Present: true, MadeAt: i.MadeAt, Dated: i.Dated, Tenants: []Made{}, Plans: []Made{}}
	for _, made := range i.Tenants {
		t, err := s.tenants.Tenant(ctx, made.Slug)
		switch {
		case err == nil && i.made(t.CreatedAt):
			found.Tenants = append(found.Tenants, Made{ID: t.ID, Slug: t.Slug, Number: t.Number})
		case err != nil && !problem.Is(err, problem.NotFound):
			return found, err
		}
	}
	for _, made := range i.Plans {
		p, err := s.plans.Plan(ctx, made.Slug)
		switch {
		case err == nil && i.made(p.CreatedAt):
			found.Plans = append(found.Plans, Made{ID: p.ID, Slug: p.Slug})
		case err != nil && !problem.Is(err, problem.NotFound):
			return found, err
		}
	}
	return found, s.note(ctx, found, "demo.find")
}

// made reports whether what was made then may be the demo's, which began to be
// made when its slugs were free.
func (i Info) made(at time.Time) bool {
	return !at.Before(i.MadeAt) || at.Equal(i.Dated)
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

// await takes a lease, as soon as nobody else has it. One that was killed has it
// no longer than its life.
func (s *Service) await(ctx context.Context, name, holder string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		mine, err := s.store.TakeLease(ctx, name, holder, leaseLife)
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

// drop gives a lease back. If it cannot, the lease ends by itself.
func (s *Service) drop(ctx context.Context, name, holder string) {
	if err := s.store.DropLease(context.WithoutCancel(ctx), name, holder); err != nil {
		s.log.Warn("the demo's lease could not be given back; it ends by itself", "error", err)
	}
}
