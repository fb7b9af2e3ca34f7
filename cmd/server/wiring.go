package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/journal"
	"github.com/headgate/headgate/enforcement/lease"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/configuration"
	"github.com/headgate/headgate/internal/connlimit"
	"github.com/headgate/headgate/internal/demo"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/mail"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/retry"
	"github.com/headgate/headgate/internal/savedfilters"
	"github.com/headgate/headgate/internal/sharing"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/tracing"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// A node holds the parts of a running server. wire creates them in the order of the fields.
type node struct {
	id      string // ID of this process; every start creates a new one
	store   *store.Store
	watcher *snapshot.Watcher

	shared      *redis.Limiter // nil if Redis is not configured
	journal     *journal.Journal
	leases      *lease.Limiter // the limiter in front of the journal; nil if Redis is not configured
	local       *inprocess.Limiter
	limiterKind string
	admission   *admission.Gate

	recorder  *metrics.Recorder
	flusher   *metrics.Flusher
	analytics *metrics.Analytics
	tracer    *tracing.Tracer // nil if tracing is off
	engine    *enforcement.Engine
	// outageEngine is the engine that decides now. It differs from engine while the node starts
	// without its database.
	outageEngine atomic.Pointer[enforcement.Engine]
	tenants      *tenants.Service
	plans        *plans.Service
	exceptions   *exceptions.Service
	demo         *demo.Service
	alerts       *alerts.Service
	sharing      *sharing.Service
	filters      *savedfilters.Service
	usage        *usage.Service
	preview      *preview.Service
	documents    *configuration.Service
	people       *accounts.People
	refusals     *accounts.DeniedAccessLog
	fleet        *nodes.Service
	beacon       *nodes.Beacon

	polls, trips nodes.Stopwatch // latency of polling the database's revision, and of calls to Redis

	deniedRequests  atomic.Int64 // requests that api.RequestLimits denied
	auditLines      atomic.Int64 // number of the last audit entry whose hash was logged
	connections     *connlimit.Listener
	metricsGate     gate
	metricsListener net.Listener // nil if /metrics is on the main listener
	wires           wires
	handler         http.Handler
	made            credentials
	keyless         bool   // no operator key exists, and the settings have no bootstrap key
	endTraffic      func() // stops the demo's traffic and waits for its last request
	closers         []io.Closer
}

// wire creates the parts of a node and starts its background tasks. ctx ends when the process
// should stop. work is the context of the tasks, and ends later than ctx. If an error occurs, wire
// closes everything that it has opened.
func (s *serveCommand) wire(ctx, work context.Context, tasks *errgroup.Group, g *gate, connections *connlimit.Listener,
	log *slog.Logger,
) (_ *node, err error) {
	n := &node{id: uuid.NewString(), connections: connections, endTraffic: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.abandon(ctx))
		}
	}()
	// firstStart creates keys, and greet prints them only after a successful start. So every step
	// that can fail because of a wrong setting comes before firstStart.
	if n.tracer, err = tracing.Start(ctx, tracing.Config{Getenv: s.getenv, Version: version, Logger: log}); err != nil {
		return nil, err
	}
	if err := n.openLimiters(ctx, s, log); err != nil {
		return nil, err
	}
	n.admission = n.newAdmission(s)
	if s.MetricsAddr != "" {
		if n.metricsListener, err = net.Listen("tcp", s.MetricsAddr); err != nil {
			return nil, fmt.Errorf("%s: %w", settingName("metrics-addr"), err)
		}
	}
	if n.wires, err = s.listenWires(tasks, log); err != nil {
		return nil, err
	}
	n.runLimiters(work, tasks)
	if n.metricsListener != nil {
		n.serveMetrics(work, tasks, log)
	}
	standing, opened := context.WithCancel(work)
	n.store, err = s.openDatabase(ctx, log, func() { n.standBy(work, standing, tasks, s, g, log) })
	opened()
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, n.store)
	n.tenants = tenants.NewService(n.store, tenants.Config{})
	n.plans = plans.NewService(n.store, plans.Config{})
	n.fleet = nodes.NewService(n.store)
	n.sharing, n.filters = sharing.NewService(n.store, sharing.Config{}), savedfilters.NewService(n.store, savedfilters.Config{})
	n.exceptions = exceptions.NewService(n.store, n.tenants, n.plans, exceptions.Config{})
	n.demo = demo.NewService(n.store, n.tenants, n.plans, n.exceptions, demo.Config{Logger: log})
	if n.made, err = n.firstStart(ctx, s); err != nil {
		return nil, err
	}
	if err := n.openPeople(ctx, s, log); err != nil {
		return nil, err
	}
	n.keepPeople(work, tasks, log)
	operators, err := n.tenants.OperatorKeys(ctx, tenants.Filter{Limit: 1})
	n.keyless = err == nil && len(operators) == 0 && s.BootstrapKey == "" // after an error it is false, because it only controls a hint
	n.startWatcher(work, tasks, log)
	if err := n.watcher.WaitFor(ctx, 0); err != nil {
		return nil, fmt.Errorf("load tenants and plans: %w", err)
	}
	if err := n.restoreDurable(ctx, work, tasks, log); err != nil {
		return nil, err
	}
	if s.demo {
		if err := n.fillDemo(ctx, s); err != nil {
			return nil, err
		}
	}
	n.count(work, tasks, s, log)
	n.sweep(work, tasks, log)
	n.publishHead(work, tasks, log)
	n.saveSnapshots(work, tasks, s, log)
	uses := snapshot.NewKeyUseFlusher(n.watcher.Current, n.store, snapshot.KeyUseConfig{StopTimeout: s.ShutdownTimeout, Logger: log})
	tasks.Go(func() error { return uses.Run(work) })
	n.startEngine(work, tasks, s, log)
	n.openReaders(log)
	n.watchAlerts(work, tasks, s, log)
	n.metricsGate.open(n.recorder.Handler())
	if n.handler, err = n.newHandler(ctx, s, g, log); err != nil {
		return nil, err
	}
	n.tell(work, tasks, s, g, log)
	if s.demo {
		n.sendDemoTraffic(ctx, tasks, log)
	}
	return n, nil
}

