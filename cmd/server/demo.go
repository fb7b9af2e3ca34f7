package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/demo"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// demoDatabase is where the demo is kept: never, unless somebody says so, where
// serve keeps what is real. The environment's HEADGATE_DATABASE_URL says so.
const demoDatabase = "sqlite://demo-data/headgate.db"

// demoCommand serves with something to look at.
type demoCommand struct {
	Run    demoRun    `cmd:"" default:"withargs" help:"Serve with sample plans and tenants, a week of history and live traffic (the default); takes every setting of serve."`
	Remove demoRemove `cmd:"" help:"Remove what the demo made, and nothing else, also beside a running server."`
}

// demoRun is serve, which fills its database first and asks itself.
type demoRun struct{ serveCommand }

// Help is the part of --help behind the flags.
func (*demoRun) Help() string {
	return "Everything that it makes is marked: slugs begin with demo-, and headgate demo remove, or one click in the dashboard, takes exactly that out again. " +
		"Started again on the same database, it fills the time that it was not there."
}

// Run serves until ctx ends.
func (d *demoRun) Run(ctx context.Context, p program) error {
	d.demo = true
	return d.serveCommand.Run(ctx, p)
}

// separateDemo gives the demo's commands a database of their own by default.
func separateDemo(parser *kong.Kong) {
	for _, command := range parser.Model.Leaves(false) {
		if command.Parent == nil || command.Parent.Name != "demo" {
			continue
		}
		for _, f := range command.Flags {
			if f.Name == "database-url" {
				f.Default = demoDatabase
			}
		}
	}
}

// demoActor is who makes the demo, in the audit log.
var demoActor = audit.Actor{Kind: "command", ID: "demo", Name: "demo"}

// firstKey makes the operator key of a demo's first start.
func firstKey(ctx context.Context, a *accounts.Service) (credentials, error) {
	_, token, err := a.CreateOperatorKey(audit.With(ctx, demoActor, audit.Origin{}), tenants.NewKey{
		Name: "demo", Scopes: []tenants.Scope{tenants.ScopeCheck, tenants.ScopeRead, tenants.ScopeManage},
	})
	if err != nil {
		return credentials{}, fmt.Errorf("create the operator key: %w", err)
	}
	return credentials{operator: token}, nil
}

// newDemo knows the demo of the node's database, if there is one: nothing is
// done by itself.
func (n *node) newDemo(log *slog.Logger) *demo.Service {
	return demo.NewService(n.store, n.tenants, n.plans, n.exceptions, demo.Config{Logger: log})
}

// fillDemo makes the demo, or fills the time that it was not there.
func (n *node) fillDemo(ctx context.Context) error {
	var live enforcement.Limiter = n.local
	if n.shared != nil {
		live = n.shared
	}
	key, err := n.demo.Fill(audit.With(ctx, demoActor, audit.Origin{}), demo.Node{
		Snapshot: n.watcher.Current, Refresh: n.watcher.Refresh,
		NewLimiter: func(now func() int64) enforcement.Limiter { return inprocess.New(inprocess.Config{Now: now}) },
		Limiter:    live,
	})
	if err != nil {
		return fmt.Errorf("make the demo: %w", err)
	}
	n.made.tenant, n.made.slug, n.made.demo = key.Token, key.Tenant, true
	return nil
}

// askAsDemo begins the demo's live traffic. It ends with n.endTraffic, or when
// the demo is removed.
func (n *node) askAsDemo(ctx context.Context, tasks *errgroup.Group, log *slog.Logger) {
	traffic := n.demo.NewTraffic(demo.TrafficConfig{Decider: n.engine, Snapshot: n.watcher.Current, Flush: n.flusher.Flush, Logger: log})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	tasks.Go(func() error {
		defer close(ended)
		return traffic.Run(ctx)
	})
	n.endTraffic = func() { cancel(); <-ended }
}

// demoRemove takes the demo out.
type demoRemove struct{ databaseSettings }

// Run removes, and says what.
func (d demoRemove) Run(ctx context.Context, p program) error {
	return d.withStore(ctx, p, func(st *store.Store) error {
		if err := st.Migrate(ctx); err != nil {
			return err
		}
		ctx := audit.With(ctx, audit.Actor{Kind: "command", ID: "demo remove", Name: "demo remove"}, audit.Origin{})
		t, pl := tenants.NewService(st, tenants.Config{}), plans.NewService(st, plans.Config{})
		service := demo.NewService(st, t, pl, exceptions.NewService(st, t, pl, exceptions.Config{}), demo.Config{})
		began := time.Now()
		removed, err := service.Remove(ctx)
		if problem.Is(err, problem.NotFound) {
			_, err = fmt.Fprintln(p.stdout, "there is no demo data: nothing was removed")
			return err
		}
		if err != nil {
			return err
		}
		return sayRemoved(p, removed, time.Since(began))
	})
}

func sayRemoved(p program, r demo.Removed, took time.Duration) error {
	list := func(slugs []string) string {
		if len(slugs) == 0 {
			return "none"
		}
		return strings.Join(slugs, ", ")
	}
	fmt.Fprintf(p.stdout, "removed in %s\n  tenants, with their keys, members, overrides, lists and blocks: %s\n  plans: %s\n  %d rows of counts, %d of sketches, %d kept refusals\n",
		took.Round(time.Millisecond), list(r.Tenants), list(r.Plans), r.Counts, r.Sketches, r.Refusals)
	if len(r.Kept) > 0 {
		fmt.Fprintf(p.stdout, "kept, because other tenants are on them: %s\n", strings.Join(r.Kept, ", "))
	}
	_, err := fmt.Fprintln(p.stdout, "The audit log keeps its lines.")
	return err
}
