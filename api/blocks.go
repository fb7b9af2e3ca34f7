package api

import (
	"context"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
)

// showBlock is a block on the wire.
func (a *API) showBlock(who caller) func(exceptions.Block) (Block, error) {
	return func(b exceptions.Block) (Block, error) {
		m, err := showMade(b.ID, b.TenantID, b.CreatedBy)
		if err != nil {
			return Block{}, err
		}
		why := a.idleBlock(who, b)
		return Block{
			Id: m.id, TenantId: m.tenant, Policy: b.Policy, Key: showPartition(b.Key), Reason: b.Reason,
			Active: why == "", InactiveBecause: why, ExpiresAt: b.ExpiresAt.UTC(), CreatedAt: b.CreatedAt.UTC(), CreatedBy: m.by,
		}, nil
	}
}

// showPartition is a key of a policy on the wire: never null.
func showPartition(key map[string]string) PartitionKey {
	if key == nil {
		return PartitionKey{}
	}
	return key
}

// idleBlock says why a block has no effect; "" when it has one.
func (a *API) idleBlock(who caller, b exceptions.Block) InactiveBecause {
	if why := a.ended(b.ExpiresAt); why != "" {
		return why
	}
	r := who.rule(b.TenantID, b.Policy)
	if r == nil {
		return InactiveBecauseNoPolicy
	}
	block := enforcement.Block{ID: b.ID, Policy: b.Policy, Until: b.ExpiresAt.UnixMicro()}
	for name, value := range b.Key {
		if !countsBy(r, name) {
			return InactiveBecauseNoAttribute
		}
		block.Key = append(block.Key, enforcement.Attribute{Name: name, Value: value})
	}
	if !who.usable(b.TenantID, enforcement.ExceptionSpec{Blocks: []enforcement.Block{block}}) {
		return InactiveBecauseNotPossible
	}
	return ""
}

// ListBlocks is GET /v1/tenants/{tenant}/blocks.
func (a *API) ListBlocks(ctx context.Context, r ListBlocksRequestObject) (ListBlocksResponseObject, error) {
	s, err := a.exceptionService()
	if err != nil {
		return nil, err
	}
	p := r.Params
	l, err := page("/v1/tenants/"+r.Tenant+"/blocks", filters("policy", p.Policy), p.Limit, p.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := s.Blocks(ctx, r.Tenant, exceptions.Filter{Policy: p.Policy, After: l.after, Limit: l.fetch()})
	if err != nil {
		return nil, err
	}
	rows, next, link := cut(l, rows, func(b exceptions.Block) string { return b.ID })
	data, err := each(rows, a.showBlock(callerOf(ctx)))
	if err != nil {
		return nil, err
	}
	return ListBlocks200JSONResponse{BlockPage{data, next != "", next}, ListBlocks200ResponseHeaders{link}}, nil
}

// CreateBlock is POST /v1/tenants/{tenant}/blocks.
func (a *API) CreateBlock(ctx context.Context, r CreateBlockRequestObject) (CreateBlockResponseObject, error) {
	s, err := a.exceptionService()
	if err != nil {
		return nil, err
	}
	b, err := s.CreateBlock(ctx, r.Tenant, exceptions.NewBlock{
		Policy: r.Body.Policy, Key: r.Body.Key, Reason: r.Body.Reason, ExpiresAt: r.Body.ExpiresAt,
	})
	if err != nil {
		return nil, err
	}
	a.cfg.Changed(ctx)
	shown, err := a.showBlock(callerOf(ctx))(b)
	if err != nil {
		return nil, err
	}
	return CreateBlock201JSONResponse{shown, CreateBlock201ResponseHeaders{"/v1/tenants/" + r.Tenant + "/blocks/" + b.ID}}, nil
}

// GetBlock is GET /v1/tenants/{tenant}/blocks/{block}.
func (a *API) GetBlock(ctx context.Context, r GetBlockRequestObject) (GetBlockResponseObject, error) {
	s, err := a.exceptionService()
	if err != nil {
		return nil, err
	}
	b, err := s.Block(ctx, r.Tenant, r.Block.String())
	if err != nil {
		return nil, err
	}
	shown, err := a.showBlock(callerOf(ctx))(b)
	return GetBlock200JSONResponse(shown), err
}

// DeleteBlock is DELETE /v1/tenants/{tenant}/blocks/{block}.
func (a *API) DeleteBlock(ctx context.Context, r DeleteBlockRequestObject) (DeleteBlockResponseObject, error) {
	s, err := a.exceptionService()
	if err != nil {
		return nil, err
	}
	if err := s.DeleteBlock(ctx, r.Tenant, r.Block.String()); err != nil {
		return nil, err
	}
	a.cfg.Changed(ctx)
	return DeleteBlock204Response{}, nil
}
