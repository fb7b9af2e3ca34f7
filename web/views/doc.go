// Package views draws pages: templ components over view models with ready
// values. It asks nothing and decides nothing.
package views
