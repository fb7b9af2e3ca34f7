package api

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
)

// The wire format that overrides, list entries and blocks share. The exceptions
// service validates them. Whether one has an effect depends on the plan in force.

// A made has the fields that every exception shows about its creation.
type made struct {
	id, tenant uuid.UUID
	by         Actor
}

func showMade(id, tenantID string, by audit.Actor) (made, error) {
	own, err := parseUUID(id)
	if err != nil {
		return made{}, err
	}
	tenant, err := parseUUID(tenantID)
	return made{own, tenant, showActor(by)}, err
}

// ended returns InactiveBecauseEnded for an exception that has expired.
func (a *API) ended(expires time.Time) InactiveBecause {
	if !expires.IsZero() && !a.cfg.Now().Before(expires) {
		return InactiveBecauseEnded
	}
	return ""
}

// rule returns a policy of the tenant's plan in force, or nil.
func (c caller) rule(tenantID, policy string) *enforcement.Rule {
	if s, ok := c.world.Subject(tenantID); ok && s.Plan != nil {
		if r, ok := s.Plan.Rule(policy); ok {
			return r
		}
	}
	return nil
}

// countsBy reports whether a rule counts by an attribute.
func countsBy(r *enforcement.Rule, attribute string) bool {
	return slices.ContainsFunc(r.CountBy, func(entry string) bool { return enforcement.CountedAttribute(entry) == attribute })
}

// usable reports whether an exception, or a part of it, has an effect with the
// plan in force.
func (c caller) usable(tenantID string, spec enforcement.ExceptionSpec) bool {
	s, ok := c.world.Subject(tenantID)
	if !ok {
		return false
	}
	_, faults := enforcement.CompileExceptions(spec, s.Plan, s.PlanRevision)
	return !slices.ContainsFunc(faults, func(f enforcement.ExceptionFault) bool { return !f.Partial })
}
