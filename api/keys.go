package api

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/tenants"
)

// showKey returns a key of a tenant or of the operator in its wire format.
func showKey(k tenants.Key) (Key, error) {
	id, err := parseUUID(k.ID)
	if err != nil {
		return Key{}, err
	}
	shown := Key{
		Id: id, Name: k.Name, Hint: k.Hint, Scopes: make([]Scope, len(k.Scopes)),
		CreatedAt: Instant{k.CreatedAt}, ExpiresAt: Instant{k.ExpiresAt}, RevokedAt: Instant{k.RevokedAt}, LastUsedAt: Instant{k.LastUsedAt},
	}
	if k.CreatedBy != "" {
		if shown.CreatedBy, err = parseUUID(k.CreatedBy); err != nil {
			return Key{}, err
		}
	}
	shown.MaxCost, shown.PeekOnly, shown.AllowedIps = k.MaxCost, k.PeekOnly, k.AllowedIPs.Texts()
	for i, s := range k.Scopes {
		shown.Scopes[i] = Scope(s)
	}
	return shown, nil
}

func newKey(n NewKey) tenants.NewKey {
	out := tenants.NewKey{Name: n.Name, ExpiresAt: n.ExpiresAt.Time, Scopes: make([]tenants.Scope, len(n.Scopes))}
	out.MaxCost, out.PeekOnly, out.AllowedIPs, out.Token = n.MaxCost, n.PeekOnly, n.AllowedIps, n.Token
	for i, s := range n.Scopes {
		out.Scopes[i] = tenants.Scope(s)
	}
	return out
}

// defaultOverlap is how long the old key stays valid after a rotation if the request sets no time.
const defaultOverlap = 24 * time.Hour

func overlap(r *RotateKey) time.Duration {
	switch {
	case r == nil || r.OverlapMs == nil:
		return defaultOverlap
	case *r.OverlapMs < 0 || *r.OverlapMs > tenants.MaxOverlap.Milliseconds():
		return -1 // the service rejects it; the multiplication below could overflow
	}
	return time.Duration(*r.OverlapMs) * time.Millisecond
}

func keyID(k tenants.Key) string { return k.ID }

// issued returns a function that converts a new key and its token to their JSON form. The returned
// function also returns the Location of the key, which is below path.
func (a *API) issued(ctx context.Context, path string) func(tenants.Key, string, error) (IssuedKey, string, error) {
	return func(k tenants.Key, token string, err error) (IssuedKey, string, error) {
		key, err := written(ctx, a, showKey)(k, err)
		return IssuedKey{Token: token, Key: key}, path + "/" + k.ID, err
	}
}

// mayIssue returns an error if the new key would permit more than the caller's own key: if it has a
// scope that the own key lacks, or wider bounds, or more allowed addresses. So a key with only the
// scope manage cannot create or rotate a key that decides checks.
func mayIssue(ctx context.Context, scopes []tenants.Scope, bounds tenants.Bounds, allowed tenants.Networks) error {
	own := callerOf(ctx).key
	if !allowed.Within(own.AllowedIPs) {
		return problem.New(problem.Forbidden, "the new key could be used from more addresses (allowed_ips) than this key")
	}
	for _, s := range scopes {
		if s == tenants.ScopeIdentify { // a key with this scope permits no operation
			continue
		}
		if _, known := snapshot.ScopesOf([]tenants.Scope{s}); known && !own.Scopes.Has(s) {
			return problem.New(problem.Forbidden, "the new key would have the scope %s, which this key does not have", s)
		}
	}
	if slices.Contains(scopes, tenants.ScopeCheck) && !bounds.Within(own.Bounds) {
		return problem.New(problem.Forbidden, "the new key would have wider bounds (max_cost, peek_only) than this key")
	}
	return nil
}

