package usage

import (
	"context"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
)

// Reset makes the counters of one key of one policy as if new. key is as in Key.
//
// The audit line comes first: a line without its reset can be found out, a reset
// without its line cannot. NotFound and Invalid are those of exceptions.PlanReset;
// Unavailable means that nothing, or not everything, was forgotten: ask again.
func (s *Service) Reset(ctx context.Context, tenant, policy string, key map[string]string, reason string) error {
	if s.cfg.Exceptions == nil {
		return problem.New(problem.Unavailable, "this node does not manage exceptions")
	}
	reset, err := s.cfg.Exceptions.PlanReset(ctx, tenant, policy, key, reason)
	if err != nil {
		return err
	}
	subject, rule, err := s.counted(reset)
	if err != nil {
		return err
	}
	if err := s.cfg.Exceptions.NoteReset(ctx, reset); err != nil {
		return err
	}
	check := enforcement.Check{}
	for name, value := range reset.Key {
		check.Attributes = append(check.Attributes, enforcement.Attribute{Name: name, Value: value})
	}
	if err := s.cfg.Engine.Reset(ctx, subject, rule, rule.PartitionOf(&check)); err != nil {
		return &problem.Problem{
			Kind: problem.Unavailable, Code: "limiter_unavailable",
			Message: "the counters cannot be reached: nothing, or not everything, was forgotten; send it again", Cause: err,
		}
	}
	return nil
}

// counted finds what this node counts a reset's key under: a policy may be
// published, and not be in its snapshot yet.
func (s *Service) counted(r exceptions.Reset) (*enforcement.Subject, *enforcement.Rule, error) {
	if world := s.cfg.Snapshot(); world != nil {
		if subject, ok := world.Subject(r.Tenant.ID); ok && subject.Plan != nil {
			if rule, ok := subject.Plan.Rule(r.Policy); ok {
				return subject, rule, nil
			}
		}
	}
	return nil, nil, problem.New(problem.Unavailable, "this node does not know of the policy yet: nothing was forgotten; send it again")
}
