package api

import (
	"context"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/tenants"
)

// The kinds of a key, as a Principal and as an actor in the audit log.
const (
	operatorKey = "operator_key"
	tenantKey   = "tenant_key"
)

// A caller is the key of a request, with the snapshot that has the key. A request uses
// one snapshot.
type caller struct {
	world *snapshot.Snapshot
	key   *snapshot.Key
}

// tenant returns the caller's own tenant, or nil for the operator.
func (c caller) tenant() *enforcement.Subject { return c.key.Subject }

// is reports whether ref names the caller's own tenant.
func (c caller) is(ref string) bool {
	t := c.tenant()
	return t != nil && (ref == t.Tenant || ref == t.TenantID)
}

// actor returns the caller for the audit log.
func (c caller) actor() audit.Actor {
	kind := tenantKey
	if c.key.Operator {
		kind = operatorKey
	}
	return audit.Actor{Kind: kind, ID: c.key.ID, Name: c.key.Name}
}

// bootstrapKey is the bootstrap key, which has every scope.
var bootstrapKey = func() *snapshot.Key {
	all, _ := snapshot.ScopesOf([]tenants.Scope{tenants.ScopeCheck, tenants.ScopeManage})
	return &snapshot.Key{ID: "bootstrap", Name: "bootstrap key", Operator: true, Scopes: all}
}()

// errUnauthenticated is the same for every fault of a key.
var errUnauthenticated = problem.New(problem.Unauthenticated, "a valid API key is needed, as Authorization: Bearer hg_…")

// errForeign is the same for every other tenant, whether it exists or not.
var errForeign = problem.New(problem.Forbidden, "this key reaches only its own tenant")

// authenticate finds the caller in the snapshot. It rejects a token of the wrong form
// without a lookup. It never queries a database.
func (a *API) authenticate(r *http.Request) (caller, error) {
	var world *snapshot.Snapshot
	if a.cfg.Snapshot != nil {
		world = a.cfg.Snapshot()
	}
	if world == nil {
		return caller{}, problem.New(problem.Unavailable, "this node has not loaded its first snapshot yet")
	}
	token, ok := bearer(r.Header["Authorization"])
	if !ok {
		return caller{}, errUnauthenticated
	}
	formed := tenants.WellFormed(token)
	if !formed && a.bootstrap == nil {
		return caller{}, errUnauthenticated
	}
	hash := tenants.HashToken(token)
	if formed {
		if key, ok := world.Key(hash); ok {
			if (key.ExpiresAt != 0 || key.RevokedAt != 0) && !key.Valid(a.cfg.Now().UnixMicro()) {
				return caller{}, errUnauthenticated
			}
			return caller{world, key}, nil
		}
	}
	if a.bootstrap != nil && subtle.ConstantTimeCompare(hash[:], a.bootstrap[:]) == 1 && !world.HasOperatorKey() {
		return caller{world, bootstrapKey}, nil
	}
	return caller{}, errUnauthenticated
}

// maxToken bounds the length of a token: that of the longest bootstrap key.
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

// A gate has the result of accounts.Authorize for one action and for every possible
// key, so that a check builds no Principal.
type gate struct {
	// open is set if the action needs no key.
	open bool
	// refused has the error for a key, by operator or tenant and by set of scopes. nil
	// allows the action.
	refused [2][8]error
	// writes is set if a tenant's key needs the scope manage.
	writes bool
}

// newGate returns the gate of an action.
func newGate(action accounts.Action) *gate {
	g := &gate{open: accounts.Authorize(accounts.Principal{}, action) == nil}
	words := []tenants.Scope{tenants.ScopeCheck, tenants.ScopeRead, tenants.ScopeManage}
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
	all, _ := snapshot.ScopesOf(words)
	g.writes = g.refused[1][reads] != nil && g.refused[1][all] == nil
	return g
}

// authorize returns an error if a caller must not call a route. ref is the tenant in the
// path, or "".
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

// subject returns the tenant of a check. An empty ref is the own tenant of a tenant key.
func (c caller) subject(ref string) (*enforcement.Subject, error) {
	if own := c.tenant(); own != nil {
		if ref == "" || c.is(ref) {
			return own, nil
		}
		return nil, errForeign
	}
	s, ok := c.world.Subject(ref)
	if !ok {
		return nil, problem.New(problem.NotFound, "no such tenant")
	}
	return s, nil
}

type callerKey struct{}

// callerOf returns the caller of a management request.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}
