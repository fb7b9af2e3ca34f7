package http1

import (
	"bufio"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

type passedKey struct{}

// unchunk returns the handler for the server of net/http. This handler serves requests with
// Transfer-Encoding itself, because net/http reports neither the sizes of chunks nor whether the
// request also had a Content-Length. It passes all other requests to the handler of s.
//
// A request that has both Transfer-Encoding and Content-Length may be an attack, so its connection
// must be closed after the response (RFC 9112, section 6.1). unchunk therefore closes the
// connection unless it is certain that the request had no Content-Length. If that is certain, this
// package serves the connection again. l is the listener to which this package passes connections
// for net/http.
func (s *Server) unchunk(l *listener) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := r.Context().Value(passedKey{}).(*passedConn)
		framedOnce := p != nil && p.framedOnce && p.requests == 0
		if p != nil {
			p.requests++
		}
		if len(r.TransferEncoding) == 0 {
			s.handler.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		switch r.Method {
		case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		default: // the handlers of other paths do not read the body here, and their responses may be streams
			s.handler.ServeHTTP(w, r)
			// After the handler has returned, net/http reads the rest of the body before it closes
			// the connection. Without this deadline, a slow client could keep the connection open
			// for the whole ReadTimeout.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingerFor))
			return
		}
		inner, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil { // this Server has not accepted the connection
			s.handler.ServeHTTP(w, r)
			return
		}
		keep := framedOnce && len(p.unused) == 0 && !r.Close
		if keep {
			inner = p.Conn
		}
		c := newConn(s, l, inner)
		c.taken = true
		if !s.add(c) {
			_ = inner.Close()
			return
		}
		c.takeOver(r, buffered.Reader, keep)
	})
}

// takeOver serves the request r on a connection that net/http has served so far. It reads the body
// of r as chunks from in. If keep is true, this package then serves further requests of the
// connection. Otherwise takeOver closes the connection.
func (c *conn) takeOver(r *http.Request, in *bufio.Reader, keep bool) {
	kept := false
	defer func() { // runs even after a panic, which net/http logs
		if !kept {
			c.server.remove(c)
			c.linger()
		}
	}()
	_ = c.SetReadDeadline(time.Now().Add(c.server.HTTP.ReadTimeout))
	body := &chunks{in: in, limit: math.MaxInt64}
	if c.server.MaxBody != nil {
		body.limit = c.server.MaxBody(r)
	}
	if strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		body.before = func() { _, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n") }
	}
	r.Body = body
	c.answer.reset()
	if !keep {
		c.answer.header.Set("Connection", "close")
	}
	c.server.handler.ServeHTTP(&c.answer, r)
	whole := errors.Is(body.err, io.EOF)
	if !whole {
		c.answer.header.Set("Connection", "close")
	}
	wire, last := c.answer.encode(time.Now())
	_ = c.SetWriteDeadline(time.Now().Add(c.server.HTTP.WriteTimeout))
	if _, err := c.Write(wire); err != nil || last {
		return
	}
	c.pending = make([]byte, in.Buffered())
	_, _ = io.ReadFull(in, c.pending)
	c.head = []byte{} // not nil, because a nil head means that the connection has had no request yet
	if kept = c.server.giveBack(c); kept {
		go c.serve()
	}
}

// giveBack clears c.taken, which ends the takeover of the connection c. It returns false if the
// Server is shutting down. The caller must then close the connection.
func (s *Server) giveBack(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.taken = false
	return s.ended == nil
}

// lingerFor is how long linger waits until the client has sent everything. If a server closes a
// connection that has unread bytes, TCP sends a reset, and the client may not receive the response.
const lingerFor = 500 * time.Millisecond

// linger gives the client time to read the response, and then closes the connection.
func (c *conn) linger() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(lingerFor))
		_, _ = io.CopyN(io.Discard, c.Conn, 256<<10)
	}
	_ = c.Conn.Close()
}

// A chunks is a request body in chunked encoding. Read returns the data without the chunk sizes. It
// reads the trailer at the end of the body and ignores it.
type chunks struct {
	in     *bufio.Reader
	limit  int64  // maximum size of one chunk, in bytes
	before func() // called before the first read; may be nil

	left     int64 // number of bytes of the current chunk that are not read yet
	begun    bool
	overhead int // number of bytes of chunk sizes and trailers so far, minus an allowance for each chunk
	err      error
}

var errChunk = errors.New("malformed chunked body")

// maxOverhead is the maximum of chunks.overhead. A body with more overhead is rejected, because it
// consists mainly of chunk sizes. net/http has the same maximum.
const maxOverhead = 16 << 10

// Read reads data of the body, without the chunk sizes.
func (b *chunks) Read(p []byte) (n int, err error) {
	if b.before != nil {
		b.before()
		b.before = nil
	}
	if b.err == nil && b.left == 0 && len(p) > 0 {
		b.err = b.next()
	}
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	n, err = b.in.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	b.err = err
	return n, err
}

// next reads the line with the size of the next chunk. After the last chunk, it reads the
// trailer.
func (b *chunks) next() error {
	if b.begun {
		if line, err := b.line(); err != nil || line != "" {
			return errors.Join(errChunk, err)
		}
	}
	b.begun = true
	line, err := b.line()
	if err != nil {
		return err
	}
	digits, _, _ := strings.Cut(line, ";")
	size, err := strconv.ParseUint(strings.TrimRight(digits, " \t"), 16, 63)
	if err != nil {
		return errChunk
	}
	if b.left = int64(size); b.left > b.limit {
		return &http.MaxBytesError{Limit: b.limit}
	}
	if b.overhead -= 16 + int(min(2*size, maxOverhead)); b.overhead < 0 {
		b.overhead = 0
	}
	if size > 0 {
		return nil
	}
	for {
		if line, err = b.line(); err != nil {
			return err
		}
		if line == "" {
			return io.EOF
		}
	}
}

// line reads a line that ends with CR LF, and returns it without CR LF.
func (b *chunks) line() (string, error) {
	text, err := b.in.ReadSlice('\n')
	if errors.Is(err, io.EOF) {
		return "", io.ErrUnexpectedEOF
	}
	line, ok := strings.CutSuffix(string(text), "\r\n")
	b.overhead += len(text)
	if err != nil || !ok || strings.Contains(line, "\r") || b.overhead > maxOverhead {
		return "", errors.Join(errChunk, err)
	}
	return line, nil
}

// Close does nothing.
func (b *chunks) Close() error { return nil }
