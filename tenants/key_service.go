package tenants

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// Keys lists the keys of one tenant, oldest first. The list includes revoked keys. The error is
// problem.NotFound if there is no such tenant.
func (s *Service) Keys(ctx context.Context, tenantID string, f Filter) ([]Key, error) {
	return s.keys(ctx, s.ofTenant(tenantID), f)
}

// OperatorKeys is like Keys, for the keys of the operator.
func (s *Service) OperatorKeys(ctx context.Context, f Filter) ([]Key, error) {
	return s.keys(ctx, ofOperator, f)
}

// Key returns a key of one tenant. The error is problem.NotFound if there is no such key, or if it
// belongs to another tenant or to the operator.
func (s *Service) Key(ctx context.Context, tenantID, id string) (Key, error) {
	return s.key(ctx, s.ofTenant(tenantID), id)
}

// OperatorKey is like Key, for a key of the operator.
func (s *Service) OperatorKey(ctx context.Context, id string) (Key, error) {
	return s.key(ctx, ofOperator, id)
}

// CreateKey creates a key of a tenant. It returns the key and its token. Only a hash of the token
// is stored. The error is problem.NotFound or problem.Invalid.
func (s *Service) CreateKey(ctx context.Context, tenantID string, n NewKey) (Key, string, error) {
	return s.createKey(ctx, s.ofTenant(tenantID), n)
}

// CreateOperatorKey is like CreateKey, for a key of the operator.
func (s *Service) CreateOperatorKey(ctx context.Context, n NewKey) (Key, string, error) {
	return s.createKey(ctx, ofOperator, n)
}

// RotateKey creates a key that replaces an old key, and returns the new key with its token. The new
// key has the name, scopes, bounds, addresses and length of validity of the old key. The old key
// stays valid for the duration overlap, which is at most MaxOverlap, but not longer than its expiry
// time.
//
// The error is problem.NotFound, problem.Invalid, or problem.Conflict. problem.Conflict has the
// code key_ended if the old key has ended, and key_rotated if it was already replaced.
func (s *Service) RotateKey(ctx context.Context, tenantID, id string, overlap time.Duration) (Key, string, error) {
	return s.rotateKey(ctx, s.ofTenant(tenantID), id, overlap)
}

// RotateOperatorKey is like RotateKey, for a key of the operator.
func (s *Service) RotateOperatorKey(ctx context.Context, id string, overlap time.Duration) (Key, string, error) {
	return s.rotateKey(ctx, ofOperator, id, overlap)
}

// RevokeKey makes a key invalid at once. If the key is already revoked, RevokeKey changes nothing.
// The error is problem.NotFound.
func (s *Service) RevokeKey(ctx context.Context, tenantID, id string) (Key, error) {
	return s.revokeKey(ctx, s.ofTenant(tenantID), id)
}

// RevokeOperatorKey is like RevokeKey, for a key of the operator. The error is problem.Conflict
// with the code last_operator_key if the operator would then have no valid key with the scope
// manage.
func (s *Service) RevokeOperatorKey(ctx context.Context, id string) (Key, error) {
	return s.revokeKey(ctx, ofOperator, id)
}

// RevokeKeyAndCreated revokes a key and all keys that were created with this key, directly or
// through other keys. If there is an error, it revokes none of them.
func (s *Service) RevokeKeyAndCreated(ctx context.Context, tenantID, id string) (Key, error) {
	return s.revokeKeyAndCreated(ctx, s.ofTenant(tenantID), id)
}

// RevokeOperatorKeyAndCreated is like RevokeKeyAndCreated, for a key of the operator. The keys
// that were created with it may belong to tenants.
func (s *Service) RevokeOperatorKeyAndCreated(ctx context.Context, id string) (Key, error) {
	return s.revokeKeyAndCreated(ctx, ofOperator, id)
}

// KeysCreatedBy lists the valid keys that were created with the key with this ID, directly or
// through other keys, oldest first. The error is problem.NotFound if there is no such key.
func (s *Service) KeysCreatedBy(ctx context.Context, tenantID, id string) ([]Key, error) {
	return s.keysCreatedBy(ctx, s.ofTenant(tenantID), id)
}

