package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/retry"
)

// maxTries is the maximum number of attempts of a transaction that conflicts with others or loses its connection.
const maxTries = 4

// errUnchanged ends an edit that has nothing to change. The transaction is rolled back without an audit line, and the
// caller gets no error.
var errUnchanged = errors.New("unchanged")

// An edit is one change of the configuration data, while its transaction runs.
type edit struct {
	tx     *sql.Tx
	engine engine
	// raises is false for a change that does not raise the revision (see aside).
	raises bool
	// revision is the number of this edit. If raises is false, it is the latest revision, and it is set when the
	// audit lines are written.
	revision int64
	// at is the creation time of the objects that the edit creates. It is now, unless the context has another time
	// (see audit.Dated).
	at, now time.Time
	// lines are the audit lines, which are written at the end of the edit. The first one describes the request: the
	// change function completes it, and may add lines for further effects.
	lines []audit.Entry
}

// unknownCommit returns the error for a connection that was lost during the commit. Then the result is unknown.
func unknownCommit(err error) error {
	return &problem.Problem{
		Kind: problem.Unavailable, Code: "commit_unknown", Cause: err,
		Message: "the connection to the database was lost during the commit; check whether the change exists before you repeat it",
	}
}

// edit runs change in one transaction, which also raises the revision, writes the audit lines, and sends the
// notification. If the transaction fails, edit may repeat it, and change runs again. It does not repeat a transaction
// whose commit may have succeeded.
func (s *Store) edit(ctx context.Context, e audit.Entry, change func(context.Context, *edit) error) error {
	return s.write(ctx, e, true, change)
}

// aside is edit for changes that no snapshot contains: sessions, and audit lines without a change. It does not raise
// the revision. It waits only for the lock of the newest audit hash.
func (s *Store) aside(ctx context.Context, e audit.Entry, change func(context.Context, *edit) error) error {
	return s.write(ctx, e, false, change)
}

func (s *Store) write(ctx context.Context, e audit.Entry, raises bool, change func(context.Context, *edit) error) error {
	if e.Err != nil {
		return e.Err
	}
	if outer := s.running(ctx); outer != nil {
		return outer.join(ctx, e, change)
	}
	return s.writeWithin(ctx, s.timeout, e, raises, change)
}

func (s *Store) writeWithin(ctx context.Context, most time.Duration, e audit.Entry, raises bool,
	change func(context.Context, *edit) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for try := 1; ; try++ {
		committing, err := s.tryWrite(ctx, e, raises, change)
		f, _ := s.engine.fault(err)
		s.refusal.note(f, err)
		if err == nil {
			if raises && openEditOf(ctx) == nil {
				s.engine.announced()
			}
			return nil
		}
		if errors.Is(err, errUnchanged) {
			return nil
		}
		if committing && (f == faultAway || f == faultOther) {
			return unknownCommit(err)
		}
		if f != faultAgain && f != faultAway || try == maxTries || ctx.Err() != nil {
			return err
		}
		_ = retry.Wait(ctx, retry.Jitter(time.Duration(try)*20*time.Millisecond))
	}
}

// tryWrite makes one attempt of the transaction. committing reports whether the commit failed, so that the result may
// be unknown.
func (s *Store) tryWrite(ctx context.Context, e audit.Entry, raises bool, change func(context.Context, *edit) error) (committing bool,
	err error,
) {
	open, txCtx := openEditOf(ctx), ctx
	if open != nil {
		txCtx = open.ctx
	}
	tx, err := s.writer.BeginTx(txCtx, nil)
	if err != nil {
		return false, err
	}
	defer func() {
		if open == nil || open.tx != tx {
			_ = tx.Rollback()
		}
	}()
	now := s.now()
	ed := &edit{tx: tx, engine: s.engine, raises: raises, at: stored(audit.When(ctx, now)), now: stored(now), lines: []audit.Entry{e}}
	// The revision is raised first, because its row lock serializes edits (see the package comment).
	if err := ed.raise(ctx); err != nil {
		return false, fmt.Errorf("raise the revision: %w", err)
	}
	if err := change(ctx, ed); err != nil {
		return false, err
	}
	if err := ed.writeLines(ctx); err != nil {
		return false, fmt.Errorf("write the audit line: %w", err)
	}
	if raises {
		if err := s.engine.announce(ctx, tx, ed.revision); err != nil {
			return false, fmt.Errorf("announce the revision: %w", err)
		}
	}
	if open != nil { // Once commits
		open.tx, open.raises = tx, raises
		return false, nil
	}
	if err := tx.Commit(); err != nil {
		return true, fmt.Errorf("commit: %w", err)
	}
	return false, nil
}

// raise increases the revision, unless the change is an aside.
func (e *edit) raise(ctx context.Context) error {
	if !e.raises {
		return nil
	}
	return e.tx.QueryRowContext(ctx, `UPDATE revision SET n = n + 1 WHERE id = 1 RETURNING n`).Scan(&e.revision)
}

// exec runs a statement and returns the number of affected rows.
func (e *edit) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := e.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// bury adds a tombstone, a row that makes snapshots drop the deleted object.
func (e *edit) bury(ctx context.Context, kind, id string) error {
	_, err := e.exec(ctx, `
		INSERT INTO tombstones (revision, kind, object_id)
		VALUES ($1, $2, $3)`, e.revision, kind, id)
	return err
}

// numbers allocates count numbers of a kind, such as "tenant" or "cell", and returns the last one. A number is never
// reused.
func (e *edit) numbers(ctx context.Context, kind string, count int) (last uint32, err error) {
	err = e.tx.QueryRowContext(ctx, `
		UPDATE counters SET n = n + $2 WHERE name = $1 RETURNING n`, kind, count).Scan(&last)
	return last, err
}

// concerns completes the first audit line: its tenant, its object, and the name of the object.
func (e *edit) concerns(tenantID, object, name string) {
	l := &e.lines[0]
	if tenantID != "" {
		l.TenantID = tenantID
	}
	l.Object = cmp.Or(l.Object, object)
	l.ObjectName = cmp.Or(l.ObjectName, name)
}
