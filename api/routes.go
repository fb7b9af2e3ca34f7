package api

import (
	"net/http"
	"reflect"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
)

// A route is one operation: a row of the table that says what is called where,
// and which action that is.
type route struct {
	method, path string
	// operation is its operationId in openapi.yaml.
	operation string
	// action says who may call it: accounts.Authorize has the table.
	action accounts.Action
	// query are the parameters that it knows; others are refused.
	query []string
	// body is the type of the JSON body that is held against it before it is
	// decoded; nil: none is read here.
	body reflect.Type
	// bodyOptional: no body at all is as good as {}.
	bodyOptional bool
	// ifMatch: the request must carry If-Match.
	ifMatch bool
	// decide is the handler of a decision: it reads its own body, and no deadline
	// but the limiter's stands over it. handler is that of every other route.
	decide  func(w http.ResponseWriter, r *http.Request, who caller) error
	handler echo.HandlerFunc
}

// maxBody is how many bytes the body may have.
func (r *route) maxBody() int64 {
	if r.body == reflect.TypeFor[PlanDocument]() || r.body == reflect.TypeFor[NewPlan]() {
		return maxPlan
	}
	return maxBody
}

// nothing is the body of an operation that takes none: {} at most, so that a
// document sent by mistake is not taken for judged.
type nothing struct{}

var paging = []string{"limit", "cursor"}

// A Row of the route table, for those who hold it against another table.
type Row struct {
	Method, Path string // as in "/v1/tenants/:tenant"
	Action       accounts.Action
}

// Routes gives the route table. GET answers HEAD as well.
func Routes() []Row {
	var rows []Row
	for _, r := range new(API).routes() {
		rows = append(rows, Row{r.method, r.path, r.action})
	}
	return rows
}