// KeysCreatedByOperatorKey is like KeysCreatedBy, for a key of the operator. The list may
// contain keys of tenants.
func (s *Service) KeysCreatedByOperatorKey(ctx context.Context, id string) ([]Key, error) {
	return s.keysCreatedBy(ctx, ofOperator, id)
}

// An owner returns the owner of the keys that a method acts on: the ID of a tenant, or "" for the
// operator. The owner function of a tenant looks up the tenant in the store. So if a caller passes
// "" as a tenant, the method returns problem.NotFound, and does not act on keys of the operator.
type owner func(ctx context.Context) (tenantID string, err error)

func ofOperator(context.Context) (string, error) { return "", nil }

func (s *Service) ofTenant(idOrSlug string) owner {
	return func(ctx context.Context) (string, error) {
		t, err := s.store.Tenant(ctx, idOrSlug)
		return t.ID, err
	}
}

func (s *Service) keys(ctx context.Context, of owner, f Filter) ([]Key, error) {
	tenantID, err := of(ctx)
	if err != nil {
		return nil, err
	}
	if f.Limit <= 0 {
		f.Limit = DefaultPage
	}
	return s.store.Keys(ctx, tenantID, f)
}

func (s *Service) key(ctx context.Context, of owner, id string) (Key, error) {
	tenantID, err := of(ctx)
	if err != nil {
		return Key{}, err
	}
	return s.store.Key(ctx, tenantID, id)
}

func (s *Service) createKey(ctx context.Context, of owner, n NewKey) (Key, string, error) {
	now := s.instant()
	if err := n.Validate(now); err != nil {
		return Key{}, "", err
	}
	tenantID, err := of(ctx)
	if err != nil {
		return Key{}, "", err
	}
	if tenantID == "" && slices.Contains(n.Scopes, ScopeIdentify) {
		return Key{}, "", problem.At("/scopes",
			"identify is not a scope of operator keys, because such a key stands for its tenant: create it as a key of the tenant")
	}
	k, token := mint(ctx, tenantID, n, now)
	if k.AllowedIPs, err = ParseNetworks(n.AllowedIPs); err != nil {
		return Key{}, "", err
	}
	e := keyEntry(ctx, "create", k, nil, k)
	created, err := s.store.CreateKey(ctx, k, e)
	if err != nil {
		return Key{}, "", err
	}
	return created, token, nil
}

func (s *Service) rotateKey(ctx context.Context, of owner, id string, overlap time.Duration) (Key, string, error) {
	if err := validateOverlap(overlap); err != nil {
		return Key{}, "", err
	}
	old, err := s.key(ctx, of, id)
	if err != nil {
		return Key{}, "", err
	}
	now := s.instant()
	if err := Rotatable(old.ExpiresAt, old.RevokedAt, now); err != nil {
		return Key{}, "", err
	}
	n := NewKey{Name: old.Name, Scopes: old.Scopes, ExpiresAt: old.Renewed(now), Bounds: old.Bounds}
	next, token := mint(ctx, old.TenantID, n, now)
	next.AllowedIPs = old.AllowedIPs
	e := keyEntry(ctx, "rotate", old, old, next)
	created, err := s.store.RotateKey(ctx, old.TenantID, old.ID, now.Add(overlap), next, e)
	if err != nil {
		return Key{}, "", err
	}
	return created, token, nil
}

func (s *Service) revokeKey(ctx context.Context, of owner, id string) (Key, error) {
	k, err := s.key(ctx, of, id)
	if err != nil {
		return Key{}, err
	}
	now := s.instant()
	if !k.RevokedAt.IsZero() && !k.RevokedAt.After(now) {
		return k, nil
	}
	return s.store.RevokeKey(ctx, k.TenantID, k.ID, now, revokeEntry(ctx, k, now))
}

func (s *Service) revokeKeyAndCreated(ctx context.Context, of owner, id string) (Key, error) {
	k, err := s.key(ctx, of, id)
	if err != nil {
		return Key{}, err
	}
	now := s.instant()
	entry := func(k Key) audit.Entry { return revokeEntry(ctx, k, now) }
	return s.store.RevokeKeyAndCreated(ctx, k.TenantID, k.ID, now, entry(k), entry)
}

func (s *Service) keysCreatedBy(ctx context.Context, of owner, id string) ([]Key, error) {
	k, err := s.key(ctx, of, id)
	if err != nil {
		return nil, err
	}
	return s.store.KeysCreatedBy(ctx, k.TenantID, k.ID, s.instant())
}

