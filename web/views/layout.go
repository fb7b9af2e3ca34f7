package views

import "github.com/a-h/templ"

// A Page is what the frame around every page shows.
type Page struct {
	Title, Version string
	Path           string // of the address
	Self           string // the address with its query
	Assets         Assets
	// Theme is "light" or "dark"; "": what the system has.
	Theme string
	// Person is who looks at it; nil: nobody is signed in, or the page is the same
	// for everybody. AccountURL then leads to one's own, "" on a node without people.
	Person     *Person
	AccountURL string
	// Crumbs lead from the page above to this one's.
	Crumbs []Link
	// Demo is set if the page shows the banner of a demo database.
	Demo bool
	// Charts tells that the page draws some.
	Charts bool
	// Live is the address of the page's stream of changes; "": none, or paused.
	Live string
}

// Assets are the addresses of static files.
type Assets struct {
	Stylesheet, Icon, Font          string
	Htmx, SSE, UPlot, Script, Chart string
}

// A Person is who looks at a page; nil: nobody is signed in.
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

// within reports whether a page is the link's, or below it.
func (l NavLink) within(path string) bool {
	return path == l.URL || len(path) > len(l.URL) && path[:len(l.URL)] == l.URL && path[len(l.URL)] == '/'
}

// current marks the link of a list that is open: kind is page, or true where the
// link is a choice. An empty aria-current says nothing to a screen reader.
func current(kind string, open bool) templ.Attributes {
	if !open {
		return nil
	}
	return templ.Attributes{"aria-current": kind}
}

// current gives the entry of the navigation that a page belongs to: the one with
// the longest address above it.
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

// A Link is a text that leads somewhere.
type Link struct{ Text, URL string }

// A Tab is one of the pages that belong to one thing.
type Tab struct {
	Text, URL string
	Current   bool
}
