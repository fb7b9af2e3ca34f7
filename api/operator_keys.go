package api

import (
	"context"

	"github.com/headgate/headgate/tenants"
)

// ListOperatorKeys is GET /v1/operator-keys.
func (a *API) ListOperatorKeys(ctx context.Context, r ListOperatorKeysRequestObject) (ListOperatorKeysResponseObject, error) {
	l, err := page("/v1/operator-keys", nil, r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := a.cfg.Tenants.OperatorKeys(ctx, tenants.Filter{After: l.after, Limit: l.fetch()})
	if err != nil {
		return nil, err
	}
	rows, next, link := cut(l, rows, func(k tenants.Key) string { return k.ID })
	data, err := each(rows, showKey)
	if err != nil {
		return nil, err
	}
	return ListOperatorKeys200JSONResponse{KeyPage{data, next != "", next}, ListOperatorKeys200ResponseHeaders{link}}, nil
}

// CreateOperatorKey is POST /v1/operator-keys.
func (a *API) CreateOperatorKey(ctx context.Context, r CreateOperatorKeyRequestObject) (CreateOperatorKeyResponseObject, error) {
	k, token, err := a.cfg.Tenants.CreateOperatorKey(ctx, newKey(*r.Body))
	if err != nil {
		return nil, err
	}
	issued, at, err := a.issued(ctx, token, "/v1/operator-keys/")(showKey(k))
	if err != nil {
		return nil, err
	}
	return CreateOperatorKey201JSONResponse{issued, CreateOperatorKey201ResponseHeaders{at}}, nil
}

// GetOperatorKey is GET /v1/operator-keys/{key}.
func (a *API) GetOperatorKey(ctx context.Context, r GetOperatorKeyRequestObject) (GetOperatorKeyResponseObject, error) {
	k, err := a.cfg.Tenants.OperatorKey(ctx, r.Key.String())
	if err != nil {
		return nil, err
	}
	shown, err := showKey(k)
	return GetOperatorKey200JSONResponse(shown), err
}

// RevokeOperatorKey is DELETE /v1/operator-keys/{key}.
func (a *API) RevokeOperatorKey(ctx context.Context, r RevokeOperatorKeyRequestObject) (RevokeOperatorKeyResponseObject, error) {
	k, err := a.cfg.Tenants.RevokeOperatorKey(ctx, r.Key.String())
	if err != nil {
		return nil, err
	}
	a.cfg.Changed(ctx)
	shown, err := showKey(k)
	return RevokeOperatorKey200JSONResponse(shown), err
}

// RotateOperatorKey is POST /v1/operator-keys/{key}/rotate.
func (a *API) RotateOperatorKey(ctx context.Context, r RotateOperatorKeyRequestObject) (RotateOperatorKeyResponseObject, error) {
	k, token, err := a.cfg.Tenants.RotateOperatorKey(ctx, r.Key.String(), overlap(r.Body))
	if err != nil {
		return nil, err
	}
	issued, at, err := a.issued(ctx, token, "/v1/operator-keys/")(showKey(k))
	if err != nil {
		return nil, err
	}
	return RotateOperatorKey201JSONResponse{issued, RotateOperatorKey201ResponseHeaders{at}}, nil
}
