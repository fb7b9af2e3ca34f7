package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrBackupOfPostgres is the error of CanBackup and Backup if the database is Postgres.
var ErrBackupOfPostgres = errors.New("a Postgres database is backed up with pg_dump")

// CanBackup checks the preconditions of Backup and writes nothing. It returns an error if the
// database is not SQLite, if the file exists, or if its folder does not exist.
func (s *Store) CanBackup(path string) error {
	if _, ok := s.engine.(*sqliteEngine); !ok {
		return ErrBackupOfPostgres
	}
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return &os.PathError{Op: "create", Path: path, Err: os.ErrExist}
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	_, err = os.Stat(filepath.Dir(path))
	return err
}

// Backup copies a SQLite database to a new file that only the owner can read. The copy contains
// the state of one moment. Nodes can read and write the database while Backup runs. Backup
// returns an error if the file exists.
func (s *Store) Backup(ctx context.Context, path string) (err error) {
	if err := s.CanBackup(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) // VACUUM INTO accepts an empty file
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if _, err := s.writer.ExecContext(ctx, `VACUUM INTO $1`, path); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	return f.Sync()
}
