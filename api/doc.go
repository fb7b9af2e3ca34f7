// Package api serves the REST API of openapi.yaml with echo.
//
// A request enters at API.ServeHTTP. The row of its route in routes.go has the action for which the
// caller is authorized. Authentication uses the snapshot (auth.go) and no database. An
// enforcement.Decider decides POST /v1/check and batches (check.go, batch.go); decision_json.go and
// headers.go write the responses. All other operations go through the generated strict server, and
// call services. explain.go explains a check. analytics.go and recorded_denials.go read recorded
// counts. problems.go writes every error.
//
// The package converts requests and responses. It contains no SQL, no counters, and no rules about
// plans.
package api

//go:generate go tool -modfile=../tools/go.mod oapi-codegen -config oapi-codegen.yaml ../openapi.yaml
