package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/connlimit"
)

// Config holds the settings of a Server. All fields without a stated default are required.
type Config struct {
	// Version is the version of the program. The reply to HELLO contains it.
	Version string
	// TLS, if it is not nil, encrypts the connections.
	TLS *tls.Config
	// Logger logs panics.
	Logger *slog.Logger
}

// Time limits of a connection.
const (
	// firstTimeout bounds two times: from the start of a connection to its first command, and from the first to the
	// last byte of a command. Between two commands, a connection can be idle for any time, because clients keep
	// connection pools.
	firstTimeout = 10 * time.Second
	// writeTimeout bounds the time of writing the replies, so that a client that does not read them
	// cannot block the server.
	writeTimeout = 10 * time.Second
)

// A Server answers commands on the connections of one listener.
type Server struct {
	cfg Config
	api atomic.Pointer[api.API] // nil before Open

	mu       sync.Mutex
	listener net.Listener
	conns    map[*conn]struct{}
	stopping bool
	running  sync.WaitGroup
}

// New returns a Server that does not listen yet.
func New(cfg Config) *Server { return &Server{cfg: cfg, conns: map[*conn]struct{}{}} }

// Open sets a as the API that decides all further checks. Before the first call of Open, the server replies with the
// error LOADING, after which clients send the command again.
func (s *Server) Open(a *api.API) { s.api.Store(a) }

// Serve accepts connections until Shutdown or an error of the listener. After Shutdown it returns nil.
func (s *Server) Serve(l *connlimit.Listener) error {
	s.mu.Lock()
	s.listener = l
	stopping := s.stopping
	s.mu.Unlock()
	if stopping {
		return l.Close()
	}
	for {
		accepted, err := l.Accept()
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.stopping {
				return nil
			}
			return fmt.Errorf("accept a RESP connection: %w", err)
		}
		c := &conn{server: s, Conn: accepted, from: api.IPOf(accepted.RemoteAddr()), replies: replies{proto: 2}}
		c.limited, _ = accepted.(*connlimit.Conn)
		if s.cfg.TLS != nil {
			c.Conn = tls.Server(accepted, s.cfg.TLS)
		}
		if !s.add(c) {
			_ = accepted.Close()
			continue
		}
		go s.run(c)
	}
}

// add registers c. It returns false after Shutdown.
func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.conns[c] = struct{}{}
	s.running.Add(1)
	return true
}

// run serves one connection. A panic ends only this connection.
func (s *Server) run(c *conn) {
	defer s.running.Done()
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		_ = c.Close()
		if cause := recover(); cause != nil {
			s.cfg.Logger.Error("panic in a RESP command", "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
		}
	}()
	c.serve()
}

// Shutdown stops accepting connections and waits until the commands that have arrived are answered. If ctx ends
// before that, Shutdown closes the connections and returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	var err error
	if s.listener != nil {
		if err = s.listener.Close(); errors.Is(err, net.ErrClosed) {
			err = nil
		}
	}
	for c := range s.conns {
		_ = c.SetReadDeadline(time.Unix(1, 0)) // interrupts the read that waits for the next command
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
		return err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
	return errors.Join(err, ctx.Err())
}

// wait sets the deadline for the next read from c. After Shutdown it returns false, so that c ends instead of reading.
func (s *Server) wait(c *conn, deadline time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	return c.SetReadDeadline(deadline) == nil
}
