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
	// bufferSize bounds a request with its headers and body. Larger requests go to
	// net/http.
	bufferSize = 4 << 10
	// extendEvery is how often a connection in use renews its deadlines. They are
	// later than the timeouts of the Server by as much.
	extendEvery = 10 * time.Second
	// bodyWithin is how long a body may take here. A slower one goes to net/http,
	// whose ReadTimeout then begins.
	bodyWithin = 500 * time.Millisecond
)

// A conn is a connection of a Server. Only the goroutine of serve uses its fields.
type conn struct {
	net.Conn
	server   *Server
	listener *listener
	socket   *socket
	isSocket bool // step reads and writes the file descriptor of socket
	ctx      context.Context
	watched  watched   // nil: the listener does not count
	taken    bool      // from HTTP, during a request
	extended time.Time // when the deadlines were set; zero: set them before the next wait

	buffer   []byte
	from, to int    // the bytes of buffer that no request has used
	pending  []byte // they come before those of the connection
	found    found

	head    []byte       // line and headers of the last request, from which parsed was made
	parsed  http.Request // without a body
	url     url.URL
	request http.Request // the one that the handler gets
	body    body
	answer  answer
}

func newConn(s *Server, l *listener, inner net.Conn) *conn {
	c := &conn{Conn: inner, server: s, listener: l, socket: newSocket(inner), buffer: make([]byte, bufferSize)}
	c.watched, _ = inner.(watched)
	ctx := context.Background()
	if s.HTTP.ConnContext != nil {
		ctx = s.HTTP.ConnContext(ctx, inner)
	}
	c.ctx = connContext{ctx, c.socket}
	return c
}

// A watched connection counts idle connections in its listener. The Server calls Idle
// when the connection begins to wait for a request, and Busy when a request arrives. Busy
// returns false if the listener has closed the connection.
type watched interface {
	Idle()
	Busy() bool
}

// A connContext is the context of all requests of a connection. It does not end. It
// has the method Left.
type connContext struct {
	context.Context
	*socket
}

// serve answers requests until the connection ends or goes to HTTP.
func (c *conn) serve() {
	defer func() {
		cause := recover()
		c.server.remove(c)
		if cause != nil || c.found != other {
			_ = c.Close()
		}
		if cause != nil && cause != http.ErrAbortHandler { //nolint:errorlint // net/http compares it too
			c.server.HTTP.ErrorLog.Printf("http: panic serving %v: %v\n%s", c.RemoteAddr(), cause, debug.Stack())
		}
	}()
	if c.head == nil { // net/http waits as long for the first request
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
	if c.found == part { // the rest of the request does not come
		c.found = other
	}
	if c.found == other {
		c.listener.pass(&passed{Conn: c.Conn, unused: c.buffer[c.from:c.to], framedOnce: c.lacksLength()})
	}
}

// A found is what the unused bytes of a connection begin with.
type found int

const (
	nothing found = iota
	usual         // a request, which is in c.request
	part          // the head of a usual request, and not all of its body
	other         // a request that HTTP serves
	ended         // the end of the connection
)

// step reads what arrives and answers the requests in it. It returns true when the
// connection ends or goes to HTTP. A socket's step does not wait for bytes: it
// returns false when it has read all that have arrived.
func (c *conn) step(fd uintptr) (done bool) {
	for {
		n, wait := c.read(fd, c.buffer[c.to:])
		if wait {
			return false
		}
		if n == 0 {
			if c.found != part {
				c.found = ended
			}
			return true
		}
		c.to += n
		if c.watched != nil && !c.watched.Busy() {
			c.found = ended
			return true
		}
		if c.answerAll(fd) {
			return true
		}
	}
}

// read reads into b. If a socket has nothing to read, wait is true. n is 0 at the
// end of the connection and after an error.
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

// answerAll answers all complete requests in the buffer, and prepares the
// connection for the wait for more bytes. It returns true if none are to be read.
func (c *conn) answerAll(fd uintptr) (done bool) {
	began := c.found == part
	for c.found = c.next(); c.found == usual; c.found = c.next() {
		began = false
		if !c.respond(fd) {
			c.found = ended
			return true
		}
	}
	switch c.found {
	case nothing:
		c.from, c.to = 0, 0
		c.rest()
		// Shutdown sets closing before it ends the reads: it does so after this
		// deadline was set, or closing is set here.
		return c.server.closing.Load()
	case part:
		c.from, c.to = 0, copy(c.buffer, c.buffer[c.from:c.to])
		if !began { // further bytes of the same request do not renew the deadline
			_ = c.SetReadDeadline(time.Now().Add(min(bodyWithin, c.server.HTTP.ReadTimeout)))
			c.extended = time.Time{}
		}
		return false
	}
	return true
}

// next parses the next request in the buffer.
func (c *conn) next() found {
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

// lacksLength reports whether the whole head of a request is in the buffer and has no
// Content-Length.
func (c *conn) lacksLength() bool {
	head, _, whole := bytes.Cut(c.buffer[c.from:c.to], headEnd)
	return whole && !bytes.Contains(bytes.ToLower(head), lengthName)
}

// rest prepares the wait for the next request.
func (c *conn) rest() {
	c.extend()
	if c.watched != nil {
		c.watched.Idle()
	}
}

// extend renews the deadlines if they are old.
func (c *conn) extend() {
	now := time.Now()
	if now.Sub(c.extended) < extendEvery {
		return
	}
	c.extended = now
	_ = c.SetReadDeadline(now.Add(c.server.HTTP.IdleTimeout + extendEvery))
	_ = c.SetWriteDeadline(now.Add(c.server.HTTP.WriteTimeout + extendEvery))
}

// respond calls the handler and writes the answer. It returns false if the
// connection is to be closed.
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

// A body is that of the request that is being answered.
type body struct{ bytes.Reader }

// Close does nothing.
func (*body) Close() error { return nil }
