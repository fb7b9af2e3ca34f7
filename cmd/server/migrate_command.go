package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/store"
)

// migrateCommand is headgate migrate. It migrates the schema of the database, or prints the version
// of the schema.
type migrateCommand struct {
	Up     migrateUp     `cmd:"" default:"withargs" help:"Migrate to the newest version (the default)."`
	Down   migrateDown   `cmd:"" help:"Take back migrations: headgate migrate down 1. Data in what they made is lost."`
	Status migrateStatus `cmd:"" help:"Show the schema's version."`
	Force  migrateForce  `cmd:"" help:"Mark a version as the one that is there, after a migration that was cut off."`
}

type migrateUp struct {
	localSettings
	dryRun
}

func (m migrateUp) Run(ctx context.Context, p program, t cli.Terminal) error {
	return m.migrate(ctx, p, t, migration{
		dryRun: m.dryRun,
		check:  func(is store.MigrationStatus) (int, error) { return is.Latest, is.Err() },
		do:     func(st *store.Store) error { return st.Migrate(ctx) },
	})
}

type migrateDown struct {
	localSettings
	dryRun
	Steps int  `arg:"" help:"How many migrations to take back."`
	Yes   bool `setting:"false" help:"Really: data is lost."`
}

func (m migrateDown) Run(ctx context.Context, p program, t cli.Terminal) error {
	if m.Steps < 1 {
		return usageError{fmt.Errorf("steps: is %d, and must be at least 1", m.Steps)}
	}
	if !m.Yes && !m.DryRun {
		return usageError{errors.New("taking back migrations loses data: add --yes if that is meant")}
	}
	return m.migrate(ctx, p, t, migration{
		dryRun: m.dryRun, alone: true,
		check: func(is store.MigrationStatus) (int, error) { return max(0, is.Version-m.Steps), is.Err() },
		do:    func(st *store.Store) error { return st.MigrateDown(ctx, m.Steps) },
	})
}

type migrateStatus struct{ localSettings }

func (m migrateStatus) Run(ctx context.Context, p program, t cli.Terminal) error {
	return m.migrate(ctx, p, t, migration{do: func(*store.Store) error { return nil }})
}

type migrateForce struct {
	localSettings
	dryRun
	Version int `arg:"" help:"The version that is there."`
}

func (m migrateForce) Run(ctx context.Context, p program, t cli.Terminal) error {
	return m.migrate(ctx, p, t, migration{
		dryRun: m.dryRun, alone: true,
		check: func(store.MigrationStatus) (int, error) { return m.Version, store.KnownVersion(m.Version) },
		do:    func(st *store.Store) error { return st.MigrateForce(ctx, m.Version) },
	})
}

// A migration is the work of one subcommand of headgate migrate. The work changes the schema, or
// only the stored record of which migrations have run.
type migration struct {
	dryRun
	// alone is set if no node may use the database during the migration, because the migration
	// removes tables that nodes use. With SQLite, the command then returns an error if a node runs.
	alone bool
	do    func(*store.Store) error
	// check returns the version that the schema would have after do.
	check func(store.MigrationStatus) (int, error)
}

// migrate opens the database, runs the migration m, and prints the version of the schema. In a dry
// run, it runs m.check in place of m.do.
func (l localSettings) migrate(ctx context.Context, p program, t cli.Terminal, m migration) error {
	if m.DryRun {
		if err := l.exists(); err != nil {
			return err
		}
		m.do = func(st *store.Store) error {
			is, err := st.MigrationStatus(ctx)
			if err != nil {
				return err
			}
			next, err := m.check(is)
			if err == nil {
				fmt.Fprintf(p.stderr, "the schema would be at version %d\n", next)
				m.say(p)
			}
			return err
		}
	}
	return l.openFor(ctx, p, store.Config{Serve: m.alone}, func(st *store.Store) error {
		stop := t.Progress("migrating", 0, nil)
		err := m.do(st)
		stop()
		if err != nil {
			return err
		}
		is, err := st.MigrationStatus(ctx)
		if err != nil {
			return err
		}
		return l.printSchema(t, is)
	})
}

func (l localSettings) printSchema(t cli.Terminal, is store.MigrationStatus) error {
	state := "current"
	switch {
	case is.Dirty:
		state = "dirty: a migration was cut off"
	case is.Version > is.Latest:
		state = fmt.Sprintf("newer than this headgate, which knows up to %d", is.Latest)
	case is.Version < is.Latest:
		state = fmt.Sprintf("behind: this headgate knows up to %d", is.Latest)
	}
	return l.Text(t, map[string]any{"version": is.Version, "latest": is.Latest, "dirty": is.Dirty, "current": is.Current()},
		fmt.Sprintf("schema version %d, %s\n", is.Version, state))
}

// withStore opens the database and calls work. It does not migrate the database. Nodes may run at
// the same time.
func (d databaseSettings) withStore(ctx context.Context, p program, work func(*store.Store) error) error {
	return d.openFor(ctx, p, store.Config{}, work)
}

func (d databaseSettings) openFor(ctx context.Context, p program, cfg store.Config, work func(*store.Store) error) (err error) {
	if err := validDatabaseURL(d.DatabaseURL); err != nil {
		return usageError{fmt.Errorf("%s: %w", settingName("database-url"), err)}
	}
	cfg.URL = d.DatabaseURL
	cfg.Logger = slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	st, err := store.Open(ctx, cfg)
	if err != nil {
		return fmt.Errorf("%s: %w", settingName("database-url"), err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return work(st)
}
