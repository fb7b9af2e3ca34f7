package usage

import (
	"context"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
)

// Reset deletes the counters of one key of one policy. key has the same form as for
// Service.Key.
//
// Reset writes the audit line before it deletes the counters. If the process crashes in
// between, the audit log has a line for a reset that did not happen. In the other order, a
// reset could happen without a line.
//
// The error is problem.NotFound or problem.Invalid, as for exceptions.PlanReset. If some or all
// counters were not deleted, the error is problem.Unavailable, and the caller can try again.
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
			Message: "the limiter is unavailable: some or all counters were not reset; send the request again", Cause: err,
		}
	}
	return nil
}

// counted returns the compiled tenant and the rule by which this node counts the key of a
// reset. The error is problem.Unavailable if the snapshot of this node does not contain the
// policy yet, for example shortly after the plan was published.
func (s *Service) counted(r exceptions.Reset) (*enforcement.Subject, *enforcement.Rule, error) {
	if world := s.cfg.Snapshot(); world != nil {
		if subject, ok := world.Subject(r.Tenant.ID); ok && subject.Plan != nil {
			if rule, ok := subject.Plan.Rule(r.Policy); ok {
				return subject, rule, nil
			}
		}
	}
	return nil, nil, problem.New(problem.Unavailable, "this node has not loaded the policy yet: no counter was reset; send the request again")
}
