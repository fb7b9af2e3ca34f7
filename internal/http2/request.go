package http2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
)

// A request contains the fields of a stream that only requests of the Handler use.
type request struct {
	changed  *sync.Cond // signals that bytes have arrived, or that the request or the stream has ended
	streams  bool       // the path is in Server.Streams, so the client may send several messages
	handed   time.Time  // when Read last returned a part of the body
	whole    int        // number of bytes of part that belong to complete messages
	stop     context.CancelFunc
	unread   int // bytes of the body that the Handler has read, and that no WINDOW_UPDATE has reported as read yet
	header   http.Header
	wrote    bool // the headers are in out
	closed   bool // the Handler has closed the body
	trailers []string
}

// request starts the Handler in a goroutine for a new stream.
func (c *conn) request(s *stream, f *http2.MetaHeadersFrame) {
	s.changed = sync.NewCond(&c.mu)
	s.header = http.Header{}
	s.streams = slices.Contains(c.server.Streams, f.PseudoValue("path"))
	var ctx context.Context
	ctx, s.stop = context.WithCancel(c.ctx)
	r := &http.Request{
		Method: f.PseudoValue("method"), Host: f.PseudoValue("authority"), RequestURI: f.PseudoValue("path"),
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: make(http.Header, len(s.Header)), Body: requestBody{s}, ContentLength: -1,
		RemoteAddr: c.socket.RemoteAddr().String(), TLS: c.tls,
	}
	for _, h := range s.Header {
		name := textproto.CanonicalMIMEHeaderKey(h.Name)
		r.Header[name] = append(r.Header[name], h.Value)
	}
	var err error
	if r.URL, err = url.ParseRequestURI(r.RequestURI); err != nil {
		r.URL = &url.URL{Path: r.RequestURI}
	}
	go s.serve(r.WithContext(context.WithValue(ctx, http.LocalAddrContextKey, c.socket.LocalAddr())))
}

// serve calls the Handler, and then ends the stream.
func (s *stream) serve(r *http.Request) {
	c := s.conn
	panicked := c.server.protect(func() { c.server.Handler.ServeHTTP(responseWriter{s}, r) })
	s.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.answered {
		if panicked {
			_ = c.framer.WriteRSTStream(s.id, http2.ErrCodeInternal)
		} else {
			s.trailer()
		}
		s.answered = true
		delete(c.streams, s.id)
	}
	c.unhold(s, s.held)
	c.running--
	c.write()
	c.idle()
}

// trailer ends the answer with the trailers.
func (s *stream) trailer() {
	c := s.conn
	s.writeHeader(http.StatusOK)
	var fields []hpack.HeaderField
	for name, values := range s.header {
		name, marked := strings.CutPrefix(name, http.TrailerPrefix)
		if marked || slices.Contains(s.trailers, name) {
			for _, value := range values {
				fields = append(fields, hpack.HeaderField{Name: strings.ToLower(name), Value: value})
			}
		}
	}
	switch {
	case len(fields) == 0 && c.draining:
		c.writeHeaders(s.id, true, []hpack.HeaderField{
			{Name: "grpc-status", Value: strconv.Itoa(int(codes.Unavailable))}, {Name: "grpc-message", Value: "the node shuts down"},
		})
	case len(fields) == 0:
		_ = c.framer.WriteData(s.id, true, nil)
	default:
		c.writeHeaders(s.id, true, fields)
	}
	if !s.received {
		_ = c.framer.WriteRSTStream(s.id, http2.ErrCodeNo)
	}
}

// writeHeaders writes a block of headers. It splits the block into several frames if the block is
// larger than the client's maximum frame size.
func (c *conn) writeHeaders(id uint32, end bool, fields []hpack.HeaderField) {
	block := c.encode(fields...)
	first := block[:min(len(block), c.frame)]
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: first, EndHeaders: len(first) == len(block), EndStream: end,
	})
	for block = block[len(first):]; len(block) > 0; {
		part := block[:min(len(block), c.frame)]
		block = block[len(part):]
		_ = c.framer.WriteContinuation(id, len(block) == 0, part)
	}
}

// pass adds the bytes of a DATA frame to the body of a request that the Handler serves.
func (c *conn) pass(s *stream, f *http2.DataFrame) error {
	b := f.Data()
	if s.request.closed {
		return nil
	}
	if len(s.part)+s.unread+int(f.Length) > c.server.Limits.Message+prefixSize {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeFlowControl}
	}
	if !c.hold(s, len(b)) {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeEnhanceYourCalm}
	}
	s.unread += int(f.Length) - len(b)
	s.part = append(s.part, b...)
	if len(s.part)-s.whole >= prefixSize && length(s.part[s.whole:]) > c.server.Limits.Message {
		s.whole = len(s.part) // pass the part on: grpc-go then answers that the message is too large
		s.changed.Broadcast()
	}
	for s.streams && len(s.part)-s.whole >= prefixSize && len(s.part)-s.whole-prefixSize >= length(s.part[s.whole:]) {
		s.whole += prefixSize + length(s.part[s.whole:])
		s.changed.Broadcast()
	}
	return nil
}

