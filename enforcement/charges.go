package enforcement

import "slices"

// route returns the path pattern of the most specific rule among those that match a
// check. Metrics group decisions by it. It returns "(none)" if no rule matches.
func (p *Plan) route(matching []uint16) string {
	var best *Rule
	for _, i := range matching {
		if r := p.Rules[i]; best == nil || r.rank < best.rank {
			best = r
		}
	}
	if best == nil {
		return noRoute
	}
	return best.pattern.String()
}

// apply selects the rules to charge from the rules that match a check. A rule does not apply if it is
// off, if the check lacks an attribute and the rule skips such checks, or if another rule replaces it.
// Only rules in force (not shadow policies) replace other rules; they do so even if another rule replaces
// them.
//
// classes has the classes of all rules that apply, including those that another rule replaces. If none of
// these classes is in force, Subject.DenyUnmatched decides the check. So a shadow policy does not count
// as a match, and a caller cannot bypass DenyUnmatched by leaving out an attribute.
func (p *Plan) apply(matching []uint16, c *Check, to []uint16) (applying []uint16, classes classSet) {
	var space [64]uint16 // a check rarely has more replaced rules
	applying, replaced := to, space[:0]
	for _, i := range matching {
		r := p.Rules[i]
		if !r.Mode.Counts() || len(r.slots) > 0 && r.skips() && r.missing(c) != "" {
			continue
		}
		applying = append(applying, i)
		classes.add(r.class)
		if r.Mode.InForce() {
			replaced = append(replaced, r.replaces...)
		}
	}
	if len(replaced) > 0 {
		slices.Sort(replaced)
		applying = slices.DeleteFunc(applying, func(i uint16) bool { return contains(replaced, int(i)) })
	}
	return applying, classes
}

// skips reports whether the rule does not apply to a check that lacks one of its attributes. This is the
// case for missing: skip. It is also the case for a shadow policy with missing: deny, because a shadow
// policy denies nothing and such a check has no key to charge.
func (r *Rule) skips() bool {
	return r.Missing == MissingSkip || r.Missing == MissingDeny && !r.Mode.InForce()
}

// requestEach creates a separate request to the limiter for each item that has charges or an idempotency
// key.
func (w *call) requestEach(e *Engine) {
	for i := range w.items {
		it := &w.items[i]
		it.first = len(w.charges)
		w.chargeKey(e, it, !it.denied && len(it.Decision.Limits) > 0)
		groups := newGroups()
		it.enforced = w.charge(e, it, chargedTogether, &groups)
		it.soft = w.charge(e, it, chargedSeparately, &groups)
		it.shadow = w.charge(e, it, chargedInShadow, &groups)
	}
	// w.charges is complete now. Its memory no longer moves, so requests can refer to parts of it.
	for i := range w.items {
		if it := &w.items[i]; it.asks() {
			it.request = len(w.requests)
			w.request(e, w.items[i:i+1], w.charges[it.first:it.shadow.to], it.blocked)
		}
	}
}

// requestTogether creates one request to the limiter for an atomic batch. The request has the charges of
// all items. It has none if an item is denied already. The enforced charges of all items are group 0.
func (w *call) requestTogether(e *Engine, denied bool) {
	groups, blocked, limits := newGroups(), false, 0
	for i := range w.items {
		limits += len(w.items[i].Decision.Limits)
	}
	w.chargeKey(e, &w.items[0], limits > 0)
	if denied {
		if w.items[0].keyed {
			w.request(e, w.items, nil, false)
		}
		return
	}
	for i := range w.items {
		it := &w.items[i]
		it.enforced = w.charge(e, it, chargedTogether, &groups)
		blocked = blocked || it.blocked
	}
	for i := range w.items {
		w.items[i].soft = w.charge(e, &w.items[i], chargedSeparately, &groups)
	}
	for i := range w.items {
		w.items[i].shadow = w.charge(e, &w.items[i], chargedInShadow, &groups)
	}
	if len(w.charges) > 0 || w.items[0].keyed {
		w.request(e, w.items, w.charges, blocked)
	}
}