func revokeEntry(ctx context.Context, k Key, at time.Time) audit.Entry {
	after := k
	after.RevokedAt = at
	return keyEntry(ctx, "revoke", k, k, after)
}

// Rotatable returns a problem.Conflict if a key with these times has ended at the time now, or if a
// rotation has already replaced the key.
func Rotatable(expiresAt, revokedAt, now time.Time) error {
	switch {
	case !revokedAt.IsZero() && !revokedAt.After(now):
		return problem.WithCode(problem.Conflict, "key_ended", "the key is revoked; create a new one")
	case !expiresAt.IsZero() && !expiresAt.After(now):
		return problem.WithCode(problem.Conflict, "key_ended", "the key has expired; create a new one")
	case !revokedAt.IsZero():
		return problem.WithCode(problem.Conflict, "key_rotated", "the key was rotated already; rotate its successor")
	}
	return nil
}

// Renewed returns the expiry time of a key that replaces k at the time now. The new key is valid
// for the same length of time as k. If k does not expire, the new key does not expire, and the
// result is the zero time.
func (k Key) Renewed(now time.Time) time.Time {
	if k.ExpiresAt.IsZero() {
		return time.Time{}
	}
	return now.Add(k.ExpiresAt.Sub(k.CreatedAt))
}

// instant returns the current time, rounded down to milliseconds. Every store can store this
// precision.
func (s *Service) instant() time.Time { return s.now().UTC().Truncate(time.Millisecond) }

// mint returns a new key and its token, and stores nothing. The caller must set AllowedIPs.
func mint(ctx context.Context, tenantID string, n NewKey, now time.Time) (Key, string) {
	k := Key{ID: audit.NewID(), TenantID: tenantID, Name: n.Name, Scopes: n.Scopes, CreatedAt: now, CreatedBy: creator(ctx), Bounds: n.Bounds}
	kind := TenantToken
	if k.Operator() {
		kind = OperatorToken
	}
	token := cmp.Or(n.Token, NewToken(kind))
	k.Hash, k.Hint = HashToken(token), TokenHint(token)
	if !n.ExpiresAt.IsZero() {
		k.ExpiresAt = n.ExpiresAt.UTC().Truncate(time.Millisecond)
	}
	return k, token
}

// creator returns the ID of the API key that sent the request of ctx. If a person, a command or
// the bootstrap key sent it, creator returns "".
func creator(ctx context.Context) string {
	actor, _ := audit.Who(ctx)
	if !strings.HasSuffix(actor.Kind, "_key") || uuid.Validate(actor.ID) != nil { // the bootstrap key has no ID
		return ""
	}
	return actor.ID
}

// keyEntry returns the audit entry for a change of the key k. verb is create, rotate or revoke.
func keyEntry(ctx context.Context, verb string, k Key, before, after any) audit.Entry {
	e := audit.Entry{TenantID: k.TenantID, Action: k.Kind() + "." + verb, Object: k.ID, ObjectName: k.Name}
	return audit.Complete(ctx, e, before, after)
}

// JSON returns the form of the key that the API and the audit log contain. It includes neither
// the token nor its hash. Times are in UTC.
func (k Key) JSON() (json.RawMessage, error) {
	return json.Marshal(struct {
		ID        string    `json:"id"`
		Name      string    `json:"name"`
		Hint      string    `json:"hint"`
		Scopes    []Scope   `json:"scopes"`
		ExpiresAt time.Time `json:"expires_at,omitzero"`
		RevokedAt time.Time `json:"revoked_at,omitzero"`
		CreatedAt time.Time `json:"created_at"`
		CreatedBy string    `json:"created_by,omitempty"`
		MaxCost   int64     `json:"max_cost,omitempty"`
		PeekOnly  bool      `json:"peek_only,omitempty"`
		Allowed   []string  `json:"allowed_ips,omitempty"`
	}{
		k.ID, k.Name, k.Hint, k.Scopes, k.ExpiresAt.UTC(), k.RevokedAt.UTC(), k.CreatedAt.UTC(), k.CreatedBy, k.MaxCost, k.PeekOnly,
		k.AllowedIPs.Texts(),
	})
}
