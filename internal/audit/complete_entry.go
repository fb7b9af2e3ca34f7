package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// NewID returns a new UUIDv7, for an audit entry or another stored object.
func NewID() string { return uuid.Must(uuid.NewV7()).String() } // the random source never fails

// A Document is an object that has a JSON form for the audit log.
type Document interface {
	JSON() (json.RawMessage, error)
}

// Complete returns e with three additions: the origin in ctx, the documents before and after,
// and, if e has no actor, the actor in ctx.
//
// before is nil if the change created the object, and after is nil if it deleted the object.
// Otherwise each is a Document, a json.RawMessage, or a value that is encoded as JSON. If one
// of them cannot be encoded, the result has Err set.
func Complete(ctx context.Context, e Entry, before, after any) Entry {
	actor, origin := Who(ctx)
	e.Origin = origin
	if e.Actor.Kind == "" {
		e.Actor = actor
	}
	var faults [2]error
	e.Before, faults[0] = document(before)
	e.After, faults[1] = document(after)
	if err := errors.Join(faults[:]...); err != nil {
		e.Err = fmt.Errorf("describe %s of %s for the audit log: %w", e.Action, e.Object, err)
	}
	return e
}

func document(object any) (json.RawMessage, error) {
	switch o := object.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		return o, nil
	case Document:
		return o.JSON()
	}
	return json.Marshal(object)
}
