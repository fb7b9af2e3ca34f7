package views

import "github.com/a-h/templ"

// A Page is the content of the frame of a page.
type Page struct {
	Title, Version string
	Path           string // of the address
	Self           string // the address with its query
	Assets         Assets
	// Theme is "light", "dark", or "" for that of the system.
	Theme string
	// Person is the visitor. It is nil if the visitor is not signed in, or if the page is
	// the same for all visitors. AccountURL is then the account, or "".
	Person     *Person
	AccountURL string
	// Crumbs are the pages above, and the page.
	Crumbs []Link
	// Demo is set if the page shows the banner of a demo database.
	Demo bool
	// Charts is set if the page has charts.
	Charts bool
	// Live is the address of the stream of the page, or "".
	Live string
}

// Assets are the addresses of static files.
type Assets struct {
	Stylesheet, Icon, Font          string
	Htmx, SSE, UPlot, Script, Chart string
}

// A Person is the visitor of a page.
type Person struct {
	Name, Email string
	Role        string // in words: "Tenant admin"
	Tenant      string // the name of the tenant, "" for the operator's people
	Nav         []NavGroup
}

// A NavGroup is pages that belong together.
type NavGroup struct {
	Title string // "" for the first
	Links []NavLink
}

// A NavLink is one entry of the navigation.
type NavLink struct {
	Text, URL, Icon string
}

// within reports whether a path is that of the link or below it.
func (l NavLink) within(path string) bool {
	return path == l.URL || len(path) > len(l.URL) && path[:len(l.URL)] == l.URL && path[len(l.URL)] == '/'
}

// current returns the attributes of the open link of a list. kind is "page", or "true"
// for a choice.
func current(kind string, open bool) templ.Attributes {
	if !open {
		return nil
	}
	return templ.Attributes{"aria-current": kind}
}

// current returns the address of the navigation entry of a page: the longest one that is
// a prefix of the path.
func (p *Person) current(path string) string {
	longest := ""
	for _, g := range p.Nav {
		for _, l := range g.Links {
			if l.within(path) && len(l.URL) > len(longest) {
				longest = l.URL
			}
		}
	}
	return longest
}

// A Link is a text with an address.
type Link struct{ Text, URL string }

// A Tab is one of the pages that belong to one thing.
type Tab struct {
	Text, URL string
	Current   bool
}
