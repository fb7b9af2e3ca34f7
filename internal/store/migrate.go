package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/headgate/headgate/migrations"
)

// patience is how long a start waits for another process that migrates.
const patience = 5 * time.Minute

// A MigrationStatus is the version of a database's schema.
type MigrationStatus struct {
	// Version is the last step that was begun; 0: none.
	Version int
	// Latest is the newest step that this program has.
	Latest int
	// Dirty means that the end of step Version was not recorded.
	Dirty bool
}

// Current reports whether this program works with the schema.
func (m MigrationStatus) Current() bool { return m.Version == m.Latest && !m.Dirty }

// err returns an error for a schema that migrating cannot repair, or nil.
func (m MigrationStatus) err() error {
	switch {
	case m.Version > m.Latest:
		return fmt.Errorf("database schema is at version %d, this headgate knows up to %d: run a newer headgate, or restore the backup made "+
			"before the upgrade",
			m.Version, m.Latest)
	case m.Dirty:
		return fmt.Errorf("migration %d of the database schema was begun and its end was not noted (dirty). Each migration is one transaction, "+
			"so it is there whole or not at all. "+
			"Look whether what it makes is there: if it is, run `headgate migrate force %d`, else `headgate migrate force %d`; then start again",
			m.Version, m.Version, m.Version-1)
	}
	return nil
}

// MigrationStatus reads the version of the schema. It does not wait; while another process
// migrates, Dirty may be true.
func (s *Store) MigrationStatus(ctx context.Context) (MigrationStatus, error) {
	m := MigrationStatus{Latest: migrations.Latest()}
	err := s.read(ctx, func(ctx context.Context) error {
		has, err := s.engine.hasTable(ctx, "schema_migrations")
		if err != nil || !has {
			return err
		}
		err = s.reader.QueryRowContext(ctx, `SELECT version, dirty FROM schema_migrations LIMIT 1`).Scan(&m.Version, &m.Dirty)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return m, s.fail(err, "read the schema's version")
}

// Migrate updates the schema. If several processes call it, one migrates and the others wait. It
// returns an error for a newer or dirty schema.
func (s *Store) Migrate(ctx context.Context) error {
	m, err := s.MigrationStatus(ctx)
	if err != nil || m.Current() {
		return err
	}
	if m.Version > m.Latest {
		return m.err()
	}
	return s.migrate(ctx, func(m *migrate.Migrate) error { return m.Up() })
}

// MigrateDown reverts the newest steps and deletes their data. A larger number than there are
// steps reverts all.
func (s *Store) MigrateDown(ctx context.Context, steps int) error {
	if steps < 1 {
		return errors.New("say how many migrations to take back: at least 1")
	}
	m, err := s.MigrationStatus(ctx)
	if err != nil || m.Version == 0 {
		return err
	}
	if m.Version > m.Latest {
		return m.err()
	}
	steps = min(steps, m.Version)
	return s.migrate(ctx, func(m *migrate.Migrate) error { return m.Steps(-steps) })
}

// MigrateForce records that the schema is at a version, and clean, without running a step. It
// repairs an interrupted migration. 0 is the empty schema.
func (s *Store) MigrateForce(ctx context.Context, version int) error {
	if latest := migrations.Latest(); version < 0 || version > latest {
		return fmt.Errorf("there is no migration %d: this headgate knows 0 to %d", version, latest)
	}
	if version == 0 {
		version = -1 // golang-migrate's word for none
	}
	return s.migrate(ctx, func(m *migrate.Migrate) error { return m.Force(version) })
}

// migrate runs fn under the lock. When ctx ends, it stops between two steps.
func (s *Store) migrate(ctx context.Context, fn func(*migrate.Migrate) error) (err error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	unlock, err := s.engine.lockMigrations(waiting)
	if err != nil {
		return err
	}
	defer unlock()
	m, err := s.migrator()
	if err != nil {
		return s.fail(err, "prepare to migrate")
	}
	defer func() {
		sourceErr, databaseErr := m.Close()
		err = errors.Join(err, sourceErr, databaseErr)
	}()
	stop := context.AfterFunc(ctx, func() { m.GracefulStop <- true })
	defer stop()
	err = fn(m)
	var dirty migrate.ErrDirty
	switch {
	case errors.Is(err, migrate.ErrNoChange):
		return ctx.Err()
	case errors.As(err, &dirty):
		return MigrationStatus{Version: dirty.Version, Latest: migrations.Latest(), Dirty: true}.err()
	case err != nil:
		return s.fail(err, "migrate")
	}
	return ctx.Err()
}

func (s *Store) migrator() (*migrate.Migrate, error) {
	files, folder, driver, err := s.engine.migrations()
	if err != nil {
		return nil, err
	}
	steps, err := iofs.New(files, folder)
	if err != nil {
		driver.Close()
		return nil, err
	}
	m, err := migrate.NewWithInstance("embedded", steps, "database", driver)
	if err != nil {
		driver.Close()
		return nil, err
	}
	m.LockTimeout = patience
	return m, nil
}
