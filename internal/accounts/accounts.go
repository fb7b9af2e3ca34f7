// Package accounts holds those who act for the operator: operator keys, and
// (with the dashboard) people, roles and sessions.
//
// The form of a key's token is that of tenants' keys (tenants/token.go). The
// package refuses to know HTTP and SQL.
package accounts

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/tenants"
)

// An OperatorKey acts for the operator on every tenant. It is the tenant's Key
// without a tenant.
type OperatorKey struct {
	ID        string // UUIDv7
	Name      string
	Hash      [32]byte
	Hint      string
	Scopes    []tenants.Scope
	ExpiresAt time.Time
	RevokedAt time.Time
	CreatedAt time.Time
	Revision  int64
}

// A Store keeps operator keys and settings; the contract of tenants.Store
// (one transaction, audit line, revision) holds here too.
type Store interface {
	OperatorKeys(ctx context.Context, f tenants.Filter) ([]OperatorKey, error)
	OperatorKey(ctx context.Context, id string) (OperatorKey, error)
	CreateOperatorKey(ctx context.Context, k OperatorKey, e audit.Entry) (OperatorKey, error)
	RotateOperatorKey(ctx context.Context, id string, until time.Time, next OperatorKey, e audit.Entry) (OperatorKey, error)
	// RevokeOperatorKey ends a key now. The last valid key with manage cannot
	// be revoked: Conflict (code last_operator_key).
	RevokeOperatorKey(ctx context.Context, id string, at time.Time, e audit.Entry) (OperatorKey, error)
	// Setting gives "" without one. Settings are small named documents of the operator.
	Setting(ctx context.Context, name string) (string, error)
	PutSetting(ctx context.Context, name, value string, e audit.Entry) error
}