// request appends a request to the limiter that decides items. The request is a peek in two cases. If an
// item is blocked, only the time until the limits allow the check is needed. If there are no charges, the
// request only looks for the record of its idempotency key.
func (w *call) request(e *Engine, items []item, charges []Charge, blocked bool) {
	it := &items[0]
	mode := it.Check.Mode
	switch {
	case blocked || len(charges) == 0 && !it.reserves():
		mode = Peek
	case mode == TakeUpTo && it.enforced.len() > 0 && LargestCost(w.charges[it.enforced.from:it.enforced.to]) == 0:
		mode = Enforce // all costs are 0, for example from a cost_from attribute, so there is nothing to take
	}
	var id *Idempotency
	refundable := len(charges) > 0 && it.refundable()
	if it.keyed || refundable {
		id = idempotency(items, charges)
	}
	lease := it.Check.lease(it.Decision.ID)
	for i := range items {
		items[i].lease = lease
	}
	w.requests = append(w.requests, Request{
		ID: it.Decision.ID, Mode: mode, Home: it.Subject.Home, MaxKeys: it.Subject.MaxKeys, Idempotency: id, Lease: lease, Charges: charges,
	})
	switch r := &w.requests[len(w.requests)-1]; {
	case it.reserves():
		w.reserve(e, r, it)
	case refundable:
		w.keepForRefund(r, it)
	}
}

// FirstShadowGroup is the first Charge.Group of shadow policies. The groups below it, except 0,
// are those of soft policies.
const FirstShadowGroup = 1 << 15

// groups has, for each class of rules, the highest Charge.Group that is in use. All charges of enforced
// rules have group 0. Each rule of another class gets its own group number.
type groups [chargeClasses]uint16

func newGroups() groups { return groups{chargedInShadow: FirstShadowGroup - 1} }

// inForce reports whether the charge belongs to an enforced or a soft policy, and not to a shadow policy.
func (c *Charge) inForce() bool { return c.Group < FirstShadowGroup }

// charge appends the charges of one item for the rules of one class. It returns the range of these
// charges in w.charges.
func (w *call) charge(e *Engine, it *item, class chargeClass, groups *groups) span {
	from, position := len(w.charges), 0
	if it.denied || class != chargedTogether && !it.classes.has(class) {
		return span{from, from}
	}
	w.hashed = w.hashed[:0]
	s, c, d := it.Subject, it.Check, it.Decision
	for _, i := range d.applied {
		r := s.Plan.Rules[i]
		end := position // becomes the end of the rule's limits in d.Limits
		for end < len(d.Limits) && d.Limits[end].Rule == r {
			end++
		}
		if r.class != class || end == position {
			position = end
			continue
		}
		if class != chargedTogether {
			groups[class]++
		}
		partition := w.partitionOf(r, c)
		for ; position < end; position++ {
			l := &d.Limits[position]
			l.Partition = partition
			meter := l.Limit.Meter
			if meter.Period != NoPeriod {
				meter = meter.In(s.Calendar, w.clock(e))
			}
			// Growing the slice in place is faster than append, which would build the
			// charge first and then copy it.
			w.charges = slices.Grow(w.charges, 1)[:len(w.charges)+1]
			w.charges[len(w.charges)-1] = Charge{
				Key:   Key{Tenant: s.Number, Cell: l.Limit.Cell, Partition: partition},
				Meter: meter,
				Rev:   l.rev,
				Cost:  l.Cost,
				Group: groups[class],

				Leased: r.Consistency == Leased && l.Limit.Cell <= maxCell && c.IdempotencyKey == "" && c.Reservation == nil && !c.Refundable &&
					c.Mode != TakeUpTo,
			}
			w.positions = append(w.positions, position)
			if s.Exceptions != nil && r.Mode == PolicyEnforce && l.Limit.Cell <= maxCell {
				w.chargeGrants(it, l, position)
			}
		}
	}
	return span{from, len(w.charges)}
}

// chargeGrants appends charges on the counters of the grants of a limit, after the charge of the limit.
// It turns leasing off for this charge, because a node that spends leased quota does not know when the
// shared window has nothing left. If an override sets the quota to 0, chargeGrants appends nothing: such
// a limit denies everything, and even a check in mode Force spends no grant.
func (w *call) chargeGrants(it *item, l *LimitState, position int) {
	if l.Limit.Quota == 0 {
		return
	}
	w.grants = it.Subject.Exceptions.of(l.Rule).grantsOf(int(l.position), l.Partition, it.now, w.grants[:0])
	if len(w.grants) == 0 {
		return
	}
	w.charges[len(w.charges)-1].Leased = false
	w.charges = appendGrants(w.charges, it.Subject, w.grants)
	for range w.grants {
		w.positions = append(w.positions, position)
	}
}

// partitionOf returns the partition in which a rule counts a check. Rules with the same
// count_by share one hash of the values.
func (w *call) partitionOf(r *Rule, c *Check) [16]byte {
	if len(r.slots) == 0 {
		return [16]byte{}
	}
	for i := range w.hashed {
		if w.hashed[i].countedBy == r.countedBy {
			return w.hashed[i].sum
		}
	}
	sum := r.partition(c, &w.partition)
	w.hashed = append(w.hashed, hashedPartition{r.countedBy, sum})
	return sum
}
