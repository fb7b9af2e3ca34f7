package enforcement

// before gives the answer to a check that comes before any policy: that of the
// tenant's status, of its deny list, or of its allow list, in this order; ""
// when none speaks. A forced check is stopped by none, but passes by the allow
// list uncharged.
func (s *Subject) before(c *Check, now int64) (why Reason, entry *ListEntry) {
	forced := c.Mode == Force
	if s.Suspended && !forced {
		return ReasonTenantSuspended, nil
	}
	if s.Steering == nil {
		return "", nil
	}
	if entry := s.Steering.deny.find(c, now); entry != nil {
		if forced {
			return "", nil
		}
		return ReasonDeniedByList, entry
	}
	if entry := s.Steering.allow.find(c, now); entry != nil {
		return ReasonAllowedByList, entry
	}
	return "", nil
}

// numbers are the limits of a rule as they hold for one check: the plan's, or
// those of an override.
type numbers struct {
	limits   []RuleLimit
	override *override
	rev      int64 // the least revision of their charges
	ended    int64 // how far below it they go
}

// numbers gives the numbers of a rule for a check.
func (s *Subject) numbers(r *Rule, c *Check, now int64) numbers {
	n := numbers{limits: r.Limits, rev: s.PlanRevision}
	if of := s.Steering.of(r); of != nil {
		n.steer(of, c, now)
	}
	return n
}

func (n *numbers) steer(of *steered, c *Check, now int64) {
	n.rev = max(n.rev, of.rev)
	if n.override, n.ended = of.choose(c, now); n.override != nil {
		n.limits = n.override.limits
	}
}

// revision is that of a charge on the kth limit. While an override has ended by
// the clock and nobody has raised the revision for it, the numbers that follow
// go below its revision: they read its states without their fraction of a unit,
// which was counted in the override's rate, and cannot take it for theirs.
func (n *numbers) revision(k int) int64 {
	return max(max(n.limits[k].Meter.Rev, n.rev)-n.ended, 1)
}
