package store

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

const factorColumns = `id, user_id, kind, name, credential, data, step, created_at, used_at`

func scanFactor(r row) (accounts.Factor, error) {
	var f accounts.Factor
	var used sql.NullTime
	err := r.Scan(&f.ID, &f.UserID, &f.Kind, &f.Name, &f.Credential, &f.Data, &f.Step, &f.CreatedAt, &used)
	f.CreatedAt, f.UsedAt = f.CreatedAt.UTC(), instant(used)
	return f, err
}

// Factors returns the second factors of a user, oldest first, and the number of the user's
// unused recovery codes.
func (s *Store) Factors(ctx context.Context, userID string) ([]accounts.Factor, int, error) {
	list, err := queryAll(ctx, s, scanFactor, `
		SELECT `+factorColumns+`
		FROM second_factors
		WHERE user_id = $1
		ORDER BY id`, userID)
	if err != nil {
		return nil, 0, s.fail(err, "list second factors of user %s", userID)
	}
	codes, err := queryOne(ctx, s, "", func(r row) (n int, err error) { err = r.Scan(&n); return n, err }, `
		SELECT count(*) FROM recovery_codes WHERE user_id = $1`, userID)
	return list, codes, s.fail(err, "count recovery codes of user %s", userID)
}

// factors counts the second factors of a user.
func (e *edit) factors(ctx context.Context, userID string) (n int, err error) {
	err = e.tx.QueryRowContext(ctx, `SELECT count(*) FROM second_factors WHERE user_id = $1`, userID).Scan(&n)
	return n, err
}

// AddFactor adds a second factor and ends the user's sessions except the session with the ID keep.
// If codes is not nil, f must be the first factor of the user, and codes contains the hashes of the
// new recovery codes.
func (s *Store) AddFactor(ctx context.Context, f accounts.Factor, codes [][32]byte, keep string, e audit.Entry) (accounts.Factor, error) {
	var made accounts.Factor
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		if err := ed.ownerOf(ctx, f.UserID); err != nil {
			return err
		}
		made, err = ed.addFactor(ctx, f, codes != nil)
		if err != nil {
			return err
		}
		if codes != nil {
			if err := ed.putCodes(ctx, f.UserID, codes); err != nil {
				return err
			}
		}
		return ed.endSessions(ctx, f.UserID, keep)
	})
	return made, s.fail(err, "add a second factor of user %s", f.UserID)
}

