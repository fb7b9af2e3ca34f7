package api

import (
	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/audit"
)

// This file converts the members that the JSON forms of overrides, list entries and blocks have in
// common.

// A made holds the ID of an exception, the ID of its tenant, and the creator of the exception.
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
