// Package api serves the REST API of openapi.yaml over echo.
//
// A request enters at API.ServeHTTP. Its row in the route table (routes.go) has the
// action that authorizes it. Authentication uses the snapshot (auth.go), never a
// database. An enforcement.Decider decides POST /v1/check and batches (check.go,
// batch.go); decision.go and headers.go write the answers. All other operations use the
// generated strict server and call the services. explain.go explains a check, and
// analytics.go and recorded_denials.go read the counts. problems.go writes every error.
//
// The package translates requests and answers. It contains no SQL, no counters, and no
// rules of plans.
package api

//go:generate go tool -modfile=../tools/go.mod oapi-codegen -config oapi-codegen.yaml ../openapi.yaml
