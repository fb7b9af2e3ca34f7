package store

import (
	"bytes"
	"fmt"
	"io"

	"github.com/golang-migrate/migrate/v4/database"
)

// atomicMigrations is a migration driver. It records the new version of the schema in the same
// transaction as the migration. The driver that it wraps uses three transactions: it records the
// version as dirty, runs the migration, and records the version as clean. A process that is killed
// between these transactions leaves a dirty version, which only an operator can repair.
type atomicMigrations struct {
	database.Driver
	// next is the version that the next call of Run records. recorded is true if Run has recorded
	// it.
	next     int
	recorded bool
}

// SetVersion records a version. It does not write a dirty version to the database; Run records that
// version later.
func (a *atomicMigrations) SetVersion(version int, dirty bool) error {
	if dirty {
		a.next, a.recorded = version, false
		return nil
	}
	if a.recorded && a.next == version {
		return nil
	}
	return a.Driver.SetVersion(version, false)
}

// Run runs a migration and records its version. Both engines run all statements of one call in one
// transaction.
func (a *atomicMigrations) Run(migration io.Reader) error {
	text, err := io.ReadAll(migration)
	if err != nil {
		return err
	}
	text = append(text, "\n;\nDELETE FROM schema_migrations;\n"...)
	if a.next != database.NilVersion { // an empty schema has no row
		text = fmt.Appendf(text, "INSERT INTO schema_migrations (version, dirty) VALUES (%d, false);\n", a.next)
	}
	if err := a.Driver.Run(bytes.NewReader(text)); err != nil {
		return err
	}
	a.recorded = true
	return nil
}
