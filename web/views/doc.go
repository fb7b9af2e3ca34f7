// Package views contains the templ components of the pages and their view models. It does not
// read data and does not decide what a visitor may see.
package views
