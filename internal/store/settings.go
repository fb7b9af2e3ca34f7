package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/headgate/headgate/internal/audit"
)

// Setting returns the value of a setting, or "" without one.
func (s *Store) Setting(ctx context.Context, name string) (string, error) {
	value, err := queryOne(ctx, s, "", scanValue[string], `SELECT value FROM settings WHERE name = $1`, name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, s.fail(err, "read setting %s", name)
}

// PutSetting writes a setting.
func (s *Store) PutSetting(ctx context.Context, name, value string, e audit.Entry) error {
	err := s.edit(ctx, e, func(ctx context.Context, ed *edit) error {
		ed.concerns("", name, name)
		_, err := ed.exec(ctx, `
			INSERT INTO settings (name, value, revision, updated_at)
			VALUES ($1, $2, $3, $4)
			ON CONFLICT (name) DO UPDATE
			SET value = excluded.value, revision = excluded.revision, updated_at = excluded.updated_at`,
			name, value, ed.revision, ed.at)
		return err
	})
	return s.fail(err, "write setting %s", name)
}
