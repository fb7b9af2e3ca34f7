// Package web serves the pages that people read in a browser: sign-in, one's own
// account, the people of the operator and of each tenant; and, for everybody, the
// API reference and the pages of the problem types, drawn from the embedded
// openapi.yaml and from problem.Catalogue, so that neither can differ from what
// the API does.
//
// A request comes in at the route table in routes.go, passes serve.go (headers,
// other sites, session, the one table of who may) and goes out as HTML from
// views. Pages work without scripts and carry a strict Content-Security-Policy:
// nothing inline, nothing from another host. The package refuses to know how
// checks are decided and how passwords are kept, and never imports api.
package web
