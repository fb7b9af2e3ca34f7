package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/problem"
)

// A fault is a class of errors of a database driver, the same for Postgres and SQLite.
type fault uint8

const (
	faultOther     fault = iota // unknown error, reported as internal
	faultAway                   // no connection to the database, or the connection was lost
	faultAgain                  // the transaction conflicted with another one: repeat it
	faultBusy                   // a lock or a timeout: a later attempt may succeed
	faultReadOnly               // the database is read-only
	faultFull                   // the disk is full
	faultForbidden              // the role of the database lacks a privilege
	faultUnique                 // a unique value already exists
	faultReference              // a referenced row does not exist, or a row is still referenced
	faultCheck                  // the schema rejects a value
)

// taken maps the name of a unique constraint to the problem that is returned when a change violates
// it.
var taken = map[string]*problem.Problem{
	"tenants_slug_key": slugTaken,
	"plans_slug_key":   slugTaken,
}

var slugTaken = &problem.Problem{Kind: problem.Conflict, Code: "slug_taken", Message: "the slug is taken"}

// fail adds a description to err. The format string doing and its arguments args say what the store
// was doing. If err belongs to a known class of driver errors, fail returns a Problem of the
// matching kind. If err already contains a Problem, fail returns err unchanged.
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

// refusedFor is how long WriteRefusal keeps reporting that the database rejects writes, after the
// last rejected write. On a full disk, a small write may succeed while larger writes fail, so one
// successful write does not end this state.
const refusedFor = 10 * time.Second

// A refusal records the time since which the database has rejected writes, and the time of the last
// rejected write.
type refusal struct {
	mu   sync.Mutex
	is   nodes.Refusal
	last time.Time // when a write was last rejected
}

// note updates the record with the result of a transaction that wrote. err is its error, or nil
// if it succeeded; f is the class of err.
func (r *refusal) note(f fault, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	code := map[fault]string{faultReadOnly: "read_only", faultFull: "full"}[f]
	switch {
	case code != "":
		if r.is.Since.IsZero() {
			r.is.Since = now
		}
		var p *problem.Problem
		if errors.As(f.problem("", err), &p) {
			r.is.Code, r.is.Answer = code, p.Message
		}
		r.last = now
	case err == nil && now.Sub(r.last) >= refusedFor:
		r.is = nodes.Refusal{}
	}
}

// WriteRefusal returns whether the database rejects the writes of this process, and since when.
func (s *Store) WriteRefusal() nodes.Refusal {
	s.refusal.mu.Lock()
	defer s.refusal.mu.Unlock()
	return s.refusal.is
}

// missing returns problem.NotFound if err is sql.ErrNoRows; the argument what names the missing
// object. Other errors are returned unchanged.
func missing(err error, what string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return problem.New(problem.NotFound, "no such %s", what)
	}
	return err
}

// stale returns the error for an edit of an object that has changed since the caller read it.
func stale(what string) error {
	return problem.New(problem.Stale, "the %s was changed since it was read", what)
}
