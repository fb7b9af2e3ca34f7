// Package web has the parts of the dashboard that all pages share: routing, sessions,
// authorization, live updates and static files. Each group of pages is a package in a
// subfolder, such as web/traffic. These packages import package web. Package web does not import
// them: cmd/server passes the routes of each group to Shell.Register.
//
// For each request, serve.go sets headers, finds the session, and checks the permission of the
// visitor. Then it runs the handler of a page group. The handler reads the form, calls a service,
// and renders a component of package views.
//
//	shell.go                          settings of the dashboard, and the frame of each page
//	routes.go                         the route table
//	serve.go                          what happens before each handler
//	session.go                        the visitor of a request, and the session cookie
//	cross_site_check_and_form_body.go rejects writes from other sites; reads forms
//	errors.go                         the page of an error
//	form_retry.go                     shows a form again, with errors at its fields
//	navigation.go                     menus and themes
//	tenant_pages.go                   what the pages of one tenant share
//	time_range.go                     the time range that a page shows
//	live_streams.go, live_drawing.go  live streams: server-sent events with HTML
//	pagination.go                     one page of a list
//	policy_and_key_words.go           English words for policies and keys
//	show_once.go                      secrets that are shown once
//	assets.go                         static files
//
// Pages work without scripts. Each page has a strict Content-Security-Policy: no inline scripts
// and styles, and nothing from another host. Package web must not import package api.
package web
