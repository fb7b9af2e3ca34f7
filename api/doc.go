// Package api is the REST API: what openapi.yaml says, over echo.
//
// A request comes in at API.ServeHTTP and finds its row in the route table
// (routes.go), which says who may call it. Authentication asks the snapshot
// (auth.go), never a database. POST /v1/check and its batch are decided by an
// enforcement.Decider (check.go, batch.go) and written by appending
// (decision.go, headers.go). All else goes through the generated strict server:
// management and exceptions call the services (tenants.go, keys.go, plans.go,
// overrides.go, lists.go, blocks.go, reset.go, audit.go), explain.go asks the
// Decider why, and analytics.go and refusals.go what was counted. Every error
// leaves through one table (problems.go).
//
// The package translates and decides nothing: it refuses to know SQL, counters
// and what a plan may say.
package api

//go:generate go tool -modfile=../tools/go.mod oapi-codegen -config oapi-codegen.yaml ../openapi.yaml
