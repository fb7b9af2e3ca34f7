// Package snapshot compiles tenants and plans into one immutable lookup, and
// swaps it when they change.
package snapshot
