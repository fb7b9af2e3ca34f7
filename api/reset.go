package api

import (
	"context"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/problem"
	"github.com/headgate/headgate/steering"
)

// ResetKey is POST /v1/tenants/{tenant}/reset. The audit line comes first: a
// line without its reset can be found out, a reset without its line cannot.
func (a *API) ResetKey(ctx context.Context, r ResetKeyRequestObject) (ResetKeyResponseObject, error) {
	s, err := a.steer()
	if err != nil {
		return nil, err
	}
	reset, err := s.PlanReset(ctx, r.Tenant, r.Body.Policy, r.Body.Key, r.Body.Reason)
	if err != nil {
		return nil, err
	}
	subject, rule, err := a.counted(reset)
	if err != nil {
		return nil, err
	}
	if err := s.NoteReset(ctx, reset); err != nil {
		return nil, err
	}
	key := enforcement.Check{}
	for name, value := range reset.Key {
		key.Attributes = append(key.Attributes, enforcement.Attribute{Name: name, Value: value})
	}
	if err := a.cfg.Decider.Reset(ctx, subject, rule, rule.PartitionOf(&key)); err != nil {
		return nil, &problem.Problem{
			Kind: problem.Unavailable, Code: "limiter_unavailable",
			Message: "the counters cannot be reached: nothing, or not everything, was forgotten; send it again", Cause: err,
		}
	}
	return ResetKey204Response{}, nil
}

// counted finds what this node counts a reset's key under: a policy may be
// published, and not be in its snapshot yet.
func (a *API) counted(r steering.Reset) (*enforcement.Subject, *enforcement.Rule, error) {
	if world := a.cfg.Snapshot(); world != nil {
		if s, ok := world.Subject(r.Tenant.ID); ok && s.Plan != nil {
			if rule, ok := s.Plan.Rule(r.Policy); ok {
				return s, rule, nil
			}
		}
	}
	return nil, nil, problem.New(problem.Unavailable, "this node does not know of the policy yet: nothing was forgotten; send it again")
}