func (e *edit) addFactor(ctx context.Context, f accounts.Factor, first bool) (accounts.Factor, error) {
	n, err := e.factors(ctx, f.UserID)
	switch {
	case err != nil:
		return f, err
	case first && n > 0:
		return f, problem.WithCode(problem.Conflict, "second_factor_exists", "the account has a second factor already: sign in with it first")
	case n >= accounts.MaxFactors:
		return f, problem.WithCode(problem.Conflict, "too_many_second_factors", "the account has %d second factors: remove one first", n)
	}
	f.ID = cmp.Or(f.ID, audit.NewID())
	f.CreatedAt, f.UsedAt = e.at, time.Time{}
	added, err := e.exec(ctx, `
		INSERT INTO second_factors (`+factorColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, NULL)
		ON CONFLICT DO NOTHING`, f.ID, f.UserID, string(f.Kind), f.Name, f.Credential, f.Data, f.Step, f.CreatedAt)
	if err == nil && added == 0 {
		err = problem.WithCode(problem.Conflict, "passkey_exists", "this passkey is in use already")
	}
	return f, err
}

func (e *edit) putCodes(ctx context.Context, userID string, codes [][32]byte) error {
	if _, err := e.exec(ctx, `DELETE FROM recovery_codes WHERE user_id = $1`, userID); err != nil {
		return fmt.Errorf("remove recovery codes: %w", err)
	}
	for _, code := range codes {
		if _, err := e.exec(ctx, `INSERT INTO recovery_codes (user_id, hash) VALUES ($1, $2)`, userID, code[:]); err != nil {
			return fmt.Errorf("add a recovery code: %w", err)
		}
	}
	return nil
}

// RemoveFactor removes a second factor of a user. With the last factor, it also removes the
// recovery codes. If required is true, it returns an error instead of removing the last factor.
func (s *Store) RemoveFactor(ctx context.Context, userID, id string, required bool, e audit.Entry) error {
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		if err := ed.ownerOf(ctx, userID); err != nil {
			return err
		}
		removed, err := ed.exec(ctx, `DELETE FROM second_factors WHERE user_id = $1 AND id = $2`, userID, id)
		if err == nil && removed == 0 {
			err = missing(sql.ErrNoRows, "second factor")
		}
		if err != nil {
			return err
		}
		left, err := ed.factors(ctx, userID)
		switch {
		case err != nil || left > 0:
			return err
		case required:
			return problem.WithCode(problem.Conflict, "second_factor_required",
				"your role requires a second factor: add another one before you remove this one")
		}
		return ed.putCodes(ctx, userID, nil)
	})
	return s.fail(err, "remove a second factor of user %s", userID)
}

// ResetFactors removes the second factors and recovery codes of a user, and ends the user's sessions.
func (s *Store) ResetFactors(ctx context.Context, userID string, e audit.Entry) (int, error) {
	var removed int64
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		if err := ed.ownerOf(ctx, userID); err != nil {
			return err
		}
		if removed, err = ed.exec(ctx, `DELETE FROM second_factors WHERE user_id = $1`, userID); err != nil {
			return err
		}
		if removed == 0 {
			return errUnchanged
		}
		if err := ed.putCodes(ctx, userID, nil); err != nil {
			return err
		}
		return ed.endSessions(ctx, userID, "")
	})
	return int(removed), s.fail(err, "reset the second factors of user %s", userID)
}

// ResealFactors replaces the stored secrets of authenticator apps.
func (s *Store) ResealFactors(ctx context.Context, reseal func(accounts.Factor) []byte, e audit.Entry) (int, error) {
	replaced := 0
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		replaced = 0
		rows, err := ed.tx.QueryContext(ctx, `
			SELECT `+factorColumns+`
			FROM second_factors
			WHERE kind = 'totp'
			ORDER BY id`)
		list, err := collect(rows, err, scanFactor)
		if err != nil {
			return err
		}
		for _, f := range list {
			data := reseal(f)
			if bytes.Equal(data, f.Data) {
				continue
			}
			n, err := ed.exec(ctx, `UPDATE second_factors SET data = $2 WHERE id = $1`, f.ID, data)
			if err != nil {
				return err
			}
			replaced += int(n)
		}
		if replaced == 0 {
			return errUnchanged
		}
		return nil
	})
	return replaced, s.fail(err, "re-encrypt second factors")
}

// UseFactor stores the fields of a second factor that its use changes.
func (s *Store) UseFactor(ctx context.Context, f accounts.Factor) error {
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := execIn(ctx, tx, `
			UPDATE second_factors SET data = CASE WHEN kind = 'totp' THEN data ELSE $3 END, step = $4, used_at = $5
			WHERE id = $1 AND user_id = $2 AND (kind <> 'totp' OR step < $4)`, f.ID, f.UserID, f.Data, f.Step, stored(f.UsedAt))
		if err != nil || n > 0 {
			return err
		}
		var is bool
		err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM second_factors WHERE id = $1 AND user_id = $2)`, f.ID, f.UserID).Scan(&is)
		switch {
		case err != nil:
			return err
		case !is:
			return missing(sql.ErrNoRows, "second factor")
		}
		return problem.WithCode(problem.Conflict, "code_used", "this code was used already: wait for the next one")
	})
	return s.fail(err, "use second factor %s", f.ID)
}

// PutRecoveryCodes replaces the recovery codes of a user.
func (s *Store) PutRecoveryCodes(ctx context.Context, userID string, codes [][32]byte, e audit.Entry) error {
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		if err := ed.ownerOf(ctx, userID); err != nil {
			return err
		}
		n, err := ed.factors(ctx, userID)
		if err == nil && n == 0 {
			err = problem.WithCode(problem.Conflict, "no_second_factor", "recovery codes need a second factor: add one first")
		}
		if err != nil {
			return err
		}
		return ed.putCodes(ctx, userID, codes)
	})
	return s.fail(err, "replace the recovery codes of user %s", userID)
}

// UseRecoveryCode deletes a recovery code of a user. The error is problem.NotFound if the user
// has no such unused code.
func (s *Store) UseRecoveryCode(ctx context.Context, userID string, code [32]byte, e audit.Entry) error {
	err := s.aside(ctx, e, func(ctx context.Context, ed *edit) error {
		if err := ed.ownerOf(ctx, userID); err != nil {
			return err
		}
		n, err := ed.exec(ctx, `DELETE FROM recovery_codes WHERE user_id = $1 AND hash = $2`, userID, code[:])
		if err == nil && n == 0 {
			err = missing(sql.ErrNoRows, "recovery code")
		}
		return err
	})
	return s.fail(err, "use a recovery code of user %s", userID)
}

const pendingColumns = `p.id, p.hash, p.user_id, p.created_at, p.expires_at`

