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

// A Server serves HTTP/2 connections. All fields without a stated default are required.
type Server struct {
	// Methods are the unary gRPC methods that the Server serves.
	Methods []Method
	// Handler serves all other requests.
	Handler http.Handler
	// TLS, if it is not nil, encrypts the connections. The Server sets its NextProtos. Clients must agree on h2 with ALPN.
	TLS *tls.Config
	// Streams are the paths of the methods of Handler whose clients send more than one message. All other requests get a body only when
	// it is complete.
	Streams []string
	// Known reports whether the metadata of a call has a valid API key. The Server asks only for calls whose message arrives in parts.
	Known func(*Call) bool
	// Logger logs panics.
	Logger *slog.Logger
	// Limits bound what clients can hold.
	Limits Limits

	mu       sync.Mutex
	listener net.Listener
	conns    map[*conn]struct{}
	stopping bool
	secure   *tls.Config    // TLS with the protocol h2, or nil
	stopped  chan struct{}  // closed by the first Shutdown
	running  sync.WaitGroup // the goroutines of the connections, and sweep
	known    held           // bytes of messages of which a part has arrived, of calls that Known accepts
	unknown  held           // those of all other requests
}

// Limits bound what clients can hold. All are required.
type Limits struct {
	Message int // maximum size of a message in bytes
	// Parts is the maximum number of bytes of all messages of which only a part has arrived. One connection may have a half. Requests
	// that Known does not accept have a further sixteenth for themselves.
	Parts    int
	Streams  uint32        // maximum number of open calls on a connection, and of those that still run after their client has reset them
	Complete time.Duration // time in which a message must arrive, from the headers of its call
	Begin    time.Duration // time in which a connection must complete the handshake of TLS and the preface
	Stall    time.Duration // time for which a client may not read its answers, or not answer a ping
	Ping     time.Duration // time without data after which the client is pinged, to detect a lost connection
	Idle     time.Duration // time without calls after which a connection is closed
}

// A Method is a unary gRPC method.
type Method struct {
	// Path is the path of the method, such as /package.Service/Method.
	Path string
	// Serve answers calls. It must answer all of them before it returns: with Answer or with Fail. The Left method of ctx
	// reports whether all of their clients have gone.
	Serve func(ctx context.Context, calls []*Call)
	// Together says that Serve gets all calls of a connection that have arrived, at most maxTogether. Otherwise each call of
	// Serve gets one call, in a goroutine of its own.
	Together bool
}

// maxTogether is the maximum number of calls that are passed to a Method together.
const maxTogether = 64

// Serve accepts connections until Shutdown or an error of the listener. After Shutdown it returns nil. A Server serves one
// listener.
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
		case errors.As(err, &temporary) && temporary.Temporary(): // such as no free file descriptor, as in net/http
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			time.Sleep(pause)
		default:
			return err
		}
	}
}

// init makes the channel stopped. The caller holds s.mu.
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

// Shutdown stops accepting connections. It tells the clients not to open new calls, and waits until the open calls are
// answered. If ctx ends first, Shutdown closes the connections and returns the error of ctx.
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

// sweep applies the limits of time to all connections, until Shutdown. One goroutine does this for all connections, so that calls
// need no timers.
func (s *Server) sweep() {
	defer s.running.Done()
	every := time.NewTicker(min(time.Second, max(s.Limits.Complete/4, time.Millisecond)))
	defer every.Stop()
	for stopped := s.stopped; ; {
		select {
		case <-every.C:
		case <-stopped: // calls that are open still have limits
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

// A held counts bytes up to a limit.
type held struct {
	mu sync.Mutex
	n  int
}

// take adds n bytes. It returns false, and adds nothing, if the sum would be above most.
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

// settings are the settings that the Server sends.
func (s *Server) settings() []http2.Setting {
	return []http2.Setting{
		{ID: http2.SettingMaxConcurrentStreams, Val: s.Limits.Streams},
		{ID: http2.SettingInitialWindowSize, Val: uint32(s.Limits.Message + prefixSize)}, //nolint:gosec // a limit of a few MiB
		{ID: http2.SettingMaxHeaderListSize, Val: maxHeaders},
	}
}
