// Package audit defines the audit log. Every change writes an Entry to it.
//
// A service passes an Entry to its Store together with the change. The Store writes the entry and
// the change in one transaction, so that neither exists without the other. The package does not
// depend on the types of the changed objects. An Entry contains them as JSON documents.
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
	// ID identifies the key or the user. For a command, it is the name of the command, like
	// "key create".
	ID string
	// Name is the name of the actor, for people.
	Name string
}

// An Origin says where a request came from. It is empty for commands.
type Origin struct {
	RequestID string
	Address   string
}

// An Entry is one line of the audit log. Lines are never changed or removed.
type Entry struct {
	ID string // UUIDv7
	// Seq is the position of the line in the hash chain, starting at 1. It is 0 for a line that
	// was written by a release of Headgate without the chain. Hash is the hash of the line (see
	// Sum). The Store sets both.
	Seq      int64
	Hash     Hash
	At       time.Time
	Revision int64
	Actor    Actor
	Origin   Origin
	// TenantID is the ID of the tenant that the change is about; "" if the change is about no
	// tenant.
	TenantID string
	// Action names the kind of the object and a verb, like "plan.publish" or "key.revoke".
	Action string
	// Object is the ID of the changed object. ObjectName is its slug or name. The Store passes
	// these two texts, and the texts in the fields above them, through Clean.
	Object     string
	ObjectName string
	// Before is the object before the change, and After is the object after it, in the JSON form of
	// the API. Before is nil if the change created the object. After is nil if the change deleted
	// it. Neither contains a secret.
	Before json.RawMessage
	After  json.RawMessage
	// Err is the error of Complete; nil if there was none. If Err is not nil, the Store returns
	// it and writes neither the entry nor the change.
	Err error
}

// A Filter selects lines of the audit log. A line is selected if it matches all fields that are
// set.
type Filter struct {
	// ID selects the line with this ID.
	ID       string
	TenantID string
	// Action selects a whole action, like "plan.publish". Group selects all actions whose part
	// before the dot is Group, like "plan".
	Action, Group string
	// Object selects lines by the ID of the changed object. Named selects lines by the ID or by the
	// name of the object.
	Object, Named string
	// Actor selects lines by the ID of the actor, or by a part of the actor's name. The case of
	// ASCII letters does not matter. A letter outside ASCII matches if the name has the same letter
	// or its lower-case form.
	Actor    string
	From, To time.Time // [From, To)
	// After is the ID of the last line of the previous page. It is "" for the first page.
	After string
	Limit int
}

// An Event is a change after which checks are decided differently: a publication, an override, a
// block, a list entry, or a reset of counters. It is the short form of a line of the audit log.
type Event struct {
	ID         string
	At         time.Time
	TenantID   string // "" for a publication
	Action     string
	ObjectName string // the slug of the plan or the policy, or the value of a list entry
}

// EventActions are the actions of events.
var EventActions = [...]string{
	"block.create", "block.delete", "block.expire", "counter.reset",
	"grant.create", "grant.delete", "grant.expire", "list_entry.create", "list_entry.delete", "list_entry.expire",
	"override.create", "override.delete", "override.expire", "override.update", "plan.publish",
}

// An EventFilter selects events of the time [From, To). If TenantID is set, it selects the events
// of this tenant, which do not include publications. If Plan is set, it selects the publications of
// the plan with this slug.
type EventFilter struct {
	TenantID, Plan string
	From, To       time.Time
	Limit          int
}

// A Store returns lines of the audit log. The stores of the changed objects write them.
type Store interface {
	// AuditEntries returns the lines that match a filter, newest first.
	AuditEntries(ctx context.Context, f Filter) ([]Entry, error)
}

// An EventStore returns events of the audit log.
type EventStore interface {
	// AuditEvents returns the events that match a filter, newest first.
	AuditEvents(ctx context.Context, f EventFilter) ([]Event, error)
}

// A Verifier is a Store that can verify the hash chain of the audit log.
type Verifier interface {
	// VerifyAudit verifies every line of the hash chain, as of one moment. If the chain is broken,
	// the Verdict says so, and the error is nil. The duration depends on the number of lines, so
	// callers should set a deadline in ctx.
	VerifyAudit(ctx context.Context, how Verification) (Verdict, error)
}

// A Verification contains the parameters of VerifyAudit. With the zero value, VerifyAudit
// compares the lines only with each other and with the stored head.
type Verification struct {
	// Noted contains heads of the chain that were logged earlier. A head is the position and the
	// hash of the line that was then the last. The chain must still contain these lines.
	Noted []Head
	// VerifyAudit calls Seen repeatedly with the position of the last verified line, so that the
	// caller can show the progress. Seen may be nil.
	Seen func(seq int64)
}

type contextKey struct{}

type source struct {
	actor  Actor
	origin Origin
}

// With returns a context that contains the actor and the origin of a request. The API and the pages
// call With for each request. Complete and Who read the actor and the origin from the context.
func With(ctx context.Context, a Actor, o Origin) context.Context {
	return context.WithValue(ctx, contextKey{}, source{a, o})
}

type datedKey struct{}

// Dated returns a context in which new plans, versions, tenants and keys get the creation time
// at. The demo uses it to create objects that seem older. Audit lines still get the real time.
func Dated(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, datedKey{}, at)
}

// When returns the time that Dated has stored in ctx. If there is none, it returns now.
func When(ctx context.Context, now time.Time) time.Time {
	if at, ok := ctx.Value(datedKey{}).(time.Time); ok {
		return at
	}
	return now
}

// Who returns the actor and the origin that With has stored in ctx. If there are none, the
// actor is "system" and the origin is empty.
func Who(ctx context.Context) (Actor, Origin) {
	s, ok := ctx.Value(contextKey{}).(source)
	if !ok {
		return Actor{Kind: "system", ID: "system", Name: "system"}, Origin{}
	}
	return s.actor, s.origin
}
