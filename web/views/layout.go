package views

import "github.com/a-h/templ"

// A Page has what the frame around the content of a page shows.
type Page struct {
	Title, Version string
	Path           string // of the address
	Self           string // the address with its query
	Assets         Assets
	// Theme is "light", "dark", or "" for the theme of the system.
	Theme string
	// Zone has the time zone in which the page shows times, and the form that changes the zone.
	Zone ZoneChoice
	// Person is the signed-in visitor. It is nil if the visitor is not signed in. It is also nil
	// on a page that is the same for all visitors. Such a page has AccountURL instead, a link to
	// the account, or "".
	Person     *Person
	AccountURL string
	// Crumbs are the breadcrumb links: the pages above this page, and this page.
	Crumbs []Link
	// Demo says that the page shows the banner for a demo database.
	Demo bool
	// Charts is set if the page has charts.
	Charts bool
	// Draft is set on the pages of one plan. On these pages, the script keeps the unsaved draft in
	// the browser tab.
	Draft bool
	// Passkey is set if the page has a form that creates or uses a passkey.
	Passkey bool
	// Live is the address of the event stream that updates the page. It is "" if there is none.
	Live string
	// Shared is set on the page of a shared link. Search engines must not index such a page.
	Shared bool
}

// Assets are the addresses of static files.
type Assets struct {
	Stylesheet, Icon, Font                 string
	Htmx, SSE, UPlot, Script, Chart, Draft string
	Passkey                                string
}

// A Person is the signed-in visitor of a page, with the navigation.
type Person struct {
	ID, Name, Email string
	Role            string // in words: "Tenant admin"
	Tenant          string // name of the member's tenant; "" for the operator's people
	Nav             []NavGroup
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

// within reports whether a path is the path of the link, or lies below that path.
func (l NavLink) within(path string) bool {
	return path == l.URL || len(path) > len(l.URL) && path[:len(l.URL)] == l.URL && path[len(l.URL)] == '/'
}

// current returns the ARIA attributes of a link. open says that the link leads to the open
// page. kind is "page", or "true" for a choice.
func current(kind string, open bool) templ.Attributes {
	if !open {
		return nil
	}
	return templ.Attributes{"aria-current": kind}
}

// current returns the URL of the navigation entry to highlight. It is the longest URL that is a
// prefix of path.
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

// A Tab is a link to one of several pages about one object.
type Tab struct {
	Text, URL string
	Current   bool
}
