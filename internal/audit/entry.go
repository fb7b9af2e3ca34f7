package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// NewID returns a new UUIDv7, for an audit entry or for another object.
func NewID() string { return uuid.Must(uuid.NewV7()).String() } // the random source never fails

// A Document is an object that provides its own JSON for the audit log.
type Document interface {
	JSON() (json.RawMessage, error)
}

// Complete returns e with the origin of ctx, and with the documents before and after. If e has no actor, it also gets
// the actor of ctx. A document is nil if the object does not exist. Otherwise it is a Document, a json.RawMessage, or
// a value that Complete encodes as JSON. If a document cannot be encoded, Complete sets e.Err.
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
