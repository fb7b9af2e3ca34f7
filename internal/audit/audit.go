// Package audit defines the audit log, in which every change writes a line.
//
// Services build an Entry and pass it to their Store together with the change. The Store writes both in one
// transaction, so that there is never a change without its line or a line without its change. The package must not
// depend on the changed objects; it stores them as JSON documents.
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
	// ID identifies the key or the user. For a command, it is the command, like "key create".
	ID string
	// Name is the name of the actor that is shown to people.
	Name string
}

// An Origin describes where a request came from. It is empty for commands.
type Origin struct {
	RequestID string
	Address   string
}

// An Entry is one line of the audit log. Lines are never changed or removed.
type Entry struct {
	ID string // UUIDv7
	// Seq is the position of the line in the hash chain, starting at 1. It is 0 for a line from before the chain
	// existed. Hash is the hash of the line (see Sum). The Store sets both.
	Seq      int64
	Hash     Hash
	At       time.Time
	Revision int64
	Actor    Actor
	Origin   Origin
	// TenantID is the tenant that the change belongs to; "" if it belongs to none.
	TenantID string
	// Action is the kind of the object and a verb, like "plan.publish" or "key.revoke".
	Action string
	// Object is the ID of the changed object, and ObjectName its slug or name. The Store applies Clean to these and
	// to all texts above.
	Object     string
	ObjectName string
	// Before and After are the object as the API shows it, before and after the change. They are nil if the object
	// did not exist then. They never contain a secret.
	Before json.RawMessage
	After  json.RawMessage
	// Err is set by Complete if it fails. A Store then returns Err and writes nothing.
	Err error
}

// A Filter selects lines of the audit log. An empty field selects all lines.
type Filter struct {
	// ID selects one line.
	ID       string
	TenantID string
	// Action is a whole action. Group is the part of the action before the dot, like "plan".
	Action, Group string
	// Object is the ID of the changed object. Named is its ID, or its name as the line contains it.
	Object, Named string
	// Actor is the ID of the actor, or a part of its name. ASCII letters match regardless of case. Other letters
	// match the name as it is, or in lower case.
	Actor    string
	From, To time.Time // [From, To)
	// After is the ID of the last line of the previous page.
	After string
	Limit int
}

// A Store reads the audit log. The stores of the changed objects write the lines.
type Store interface {
	// AuditEntries returns the lines that match a filter, newest first.
	AuditEntries(ctx context.Context, f Filter) ([]Entry, error)
}

// A Verifier is a Store that can verify the hash chain of its lines.
type Verifier interface {
	// VerifyAudit verifies every line of the hash chain, in one consistent state of the database. A broken chain is a
	// Verdict, not an error. The duration depends on the number of lines, so the caller should bound ctx.
	VerifyAudit(ctx context.Context, how Verification) (Verdict, error)
}

// A Verification says how the chain is verified. The zero value verifies its lines.
type Verification struct {
	// Noted are heads that were published earlier. The chain must still contain them.
	Noted []Head
	// Seen is called with the number of the last line that was verified, each time that some were; it may be nil.
	Seen func(seq int64)
}

type contextKey struct{}

type source struct {
	actor  Actor
	origin Origin
}

// With returns a context that contains the actor and the origin of a request. The API and the pages call it once for
// each request. Complete and Who read it.
func With(ctx context.Context, a Actor, o Origin) context.Context {
	return context.WithValue(ctx, contextKey{}, source{a, o})
}

type datedKey struct{}

// Dated returns a context in which created plans, versions, tenants and keys get the creation time at. The demo uses
// it to create objects that look older. Audit lines still get the real time.
func Dated(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, datedKey{}, at)
}

// When returns the time that Dated has set in ctx, or now if there is none.
func When(ctx context.Context, now time.Time) time.Time {
	if at, ok := ctx.Value(datedKey{}).(time.Time); ok {
		return at
	}
	return now
}

// Who returns the actor and the origin that With has set in ctx. If there is none, the actor is "system".
func Who(ctx context.Context) (Actor, Origin) {
	s, ok := ctx.Value(contextKey{}).(source)
	if !ok {
		return Actor{Kind: "system", ID: "system", Name: "system"}, Origin{}
	}
	return s.actor, s.origin
}
