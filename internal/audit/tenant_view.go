package audit

import (
	"context"

	"github.com/google/uuid"
)

// A TenantView shows the audit log to members and keys of one tenant. It hides which person or key
// of the operator made a change. It also hides numbers from which the tenant could find out how
// often other tenants make changes. A nil *TenantView hides nothing.
type TenantView struct {
	log      Store
	tenantID string
	isMember func(ctx context.Context, user string) (bool, error)
	members  map[string]bool // whether a user belongs to the tenant, by user ID; a cache for Owns
}

// NewTenantView returns the view for a tenant. isMember reports whether a user is a member of the
// tenant now.
func NewTenantView(log Store, tenantID string, isMember func(ctx context.Context, user string) (bool, error)) *TenantView {
	return &TenantView{log, tenantID, isMember, map[string]bool{}}
}

// Owns reports whether an actor belongs to the tenant. A former member still belongs to the tenant,
// because the audit log of the tenant has an entry about this person.
func (v *TenantView) Owns(ctx context.Context, a Actor) (bool, error) {
	if a.Kind != "user" {
		return a.Kind == "tenant_key", nil
	}
	if own, known := v.members[a.ID]; known {
		return own, nil
	}
	if uuid.Validate(a.ID) != nil {
		return false, nil //nolint:nilerr // an actor without a UUID is not a member
	}
	entries, err := v.log.AuditEntries(ctx, Filter{TenantID: v.tenantID, Group: "user", Object: a.ID, Limit: 1})
	if err != nil {
		return false, err
	}
	own := len(entries) > 0
	if !own {
		if own, err = v.isMember(ctx, a.ID); err != nil {
			return false, err
		}
	}
	v.members[a.ID] = own
	return own, nil
}

// Show returns a copy of an entry without Seq, Revision and Hash. If the actor belongs to the
// operator, the copy has the actor Actor{Kind: "operator", Name: "operator"} and no origin.
func (v *TenantView) Show(ctx context.Context, e Entry) (Entry, error) {
	if v == nil {
		return e, nil
	}
	e.Seq, e.Revision, e.Hash = 0, 0, Hash{}
	if e.Actor.Kind == "system" {
		return e, nil
	}
	own, err := v.Owns(ctx, e.Actor)
	if err == nil && !own {
		e.Actor, e.Origin = Actor{Kind: "operator", Name: "operator"}, Origin{}
	}
	return e, err
}
