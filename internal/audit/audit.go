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

// An Actor is the person, key or program that made a change.
type Actor struct {
	// Kind is "operator_key", "tenant_key", "user", "command" or "system".
	Kind string
	// ID is the id of the key or user. For commands it is the command, like
	// "key create".
	ID string
	// Name is the name for people.
	Name string
}

// An Origin is where a request came from. It is empty for commands.
type Origin struct {
	RequestID string
	Address   string
}

// An Entry is one line of the log. Lines are never changed or removed.
type Entry struct {
	ID string // UUIDv7
	// Seq is the place in the chain, from 1. It is 0 for a line outside of the
	// chain. Hash is the line's hash: see Sum. A Store sets both.
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
	// Object is the id of the changed object, ObjectName its slug or name. A
	// Store applies Clean to them and to all texts above.
	Object     string
	ObjectName string
	// Before and After are the object as the API shows it, or nil if there was
	// or is none. They never contain a secret.
	Before json.RawMessage
	After  json.RawMessage
	// Err is the error of Complete. A Store returns it and writes nothing.
	Err error
}

// A Filter selects lines. Empty fields select all.
type Filter struct {
	// ID selects one line.
	ID       string
	TenantID string
	// Action is a whole action. Group is the part before its dot, like "plan".
	Action, Group string
	// Object is the id of the changed object. Named is its id, or its name as
	// in the line.
	Object, Named string
	// Actor is the id of the actor, or a part of the name. ASCII letters match
	// in any case; other letters match as they are or in lower case.
	Actor    string
	From, To time.Time // [From, To)
	// After is the id of the last line of the page before.
	After string
	Limit int
}

// A Store reads the log. The stores of the changed objects write it.
type Store interface {
	// AuditEntries returns lines newest first.
	AuditEntries(ctx context.Context, f Filter) ([]Entry, error)
}

// A Verifier is a Store that can verify its chain.
type Verifier interface {
	// VerifyAudit verifies every line of the chain, in one state of the
	// database. A broken chain is a Verdict, not an error. The duration depends
	// on the number of lines: bound ctx.
	//
	// Each of the noted heads was published before: the chain must contain it.
	VerifyAudit(ctx context.Context, noted ...Head) (Verdict, error)
}

type contextKey struct{}

type source struct {
	actor  Actor
	origin Origin
}

// With returns a context with the actor and the origin. The edge calls it once
// for each request. Complete and Who read it.
func With(ctx context.Context, a Actor, o Origin) context.Context {
	return context.WithValue(ctx, contextKey{}, source{a, o})
}

type datedKey struct{}

// Dated returns a context in which created plans, versions, tenants and keys
// get the creation time at. The demo uses it to have a past. Audit lines have
// the real time.
func Dated(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, datedKey{}, at)
}

// When returns the time of Dated, or now.
func When(ctx context.Context, now time.Time) time.Time {
	if at, ok := ctx.Value(datedKey{}).(time.Time); ok {
		return at
	}
	return now
}

// Who returns the actor and the origin of With. Without With, the actor is
// "system".
func Who(ctx context.Context) (Actor, Origin) {
	s, ok := ctx.Value(contextKey{}).(source)
	if !ok {
		return Actor{Kind: "system", ID: "system", Name: "system"}, Origin{}
	}
	return s.actor, s.origin
}
