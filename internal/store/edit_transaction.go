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

// maxTries is the maximum number of times that a transaction is tried. It is tried again after a
// conflict with another transaction and after a lost connection.
const maxTries = 4

// A change function returns errUnchanged if there is nothing to change. The transaction is then
// rolled back, so it writes no audit line, and the caller gets no error.
var errUnchanged = errors.New("unchanged")

// An edit is a change of stored objects while its transaction runs.
type edit struct {
	tx     *sql.Tx
	engine engine
	// raises says whether this change raises the revision. It is false if the method aside runs the
	// change.
	raises bool
	// revision is the revision of this edit. If raises is false, revision is the revision of the
	// latest edit, and it is set when the audit lines are written.
	revision int64
	// at is the creation time of new objects. It equals now, unless the context contains another
	// time (see audit.Dated).
	at, now time.Time
	// lines are the audit lines that the transaction writes at its end. The first line describes
	// the request, and the change function fills in its remaining fields. The change function may
	// append further lines, for example for objects that it also deletes.
	lines []audit.Entry
}

// unknownCommit returns the problem for err, a connection that was lost during the commit. The
// caller cannot know whether the transaction was committed.
func unknownCommit(err error) error {
	return &problem.Problem{
		Kind: problem.Unavailable, Code: "commit_unknown", Cause: err,
		Message: "the connection to the database was lost during the commit; check whether the change exists before you repeat it",
	}
}

// edit calls change in a transaction that also raises the revision, writes the audit lines, and
// sends the notification. If the transaction fails, edit may try it again and then calls change
// again. It does not try again if the failed transaction may have been committed.
func (s *Store) edit(ctx context.Context, e audit.Entry, change func(context.Context, *edit) error) error {
	return s.write(ctx, e, true, change)
}

// aside is like edit, but it does not raise the revision. It is for changes of objects that no
// snapshot contains, such as sessions, and for audit lines without a change. Because aside does not
// raise the revision, it runs at the same time as an edit. It waits only when it locks the newest
// audit hash.
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

// tryWrite tries the transaction once. committing is true if the commit returned an error. Then
// the transaction may have been committed or not.
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
	// The transaction raises the revision first. This locks the row of the revision until the
	// commit, so that only one edit runs at a time (see the package comment).
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
	if open != nil { // Once commits the transaction
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

// bury adds a tombstone for a deleted object: a row that makes snapshots drop the object.
func (e *edit) bury(ctx context.Context, kind, id string) error {
	_, err := e.exec(ctx, `
		INSERT INTO tombstones (revision, kind, object_id)
		VALUES ($1, $2, $3)`, e.revision, kind, id)
	return err
}

// numbers allocates count consecutive numbers for objects of a kind, such as "tenant" or "cell",
// and returns the last number. It never allocates a number twice.
func (e *edit) numbers(ctx context.Context, kind string, count int) (last uint32, err error) {
	err = e.tx.QueryRowContext(ctx, `
		UPDATE counters SET n = n + $2 WHERE name = $1 RETURNING n`, kind, count).Scan(&last)
	return last, err
}

// concerns sets the tenant, the object, and the name of the object in the first audit line. If the
// line already has an object or a name, concerns keeps it.
func (e *edit) concerns(tenantID, object, name string) {
	l := &e.lines[0]
	if tenantID != "" {
		l.TenantID = tenantID
	}
	l.Object = cmp.Or(l.Object, object)
	l.ObjectName = cmp.Or(l.ObjectName, name)
}
