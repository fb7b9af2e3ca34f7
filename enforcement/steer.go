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