// abandon closes what wire had opened before it failed.
func (n *node) abandon(ctx context.Context) error {
	if n.metricsListener != nil {
		_ = n.metricsListener.Close() // an error is ignored, because the server may already have closed the listener
	}
	n.wires.close()
	return errors.Join(n.tracer.Shutdown(ctx), n.close())
}

// startWatcher starts the tasks that keep the snapshot up to date. If Redis is configured, other
// tasks share revocations of keys through Redis, and record that Redis has lost data.
func (n *node) startWatcher(work context.Context, tasks *errgroup.Group, log *slog.Logger) {
	var source snapshot.Source = timed{n.store, &n.polls}
	if n.shared == nil {
		n.watcher = snapshot.NewWatcher(source, snapshot.Config{Logger: log})
		tasks.Go(func() error { return n.watcher.Run(work) })
		return
	}
	revoked := newRevokedKeys(n.shared, log)
	n.watcher = snapshot.NewWatcher(revocationSource{source, revoked}, snapshot.Config{Logger: log})
	tasks.Go(func() error { return n.watcher.Run(work) })
	tasks.Go(func() error { return n.noteLosses(work, log) })
	tasks.Go(func() error { return revoked.publish(work) })
	tasks.Go(func() error { return n.watchRevoked(work, log) })
}

// count starts the tasks that count decisions on a serving node:
//
//   - The recorder counts in memory.
//   - The flusher writes the counts to the database every second, and once more after the last request.
//   - The roller sums up the counts in the database to hours and days. It runs on every node, but only the
//     node that holds a lease works.
func (n *node) count(work context.Context, tasks *errgroup.Group, s *serveCommand, log *slog.Logger) {
	n.recorder = metrics.NewRecorder(metrics.Config{
		Version: version, Node: n.id, Tenants: s.metricsTenants(),
		Snapshot: n.snapshotState, Redis: n.redisState(), Durable: n.durableState, Leases: n.leaseState(), OutageJournal: n.outageJournalState(),
		Admission: n.admissionState, Connections: n.connectionState, AuditLines: n.auditLines.Load,
		DeniedRequests: n.deniedRequests.Load, Log: s.log.Status,
		Reservations:      func() enforcement.ReservationCounts { return n.engine.ReservationCounts() },
		ConcurrencyLeases: func() enforcement.LeaseCounts { return n.engine.LeaseCounts() },
		Database: func() metrics.Refusing {
			r := n.store.WriteRefusal()
			return metrics.Refusing{Since: r.Since, Code: r.Code}
		},
		Flush: func() metrics.FlushState { return n.flusher.Status() },
	})
	n.flusher = metrics.NewFlusher(n.recorder, n.store, metrics.FlusherConfig{Node: n.id, StopTimeout: s.ShutdownTimeout, Logger: log})
	roller := metrics.NewRoller(n.store, metrics.RollerConfig{
		Holder:  n.id,
		Minutes: time.Duration(s.RetentionMinutes), Hours: time.Duration(s.RetentionHours), Days: time.Duration(s.RetentionDays),
		Refusals: refusalsKept, MaxRefusals: mostRefusals,
		Logger: log,
	})
	n.analytics = metrics.NewAnalytics(n.store, metrics.AnalyticsConfig{
		Live: n.recorder.Seconds, Pending: n.flusher.PendingRefusal,
		Logger: log,
	})
	tasks.Go(func() error { return n.flusher.Run(work) })
	tasks.Go(func() error { return roller.Run(work) })
}

