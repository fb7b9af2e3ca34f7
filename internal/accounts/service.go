package accounts

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

// Config of a Service.
type Config struct {
	// Now tells the time; default time.Now.
	Now func() time.Time
}

// A Service is the one way to change operator keys: it validates and writes
// what is done into the audit log. It is safe for concurrent use.
type Service struct {
	store Store
	now   func() time.Time
}

// NewService makes a Service on a Store.
func NewService(store Store, cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{store: store, now: cfg.Now}
}

// OperatorKeys lists the operator's keys, oldest first, revoked ones too.
func (s *Service) OperatorKeys(ctx context.Context, f tenants.Filter) ([]OperatorKey, error) {
	if f.Limit <= 0 {
		f.Limit = tenants.DefaultPage
	}
	return s.store.OperatorKeys(ctx, f)
}

// OperatorKey finds a key; NotFound.
func (s *Service) OperatorKey(ctx context.Context, id string) (OperatorKey, error) {
	return s.store.OperatorKey(ctx, id)
}

// CreateOperatorKey makes a key and gives its token, which is shown this once
// and not kept; Invalid.
func (s *Service) CreateOperatorKey(ctx context.Context, n tenants.NewKey) (OperatorKey, string, error) {
	now := s.instant()
	if err := n.Validate(now); err != nil {
		return OperatorKey{}, "", err
	}
	k, token, err := mint(n, now)
	if err != nil {
		return OperatorKey{}, "", err
	}
	e, err := entry(ctx, "operator_key.create", k, nil, &k)
	if err != nil {
		return OperatorKey{}, "", err
	}
	made, err := s.store.CreateOperatorKey(ctx, k, e)
	if err != nil {
		return OperatorKey{}, "", err
	}
	return made, token, nil
}

// RotateOperatorKey makes the successor of a key under the rules of
// tenants.Service.RotateKey.
func (s *Service) RotateOperatorKey(ctx context.Context, id string, overlap time.Duration) (OperatorKey, string, error) {
	if err := tenants.ValidateOverlap(overlap); err != nil {
		return OperatorKey{}, "", err
	}
	old, err := s.store.OperatorKey(ctx, id)
	if err != nil {
		return OperatorKey{}, "", err
	}
	now := s.instant()
	if err := tenants.Rotatable(old.ExpiresAt, old.RevokedAt, now); err != nil {
		return OperatorKey{}, "", err
	}
	n := tenants.NewKey{Name: old.Name, Scopes: old.Scopes, ExpiresAt: tenants.Renew(old.CreatedAt, old.ExpiresAt, now)}
	next, token, err := mint(n, now)
	if err != nil {
		return OperatorKey{}, "", err
	}
	e, err := entry(ctx, "operator_key.rotate", old, &old, &next)
	if err != nil {
		return OperatorKey{}, "", err
	}
	made, err := s.store.RotateOperatorKey(ctx, old.ID, now.Add(overlap), next, e)
	if err != nil {
		return OperatorKey{}, "", err
	}
	return made, token, nil
}

// RevokeOperatorKey ends a key now; repeating it changes nothing; NotFound,
// Conflict (code last_operator_key) for the last one with manage.
func (s *Service) RevokeOperatorKey(ctx context.Context, id string) (OperatorKey, error) {
	k, err := s.store.OperatorKey(ctx, id)
	if err != nil {
		return OperatorKey{}, err
	}
	now := s.instant()
	if !k.RevokedAt.IsZero() && !k.RevokedAt.After(now) {
		return k, nil
	}
	after := k
	after.RevokedAt = now
	e, err := entry(ctx, "operator_key.revoke", k, &k, &after)
	if err != nil {
		return OperatorKey{}, err
	}
	return s.store.RevokeOperatorKey(ctx, k.ID, now, e)
}

var bootstrapForm = regexp.MustCompile(`^[A-Za-z0-9._~+/=-]{32,128}$`)

// ValidBootstrapKey refuses what cannot be HEADGATE_BOOTSTRAP_KEY: an operator
// key that automation chooses itself, so it is held to a form that any secret
// store can make, and to no checksum. The error never has the key in it.
func ValidBootstrapKey(key string) error {
	if !bootstrapForm.MatchString(key) {
		return problem.New(problem.Invalid, "must be 32 to 128 characters out of A-Z a-z 0-9 . _ ~ + / = -")
	}
	return nil
}

// instant is now in the precision that every store keeps.
func (s *Service) instant() time.Time { return s.now().UTC().Truncate(time.Millisecond) }

func mint(n tenants.NewKey, now time.Time) (OperatorKey, string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return OperatorKey{}, "", fmt.Errorf("make an id for an operator key: %w", err)
	}
	token := tenants.NewToken(tenants.OperatorToken)
	k := OperatorKey{
		ID: id.String(), Name: n.Name, Hash: tenants.HashToken(token), Hint: tenants.TokenHint(token),
		Scopes: n.Scopes, CreatedAt: now,
	}
	if !n.ExpiresAt.IsZero() {
		k.ExpiresAt = n.ExpiresAt.UTC().Truncate(time.Millisecond)
	}
	return k, token, nil
}

func entry(ctx context.Context, action string, k OperatorKey, before, after *OperatorKey) (audit.Entry, error) {
	e := audit.Entry{Action: action, Object: k.ID, ObjectName: k.Name}
	e.Actor, e.Origin = audit.Who(ctx)
	var err error
	if e.Before, err = keyJSON(before); err == nil {
		e.After, err = keyJSON(after)
	}
	if err != nil {
		return audit.Entry{}, fmt.Errorf("describe operator key %s for the audit log: %w", k.ID, err)
	}
	return e, nil
}

func keyJSON(k *OperatorKey) (json.RawMessage, error) {
	if k == nil {
		return nil, nil
	}
	return tenants.AuditKey{
		ID: k.ID, Name: k.Name, Hint: k.Hint, Scopes: k.Scopes,
		ExpiresAt: &k.ExpiresAt, RevokedAt: &k.RevokedAt, CreatedAt: k.CreatedAt,
	}.JSON()
}
