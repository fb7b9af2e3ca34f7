package accounts

import (
	"slices"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// An Action is a kind of request, for authorization. The table grants says which roles and keys
// may do each Action.
type Action string

// The actions. The actions from TenantRead to ExceptionsWrite are about one tenant. A member or a
// key of a tenant may do them only for their own tenant.
const (
	Public          Action = "public"         // allowed without signing in
	Self            Action = "self"           // to use one's own account; allowed for everyone who is signed in
	Check           Action = "check"          // to decide whether a request is allowed
	Simulate        Action = "simulate"       // to run a simulated scenario
	TenantRead      Action = "tenant.read"    // to read a tenant, its plan, exceptions, analytics, usage and audit log
	TenantWrite     Action = "tenant.write"   // to create, change or delete a tenant
	KeysRead        Action = "keys.read"      // to read the API keys of a tenant
	KeysWrite       Action = "keys.write"     // to create, change or revoke the API keys of a tenant
	MembersRead     Action = "members.read"   // to read the members of a tenant
	MembersWrite    Action = "members.write"  // to invite, change or remove members of a tenant
	ExceptionsWrite Action = "steering.write" // to change overrides, lists and blocks of a tenant, and to reset its counters
	// To read the alert rules, channels, alerts and deliveries of one's tenant or of the
	// operator.
	AlertsRead  Action = "alerts.read"
	AlertsWrite Action = "alerts.write" // to change the alert rules and channels of one's tenant or of the operator
	// To list the shared links of one's tenant or of the operator, and to create and revoke them.
	SharedLinksRead  Action = "shared_links.read"
	SharedLinksWrite Action = "shared_links.write"
	TenantsList      Action = "tenants.list"       // to list all tenants, and to read data that covers all tenants
	PlansRead        Action = "plans.read"         // to read plans
	PlansWrite       Action = "plans.write"        // to create, change, publish or delete plans
	PeopleRead       Action = "people.read"        // to read the list of the people who work for the operator
	PeopleWrite      Action = "people.write"       // to invite, change or remove people who work for the operator
	OperatorKeysRd   Action = "operator_keys.read" // to read the operator's API keys
	OperatorKeysWr   Action = "operator_keys.write"
)

// A Principal is an authenticated caller: a key, a person, or a command. The zero value is an
// anonymous caller.
type Principal struct {
	// Kind is "operator_key", "tenant_key", "user" or "command"; "" for an anonymous caller.
	Kind   string
	ID     string
	Name   string
	Scopes []tenants.Scope // scopes of a key; nil for a user
	Role   Role            // role of a user; "" for a key
	// TenantID is the ID of the tenant to which the key or the person belongs; "" for the operator.
	TenantID string
}

// A grant says which keys and which roles may do one action.
type grant struct {
	operatorKey, tenantKey tenants.Scope // the scope that such a key needs; if it is "", no such key may do the action
	roles                  []Role
}

var (
	staff     = []Role{Owner, Editor, Viewer}
	everybody = []Role{Owner, Editor, Viewer, TenantAdmin, TenantViewer}
)

// grants has a row for each action except Public. Authorize reads it for the packages api and
// web. Tests compare this table with the behavior of every route for every kind of caller.
var grants = map[Action]grant{
	Self:             {roles: everybody},
	Check:            {operatorKey: tenants.ScopeCheck, tenantKey: tenants.ScopeCheck},
	Simulate:         {operatorKey: tenants.ScopeRead, tenantKey: tenants.ScopeRead, roles: everybody},
	TenantRead:       {operatorKey: tenants.ScopeRead, tenantKey: tenants.ScopeRead, roles: everybody},
	TenantWrite:      {operatorKey: tenants.ScopeManage, roles: []Role{Owner, Editor}},
	KeysRead:         {operatorKey: tenants.ScopeRead, tenantKey: tenants.ScopeRead, roles: everybody},
	KeysWrite:        {operatorKey: tenants.ScopeManage, tenantKey: tenants.ScopeManage, roles: []Role{Owner, Editor, TenantAdmin}},
	MembersRead:      {operatorKey: tenants.ScopeRead, tenantKey: tenants.ScopeRead, roles: everybody},
	MembersWrite:     {operatorKey: tenants.ScopeManage, tenantKey: tenants.ScopeManage, roles: []Role{Owner, Editor, TenantAdmin}},
	ExceptionsWrite:  {operatorKey: tenants.ScopeManage, roles: []Role{Owner, Editor}},
	AlertsRead:       {operatorKey: tenants.ScopeRead, tenantKey: tenants.ScopeRead, roles: everybody},
	AlertsWrite:      {operatorKey: tenants.ScopeManage, tenantKey: tenants.ScopeManage, roles: []Role{Owner, Editor, TenantAdmin}},
	SharedLinksRead:  {operatorKey: tenants.ScopeRead, tenantKey: tenants.ScopeRead, roles: everybody},
	SharedLinksWrite: {operatorKey: tenants.ScopeManage, tenantKey: tenants.ScopeManage, roles: []Role{Owner, Editor, TenantAdmin}},
	TenantsList:      {operatorKey: tenants.ScopeRead, roles: staff},
	PlansRead:        {operatorKey: tenants.ScopeRead, roles: staff},
	PlansWrite:       {operatorKey: tenants.ScopeManage, roles: []Role{Owner, Editor}},
	PeopleRead:       {operatorKey: tenants.ScopeRead, roles: staff},
	PeopleWrite:      {operatorKey: tenants.ScopeManage, roles: []Role{Owner}},
	OperatorKeysRd:   {operatorKey: tenants.ScopeRead, roles: staff},
	OperatorKeysWr:   {operatorKey: tenants.ScopeManage, roles: []Role{Owner}},
}

// mayGive returns an error if the caller is a key that does not have all scopes of the role: those
// that a person with the role has, or can give to a key. Otherwise the holder of the key could get
// more rights by inviting a person.
func mayGive(by Principal, role Role) error {
	if by.Kind != "operator_key" && by.Kind != "tenant_key" {
		return nil
	}
	needs := []tenants.Scope{tenants.ScopeRead}
	if Allowed(KeysWrite, role) {
		needs = append(needs, tenants.ScopeManage, tenants.ScopeCheck)
	}
	for _, s := range needs {
		if !slices.Contains(by.Scopes, s) {
			return problem.New(problem.Forbidden, "a person with the role %s would have the scope %s, which this key does not have", role, s)
		}
	}
	return nil
}

// Actions returns every action of the table, and Public.
func Actions() []Action {
	list := []Action{Public}
	for a := range grants {
		list = append(list, a)
	}
	slices.Sort(list)
	return list
}

// Roles returns every role: first the roles of the operator, then the roles of tenants. In both
// groups, the role with the most rights comes first.
func Roles() []Role { return slices.Clone(everybody) }

// Allowed reports whether a person with the role may do the action. A role of a tenant allows
// the action only for that tenant. Allowed does not check the tenant; Reaches does.
func Allowed(a Action, r Role) bool {
	return a == Public || slices.Contains(grants[a].roles, r)
}

// NeededScopes returns two scopes for an action: the scope that an operator key needs, and the
// scope that a tenant key needs. "" means that no such key may do the action. For Public, both are
// "", because callers need no key.
func NeededScopes(a Action) (operatorKey, tenantKey tenants.Scope) {
	return grants[a].operatorKey, grants[a].tenantKey
}

// Authorize returns nil if the caller may do the action. Otherwise the error is
// problem.Unauthenticated for an anonymous caller and problem.Forbidden for any other caller.
// Authorize does not check the tenant; Reaches does.
func Authorize(p Principal, a Action) error {
	if a == Public {
		return nil
	}
	g, known := grants[a]
	if p.Kind == "" {
		return problem.New(problem.Unauthenticated, "sign in, or send an API key as Authorization: Bearer hg_…")
	}
	if !known {
		return problem.New(problem.Forbidden, "no role and no key may do this")
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

// Reaches reports whether the caller may access a tenant. Keys and people of the operator reach all
// tenants. Keys and people of a tenant reach only this tenant. An anonymous caller reaches no
// tenant.
func (p Principal) Reaches(tenantID string) bool {
	return p.Kind != "" && (p.TenantID == "" || p.TenantID == tenantID)
}