// watchAlerts starts two tasks: one evaluates the alert rules, on only one node at a time; the
// other sends alert messages, on every node.
func (n *node) watchAlerts(work context.Context, tasks *errgroup.Group, s *serveCommand, log *slog.Logger) {
	messenger := alerts.Messenger{URL: strings.TrimSuffix(s.PublicURL, "/")}
	networks := s.webhookNetworks()
	mailer, _ := s.mailer() // validate has checked the settings
	n.alerts = alerts.NewService(n.store, alerts.Config{Networks: networks, Messenger: messenger, Mail: mailer != nil, Member: n.isMember})
	evaluator := alerts.NewEvaluator(alerts.EvaluatorConfig{
		Store: n.store, Messenger: messenger, Holder: n.id, Logger: log,
		Figures: alerts.Figures{Analytics: n.analytics, Nodes: n.fleet, Usage: n.usage, Tenant: func(name string) (uint32, bool) {
			subject, found := n.watcher.Current().Subject(name)
			if !found {
				return 0, false
			}
			return subject.Number, true
		}, Tenants: func() []string { return n.watcher.Current().Slugs() }},
	})
	sending := alerts.SenderConfig{Store: n.store, Networks: networks, Member: n.isMember, UserAgent: "Headgate/" + version, Logger: log}
	if mailer != nil {
		sending.Mail, sending.Letter = mailer, n.invitationLetter(messenger.URL)
	}
	sender := alerts.NewSender(sending)
	tasks.Go(func() error { return evaluator.Run(work) })
	tasks.Go(func() error { return sender.Run(work) })
}

// invitationLetter returns the function that writes the e-mail of an invitation.
func (n *node) invitationLetter(dashboard string) func(context.Context, string) (mail.Message, error) {
	return func(ctx context.Context, id string) (mail.Message, error) {
		i, token, err := n.people.MailedLink(ctx, id)
		if err != nil {
			return mail.Message{}, err
		}
		m := mail.Message{To: i.Email, Subject: "Invitation to Headgate"}
		text := "You are invited to Headgate as " + strings.ReplaceAll(string(i.Role), "_", " ")
		if i.TenantID != "" {
			t, err := n.tenants.Tenant(ctx, i.TenantID)
			if err != nil {
				return mail.Message{}, err
			}
			text += " of " + t.Name
		}
		link := dashboard + "/invite/" + token
		m.Text = text + ". Choose your name and your password here:\n\n" + link + "\n\nThe link works once, until " +
			i.ExpiresAt.UTC().Format("2 January 2006, 15:04 UTC") + ". If you expected no invitation, ignore this message.\n"
		return m, nil
	}
}

// isMember reports whether a person with this e-mail address is a member of a tenant and may
// sign in.
func (n *node) isMember(ctx context.Context, tenantID, address string) (bool, error) {
	u, err := n.store.UserByEmail(ctx, address)
	if problem.Is(err, problem.NotFound) {
		return false, nil
	}
	return err == nil && u.TenantID == tenantID && !u.Disabled, err
}

// runLimiters starts the background tasks of the limiters.
func (n *node) runLimiters(work context.Context, tasks *errgroup.Group) {
	tasks.Go(func() error { return n.local.Run(work) })
	if n.shared != nil {
		tasks.Go(func() error { return n.shared.Run(work) })
		tasks.Go(func() error { return n.leases.Run(work) })
	}
}

