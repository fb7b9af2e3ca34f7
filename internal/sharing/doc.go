// Package sharing manages shared links. A shared link opens one page of the dashboard without a
// session: as a live display, or as a snapshot, which is a copy of the page at one time.
//
// The package stores what a link opens and who owns it. It does not draw pages: package web and
// the page groups do.
package sharing
