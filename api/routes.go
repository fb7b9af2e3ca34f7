package api

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
)

// A route is one operation: a row of the route table.
type route struct {
	method, path string
	// operation is the operationId in openapi.yaml.
	operation string
	// action determines who may call it: see accounts.Authorize.
	action accounts.Action
	// query has the names of the query parameters. Other parameters are rejected.
	query []string
	// body is the type of the JSON body, against which the body is checked before it
	// is decoded. It is nil if the route does not read a body here.
	body reflect.Type
	// bodyOptional means that a missing body is equal to {}.
	bodyOptional bool
	// ifMatch means that the request must have an If-Match header.
	ifMatch bool
	// decide is the handler of a route that decides: it reads its own body, and only
	// the limiter bounds its time. All other routes have handler.
	decide  func(w http.ResponseWriter, r *http.Request, who caller) error
	handler echo.HandlerFunc
}

// maxBody returns the maximum size of the body, in bytes.
func (r *route) maxBody() int64 {
	if r.body == reflect.TypeFor[PlanDocument]() || r.body == reflect.TypeFor[NewPlan]() {
		return maxPlan
	}
	return maxBody
}

// nothing is the body of an operation without input. Only {} is valid, so that a
// document that a client sends by mistake is not silently ignored.
type nothing struct{}

var paging = names("limit cursor")

// names returns the words of a text.
func names(text string) []string { return strings.Fields(text) }

// body returns the type of a JSON body.
func body[T any]() reflect.Type { return reflect.TypeFor[T]() }

// needs returns a function that replaces handlers by the problem Unavailable,
// unless the node has the service that they need.
func needs(has bool, message string) func(echo.HandlerFunc) echo.HandlerFunc {
	return func(h echo.HandlerFunc) echo.HandlerFunc {
		if has {
			return h
		}
		return func(echo.Context) error { return problem.New(problem.Unavailable, "%s", message) }
	}
}

// A Row is a row of the route table, for tests that compare it with other tables.
type Row struct {
	Method, Path string // as in "/v1/tenants/:tenant"
	Action       accounts.Action
}

// Routes returns the route table. A GET route also serves HEAD.
func Routes() []Row {
	var rows []Row
	for _, r := range new(API).routes() {
		rows = append(rows, Row{r.method, r.path, r.action})
	}
	return rows
}

