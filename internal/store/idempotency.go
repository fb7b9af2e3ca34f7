package store

import (
	"context"
	"crypto/subtle"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// answerKept is how long the stored response to a request with an Idempotency-Key is kept.
const answerKept = 24 * time.Hour

// An openEdit is an edit whose transaction stays open after the change is complete, until the
// method Once has stored the response in the same transaction. Once then commits the transaction.
type openEdit struct {
	// ctx is the context of the transaction. It is not the context of the edit: the latter is
	// canceled when the edit returns, and the cancellation would roll back the transaction.
	ctx context.Context
	// tx is the transaction of the edit; nil until the edit is complete.
	tx     *sql.Tx
	raises bool
}

type openEditKey struct{}

// openEditOf returns the open edit of a request, or nil if the request has no Idempotency-Key.
func openEditOf(ctx context.Context) *openEdit {
	o, _ := ctx.Value(openEditKey{}).(*openEdit)
	return o
}

// Once returns the stored response to a request with an Idempotency-Key, if there is one. In this
// case, repeated is true. Otherwise Once calls answer and returns its result.
func (s *Store) Once(ctx context.Context, id, body [32]byte, answer func(context.Context) ([]byte, error)) (first []byte, repeated bool,
	err error,
) {
	if first, repeated, err = s.answered(ctx, id, body); repeated || err != nil {
		return first, repeated, err
	}
	txCtx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	open := &openEdit{ctx: txCtx}
	first, err = answer(context.WithValue(ctx, openEditKey{}, open))
	if open.tx == nil && err == nil {
		return first, false, nil
	}
	kept := false
	if open.tx != nil {
		defer open.tx.Rollback()
		if err == nil {
			kept, err = s.keepAnswer(txCtx, open, id, body, first)
		}
	}
	if kept || errors.Is(err, errCommit) {
		return first, false, s.fail(err, "store the answer to a request")
	}
	// Another request with the same key may have stored its response first. If so, return that
	// response.
	if open.tx != nil {
		_ = open.tx.Rollback() // frees the only writer of a SQLite file
	}
	other, repeated, failed := s.answered(ctx, id, body)
	if repeated || failed != nil {
		return other, repeated, failed
	}
	return nil, false, err
}

// keepAnswer wraps errCommit if the commit returned an error and the transaction may be committed
// nevertheless.
var errCommit = errors.New("commit")

// keepAnswer stores the response and commits the transaction. kept is false if another request has
// already stored a response.
func (s *Store) keepAnswer(ctx context.Context, open *openEdit, id, body [32]byte, answer []byte) (kept bool, err error) {
	now := s.now()
	n, err := execIn(ctx, open.tx, `
		INSERT INTO idempotent_answers (id, body, answer, at)
		VALUES ($1, $2, $3, $4)
		ON CONFLICT (id) DO UPDATE SET body = excluded.body, answer = excluded.answer, at = excluded.at
			WHERE idempotent_answers.at <= $5`, id[:], body[:], answer, now.Unix(), now.Add(-answerKept).Unix())
	if err != nil {
		return false, s.fail(err, "store the answer to a request")
	}
	if n == 0 {
		return false, problem.New(problem.Unavailable, "another request with the same Idempotency-Key is in progress: repeat this one")
	}
	if err := open.tx.Commit(); err != nil {
		return false, fmt.Errorf("%w: %w", errCommit, unknownCommit(err))
	}
	if open.raises {
		s.engine.announced()
	}
	return true, nil
}

// answered returns the stored response to a request. found is false if there is none, or if it is
// older than answerKept.
func (s *Store) answered(ctx context.Context, id, body [32]byte) (answer []byte, found bool, err error) {
	var sent []byte
	err = s.read(ctx, func(ctx context.Context) error {
		return s.reader.QueryRowContext(ctx, `
			SELECT body, answer FROM idempotent_answers WHERE id = $1 AND at > $2`, id[:], s.now().Add(-answerKept).Unix()).Scan(&sent, &answer)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, false, nil
	case err != nil:
		return nil, false, s.fail(err, "look for the answer to a request")
	case subtle.ConstantTimeCompare(sent, body[:]) != 1:
		return nil, false, problem.WithCode(problem.Conflict, "idempotency_key_reused",
			"this Idempotency-Key was sent with another body in the last 24 hours: send a new key for a new request")
	}
	return answer, true, nil
}
