// Package accounts manages the people who sign in: users, roles, sessions and invitations. It also
// has the table that says which roles and API keys may do which action.
//
// It must not depend on HTTP or SQL.
package accounts
