package enforcement

import "context"

// Reset forgets what every limit of a policy counted for one partition, shadow
// or not, in one call.
func (e *Engine) Reset(ctx context.Context, s *Subject, r *Rule, partition [16]byte) error {
	if len(r.Limits) == 0 {
		return nil
	}
	request := Request{ID: e.idAt(e.now().UnixMicro()), Mode: Reset, Home: s.Home}
	of, rev := s.Exceptions.of(r), int64(0)
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
	if e.memory != nil {
		now := e.memory.Now()
		for k := range request.Charges {
			e.memory.Remember(&request.Charges[k], new(State), outcomes[0].At, now)
		}
	}
	return nil
}
