package api

import (
	"context"

	"github.com/headgate/headgate/internal/exceptions"
)

// showBlock returns a function that converts a block to its JSON form in the API.
func (a *API) showBlock(who caller) func(exceptions.Block) (Block, error) {
	return func(b exceptions.Block) (Block, error) {
		m, err := showMade(b.ID, b.TenantID, b.CreatedBy)
		if err != nil {
			return Block{}, err
		}
		why := InactiveBecause(b.Idle(who.tenantSubject(b.TenantID), a.cfg.Now()).Code)
		return Block{
			Id: m.id, TenantId: m.tenant, Policy: b.Policy, Key: showPartition(b.Key), Reason: b.Reason,
			Active: why == "", InactiveBecause: why, ExpiresAt: Instant{b.ExpiresAt}, CreatedAt: Instant{b.CreatedAt}, CreatedBy: m.by,
		}, nil
	}
}

// showPartition returns the attributes of a key in their JSON form in the API, which is an object
// even if there are none.
func showPartition(key map[string]string) PartitionKey {
	if key == nil {
		return PartitionKey{}
	}
	return key
}

// ListBlocks is GET /v1/tenants/{tenant}/blocks.
func (a *API) ListBlocks(ctx context.Context, r ListBlocksRequestObject) (ListBlocksResponseObject, error) {
	p, at := r.Params, "/v1/tenants/"+r.Tenant+"/blocks"
	out, link, err := list(at, filters("policy", p.Policy), p.Limit, p.Cursor, func(after string, limit int) ([]exceptions.Block, error) {
		return a.cfg.Exceptions.Blocks(ctx, r.Tenant, exceptions.Filter{Policy: p.Policy, After: after, Limit: limit})
	}, func(b exceptions.Block) string { return b.ID }, a.showBlock(callerOf(ctx)))
	return ListBlocks200JSONResponse{BlockPage(out), ListBlocks200ResponseHeaders{link}}, err
}

// CreateBlock is POST /v1/tenants/{tenant}/blocks.
func (a *API) CreateBlock(ctx context.Context, r CreateBlockRequestObject) (CreateBlockResponseObject, error) {
	b, err := written(ctx, a, a.showBlock(callerOf(ctx)))(a.cfg.Exceptions.CreateBlock(ctx, r.Tenant, exceptions.NewBlock{
		Policy: r.Body.Policy, Key: r.Body.Key, Reason: r.Body.Reason, ExpiresAt: r.Body.ExpiresAt.Time,
	}))
	at := "/v1/tenants/" + r.Tenant + "/blocks/" + b.Id.String()
	return CreateBlock201JSONResponse{b, CreateBlock201ResponseHeaders{at}}, err
}

// GetBlock is GET /v1/tenants/{tenant}/blocks/{block}.
func (a *API) GetBlock(ctx context.Context, r GetBlockRequestObject) (GetBlockResponseObject, error) {
	b, err := shown(a.showBlock(callerOf(ctx)))(a.cfg.Exceptions.Block(ctx, r.Tenant, r.Block.String()))
	return GetBlock200JSONResponse(b), err
}

// DeleteBlock is DELETE /v1/tenants/{tenant}/blocks/{block}.
func (a *API) DeleteBlock(ctx context.Context, r DeleteBlockRequestObject) (DeleteBlockResponseObject, error) {
	return DeleteBlock204Response{}, a.changed(ctx, a.cfg.Exceptions.DeleteBlock(ctx, r.Tenant, r.Block.String()))
}
