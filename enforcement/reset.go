package enforcement

import "context"

// Reset forgets what every limit of a policy counted for one partition, shadow
// or not, in one call.
func (e *Engine) Reset(ctx context.Context, s *Subject, r *Rule, partition [16]byte) error {
	if len(r.Limits) == 0 {
		return nil
	}
	request := Request{ID: e.newID(), Mode: Reset, Home: s.Home}
	of, rev := s.Steering.of(r), int64(0)
	if of != nil {
		rev = of.rev
	}
	for k := range r.Limits {
		l := &r.Limits[k]
		request.Charges = append(request.Charges, Charge{
			Key:   Key{Tenant: s.Number, Cell: l.Cell, Partition: partition},
			Meter: l.Meter,
			Rev:   max(l.Meter.Rev, s.PlanRevision, rev),
		})
	}
	outcomes := make([]Outcome, 1)
	e.takeFrom(ctx, e.limiter, []Request{request}, outcomes)
	if o := &outcomes[0]; !o.Verdict.Decided() {
		return o.notDecided("reset policy " + r.Policy)
	}
	return nil
}
