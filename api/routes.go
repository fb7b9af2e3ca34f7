package api

import (
	"net/http"
	"reflect"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/tenants"
)

// A route is one operation: a row of the table that says who may call what.
type route struct {
	method, path string
	// operation is its operationId in openapi.yaml.
	operation string
	callers   callers
	scope     tenants.Scope
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
	decide  func(c echo.Context, who caller) error
	handler echo.HandlerFunc
}

// nothing is the body of an operation that takes none: {} at most, so that a
// document sent by mistake is not taken for judged.
type nothing struct{}

// callers says who may call a route.
type callers uint8

const (
	anyone    callers = iota // without a key
	operators                // operator keys
	everyKey                 // operator keys and tenant keys; a tenant key only for its own tenant
)

var paging = []string{"limit", "cursor"}

// routes is the whole table. Tests hold it against openapi.yaml.
func (a *API) routes() []route {
	const (
		get, post, put, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
		check, read, manage = tenants.ScopeCheck, tenants.ScopeRead, tenants.ScopeManage
	)
	g := ServerInterfaceWrapper{Handler: NewStrictHandler(a, nil)}
	return []route{
		{method: post, path: "/v1/check", operation: "check", callers: everyKey, scope: check, query: []string{"deny_status"}, decide: a.check},
		{method: post, path: "/v1/check/batch", operation: "checkBatch", callers: everyKey, scope: check, query: []string{"deny_status"}, decide: a.checkBatch},
		{method: post, path: "/v1/explain", operation: "explain", callers: everyKey, scope: read, decide: a.explain},
		{method: get, path: "/v1/explain/:decision", operation: "getExplanation", callers: everyKey, scope: read, handler: g.GetExplanation},
		{method: post, path: "/v1/simulate", operation: "simulate", callers: everyKey, scope: read, handler: a.simulate},

		{method: get, path: "/v1/tenants", operation: "listTenants", callers: operators, scope: read, query: []string{"q", "status", "plan", "limit", "cursor"}, handler: g.ListTenants},
		{method: post, path: "/v1/tenants", operation: "createTenant", callers: operators, scope: manage, body: reflect.TypeFor[NewTenant](), handler: g.CreateTenant},
		{method: get, path: "/v1/tenants/:tenant", operation: "getTenant", callers: everyKey, scope: read, handler: g.GetTenant},
		{method: put, path: "/v1/tenants/:tenant", operation: "updateTenant", callers: operators, scope: manage, body: reflect.TypeFor[TenantDocument](), ifMatch: true, handler: g.UpdateTenant},
		{method: del, path: "/v1/tenants/:tenant", operation: "deleteTenant", callers: operators, scope: manage, ifMatch: true, handler: g.DeleteTenant},

		{method: get, path: "/v1/tenants/:tenant/keys", operation: "listKeys", callers: everyKey, scope: read, query: paging, handler: g.ListKeys},
		{method: post, path: "/v1/tenants/:tenant/keys", operation: "createKey", callers: everyKey, scope: manage, body: reflect.TypeFor[NewKey](), handler: g.CreateKey},
		{method: get, path: "/v1/tenants/:tenant/keys/:key", operation: "getKey", callers: everyKey, scope: read, handler: g.GetKey},
		{method: del, path: "/v1/tenants/:tenant/keys/:key", operation: "revokeKey", callers: everyKey, scope: manage, handler: g.RevokeKey},
		{method: post, path: "/v1/tenants/:tenant/keys/:key/rotate", operation: "rotateKey", callers: everyKey, scope: manage, body: reflect.TypeFor[RotateKey](), bodyOptional: true, handler: g.RotateKey},

		{method: get, path: "/v1/tenants/:tenant/overrides", operation: "listOverrides", callers: everyKey, scope: read, query: []string{"policy", "limit", "cursor"}, handler: g.ListOverrides},
		{method: post, path: "/v1/tenants/:tenant/overrides", operation: "createOverride", callers: operators, scope: manage, body: reflect.TypeFor[NewOverride](), handler: g.CreateOverride},
		{method: get, path: "/v1/tenants/:tenant/overrides/:override", operation: "getOverride", callers: everyKey, scope: read, handler: g.GetOverride},
		{method: del, path: "/v1/tenants/:tenant/overrides/:override", operation: "deleteOverride", callers: operators, scope: manage, handler: g.DeleteOverride},
		{method: get, path: "/v1/tenants/:tenant/lists", operation: "listEntries", callers: everyKey, scope: read, query: []string{"list", "q", "limit", "cursor"}, handler: g.ListEntries},
		{method: post, path: "/v1/tenants/:tenant/lists", operation: "createEntry", callers: operators, scope: manage, body: reflect.TypeFor[NewListEntry](), handler: g.CreateEntry},
		{method: get, path: "/v1/tenants/:tenant/lists/:entry", operation: "getEntry", callers: everyKey, scope: read, handler: g.GetEntry},
		{method: del, path: "/v1/tenants/:tenant/lists/:entry", operation: "deleteEntry", callers: operators, scope: manage, handler: g.DeleteEntry},
		{method: get, path: "/v1/tenants/:tenant/blocks", operation: "listBlocks", callers: everyKey, scope: read, query: []string{"policy", "limit", "cursor"}, handler: g.ListBlocks},
		{method: post, path: "/v1/tenants/:tenant/blocks", operation: "createBlock", callers: operators, scope: manage, body: reflect.TypeFor[NewBlock](), handler: g.CreateBlock},
		{method: get, path: "/v1/tenants/:tenant/blocks/:block", operation: "getBlock", callers: everyKey, scope: read, handler: g.GetBlock},
		{method: del, path: "/v1/tenants/:tenant/blocks/:block", operation: "deleteBlock", callers: operators, scope: manage, handler: g.DeleteBlock},
		{method: post, path: "/v1/tenants/:tenant/reset", operation: "resetKey", callers: operators, scope: manage, body: reflect.TypeFor[Reset](), handler: g.ResetKey},

		{method: get, path: "/v1/operator-keys", operation: "listOperatorKeys", callers: operators, scope: read, query: paging, handler: g.ListOperatorKeys},
		{method: post, path: "/v1/operator-keys", operation: "createOperatorKey", callers: operators, scope: manage, body: reflect.TypeFor[NewKey](), handler: g.CreateOperatorKey},
		{method: get, path: "/v1/operator-keys/:key", operation: "getOperatorKey", callers: operators, scope: read, handler: g.GetOperatorKey},
		{method: del, path: "/v1/operator-keys/:key", operation: "revokeOperatorKey", callers: operators, scope: manage, handler: g.RevokeOperatorKey},
		{method: post, path: "/v1/operator-keys/:key/rotate", operation: "rotateOperatorKey", callers: operators, scope: manage, body: reflect.TypeFor[RotateKey](), bodyOptional: true, handler: g.RotateOperatorKey},

		{method: get, path: "/v1/plans", operation: "listPlans", callers: operators, scope: read, query: []string{"q", "limit", "cursor"}, handler: g.ListPlans},
		{method: post, path: "/v1/plans", operation: "createPlan", callers: operators, scope: manage, body: reflect.TypeFor[NewPlan](), handler: g.CreatePlan},
		{method: get, path: "/v1/plans/:plan", operation: "getPlan", callers: operators, scope: read, handler: g.GetPlan},
		{method: del, path: "/v1/plans/:plan", operation: "deletePlan", callers: operators, scope: manage, ifMatch: true, handler: g.DeletePlan},
		{method: get, path: "/v1/plans/:plan/draft", operation: "getDraft", callers: operators, scope: read, handler: g.GetDraft},
		{method: put, path: "/v1/plans/:plan/draft", operation: "saveDraft", callers: operators, scope: manage, body: reflect.TypeFor[PlanDocument](), ifMatch: true, handler: g.SaveDraft},
		{method: post, path: "/v1/plans/:plan/draft/validate", operation: "validateDraft", callers: operators, scope: read, body: reflect.TypeFor[nothing](), bodyOptional: true, handler: g.ValidateDraft},
		{method: get, path: "/v1/plans/:plan/diff", operation: "diffPlan", callers: operators, scope: read, handler: g.DiffPlan},
		{method: post, path: "/v1/plans/:plan/publish", operation: "publishPlan", callers: operators, scope: manage, body: reflect.TypeFor[Publish](), bodyOptional: true, handler: g.PublishPlan},
		{method: get, path: "/v1/plans/:plan/versions", operation: "listVersions", callers: operators, scope: read, query: paging, handler: g.ListVersions},
		{method: get, path: "/v1/plans/:plan/versions/:version", operation: "getVersion", callers: operators, scope: read, handler: g.GetVersion},

		{method: get, path: "/v1/analytics/traffic", operation: "getTraffic", callers: everyKey, scope: read, query: []string{"tenant", "policy", "route", "from", "to", "step"}, handler: g.GetTraffic},
		{method: get, path: "/v1/analytics/policies", operation: "getPolicyTraffic", callers: everyKey, scope: read, query: []string{"tenant", "from", "to", "step", "limit"}, handler: g.GetPolicyTraffic},
		{method: get, path: "/v1/analytics/routes", operation: "getRouteTraffic", callers: everyKey, scope: read, query: []string{"tenant", "from", "to", "step", "limit"}, handler: g.GetRouteTraffic},
		{method: get, path: "/v1/analytics/keys", operation: "getTopKeys", callers: everyKey, scope: read, query: []string{"tenant", "policy", "from", "to", "outcome", "limit"}, handler: g.GetTopKeys},
		{method: get, path: "/v1/analytics/tenants", operation: "getTenantTraffic", callers: operators, scope: read, query: []string{"from", "to", "sort", "limit"}, handler: g.GetTenantTraffic},
		{method: get, path: "/v1/analytics/retry-after", operation: "getRetryAfter", callers: everyKey, scope: read, query: []string{"tenant", "from", "to"}, handler: g.GetRetryAfter},
		{method: get, path: "/v1/analytics/remaining", operation: "getRemaining", callers: everyKey, scope: read, query: []string{"tenant", "policy", "from", "to"}, handler: g.GetRemaining},
		{method: get, path: "/v1/analytics/latency", operation: "getLatency", callers: operators, scope: read, query: []string{"from", "to", "step"}, handler: g.GetLatency},
		{method: get, path: "/v1/analytics/refusals", operation: "listRefusals", callers: everyKey, scope: read, query: []string{"tenant", "policy", "route", "reason", "from", "to", "limit", "cursor"}, handler: g.ListRefusals},
		{method: get, path: "/v1/analytics/live", operation: "getLive", callers: everyKey, scope: read, query: []string{"tenant"}, handler: g.GetLive},

		{method: get, path: "/v1/audit", operation: "listAudit", callers: everyKey, scope: read, query: []string{"tenant", "action", "object", "from", "to", "limit", "cursor"}, handler: g.ListAudit},

		{method: get, path: "/healthz", operation: "healthz", handler: a.alive},
		{method: get, path: "/livez", operation: "livez", handler: a.alive},
		{method: get, path: "/readyz", operation: "readyz", query: []string{"verbose"}, handler: a.readyz},
		{method: get, path: "/metrics", operation: "metrics", handler: a.metrics},
		{method: get, path: "/openapi.yaml", operation: "openapi", handler: a.openapi},
	}
}
