package enforcement

import "context"

// Reset deletes the counters of all limits of a policy for one partition, including the counters of sent limits. It calls
// the limiter once. The policy may have any mode.
func (e *Engine) Reset(ctx context.Context, s *Subject, r *Rule, partition [16]byte) error {
	if len(r.Limits) == 0 {
		return nil
	}
	now := e.now().UnixMicro()
	request := Request{ID: e.newIDAt(now), Mode: Reset, Home: s.Home, MaxKeys: s.MaxKeys}
	exceptions, rev := s.Exceptions.of(r), s.PlanRevision
	if exceptions != nil {
		rev = max(rev, exceptions.rev)
	}
	for k := range r.Limits {
		l := &r.Limits[k]
		request.Charges = append(request.Charges, Charge{
			Key:   Key{Tenant: s.Number, Cell: l.Cell, Partition: partition},
			Meter: l.Meter.In(s.Calendar, now),
			Rev:   max(l.Meter.Rev, rev),
		})
	}
	for _, window := range SentWindows {
		l := r.compileSent(SentLimit{Quota: 1, Window: window})
		request.Charges = append(request.Charges, Charge{
			Key: Key{Tenant: s.Number, Cell: l.Cell, Partition: partition}, Meter: l.Meter, Rev: max(l.Meter.Rev, s.PlanRevision),
		})
	}
	outcomes := make([]Outcome, 1)
	takeFrom(ctx, e.limiter, []Request{request}, outcomes)
	if o := &outcomes[0]; !o.Verdict.Decided() {
		return o.undecidedError("reset policy " + r.Policy)
	}
	if e.memory != nil {
		now := e.memory.Now()
		for k := range request.Charges {
			e.memory.Remember(&request.Charges[k], new(State), outcomes[0].At, now)
		}
	}
	return nil
}
