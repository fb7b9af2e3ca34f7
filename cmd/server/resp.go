package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/api/resp"
)

// A respServer serves checks over the protocol of Redis. Its methods do nothing if it is nil.
type respServer struct{ *resp.Server }

// listenRESP opens the listener of the setting resp-addr and begins to serve it. It returns nil if the setting is empty.
func (s *serveCommand) listenRESP(tasks *errgroup.Group, log *slog.Logger) (*respServer, error) {
	if s.RESPAddr == "" {
		return nil, nil
	}
	listener, err := net.Listen("tcp", s.RESPAddr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", settingName("resp-addr"), err)
	}
	cfg := resp.Config{Version: version, Logger: log}
	if s.TLSCertFile != "" {
		cfg.TLS = s.tlsConfig(log)
	}
	r := &respServer{resp.New(cfg)}
	tasks.Go(func() error { return r.Serve(s.limitConnections(listener, log)) })
	log.Info("serving the Redis protocol", "addr", listener.Addr().String())
	return r, nil
}

// open lets a decide the checks.
func (r *respServer) open(a *api.API) {
	if r != nil {
		r.Open(a)
	}
}

// shutdown answers the commands that have arrived and closes the connections.
func (r *respServer) shutdown(ctx context.Context) error {
	if r == nil {
		return nil
	}
	if err := r.Shutdown(ctx); err != nil {
		return fmt.Errorf("%s: commands were still running: %w", settingName("resp-addr"), err)
	}
	return nil
}

// close closes all connections at once.
func (r *respServer) close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.shutdown(ctx)
}
