package main

import (
	"context"
	"fmt"
	"os"

	"github.com/headgate/headgate/internal/store"
)

// backupCommand is headgate backup. It writes a copy of a SQLite database to a new file.
type backupCommand struct {
	databaseSettings
	File string `arg:"" help:"The new file."`
}

// Help returns the text that --help shows after the flags.
func (backupCommand) Help() string {
	return "The node may run. The backup has each edit that was acknowledged before the command began. " +
		"To restore it, stop the node and put the file in the place of the database, without the files that end with -wal and -shm. " +
		"Use pg_dump for Postgres."
}

func (b backupCommand) Run(ctx context.Context, p program) error {
	if path, err := store.SQLitePath(b.DatabaseURL); err == nil {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%s: %w", settingName("database-url"), err)
		}
	}
	return b.withStore(ctx, p, func(st *store.Store) error {
		if err := st.Backup(ctx, b.File); err != nil {
			return err
		}
		_, err := fmt.Fprintln(p.stdout, "wrote", b.File)
		return err
	})
}