// routes returns the route table. Tests compare it with openapi.yaml.
func (a *API) routes() []route {
	const get, post, put, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	g := ServerInterfaceWrapper{Handler: NewStrictHandler(a, nil)}
	exceptions := needs(a.cfg.Exceptions != nil, "this node does not manage overrides, lists and blocks")
	people := needs(a.cfg.People != nil, "this node does not manage people")
	usage := needs(a.cfg.Usage != nil, "this node does not show usage or reset counters")
	return []route{
		{method: post, path: "/v1/check", operation: "check", action: accounts.Check, query: names("deny_status")}, // serveCheck
		{
			method: post, path: "/v1/check/batch", operation: "checkBatch", action: accounts.Check,
			decide: a.checkBatch, query: names("deny_status"),
		},
		{method: post, path: "/v1/explain", operation: "explain", action: accounts.TenantRead, decide: a.explain},
		{method: get, path: "/v1/explain/:decision", operation: "getExplanation", action: accounts.TenantRead, handler: g.GetExplanation},
		{method: post, path: "/v1/simulate", operation: "simulate", action: accounts.Simulate, handler: a.simulate},

		{
			method: get, path: "/v1/tenants", operation: "listTenants", action: accounts.TenantsList,
			handler: g.ListTenants, query: names("q status plan limit cursor"),
		},
		{
			method: post, path: "/v1/tenants", operation: "createTenant", action: accounts.TenantWrite,
			handler: g.CreateTenant, body: body[NewTenant](),
		},
		{method: get, path: "/v1/tenants/:tenant", operation: "getTenant", action: accounts.TenantRead, handler: g.GetTenant},
		{
			method: put, path: "/v1/tenants/:tenant", operation: "updateTenant", action: accounts.TenantWrite,
			handler: g.UpdateTenant, body: body[TenantDocument](), ifMatch: true,
		},
		{
			method: del, path: "/v1/tenants/:tenant", operation: "deleteTenant", action: accounts.TenantWrite,
			handler: g.DeleteTenant, ifMatch: true,
		},

		{
			method: get, path: "/v1/tenants/:tenant/keys", operation: "listKeys", action: accounts.KeysRead,
			handler: g.ListKeys, query: paging,
		},
		{
			method: post, path: "/v1/tenants/:tenant/keys", operation: "createKey", action: accounts.KeysWrite,
			handler: g.CreateKey, body: body[NewKey](),
		},
		{method: get, path: "/v1/tenants/:tenant/keys/:key", operation: "getKey", action: accounts.KeysRead, handler: g.GetKey},
		{method: del, path: "/v1/tenants/:tenant/keys/:key", operation: "revokeKey", action: accounts.KeysWrite, handler: g.RevokeKey},
		{
			method: post, path: "/v1/tenants/:tenant/keys/:key/rotate", operation: "rotateKey", action: accounts.KeysWrite,
			handler: g.RotateKey, body: body[RotateKey](), bodyOptional: true,
		},

		{
			method: get, path: "/v1/tenants/:tenant/overrides", operation: "listOverrides", action: accounts.TenantRead,
			handler: exceptions(g.ListOverrides), query: names("policy limit cursor"),
		},
		{
			method: post, path: "/v1/tenants/:tenant/overrides", operation: "createOverride", action: accounts.ExceptionsWrite,
			handler: exceptions(g.CreateOverride), body: body[NewOverride](),
		},
		{
			method: get, path: "/v1/tenants/:tenant/overrides/:override", operation: "getOverride", action: accounts.TenantRead,
			handler: exceptions(g.GetOverride),
		},
		{
			method: del, path: "/v1/tenants/:tenant/overrides/:override", operation: "deleteOverride", action: accounts.ExceptionsWrite,
			handler: exceptions(g.DeleteOverride),
		},
		{
			method: get, path: "/v1/tenants/:tenant/lists", operation: "listEntries", action: accounts.TenantRead,
			handler: exceptions(g.ListEntries), query: names("list q limit cursor"),
		},
		{
			method: post, path: "/v1/tenants/:tenant/lists", operation: "createEntry", action: accounts.ExceptionsWrite,
			handler: exceptions(g.CreateEntry), body: body[NewListEntry](),
		},
		{
			method: get, path: "/v1/tenants/:tenant/lists/:entry", operation: "getEntry", action: accounts.TenantRead,
			handler: exceptions(g.GetEntry),
		},
		{
			method: del, path: "/v1/tenants/:tenant/lists/:entry", operation: "deleteEntry", action: accounts.ExceptionsWrite,
			handler: exceptions(g.DeleteEntry),
		},
		{
			method: get, path: "/v1/tenants/:tenant/blocks", operation: "listBlocks", action: accounts.TenantRead,
			handler: exceptions(g.ListBlocks), query: names("policy limit cursor"),
		},
		{
			method: post, path: "/v1/tenants/:tenant/blocks", operation: "createBlock", action: accounts.ExceptionsWrite,
			handler: exceptions(g.CreateBlock), body: body[NewBlock](),
		},
		{
			method: get, path: "/v1/tenants/:tenant/blocks/:block", operation: "getBlock", action: accounts.TenantRead,
			handler: exceptions(g.GetBlock),
		},
		{
			method: del, path: "/v1/tenants/:tenant/blocks/:block", operation: "deleteBlock", action: accounts.ExceptionsWrite,
			handler: exceptions(g.DeleteBlock),
		},
		{
			method: post, path: "/v1/tenants/:tenant/reset", operation: "resetKey", action: accounts.ExceptionsWrite,
			handler: usage(g.ResetKey), body: body[Reset](),
		},

		{
			method: get, path: "/v1/tenants/:tenant/usage", operation: "getUsage", action: accounts.TenantRead,
			handler: usage(g.GetUsage), query: names("policy key"),
		},

		{
			method: get, path: "/v1/tenants/:tenant/members", operation: "listMembers", action: accounts.MembersRead,
			handler: people(g.ListMembers), query: names("q limit cursor"),
		},
		{
			method: post, path: "/v1/tenants/:tenant/members", operation: "inviteMember", action: accounts.MembersWrite,
			handler: people(g.InviteMember), body: body[NewInvitation](),
		},
		{
			method: get, path: "/v1/tenants/:tenant/members/:member", operation: "getMember", action: accounts.MembersRead,
			handler: people(g.GetMember),
		},
		{
			method: put, path: "/v1/tenants/:tenant/members/:member", operation: "updateMember", action: accounts.MembersWrite,
			handler: people(g.UpdateMember), body: body[Access](), ifMatch: true,
		},
		{
			method: del, path: "/v1/tenants/:tenant/members/:member", operation: "removeMember", action: accounts.MembersWrite,
			handler: people(g.RemoveMember),
		},
		{
			method: get, path: "/v1/people", operation: "listPeople", action: accounts.PeopleRead,
			handler: people(g.ListPeople), query: names("q limit cursor"),
		},
		{
			method: post, path: "/v1/people", operation: "invitePerson", action: accounts.PeopleWrite,
			handler: people(g.InvitePerson), body: body[NewInvitation](),
		},
		{method: get, path: "/v1/people/:person", operation: "getPerson", action: accounts.PeopleRead, handler: people(g.GetPerson)},
		{
			method: put, path: "/v1/people/:person", operation: "updatePerson", action: accounts.PeopleWrite,
			handler: people(g.UpdatePerson), body: body[Access](), ifMatch: true,
		},
		{
			method: del, path: "/v1/people/:person", operation: "removePerson", action: accounts.PeopleWrite,
			handler: people(g.RemovePerson),
		},

		{
			method: get, path: "/v1/operator-keys", operation: "listOperatorKeys", action: accounts.OperatorKeysRd,
			handler: g.ListOperatorKeys, query: paging,
		},
		{
			method: post, path: "/v1/operator-keys", operation: "createOperatorKey", action: accounts.OperatorKeysWr,
			handler: g.CreateOperatorKey, body: body[NewKey](),
		},
		{
			method: get, path: "/v1/operator-keys/:key", operation: "getOperatorKey", action: accounts.OperatorKeysRd,
			handler: g.GetOperatorKey,
		},
		{
			method: del, path: "/v1/operator-keys/:key", operation: "revokeOperatorKey", action: accounts.OperatorKeysWr,
			handler: g.RevokeOperatorKey,
		},
		{
			method: post, path: "/v1/operator-keys/:key/rotate", operation: "rotateOperatorKey", action: accounts.OperatorKeysWr,
			handler: g.RotateOperatorKey, body: body[RotateKey](), bodyOptional: true,
		},

		{
			method: get, path: "/v1/plans", operation: "listPlans", action: accounts.PlansRead,
			handler: g.ListPlans, query: names("q limit cursor"),
		},
		{
			method: post, path: "/v1/plans", operation: "createPlan", action: accounts.PlansWrite,
			handler: g.CreatePlan, body: body[NewPlan](),
		},
		{method: get, path: "/v1/plans/:plan", operation: "getPlan", action: accounts.PlansRead, handler: g.GetPlan},
		{
			method: del, path: "/v1/plans/:plan", operation: "deletePlan", action: accounts.PlansWrite,
			handler: g.DeletePlan, ifMatch: true,
		},
		{method: get, path: "/v1/plans/:plan/draft", operation: "getDraft", action: accounts.PlansRead, handler: g.GetDraft},
		{
			method: put, path: "/v1/plans/:plan/draft", operation: "saveDraft", action: accounts.PlansWrite,
			handler: g.SaveDraft, body: body[PlanDocument](), ifMatch: true,
		},
		{
			method: post, path: "/v1/plans/:plan/draft/validate", operation: "validateDraft", action: accounts.PlansRead,
			handler: g.ValidateDraft, body: body[nothing](), bodyOptional: true,
		},
		{method: get, path: "/v1/plans/:plan/diff", operation: "diffPlan", action: accounts.PlansRead, handler: g.DiffPlan},
		{
			method: post, path: "/v1/plans/:plan/publish", operation: "publishPlan", action: accounts.PlansWrite,
			handler: g.PublishPlan, body: body[Publish](), bodyOptional: true,
		},
		{
			method: get, path: "/v1/plans/:plan/versions", operation: "listVersions", action: accounts.PlansRead,
			handler: g.ListVersions, query: paging,
		},
		{
			method: get, path: "/v1/plans/:plan/versions/:version", operation: "getVersion", action: accounts.PlansRead,
			handler: g.GetVersion,
		},

		{
			method: get, path: "/v1/analytics/traffic", operation: "getTraffic", action: accounts.TenantRead,
			handler: g.GetTraffic, query: names("tenant policy route from to step"),
		},
		{
			method: get, path: "/v1/analytics/policies", operation: "getPolicyTraffic", action: accounts.TenantRead,
			handler: g.GetPolicyTraffic, query: names("tenant from to step limit"),
		},
		{
			method: get, path: "/v1/analytics/routes", operation: "getRouteTraffic", action: accounts.TenantRead,
			handler: g.GetRouteTraffic, query: names("tenant from to step limit"),
		},
		{
			method: get, path: "/v1/analytics/keys", operation: "getTopKeys", action: accounts.TenantRead,
			handler: g.GetTopKeys, query: names("tenant policy from to outcome limit"),
		},
		{
			method: get, path: "/v1/analytics/tenants", operation: "getTenantTraffic", action: accounts.TenantsList,
			handler: g.GetTenantTraffic, query: names("from to sort limit"),
		},
		{
			method: get, path: "/v1/analytics/retry-after", operation: "getRetryAfter", action: accounts.TenantRead,
			handler: g.GetRetryAfter, query: names("tenant from to"),
		},
		{
			method: get, path: "/v1/analytics/remaining", operation: "getRemaining", action: accounts.TenantRead,
			handler: g.GetRemaining, query: names("tenant policy from to"),
		},
		{
			method: get, path: "/v1/analytics/latency", operation: "getLatency", action: accounts.TenantsList,
			handler: g.GetLatency, query: names("from to step"),
		},
		{
			method: get, path: "/v1/analytics/refusals", operation: "listRefusals", action: accounts.TenantRead,
			handler: g.ListRefusals, query: names("tenant policy route reason from to limit cursor"),
		},
		{
			method: get, path: "/v1/analytics/live", operation: "getLive", action: accounts.TenantRead,
			handler: g.GetLive, query: names("tenant"),
		},

		{
			method: get, path: "/v1/audit", operation: "listAudit", action: accounts.TenantRead,
			handler: g.ListAudit, query: names("tenant action object from to limit cursor"),
		},

		{method: get, path: "/healthz", operation: "healthz", action: accounts.Public, handler: a.alive},
		{method: get, path: "/livez", operation: "livez", action: accounts.Public, handler: a.alive},
		{method: get, path: "/readyz", operation: "readyz", action: accounts.Public, handler: a.readyz, query: names("verbose")},
		{method: get, path: "/metrics", operation: "metrics", action: accounts.Public, handler: a.metrics},
		{method: get, path: "/openapi.yaml", operation: "openapi", action: accounts.Public, handler: a.openapi},
	}
}
