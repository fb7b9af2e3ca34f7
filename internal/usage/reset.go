package usage

import (
	"context"
	"slices"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
)

// Reset deletes the counters of one key of one policy. key has the same form as for Service.Key.
//
// Reset writes the audit line before it deletes the counters. If the process crashes between these
// two steps, the audit log has a line for a reset that did not happen. In the other order, a reset
// could happen without an audit line.
//
// The error is problem.NotFound or problem.Invalid, as for exceptions.PlanReset. If some or all
// counters were not deleted, the error is problem.Unavailable, and the caller can try again.
func (s *Service) Reset(ctx context.Context, tenant, policy string, key map[string]string, reason string) error {
	reset, err := s.plan(ctx, tenant, policy, key, reason)
	if err != nil {
		return err
	}
	subject, rule, err := s.note(ctx, reset)
	if err != nil {
		return err
	}
	if err := s.cfg.Engine.Reset(ctx, subject, rule, partitionOf(rule, reset)); err != nil {
		return &problem.Problem{
			Kind: problem.Unavailable, Code: "limiter_unavailable",
			Message: "the limiter is unavailable: some or all counters were not reset; send the request again", Cause: err,
		}
	}
	return nil
}

// RevokeLease ends a lease of one key of one policy on each of its concurrency limits. lease is the
// ID of the lease, either as the holder chose it or in the form of Holder.Lease. released is the
// number of places that the lease held, or 0 if the lease does not exist. slug is the slug of the
// tenant.
//
// Like Reset, RevokeLease writes the audit line first, and returns the same errors. If the counters
// show that no lease with this ID holds places, it writes no audit line. RevokeLease also returns
// problem.Invalid at /lease/id for an invalid ID, and at /policy for a policy without a concurrency
// limit.
func (s *Service) RevokeLease(ctx context.Context, tenant, policy string, key map[string]string, lease, reason string) (
	slug string, released int64, err error,
) {
	end, err := s.plan(ctx, tenant, policy, key, reason)
	if err != nil {
		return "", 0, err
	}
	var f problem.Fields
	if err := new(enforcement.Check).SetLeaseID(lease); err != nil {
		f.Add("/lease/id", "%v", err)
	}
	if end.Lease = lease; f.Err() != nil {
		return "", 0, f.Err()
	}
	subject, rule, err := s.counted(end)
	if err != nil {
		return "", 0, err
	}
	if !slices.ContainsFunc(rule.Limits, func(l enforcement.RuleLimit) bool { return l.Algorithm == enforcement.Concurrency }) {
		f.Add("/policy", "has no concurrency limit, so it has no leases")
		return "", 0, f.Err()
	}
	if !s.mayHold(ctx, tenant, policy, key, lease) {
		return subject.Tenant, 0, nil
	}
	if err := s.cfg.Exceptions.NoteReset(ctx, end); err != nil {
		return "", 0, err
	}
	released, err = s.cfg.Engine.ReleaseHolder(ctx, subject, rule, partitionOf(rule, end), lease)
	return subject.Tenant, released, err
}

// mayHold reports whether a lease may hold places for a key of a policy. If the counters cannot be
// read, it returns true, because a node may have granted the lease by itself.
func (s *Service) mayHold(ctx context.Context, tenant, policy string, key map[string]string, lease string) bool {
	u, err := s.Key(ctx, tenant, policy, key)
	if err != nil {
		return true
	}
	id := enforcement.LeaseID(lease)
	for _, l := range u.Policies[0].Keys[0].Limits {
		unlisted := l.Used > 0 && len(l.Holders) == 0 // if keys share a counter, the counter has no list of holders
		held := func(h Holder) bool { return enforcement.LeaseID(h.Lease) == id }
		if l.Limit.Algorithm == enforcement.Concurrency && (unlisted || slices.ContainsFunc(l.Holders, held)) {
			return true
		}
	}
	return false
}

// plan validates a reset.
func (s *Service) plan(ctx context.Context, tenant, policy string, key map[string]string, reason string) (exceptions.Reset, error) {
	if s.cfg.Exceptions == nil {
		return exceptions.Reset{}, problem.New(problem.Unavailable, "this node does not manage exceptions")
	}
	return s.cfg.Exceptions.PlanReset(ctx, tenant, policy, key, reason)
}

// note writes the audit line of a reset. It returns the compiled tenant and policy.
func (s *Service) note(ctx context.Context, r exceptions.Reset) (*enforcement.Subject, *enforcement.Rule, error) {
	subject, rule, err := s.counted(r)
	if err != nil {
		return nil, nil, err
	}
	return subject, rule, s.cfg.Exceptions.NoteReset(ctx, r)
}

// partitionOf returns the partition of the key of a reset.
func partitionOf(rule *enforcement.Rule, r exceptions.Reset) [16]byte {
	check := enforcement.Check{}
	for name, value := range r.Key {
		check.Attributes = append(check.Attributes, enforcement.Attribute{Name: name, Value: value})
	}
	return rule.PartitionOf(&check)
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
