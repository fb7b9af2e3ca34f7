// Package audit holds the line that every change leaves.
//
// Services build an Entry and hand it to their Store together with the change;
// the Store writes both in one transaction, so that there is neither a change
// without its line nor a line without its change. The package refuses to know
// what was changed: before and after are documents.
package audit

import (
	"context"
	"encoding/json"
	"time"
)

// An Actor is who did something.
type Actor struct {
	// Kind is "operator_key", "tenant_key", "user", "command" or "system".
	Kind string
	// ID is the id of the key or user; a word for commands ("key create").
	ID string
	// Name is how people know it.
	Name string
}

// An Origin is where a change came from. Commands leave it empty.
type Origin struct {
	RequestID string
	Address   string
}

// An Entry is one line of the log. Lines are only added.
type Entry struct {
	ID string // UUIDv7
	// Seq is the place in the chain, from 1; 0: the line is outside it. Hash
	// closes it: see Sum. A Store sets both.
	Seq      int64
	Hash     Hash
	At       time.Time
	Revision int64
	Actor    Actor
	Origin   Origin
	// TenantID is set when the change belongs to one tenant.
	TenantID string
	// Action is object.verb: "plan.publish", "key.revoke".
	Action string
	// Object is the id of what was changed, ObjectName its slug or name. A Store
	// keeps them, and all words before, as Clean has them.
	Object     string
	ObjectName string
	// Before and After are what the API shows of the object; nil where there
	// was or is none. They never hold a secret.
	Before json.RawMessage
	After  json.RawMessage
}

// A Filter narrows a reading; empty fields do not.
type Filter struct {
	// ID is of one line.
	ID       string
	TenantID string
	// Action as a whole; Group is what stands before its dot: "plan".
	Action, Group string
	// Object is the id of what was changed; Named its id, or its name as the line
	// has it.
	Object, Named string
	// Actor is the id of who acted, or a part of the name in any case: of letters
	// beyond ASCII, in the case of the name or in lower case.
	Actor    string
	From, To time.Time // [From, To)
	// After is the id of the last line of the page before, newest first.
	After string
	Limit int
}

// A Store reads the log. Writing happens inside the stores of what is changed.
type Store interface {
	// AuditEntries gives lines newest first.
	AuditEntries(ctx context.Context, f Filter) ([]Entry, error)
}

// A Verifier is a Store that can walk its chain.
type Verifier interface {
	// VerifyAudit holds every line against the chain, as of one moment. That the
	// chain is broken is a Verdict, not an error. It takes as long as it must:
	// bound ctx.
	VerifyAudit(ctx context.Context) (Verdict, error)
}

type contextKey struct{}

type source struct {
	actor  Actor
	origin Origin
}

// With notes who acts in ctx and from where: the edge calls it once, services
// read it with Who when they build an Entry.
func With(ctx context.Context, a Actor, o Origin) context.Context {
	return context.WithValue(ctx, contextKey{}, source{a, o})
}

type datedKey struct{}

// Dated has what is made under ctx stand as made at a time that is told of, for a
// demonstration that has a past: plans, versions, tenants, keys. The lines of the
// log say when it was done in truth. Nothing that people ask for is dated.
func Dated(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, datedKey{}, at)
}

// When gives what Dated told; without it now.
func When(ctx context.Context, now time.Time) time.Time {
	if at, ok := ctx.Value(datedKey{}).(time.Time); ok {
		return at
	}
	return now
}

// Who gives what With noted; without it the actor is "system".
func Who(ctx context.Context) (Actor, Origin) {
	s, ok := ctx.Value(contextKey{}).(source)
	if !ok {
		return Actor{Kind: "system", ID: "system", Name: "system"}, Origin{}
	}
	return s.actor, s.origin
}
