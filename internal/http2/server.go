package http2

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// A Server serves HTTP/2 connections. All fields that have no stated default are required.
type Server struct {
	// Methods are the unary gRPC methods that the Server serves.
	Methods []Method
	// Handler serves all other requests.
	Handler http.Handler
	// If TLS is not nil, it encrypts the connections. The Server sets NextProtos of its copy.
	// Clients must select the protocol h2 with ALPN.
	TLS *tls.Config
	// Streams are the paths of the gRPC methods of the Handler whose clients may send more than one
	// message. For each other request, the Handler gets the body only when it is complete.
	Streams []string
	// Known reports whether the metadata of a call contains a valid API key. The Server calls it
	// only for calls whose message arrives in several parts.
	Known func(*Call) bool
	// Logger logs panics.
	Logger *slog.Logger
	// Limits bound what clients can hold.
	Limits Limits

	mu       sync.Mutex
	listener net.Listener
	conns    map[*conn]struct{}
	stopping bool
	secure   *tls.Config    // copy of TLS with the protocol h2, or nil
	stopped  chan struct{}  // closed by the first Shutdown
	running  sync.WaitGroup // waits for the goroutines of the connections and of sweep
	known    held           // bytes of incomplete messages whose calls have a valid API key according to Known
	unknown  held           // those of all other requests
}

// Limits bound what clients can use. All fields are required.
type Limits struct {
	Message int // maximum size of a message in bytes
	// Parts is the maximum number of bytes of all messages that have arrived only in part. One
	// connection may have half of this number. Calls without a valid API key (see Known) have a
	// separate limit, a sixteenth of Parts.
	Parts    int
	Streams  uint32        // maximum number of calls of a connection: open calls, and calls that still run after a reset
	Complete time.Duration // maximum time from the arrival of a call's headers to the arrival of its whole message
	Begin    time.Duration // maximum time for the TLS handshake and the preface of a new connection
	Stall    time.Duration // maximum time for which a client does not read its answers, or does not answer a ping
	Ping     time.Duration // time without a frame after which the Server sends a ping, to detect a lost connection
	Idle     time.Duration // time without calls after which a connection is closed
}

// A Method is a unary gRPC method.
type Method struct {
	// Path is the path of the method, such as /package.Service/Method.
	Path string
	// Serve answers calls. It must end each call with Answer or Fail before it returns. The context
	// ctx has a method Left, which reports whether the clients of all calls have gone.
	Serve func(ctx context.Context, calls []*Call)
	// Together says that Serve gets all calls of the Method that have arrived on a connection, at
	// most maxTogether. If Together is false, each invocation of Serve gets one call and has its own
	// goroutine.
	Together bool
}

// maxTogether is the maximum number of calls that the Server passes to a Method together.
const maxTogether = 64

// Serve accepts connections until Shutdown is called or the listener returns an error. After
// Shutdown, Serve returns nil. A Server serves only one listener.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.listener, s.conns = l, map[*conn]struct{}{}
	s.init()
	if s.TLS != nil {
		s.secure = s.TLS.Clone()
		s.secure.NextProtos = []string{http2.NextProtoTLS}
	}
	if s.stopping {
		s.mu.Unlock()
		return l.Close()
	}
	s.running.Add(1)
	go s.sweep()
	s.mu.Unlock()
	for pause := time.Duration(0); ; {
		accepted, err := l.Accept()
		var temporary interface{ Temporary() bool }
		switch {
		case err == nil:
			pause = 0
			s.start(accepted)
		case s.isStopping():
			return nil
		case errors.As(err, &temporary) && temporary.Temporary(): // for example, no file descriptor is free; net/http waits here too
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			time.Sleep(pause)
		default:
			return err
		}
	}
}

// init creates the channel stopped, if it does not exist. The caller holds s.mu.
func (s *Server) init() {
	if s.stopped == nil {
		s.stopped = make(chan struct{})
	}
}

func (s *Server) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// start serves a connection in a goroutine.
func (s *Server) start(accepted net.Conn) {
	c := newConn(s, accepted)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		_ = accepted.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.running.Add(1)
	go c.serve()
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.running.Done()
}

// Shutdown stops accepting connections. It tells the clients not to open new calls, and waits until
// all open calls are answered. If ctx ends first, Shutdown closes the connections and returns the
// error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.init()
	first := !s.stopping
	s.stopping = true
	if first {
		close(s.stopped)
		if s.listener != nil {
			_ = s.listener.Close()
		}
	}
	conns := s.snapshot()
	s.mu.Unlock()
	for _, c := range conns {
		c.drain()
	}
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	for _, c := range conns {
		_ = c.socket.Close()
	}
	<-done
	return ctx.Err()
}

// snapshot returns the connections. The caller holds s.mu.
func (s *Server) snapshot() []*conn {
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

// sweep regularly applies the time limits to all connections. After Shutdown, it continues until no
// connection is left. One goroutine does this for all connections, so that calls need no timers.
func (s *Server) sweep() {
	defer s.running.Done()
	every := time.NewTicker(min(time.Second, max(s.Limits.Complete/4, time.Millisecond)))
	defer every.Stop()
	for stopped := s.stopped; ; {
		select {
		case <-every.C:
		case <-stopped: // after Shutdown, the time limits still apply to open calls
			stopped = nil
		}
		s.mu.Lock()
		conns := s.snapshot()
		s.mu.Unlock()
		if stopped == nil && len(conns) == 0 {
			return
		}
		now := time.Now()
		for _, c := range conns {
			c.sweep(now)
		}
	}
}

// A held is a counter of bytes that is safe for concurrent use.
type held struct {
	mu sync.Mutex
	n  int
}

// take adds n bytes. If the sum would exceed most, take adds nothing and returns false.
func (h *held) take(n, most int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n+n > most {
		return false
	}
	h.n += n
	return true
}

func (h *held) release(n int) {
	h.mu.Lock()
	h.n -= n
	h.mu.Unlock()
}

// settings returns the HTTP/2 settings that the Server sends.
func (s *Server) settings() []http2.Setting {
	return []http2.Setting{
		{ID: http2.SettingMaxConcurrentStreams, Val: s.Limits.Streams},
		{ID: http2.SettingInitialWindowSize, Val: uint32(s.Limits.Message + prefixSize)}, //nolint:gosec // a limit of a few MiB
		{ID: http2.SettingMaxHeaderListSize, Val: maxHeaders},
	}
}
