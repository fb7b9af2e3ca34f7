package api

import (
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
)

// A route describes one operation of openapi.yaml: its handler, and what serve must check before it
// calls the handler.
type route struct {
	method, path string
	// operation is the operationId.
	operation string
	// action says who may call the operation. See accounts.Authorize.
	action accounts.Action
	// query holds the names of the allowed query parameters. serve rejects a request with any other
	// parameter.
	query []string
	// anyQuery is set if the query belongs to the original request, which a proxy describes. serve
	// then does not check the query.
	anyQuery bool
	// direct is set if the API key belongs to the proxy that sends the request, and not to the
	// client whose request the proxy describes. serve then compares the key's allowed addresses
	// with the address of the connection.
	direct bool
	// body is the Go type of the JSON body. serve checks the body against this type before it
	// decodes the body. It is nil if the operation has no body, or if the function decide reads the
	// body.
	body reflect.Type
	// bodyOptional is set if an operation treats a request without a body like the body {}.
	bodyOptional bool
	// within is the maximum time of an expensive operation; it replaces Config.Timeout. Such an
	// operation also needs one of Config.Slots. For other operations, within is 0.
	within time.Duration
	// ifMatch says that the request must have the header If-Match.
	ifMatch bool
	// idempotent says that the request may have an Idempotency-Key.
	idempotent bool
	// document is set for PATCH. It returns the stored document to which the body, a merge patch,
	// is applied.
	document stored
	// decide is set for the operations that decide or explain checks; handler is then nil. decide
	// reads the body itself, and has no deadline except the limiter's timeout.
	decide  func(w http.ResponseWriter, r *http.Request, who caller) error
	handler echo.HandlerFunc
}

// maxBody returns the maximum size of the body in bytes.
func (r *route) maxBody() int64 {
	if r.body == reflect.TypeFor[Configuration]() {
		return maxConfiguration
	}
	if r.body == reflect.TypeFor[PlanDocument]() || r.body == reflect.TypeFor[NewPlan]() {
		return maxPlan
	}
	return maxBody
}

// nothing is the type of the body of an operation without input. Only the body {} is valid. If
// other members were ignored, a client could believe that they have an effect.
type nothing struct{}

func row(method string) func(path, operation string, action accounts.Action, handler echo.HandlerFunc) route {
	return func(path, operation string, action accounts.Action, handler echo.HandlerFunc) route {
		return route{method: method, path: path, operation: operation, action: action, handler: handler}
	}
}

var (
	get, post  = row(http.MethodGet), row(http.MethodPost)
	put, patch = row(http.MethodPut), row(http.MethodPatch)
	del        = row(http.MethodDelete)
)

// params returns a copy of the route that allows the query parameters in names. Spaces separate the
// names.
func (r route) params(names string) route {
	r.query = strings.Fields(names)
	return r
}

// json returns a copy of the route with a JSON body of the given type.
func (r route) json(body reflect.Type) route {
	r.body = body
	return r
}

// expensive returns a copy of the route for an expensive operation; see route.within.
func (r route) expensive(within time.Duration) route {
	r.within = within
	return r
}

func (r route) optionalJSON(body reflect.Type) route {
	r.body, r.bodyOptional = body, true
	return r
}

// conditional returns a copy of the route that requires the header If-Match.
func (r route) conditional() route {
	r.ifMatch = true
	return r
}

// fromProxy returns a copy of the route with direct set.
func (r route) fromProxy() route { r.direct = true; return r }

// decides returns a copy of the route with h as its decide function.
func (r route) decides(h func(http.ResponseWriter, *http.Request, caller) error) route {
	r.decide = h
	return r
}

// body returns the reflect.Type of T, for route.json.
func body[T any]() reflect.Type { return reflect.TypeFor[T]() }

// needs returns a function that wraps the handlers of an optional service. has says whether the
// node has the service. If it does not, the wrapped handler returns problem.Unavailable with the
// message.
func needs(has bool, message string) func(echo.HandlerFunc) echo.HandlerFunc {
	return func(h echo.HandlerFunc) echo.HandlerFunc {
		if has {
			return h
		}
		return func(echo.Context) error { return problem.New(problem.Unavailable, "%s", message) }
	}
}

