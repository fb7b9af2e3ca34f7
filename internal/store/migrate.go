package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/headgate/headgate/migrations"
)

// migrationWait is the maximum time for which Migrate waits while another process migrates.
const migrationWait = 5 * time.Minute

// A MigrationStatus compares the migrations of the database with the migrations that this program
// contains.
type MigrationStatus struct {
	// Version is the number of the last migration that ran on the database; 0 if none ran.
	Version int
	// Latest is the number of the newest migration that this program contains.
	Latest int
	// Dirty means that an earlier build of this program started the migration Version and did not
	// record its end. This build never records a dirty version (see atomicMigrations).
	Dirty bool
}

// Current reports whether the database has exactly the migrations of this program.
func (m MigrationStatus) Current() bool { return m.Version == m.Latest && !m.Dirty }

// Err returns an error in the two cases that Migrate cannot repair: the schema is newer than this
// program, or it is dirty.
func (m MigrationStatus) Err() error {
	switch {
	case m.Version > m.Latest:
		return fmt.Errorf("database schema is at version %d, this headgate knows up to %d: run a newer headgate, or restore the backup made "+
			"before the upgrade",
			m.Version, m.Latest)
	case m.Dirty:
		return fmt.Errorf("migration %d of the database schema was started, but its end was not recorded (dirty). "+
			"Each migration is one transaction, "+
			"so it is applied completely or not at all. "+
			"Check whether the database contains what it creates: if so, run `headgate migrate force %d`, "+
			"otherwise `headgate migrate force %d`; then start headgate again",
			m.Version, m.Version, m.Version-1)
	}
	return nil
}

// MigrationStatus reads which migrations the database has.
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

// Migrate runs the migrations that the database does not have yet. If several processes call it at
// the same time, one migrates and the others wait. It returns an error if the schema is newer than
// this program or dirty.
func (s *Store) Migrate(ctx context.Context) error {
	m, err := s.MigrationStatus(ctx)
	if err != nil || m.Current() {
		return err
	}
	if m.Version > m.Latest {
		return m.Err()
	}
	err = s.migrate(ctx, func(m *migrate.Migrate) error { return m.Up() })
	if f, _ := s.engine.fault(driverError(err)); f == faultForbidden {
		return fmt.Errorf("the database schema is at version %d, this headgate needs %d, and the role of the database url may not change it: "+
			"run `headgate migrate up` with the url of the role that owns the tables: %w", m.Version, m.Latest, err)
	}
	return err
}

// driverError returns the error of the database driver from an error of golang-migrate. It is
// needed because golang-migrate does not wrap the error of the driver.
func driverError(err error) error {
	var value database.Error
	var pointer *database.Error
	switch {
	case errors.As(err, &value):
		return value.OrigErr
	case errors.As(err, &pointer):
		return pointer.OrigErr
	}
	return err
}

// MigrateDown reverts the newest migrations, and so deletes the data in their tables and columns.
// steps is the number of migrations to revert. If steps is larger than the number of migrations,
// MigrateDown reverts all.
func (s *Store) MigrateDown(ctx context.Context, steps int) error {
	if steps < 1 {
		return errors.New("the number of migrations to revert must be at least 1")
	}
	m, err := s.MigrationStatus(ctx)
	if err != nil || m.Version == 0 {
		return err
	}
	if m.Version > m.Latest {
		return m.Err()
	}
	steps = min(steps, m.Version)
	return s.migrate(ctx, func(m *migrate.Migrate) error { return m.Steps(-steps) })
}

// KnownVersion returns an error if this program has no migration with the number version.
func KnownVersion(version int) error {
	if latest := migrations.Latest(); version < 0 || version > latest {
		return fmt.Errorf("there is no migration %d: this headgate knows 0 to %d", version, latest)
	}
	return nil
}

// MigrateForce records that the database has the migrations up to version and is not dirty. It runs
// no migration. An operator uses it after an interrupted migration. Version 0 stands for an empty
// schema.
func (s *Store) MigrateForce(ctx context.Context, version int) error {
	if err := KnownVersion(version); err != nil {
		return err
	}
	if version == 0 {
		version = -1 // golang-migrate uses -1 for no version
	}
	return s.migrate(ctx, func(m *migrate.Migrate) error { return m.Force(version) })
}

// migrate holds the lock of migrations while it calls fn. If ctx ends, migrate stops after the
// migration that is running.
func (s *Store) migrate(ctx context.Context, fn func(*migrate.Migrate) error) (err error) {
	waiting, cancel := context.WithTimeout(ctx, migrationWait)
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
		return MigrationStatus{Version: dirty.Version, Latest: migrations.Latest(), Dirty: true}.Err()
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
	m, err := migrate.NewWithInstance("embedded", steps, "database", &atomicMigrations{Driver: driver})
	if err != nil {
		driver.Close()
		return nil, err
	}
	m.LockTimeout = migrationWait
	return m, nil
}
