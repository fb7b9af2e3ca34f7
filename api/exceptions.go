package api

import (
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

// tenantSubject returns a tenant of the snapshot, or nil.
func (c caller) tenantSubject(tenantID string) *enforcement.Subject {
	s, _ := c.world.Subject(tenantID)
	return s
}
