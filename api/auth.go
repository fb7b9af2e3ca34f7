package api

import (
	"context"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/tenants"
)

// The kinds of an API key. accounts.Principal and audit.Actor use the same values.
const (
	operatorKey = "operator_key"
	tenantKey   = "tenant_key"
)

// A caller holds the API key that sent a request, and the snapshot in which the key was found. The
// whole request uses this snapshot.
type caller struct {
	snapshot *snapshot.Snapshot
	key      *snapshot.Key
}

// tenant returns the tenant that the key belongs to, or nil for a key of the operator.
func (c caller) tenant() *enforcement.Subject { return c.key.Subject }

// party returns the ID under which the caller uses slots for expensive operations: the ID of its
// tenant, or the ID of the operator's API key. All callers with the same party share these slots.
func (c caller) party() string {
	if t := c.tenant(); t != nil {
		return t.TenantID
	}
	return c.key.ID
}

// is reports whether ref is the slug or the id of the caller's own tenant.
func (c caller) is(ref string) bool {
	t := c.tenant()
	return t != nil && (ref == t.Tenant || ref == t.TenantID)
}

// actor returns the caller in the form that the audit log records.
func (c caller) actor() audit.Actor {
	kind := tenantKey
	if c.key.Operator {
		kind = operatorKey
	}
	return audit.Actor{Kind: kind, ID: c.key.ID, Name: c.key.Name}
}

// bootstrapKey stands for the operator key whose token is Config.BootstrapKey. It has every scope.
var bootstrapKey = func() *snapshot.Key {
	all, _ := snapshot.ScopesOf([]tenants.Scope{tenants.ScopeCheck, tenants.ScopeManage})
	return &snapshot.Key{ID: "bootstrap", Name: "bootstrap key", Operator: true, Scopes: all}
}()

// errUnauthenticated is the error for a missing, unknown, expired or revoked key. It is the
// same for all, so that it does not reveal which keys exist.
var errUnauthenticated = problem.New(problem.Unauthenticated, "a valid API key is needed, as Authorization: Bearer hg_…")

// errBootstrapEnded is the error for the bootstrap key while an operator key exists. Only a caller who
// knows the bootstrap key gets it.
var errBootstrapEnded = problem.New(problem.Unauthenticated, "the bootstrap key ended when an operator key was created: "+
	"use that key, or create one on the node with headgate key create")

// errForeign is the error for access to another tenant. It is the same whether that tenant
// exists or not.
var errForeign = problem.New(problem.Forbidden, "this key reaches only its own tenant")

// errKeyAddress is the error for a key that may not be used from the address of the request.
// Its message contains neither this address nor the allowed addresses.
var errKeyAddress = problem.WithCode(problem.Forbidden, "key_address", "this key may not be used from this address")

// authenticate returns the caller that owns the API key of a request; see holder. from returns the
// address of the client. If the key has allowed addresses, and the client's address is not one of
// them, authenticate returns errKeyAddress. It then also returns the caller, for the audit log.
func (a *API) authenticate(r *http.Request, from func(*http.Request) netip.Addr) (caller, error) {
	who, err := a.holder(bearer(r.Header["Authorization"]))
	if err != nil {
		return who, err
	}
	var address netip.Addr
	if len(who.key.AllowedIPs) > 0 {
		address = from(r)
	}
	return who, a.used(who, address)
}

// used records that the caller used its key now. If the key may not be used from the address from,
// it records nothing and returns errKeyAddress.
func (a *API) used(who caller, from netip.Addr) error {
	if allowed := who.key.AllowedIPs; len(allowed) > 0 && !allowed.Contains(from) {
		return errKeyAddress
	}
	who.key.Use(a.cfg.Now())
	return nil
}

// connectionIP returns the address of the connection of a request.
func connectionIP(r *http.Request) netip.Addr {
	at, _ := netip.ParseAddrPort(r.RemoteAddr)
	return at.Addr()
}

// holder returns the key with this token from the snapshot. It never queries a database. If the form or the checksum of
// the token is wrong, it returns an error without a lookup. sent is false if the caller sent no token.
func (a *API) holder(token string, sent bool) (caller, error) {
	var current *snapshot.Snapshot
	if a.cfg.Snapshot != nil {
		current = a.cfg.Snapshot()
	}
	if current == nil {
		return caller{}, problem.New(problem.Unavailable, "this node has not loaded its first snapshot yet")
	}
	if !sent {
		return caller{}, errUnauthenticated
	}
	formed := tenants.WellFormed(token)
	if !formed && a.bootstrap == nil {
		return caller{}, errUnauthenticated
	}
	hash := tenants.HashToken(token)
	if formed {
		if key, ok := current.Key(hash); ok {
			if (key.ExpiresAt != 0 || key.RevokedAt != 0) && !key.Valid(a.cfg.Now().UnixMicro()) {
				return caller{}, errUnauthenticated
			}
			return caller{current, key}, nil
		}
	}
	if a.bootstrap == nil || subtle.ConstantTimeCompare(hash[:], a.bootstrap[:]) == 0 {
		return caller{}, errUnauthenticated
	}
	if current.HasOperatorKey() {
		return caller{}, errBootstrapEnded
	}
	return caller{current, bootstrapKey}, nil
}

