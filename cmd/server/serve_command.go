package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/internal/http1"
	"github.com/headgate/headgate/internal/logging"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/retry"
	"github.com/headgate/headgate/internal/store"
)

// serveCommand is headgate serve. It runs a node until a signal stops it.
type serveCommand struct {
	serveSettings
	demo      bool     // set by headgate demo, which adds sample tenants, a week of history and live traffic
	listensAt net.Addr // the address of the listener; set when the listener is open
	log       *logging.Log
}

// Help returns the text that --help shows after the flags.
func (*serveCommand) Help() string {
	return "HEADGATE_BOOTSTRAP_KEY, or the file that HEADGATE_BOOTSTRAP_KEY_FILE names, is an operator key for automation: " +
		"32 to 128 characters of A-Z a-z 0-9 . _ ~ + / = -, good while no other operator key exists. " +
		"It has no flag, because the arguments of a process can be read by every user of the machine.\n\n" +
		"GOGC and GOMEMLIMIT are Go's own: where they are not set, GOGC is 400, and GOMEMLIMIT is 90% of the memory of the process' cgroup."
}

// logTimeout is the maximum time to write the remaining log lines when the process ends.
const logTimeout = 2 * time.Second

// Run runs a node until ctx ends, and then stops it.
func (s *serveCommand) Run(ctx context.Context, p program) error {
	if err := s.validate(p.getenv); err != nil {
		return usageError{err}
	}
	// If the reader of a pipe has closed it, a write to standard output or standard error causes
	// SIGPIPE, which would end the process. So the process ignores this signal.
	signal.Ignore(syscall.SIGPIPE)
	s.log = s.openLog(p.stderr, p.logClock)
	// Close has a timeout, so that the process ends even if a write to the log blocks.
	defer func() { _ = s.log.Close(logTimeout) }()
	// A write to standard output blocks if it is a full pipe without a reader. The Writer writes in the
	// background, so that the node does not wait.
	greeting := logging.NewWriter(p.stdout, nil)
	defer func() { _ = greeting.Close(logTimeout) }()
	log := s.log.Logger
	tuneCollector(p.getenv, log)
	s.warnOfOpenFiles(log)
	listener, err := net.Listen("tcp", s.Addr)
	if err != nil {
		return fmt.Errorf("%s: %w", settingName("addr"), err)
	}
	s.listensAt = listener.Addr()
	// From now on, the node answers /livez with 200, and is not ready yet. So a supervisor can
	// distinguish a node that waits for its database from a node that does not run.
	g := &gate{}
	limited := s.limitConnections(listener, log)
	server := s.server(limited, g, log)
	stalls := newStalls()
	reserve := server.HTTP.ConnContext
	server.HTTP.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return stalls.connContext(reserve(ctx, c), c)
	}
	served := make(chan error, 1)
	go func() { served <- s.serve(server, limited, log) }()

	// work is the context of background tasks. It does not end together with ctx, because the tasks
	// must run until the last request is served.
	work, endWork := context.WithCancel(context.WithoutCancel(ctx))
	defer endWork()
	tasks, work := errgroup.WithContext(work)
	go stalls.run(work)
	n, err := s.wire(ctx, work, tasks, g, limited, log)
	if err == nil {
		g.open(n.handler)
		var text bytes.Buffer
		greet(&text, s.origin(listener), n.made, n.keyless)
		_, _ = greeting.Write(text.Bytes()) // it returns no error
		log.Info("ready", "addr", listener.Addr().String(), "database", s.databaseKind(), "limiter", n.limiterKind, "version", version)
		select {
		case <-ctx.Done():
		case err = <-served:
			err = fmt.Errorf("serve %s: %w", s.Addr, err)
		case <-work.Done(): // a task failed
		}
	} else if ctx.Err() != nil {
		err = nil // a signal stopped the node while it waited for its database; this is not a failure
	}
	return errors.Join(err, s.stop(g, n, server, tasks, endWork, log))
}

