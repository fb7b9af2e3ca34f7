package accounts_test

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/tenants"
)

// The published table agrees with Authorize for every action, role, and scope.
func TestTheTableIsWhatAuthorizeSays(t *testing.T) {
	t.Parallel()
	for _, a := range accounts.Actions() {
		for _, r := range accounts.Roles() {
			p := accounts.Principal{Kind: "user", ID: "u", Role: r}
			if r.Tenant() {
				p.TenantID = "t"
			}
			if got, want := accounts.Allowed(a, r), accounts.Authorize(p, a) == nil; got != want {
				t.Errorf("%s by %s: told %v, is %v", a, r, got, want)
			}
		}
		operator, tenant := accounts.NeededScopes(a)
		for _, scope := range []tenants.Scope{tenants.ScopeCheck, tenants.ScopeRead, tenants.ScopeManage} {
			for owner, needed := range map[string]tenants.Scope{"": operator, "t": tenant} {
				p := accounts.Principal{Kind: "operator_key", ID: "k", TenantID: owner, Scopes: []tenants.Scope{scope}}
				told := a == accounts.Public || needed != "" && (scope == needed || scope == tenants.ScopeManage && needed == tenants.ScopeRead)
				if is := accounts.Authorize(p, a) == nil; told != is {
					t.Errorf("%s with %s of %q: told %v, is %v", a, scope, owner, told, is)
				}
			}
		}
	}
	if !slices.Contains(accounts.Roles(), accounts.Owner) || len(accounts.Roles()) != 5 {
		t.Errorf("the roles are %v", accounts.Roles())
	}
}
