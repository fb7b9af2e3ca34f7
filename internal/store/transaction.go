package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/retry"
)

// maxTries is the maximum number of attempts of a transaction that the database
// asks to repeat.
const maxTries = 4

// errUnchanged ends an edit that found nothing to do. The edit is rolled back,
// writes no audit line, and returns no error to its caller.
var errUnchanged = errors.New("unchanged")

// An edit is one change of the control plane, within its transaction.
type edit struct {
	tx     *sql.Tx
	engine engine
	// raises is false for an aside, which does not raise the revision.
	raises bool
	// revision is the edit's own revision. An aside has it once its lines are
	// written.
	revision int64
	// at is the creation time of what the edit creates: now, unless the context
	// has another time (see audit.Dated).
	at, now time.Time
	// lines are the audit lines, which are written at the end. The first one
	// describes the request; change completes it and may add lines for further
	// effects.
	lines []audit.Entry
}

// unknownCommit returns the error for a lost reply to a commit.
func unknownCommit(err error) error {
	return &problem.Problem{
		Kind: problem.Unavailable, Code: "commit_unknown", Cause: err,
		Message: "the database was lost while the change was being committed; look whether it is there before repeating it",
	}
}

// edit runs change in one transaction, which also raises the revision, writes
// the audit lines and sends the notification. change may run several times, but
// not after a commit whose outcome is unknown.
func (s *Store) edit(ctx context.Context, e audit.Entry, change func(context.Context, *edit) error) error {
	return s.write(ctx, e, true, change)
}

// aside is edit for changes that no snapshot contains: sessions, and audit
// lines without a change. It does not raise the revision. It waits only for the
// head of the audit log.
func (s *Store) aside(ctx context.Context, e audit.Entry, change func(context.Context, *edit) error) error {
	return s.write(ctx, e, false, change)
}

func (s *Store) write(ctx context.Context, e audit.Entry, raises bool, change func(context.Context, *edit) error) error {
	if e.Err != nil {
		return e.Err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for try := 1; ; try++ {
		committing, err := s.tryWrite(ctx, e, raises, change)
		f, _ := s.engine.fault(err)
		s.refusal.note(f, err)
		if err == nil {
			if raises {
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

// tryWrite makes one attempt. committing reports whether the error came from
// the commit, so that the outcome is unknown.
func (s *Store) tryWrite(ctx context.Context, e audit.Entry, raises bool, change func(context.Context, *edit) error) (committing bool,
	err error,
) {
	tx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	now := s.now()
	ed := &edit{tx: tx, engine: s.engine, raises: raises, at: stored(audit.When(ctx, now)), now: stored(now), lines: []audit.Entry{e}}
	// First, because its lock makes edits take turns: see the package's comment.
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
	if err := tx.Commit(); err != nil {
		return true, fmt.Errorf("commit: %w", err)
	}
	return false, nil
}

// raise raises the revision, unless the edit is an aside.
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

// bury adds a tombstone, from which snapshots learn that an object was removed.
func (e *edit) bury(ctx context.Context, kind, id string) error {
	_, err := e.exec(ctx, `
		INSERT INTO tombstones (revision, kind, object_id)
		VALUES ($1, $2, $3)`, e.revision, kind, id)
	return err
}

// numbers allocates numbers of a kind, which are never reused, and returns the
// last one.
func (e *edit) numbers(ctx context.Context, kind string, count int) (last uint32, err error) {
	err = e.tx.QueryRowContext(ctx, `
		UPDATE counters SET n = n + $2 WHERE name = $1 RETURNING n`, kind, count).Scan(&last)
	return last, err
}

// concerns completes the first audit line: its tenant, object and name.
func (e *edit) concerns(tenantID, object, name string) {
	l := &e.lines[0]
	if tenantID != "" {
		l.TenantID = tenantID
	}
	if l.Object == "" {
		l.Object = object
	}
	if l.ObjectName == "" {
		l.ObjectName = name
	}
}
