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

// A caller is whoever a request's key belongs to, with the world in which the
// key was found: one request sees one snapshot.
type caller struct {
	world *snapshot.Snapshot
	key   *snapshot.Key
}

// tenant is the caller's own tenant; nil for the operator.
func (c caller) tenant() *enforcement.Subject { return c.key.Subject }

// is reports whether ref names the caller's own tenant.
func (c caller) is(ref string) bool {
	t := c.tenant()
	return t != nil && (ref == t.Tenant || ref == t.TenantID)
}

// actor is the caller in the audit log.
func (c caller) actor() audit.Actor {
	kind := tenantKey
	if c.key.Operator {
		kind = operatorKey
	}
	return audit.Actor{Kind: kind, ID: c.key.ID, Name: c.key.Name}
}

// bootstrapKey is what the bootstrap key may do: everything.
var bootstrapKey = func() *snapshot.Key {
	all, _ := snapshot.ScopesOf([]tenants.Scope{tenants.ScopeCheck, tenants.ScopeManage})
	return &snapshot.Key{ID: "bootstrap", Name: "bootstrap key", Operator: true, Scopes: all}
}()

// errUnauthenticated is the same whatever is wrong with a key.
var errUnauthenticated = problem.New(problem.Unauthenticated, "a valid API key is needed, as Authorization: Bearer hg_…")

// errForeign is the same for every other tenant, real or not.
var errForeign = problem.New(problem.Forbidden, "this key reaches only its own tenant")

// authenticate finds the caller in the snapshot. A token of the wrong form is
// refused without looking; no database is asked in any case.
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

// maxToken bounds what is hashed of an Authorization header: the longest
// bootstrap key.
const maxToken = 128

// bearer takes the token out of the one Authorization header.
func bearer(headers []string) (string, bool) {
	const scheme = "Bearer "
	if len(headers) != 1 || len(headers[0]) <= len(scheme) || !strings.EqualFold(headers[0][:len(scheme)], scheme) {
		return "", false
	}
	token := headers[0][len(scheme):]
	return token, len(token) <= maxToken
}

// A gate is accounts.Authorize for one action, asked of every key that can be:
// a check builds no Principal.
type gate struct {
	// open: nobody is asked for a key.
	open bool
	// refused tells by operator or tenant, and by set of scopes, what such a key
	// is answered; nil: it may.
	refused [2][8]error
	// writes: a tenant's key needs manage.
	writes bool
}

// newGate asks the table about an action.
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

// authorize says whether a caller may call a route: by the table, then by the
// tenant that the path names; "" if it names none.
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

// subject finds the tenant that a check is about. An empty ref is a tenant
// key's own tenant.
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

// callerOf gives the caller of a management request.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}
