package api

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
)

// What overrides, entries and blocks have in common on the wire. The exceptions
// service validates them; whether one has an effect is read from the plan that
// is in force.

// exceptionService returns the service behind overrides, lists and blocks.
func (a *API) exceptionService() (*exceptions.Service, error) {
	if a.cfg.Exceptions == nil {
		return nil, problem.New(problem.Unavailable, "this node does not manage overrides, lists and blocks")
	}
	return a.cfg.Exceptions, nil
}

// A made is what every exception shows of its making.
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

// ended tells what has ended; without an end nothing has.
func (a *API) ended(expires time.Time) InactiveBecause {
	if !expires.IsZero() && !a.cfg.Now().Before(expires) {
		return InactiveBecauseEnded
	}
	return ""
}

// rule is a policy of a tenant's plan in force; nil without one.
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
	return slices.Contains(r.CountBy, attribute) || attribute == "ip" && slices.Contains(r.CountBy, "ip/64")
}

// usable reports whether what is set, or a part of it, has an effect with the
// plan in force.
func (c caller) usable(tenantID string, spec enforcement.ExceptionSpec) bool {
	s, ok := c.world.Subject(tenantID)
	if !ok {
		return false
	}
	_, faults := enforcement.CompileExceptions(spec, s.Plan, s.PlanRevision)
	return !slices.ContainsFunc(faults, func(f enforcement.ExceptionFault) bool { return !f.Partial })
}
