package api

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/tenants"
)

// Check is what DecodeCheck reads.
type Check = enforcement.Check

// RouteRow is a row of the route table, for tests that compare it with openapi.yaml.
type RouteRow struct {
	Method, Path, Operation, Scope string
	Callers                        []string
	Query                          []string
	IfMatch, Body, BodyOptional    bool
	Idempotent                     bool
}

// RouteTable returns the rows.
func (a *API) RouteTable() []RouteRow {
	var rows []RouteRow
	for _, r := range a.routes() {
		row := RouteRow{
			Method: r.method, Path: r.path, Operation: r.operation, Query: r.query, IfMatch: r.ifMatch, Idempotent: r.idempotent,
			Body: r.body != nil && r.body != reflect.TypeFor[nothing]() || slices.Contains([]string{"check", "explain", "checkBatch", "simulate", "reserve", "releaseLease"}, r.operation), BodyOptional: r.bodyOptional && r.body != reflect.TypeFor[nothing](),
		}
		row.Callers, row.Scope = whoMay(r.action)
		rows = append(rows, row)
	}
	return rows
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

// Asking returns a function that authenticates a request and authorizes it for an action.
func (a *API) Asking(r *http.Request, action accounts.Action) func() error {
	g := newGate(action)
	return func() error {
		who, err := a.authenticate(r, a.cfg.ClientIP)
		if err != nil {
			return err
		}
		return g.authorize(who, "")
	}
}

// whoMay returns which callers may do an action, and the scope that is sufficient for it, from
// the table in package accounts.
func whoMay(action accounts.Action) (callers []string, scope string) {
	if accounts.Authorize(accounts.Principal{}, action) == nil {
		return []string{"anyone"}, ""
	}
	for _, p := range []accounts.Principal{{Kind: operatorKey}, {Kind: tenantKey, TenantID: "any"}} {
		for _, s := range []tenants.Scope{tenants.ScopeCheck, tenants.ScopeRead, tenants.ScopeManage} {
			if p.Scopes = []tenants.Scope{s}; accounts.Authorize(p, action) == nil {
				callers, scope = append(callers, p.Kind[:strings.Index(p.Kind, "_")]), string(s)
				break
			}
		}
	}
	return callers, scope
}

// These functions are for fuzz tests of parsers of external input.
var (
	Bearer      = bearer
	DecodeBatch = func(text string, operator bool) (int, error) {
		var b batch
		err := b.decode(text, operator)
		return len(b.checks), err
	}
	Page = func(cursor string) error {
		_, err := page("/v1/tenants", nil, 0, cursor)
		return err
	}
	// Forge returns a cursor of the list of tenants to any position.
	Forge = func(after string) string { return listing{path: "/v1/tenants"}.cursor(after) }
	// ForgeFor returns a cursor of any listing without filters.
	ForgeFor = func(path, after string) string { return listing{path: path}.cursor(after) }
)

// DecodeCheck reads a body as POST /v1/check does.
func DecodeCheck(text string) (tenant string, c Check, err error) {
	var s scratch
	tenant, err = s.decode(text)
	return tenant, s.check, err
}
