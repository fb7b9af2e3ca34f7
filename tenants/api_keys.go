package tenants

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// Keys lists the keys of one tenant, oldest first, revoked ones too; NotFound.
func (s *Service) Keys(ctx context.Context, tenantID string, f Filter) ([]Key, error) {
	return s.keys(ctx, s.ofTenant(tenantID), f)
}

// OperatorKeys is Keys of the operator.
func (s *Service) OperatorKeys(ctx context.Context, f Filter) ([]Key, error) {
	return s.keys(ctx, ofOperator, f)
}

// Key finds a key of one tenant; NotFound, also for another tenant's and for the
// operator's.
func (s *Service) Key(ctx context.Context, tenantID, id string) (Key, error) {
	return s.key(ctx, s.ofTenant(tenantID), id)
}

// OperatorKey is Key of the operator.
func (s *Service) OperatorKey(ctx context.Context, id string) (Key, error) {
	return s.key(ctx, ofOperator, id)
}

// CreateKey creates a key of a tenant. It returns the token, which is not
// stored. NotFound, Invalid.
func (s *Service) CreateKey(ctx context.Context, tenantID string, n NewKey) (Key, string, error) {
	return s.createKey(ctx, s.ofTenant(tenantID), n)
}

// CreateOperatorKey is CreateKey of the operator.
func (s *Service) CreateOperatorKey(ctx context.Context, n NewKey) (Key, string, error) {
	return s.createKey(ctx, ofOperator, n)
}

// RotateKey creates the successor of a key, with the same name, scopes and
// length of life, and returns its token. The old key stays valid for overlap, 0
// to MaxOverlap, but not longer than before. A key that has ended, or that has a
// successor, is a Conflict (codes key_ended, key_rotated); NotFound, Invalid.
func (s *Service) RotateKey(ctx context.Context, tenantID, id string, overlap time.Duration) (Key, string, error) {
	return s.rotateKey(ctx, s.ofTenant(tenantID), id, overlap)
}

// RotateOperatorKey is RotateKey of the operator.
func (s *Service) RotateOperatorKey(ctx context.Context, id string, overlap time.Duration) (Key, string, error) {
	return s.rotateKey(ctx, ofOperator, id, overlap)
}

// RevokeKey ends a key now. Revoking a revoked key changes nothing. NotFound.
func (s *Service) RevokeKey(ctx context.Context, tenantID, id string) (Key, error) {
	return s.revokeKey(ctx, s.ofTenant(tenantID), id)
}

// RevokeOperatorKey is RevokeKey of the operator. The last valid key with the
// scope manage cannot be revoked: Conflict (code last_operator_key).
func (s *Service) RevokeOperatorKey(ctx context.Context, id string) (Key, error) {
	return s.revokeKey(ctx, ofOperator, id)
}

// RevokeKeyAndCreated is RevokeKey, and also ends the keys that the key created,
// directly or through other keys: all or none.
func (s *Service) RevokeKeyAndCreated(ctx context.Context, tenantID, id string) (Key, error) {
	return s.revokeKeyAndCreated(ctx, s.ofTenant(tenantID), id)
}

// RevokeOperatorKeyAndCreated is RevokeKeyAndCreated of the operator. It ends keys
// of the operator and of all tenants.
func (s *Service) RevokeOperatorKeyAndCreated(ctx context.Context, id string) (Key, error) {
	return s.revokeKeyAndCreated(ctx, ofOperator, id)
}

// KeysCreatedBy lists the valid keys that a key created, directly or through other
// keys, oldest first; NotFound.
func (s *Service) KeysCreatedBy(ctx context.Context, tenantID, id string) ([]Key, error) {
	return s.keysCreatedBy(ctx, s.ofTenant(tenantID), id)
}

// KeysCreatedByOperatorKey is KeysCreatedBy of the operator, with keys of all tenants.
func (s *Service) KeysCreatedByOperatorKey(ctx context.Context, id string) ([]Key, error) {
	return s.keysCreatedBy(ctx, ofOperator, id)
}

// An owner returns the TenantID of the keys that a call concerns. A tenant is
// looked up, so that no empty argument can stand for the operator.
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
	k, token := mint(ctx, tenantID, n, now)
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
	n := NewKey{Name: old.Name, Scopes: old.Scopes, ExpiresAt: renew(old.CreatedAt, old.ExpiresAt, now)}
	next, token := mint(ctx, old.TenantID, n, now)
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

// Rotatable returns a Conflict for a key that has ended or that has a successor.
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

// renew returns when the successor of a key expires that is created now: it is
// valid for as long as the key was. A key that never expires stays so.
func renew(createdAt, expiresAt, now time.Time) time.Time {
	if expiresAt.IsZero() {
		return time.Time{}
	}
	return now.Add(expiresAt.Sub(createdAt))
}

// instant returns the current time in the precision that every store keeps.
func (s *Service) instant() time.Time { return s.now().UTC().Truncate(time.Millisecond) }

// mint returns a new key and its token.
func mint(ctx context.Context, tenantID string, n NewKey, now time.Time) (Key, string) {
	k := Key{ID: audit.NewID(), TenantID: tenantID, Name: n.Name, Scopes: n.Scopes, CreatedAt: now, CreatedBy: creator(ctx)}
	kind := TenantToken
	if k.Operator() {
		kind = OperatorToken
	}
	token := NewToken(kind)
	k.Hash, k.Hint = HashToken(token), TokenHint(token)
	if !n.ExpiresAt.IsZero() {
		k.ExpiresAt = n.ExpiresAt.UTC().Truncate(time.Millisecond)
	}
	return k, token
}

// creator returns the ID of the key that sent the request of ctx; empty without one.
func creator(ctx context.Context) string {
	actor, _ := audit.Who(ctx)
	if !strings.HasSuffix(actor.Kind, "_key") || uuid.Validate(actor.ID) != nil { // the bootstrap key has no ID
		return ""
	}
	return actor.ID
}

// keyEntry returns the audit entry of what was done to k: verb is create, rotate
// or revoke.
func keyEntry(ctx context.Context, verb string, k Key, before, after any) audit.Entry {
	e := audit.Entry{TenantID: k.TenantID, Action: k.Kind() + "." + verb, Object: k.ID, ObjectName: k.Name}
	return audit.Complete(ctx, e, before, after)
}

// JSON returns the key as the API and the audit log show it, without token and
// hash, with instants in UTC.
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
	}{k.ID, k.Name, k.Hint, k.Scopes, k.ExpiresAt.UTC(), k.RevokedAt.UTC(), k.CreatedAt.UTC(), k.CreatedBy})
}