// startEngine creates the engine and starts its tasks.
func (n *node) startEngine(work context.Context, tasks *errgroup.Group, s *serveCommand, log *slog.Logger) {
	n.engine = n.newEngine(s, log)
	n.runEngine(work, tasks, n.engine)
	tasks.Go(func() error {
		return n.engine.RunReservations(work, func(number uint32) (*enforcement.Subject, bool) {
			return n.watcher.Current().SubjectByNumber(number)
		})
	})
	if s.Nodes == 0 {
		tasks.Go(func() error { return n.countNodes(work) })
	}
}

// runEngine starts the task that charges Redis with the costs that failure modes have admitted.
func (n *node) runEngine(work context.Context, tasks *errgroup.Group, engine *enforcement.Engine) {
	n.outageEngine.Store(engine)
	if n.shared != nil {
		tasks.Go(func() error { return engine.RunOutageJournal(work) })
	}
}

// countNodes regularly updates the number of live nodes in the limiters. It counts the nodes whose
// reports in the database are recent. If the database does not answer, the limiters keep the last
// number.
func (n *node) countNodes(ctx context.Context) error {
	for ctx.Err() == nil {
		n.countNodesOnce(ctx)
		_ = retry.Wait(ctx, countNodesEvery) // an error means that ctx has ended
	}
	return nil
}

func (n *node) countNodesOnce(ctx context.Context) {
	alive, err := n.fleet.Alive(ctx)
	if err != nil {
		return
	}
	n.engine.SetNodes(alive)
	if n.leases != nil {
		n.leases.SetNodes(alive)
	}
}

// countNodesEvery is the interval of countNodes. It equals the interval at which nodes write
// their reports.
const countNodesEvery = 5 * time.Second

// openReaders creates the services that combine plans, tenants, exceptions and counts.
func (n *node) openReaders(log *slog.Logger) {
	n.usage = usage.NewService(usage.Config{
		Snapshot: n.watcher.Current, Engine: n.engine, Analytics: n.analytics, Exceptions: n.exceptions, Counters: n.counters,
	})
	n.preview = preview.NewService(preview.Config{
		Plans: n.plans, Tenants: n.tenants, Exceptions: n.exceptions, Analytics: n.analytics, Audit: n.store, Logger: log,
		NewLimiter: inProcessLimiter,
		Subject:    func(number uint32) (*enforcement.Subject, bool) { return n.watcher.Current().SubjectByNumber(number) },
	})
	n.documents = configuration.NewService(configuration.Config{
		Store: n.store, Plans: n.plans, Tenants: n.tenants, Exceptions: n.exceptions, Preview: n.preview,
	})
}

// sweep starts the task that deletes expired overrides, list entries and blocks.
func (n *node) sweep(work context.Context, tasks *errgroup.Group, log *slog.Logger) {
	sweeper := exceptions.NewSweeper(exceptions.SweeperConfig{
		Store: n.store, Changed: n.refresh(log), Logger: log,
		Due: func() time.Time { return n.watcher.Current().NextEnd() },
	})
	tasks.Go(func() error { return sweeper.Run(work) })
}

// serveMetrics starts a server for /metrics on its own listener.
func (n *node) serveMetrics(work context.Context, tasks *errgroup.Group, log *slog.Logger) {
	addr := n.metricsListener.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		n.metricsGate.ServeHTTP(w, r)
	})
	server := api.Server(addr, mux, log)
	limited := connlimit.Wrap(n.metricsListener, connlimit.Limits{Total: metricsConnections}, nil)
	server.ConnState = limited.ConnState
	tasks.Go(func() error {
		if err := server.Serve(limited); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", addr, err)
		}
		return nil
	})
	context.AfterFunc(work, func() { _ = server.Close() })
}

