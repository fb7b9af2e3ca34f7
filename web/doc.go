// Package web serves the pages that people read in a browser: the API
// reference and the pages of the problem types, drawn from the embedded
// openapi.yaml and from problem.Catalogue, so that neither can differ from what
// the API does.
//
// A request comes in at the route table in web.go and goes out as HTML from
// views. Pages carry a strict Content-Security-Policy: no inline script or
// style, nothing from another host. The package refuses to know how checks are
// decided, and never imports api.
package web