// outlived returns an error if a new key with this expiry time would outlive the caller's own key.
// So the holder of an expiring key cannot extend the access. fields are the members of the request
// that set the time.
func outlived(ctx context.Context, expiresAt time.Time, fields ...string) error {
	own := callerOf(ctx).key.ExpiresAt
	if own == 0 || !expiresAt.IsZero() && expiresAt.UnixMicro() <= own {
		return nil
	}
	end := time.UnixMicro(own).UTC().Format(time.RFC3339Nano)
	p := problem.New(problem.Forbidden, "the new key would expire later (expires_at) than this key, which expires at %s", end)
	for _, pointer := range fields {
		p.Fields = append(p.Fields, problem.Field{Pointer: pointer, Message: "must be at most " + end})
	}
	return p
}

// create calls the function create of the service, if the caller may issue the scopes and the
// expiry time of the new key.
func (a *API) create(ctx context.Context, n tenants.NewKey,
	create func(tenants.NewKey) (tenants.Key, string, error),
) (tenants.Key, string, error) {
	allowed, err := tenants.ParseNetworks(n.AllowedIPs)
	if err != nil {
		return create(n) // the service reports all faults of n, and creates no key
	}
	if err := mayIssue(ctx, n.Scopes, n.Bounds, allowed); err != nil {
		return tenants.Key{}, "", err
	}
	if err := outlived(ctx, n.ExpiresAt, "/expires_at"); err != nil {
		return tenants.Key{}, "", err
	}
	return create(n)
}

// rotate calls a function of the service that creates the successor of the key old, if the caller
// may issue the scopes and the expiry time of the successor.
func (a *API) rotate(ctx context.Context, old tenants.Key, err error,
	rotate func() (tenants.Key, string, error),
) (tenants.Key, string, error) {
	if err == nil {
		err = mayIssue(ctx, old.Scopes, old.Bounds, old.AllowedIPs)
	}
	if err == nil {
		err = outlived(ctx, old.Renewed(a.cfg.Now()))
	}
	if err != nil {
		return tenants.Key{}, "", err
	}
	return rotate()
}

const operatorKeysPath = "/v1/operator-keys"

func keysPath(tenant string) string { return "/v1/tenants/" + tenant + "/keys" }

// ListKeys is GET /v1/tenants/{tenant}/keys.
func (a *API) ListKeys(ctx context.Context, r ListKeysRequestObject) (ListKeysResponseObject, error) {
	p, link, err := list(keysPath(r.Tenant), nil, r.Params.Limit, r.Params.Cursor, func(after string, limit int) ([]tenants.Key, error) {
		return a.cfg.Tenants.Keys(ctx, r.Tenant, tenants.Filter{After: after, Limit: limit})
	}, keyID, showKey)
	return ListKeys200JSONResponse{KeyPage(p), ListKeys200ResponseHeaders{link}}, err
}

// CreateKey is POST /v1/tenants/{tenant}/keys.
func (a *API) CreateKey(ctx context.Context, r CreateKeyRequestObject) (CreateKeyResponseObject, error) {
	k, at, err := a.issued(ctx, keysPath(r.Tenant))(a.create(ctx, newKey(*r.Body), func(n tenants.NewKey) (tenants.Key, string, error) {
		return a.cfg.Tenants.CreateKey(ctx, r.Tenant, n)
	}))
	return CreateKey201JSONResponse{k, CreateKey201ResponseHeaders{at}}, err
}

// GetKey is GET /v1/tenants/{tenant}/keys/{key}.
func (a *API) GetKey(ctx context.Context, r GetKeyRequestObject) (GetKeyResponseObject, error) {
	k, err := shown(showKey)(a.cfg.Tenants.Key(ctx, r.Tenant, r.Key.String()))
	return GetKey200JSONResponse(k), err
}