// CreatePending adds a pending sign-in: the user has entered the right password, and the second
// factor is still missing. If the user then has more than accounts.MaxPending pending sign-ins,
// CreatePending deletes the oldest.
func (s *Store) CreatePending(ctx context.Context, p accounts.PendingSignIn) error {
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := execIn(ctx, tx, `
			INSERT INTO pending_sign_ins (id, hash, user_id, created_at, expires_at)
			VALUES ($1, $2, $3, $4, $5)`, p.ID, p.Hash[:], p.UserID, stored(p.CreatedAt), stored(p.ExpiresAt)); err != nil {
			return err
		}
		_, err := execIn(ctx, tx, `
			DELETE FROM pending_sign_ins
			WHERE user_id = $1 AND id NOT IN (
				SELECT id FROM pending_sign_ins WHERE user_id = $1 ORDER BY id DESC LIMIT $2)`, p.UserID, accounts.MaxPending)
		return err
	})
	return s.fail(err, "create a pending sign-in of user %s", p.UserID)
}

// Pending returns the pending sign-in with the given hash, and its user. The error is
// problem.NotFound if the sign-in has expired or does not exist.
func (s *Store) Pending(ctx context.Context, hash [32]byte, now time.Time) (accounts.PendingSignIn, accounts.User, error) {
	type found struct {
		accounts.PendingSignIn
		accounts.User
	}
	f, err := queryOne(ctx, s, "pending sign-in", func(r row) (f found, err error) {
		var u userRow
		var hash []byte
		p := &f.PendingSignIn
		err = r.Scan(append([]any{&p.ID, &hash, &p.UserID, &p.CreatedAt, &p.ExpiresAt}, u.into()...)...)
		copy(p.Hash[:], hash)
		p.CreatedAt, p.ExpiresAt, f.User = p.CreatedAt.UTC(), p.ExpiresAt.UTC(), u.user()
		return f, err
	}, `
		SELECT `+pendingColumns+`, `+userColumns+`
		FROM pending_sign_ins p JOIN users u ON u.id = p.user_id
		WHERE p.hash = $1 AND p.expires_at > $2 AND NOT u.disabled`, hash[:], stored(now))
	return f.PendingSignIn, f.User, s.fail(err, "load a pending sign-in")
}

// FinishPending deletes a pending sign-in and adds the session n in its place.
func (s *Store) FinishPending(ctx context.Context, id string, n accounts.Session, e audit.Entry) (accounts.Session, error) {
	var made accounts.Session
	err := s.aside(ctx, e, func(ctx context.Context, ed *edit) (err error) {
		ended, err := ed.exec(ctx, `DELETE FROM pending_sign_ins WHERE id = $1 AND user_id = $2`, id, n.UserID)
		if err == nil && ended == 0 {
			err = missing(sql.ErrNoRows, "pending sign-in")
		}
		if err != nil {
			return err
		}
		made, err = ed.addSession(ctx, n)
		return err
	})
	return made, s.fail(err, "finish a sign-in of user %s", n.UserID)
}

// ConfirmSession sets the time at which the user of a session last proved the user's identity,
// for example by entering the password.
func (s *Store) ConfirmSession(ctx context.Context, id string, at time.Time) error {
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := execIn(ctx, tx, `UPDATE sessions SET confirmed_at = $2 WHERE id = $1`, id, stored(at))
		if err == nil && n == 0 {
			err = missing(sql.ErrNoRows, "session")
		}
		return err
	})
	return s.fail(err, "confirm session %s", id)
}

// PutChallenge stores the passkey challenge data for the session or the pending sign-in with
// the given ID. It replaces the previous challenge.
func (s *Store) PutChallenge(ctx context.Context, id string, data []byte, expires time.Time) error {
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := execIn(ctx, tx, `
			INSERT INTO passkey_challenges (id, data, expires_at)
			VALUES ($1, $2, $3)
			ON CONFLICT (id) DO UPDATE SET data = excluded.data, expires_at = excluded.expires_at`, id, data, stored(expires))
		return err
	})
	return s.fail(err, "store a passkey challenge")
}

// TakeChallenge returns the passkey challenge of a session or a pending sign-in, and deletes it.
// The error is problem.NotFound if the challenge has expired or does not exist.
func (s *Store) TakeChallenge(ctx context.Context, id string, now time.Time) ([]byte, error) {
	var data []byte
	err := s.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var expires time.Time
		err := tx.QueryRowContext(ctx, `DELETE FROM passkey_challenges WHERE id = $1 RETURNING data, expires_at`, id).Scan(&data, &expires)
		if err == nil && !expires.After(stored(now)) {
			err = sql.ErrNoRows
		}
		return missing(err, "passkey challenge")
	})
	return data, s.fail(err, "take a passkey challenge")
}
