package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/headgate/headgate/internal/store"
)

// migrateCommand is headgate migrate. It migrates the database's schema, or prints its version.
type migrateCommand struct {
	Up     migrateUp     `cmd:"" default:"withargs" help:"Migrate to the newest version (the default)."`
	Down   migrateDown   `cmd:"" help:"Take back migrations: headgate migrate down 1. Data in what they made is lost."`
	Status migrateStatus `cmd:"" help:"Show the schema's version."`
	Force  migrateForce  `cmd:"" help:"Mark a version as the one that is there, after a migration that was cut off."`
}

type migrateUp struct{ databaseSettings }

func (m migrateUp) Run(ctx context.Context, p program) error {
	return m.migrate(ctx, p, store.Config{}, func(st *store.Store) error { return st.Migrate(ctx) })
}

type migrateDown struct {
	databaseSettings
	Steps int  `arg:"" help:"How many migrations to take back."`
	Yes   bool `setting:"false" help:"Really: data is lost."`
}

func (m migrateDown) Run(ctx context.Context, p program) error {
	if m.Steps < 1 {
		return usageError{fmt.Errorf("steps: is %d, and must be at least 1", m.Steps)}
	}
	if !m.Yes {
		return usageError{errors.New("taking back migrations loses data: add --yes if that is meant")}
	}
	return m.migrate(ctx, p, store.Config{Serve: true}, func(st *store.Store) error { return st.MigrateDown(ctx, m.Steps) })
}

type migrateStatus struct{ databaseSettings }

func (m migrateStatus) Run(ctx context.Context, p program) error {
	return m.migrate(ctx, p, store.Config{}, func(*store.Store) error { return nil })
}

type migrateForce struct {
	databaseSettings
	Version int `arg:"" help:"The version that is there."`
}

func (m migrateForce) Run(ctx context.Context, p program) error {
	return m.migrate(ctx, p, store.Config{Serve: true}, func(st *store.Store) error { return st.MigrateForce(ctx, m.Version) })
}

// migrate opens the database, calls work, and prints the version of the schema. With cfg.Serve
// it fails on SQLite while a node runs, because the migration would remove tables that the node
// uses.
func (d databaseSettings) migrate(ctx context.Context, p program, cfg store.Config, work func(*store.Store) error) error {
	return d.openFor(ctx, p, cfg, func(st *store.Store) error {
		if err := work(st); err != nil {
			return err
		}
		status, err := st.MigrationStatus(ctx)
		if err != nil {
			return err
		}
		return p.printSchema(status)
	})
}

func (p program) printSchema(status store.MigrationStatus) error {
	state := "current"
	switch {
	case status.Dirty:
		state = "dirty: a migration was cut off"
	case status.Version > status.Latest:
		state = fmt.Sprintf("newer than this headgate, which knows up to %d", status.Latest)
	case status.Version < status.Latest:
		state = fmt.Sprintf("behind: this headgate knows up to %d", status.Latest)
	}
	_, err := fmt.Fprintf(p.stdout, "schema version %d, %s\n", status.Version, state)
	return err
}

// withStore opens the database without a migration and calls work. Nodes may run at the same
// time.
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