// RevokeKey is DELETE /v1/tenants/{tenant}/keys/{key}.
func (a *API) RevokeKey(ctx context.Context, r RevokeKeyRequestObject) (RevokeKeyResponseObject, error) {
	revoke := a.cfg.Tenants.RevokeKey
	if r.Params.WithCreated {
		revoke = a.cfg.Tenants.RevokeKeyAndCreated
	}
	k, err := written(ctx, a, showKey)(revoke(ctx, r.Tenant, r.Key.String()))
	return RevokeKey200JSONResponse(k), err
}

// RotateKey is POST /v1/tenants/{tenant}/keys/{key}/rotate.
func (a *API) RotateKey(ctx context.Context, r RotateKeyRequestObject) (RotateKeyResponseObject, error) {
	old, err := a.cfg.Tenants.Key(ctx, r.Tenant, r.Key.String())
	k, at, err := a.issued(ctx, keysPath(r.Tenant))(a.rotate(ctx, old, err, func() (tenants.Key, string, error) {
		return a.cfg.Tenants.RotateKey(ctx, r.Tenant, r.Key.String(), overlap(r.Body))
	}))
	return RotateKey201JSONResponse{k, RotateKey201ResponseHeaders{at}}, err
}

// ListOperatorKeys is GET /v1/operator-keys.
func (a *API) ListOperatorKeys(ctx context.Context, r ListOperatorKeysRequestObject) (ListOperatorKeysResponseObject, error) {
	p, link, err := list(operatorKeysPath, nil, r.Params.Limit, r.Params.Cursor, func(after string, limit int) ([]tenants.Key, error) {
		return a.cfg.Tenants.OperatorKeys(ctx, tenants.Filter{After: after, Limit: limit})
	}, keyID, showKey)
	return ListOperatorKeys200JSONResponse{KeyPage(p), ListOperatorKeys200ResponseHeaders{link}}, err
}

// CreateOperatorKey is POST /v1/operator-keys.
func (a *API) CreateOperatorKey(ctx context.Context, r CreateOperatorKeyRequestObject) (CreateOperatorKeyResponseObject, error) {
	k, at, err := a.issued(ctx, operatorKeysPath)(a.create(ctx, newKey(*r.Body), func(n tenants.NewKey) (tenants.Key, string, error) {
		return a.cfg.Tenants.CreateOperatorKey(ctx, n)
	}))
	return CreateOperatorKey201JSONResponse{k, CreateOperatorKey201ResponseHeaders{at}}, err
}

// GetOperatorKey is GET /v1/operator-keys/{key}.
func (a *API) GetOperatorKey(ctx context.Context, r GetOperatorKeyRequestObject) (GetOperatorKeyResponseObject, error) {
	k, err := shown(showKey)(a.cfg.Tenants.OperatorKey(ctx, r.Key.String()))
	return GetOperatorKey200JSONResponse(k), err
}

// RevokeOperatorKey is DELETE /v1/operator-keys/{key}.
func (a *API) RevokeOperatorKey(ctx context.Context, r RevokeOperatorKeyRequestObject) (RevokeOperatorKeyResponseObject, error) {
	revoke := a.cfg.Tenants.RevokeOperatorKey
	if r.Params.WithCreated {
		revoke = a.cfg.Tenants.RevokeOperatorKeyAndCreated
	}
	k, err := written(ctx, a, showKey)(revoke(ctx, r.Key.String()))
	return RevokeOperatorKey200JSONResponse(k), err
}

// RotateOperatorKey is POST /v1/operator-keys/{key}/rotate.
func (a *API) RotateOperatorKey(ctx context.Context, r RotateOperatorKeyRequestObject) (RotateOperatorKeyResponseObject, error) {
	old, err := a.cfg.Tenants.OperatorKey(ctx, r.Key.String())
	k, at, err := a.issued(ctx, operatorKeysPath)(a.rotate(ctx, old, err, func() (tenants.Key, string, error) {
		return a.cfg.Tenants.RotateOperatorKey(ctx, r.Key.String(), overlap(r.Body))
	}))
	return RotateOperatorKey201JSONResponse{k, RotateOperatorKey201ResponseHeaders{at}}, err
}