// A requestBody is the body of a request that the Handler serves.
type requestBody struct{ *stream }

// Read waits until the body is complete. If the client may send several messages, Read waits only
// until one message is complete. It never returns a part of a message, because grpc-go allocates 16
// KiB for each call of Read and does not limit the number of calls. For the same reason, Read waits
// for a short pause before it returns the next messages of a stream.
func (s requestBody) Read(b []byte) (int, error) {
	const pause = 5 * time.Millisecond
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if since := time.Since(s.handed); s.streams && s.whole == 0 && since < pause {
		c.mu.Unlock()
		time.Sleep(pause - since)
		c.mu.Lock()
	}
	for s.whole == 0 {
		switch {
		case s.answered, s.request.closed:
			return 0, errReset
		case s.received:
			if s.whole = len(s.part); s.whole == 0 {
				return 0, io.EOF
			}
			continue
		}
		s.changed.Wait()
	}
	n := copy(b, s.part[:s.whole])
	if s.part, s.whole = s.part[n:], s.whole-n; len(s.part) == 0 {
		s.part = nil // frees the memory of the bytes that the Handler has read
	}
	s.handed = time.Now()
	c.unhold(s.stream, n)
	if s.unread += n; s.unread > c.server.Limits.Message/2 && !s.received && !s.answered {
		_ = c.framer.WriteWindowUpdate(s.id, uint32(s.unread)) //nolint:gosec // at most Limits.Message
		s.unread = 0
		c.write()
	}
	return n, nil
}

// Close makes Read return an error.
func (s requestBody) Close() error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.request.closed = true
	c.unhold(s.stream, s.held)
	s.part, s.whole = nil, 0
	s.changed.Broadcast()
	return nil
}

var errReset = errors.New("the stream was reset")

// A responseWriter is the http.ResponseWriter of a request that the Handler serves.
type responseWriter struct{ *stream }

// Header returns the headers of the answer. After the headers are sent, the Handler adds the
// trailers to the same map.
func (s responseWriter) Header() http.Header { return s.header }

// WriteHeader sends the headers.
func (s responseWriter) WriteHeader(status int) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.writeHeader(status)
}

// connectionHeaders are headers that HTTP/2 does not allow.
var connectionHeaders = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade"}

func (s *stream) writeHeader(status int) {
	if s.wrote || s.answered {
		return
	}
	s.wrote = true
	fields := []hpack.HeaderField{{Name: ":status", Value: strconv.Itoa(status)}}
	for name, values := range s.header {
		if name == "Trailer" {
			for _, value := range values {
				s.trailers = append(s.trailers, textproto.CanonicalMIMEHeaderKey(value))
			}
		}
	}
	for name, values := range s.header {
		if strings.HasPrefix(name, http.TrailerPrefix) || slices.Contains(s.trailers, name) || slices.Contains(connectionHeaders, name) {
			continue
		}
		for _, value := range values {
			fields = append(fields, hpack.HeaderField{Name: strings.ToLower(name), Value: value})
		}
	}
	s.conn.writeHeaders(s.id, false, fields)
}

// Write sends bytes of the body. It waits while the client accepts no more bytes.
func (s responseWriter) Write(b []byte) (int, error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.writeHeader(http.StatusOK)
	for wrote := 0; ; {
		if s.answered {
			return wrote, errReset
		}
		if wrote == len(b) {
			return wrote, nil
		}
		n := int(min(int64(len(b)-wrote), c.window, s.window, int64(c.frame)))
		if n <= 0 || len(c.out.b) > maxUnsent {
			c.write()
			switch {
			case s.answered:
			case len(c.out.b) > maxUnsent: // another goroutine writes
				c.room.Wait()
			case min(c.window, s.window) <= 0:
				c.opened.Wait()
			}
			continue
		}
		_ = c.framer.WriteData(s.id, false, b[wrote:wrote+n])
		wrote += n
		s.window -= int64(n)
		c.window -= int64(n)
	}
}

// Flush sends what was written.
func (s responseWriter) Flush() {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.writeHeader(http.StatusOK)
	c.write()
}

// protect calls f. If f panics, protect logs the panic and returns true. It does not log
// http.ErrAbortHandler, like net/http.
func (s *Server) protect(f func()) (panicked bool) {
	defer func() {
		cause := recover()
		if panicked = cause != nil; panicked && cause != http.ErrAbortHandler { //nolint:errorlint // net/http also compares with ==
			s.Logger.Error("panic in a gRPC call", "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
		}
	}()
	f()
	return false
}
