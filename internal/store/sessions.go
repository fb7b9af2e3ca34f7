package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

const sessionColumns = `s.id, s.hash, s.user_id, s.address, s.agent, s.created_at, s.seen_at, s.expires_at, s.confirmed_at`

// A sessionRow has the scan targets for sessionColumns.
type sessionRow struct {
	accounts.Session
	hash      []byte
	confirmed sql.NullTime
}

func (n *sessionRow) into() []any {
	return []any{&n.ID, &n.hash, &n.UserID, &n.Address, &n.Agent, &n.CreatedAt, &n.SeenAt, &n.ExpiresAt, &n.confirmed}
}

func (n *sessionRow) session() accounts.Session {
	copy(n.Hash[:], n.hash)
	n.CreatedAt, n.SeenAt, n.ExpiresAt = n.CreatedAt.UTC(), n.SeenAt.UTC(), n.ExpiresAt.UTC()
	n.ConfirmedAt = instant(n.confirmed)
	return n.Session
}

func scanSession(r row) (accounts.Session, error) {
	var n sessionRow
	err := r.Scan(n.into()...)
	return n.session(), err
}

// CreateSession adds a session, sets the time of the last sign-in of its user, and writes the
// audit line e. The error is problem.NotFound if the user is deleted or disabled. Each time in
// n that is zero gets a default: the session starts now and ends after accounts.SessionLife.
func (s *Store) CreateSession(ctx context.Context, n accounts.Session, e audit.Entry) (accounts.Session, error) {
	var made accounts.Session
	err := s.aside(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		made, err = ed.addSession(ctx, n)
		return err
	})
	return made, s.fail(err, "create a session of user %s", n.UserID)
}

func (e *edit) addSession(ctx context.Context, n accounts.Session) (_ accounts.Session, err error) {
	n.ID = cmp.Or(n.ID, audit.NewID())
	if n.CreatedAt.IsZero() {
		n.CreatedAt = e.at
	}
	if n.SeenAt.IsZero() {
		n.SeenAt = n.CreatedAt
	}
	if n.ExpiresAt.IsZero() {
		n.ExpiresAt = n.CreatedAt.Add(accounts.SessionLife)
	}
	n.CreatedAt, n.SeenAt, n.ExpiresAt = stored(n.CreatedAt), stored(n.SeenAt), stored(n.ExpiresAt)
	n.ConfirmedAt = instant(nullable(n.ConfirmedAt))
	n.Address, n.Agent = audit.Clean(n.Address), audit.Clean(n.Agent)
	// The transaction first updates the row of the user, which locks the row. This excludes a race
	// with an edit that disables the user. If the edit comes later, it waits for this transaction
	// and ends the new session. If it has committed before, this statement finds no user.
	found, err := e.exec(ctx, `UPDATE users SET signed_in_at = $2 WHERE id = $1 AND NOT disabled`, n.UserID, n.CreatedAt)
	if err == nil && found == 0 {
		err = missing(sql.ErrNoRows, "user")
	}
	if err != nil {
		return n, err
	}
	if err := e.ownerOf(ctx, n.UserID); err != nil {
		return n, err
	}
	added, err := e.exec(ctx, `
		INSERT INTO sessions (id, hash, user_id, address, agent, created_at, seen_at, expires_at, confirmed_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT DO NOTHING`,
		n.ID, n.Hash[:], n.UserID, n.Address, n.Agent, n.CreatedAt, n.SeenAt, n.ExpiresAt, nullable(n.ConfirmedAt))
	if err == nil && added == 0 {
		err = problem.WithCode(problem.Conflict, "session_exists", "a session with this token exists already")
	}
	return n, err
}

// idleSince returns the time that decides whether a session is idle at now. A session is idle if it
// was last used before that time.
func idleSince(now time.Time) time.Time { return stored(now.Add(-accounts.SessionIdle)) }

// Session returns the session with the given hash and its user, read with one query. The error is
// problem.NotFound if the session is expired or idle, or if the user is disabled. A second
// statement then sets SeenAt. If this statement fails, Session only logs the error, so that people
// stay signed in while the database rejects writes.
func (s *Store) Session(ctx context.Context, hash [32]byte, now time.Time) (accounts.Session, accounts.User, error) {
	var n sessionRow
	var u userRow
	err := s.read(ctx, func(ctx context.Context) error {
		n, u = sessionRow{}, userRow{}
		err := s.reader.QueryRowContext(ctx, `
			SELECT `+sessionColumns+`, `+userColumns+`
			FROM sessions s JOIN users u ON u.id = s.user_id
			WHERE s.hash = $1 AND s.expires_at > $2 AND s.seen_at > $3 AND NOT u.disabled`,
			hash[:], stored(now), idleSince(now)).Scan(append(n.into(), u.into()...)...)
		return missing(err, "session")
	})
	if err != nil {
		return accounts.Session{}, accounts.User{}, s.fail(err, "load a session")
	}
	found := n.session()
	if now := stored(now); now.Sub(found.SeenAt) > accounts.SeenGranularity {
		if err := s.noteSeen(ctx, &found, now); err != nil {
			s.log.WarnContext(ctx, "the time of a session's last request could not be stored", "session", found.ID, "error", err)
		}
	}
	return found, u.user(), nil
}

