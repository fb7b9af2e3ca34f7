package api

import (
	"context"
	"time"

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
		CreatedAt: k.CreatedAt.UTC(), ExpiresAt: k.ExpiresAt.UTC(), RevokedAt: k.RevokedAt.UTC(),
	}
	for i, s := range k.Scopes {
		shown.Scopes[i] = Scope(s)
	}
	return shown, nil
}

func newKey(n NewKey) tenants.NewKey {
	out := tenants.NewKey{Name: n.Name, ExpiresAt: n.ExpiresAt, Scopes: make([]tenants.Scope, len(n.Scopes))}
	for i, s := range n.Scopes {
		out.Scopes[i] = tenants.Scope(s)
	}
	return out
}

// defaultOverlap is how long a rotated key stays valid when the body says nothing.
const defaultOverlap = 24 * time.Hour

func overlap(r *RotateKey) time.Duration {
	switch {
	case r == nil || r.OverlapSeconds == nil:
		return defaultOverlap
	case *r.OverlapSeconds < 0 || *r.OverlapSeconds > int64(tenants.MaxOverlap/time.Second):
		return -1 // what the service refuses, without overflow
	}
	return time.Duration(*r.OverlapSeconds) * time.Second
}

// ListKeys is GET /v1/tenants/{tenant}/keys.
func (a *API) ListKeys(ctx context.Context, r ListKeysRequestObject) (ListKeysResponseObject, error) {
	l, err := page("/v1/tenants/"+r.Tenant+"/keys", nil, r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := a.cfg.Tenants.Keys(ctx, r.Tenant, tenants.Filter{After: l.after, Limit: l.fetch()})
	if err != nil {
		return nil, err
	}
	rows, next, link := cut(l, rows, func(k tenants.Key) string { return k.ID })
	data, err := each(rows, showKey)
	if err != nil {
		return nil, err
	}
	return ListKeys200JSONResponse{KeyPage{data, next != "", next}, ListKeys200ResponseHeaders{link}}, nil
}

// CreateKey is POST /v1/tenants/{tenant}/keys.
func (a *API) CreateKey(ctx context.Context, r CreateKeyRequestObject) (CreateKeyResponseObject, error) {
	k, token, err := a.cfg.Tenants.CreateKey(ctx, r.Tenant, newKey(*r.Body))
	if err != nil {
		return nil, err
	}
	issued, at, err := a.issued(ctx, token, "/v1/tenants/"+r.Tenant+"/keys/")(showKey(k))
	if err != nil {
		return nil, err
	}
	return CreateKey201JSONResponse{issued, CreateKey201ResponseHeaders{at}}, nil
}

// issued is a key that was just made, with its address.
func (a *API) issued(ctx context.Context, token, path string) func(Key, error) (IssuedKey, string, error) {
	a.cfg.Changed(ctx)
	return func(k Key, err error) (IssuedKey, string, error) {
		return IssuedKey{Token: token, Key: k}, path + k.Id.String(), err
	}
}

// GetKey is GET /v1/tenants/{tenant}/keys/{key}.
func (a *API) GetKey(ctx context.Context, r GetKeyRequestObject) (GetKeyResponseObject, error) {
	k, err := a.cfg.Tenants.Key(ctx, r.Tenant, r.Key.String())
	if err != nil {
		return nil, err
	}
	shown, err := showKey(k)
	return GetKey200JSONResponse(shown), err
}

// RevokeKey is DELETE /v1/tenants/{tenant}/keys/{key}.
func (a *API) RevokeKey(ctx context.Context, r RevokeKeyRequestObject) (RevokeKeyResponseObject, error) {
	k, err := a.cfg.Tenants.RevokeKey(ctx, r.Tenant, r.Key.String())
	if err != nil {
		return nil, err
	}
	a.cfg.Changed(ctx)
	shown, err := showKey(k)
	return RevokeKey200JSONResponse(shown), err
}

// RotateKey is POST /v1/tenants/{tenant}/keys/{key}/rotate.
func (a *API) RotateKey(ctx context.Context, r RotateKeyRequestObject) (RotateKeyResponseObject, error) {
	k, token, err := a.cfg.Tenants.RotateKey(ctx, r.Tenant, r.Key.String(), overlap(r.Body))
	if err != nil {
		return nil, err
	}
	issued, at, err := a.issued(ctx, token, "/v1/tenants/"+r.Tenant+"/keys/")(showKey(k))
	if err != nil {
		return nil, err
	}
	return RotateKey201JSONResponse{issued, RotateKey201ResponseHeaders{at}}, nil
}
