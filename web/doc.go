// Package web serves the dashboard: the pages that people read in a browser, for
// the operator's people and for those of each tenant; and, for everybody, the API
// reference and the pages of the problem types, drawn from the embedded
// openapi.yaml and from problem.Catalogue, so that neither can differ from what
// the API does.
//
// A request comes in at the route table, passes serve.go (headers, other sites,
// session, the one table of who may, the time that a page has) and goes out as
// HTML from views.
//
//	routes.go      the table, from each group's own rows
//	serve.go       what every page goes through; guard.go, session.go, errors.go with it
//	navigation.go  who sees which pages; jump.go finds them by name
//	span.go        the time that a page is about, as its address says it
//	live.go        streams of what changed
//	overview.go    what was decided; traffic.go draws it, answers.go shares it among viewers
//	denials.go     refusals; denial.go one of them
//	tenants.go     tenants; tenant*.go all of one
//	plans.go       plans; plan_*.go the editor, preview, publishing, history
//	explain.go     a request typed in; playground.go limits on a clock of their own
//	audit.go       who changed what; system.go every node; settings.go operator keys
//
// Pages work without scripts and carry a strict Content-Security-Policy: nothing
// inline, nothing from another host. The package refuses to know how checks are
// decided and how passwords are kept, and never imports api.
package web
