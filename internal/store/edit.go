package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// maxTries is how often an edit is run when the database asks for it again.
const maxTries = 4

// errUnchanged ends an edit that found nothing to do: it is rolled back, leaves
// no line, and is no error for the caller.
var errUnchanged = errors.New("unchanged")

// An edit is one change of the control plane, inside its transaction.
type edit struct {
	tx     *sql.Tx
	engine engine
	// raises tells an edit from an aside, which makes no revision.
	raises bool
	// revision that the edit makes. An aside has it once its lines are written.
	revision int64
	// at is when what is made stands as made: now, unless another time is told of
	// (audit.Dated).
	at, now time.Time
	// lines of the audit log, written at the end. The first is of what was asked
	// for: change may complete it, and add what follows from it.
	lines []audit.Entry
}

// unknownCommit is the answer when a commit was sent and its reply was lost.
func unknownCommit(err error) error {
	return &problem.Problem{
		Kind: problem.Unavailable, Code: "commit_unknown", Cause: err,
		Message: "the database was lost while the change was being committed; look whether it is there before repeating it",
	}
}

// edit runs change in one transaction that also raises the revision, adds the
// audit lines and gives the hint. change may run several times, but not after a
// commit of which nothing is known: that is for the caller to find out.
func (s *Store) edit(ctx context.Context, e audit.Entry, change func(context.Context, *edit) error) error {
	return s.write(ctx, e, true, change)
}

// aside is an edit of what no snapshot holds and nobody follows: sessions, and
// lines without a change. It neither raises the revision nor waits for those who
// do, but for the end of the audit log.
func (s *Store) aside(ctx context.Context, e audit.Entry, change func(context.Context, *edit) error) error {
	return s.write(ctx, e, false, change)
}

func (s *Store) write(ctx context.Context, e audit.Entry, raises bool, change func(context.Context, *edit) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for try := 1; ; try++ {
		committing, err := s.tryWrite(ctx, e, raises, change)
		if err == nil {
			if raises {
				s.engine.announced()
			}
			return nil
		}
		if errors.Is(err, errUnchanged) {
			return nil
		}
		f, _ := s.engine.fault(err)
		if committing && (f == faultAway || f == faultOther) {
			return unknownCommit(err)
		}
		if f != faultAgain && f != faultAway || try == maxTries || ctx.Err() != nil {
			return err
		}
		jitter(ctx, time.Duration(try)*20*time.Millisecond)
	}
}

// tryWrite is one attempt. committing tells whether an error came from the
// commit, of which the outcome is then unknown.
func (s *Store) tryWrite(ctx context.Context, e audit.Entry, raises bool, change func(context.Context, *edit) error) (committing bool, err error) {
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

// raise gives an edit its revision.
func (e *edit) raise(ctx context.Context) error {
	if !e.raises {
		return nil
	}
	return e.tx.QueryRowContext(ctx, `UPDATE revision SET n = n + 1 WHERE id = 1 RETURNING n`).Scan(&e.revision)
}

// exec runs a statement and gives the number of rows that it touched.
func (e *edit) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := e.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// bury leaves a tombstone.
func (e *edit) bury(ctx context.Context, kind, id string) error {
	_, err := e.exec(ctx, `
		INSERT INTO tombstones (revision, kind, object_id)
		VALUES ($1, $2, $3)`, e.revision, kind, id)
	return err
}

// numbers takes the next numbers of a kind, which were never given out before,
// and returns the last of them.
func (e *edit) numbers(ctx context.Context, kind string, count int) (last uint32, err error) {
	err = e.tx.QueryRowContext(ctx, `
		UPDATE counters SET n = n + $2 WHERE name = $1 RETURNING n`, kind, count).Scan(&last)
	return last, err
}

// concerns completes the first line: what it is about, and whose it is.
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
