package api

import (
	"github.com/google/uuid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
)

// This file contains the fields that overrides, list entries and blocks have in common on the
// wire. The package exceptions validates them. The answer also shows whether an exception has
// an effect under the tenant's current plan.

// A made contains the fields of an exception that record who created it, when and why.
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

// tenantSubject returns the tenant of the caller's snapshot with an id, or nil if the snapshot
// does not contain it.
func (c caller) tenantSubject(tenantID string) *enforcement.Subject {
	s, _ := c.snapshot.Subject(tenantID)
	return s
}
