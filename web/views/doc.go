// Package views has the templ components of the pages and their view models. It reads no
// data and makes no decisions.
package views
