package usage

import (
	"context"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/metrics"
	"github.com/headgate/headgate/problem"
	"github.com/headgate/headgate/snapshot"
	"github.com/headgate/headgate/steering"
)

// Config of a Service.
type Config struct {
	// Snapshot gives the world in force, nil before the first one.
	Snapshot func() *snapshot.Snapshot
	// Engine asks the limiter, and resets.
	Engine *enforcement.Engine
	// Analytics tells which keys are busy, and how fast. Default: none; then only
	// whole tenants and keys that are named are shown, and no pace is known.
	Analytics *metrics.Analytics
	// Steering plans resets and notes them. Default: none, and 503 to a reset.
	Steering *steering.Service
	// Now tells the time. Default time.Now.
	Now func() time.Time
}

// A Service tells of usage. It is safe for concurrent use.
//
// A tenant is told by id or slug. The caller has made sure that whoever asks may
// know of it.
type Service struct{ cfg Config }

// NewService makes a Service.
func NewService(cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{cfg}
}

// Tenant tells of every policy of a tenant's plan; NotFound, and Unavailable
// (code limiter_unavailable) when the limiter cannot be asked.
func (s *Service) Tenant(_ context.Context, tenant string) (Usage, error) {
	subject, err := s.subject(tenant)
	if err != nil {
		return Usage{}, err
	}
	return s.header(subject), errUnavailable
}

// Key tells of one key of one policy: Policies has that policy, with that one
// key. key has the values of count_by by the name of the attribute, as blocks and
// resets take them. NotFound, Invalid (what is no key of the policy), and
// Unavailable as Tenant.
func (s *Service) Key(_ context.Context, tenant, _ string, _ map[string]string) (Usage, error) {
	subject, err := s.subject(tenant)
	if err != nil {
		return Usage{}, err
	}
	return s.header(subject), errUnavailable
}

var errUnavailable = &problem.Problem{
	Kind: problem.Unavailable, Code: "limiter_unavailable",
	Message: "the counters cannot be reached: what is left is not known",
}

func (s *Service) subject(tenant string) (*enforcement.Subject, error) {
	if world := s.cfg.Snapshot(); world != nil {
		if subject, ok := world.Subject(tenant); ok {
			return subject, nil
		}
	}
	return nil, problem.New(problem.NotFound, "this node knows no such tenant")
}

func (s *Service) header(subject *enforcement.Subject) Usage {
	u := Usage{TenantID: subject.TenantID, Tenant: subject.Tenant, At: s.cfg.Now().UTC(), Policies: []PolicyUsage{}}
	if subject.Plan != nil {
		u.Plan, u.PlanVersion = subject.Plan.Slug, subject.Plan.Version
	}
	return u
}
