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
)

// A conn is a connection of a Server. Only the goroutine of serve uses its fields.
type conn struct {
	net.Conn
	server   *Server
	listener *listener
	ctx      context.Context
	extended time.Time // when the deadlines were set; zero: set them before the next read

	buffer   []byte
	from, to int // the bytes of buffer that no request has used

	head    []byte       // line and headers of the last request, from which parsed was made
	parsed  http.Request // without a body
	url     url.URL
	request http.Request // the one that the handler gets
	body    body
	answer  answer
}

func newConn(s *Server, l *listener, inner net.Conn) *conn {
	c := &conn{Conn: inner, server: s, listener: l, buffer: make([]byte, bufferSize)}
	c.ctx = connContext{context.Background(), newPeeker(inner)}
	return c
}

// A connContext is the context of all requests of a connection. It does not end. It
// has the method Left.
type connContext struct {
	context.Context
	*peeker
}

// serve answers requests until the connection ends or goes to HTTP.
func (c *conn) serve() {
	passed := false
	defer func() {
		cause := recover()
		c.server.remove(c)
		if !passed {
			_ = c.Close()
		}
		if cause != nil && cause != http.ErrAbortHandler { //nolint:errorlint // net/http compares it too
			c.server.HTTP.ErrorLog.Printf("http: panic serving %v: %v\n%s", c.RemoteAddr(), cause, debug.Stack())
		}
	}()
	for {
		switch c.next() {
		case ended:
			return
		case other:
			passed = true
			c.listener.pass(c.Conn, c.buffer[c.from:c.to])
			return
		}
		if !c.respond() {
			return
		}
	}
}

// A found is what next found.
type found int

const (
	usual found = iota // a request, which is in c.request
	other              // a request that HTTP serves
	ended              // the end of the connection
)

// next reads and parses a request.
func (c *conn) next() found {
	if c.from == c.to && !c.fill() {
		return ended
	}
	unused := c.buffer[c.from:c.to]
	head := bytes.Index(unused, headEnd) + len(headEnd)
	if head < len(headEnd) || !bytes.Equal(unused[:head], c.head) && !c.parse(unused[:head]) {
		return other
	}
	size := head + int(c.parsed.ContentLength)
	if !c.complete(size) {
		return other
	}
	c.body.Reset(c.buffer[c.from+head : c.from+size])
	c.from += size
	c.request = c.parsed
	c.request.Body = &c.body
	return usual
}

var headEnd = []byte("\r\n\r\n")

// fill waits for the first bytes of a request.
func (c *conn) fill() bool {
	c.from, c.to = 0, 0
	if c.head == nil { // net/http waits as long for the first request
		_ = c.SetReadDeadline(time.Now().Add(c.server.HTTP.ReadHeaderTimeout))
	} else {
		c.extend()
	}
	// Shutdown sets closing before it ends the reads: it does so after this
	// deadline was set, or closing is set here.
	if c.server.closing.Load() {
		return false
	}
	c.to, _ = c.Read(c.buffer)
	return c.to > 0
}

// complete waits until the buffer has so many bytes of a request.
func (c *conn) complete(size int) bool {
	if c.to-c.from >= size {
		return true
	}
	if size > len(c.buffer) {
		return false
	}
	c.from, c.to = 0, copy(c.buffer, c.buffer[c.from:c.to])
	_ = c.SetReadDeadline(time.Now().Add(c.server.HTTP.ReadTimeout))
	c.extended = time.Time{}
	for c.to < size {
		n, err := c.Read(c.buffer[c.to:])
		c.to += n
		if err != nil {
			return c.to >= size
		}
	}
	return true
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
func (c *conn) respond() bool {
	c.answer.reset()
	c.server.HTTP.Handler.ServeHTTP(&c.answer, &c.request)
	wire, last := c.answer.encode(time.Now())
	c.extend()
	_, err := c.Write(wire)
	return err == nil && !last
}

// A body is that of the request that is being answered.
type body struct{ bytes.Reader }

// Close does nothing.
func (*body) Close() error { return nil }
