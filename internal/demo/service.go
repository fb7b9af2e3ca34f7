package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/retry"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// setting is the name of the stored setting that contains the Info. A database with this
// setting belongs to a demo.
const setting = "demo"

// The leases of the demo. The process that holds trafficLease sends live traffic. The process
// that holds fillLease runs Fill.
const (
	trafficLease = "demo traffic"
	fillLease    = "demo fill"
	leaseLife    = 15 * time.Second
)

// A Store has the methods of the database that the demo calls directly, not through a service.
type Store interface {
	// Setting returns the value of a stored setting, or "" if the setting has no stored value.
	Setting(ctx context.Context, name string) (string, error)
	PutSetting(ctx context.Context, name, value string, e audit.Entry) error
	// Empty reports whether the database has no tenants, no plans and no operator keys.
	Empty(ctx context.Context) (bool, error)
	// DropLease ends a lease if the holder has it.
	DropLease(ctx context.Context, name, holder string) error
	// The demo writes the counts of its history to metrics.Store, which also stores the leases.
	metrics.Store
}

// Config configures a Service. The zero value is usable.
type Config struct {
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
	// History is the length of the history that Fill creates. If the demo database already exists,
	// Fill adds the counts that are missing since the newest count, for at most this length of
	// time. Default: a week.
	History time.Duration
	// Logger logs the progress of Fill. Default: no logging.
	Logger *slog.Logger
}

// A Service creates the demo in a database, and sends its live traffic. It is safe for concurrent
// use.
type Service struct {
	store      Store
	tenants    *tenants.Service
	plans      *plans.Service
	exceptions *exceptions.Service
	now        func() time.Time
	history    time.Duration
	log        *slog.Logger
	observe    func(*enforcement.Decision) // tests set it; called with every decision of the history
}

// NewService returns a Service that uses a store and the services.
func NewService(s Store, t *tenants.Service, p *plans.Service, e *exceptions.Service, c Config) *Service {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.History = cmp.Or(c.History, 7*24*time.Hour)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return &Service{store: s, tenants: t, plans: p, exceptions: e, now: c.Now, history: c.History, log: c.Logger}
}

// A Made identifies a tenant that the demo created.
type Made struct {
	ID     string `json:"id"`
	Slug   string `json:"slug"`
	Number uint32 `json:"number"`
}

// Info describes the demo in a database. It is stored as a setting.
type Info struct {
	// Present says that this database belongs to a demo. If it is false, the other fields are
	// empty.
	Present bool      `json:"-"`
	MadeAt  time.Time `json:"made_at"`
	Tenants []Made    `json:"tenants"`
	// Making says that Fill has begun and has not created all plans and tenants yet. Tenants is
	// then empty.
	Making bool `json:"making,omitempty"`
}

// Present returns the Info of the database. If the database does not belong to a demo,
// Info.Present is false.
func (s *Service) Present(ctx context.Context) (Info, error) { return present(ctx, s.store) }

func present(ctx context.Context, s Store) (Info, error) {
	text, err := s.Setting(ctx, setting)
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

// Check returns a problem.Conflict if Fill cannot use the database. Fill cannot use a database with
// data that the demo did not create. It also cannot use a database in which another call of Fill is
// running or was interrupted. Check only reads.
func Check(ctx context.Context, s Store) error {
	i, err := present(ctx, s)
	if err != nil {
		return err
	}
	if i.Making {
		return problem.New(problem.Conflict,
			"the demo in this database is incomplete: another process is still making it, or was stopped before it was done")
	}
	if i.Present {
		return nil
	}
	empty, err := s.Empty(ctx)
	if err == nil && !empty {
		err = problem.New(problem.Conflict, "this database has data that headgate demo did not make")
	}
	return err
}

// numbers returns the tenant numbers of the demo's tenants.
func (i Info) numbers() []uint32 {
	list := make([]uint32, len(i.Tenants))
	for k, t := range i.Tenants {
		list[k] = t.Number
	}
	return list
}

// note stores the Info i and writes an audit line with the given action.
func (s *Service) note(ctx context.Context, i Info, action string) error {
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	e := audit.Entry{Action: action, After: text}
	e.Actor, e.Origin = audit.Who(ctx)
	return s.store.PutSetting(ctx, setting, string(text), e)
}

// await acquires a lease. While another process holds the lease, await waits. If that process
// was killed, its lease ends after leaseLife.
func (s *Service) await(ctx context.Context, name, holder string) error {
	for {
		mine, err := s.store.TakeLease(ctx, name, holder, leaseLife)
		if err != nil || mine {
			return err
		}
		if err := retry.Wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// drop ends a lease. If that fails, the lease ends by itself after leaseLife.
func (s *Service) drop(ctx context.Context, name, holder string) {
	if err := s.store.DropLease(context.WithoutCancel(ctx), name, holder); err != nil {
		s.log.Warn("cannot end the demo's lease: it ends by itself after "+leaseLife.String(), "error", err)
	}
}
