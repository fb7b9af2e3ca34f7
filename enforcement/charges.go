package enforcement

import "slices"

// route returns the pattern of the most specific of the matching rules.
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

// apply appends the positions of the matching rules that apply. A rule does not
// apply if it is off, if it skips a check without its attribute, or if another
// rule replaces it. Only rules in mode enforce replace others, even if they are
// replaced themselves.
//
// enforced reports whether a rule in mode enforce applies. It is computed before
// replacement. Without such a rule, the tenant's default decides: shadow policies
// then do not change the answer, and a caller cannot bypass a default of deny by
// leaving out an attribute. shadows is false if no shadow policy applies.
func (p *Plan) apply(matching []uint16, c *Check, to []uint16) (applying []uint16, enforced, shadows bool) {
	var space [64]uint16 // more replaced rules are rare
	applying, replaced := to, space[:0]
	for _, i := range matching {
		r := p.Rules[i]
		if r.Mode == PolicyOff || len(r.slots) > 0 && r.skips() && r.missing(c) != "" {
			continue
		}
		applying = append(applying, i)
		if r.Mode == PolicyShadow {
			shadows = true
			continue
		}
		enforced = true
		replaced = append(replaced, r.replaces...)
	}
	if len(replaced) > 0 {
		slices.Sort(replaced)
		applying = slices.DeleteFunc(applying, func(i uint16) bool { return contains(replaced, int(i)) })
	}
	return applying, enforced, shadows
}

// skips reports whether the rule does not apply to a check that lacks one of its
// attributes. A shadow policy that denies such checks has nothing to charge.
func (r *Rule) skips() bool {
	return r.Missing == MissingSkip || r.Missing == MissingDeny && r.Mode == PolicyShadow
}

// requestEach makes one request for each item that has charges.
func (w *call) requestEach() {
	for i := range w.items {
		it, group := &w.items[i], uint16(0)
		it.enforced = w.charge(it, PolicyEnforce, &group)
		it.shadow = w.charge(it, PolicyShadow, &group)
	}
	// From here on, w.charges does not move.
	for i := range w.items {
		if it := &w.items[i]; it.hasCharges() {
			it.request = len(w.requests)
			w.request(it, w.charges[it.enforced.from:it.shadow.to], it.blocked)
		}
	}
}

// requestTogether makes one request with the charges of all items. The enforced
// charges of all items form group 0.
func (w *call) requestTogether() {
	group, blocked := uint16(0), false
	for i := range w.items {
		it := &w.items[i]
		it.enforced = w.charge(it, PolicyEnforce, &group)
		blocked = blocked || it.blocked
	}
	for i := range w.items {
		w.items[i].shadow = w.charge(&w.items[i], PolicyShadow, &group)
	}
	if len(w.charges) > 0 {
		w.request(&w.items[0], w.charges, blocked)
	}
}

// request appends a request. The request of a blocked item is a peek: it only
// computes how long the limits would deny the check.
func (w *call) request(it *item, charges []Charge, blocked bool) {
	mode := it.Check.Mode
	if blocked {
		mode = Peek
	}
	w.requests = append(w.requests, Request{ID: it.Decision.ID, Mode: mode, Home: it.Subject.Home, Charges: charges})
}

// charge appends the charges of an item's rules of one mode, and returns their
// span. The charges of enforced rules are in group 0. Each shadow rule increments
// group and has a group of its own.
func (w *call) charge(it *item, mode PolicyMode, group *uint16) span {
	from, position := len(w.charges), 0
	if it.denied || mode == PolicyShadow && !it.hasShadow {
		return span{from, from}
	}
	w.hashed = w.hashed[:0]
	s, c, d := it.Subject, it.Check, it.Decision
	for _, i := range d.applied {
		r := s.Plan.Rules[i]
		if r.Mode != mode || len(r.Limits) == 0 {
			position += len(r.Limits)
			continue
		}
		if mode == PolicyShadow {
			*group++
		}
		partition := w.partitionOf(r, c)
		for range r.Limits {
			l := &d.Limits[position]
			l.Partition = partition
			// append would build each charge twice.
			w.charges = slices.Grow(w.charges, 1)[:len(w.charges)+1]
			w.charges[len(w.charges)-1] = Charge{
				Key:   Key{Tenant: s.Number, Cell: l.Limit.Cell, Partition: partition},
				Meter: l.Limit.Meter,
				Rev:   l.rev,
				Cost:  c.Cost,
				Group: *group,

				Leased: r.Consistency == Leased,
			}
			w.positions = append(w.positions, position)
			position++
		}
	}
	return span{from, len(w.charges)}
}

// partitionOf returns the partition of a check for a rule. It hashes the values
// once for all rules with the same count_by.
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
