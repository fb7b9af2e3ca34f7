// Package web is the shell of the dashboard. The page groups in the packages
// below it import it; it imports none of them. cmd/server passes the rows of each
// group to Shell.Register.
//
// A request enters at the route table. serve.go sets headers, finds the session,
// and checks the authorization table before it runs the handler of a group. The
// handler reads the form, calls a service, and renders a component of views.
//
//	shell.go                          Config, Shell, pages and rendering
//	routes.go                         rows of the route table, and the shell's own rows
//	serve.go                          what happens before each handler
//	session.go                        the visitor of a request, and the session cookie
//	cross_site_and_forms.go           protection against requests from other sites; reads forms
//	errors.go                         the page of an error
//	form_retry.go                     error messages of a form at their fields
//	navigation.go                     menus and themes
//	tenant_pages.go                   what the pages of one tenant share
//	time_range.go                     the time range that a page shows
//	live_streams.go, live_drawing.go  live streams: server-sent events with HTML
//	pagination.go                     one page of a list
//	policy_and_key_words.go           English words for policies and keys
//	show_once.go                      secrets that are shown once
//	assets.go                         static files
//
// Pages work without scripts. Each page has a strict Content-Security-Policy:
// nothing inline, nothing from another host. The package never imports api.
package web
