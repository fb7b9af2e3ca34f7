package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/retry"
	"github.com/headgate/headgate/internal/snapshot"
)

const (
	// noSnapshotFile is the value of the setting snapshot-file that disables the file.
	noSnapshotFile = "off"
	// saveEvery is the interval at which a changed snapshot is written to the file.
	saveEvery = 30 * time.Second
)

// keepsSnapshot reports whether the node saves its snapshot in a file. Only a node on Postgres
// does. A SQLite database needs no such file, because it is on the local disk.
func (s *serveSettings) keepsSnapshot() bool {
	return s.production() && s.SnapshotFile != "" && s.SnapshotFile != noSnapshotFile
}

// databaseName returns the host and the name of the database, without credentials. The snapshot
// file contains this name, so that a node does not load the snapshot of another database.
func (s *serveSettings) databaseName() string {
	u, err := url.Parse(s.DatabaseURL)
	if err != nil {
		return ""
	}
	return u.Host + u.Path
}

// saveSnapshots starts a task that writes the snapshot to the file after changes and when the
// node stops.
func (n *node) saveSnapshots(work context.Context, tasks *errgroup.Group, s *serveCommand, log *slog.Logger) {
	if !s.keepsSnapshot() {
		return
	}
	saved := int64(-1)
	save := func(ctx context.Context) {
		status := n.watcher.Status()
		if !status.Loaded || status.Held != nil || status.Err != nil || status.Revision == saved {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveEvery)
		defer cancel()
		changes, err := n.store.Changes(ctx, 0)
		if err == nil {
			err = snapshot.WriteFile(s.SnapshotFile, snapshot.Saved{At: time.Now(), Database: s.databaseName(), Changes: changes})
		}
		if err != nil {
			log.Warn("the snapshot cannot be saved on disk: a start without the database would answer 503",
				"setting", settingName("snapshot-file"), "error", err)
			return
		}
		saved = changes.Revision
	}
	tasks.Go(func() error {
		for save(work); retry.Wait(work, saveEvery) == nil; save(work) {
		}
		save(work)
		return nil
	})
}

// standBy serves checks from the saved snapshot while the database is unavailable at the start. The
// decisions of this time are counted only in /metrics. The context standing ends when the database
// is open.
func (n *node) standBy(work, standing context.Context, tasks *errgroup.Group, s *serveCommand, g *gate, log *slog.Logger) {
	if !s.keepsSnapshot() {
		return
	}
	saved, err := snapshot.ReadFile(s.SnapshotFile, s.databaseName())
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Error("the snapshot on disk cannot be used", "setting", settingName("snapshot-file"), "error", err)
		}
		return
	}
	first, report := snapshot.Compile(nil, saved.Changes, snapshot.Options{Full: true, Now: time.Now})
	if report.Held != nil {
		log.Error("the snapshot on disk cannot be used", "setting", settingName("snapshot-file"), "error", report.Held)
		return
	}
	world := &savedSnapshot{limiter: n.shared, saved: saved.At, log: log}
	world.current.Store(first)
	world.refresh(standing) // before the first check
	tasks.Go(func() error { return world.run(standing) })
	headers, err := api.ParseHeaders(s.Headers)
	if err != nil {
		return // validate has checked the setting
	}
	n.recorder = metrics.NewRecorder(metrics.Config{
		Version: version, Node: n.id, Tenants: s.metricsTenants(),
		Redis: n.redisState(), Durable: n.durableState, Leases: n.leaseState(), OutageJournal: n.outageJournalState(),
		Admission: n.admissionState, Connections: n.connectionState,
		DeniedRequests: n.deniedRequests.Load, Log: s.log.Status,
		Snapshot: func() metrics.SnapshotState {
			counts := first.Counts()
			return metrics.SnapshotState{
				Loaded: true, FromDisk: true, Revision: first.Revision(), Age: time.Since(saved.At), Problems: first.ProblemCount(),
				Tenants: counts.Tenants, Keys: counts.Keys, Plans: counts.Plans, Planless: counts.Planless,
			}
		},
	})
	n.metricsGate.open(n.recorder.Handler())
	engine := n.newEngine(s, log)
	n.runEngine(work, tasks, engine)
	ip := clientIP(s.TrustedProxies, log)
	cfg := api.Config{
		Snapshot: world.current.Load, Decider: engine, Admission: n.admission,
		Version: version, BootstrapKey: s.BootstrapKey, Headers: headers, PublicURL: s.PublicURL,
		ClientAddress: clientAddress(ip), ClientIP: ip, TrustedProxy: trustedProxy(s.TrustedProxies), Logger: log,
		Ready: func(context.Context) api.Readiness {
			r := api.Readiness{
				Checks:   []api.ReadyCheck{{Name: "snapshot", OK: true}, {Name: "draining", OK: !g.draining.Load()}},
				Revision: first.Revision(), Age: time.Since(saved.At),
				Warnings: []string{"the database has been away since the start: checks are answered from the snapshot on disk of " +
					saved.At.UTC().Format(time.RFC3339) + ", edits and pages are refused; " + world.warning()},
			}
			n.warnOfRedis(&r)
			return r
		},
	}
	cfg.Requests = n.requestLimits(s)
	if cfg.VerifyJWT, err = s.verifyJWT(); err != nil {
		log.Error("the snapshot on disk cannot be used", "setting", settingName("jwt-keys"), "error", err)
		return
	}
	if s.MetricsAddr == "" {
		cfg.Metrics, cfg.MetricsPublic = n.recorder.Handler(), s.MetricsPublic == "true"
	}
	rest := api.New(cfg)
	n.wires.open(rest)
	g.open(checkHost(s.allowedHosts(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if api.IsForwardAuth(path) {
			path = api.CheckPath
		}
		switch path {
		case api.CheckPath, "/v1/check/batch", "/livez", "/healthz", "/readyz", "/metrics", "/openapi.yaml", "/openapi.json":
			rest.ServeHTTP(w, r)
		default:
			w.Header().Set("X-Content-Type-Options", "nosniff")
			unavailable(w, "the database has been away since this node started: only checks are answered, from the snapshot on disk of "+
				saved.At.UTC().Format(time.RFC3339))
		}
	})))
	log.Warn("serving checks from the snapshot on disk", "addr", s.listensAt.String(),
		"revision", first.Revision(), "saved", saved.At.UTC().Format(time.RFC3339),
		"problems", first.ProblemCount())
}
