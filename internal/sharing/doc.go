// Package sharing manages shared links. A shared link opens one page of the dashboard without a
// session: as a live display, or as a snapshot, which is a copy of the page at one time.
//
// The package stores which page a link opens and who owns the link. It does not draw pages. Each
// page group of package web registers the function that draws its page. Therefore the form on a
// page and the REST API create links in the same way.
package sharing
