// Package sharing manages shared links. A shared link opens one page of the dashboard without a
// session: as a live display, or as a snapshot, which is a copy of the page at one time.
//
// The package stores what a link opens and who owns it. It does not draw pages: each page group of
// package web gives the Service the function that draws its page. So the form of a page and the REST
// API create links in the same way.
package sharing
