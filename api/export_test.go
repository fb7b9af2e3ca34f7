package api

import (
	"reflect"

	"github.com/headgate/headgate/enforcement"
)

// Check is what DecodeCheck reads.
type Check = enforcement.Check

// RouteRow is a row of the route table, for tests that hold it against the
// document.
type RouteRow struct {
	Method, Path, Operation, Scope string
	Callers                        []string
	Query                          []string
	IfMatch, Body, BodyOptional    bool
}

// RouteTable gives the rows.
func (a *API) RouteTable() []RouteRow {
	var rows []RouteRow
	for _, r := range a.routes() {
		row := RouteRow{
			Method: r.method, Path: r.path, Operation: r.operation, Scope: string(r.scope), Query: r.query, IfMatch: r.ifMatch,
			Body: r.body != nil && r.body != reflect.TypeFor[nothing]() || r.operation == "check" || r.operation == "explain" || r.operation == "checkBatch" || r.operation == "simulate", BodyOptional: r.bodyOptional && r.body != reflect.TypeFor[nothing](),
		}
		switch r.callers {
		case anyone:
			row.Callers = []string{"anyone"}
		case operators:
			row.Callers = []string{"operator"}
		case everyKey:
			row.Callers = []string{"operator", "tenant"}
		}
		rows = append(rows, row)
	}
	return rows
}

// For fuzzing what parses outside input.
var (
	Bearer      = bearer
	DecodeBatch = func(text string, operator bool) (int, error) {
		b, err := decodeBatch(text, operator)
		return len(b.checks), err
	}
	Page = func(cursor string) error {
		_, err := page("/v1/tenants", nil, 0, cursor)
		return err
	}
	// Forge makes a cursor of the same listing to any place.
	Forge = func(after string) string { return listing{path: "/v1/tenants"}.cursor(after) }
)

// DecodeCheck reads a body as POST /v1/check does.
func DecodeCheck(text string) (tenant string, c Check, err error) {
	var s scratch
	tenant, err = s.decode(text)
	return tenant, s.check, err
}