// stop stops a node in these steps: it makes readiness checks fail; serves requests until the load
// balancer has stopped sending them; finishes open requests; returns leased quota; ends the
// background tasks; and closes the stores.
func (s *serveCommand) stop(g *gate, n *node, server *http1.Server, tasks *errgroup.Group, endWork func(), log *slog.Logger) error {
	delay := s.ShutdownDelay
	if n == nil {
		delay = 0 // a node that was never ready gets no requests from a load balancer
	}
	log.Info("stopping", "delay", delay.String(), "timeout", s.ShutdownTimeout.String())
	deadline, cancel := context.WithTimeout(context.Background(), s.ShutdownTimeout)
	defer cancel()
	g.drain()
	if n != nil {
		n.beacon.Soon()
	}
	select {
	case <-time.After(delay):
	case <-deadline.Done():
	}
	err := server.Shutdown(deadline)
	if err != nil {
		err = fmt.Errorf("%s: requests were still running after %s: %w", settingName("shutdown-timeout"), s.ShutdownTimeout,
			errors.Join(err, server.Close()))
	}
	if n != nil {
		err = errors.Join(err, n.wires.shutdown(deadline))
		n.endTraffic() // the demo's traffic must end before the tasks that count it
		if n.leases != nil {
			n.leases.Return(deadline)
		}
	}
	endWork()
	err = errors.Join(err, tasks.Wait())
	if n != nil {
		if lost := n.tracer.Shutdown(deadline); lost != nil {
			log.Warn("the last traces were not sent", "error", lost) // lost traces do not change the exit code
		}
		err = errors.Join(err, n.close())
	}
	return err
}

func (s *serveCommand) serve(server *http1.Server, l net.Listener, log *slog.Logger) error {
	if s.TLSCertFile != "" {
		server.HTTP.TLSConfig = s.tlsConfig(log)
		return server.ServeTLS(l)
	}
	return server.Serve(l)
}

// tlsConfig returns the TLS configuration of a listener, with the certificate in the settings.
func (s *serveCommand) tlsConfig(log *slog.Logger) *tls.Config {
	c := &certificate{certFile: s.TLSCertFile, keyFile: s.TLSKeyFile, log: log}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}

// origin returns the URL of the node that greet prints.
func (s *serveCommand) origin(l net.Listener) string {
	if s.PublicURL != "" {
		return s.PublicURL
	}
	scheme := "http"
	if s.TLSCertFile != "" {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return scheme + "://" + l.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

func (d databaseSettings) databaseKind() string {
	if d.production() {
		return "postgres"
	}
	return "sqlite"
}

// databaseRetries returns the waits between two attempts of openDatabase. The waits are short, so
// that a node is ready within 2 s after Postgres is available.
func databaseRetries() retry.Backoff {
	return retry.Backoff{First: 500 * time.Millisecond, Longest: time.Second}
}

// openDatabase opens and migrates the database. While Postgres is unavailable, it tries again until
// ctx ends, and waits longer after each attempt. It returns any other error at once. After the
// first failed attempt, it calls away once.
func (s *serveCommand) openDatabase(ctx context.Context, log *slog.Logger, away func()) (*store.Store, error) {
	away = sync.OnceFunc(away)
	retries := databaseRetries()
	for {
		st, err := store.Open(ctx, store.Config{
			URL: s.DatabaseURL, Reread: s.reread("database-url", s.DatabaseURL), Logger: log, Serve: true,
		})
		if err == nil {
			if s.demo {
				err = s.prepareDemo(ctx, st)
			}
			if err == nil {
				err = st.Migrate(ctx)
			}
			if err == nil {
				return st, nil
			}
			err = errors.Join(err, st.Close())
		} else {
			err = fmt.Errorf("%s: %w", settingName("database-url"), err)
		}
		if !problem.Is(err, problem.Unavailable) || ctx.Err() != nil {
			return nil, err
		}
		away()
		pause := retries.Next()
		log.Warn("the database is away; trying again", "error", err, "pause", pause.String())
		if err := retry.Wait(ctx, pause); err != nil {
			return nil, err
		}
	}
}