// noteSeen sets SeenAt of a session to now, unless the stored time is later. It does nothing if
// the hash of the session was replaced since n was read.
func (s *Store) noteSeen(ctx context.Context, n *accounts.Session, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := s.writer.ExecContext(ctx, `
		UPDATE sessions SET seen_at = $3
		WHERE id = $1 AND hash = $2 AND seen_at < $3`, n.ID, n.Hash[:], now)
	if err == nil {
		n.SeenAt = now
	}
	return err
}

// RenewSession replaces the hash of the token of a session, so that the old token no longer
// works. The error is problem.NotFound if there is no such session.
func (s *Store) RenewSession(ctx context.Context, id string, hash [32]byte) error {
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := execIn(ctx, tx, `UPDATE sessions SET hash = $2 WHERE id = $1`, id, hash[:])
		if err == nil && n == 0 {
			err = missing(sql.ErrNoRows, "session")
		}
		return err
	})
	return s.fail(err, "renew session %s", id)
}

// Sessions returns the sessions of a user that are neither expired nor idle, newest first.
func (s *Store) Sessions(ctx context.Context, userID string, now time.Time) ([]accounts.Session, error) {
	list, err := queryAll(ctx, s, scanSession, `
		SELECT `+sessionColumns+`
		FROM sessions s
		WHERE s.user_id = $1 AND s.expires_at > $2 AND s.seen_at > $3
		ORDER BY s.id DESC`, userID, stored(now), idleSince(now))
	return list, s.fail(err, "list sessions of user %s", userID)
}

// EndSession deletes the session id of a user. If id is "", it deletes all sessions of the user
// except the session keep. It returns the number of deleted sessions, and writes the audit line
// only if this number is not 0. The error is problem.NotFound if the user does not exist.
func (s *Store) EndSession(ctx context.Context, userID, id, keep string, e audit.Entry) (int, error) {
	var ended int64
	err := s.aside(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		if err := ed.ownerOf(ctx, userID); err != nil {
			return err
		}
		if id != "" {
			ended, err = ed.exec(ctx, `DELETE FROM sessions WHERE user_id = $1 AND id = $2`, userID, id)
		} else {
			ended, err = ed.exec(ctx, `DELETE FROM sessions WHERE user_id = $1 AND id <> $2`, userID, keep)
		}
		if err == nil && ended == 0 {
			err = errUnchanged
		}
		return err
	})
	if err != nil {
		return 0, s.fail(err, "end sessions of user %s", userID)
	}
	return int(ended), nil
}

// overRows is the maximum number of rows that one transaction of EndOverSessions deletes.
const overRows = 1000

// EndOverSessions deletes expired and idle sessions. It also deletes expired pending sign-ins,
// passkey challenges and shared links, and invitations that expired more than a week ago. Expired
// invitations stay for a week so that people can see why a link no longer works. Each transaction
// deletes at most overRows rows, so that sign-ins do not wait long.
func (s *Store) EndOverSessions(ctx context.Context, now time.Time) error {
	for _, over := range []struct {
		table, column string
		before        time.Time
	}{
		{"sessions", "expires_at", stored(now)},
		{"sessions", "seen_at", idleSince(now)},
		{"invitations", "expires_at", stored(now.Add(-accounts.InvitationLife))},
		{"pending_sign_ins", "expires_at", stored(now)},
		{"passkey_challenges", "expires_at", stored(now)},
		{"shared_links", "expires_at", stored(now)},
	} {
		for full := true; full; {
			n, err := s.removePiece(ctx, over.table, over.column, over.before)
			if err != nil {
				return s.fail(fmt.Errorf("of %s: %w", over.table, err), "remove what is over")
			}
			full = n == overRows
		}
	}
	return nil
}

func (s *Store) removePiece(ctx context.Context, table, column string, before time.Time) (n int64, err error) {
	err = s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err = execIn(ctx, tx, `
			DELETE FROM `+table+`
			WHERE id IN (SELECT id FROM `+table+` WHERE `+column+` <= $1 LIMIT $2)`, before, overRows)
		return err
	})
	return n, err
}
