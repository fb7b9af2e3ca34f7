package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// Keys lists the keys of one tenant, oldest first, revoked ones too.
func (s *Service) Keys(ctx context.Context, tenantID string, f Filter) ([]Key, error) {
	t, err := s.store.Tenant(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	if f.Limit <= 0 {
		f.Limit = DefaultPage
	}
	return s.store.Keys(ctx, t.ID, f)
}

// Key finds a key of one tenant; NotFound, also for another tenant's.
func (s *Service) Key(ctx context.Context, tenantID, id string) (Key, error) {
	t, err := s.store.Tenant(ctx, tenantID)
	if err != nil {
		return Key{}, err
	}
	return s.store.Key(ctx, t.ID, id)
}

// CreateKey makes a key and gives its token, which is shown this once and not
// kept; NotFound, Invalid.
func (s *Service) CreateKey(ctx context.Context, tenantID string, n NewKey) (Key, string, error) {
	now := s.instant()
	if err := n.Validate(now); err != nil {
		return Key{}, "", err
	}
	t, err := s.store.Tenant(ctx, tenantID)
	if err != nil {
		return Key{}, "", err
	}
	k, token, err := mint(t.ID, n, now)
	if err != nil {
		return Key{}, "", err
	}
	e, err := keyEntry(ctx, "key.create", k, nil, &k)
	if err != nil {
		return Key{}, "", err
	}
	made, err := s.store.CreateKey(ctx, k, e)
	if err != nil {
		return Key{}, "", err
	}
	return made, token, nil
}

// RotateKey makes the successor of a key, with the same name and scopes and as
// long a life, and gives its token; the old key stays valid for overlap, 0 to
// MaxOverlap, and no longer than it would have. A key that has ended, or that
// was rotated already, is a Conflict (codes key_ended, key_rotated); NotFound,
// Invalid.
func (s *Service) RotateKey(ctx context.Context, tenantID, id string, overlap time.Duration) (Key, string, error) {
	if err := ValidateOverlap(overlap); err != nil {
		return Key{}, "", err
	}
	old, err := s.Key(ctx, tenantID, id)
	if err != nil {
		return Key{}, "", err
	}
	now := s.instant()
	if err := Rotatable(old.ExpiresAt, old.RevokedAt, now); err != nil {
		return Key{}, "", err
	}
	n := NewKey{Name: old.Name, Scopes: old.Scopes, ExpiresAt: Renew(old.CreatedAt, old.ExpiresAt, now)}
	next, token, err := mint(old.TenantID, n, now)
	if err != nil {
		return Key{}, "", err
	}
	e, err := keyEntry(ctx, "key.rotate", old, &old, &next)
	if err != nil {
		return Key{}, "", err
	}
	made, err := s.store.RotateKey(ctx, old.TenantID, old.ID, now.Add(overlap), next, e)
	if err != nil {
		return Key{}, "", err
	}
	return made, token, nil
}

// RevokeKey ends a key now; repeating it changes nothing; NotFound.
func (s *Service) RevokeKey(ctx context.Context, tenantID, id string) (Key, error) {
	k, err := s.Key(ctx, tenantID, id)
	if err != nil {
		return Key{}, err
	}
	now := s.instant()
	if !k.RevokedAt.IsZero() && !k.RevokedAt.After(now) {
		return k, nil
	}
	after := k
	after.RevokedAt = now
	e, err := keyEntry(ctx, "key.revoke", k, &k, &after)
	if err != nil {
		return Key{}, err
	}
	return s.store.RevokeKey(ctx, k.TenantID, k.ID, now, e)
}

// Rotatable refuses to rotate a key that has ended or that has a successor.
// Operator keys are held to it too.
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

// Renew is when the successor of a key expires that is made now: it lives as
// long as the old one was to live, or for ever as well.
func Renew(createdAt, expiresAt, now time.Time) time.Time {
	if expiresAt.IsZero() {
		return time.Time{}
	}
	return now.Add(expiresAt.Sub(createdAt))
}

// instant is now in the precision that every store keeps.
func (s *Service) instant() time.Time { return s.now().UTC().Truncate(time.Millisecond) }

func mint(tenantID string, n NewKey, now time.Time) (Key, string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Key{}, "", fmt.Errorf("make an id for a key: %w", err)
	}
	token := NewToken(TenantToken)
	k := Key{
		ID: id.String(), TenantID: tenantID, Name: n.Name, Hash: HashToken(token), Hint: TokenHint(token),
		Scopes: n.Scopes, CreatedAt: now,
	}
	if !n.ExpiresAt.IsZero() {
		k.ExpiresAt = n.ExpiresAt.UTC().Truncate(time.Millisecond)
	}
	return k, token, nil
}

// An AuditKey is a key in the audit log: as the API shows it, without token
// and hash. Operator keys look the same.
type AuditKey struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Hint      string     `json:"hint"`
	Scopes    []Scope    `json:"scopes"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
}

// JSON gives the key's document, instants in UTC.
func (k AuditKey) JSON() (json.RawMessage, error) {
	k.ExpiresAt, k.RevokedAt, k.CreatedAt = instantOrNone(k.ExpiresAt), instantOrNone(k.RevokedAt), k.CreatedAt.UTC()
	return json.Marshal(k)
}

func instantOrNone(t *time.Time) *time.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	utc := t.UTC()
	return &utc
}

func keyEntry(ctx context.Context, action string, k Key, before, after *Key) (audit.Entry, error) {
	e := audit.Entry{TenantID: k.TenantID, Action: action, Object: k.ID, ObjectName: k.Name}
	e.Actor, e.Origin = audit.Who(ctx)
	var err error
	if e.Before, err = keyJSON(before); err == nil {
		e.After, err = keyJSON(after)
	}
	if err != nil {
		return audit.Entry{}, fmt.Errorf("describe key %s for the audit log: %w", k.ID, err)
	}
	return e, nil
}

func keyJSON(k *Key) (json.RawMessage, error) {
	if k == nil {
		return nil, nil
	}
	return AuditKey{
		ID: k.ID, Name: k.Name, Hint: k.Hint, Scopes: k.Scopes,
		ExpiresAt: &k.ExpiresAt, RevokedAt: &k.RevokedAt, CreatedAt: k.CreatedAt,
	}.JSON()
}
