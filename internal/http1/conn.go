package http1

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"
)

const (
	// bufferSize is the maximum size of a request that this package serves, headers and body
	// together. If a request is larger, this package passes the connection to net/http.
	bufferSize = 4 << 10
	// extendEvery is the minimum time between two changes of a connection's deadlines. Each
	// deadline is extendEvery later than the timeout of the Server requires. Therefore the
	// deadlines need not be changed for each request.
	extendEvery = 10 * time.Second
	// bodyWithin is how long this package waits for the body of a request. If the body takes
	// longer, this package passes the connection to net/http, which applies its ReadTimeout.
	bodyWithin = 500 * time.Millisecond
)

// A conn is a connection that a Server serves. Only the goroutine that runs serve uses its fields.
type conn struct {
	net.Conn
	server   *Server
	listener *listener
	socket   *socket
	isSocket bool // set if step uses the file descriptor of socket
	ctx      context.Context
	tracker  idleTracker // nil if the listener does not track idle connections
	taken    bool        // set while this package serves one request of a connection that net/http serves otherwise
	extended time.Time   // time at which the deadlines were last set; if it is zero, they must be set before the next wait

	buffer   []byte
	from, to int    // buffer[from:to] contains the bytes that are not part of a request yet
	pending  []byte // bytes to read before the bytes of the connection
	state    bufferState

	head    []byte       // request line and headers from which parsed was made; nil before the first request
	parsed  http.Request // the parsed request, without a body
	url     url.URL
	request http.Request // the request that is passed to the handler
	body    body
	answer  answer
}

func newConn(s *Server, l *listener, inner net.Conn) *conn {
	c := &conn{Conn: inner, server: s, listener: l, socket: newSocket(inner), buffer: make([]byte, bufferSize)}
	c.tracker, _ = inner.(idleTracker)
	ctx := context.Background()
	if s.HTTP.ConnContext != nil {
		ctx = s.HTTP.ConnContext(ctx, inner)
	}
	c.ctx = connContext{ctx, c.socket}
	return c
}

// An idleTracker is a connection whose listener tracks idle connections. The Server calls Idle when
// the connection starts to wait for a request, and Busy when a request arrives. Busy returns false
// if the listener has already closed the idle connection.
type idleTracker interface {
	Idle()
	Busy() bool
}

// A connContext is the context of all requests of a connection. It never ends. Its method Left
// reports whether the client has closed the connection.
type connContext struct {
	context.Context
	*socket
}

// serve answers requests until the connection is closed or is passed to net/http.
func (c *conn) serve() {
	defer func() {
		cause := recover()
		c.server.remove(c)
		if cause != nil || c.state != other {
			_ = c.Close()
		}
		if cause != nil && cause != http.ErrAbortHandler { //nolint:errorlint // net/http also compares with !=
			c.server.HTTP.ErrorLog.Printf("http: panic serving %v: %v\n%s", c.RemoteAddr(), cause, debug.Stack())
		}
	}()
	if c.head == nil { // net/http uses the same timeout for the first request of a connection
		_ = c.SetReadDeadline(time.Now().Add(c.server.HTTP.ReadHeaderTimeout))
	} else {
		c.rest()
	}
	if c.server.closing.Load() {
		return
	}
	c.isSocket = true
	if !c.socket.await(c.step) {
		c.isSocket = false
		c.step(0)
	}
	if c.state == part { // the rest of the body did not arrive in time
		c.state = other
	}
	if c.state == other {
		c.listener.pass(&passedConn{Conn: c.Conn, unused: c.buffer[c.from:c.to], framedOnce: c.lacksLength()})
	}
}

// A bufferState says what the buffer of a connection contains.
type bufferState int

const (
	nothing bufferState = iota
	usual               // a complete request, which next has parsed into c.request
	part                // the complete headers of a request and a part of its body
	other               // a request that only net/http can serve
	ended               // nothing: the client or the server has ended the connection
)

// step reads the bytes that have arrived and serves the requests in them. It returns true if the
// connection has ended or must be passed to net/http. If the connection has a socket, step does not
// wait for bytes. It returns false when it has read all bytes that have arrived.
func (c *conn) step(fd uintptr) (done bool) {
	for {
		n, wait := c.read(fd, c.buffer[c.to:])
		if wait {
			return false
		}
		if n == 0 {
			if c.state != part {
				c.state = ended
			}
			return true
		}
		c.to += n
		if c.tracker != nil && !c.tracker.Busy() {
			c.state = ended
			return true
		}
		if c.answerAll(fd) {
			return true
		}
	}
}

