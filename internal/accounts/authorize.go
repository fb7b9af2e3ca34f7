package accounts

import (
	"slices"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// An Action is what a route does, for the one table that says who may.
type Action string

// The actions. Those below TenantRead are of one tenant, and whoever belongs to
// a tenant may do them with that one only.
const (
	Public          Action = "public"             // nobody is asked who they are
	Self            Action = "self"               // one's own account: everybody who is signed in
	Check           Action = "check"              // decide
	Simulate        Action = "simulate"           // play a scenario
	TenantRead      Action = "tenant.read"        // the tenant, its plan, exceptions, analytics, usage, audit
	TenantWrite     Action = "tenant.write"       // create, change, delete
	KeysRead        Action = "keys.read"          // of a tenant
	KeysWrite       Action = "keys.write"         //
	MembersRead     Action = "members.read"       // people of a tenant
	MembersWrite    Action = "members.write"      //
	ExceptionsWrite Action = "steering.write"     // overrides, lists, blocks, resets
	TenantsList     Action = "tenants.list"       // all tenants, and what concerns all
	PlansRead       Action = "plans.read"         //
	PlansWrite      Action = "plans.write"        //
	PeopleRead      Action = "people.read"        // of the operator
	PeopleWrite     Action = "people.write"       //
	OperatorKeysRd  Action = "operator_keys.read" //
	OperatorKeysWr  Action = "operator_keys.write"
)

// A Principal is whoever asks: a key or a person. The zero value is nobody.
type Principal struct {
	// Kind is "operator_key", "tenant_key" or "user"; "" for nobody.
	Kind   string
	ID     string
	Name   string
	Scopes []tenants.Scope // of a key
	Role   Role            // of a user
	// TenantID is the tenant that it belongs to; "" for the operator's.
	TenantID string
}

// A grant says who may do an action.
type grant struct {
	operatorKey, tenantKey tenants.Scope // the scope that such a key needs; "": none may
	roles                  []Role
}

var (
	staff     = []Role{Owner, Editor, Viewer}
	everybody = []Role{Owner, Editor, Viewer, TenantAdmin, TenantViewer}
)

// grants is the table: every action has a row. api and web ask it through
// Authorize, and tests walk it with every route and every caller.
var grants = map[Action]grant{
	Self:            {roles: everybody},
	Check:           {operatorKey: tenants.ScopeCheck, tenantKey: tenants.ScopeCheck},
	Simulate:        {operatorKey: tenants.ScopeRead, tenantKey: tenants.ScopeRead, roles: everybody},
	TenantRead:      {operatorKey: tenants.ScopeRead, tenantKey: tenants.ScopeRead, roles: everybody},
	TenantWrite:     {operatorKey: tenants.ScopeManage, roles: []Role{Owner, Editor}},
	KeysRead:        {operatorKey: tenants.ScopeRead, tenantKey: tenants.ScopeRead, roles: everybody},
	KeysWrite:       {operatorKey: tenants.ScopeManage, tenantKey: tenants.ScopeManage, roles: []Role{Owner, Editor, TenantAdmin}},
	MembersRead:     {operatorKey: tenants.ScopeRead, tenantKey: tenants.ScopeRead, roles: everybody},
	MembersWrite:    {operatorKey: tenants.ScopeManage, tenantKey: tenants.ScopeManage, roles: []Role{Owner, Editor, TenantAdmin}},
	ExceptionsWrite: {operatorKey: tenants.ScopeManage, roles: []Role{Owner, Editor}},
	TenantsList:     {operatorKey: tenants.ScopeRead, roles: staff},
	PlansRead:       {operatorKey: tenants.ScopeRead, roles: staff},
	PlansWrite:      {operatorKey: tenants.ScopeManage, roles: []Role{Owner, Editor}},
	PeopleRead:      {operatorKey: tenants.ScopeRead, roles: staff},
	PeopleWrite:     {operatorKey: tenants.ScopeManage, roles: []Role{Owner}},
	OperatorKeysRd:  {operatorKey: tenants.ScopeRead, roles: staff},
	OperatorKeysWr:  {operatorKey: tenants.ScopeManage, roles: []Role{Owner}},
}

// Actions lists every action of the table, and Public.
func Actions() []Action {
	list := []Action{Public}
	for a := range grants {
		list = append(list, a)
	}
	slices.Sort(list)
	return list
}

// Roles lists every role, the operator's first, those that may more before those
// that may less.
func Roles() []Role { return slices.Clone(everybody) }

// Allowed reports whether people of a role may do an action: those of a tenant
// with their own only.
func Allowed(a Action, r Role) bool {
	return a == Public || slices.Contains(grants[a].roles, r)
}

// NeededScopes gives the scope that an operator's and a tenant's key need for an
// action; "": no such key may do it. For Public there is nothing to need.
func NeededScopes(a Action) (operatorKey, tenantKey tenants.Scope) {
	return grants[a].operatorKey, grants[a].tenantKey
}

// Authorize says whether somebody may do an action; Unauthenticated for nobody,
// Forbidden otherwise. Of which tenant is Reaches' matter.
func Authorize(p Principal, a Action) error {
	if a == Public {
		return nil
	}
	g, known := grants[a]
	if p.Kind == "" {
		return problem.New(problem.Unauthenticated, "sign in, or send an API key as Authorization: Bearer hg_…")
	}
	if !known {
		return problem.New(problem.Forbidden, "nobody may do this")
	}
	if p.Kind == "user" {
		if slices.Contains(g.roles, p.Role) && p.Role.Operator() == (p.TenantID == "") {
			return nil
		}
		return problem.New(problem.Forbidden, "the role %s may not do this", p.Role)
	}
	scope := g.operatorKey
	if p.TenantID != "" {
		scope = g.tenantKey
	}
	switch {
	case scope == "" && p.TenantID != "" && g.operatorKey != "":
		return problem.New(problem.Forbidden, "this needs an operator key")
	case scope == "":
		return problem.New(problem.Forbidden, "no key may do this: sign in")
	case slices.Contains(p.Scopes, scope), scope == tenants.ScopeRead && slices.Contains(p.Scopes, tenants.ScopeManage):
		return nil
	}
	return problem.New(problem.Forbidden, "this key lacks the scope %s", scope)
}

// Reaches reports whether somebody may know of a tenant: the operator of all,
// others of their own.
func (p Principal) Reaches(tenantID string) bool {
	return p.Kind != "" && (p.TenantID == "" || p.TenantID == tenantID)
}