// routes is the whole table. Tests hold it against openapi.yaml.
func (a *API) routes() []route {
	const get, post, put, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	g := ServerInterfaceWrapper{Handler: NewStrictHandler(a, nil)}
	return []route{
		{method: post, path: "/v1/check", operation: "check", action: accounts.Check, query: []string{"deny_status"}}, // serveCheck
		{method: post, path: "/v1/check/batch", operation: "checkBatch", action: accounts.Check, query: []string{"deny_status"}, decide: a.checkBatch},
		{method: post, path: "/v1/explain", operation: "explain", action: accounts.TenantRead, decide: a.explain},
		{method: get, path: "/v1/explain/:decision", operation: "getExplanation", action: accounts.TenantRead, handler: g.GetExplanation},
		{method: post, path: "/v1/simulate", operation: "simulate", action: accounts.Simulate, handler: a.simulate},

		{method: get, path: "/v1/tenants", operation: "listTenants", action: accounts.TenantsList, query: []string{"q", "status", "plan", "limit", "cursor"}, handler: g.ListTenants},
		{method: post, path: "/v1/tenants", operation: "createTenant", action: accounts.TenantWrite, body: reflect.TypeFor[NewTenant](), handler: g.CreateTenant},
		{method: get, path: "/v1/tenants/:tenant", operation: "getTenant", action: accounts.TenantRead, handler: g.GetTenant},
		{method: put, path: "/v1/tenants/:tenant", operation: "updateTenant", action: accounts.TenantWrite, body: reflect.TypeFor[TenantDocument](), ifMatch: true, handler: g.UpdateTenant},
		{method: del, path: "/v1/tenants/:tenant", operation: "deleteTenant", action: accounts.TenantWrite, ifMatch: true, handler: g.DeleteTenant},

		{method: get, path: "/v1/tenants/:tenant/keys", operation: "listKeys", action: accounts.KeysRead, query: paging, handler: g.ListKeys},
		{method: post, path: "/v1/tenants/:tenant/keys", operation: "createKey", action: accounts.KeysWrite, body: reflect.TypeFor[NewKey](), handler: g.CreateKey},
		{method: get, path: "/v1/tenants/:tenant/keys/:key", operation: "getKey", action: accounts.KeysRead, handler: g.GetKey},
		{method: del, path: "/v1/tenants/:tenant/keys/:key", operation: "revokeKey", action: accounts.KeysWrite, handler: g.RevokeKey},
		{method: post, path: "/v1/tenants/:tenant/keys/:key/rotate", operation: "rotateKey", action: accounts.KeysWrite, body: reflect.TypeFor[RotateKey](), bodyOptional: true, handler: g.RotateKey},

		{method: get, path: "/v1/tenants/:tenant/overrides", operation: "listOverrides", action: accounts.TenantRead, query: []string{"policy", "limit", "cursor"}, handler: g.ListOverrides},
		{method: post, path: "/v1/tenants/:tenant/overrides", operation: "createOverride", action: accounts.ExceptionsWrite, body: reflect.TypeFor[NewOverride](), handler: g.CreateOverride},
		{method: get, path: "/v1/tenants/:tenant/overrides/:override", operation: "getOverride", action: accounts.TenantRead, handler: g.GetOverride},
		{method: del, path: "/v1/tenants/:tenant/overrides/:override", operation: "deleteOverride", action: accounts.ExceptionsWrite, handler: g.DeleteOverride},
		{method: get, path: "/v1/tenants/:tenant/lists", operation: "listEntries", action: accounts.TenantRead, query: []string{"list", "q", "limit", "cursor"}, handler: g.ListEntries},
		{method: post, path: "/v1/tenants/:tenant/lists", operation: "createEntry", action: accounts.ExceptionsWrite, body: reflect.TypeFor[NewListEntry](), handler: g.CreateEntry},
		{method: get, path: "/v1/tenants/:tenant/lists/:entry", operation: "getEntry", action: accounts.TenantRead, handler: g.GetEntry},
		{method: del, path: "/v1/tenants/:tenant/lists/:entry", operation: "deleteEntry", action: accounts.ExceptionsWrite, handler: g.DeleteEntry},
		{method: get, path: "/v1/tenants/:tenant/blocks", operation: "listBlocks", action: accounts.TenantRead, query: []string{"policy", "limit", "cursor"}, handler: g.ListBlocks},
		{method: post, path: "/v1/tenants/:tenant/blocks", operation: "createBlock", action: accounts.ExceptionsWrite, body: reflect.TypeFor[NewBlock](), handler: g.CreateBlock},
		{method: get, path: "/v1/tenants/:tenant/blocks/:block", operation: "getBlock", action: accounts.TenantRead, handler: g.GetBlock},
		{method: del, path: "/v1/tenants/:tenant/blocks/:block", operation: "deleteBlock", action: accounts.ExceptionsWrite, handler: g.DeleteBlock},
		{method: post, path: "/v1/tenants/:tenant/reset", operation: "resetKey", action: accounts.ExceptionsWrite, body: reflect.TypeFor[Reset](), handler: g.ResetKey},

		{method: get, path: "/v1/tenants/:tenant/usage", operation: "getUsage", action: accounts.TenantRead, query: []string{"policy", "key"}, handler: g.GetUsage},

		{method: get, path: "/v1/tenants/:tenant/members", operation: "listMembers", action: accounts.MembersRead, query: []string{"q", "limit", "cursor"}, handler: g.ListMembers},
		{method: post, path: "/v1/tenants/:tenant/members", operation: "inviteMember", action: accounts.MembersWrite, body: reflect.TypeFor[NewInvitation](), handler: g.InviteMember},
		{method: get, path: "/v1/tenants/:tenant/members/:member", operation: "getMember", action: accounts.MembersRead, handler: g.GetMember},
		{method: put, path: "/v1/tenants/:tenant/members/:member", operation: "updateMember", action: accounts.MembersWrite, body: reflect.TypeFor[Access](), ifMatch: true, handler: g.UpdateMember},
		{method: del, path: "/v1/tenants/:tenant/members/:member", operation: "removeMember", action: accounts.MembersWrite, handler: g.RemoveMember},
		{method: get, path: "/v1/people", operation: "listPeople", action: accounts.PeopleRead, query: []string{"q", "limit", "cursor"}, handler: g.ListPeople},
		{method: post, path: "/v1/people", operation: "invitePerson", action: accounts.PeopleWrite, body: reflect.TypeFor[NewInvitation](), handler: g.InvitePerson},
		{method: get, path: "/v1/people/:person", operation: "getPerson", action: accounts.PeopleRead, handler: g.GetPerson},
		{method: put, path: "/v1/people/:person", operation: "updatePerson", action: accounts.PeopleWrite, body: reflect.TypeFor[Access](), ifMatch: true, handler: g.UpdatePerson},
		{method: del, path: "/v1/people/:person", operation: "removePerson", action: accounts.PeopleWrite, handler: g.RemovePerson},

		{method: get, path: "/v1/operator-keys", operation: "listOperatorKeys", action: accounts.OperatorKeysRd, query: paging, handler: g.ListOperatorKeys},
		{method: post, path: "/v1/operator-keys", operation: "createOperatorKey", action: accounts.OperatorKeysWr, body: reflect.TypeFor[NewKey](), handler: g.CreateOperatorKey},
		{method: get, path: "/v1/operator-keys/:key", operation: "getOperatorKey", action: accounts.OperatorKeysRd, handler: g.GetOperatorKey},
		{method: del, path: "/v1/operator-keys/:key", operation: "revokeOperatorKey", action: accounts.OperatorKeysWr, handler: g.RevokeOperatorKey},
		{method: post, path: "/v1/operator-keys/:key/rotate", operation: "rotateOperatorKey", action: accounts.OperatorKeysWr, body: reflect.TypeFor[RotateKey](), bodyOptional: true, handler: g.RotateOperatorKey},

		{method: get, path: "/v1/plans", operation: "listPlans", action: accounts.PlansRead, query: []string{"q", "limit", "cursor"}, handler: g.ListPlans},
		{method: post, path: "/v1/plans", operation: "createPlan", action: accounts.PlansWrite, body: reflect.TypeFor[NewPlan](), handler: g.CreatePlan},
		{method: get, path: "/v1/plans/:plan", operation: "getPlan", action: accounts.PlansRead, handler: g.GetPlan},
		{method: del, path: "/v1/plans/:plan", operation: "deletePlan", action: accounts.PlansWrite, ifMatch: true, handler: g.DeletePlan},
		{method: get, path: "/v1/plans/:plan/draft", operation: "getDraft", action: accounts.PlansRead, handler: g.GetDraft},
		{method: put, path: "/v1/plans/:plan/draft", operation: "saveDraft", action: accounts.PlansWrite, body: reflect.TypeFor[PlanDocument](), ifMatch: true, handler: g.SaveDraft},
		{method: post, path: "/v1/plans/:plan/draft/validate", operation: "validateDraft", action: accounts.PlansRead, body: reflect.TypeFor[nothing](), bodyOptional: true, handler: g.ValidateDraft},
		{method: get, path: "/v1/plans/:plan/diff", operation: "diffPlan", action: accounts.PlansRead, handler: g.DiffPlan},
		{method: post, path: "/v1/plans/:plan/publish", operation: "publishPlan", action: accounts.PlansWrite, body: reflect.TypeFor[Publish](), bodyOptional: true, handler: g.PublishPlan},
		{method: get, path: "/v1/plans/:plan/versions", operation: "listVersions", action: accounts.PlansRead, query: paging, handler: g.ListVersions},
		{method: get, path: "/v1/plans/:plan/versions/:version", operation: "getVersion", action: accounts.PlansRead, handler: g.GetVersion},

		{method: get, path: "/v1/analytics/traffic", operation: "getTraffic", action: accounts.TenantRead, query: []string{"tenant", "policy", "route", "from", "to", "step"}, handler: g.GetTraffic},
		{method: get, path: "/v1/analytics/policies", operation: "getPolicyTraffic", action: accounts.TenantRead, query: []string{"tenant", "from", "to", "step", "limit"}, handler: g.GetPolicyTraffic},
		{method: get, path: "/v1/analytics/routes", operation: "getRouteTraffic", action: accounts.TenantRead, query: []string{"tenant", "from", "to", "step", "limit"}, handler: g.GetRouteTraffic},
		{method: get, path: "/v1/analytics/keys", operation: "getTopKeys", action: accounts.TenantRead, query: []string{"tenant", "policy", "from", "to", "outcome", "limit"}, handler: g.GetTopKeys},
		{method: get, path: "/v1/analytics/tenants", operation: "getTenantTraffic", action: accounts.TenantsList, query: []string{"from", "to", "sort", "limit"}, handler: g.GetTenantTraffic},
		{method: get, path: "/v1/analytics/retry-after", operation: "getRetryAfter", action: accounts.TenantRead, query: []string{"tenant", "from", "to"}, handler: g.GetRetryAfter},
		{method: get, path: "/v1/analytics/remaining", operation: "getRemaining", action: accounts.TenantRead, query: []string{"tenant", "policy", "from", "to"}, handler: g.GetRemaining},
		{method: get, path: "/v1/analytics/latency", operation: "getLatency", action: accounts.TenantsList, query: []string{"from", "to", "step"}, handler: g.GetLatency},
		{method: get, path: "/v1/analytics/refusals", operation: "listRefusals", action: accounts.TenantRead, query: []string{"tenant", "policy", "route", "reason", "from", "to", "limit", "cursor"}, handler: g.ListRefusals},
		{method: get, path: "/v1/analytics/live", operation: "getLive", action: accounts.TenantRead, query: []string{"tenant"}, handler: g.GetLive},

		{method: get, path: "/v1/audit", operation: "listAudit", action: accounts.TenantRead, query: []string{"tenant", "action", "object", "from", "to", "limit", "cursor"}, handler: g.ListAudit},

		{method: get, path: "/healthz", operation: "healthz", action: accounts.Public, handler: a.alive},
		{method: get, path: "/livez", operation: "livez", action: accounts.Public, handler: a.alive},
		{method: get, path: "/readyz", operation: "readyz", action: accounts.Public, query: []string{"verbose"}, handler: a.readyz},
		{method: get, path: "/metrics", operation: "metrics", action: accounts.Public, handler: a.metrics},
		{method: get, path: "/openapi.yaml", operation: "openapi", action: accounts.Public, handler: a.openapi},
	}
}
