package main

import (
	"context"
	"fmt"
	"os"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/store"
)

// backupCommand is headgate backup. It writes a copy of a SQLite database to a new file.
type backupCommand struct {
	localSettings
	dryRun
	File string `arg:"" help:"The new file."`
}

// Help returns the text that --help shows after the flags.
func (backupCommand) Help() string {
	return "The node may run. The backup has each edit that was acknowledged before the command began. " +
		"To restore it, stop the node and put the file in the place of the database, without the files that end with -wal and -shm. " +
		"Use pg_dump for Postgres."
}

func (b backupCommand) Run(ctx context.Context, p program, t cli.Terminal) error {
	if err := b.exists(); err != nil {
		return err
	}
	return b.withStore(ctx, p, func(st *store.Store) error {
		size := int64(0)
		if b.DryRun {
			if err := st.CanBackup(b.File); err != nil {
				return err
			}
			b.say(p)
		} else {
			source, _ := store.SQLitePath(b.DatabaseURL) // the error is ignored: Backup returns an error for Postgres
			stop := t.Progress("writing "+b.File, sizeOf(source), func() int64 { return sizeOf(b.File) })
			err := st.Backup(ctx, b.File)
			stop()
			if err != nil {
				return err
			}
			size = sizeOf(b.File)
			fmt.Fprintf(p.stderr, "wrote %s (%d bytes)\n", b.File, size)
		}
		return b.Text(t, map[string]any{"file": b.File, "bytes": size}, "")
	})
}

// sizeOf returns the size of a file in bytes, or 0 if it cannot be read.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
