package tenants

import "time"

// A Scope is a permission of an API key. ScopeManage includes ScopeRead.
type Scope string

// The scopes.
const (
	ScopeCheck  Scope = "check"
	ScopeRead   Scope = "read"
	ScopeManage Scope = "manage"
	// ScopeIdentify is the scope of a key that a customer sends to a gateway with a request. The
	// key only shows which tenant sent the request.
	ScopeIdentify Scope = "identify"
)

// A Key is an API key of a tenant or of the operator, without its token.
type Key struct {
	ID        string // UUIDv7
	TenantID  string // "" for a key of the operator, which can access every tenant
	Name      string
	Hash      [32]byte // SHA-256 of the token
	Hint      string   // first and last characters of the token, like "hg_tn_Ab3d…9xYz", by which people recognize the key
	Scopes    []Scope
	ExpiresAt time.Time // zero if the key does not expire
	RevokedAt time.Time // zero if the key is not revoked; after a rotation, a time in the future until which the key is valid
	CreatedAt time.Time
	// CreatedBy is the ID of the API key that was used to create or rotate this key. It is ""
	// if a person, a command or the bootstrap key created or rotated it.
	CreatedBy string
	// LastUsedAt is the last time at which the key authenticated a request on any node. It is zero
	// if the key was never used. Nodes store it once a minute, so it can be up to a minute too
	// early.
	LastUsedAt time.Time
	// AllowedIPs are the ranges of addresses from which the key may be used. If it is empty,
	// the key may be used from all addresses.
	AllowedIPs Networks
	Bounds
	Revision int64
}

// A KeyUse is the last time at which one node used a key.
type KeyUse struct {
	ID string // of the key
	At time.Time
}

// Bounds restrict which checks a key may send. Without bounds, the holder of a key could use up the
// quota of the tenant with one check.
type Bounds struct {
	MaxCost  int64 // maximum cost of one check; 0: no maximum
	PeekOnly bool  // set if checks must have the mode peek
}

// Within reports whether the bounds wide allow every check that the bounds b allow.
func (b Bounds) Within(wide Bounds) bool {
	return (wide.MaxCost == 0 || b.MaxCost > 0 && b.MaxCost <= wide.MaxCost) && (b.PeekOnly || !wide.PeekOnly)
}

// Operator reports whether the key belongs to the operator.
func (k Key) Operator() bool { return k.TenantID == "" }

// Kind returns the first part of the audit actions about the key: "key", or "operator_key" if
// the key belongs to the operator.
func (k Key) Kind() string {
	if k.Operator() {
		return "operator_key"
	}
	return "key"
}