// maxToken bounds the length of a token in bytes. The bootstrap key may have this length; other
// tokens are shorter.
const maxToken = 128

// bearer returns the token of the Authorization header.
func bearer(headers []string) (string, bool) {
	const scheme = "Bearer "
	if len(headers) != 1 || len(headers[0]) <= len(scheme) || !strings.EqualFold(headers[0][:len(scheme)], scheme) {
		return "", false
	}
	token := headers[0][len(scheme):]
	return token, len(token) <= maxToken
}

// A gate holds the results of accounts.Authorize for one action: one result for each kind of key
// and each set of scopes. newGate computes them in advance, so that a check does not build a
// Principal.
type gate struct {
	// open means that the action needs no key.
	open bool
	// refused holds the error for a key. The first index is the kind of the key (0 for the
	// operator, 1 for a tenant), and the second its set of scopes as a bit mask. nil allows the
	// action.
	refused [2][snapshot.NumScopes]error
	// writes means that a tenant's key needs the scope manage for the action.
	writes bool
}

// newGate returns the gate of an action.
func newGate(action accounts.Action) *gate {
	g := &gate{open: accounts.Authorize(accounts.Principal{}, action) == nil}
	words := []tenants.Scope{tenants.ScopeCheck, tenants.ScopeRead, tenants.ScopeManage, tenants.ScopeIdentify}
	for n := range 1 << len(words) {
		var some []tenants.Scope
		for i, w := range words {
			if n>>i&1 == 1 {
				some = append(some, w)
			}
		}
		set, _ := snapshot.ScopesOf(some)
		g.refused[0][set] = accounts.Authorize(accounts.Principal{Kind: operatorKey, Scopes: some}, action)
		g.refused[1][set] = accounts.Authorize(accounts.Principal{Kind: tenantKey, Scopes: some, TenantID: "any"}, action)
	}
	reads, _ := snapshot.ScopesOf(words[:2])
	all, _ := snapshot.ScopesOf(words[:3])
	g.writes = g.refused[1][reads] != nil && g.refused[1][all] == nil
	return g
}

// authorize returns an error if the caller is not permitted to call a route. ref is the tenant
// in the path, or "" if the path has none.
func (g *gate) authorize(c caller, ref string) error {
	kind := 0
	if !c.key.Operator {
		kind = 1
	}
	if err := g.refused[kind][c.key.Scopes]; err != nil {
		return err
	}
	if t := c.tenant(); t != nil {
		if ref != "" && !c.is(ref) {
			return errForeign
		}
		if t.Suspended && g.writes {
			return problem.New(problem.Forbidden, "tenant %s is suspended: its keys may only read", t.Tenant)
		}
	}
	return nil
}

// subject returns the tenant of a check. ref is the slug or ID that the check names. If ref is
// "", it is the tenant of the caller's key.
func (c caller) subject(ref string) (*enforcement.Subject, error) {
	if own := c.tenant(); own != nil {
		if ref == "" || c.is(ref) {
			return own, nil
		}
		return nil, errForeign
	}
	s, ok := c.snapshot.Subject(ref)
	if !ok {
		return nil, problem.New(problem.NotFound, "no such tenant")
	}
	return s, nil
}

// tenantSubject returns the compiled tenant with this ID from the caller's snapshot, or nil if the
// snapshot does not contain it.
func (c caller) tenantSubject(tenantID string) *enforcement.Subject {
	s, _ := c.snapshot.Subject(tenantID)
	return s
}

// within returns an error if the bounds of the caller's key do not allow a check: if the key may
// only peek, or if the cost is higher than the key's maximum cost. A caller that settles a
// reservation passes a check with the real cost.
func (c caller) within(s *enforcement.Subject, check *enforcement.Check) error {
	b := &c.key.Bounds
	switch {
	case b.PeekOnly && check.Mode != enforcement.Peek:
		return errPeekOnly
	case b.MaxCost > 0 && s.SentCost(check) > b.MaxCost:
		return problem.WithCode(problem.Forbidden, "key_max_cost", "this key may send checks with a cost of at most %d", b.MaxCost)
	}
	return nil
}

var errPeekOnly = problem.WithCode(problem.Forbidden, "key_peek_only", "this key may only send checks with the mode peek")

type callerKey struct{}

// callerOf returns the caller of a management request.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}