// routes returns all routes of the API. A test compares them with openapi.yaml.
func (a *API) routes() []route {
	g := ServerInterfaceWrapper{Handler: NewStrictHandler(a, nil)}
	exceptions := needs(a.cfg.Exceptions != nil, "this node does not manage overrides, lists, blocks and grants")
	people := needs(a.cfg.People != nil, "this node does not manage people")
	metrics := accounts.TenantsList // the metrics of a node are sums over all tenants, so this action protects them
	if a.cfg.MetricsPublic {
		metrics = accounts.Public
	}
	alerts := needs(a.cfg.Alerts != nil, "this node does not manage alerts")
	links := needs(a.cfg.Sharing != nil, "this node does not manage shared links")
	configuration := needs(a.cfg.Configuration != nil, "this node does not manage configurations")
	previews := needs(a.cfg.Preview != nil, "this node does not compute previews")
	nodes := needs(a.cfg.Nodes != nil, "this node does not show the nodes")
	reservations := needs(a.cfg.Reservations != nil, "this node does not keep reservations")
	usage := needs(a.cfg.Usage != nil, "this node does not show usage or reset counters")
	return []route{
		post("/v1/check", "check", accounts.Check, nil).params("deny_status"), // ServeHTTP calls serveCheck instead
		post("/v1/checks/:decision/refund", "refundCheck", accounts.Check, reservations(g.RefundCheck)).params("tenant"),
		post("/v1/reservations", "reserve", accounts.Check, nil).decides(a.reserve),
		get("/v1/reservations", "listReservations", accounts.TenantRead, reservations(g.ListReservations)).params("tenant limit cursor"),
		get("/v1/reservations/:reservation", "getReservation", accounts.TenantRead, reservations(g.GetReservation)).params("tenant"),
		del("/v1/reservations/:reservation", "releaseReservation", accounts.Check, reservations(g.ReleaseReservation)).params("tenant"),
		post("/v1/reservations/:reservation/settle", "settleReservation", accounts.Check, reservations(g.SettleReservation)).
			params("tenant").json(body[ReservationSettlement]()),
		post("/v1/reservations/:reservation/extend", "extendReservation", accounts.Check, reservations(g.ExtendReservation)).
			params("tenant").json(body[ReservationExtension]()),
		post("/v1/leases/release", "releaseLease", accounts.Check, nil).decides(a.releaseLease),
		get(forwardAuthPath, "forwardAuth", accounts.Check, nil).decides(a.forwardAuth).fromProxy().
			params("headers attributes jwt cost tenant idempotency lease lease_ttl_ms refundable body deny_status"),
		post("/v1/check/batch", "checkBatch", accounts.Check, nil).decides(a.checkBatch).params("deny_status"),
		post("/v1/explain", "explain", accounts.TenantRead, nil).decides(a.explain),
		get("/v1/explain/:decision", "getExplanation", accounts.TenantRead, g.GetExplanation),
		post("/v1/simulate", "simulate", accounts.Simulate, a.simulate),

		get("/v1/tenants", "listTenants", accounts.TenantsList, g.ListTenants).params("q status plan limit cursor"),
		post("/v1/tenants", "createTenant", accounts.TenantWrite, g.CreateTenant).json(body[NewTenant]()).once(),
		get("/v1/tenants/:tenant", "getTenant", accounts.TenantRead, g.GetTenant),
		put("/v1/tenants/:tenant", "updateTenant", accounts.TenantWrite, g.UpdateTenant).json(body[TenantDocument]()).conditional(),
		patch("/v1/tenants/:tenant", "patchTenant", accounts.TenantWrite, g.UpdateTenant).json(body[TenantDocument]()).conditional().
			merges(a.tenantDocumentOf),
		del("/v1/tenants/:tenant", "deleteTenant", accounts.TenantWrite, g.DeleteTenant).conditional(),

		get("/v1/tenants/:tenant/keys", "listKeys", accounts.KeysRead, g.ListKeys).params("limit cursor"),
		post("/v1/tenants/:tenant/keys", "createKey", accounts.KeysWrite, g.CreateKey).json(body[NewKey]()).once(),
		get("/v1/tenants/:tenant/keys/:key", "getKey", accounts.KeysRead, g.GetKey),
		del("/v1/tenants/:tenant/keys/:key", "revokeKey", accounts.KeysWrite, g.RevokeKey).params("with_created"),
		post("/v1/tenants/:tenant/keys/:key/rotate", "rotateKey", accounts.KeysWrite, g.RotateKey).optionalJSON(body[RotateKey]()).once(),

		get("/v1/tenants/:tenant/overrides", "listOverrides", accounts.TenantRead, exceptions(g.ListOverrides)).params("policy limit cursor"),
		post("/v1/tenants/:tenant/overrides", "createOverride", accounts.ExceptionsWrite, exceptions(g.CreateOverride)).json(body[NewOverride]()).
			once(),
		get("/v1/tenants/:tenant/overrides/:override", "getOverride", accounts.TenantRead, exceptions(g.GetOverride)),
		put("/v1/tenants/:tenant/overrides/:override", "updateOverride", accounts.ExceptionsWrite, exceptions(g.UpdateOverride)).
			json(body[OverrideDocument]()).conditional(),
		patch("/v1/tenants/:tenant/overrides/:override", "patchOverride", accounts.ExceptionsWrite, exceptions(g.UpdateOverride)).
			json(body[OverrideDocument]()).conditional().merges(a.overrideDocumentOf),
		del("/v1/tenants/:tenant/overrides/:override", "deleteOverride", accounts.ExceptionsWrite, exceptions(g.DeleteOverride)),
		get("/v1/tenants/:tenant/lists", "listListEntries", accounts.TenantRead, exceptions(g.ListListEntries)).params("list q limit cursor"),
		post("/v1/tenants/:tenant/lists", "createListEntry", accounts.ExceptionsWrite, exceptions(g.CreateListEntry)).json(body[NewListEntry]()).
			once(),
		get("/v1/tenants/:tenant/lists/:entry", "getListEntry", accounts.TenantRead, exceptions(g.GetListEntry)),
		del("/v1/tenants/:tenant/lists/:entry", "deleteListEntry", accounts.ExceptionsWrite, exceptions(g.DeleteListEntry)),
		get("/v1/tenants/:tenant/blocks", "listBlocks", accounts.TenantRead, exceptions(g.ListBlocks)).params("policy limit cursor"),
		post("/v1/tenants/:tenant/blocks", "createBlock", accounts.ExceptionsWrite, exceptions(g.CreateBlock)).json(body[NewBlock]()).
			once(),
		get("/v1/tenants/:tenant/blocks/:block", "getBlock", accounts.TenantRead, exceptions(g.GetBlock)),
		del("/v1/tenants/:tenant/blocks/:block", "deleteBlock", accounts.ExceptionsWrite, exceptions(g.DeleteBlock)),
		get("/v1/tenants/:tenant/grants", "listGrants", accounts.TenantRead, exceptions(g.ListGrants)).params("policy limit cursor"),
		post("/v1/tenants/:tenant/grants", "createGrant", accounts.ExceptionsWrite, exceptions(g.CreateGrant)).json(body[NewGrant]()).
			once(),
		get("/v1/tenants/:tenant/grants/:grant", "getGrant", accounts.TenantRead, exceptions(g.GetGrant)),
		del("/v1/tenants/:tenant/grants/:grant", "deleteGrant", accounts.ExceptionsWrite, exceptions(g.DeleteGrant)),
		post("/v1/tenants/:tenant/reset", "resetKey", accounts.ExceptionsWrite, usage(g.ResetKey)).json(body[Reset]()),

		get("/v1/tenants/:tenant/leases", "listLeases", accounts.TenantRead, usage(g.ListLeases)).params("policy key"),
		post("/v1/tenants/:tenant/leases/revoke", "revokeLease", accounts.ExceptionsWrite, usage(g.RevokeLease)).json(body[LeaseRevocation]()),

		get("/v1/tenants/:tenant/usage", "getUsage", accounts.TenantRead, usage(g.GetUsage)).params("policy key"),
		get("/v1/tenants/:tenant/usage.csv", "downloadUsage", accounts.TenantRead, g.DownloadUsage).params("from to step").
			expensive(maxDownload),

		get("/v1/tenants/:tenant/members", "listMembers", accounts.MembersRead, people(g.ListMembers)).params("q limit cursor"),
		post("/v1/tenants/:tenant/members", "inviteMember", accounts.MembersWrite, people(g.InviteMember)).json(body[NewInvitation]()).
			once(),
		get("/v1/tenants/:tenant/members/:member", "getMember", accounts.MembersRead, people(g.GetMember)),
		put("/v1/tenants/:tenant/members/:member", "updateMember", accounts.MembersWrite, people(g.UpdateMember)).
			json(body[Access]()).conditional(),
		patch("/v1/tenants/:tenant/members/:member", "patchMember", accounts.MembersWrite, people(g.UpdateMember)).
			json(body[Access]()).conditional().merges(a.accessOf),
		del("/v1/tenants/:tenant/members/:member", "removeMember", accounts.MembersWrite, people(g.RemoveMember)),
		del("/v1/tenants/:tenant/members/:member/second-factor", "resetMemberSecondFactor", accounts.MembersWrite,
			people(g.ResetMemberSecondFactor)),
		get("/v1/tenants/:tenant/invitations", "listMemberInvitations", accounts.MembersRead, people(g.ListMemberInvitations)).
			params("limit cursor"),
		del("/v1/tenants/:tenant/invitations/:invitation", "deleteMemberInvitation", accounts.MembersWrite, people(g.DeleteMemberInvitation)),
		get("/v1/people", "listPeople", accounts.PeopleRead, people(g.ListPeople)).params("q limit cursor"),
		post("/v1/people", "invitePerson", accounts.PeopleWrite, people(g.InvitePerson)).json(body[NewInvitation]()).once(),
		get("/v1/people/:person", "getPerson", accounts.PeopleRead, people(g.GetPerson)),
		put("/v1/people/:person", "updatePerson", accounts.PeopleWrite, people(g.UpdatePerson)).json(body[Access]()).conditional(),
		patch("/v1/people/:person", "patchPerson", accounts.PeopleWrite, people(g.UpdatePerson)).json(body[Access]()).conditional().
			merges(a.accessOf),
		del("/v1/people/:person", "removePerson", accounts.PeopleWrite, people(g.RemovePerson)),
		del("/v1/people/:person/second-factor", "resetPersonSecondFactor", accounts.PeopleWrite, people(g.ResetPersonSecondFactor)),
		get("/v1/invitations", "listInvitations", accounts.PeopleRead, people(g.ListInvitations)).params("limit cursor"),
		del("/v1/invitations/:invitation", "deleteInvitation", accounts.PeopleWrite, people(g.DeleteInvitation)),

		get("/v1/operator-keys", "listOperatorKeys", accounts.OperatorKeysRd, g.ListOperatorKeys).params("limit cursor"),
		post("/v1/operator-keys", "createOperatorKey", accounts.OperatorKeysWr, g.CreateOperatorKey).json(body[NewKey]()).once(),
		get("/v1/operator-keys/:key", "getOperatorKey", accounts.OperatorKeysRd, g.GetOperatorKey),
		del("/v1/operator-keys/:key", "revokeOperatorKey", accounts.OperatorKeysWr, g.RevokeOperatorKey).params("with_created"),
		post("/v1/operator-keys/:key/rotate", "rotateOperatorKey", accounts.OperatorKeysWr, g.RotateOperatorKey).optionalJSON(body[RotateKey]()).
			once(),

		get("/v1/plans", "listPlans", accounts.PlansRead, g.ListPlans).params("q limit cursor"),
		post("/v1/plans", "createPlan", accounts.PlansWrite, g.CreatePlan).json(body[NewPlan]()).once(),
		get("/v1/plans/:plan", "getPlan", accounts.PlansRead, g.GetPlan),
		del("/v1/plans/:plan", "deletePlan", accounts.PlansWrite, g.DeletePlan).conditional(),
		get("/v1/plans/:plan/draft", "getDraft", accounts.PlansRead, g.GetDraft),
		put("/v1/plans/:plan/draft", "saveDraft", accounts.PlansWrite, g.SaveDraft).json(body[PlanDocument]()).conditional(),
		post("/v1/plans/:plan/draft/validate", "validateDraft", accounts.PlansRead, g.ValidateDraft).optionalJSON(body[nothing]()),
		get("/v1/plans/:plan/draft/preview", "getDraftPreview", accounts.PlansRead, previews(g.GetDraftPreview)).params("from to").
			expensive(maxSlow),
		get("/v1/plans/:plan/diff", "diffPlan", accounts.PlansRead, g.DiffPlan),
		post("/v1/plans/:plan/publish", "publishPlan", accounts.PlansWrite, g.PublishPlan).optionalJSON(body[Publish]()),
		get("/v1/plans/:plan/versions", "listVersions", accounts.PlansRead, g.ListVersions).params("limit cursor"),
		get("/v1/plans/:plan/versions/:version", "getVersion", accounts.PlansRead, g.GetVersion),

		get("/v1/configuration", "getConfiguration", accounts.TenantsList, configuration(g.GetConfiguration)).expensive(maxSlow),
		post("/v1/configuration/apply", "applyConfiguration", accounts.PlansWrite, configuration(g.ApplyConfiguration)).
			params("dry_run prune").json(body[Configuration]()).expensive(maxSlow),

		get("/v1/analytics/traffic", "getTraffic", accounts.TenantRead, g.GetTraffic).params("tenant policy route from to step"),
		get("/v1/analytics/policies", "getPolicyTraffic", accounts.TenantRead, g.GetPolicyTraffic).params("tenant from to step limit"),
		get("/v1/analytics/routes", "getRouteTraffic", accounts.TenantRead, g.GetRouteTraffic).params("tenant from to step limit"),
		get("/v1/analytics/keys", "getTopKeys", accounts.TenantRead, g.GetTopKeys).params("tenant policy from to outcome limit"),
		get("/v1/analytics/tenants", "getTenantTraffic", accounts.TenantsList, g.GetTenantTraffic).params("from to sort limit"),
		get("/v1/analytics/retry-after", "getRetryAfterHistogram", accounts.TenantRead, g.GetRetryAfterHistogram).params("tenant from to"),
		get("/v1/analytics/remaining", "getRemainingHistogram", accounts.TenantRead, g.GetRemainingHistogram).params("tenant policy from to"),
		get("/v1/analytics/latency", "getLimiterLatency", accounts.TenantsList, g.GetLimiterLatency).params("from to step"),
		get("/v1/analytics/refusals", "listRefusals", accounts.TenantRead, g.ListRefusals).
			params("tenant policy route outcome degraded reason from to limit cursor"),
		get("/v1/analytics/refusals.csv", "downloadRefusals", accounts.TenantRead, g.DownloadRefusals).
			params("tenant policy route outcome degraded reason from to").expensive(maxDownload),
		get("/v1/analytics/live", "getLive", accounts.TenantRead, g.GetLive).params("tenant"),

		get("/v1/nodes", "getNodes", accounts.TenantsList, nodes(g.GetNodes)),

		get("/v1/alert-rules", "listAlertRules", accounts.AlertsRead, alerts(g.ListAlertRules)).params("tenant limit cursor"),
		post("/v1/alert-rules", "createAlertRule", accounts.AlertsWrite, alerts(g.CreateAlertRule)).
			params("tenant").json(body[AlertRuleDocument]()).once(),
		get("/v1/alert-rules/:rule", "getAlertRule", accounts.AlertsRead, alerts(g.GetAlertRule)).params("tenant"),
		put("/v1/alert-rules/:rule", "updateAlertRule", accounts.AlertsWrite, alerts(g.UpdateAlertRule)).params("tenant").
			json(body[AlertRuleDocument]()).conditional(),
		patch("/v1/alert-rules/:rule", "patchAlertRule", accounts.AlertsWrite, alerts(g.UpdateAlertRule)).params("tenant").
			json(body[AlertRuleDocument]()).conditional().merges(a.alertRuleOf),
		del("/v1/alert-rules/:rule", "deleteAlertRule", accounts.AlertsWrite, alerts(g.DeleteAlertRule)).params("tenant"),
		get("/v1/alert-channels", "listAlertChannels", accounts.AlertsRead, alerts(g.ListAlertChannels)).
			params("tenant limit cursor"),
		post("/v1/alert-channels", "createAlertChannel", accounts.AlertsWrite, alerts(g.CreateAlertChannel)).params("tenant").
			json(body[AlertChannelDocument]()).once(),
		get("/v1/alert-channels/:channel", "getAlertChannel", accounts.AlertsRead, alerts(g.GetAlertChannel)).params("tenant"),
		put("/v1/alert-channels/:channel", "updateAlertChannel", accounts.AlertsWrite, alerts(g.UpdateAlertChannel)).params("tenant").
			json(body[AlertChannelDocument]()).conditional(),
		patch("/v1/alert-channels/:channel", "patchAlertChannel", accounts.AlertsWrite, alerts(g.UpdateAlertChannel)).params("tenant").
			json(body[AlertChannelDocument]()).conditional().merges(a.alertChannelOf),
		del("/v1/alert-channels/:channel", "deleteAlertChannel", accounts.AlertsWrite, alerts(g.DeleteAlertChannel)).
			params("tenant"),
		post("/v1/alert-channels/:channel/rotate-secret", "rotateAlertSecret", accounts.AlertsWrite, alerts(g.RotateAlertSecret)).
			params("tenant"),
		post("/v1/alert-channels/:channel/test", "createAlertTest", accounts.AlertsWrite, alerts(g.CreateAlertTest)).
			params("tenant").once(),
		get("/v1/alerts", "listAlerts", accounts.AlertsRead, alerts(g.ListAlerts)).params("tenant open limit cursor"),
		get("/v1/alert-maintenance", "listAlertMaintenance", accounts.AlertsRead, alerts(g.ListAlertMaintenance)).
			params("tenant limit cursor"),
		post("/v1/alert-maintenance", "createAlertMaintenance", accounts.AlertsWrite, alerts(g.CreateAlertMaintenance)).params("tenant").
			json(body[AlertMaintenanceDocument]()).once(),
		get("/v1/alert-maintenance/:maintenance", "getAlertMaintenance", accounts.AlertsRead, alerts(g.GetAlertMaintenance)).params("tenant"),
		del("/v1/alert-maintenance/:maintenance", "deleteAlertMaintenance", accounts.AlertsWrite, alerts(g.DeleteAlertMaintenance)).
			params("tenant"),
		get("/v1/shared-links", "listSharedLinks", accounts.SharedLinksRead, links(g.ListSharedLinks)).params("tenant limit cursor"),
		post("/v1/shared-links", "createSharedLink", accounts.SharedLinksWrite, links(g.CreateSharedLink)).params("tenant").
			json(body[NewSharedLink]()).once().expensive(maxSlow),
		get("/v1/shared-links/:link", "getSharedLink", accounts.SharedLinksRead, links(g.GetSharedLink)).params("tenant"),
		del("/v1/shared-links/:link", "revokeSharedLink", accounts.SharedLinksWrite, links(g.RevokeSharedLink)).params("tenant"),
		get("/v1/alerts/:alert", "getAlert", accounts.AlertsRead, alerts(g.GetAlert)).params("tenant"),
		get("/v1/alert-templates", "listAlertTemplates", accounts.AlertsRead, alerts(g.ListAlertTemplates)).params("tenant"),
		get("/v1/alert-deliveries/:delivery", "getAlertDelivery", accounts.AlertsRead, alerts(g.GetAlertDelivery)).params("tenant"),
		get("/v1/alert-deliveries", "listAlertDeliveries", accounts.AlertsRead, alerts(g.ListAlertDeliveries)).
			params("tenant status limit cursor"),
		post("/v1/alert-deliveries/:delivery/repeat", "createAlertRepetition", accounts.AlertsWrite, alerts(g.CreateAlertRepetition)).
			params("tenant").once(),

		get("/v1/audit", "listAudit", accounts.TenantRead, g.ListAudit).params("tenant action object from to limit cursor"),
		get("/v1/audit.csv", "downloadAudit", accounts.TenantRead, g.DownloadAudit).params("tenant action object from to").
			expensive(maxDownload),

		get("/healthz", "healthz", accounts.Public, a.alive),
		get("/livez", "livez", accounts.Public, a.alive),
		get("/readyz", "readyz", accounts.Public, a.readyz).params("verbose"),
		get("/metrics", "metrics", metrics, a.metrics),
		get("/openapi.yaml", "openapi", accounts.Public, serveDocument(specYAML, a.cfg.Version)),
		get("/openapi.json", "openapiJSON", accounts.Public, serveDocument(specJSON, a.cfg.Version)),
	}
}
