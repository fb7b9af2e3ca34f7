package api

import "context"

// ResetKey is POST /v1/tenants/{tenant}/reset.
func (a *API) ResetKey(ctx context.Context, r ResetKeyRequestObject) (ResetKeyResponseObject, error) {
	if err := a.cfg.Usage.Reset(ctx, r.Tenant, r.Body.Policy, r.Body.Key, r.Body.Reason); err != nil {
		return nil, err
	}
	return ResetKey204Response{}, nil
}
