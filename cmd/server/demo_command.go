package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/alecthomas/kong"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/demo"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/tenants"
)

// demoDatabase is the URL of the database of headgate demo, unless a setting selects another.
const demoDatabase = "sqlite://demo-data/headgate.db"

// demoMarker is the name of a file that headgate demo puts into the folder of its database.
// headgate demo --reset deletes only folders with this file.
const demoMarker = "HEADGATE-DEMO"

// demoCommand is headgate demo. It runs a node on a separate database with sample data and
// generated traffic.
type demoCommand struct {
	serveCommand
	Reset bool `setting:"false" help:"Delete the demo's folder first, and start over."`
}

// Help returns the text that --help shows after the flags.
func (*demoCommand) Help() string {
	return "The demo uses a separate database. It refuses a database with other data. " +
		"Started again, it adds the traffic of the time since it stopped. " +
		"To start over, add --reset; to remove the demo, delete its folder, which is demo-data unless HEADGATE_DATABASE_URL says otherwise."
}

// Run serves until ctx ends.
func (d *demoCommand) Run(ctx context.Context, p program) error {
	if d.Reset {
		if err := d.validate(p.getenv); err != nil {
			return usageError{err}
		}
		if err := d.reset(); err != nil {
			return err
		}
	}
	d.demo = true
	return d.serveCommand.Run(ctx, p)
}

// separateDemo gives the demo command its own default database, so that the demo does not write to
// the default database of serve.
func separateDemo(parser *kong.Kong) {
	for _, command := range parser.Model.Leaves(false) {
		if command.Name != "demo" {
			continue
		}
		for _, f := range command.Flags {
			if f.Name == "database-url" {
				f.Default = demoDatabase
			}
		}
	}
}

// reset deletes the folder of the demo's database. It returns an error if the folder does not have
// the file demoMarker, or has a file that the demo did not write.
func (d *demoCommand) reset() error {
	if d.production() {
		return usageError{fmt.Errorf("--reset deletes a folder, and %s names a Postgres database: drop and create that database instead",
			settingName("database-url"))}
	}
	path, err := store.SQLitePath(d.DatabaseURL)
	if err != nil {
		return usageError{fmt.Errorf("%s: %w", settingName("database-url"), err)}
	}
	folder := filepath.Dir(path)
	files, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(files) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	const advice = "nothing was deleted: delete the folder yourself if it has nothing that you need"
	if _, err := os.Stat(filepath.Join(folder, demoMarker)); err != nil {
		return fmt.Errorf("%s is not a folder of headgate demo, because it has no file %s; %s", folder, demoMarker, advice)
	}
	if other := foreignFile(files, path); other != "" {
		return fmt.Errorf("%s has a file that headgate demo did not write, %s; %s", folder, other, advice)
	}
	if err := store.DeleteSQLite(path); err != nil {
		return fmt.Errorf("delete the demo: %w", err)
	}
	if err := os.Remove(filepath.Join(folder, demoMarker)); err != nil {
		return fmt.Errorf("delete the demo: %w", err)
	}
	return os.Remove(folder)
}

// foreignFile returns the name of a file in files that is neither demoMarker nor a file of the
// SQLite database at path. If there is none, it returns "".
func foreignFile(files []os.DirEntry, path string) string {
	known := append(store.SQLiteFiles(path), demoMarker)
	for _, f := range files {
		if !slices.Contains(known, f.Name()) {
			return f.Name()
		}
	}
	return ""
}

// prepareDemo returns an error if the database has data that the demo did not write. It runs before
// the migrations, so that it protects such a database from any change. If the database is a SQLite
// file, it also writes the file demoMarker to the folder, unless the folder has other files.
func (s *serveCommand) prepareDemo(ctx context.Context, st *store.Store) error {
	m, err := st.MigrationStatus(ctx)
	if err == nil && m.Version > 0 {
		err = demo.Check(ctx, st)
	}
	if problem.Is(err, problem.Conflict) {
		return fmt.Errorf("%s: %w; add --reset to delete a demo and start over, "+
			"name an empty database, or leave the setting away to use the folder demo-data", settingName("database-url"), err)
	}
	if err != nil || s.production() {
		return err
	}
	path, err := store.SQLitePath(s.DatabaseURL)
	if err != nil {
		return err
	}
	folder := filepath.Dir(path)
	files, err := os.ReadDir(folder)
	if err != nil || folder == "." || foreignFile(files, path) != "" {
		return err
	}
	const text = "This folder has the database of headgate demo. headgate demo --reset deletes the folder.\n"
	return os.WriteFile(filepath.Join(folder, demoMarker), []byte(text), 0o600)
}

// demoActor is the actor in the audit entries about changes of the demo.
var demoActor = audit.Actor{Kind: "command", ID: "demo", Name: "demo"}

// fillDemo creates the sample data and its history. If they exist, it adds the traffic for the time
// in which the demo was stopped. If it creates the sample data in a SQLite file, it also creates an
// operator key.
func (n *node) fillDemo(ctx context.Context, s *serveCommand) error {
	var live enforcement.Limiter = n.local
	if n.shared != nil {
		live = n.shared
	}
	ctx = audit.With(ctx, demoActor, audit.Origin{})
	key, err := n.demo.Fill(ctx, demo.Node{
		Snapshot: n.watcher.Current, Refresh: n.watcher.Refresh,
		NewLimiter: func(now func() int64) enforcement.Limiter { return inprocess.New(inprocess.Config{Now: now}) },
		Limiter:    live,
	})
	if err != nil {
		return fmt.Errorf("make the demo: %w", err)
	}
	n.made.tenant, n.made.slug, n.made.demo = key.Token, key.Tenant, true
	if key.Token == "" || s.production() || !s.Sample || s.BootstrapKey != "" {
		return nil
	}
	_, n.made.operator, err = n.tenants.CreateOperatorKey(ctx, tenants.NewKey{
		Name: "demo", Scopes: []tenants.Scope{tenants.ScopeCheck, tenants.ScopeRead, tenants.ScopeManage},
	})
	if err != nil {
		return fmt.Errorf("create the operator key: %w", err)
	}
	return nil
}

// sendDemoTraffic starts the generated live traffic. n.endTraffic stops it.
func (n *node) sendDemoTraffic(ctx context.Context, tasks *errgroup.Group, log *slog.Logger) {
	traffic := n.demo.NewTraffic(demo.TrafficConfig{Decider: n.engine, Snapshot: n.watcher.Current, Flush: n.flusher.Flush, Logger: log})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	tasks.Go(func() error {
		defer close(ended)
		return traffic.Run(ctx)
	})
	n.endTraffic = func() { cancel(); <-ended }
}
