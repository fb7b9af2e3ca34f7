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

// localSettings holds the flags of a command that accesses the database directly.
type localSettings struct {
	databaseSettings
	cli.Output
}

// dryRun holds the flag --dry-run of a command that changes the database.
type dryRun struct {
	DryRun bool `setting:"false" help:"Check the change and print what it would do; write nothing."`
}

// errDryRun is the error with which a dry run makes its transaction roll back.
var errDryRun = errors.New("dry run")

// say prints that nothing is written, if the command is a dry run.
func (d dryRun) say(p program) {
	if d.DryRun {
		fmt.Fprintln(p.stderr, "dry run: nothing is written")
	}
}

// withChange opens the database and calls work in one transaction. The audit entries of work have
// the command as their actor. work must use the context that it receives. If the transaction fails,
// withChange may call work again. In a dry run, it rolls the transaction back, and does not migrate
// the database.
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

// withSchema opens the database, migrates it, and calls work. The audit entries of work have the
// command as their actor. In a dry run, withSchema does not migrate the database. If the schema is
// then not current, it returns an error.
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

// currentSchema returns an error if the database does not have exactly the migrations of this
// version.
func currentSchema(ctx context.Context, st *store.Store) error {
	schema, err := st.MigrationStatus(ctx)
	if err == nil && !schema.Current() {
		err = errors.New("the database's schema does not fit this version of headgate: run headgate migrate")
	}
	return err
}

// exists returns an error if the URL names a SQLite file that does not exist. Without this check, a
// command would create the file.
func (d databaseSettings) exists() error {
	if path, err := store.SQLitePath(d.DatabaseURL); err == nil { // for an error, the URL is of Postgres, or openFor reports it as invalid
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%s: %w", settingName("database-url"), err)
		}
	}
	return nil
}
