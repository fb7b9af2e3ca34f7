package web

import (
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/web/views"
)

// roles are the roles in words, for people to read and to choose from.
var roles = []struct {
	role       accounts.Role
	name, hint string
}{
	{accounts.Owner, "Owner", "Everything, people and operator keys included"},
	{accounts.Editor, "Editor", "Changes tenants, plans and overrides; reads the rest"},
	{accounts.Viewer, "Viewer", "Reads everything, changes nothing"},
	{accounts.TenantAdmin, "Tenant admin", "Manages the tenant's keys and members; reads the rest of the tenant"},
	{accounts.TenantViewer, "Tenant viewer", "Reads the tenant, changes nothing"},
}

func RoleName(r accounts.Role) string {
	for _, known := range roles {
		if known.role == r {
			return known.name
		}
	}
	return string(r)
}

// RoleChoice offers the operator's roles, or a tenant's.
func RoleChoice(ofTenant bool, value accounts.Role) views.Choice {
	c := views.Choice{Name: "role", Label: "Role", Value: string(value)}
	for _, known := range roles {
		if known.role.Tenant() == ofTenant {
			c.Options = append(c.Options, views.Option{Value: string(known.role), Label: known.name, Hint: known.hint})
		}
	}
	return c
}