// openLimiters creates the in-process limiter and, if a Redis URL is set, the Redis limiter.
// With Redis, the in-process limiter decides only in failure mode local. If Redis is
// unavailable, the node starts degraded and reconnects later.
func (n *node) openLimiters(ctx context.Context, s *serveCommand, log *slog.Logger) error {
	n.local = inprocess.New(inprocess.Config{MaxCells: s.MaxCounters})
	n.limiterKind = nodes.LimiterInProcess
	cfg := journal.Config{Nodes: n.liveNodes, StopTimeout: s.ShutdownTimeout, Logger: log}
	if s.RedisURL == "" {
		cfg.Lost = true // restoreDurable restores them
		n.journal = journal.New(n.local, cfg)
		return nil
	}
	shared, err := redis.New(ctx, redis.Config{
		URL: s.RedisURL, Prefix: s.RedisPrefix, Timeout: s.LimiterTimeout, Observe: n.trips.Observe,
		Keys: int64(s.MaxKeys), Reread: s.reread("redis-url", s.RedisURL), Strict: s.RedisStrict, Durable: true, Node: n.id,
		Logger: log,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", settingName("redis-url"), err)
	}
	n.shared, n.limiterKind = shared, nodes.LimiterRedis
	n.journal = journal.New(shared, cfg)
	n.leases = lease.New(n.journal, lease.Config{Nodes: s.Nodes})
	n.closers = append(n.closers, shared)
	return nil
}

// newAdmission creates the queue of checks in front of the limiter. With Redis, half of the slots
// are for the checks of the current script call, and half for the checks that wait for the next
// call. With fewer slots, the calls would be smaller. With more slots, a tenant that sends too much
// would delay the other tenants longer. Without Redis, a check occupies a processor, so there are
// few slots. ADR 0016 has the measurements.
func (n *node) newAdmission(s *serveCommand) *admission.Gate {
	cfg := admission.Config{Slots: 4 * runtime.GOMAXPROCS(0), Waiting: s.MaxWaiting}
	if n.shared != nil {
		cfg.Slots = max(64, 32*runtime.GOMAXPROCS(0))
	}
	if s.MaxWaiting == 0 {
		cfg.Waiting = -1
	}
	return admission.New(cfg)
}

func (n *node) admissionState() metrics.AdmissionState {
	s := n.admission.Status()
	return metrics.AdmissionState{InService: s.InService, Waiting: s.Waiting, Overloaded: s.Overloaded}
}

func (n *node) connectionState() metrics.ConnectionState {
	return metrics.ConnectionState(n.connections.Status())
}

// newEngine creates the engine that decides checks, with the node's limiter.
func (n *node) newEngine(s *serveCommand, log *slog.Logger) *enforcement.Engine {
	cfg := enforcement.Config{
		Nodes: s.Nodes, OutageJournalKeys: -1, Recorder: n.recorder, Logger: log,
		IdempotencyKeys: int64(s.MaxIdempotency), Reservations: int64(s.MaxReservations),
	}
	var limiter enforcement.Limiter = n.journal
	cfg.Reserver = n.local
	if n.shared != nil {
		cfg.OutageJournalKeys, cfg.Reserver = 0, n.shared
		limiter, cfg.Local, cfg.Memory = n.leases, n.recorder.InstrumentLocal(n.local), n.local
	}
	return enforcement.NewEngine(n.tracer.Limiter(n.recorder.InstrumentLimiter(limiter)), cfg)
}

// firstStart creates the sample data if the database is a SQLite file without data. It does nothing
// on Postgres.
func (n *node) firstStart(ctx context.Context, s *serveCommand) (credentials, error) {
	if s.production() || !s.Sample || s.demo {
		return credentials{}, nil
	}
	empty, err := n.store.Empty(ctx)
	if err != nil || !empty {
		return credentials{}, err
	}
	return makeSample(ctx, n.plans, n.tenants, s.BootstrapKey == "")
}

func (n *node) snapshotState() metrics.SnapshotState {
	status := n.watcher.Status()
	state := metrics.SnapshotState{
		Loaded: status.Loaded, Revision: status.Revision, Problems: status.Problems,
		Held: status.Held != nil, Listening: status.Listening, Swaps: status.Swaps,
		Age: time.Since(status.ConfirmedAt),
	}
	if current := n.watcher.Current(); current != nil {
		counts := current.Counts()
		state.Tenants, state.Keys, state.Plans, state.Planless = counts.Tenants, counts.Keys, counts.Plans, counts.Planless
	}
	return state
}

func (n *node) outageJournalState() func() metrics.OutageJournalState {
	if n.shared == nil {
		return nil
	}
	return func() metrics.OutageJournalState {
		if engine := n.outageEngine.Load(); engine != nil {
			return metrics.OutageJournalState(engine.OutageJournal())
		}
		return metrics.OutageJournalState{}
	}
}

func (n *node) leaseState() func() metrics.LeaseState {
	if n.leases == nil {
		return nil
	}
	return func() metrics.LeaseState { return metrics.LeaseState(n.leases.Stats()) }
}

// close closes the opened resources in reverse order.
func (n *node) close() (err error) {
	for i := len(n.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, n.closers[i].Close())
	}
	return err
}
