package store

import (
	"context"
	"errors"

	"github.com/headgate/headgate/internal/audit"
)

// togetherKey is the context key of the running edit of Together.
type togetherKey struct{}

// A together is a running edit of Together. Methods of the same Store that are called with its
// context add their changes to this edit.
type together struct {
	store *Store
	edit  *edit
}

// Together runs the function work as one edit. All changes that work makes with its context belong
// to one transaction and one revision, and reads with this context see these changes. If work
// returns an error, nothing is changed. If work makes no change, the revision is not raised.
//
// Other edits wait until work ends, which may take twelve times the timeout of other methods. work
// must use its context in only one goroutine. Together calls work again if the transaction fails,
// so work must be repeatable.
func (s *Store) Together(ctx context.Context, work func(ctx context.Context) error) error {
	err := s.writeWithin(ctx, 12*s.timeout, audit.Entry{}, true, func(ctx context.Context, ed *edit) error {
		ed.lines = nil
		if err := work(context.WithValue(ctx, togetherKey{}, together{s, ed})); err != nil {
			return err
		}
		if len(ed.lines) == 0 {
			return errUnchanged
		}
		return nil
	})
	return s.fail(err, "change several objects")
}

// running returns the edit of Together to whose work ctx belongs, or nil if ctx belongs to
// none.
func (s *Store) running(ctx context.Context) *edit {
	if t, _ := ctx.Value(togetherKey{}).(together); t.store == s {
		return t.edit
	}
	return nil
}

// join runs change as a part of the running edit e. line is the first audit line of this part. If
// change succeeds, join adds the audit lines of the part to the audit lines of e.
func (e *edit) join(ctx context.Context, line audit.Entry, change func(context.Context, *edit) error) error {
	part := *e
	part.lines = []audit.Entry{line}
	switch err := change(ctx, &part); {
	case errors.Is(err, errUnchanged):
		return nil
	case err != nil:
		return err
	}
	e.lines = append(e.lines, part.lines...)
	return nil
}

// from returns the querier for reads with ctx. Within Together, it is the transaction of Together.
// Otherwise it is the pool of readers.
func (s *Store) from(ctx context.Context) querier {
	if e := s.running(ctx); e != nil {
		return e.tx
	}
	return s.reader
}
