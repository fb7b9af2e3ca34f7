package http1

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Server serves POST requests of one path. If a connection has another request, the Server passes
// the connection to a server of net/http.
type Server struct {
	// HTTP serves the connections that the Server passes to it. The Server also uses its
	// Handler, ReadHeaderTimeout, ReadTimeout, WriteTimeout, IdleTimeout and ErrorLog, which
	// must all be set, and its ConnContext if that is set. The Handler must not change the
	// headers of a request.
	HTTP *http.Server
	// Path is the path of the requests that the Server serves itself.
	Path string
	// MaxBody returns the maximum size of the body of a request, in bytes. The Server uses it for
	// bodies in chunked encoding. If a chunk announces a larger size, the Server rejects the
	// request before the bytes of the chunk arrive. If MaxBody is nil, there is no maximum.
	MaxBody func(*http.Request) int64

	handler http.Handler // the Handler of HTTP, which prepare replaces
	closing atomic.Bool  // set at the beginning of Shutdown and Close

	mu    sync.Mutex
	conns map[*conn]struct{}
	ended chan struct{} // Shutdown and Close create it; it is closed when no connection is left
}

// Serve accepts connections until Shutdown or Close is called. It returns the error of
// HTTP.Serve, which is never nil.
func (s *Server) Serve(l net.Listener) error {
	rest := &listener{Listener: l, conns: make(chan net.Conn), failed: make(chan error), done: make(chan struct{})}
	s.prepare(rest)
	go s.accept(rest)
	return s.HTTP.Serve(rest)
}

// ServeTLS accepts TLS connections until Shutdown or Close is called. net/http serves all of them,
// with the certificate in HTTP.TLSConfig.
func (s *Server) ServeTLS(l net.Listener) error {
	s.prepare(nil)
	return s.HTTP.ServeTLS(l, "", "")
}

// prepare stores the Handler of s.HTTP in s, and replaces it with the handler that unchunk returns.
// l is nil if HTTP never passes a connection back to s.
func (s *Server) prepare(l *listener) {
	s.handler = s.HTTP.Handler
	s.HTTP.Handler = s.unchunk(l)
	inner := s.HTTP.ConnContext
	s.HTTP.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if inner != nil {
			ctx = inner(ctx, c)
		}
		if p, ok := c.(*passedConn); ok {
			return context.WithValue(ctx, passedKey{}, p)
		}
		return ctx
	}
}

// Shutdown closes the listener and the idle connections. Then it waits until all requests have
// ended, or until ctx ends, like http.Server.Shutdown.
func (s *Server) Shutdown(ctx context.Context) error {
	ended := s.end()
	err := s.HTTP.Shutdown(ctx)
	select {
	case <-ended:
		return err
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

// Close closes the listener and all connections.
func (s *Server) Close() error {
	s.end()
	err := s.HTTP.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
	return err
}

// end stops the reads of idle connections and makes add reject new connections. It returns a
// channel that is closed when no connection is left.
func (s *Server) end() <-chan struct{} {
	s.closing.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = make(chan struct{})
		if len(s.conns) == 0 {
			close(s.ended)
		}
	}
	for c := range s.conns {
		if !c.taken {
			_ = c.SetReadDeadline(past)
		}
	}
	return s.ended
}

// past is a time in the past. A deadline with this time ends a read at once.
var past = time.Unix(1, 0)

// accept accepts connections and starts a goroutine for each of them. It passes errors to
// HTTP.Serve. After a temporary error, HTTP.Serve pauses and calls Accept again.
func (s *Server) accept(l *listener) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			select {
			case l.failed <- err:
				continue
			case <-l.done:
				return
			}
		}
		if r, ok := inner.(interface{ Reserved() bool }); ok && r.Reserved() {
			l.pass(&passedConn{Conn: inner})
		} else if c := newConn(s, l, inner); s.add(c) {
			go c.serve()
		} else {
			_ = inner.Close()
		}
	}
}

// add registers a connection. It returns false if the Server is shutting down.
func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return false
	}
	if s.conns == nil {
		s.conns = map[*conn]struct{}{}
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.ended != nil && len(s.conns) == 0 {
		close(s.ended)
	}
}

// A listener is the listener that HTTP.Serve gets. Its method Accept returns the connections that
// the Server passes to HTTP.
type listener struct {
	net.Listener
	conns  chan net.Conn
	failed chan error // errors that the Accept of the original listener returned
	done   chan struct{}
	once   sync.Once
}

// Accept waits until the Server passes a connection to HTTP, and returns it.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case err := <-l.failed:
		return nil, err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close makes Accept return an error, and closes the original listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// pass passes the connection p to HTTP. If the listener is closed, pass closes p instead.
func (l *listener) pass(p *passedConn) {
	_ = p.SetDeadline(time.Time{})
	select {
	case l.conns <- p:
	case <-l.done:
		_ = p.Close()
	}
}

// Left returns a function that reports whether the client has closed the connection c. The
// function does not wait and consumes no bytes. It also works while HTTP serves the connection.
func Left(c net.Conn) func() bool {
	if p, ok := c.(*passedConn); ok {
		c = p.Conn
	}
	return newSocket(c).Left
}

// A passedConn is a connection that the Server passes to HTTP. Its Read first returns the bytes
// that the Server has read and not used.
type passedConn struct {
	net.Conn
	unused []byte
	// framedOnce says that unused has all headers of its first request, and none of them is
	// Content-Length.
	framedOnce bool
	requests   int // number of requests that HTTP has served
}

// Read reads the unused bytes first, then the connection.
func (p *passedConn) Read(b []byte) (int, error) {
	if len(p.unused) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.unused)
	if p.unused = p.unused[n:]; len(p.unused) == 0 {
		p.unused = nil
	}
	return n, nil
}

// plainError is the end of the headers in responses that net/http writes itself, to requests that
// it cannot parse. The headers of a handler's response never end in this way, because they contain
// Date.
var plainError = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// plainErrorHeaders are the headers that Write adds to responses that net/http writes itself.
const plainErrorHeaders = "\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'; frame-ancestors 'none'" +
	"\r\nCache-Control: no-store"

// Write writes b to the connection. If b is a response that net/http writes without calling a
// handler, Write adds security headers.
func (p *passedConn) Write(b []byte) (int, error) {
	status, rest, found := bytes.Cut(b, []byte("\r\n"))
	if !found || !bytes.HasPrefix(status, []byte("HTTP/1.")) || !bytes.HasPrefix(b[len(status):], plainError) {
		return p.Conn.Write(b)
	}
	if _, err := p.Conn.Write(slices.Concat(status, []byte(plainErrorHeaders+"\r\n"), rest)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// NetConn returns the connection of the client.
func (p *passedConn) NetConn() net.Conn { return p.Conn }

// CloseWrite closes the sending direction of the connection. The client can still read the last
// response before the connection is closed.
func (p *passedConn) CloseWrite() error {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
