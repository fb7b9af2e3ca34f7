package web

import (
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/web/views"
)

// roles has the name and the hint of each role.
var roles = []struct {
	role       accounts.Role
	name, hint string
}{
	{accounts.Owner, "Owner", "May do everything, including people and operator keys"},
	{accounts.Editor, "Editor", "Changes tenants, plans, and overrides; reads the rest"},
	{accounts.Viewer, "Viewer", "Reads everything, changes nothing"},
	{accounts.TenantAdmin, "Tenant admin", "Manages keys and members of the tenant; reads the rest of the tenant"},
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

// RoleChoice returns the form field with which the visitor chooses a role. If ofTenant is
// true, it offers the roles of a tenant; otherwise it offers those of the operator.
func RoleChoice(ofTenant bool, value accounts.Role) views.Choice {
	c := views.Choice{Name: "role", Label: "Role", Value: string(value)}
	for _, known := range roles {
		if known.role.Tenant() == ofTenant {
			c.Options = append(c.Options, views.Option{Value: string(known.role), Label: known.name, Hint: known.hint})
		}
	}
	return c
}
