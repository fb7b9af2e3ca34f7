package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/headgate/headgate/internal/problem"
)

// A fault is the class of a driver's error.
type fault uint8

const (
	faultOther     fault = iota // not known: internal
	faultAway                   // no connection, or it was lost
	faultAgain                  // the transaction lost against another: try again
	faultBusy                   // a lock or a time-out: trying later may help
	faultReadOnly               // nothing can be written now
	faultFull                   // no space left
	faultUnique                 // a value is taken
	faultReference              // what is referred to is gone, or still referred to
	faultCheck                  // a value that the schema refuses
)

// taken maps unique constraints to the problem that callers get.
var taken = map[string]*problem.Problem{
	"tenants_slug_key": slugTaken,
	"plans_slug_key":   slugTaken,
}

var slugTaken = &problem.Problem{Kind: problem.Conflict, Code: "slug_taken", Message: "the slug is taken"}

// fail adds to err what the method was doing, and the kind of the problem if
// there is one. A Problem stays unchanged.
func (s *Store) fail(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	var known *problem.Problem
	if errors.As(err, &known) {
		return err
	}
	cause := fmt.Errorf("%s: %w", fmt.Sprintf(doing, args...), err)
	if errors.Is(err, context.Canceled) {
		return cause
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &problem.Problem{Kind: problem.Unavailable, Message: "the database did not answer in time", Cause: cause}
	}
	f, constraint := s.engine.fault(err)
	return f.problem(constraint, cause)
}

func (f fault) problem(constraint string, cause error) error {
	p := &problem.Problem{Kind: problem.Unavailable, Cause: cause}
	switch f {
	case faultAway:
		p.Message = "the database is away"
	case faultAgain, faultBusy:
		p.Message = "the database is busy"
	case faultReadOnly:
		p.Message = "the database is read-only at the moment"
	case faultFull:
		p.Message = "the database has no space left"
	case faultUnique:
		p.Kind, p.Code, p.Message = problem.Conflict, "already_exists", "it exists already"
		if t, ok := taken[constraint]; ok {
			p.Code, p.Message = t.Code, t.Message
		}
	case faultReference:
		p.Kind, p.Message = problem.Conflict, "it is still in use, or what it refers to is gone"
	case faultCheck:
		p.Kind, p.Message = problem.Invalid, "a value cannot be stored"
	default:
		return cause
	}
	return p
}

// missing replaces sql.ErrNoRows by NotFound.
func missing(err error, what string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return problem.New(problem.NotFound, "no such %s", what)
	}
	return err
}

// stale returns the error for an edit that is based on an old revision.
func stale(what string) error {
	return problem.New(problem.Stale, "the %s was changed since it was read", what)
}
