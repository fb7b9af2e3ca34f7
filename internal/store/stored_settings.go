package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/headgate/headgate/internal/audit"
)

// Setting returns the value of a stored setting, or "" if the setting has no stored value.
func (s *Store) Setting(ctx context.Context, name string) (string, error) {
	value, err := queryOne(ctx, s, "", scanValue[string], `SELECT value FROM settings WHERE name = $1`, name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, s.fail(err, "read setting %s", name)
}

// PutSetting writes a setting and its audit line.
func (s *Store) PutSetting(ctx context.Context, name, value string, e audit.Entry) error {
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		ed.concerns("", name, name)
		return ed.putSetting(ctx, name, value)
	})
	return s.fail(err, "write setting %s", name)
}

func (e *edit) putSetting(ctx context.Context, name, value string) error {
	_, err := e.exec(ctx, `
		INSERT INTO settings (name, value, revision, updated_at)
		VALUES ($1, $2, $3, $4)
		ON CONFLICT (name) DO UPDATE
		SET value = excluded.value, revision = excluded.revision, updated_at = excluded.updated_at`,
		name, value, e.revision, e.at)
	return err
}

// NoteSetting stores the value of a setting that every node computes by itself. If the stored value
// is already the same, NoteSetting does nothing, so only the first node writes an audit line. If no
// value was stored before, NoteSetting writes no audit line.
func (s *Store) NoteSetting(ctx context.Context, name, value string, e audit.Entry) error {
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		var was string
		err := ed.tx.QueryRowContext(ctx, `SELECT value FROM settings WHERE name = $1`, name).Scan(&was)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			ed.lines = nil
		case err != nil:
			return err
		case was == value:
			return errUnchanged
		}
		return ed.putSetting(ctx, name, value)
	})
	return s.fail(err, "note setting %s", name)
}
