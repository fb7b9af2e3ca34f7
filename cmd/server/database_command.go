package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/store"
)

// localSettings has the flags of a command that accesses the database directly.
type localSettings struct {
	databaseSettings
	cli.Output
}

// dryRun has the flag --dry-run of a command that changes the database.
type dryRun struct {
	DryRun bool `setting:"false" help:"Check the change and print what it would do; write nothing."`
}

// errDryRun makes the transaction of a dry run end without a change.
var errDryRun = errors.New("dry run")

// say prints that nothing was changed, if the command is a dry run.
func (d dryRun) say(p program) {
	if d.DryRun {
		fmt.Fprintln(p.stderr, "dry run: nothing is written")
	}
}

// withChange opens the database and calls work in one transaction. The audit lines of work name the
// command as actor. work must use the context that it gets. It may be called again if the
// transaction fails. In a dry run, the transaction is rolled back, and the database is not
// migrated.
func (d databaseSettings) withChange(ctx context.Context, p program, name string, dry dryRun,
	work func(context.Context, *store.Store) error,
) error {
	if dry.DryRun {
		if err := d.exists(); err != nil {
			return err
		}
	}
	return d.withSchema(ctx, p, name, dry, func(ctx context.Context, st *store.Store) error {
		err := st.Together(ctx, func(ctx context.Context) error {
			if err := work(ctx, st); err != nil || !dry.DryRun {
				return err
			}
			return errDryRun
		})
		if errors.Is(err, errDryRun) {
			return nil
		}
		return err
	})
}

// withSchema opens the database, migrates it, and calls work. The audit lines of work name the
// command as actor. In a dry run, it does not migrate: if the schema is not current, it returns an
// error.
func (d databaseSettings) withSchema(ctx context.Context, p program, name string, dry dryRun,
	work func(context.Context, *store.Store) error,
) error {
	return d.withStore(ctx, p, func(st *store.Store) error {
		prepare := st.Migrate
		if dry.DryRun {
			prepare = func(ctx context.Context) error { return currentSchema(ctx, st) }
		}
		if err := prepare(ctx); err != nil {
			return err
		}
		return work(audit.With(ctx, audit.Actor{Kind: "command", ID: name, Name: name}, audit.Origin{}), st)
	})
}

// currentSchema returns an error unless the database has exactly the migrations of this version.
func currentSchema(ctx context.Context, st *store.Store) error {
	schema, err := st.MigrationStatus(ctx)
	if err == nil && !schema.Current() {
		err = errors.New("the database's schema does not fit this version of headgate: run headgate migrate")
	}
	return err
}

// exists returns an error if the database is a SQLite file that does not exist. Without this check,
// the command would create the file.
func (d databaseSettings) exists() error {
	if path, err := store.SQLitePath(d.DatabaseURL); err == nil { // an error means Postgres, or an invalid URL that openFor reports
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%s: %w", settingName("database-url"), err)
		}
	}
	return nil
}