// read reads bytes from the connection into b. If the connection has a socket and no bytes have
// arrived, wait is true and n is 0. n is also 0 at the end of the connection and after an error.
func (c *conn) read(fd uintptr, b []byte) (n int, wait bool) {
	if len(c.pending) > 0 {
		n = copy(b, c.pending)
		c.pending = c.pending[n:]
		return n, false
	}
	if c.isSocket {
		return c.socket.read(fd, b)
	}
	n, _ = c.Read(b)
	return n, false
}

// answerAll serves all complete requests in the buffer, and prepares the connection to wait for
// more bytes. It returns true if the connection must not be read any further.
func (c *conn) answerAll(fd uintptr) (done bool) {
	began := c.state == part
	for c.state = c.next(); c.state == usual; c.state = c.next() {
		began = false
		if !c.respond(fd) {
			c.state = ended
			return true
		}
	}
	switch c.state {
	case nothing:
		c.from, c.to = 0, 0
		c.rest()
		// Shutdown sets closing first, and then sets a deadline that ends reads. rest may have
		// replaced this deadline by a later one. In that case, closing is already set here, and
		// answerAll returns true.
		return c.server.closing.Load()
	case part:
		c.from, c.to = 0, copy(c.buffer, c.buffer[c.from:c.to])
		if !began { // only the first bytes of a body start its deadline; further bytes do not extend it
			_ = c.SetReadDeadline(time.Now().Add(min(bodyWithin, c.server.HTTP.ReadTimeout)))
			c.extended = time.Time{}
		}
		return false
	}
	return true
}

// next looks for a complete request in the buffer and parses it into c.request. It returns the
// state of the buffer.
func (c *conn) next() bufferState {
	if c.from == c.to {
		return nothing
	}
	unused := c.buffer[c.from:c.to]
	head := bytes.Index(unused, headEnd) + len(headEnd)
	if head < len(headEnd) || !bytes.Equal(unused[:head], c.head) && !c.parse(unused[:head]) {
		return other
	}
	size := head + int(c.parsed.ContentLength)
	switch {
	case size > len(c.buffer):
		return other
	case size > len(unused):
		return part
	}
	c.body.Reset(unused[head:size])
	c.from += size
	c.request = c.parsed
	c.request.Body = &c.body
	return usual
}

var (
	headEnd    = []byte("\r\n\r\n")
	lengthName = []byte("content-length")
)

// lacksLength reports whether the buffer contains all headers of a request, without a Content-Length.
func (c *conn) lacksLength() bool {
	head, _, whole := bytes.Cut(c.buffer[c.from:c.to], headEnd)
	return whole && !bytes.Contains(bytes.ToLower(head), lengthName)
}

// rest prepares the wait for the next request: it sets the deadlines, and marks the connection as idle in
// the listener.
func (c *conn) rest() {
	c.extend()
	if c.tracker != nil {
		c.tracker.Idle()
	}
}

// extend sets new deadlines if the current ones were set at least extendEvery ago.
func (c *conn) extend() {
	now := time.Now()
	if now.Sub(c.extended) < extendEvery {
		return
	}
	c.extended = now
	_ = c.SetReadDeadline(now.Add(c.server.HTTP.IdleTimeout + extendEvery))
	_ = c.SetWriteDeadline(now.Add(c.server.HTTP.WriteTimeout + extendEvery))
}

// respond calls the handler for c.request and writes the response. It returns false if the
// connection must be closed.
func (c *conn) respond(fd uintptr) bool {
	c.answer.reset()
	c.server.handler.ServeHTTP(&c.answer, &c.request)
	wire, last := c.answer.encode(time.Now())
	if c.isSocket {
		wire = wire[c.socket.write(fd, wire):]
	}
	if len(wire) > 0 {
		c.extend()
		if _, err := c.Write(wire); err != nil {
			return false
		}
	}
	return !last
}

// A body is the body of the current request. It is always complete, because this package serves a
// request only after its body has arrived.
type body struct{ bytes.Reader }

// Close does nothing.
func (*body) Close() error { return nil }
