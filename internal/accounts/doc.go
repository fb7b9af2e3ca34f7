// Package accounts holds the people who sign in: users, roles, sessions and
// invitations. It also has the one table of who may do what, for people and keys.
//
// It must not depend on HTTP or SQL.
package accounts
