package http2

import (
	"context"
	"encoding/binary"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
)

// prefixSize is the size of the prefix of a gRPC message in bytes: 1 for the compression flag, and
// 4 for the length of the message.
const prefixSize = 5

// A Call is a unary gRPC call whose message has arrived. It is only valid until its Method returns.
type Call struct {
	From    netip.Addr          // address of the client; not valid if the address of the connection is unknown
	Header  []hpack.HeaderField // the metadata of the call; the names are in lower case
	Message []byte              // the encoded message

	answer []byte // with the prefix
	code   codes.Code
	reason string
}

// Values returns all values of the metadata with this name, which must be in lower case.
func (c *Call) Values(name string) (values []string) {
	for i := range c.Header {
		if c.Header[i].Name == name {
			values = append(values, c.Header[i].Value)
		}
	}
	return values
}

// Value returns a value of the metadata with this name, which must be in lower case. n is the
// number of values with this name.
func (c *Call) Value(name string) (value string, n int) {
	for i := range c.Header {
		if c.Header[i].Name == name {
			value = c.Header[i].Value
			n++
		}
	}
	return value, n
}

// Answer ends the call with a message. The function encode appends the message to its argument and
// returns the result. If encode returns an error, the call fails with the code INTERNAL.
func (c *Call) Answer(encode func([]byte) ([]byte, error)) {
	b, err := encode(append(c.answer[:0], 0, 0, 0, 0, 0))
	if err != nil {
		c.Fail(codes.Internal, "the answer cannot be encoded: "+err.Error())
		return
	}
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-prefixSize)) //nolint:gosec // an answer of 4 GiB does not fit into memory
	c.answer, c.code = b, codes.OK
}

// Fail ends the call with a status other than OK. The client receives the text reason.
func (c *Call) Fail(code codes.Code, reason string) { c.code, c.reason = code, reason }

// A stream is one stream of an HTTP/2 connection. It is a Call that a Method serves, or a request
// that the Handler serves. The mutex of the conn protects all fields. The exception is the Call
// while its Method is running: then only the Method uses the Call.
type stream struct {
	Call
	request

	conn     *conn
	method   *Method // nil if the Handler serves the request
	id       uint32
	window   int64     // number of bytes that the client still accepts on this stream (flow control)
	began    time.Time // when the headers arrived
	until    time.Time // deadline of the client; zero if the client has sent none
	declared int64     // value of the header content-length; -1 without the header
	body     int64     // bytes that have arrived
	part     []byte    // arrived bytes that no Method or Handler has read yet
	held     int       // number of bytes of part that the method hold has counted in room
	room     *held     // nil before the first
	received bool      // the client has sent its whole request
	answered bool      // the last frame of the answer is in conn.out, or the stream was reset
	decided  bool      // the answer is ready; a part of it may wait until the client accepts more bytes
	ready    time.Time // when the answer became ready; zero before
	sent     int       // number of bytes of the answer that are in conn.out
	waits    bool      // conn.waiting contains the ID of this stream
}

var streams = sync.Pool{New: func() any { return new(stream) }}

// usual reports whether a Method can serve the request. The request must be an uncompressed gRPC
// call in the encoding of protobuf. usual also sets the deadline of the stream from the header
// grpc-timeout.
func (s *stream) usual() bool {
	kind := ""
	for _, h := range s.Header {
		switch h.Name {
		case "content-type":
			kind = h.Value
		case "grpc-encoding":
			if h.Value != "identity" {
				return false
			}
		case "grpc-timeout":
			within, ok := parseTimeout(h.Value)
			if !ok {
				return false // the Handler answers with the error for an invalid grpc-timeout
			}
			s.until = s.began.Add(within)
		}
	}
	return kind == "application/grpc" || kind == "application/grpc+proto"
}

// parseTimeout parses the header grpc-timeout, which consists of at most eight digits and a unit.
func parseTimeout(text string) (time.Duration, bool) {
	if len(text) < 2 || len(text) > 9 {
		return 0, false
	}
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 32)
	if err != nil {
		return 0, false
	}
	unit := map[byte]time.Duration{
		'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
	}[text[len(text)-1]]
	if unit == 0 {
		return 0, false
	}
	return min(time.Duration(n), 24*time.Hour/unit) * unit, true
}

// A failure is the gRPC status of a call that this package itself ends with an error.
type failure struct {
	code   codes.Code
	reason string
}

var (
	errIncomplete = failure{codes.DeadlineExceeded, "the message did not arrive in time"}
	errNoMessage  = failure{codes.Internal, "the call has no complete message"}
	errTooMany    = failure{codes.Internal, "the call has more than one message, and its method takes one"}
	errCompressed = failure{codes.Unimplemented, "the message is compressed, and the call has no header grpc-encoding"}
	errTooLarge   = failure{codes.ResourceExhausted, "the message is too large"}
	errParts      = failure{codes.ResourceExhausted, "too many parts of messages wait on this node: send each message at once"}
)

// collect adds the bytes of a DATA frame to the message of a call. If the message is too large, or
// the node has no room for it, collect ends the call and returns false.
func (c *conn) collect(s *stream, f *http2.DataFrame) bool {
	b := f.Data()
	if len(s.part)+len(b) > c.server.Limits.Message+prefixSize {
		c.abort(s, errTooLarge)
		return false
	}
	if !f.StreamEnded() {
		if !c.hold(s, len(b)) {
			c.abort(s, errParts)
			return false
		}
	}
	s.part = append(s.part, b...)
	if len(s.part) >= prefixSize && length(s.part) > c.server.Limits.Message {
		c.abort(s, errTooLarge)
		return false
	}
	return true
}

// complete handles the end of a client's request. It passes a complete call to join, and ends a
// call whose message is invalid.
func (c *conn) complete(s *stream) error {
	if s.declared != -1 && s.declared != s.body {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
	}
	s.received = true
	if s.method == nil {
		s.changed.Broadcast()
		return nil
	}
	c.unhold(s, s.held)
	switch {
	case len(s.part) < prefixSize || length(s.part) > len(s.part)-prefixSize:
		c.abort(s, errNoMessage)
	case length(s.part) < len(s.part)-prefixSize:
		c.abort(s, errTooMany)
	case s.part[0] != 0:
		c.abort(s, errCompressed)
	default:
		c.noise = 0
		s.Message = s.part[prefixSize:]
		c.join(s)
	}
	return nil
}

// hold counts n bytes of a message that is not complete yet. It returns false if the limits of such
// bytes, for this connection and for the node, leave no room for them.
func (c *conn) hold(s *stream, n int) bool {
	most := c.server.Limits.Parts
	if s.room == nil {
		s.room = &c.server.unknown
		if c.server.Known(&s.Call) {
			s.room = &c.server.known
		}
	}
	if s.room == &c.server.unknown {
		most /= 16
	}
	if c.held+n > c.server.Limits.Parts/2 || !s.room.take(n, most) {
		return false
	}
	s.held += n
	c.held += n
	return true
}

// unhold subtracts n bytes from the counts of hold, because these bytes are no longer in memory.
func (c *conn) unhold(s *stream, n int) {
	if n = min(n, s.held); n > 0 {
		s.room.release(n)
		s.held -= n
		c.held -= n
	}
}

// A group contains calls of one Method. One goroutine passes them to the Method together.
type group struct {
	conn    *conn
	method  *Method
	streams []*stream
	calls   []*Call
}

var groups = sync.Pool{New: func() any { return new(group) }}

// join adds a complete call to a group in c.ready. decide later passes the groups to their Methods.
func (c *conn) join(s *stream) {
	if s.method.Together {
		for _, g := range c.ready {
			if g.method == s.method && len(g.streams) < maxTogether {
				g.streams = append(g.streams, s)
				return
			}
		}
	}
	g := groups.Get().(*group)
	g.conn, g.method, g.streams = c, s.method, append(g.streams, s)
	c.ready = append(c.ready, g)
}

// decide passes each group in c.ready to its Method. Each group gets a goroutine. If maxWorkers
// groups are running already, decide itself waits for the Method, so that the connection reads no
// further calls.
func (c *conn) decide() {
	for _, g := range c.ready {
		if !g.method.Together {
			go g.serve()
		} else if c.workers.Add(1) <= maxWorkers {
			go func() { defer c.workers.Add(-1); g.serve() }()
		} else {
			g.serve()
			c.workers.Add(-1)
		}
	}
	clear(c.ready)
	c.ready = c.ready[:0]
}

// drop removes two kinds of calls from the group: calls that their client has reset, and calls
// whose deadline has passed. The latter get an answer with an error.
func (g *group) drop(now time.Time) {
	c := g.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := g.streams[:0]
	for _, s := range g.streams {
		switch {
		case s.answered:
			c.finish(s)
		case !s.until.IsZero() && now.After(s.until):
			s.Fail(codes.DeadlineExceeded, "the deadline of the call has passed")
			c.answer(s)
		default:
			rest = append(rest, s)
		}
	}
	clear(g.streams[len(rest):])
	g.streams = rest
}

// A callContext is the context of the calls of a group. It never ends. The method Left reports
// whether the clients have gone.
type callContext struct {
	context.Context
	*group
}

var noContext = context.Background()

// serve passes the calls of the group to their Method, and sends the answers.
func (g *group) serve() {
	c := g.conn
	g.drop(time.Now())
	for _, s := range g.streams {
		s.Fail(codes.Internal, "internal error") // if the Method panics
		g.calls = append(g.calls, &s.Call)
	}
	if len(g.calls) > 0 {
		c.server.protect(func() { g.method.Serve(callContext{noContext, g}, g.calls) })
	}
	c.mu.Lock()
	for _, s := range g.streams {
		c.answer(s)
	}
	if !c.out.writing && c.workers.Load() > 1 {
		// while writing is set, other groups of the connection only add their answers to c.out;
		// this group then writes all of them
		c.out.writing = true
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
		c.out.writing = false
	}
	c.write()
	c.idle()
	c.mu.Unlock()
	g.release()
}

// Left reports whether no client waits for an answer of the group any more. For each call, the
// client has reset the call, or its deadline has passed, or the connection is closed.
func (g *group) Left() bool {
	now := time.Now()
	g.conn.mu.Lock()
	defer g.conn.mu.Unlock()
	if g.conn.closed {
		return true
	}
	for _, s := range g.streams {
		if !s.answered && (s.until.IsZero() || now.Before(s.until)) {
			return false
		}
	}
	return true
}

func (g *group) release() {
	clear(g.streams)
	clear(g.calls)
	g.conn, g.method, g.streams, g.calls = nil, nil, g.streams[:0], g.calls[:0]
	groups.Put(g)
}

// answer sends the answer of a call. If the client does not accept all bytes yet (flow control), it
// sends only a part. The caller holds c.mu.
func (c *conn) answer(s *stream) {
	switch {
	case s.answered || c.closed:
		c.finish(s)
	case s.code != codes.OK:
		c.trailersOnly(s, failure{s.code, s.reason})
		c.finish(s)
	default:
		s.decided, s.sent, s.ready = true, 0, time.Now()
		if cap(s.part) > maxKept { // free large buffers, because the answer may wait for the client
			s.part, s.Message = nil, nil
		}
		_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: c.first(okHeaders), EndHeaders: true})
		c.resume(s)
	}
}

// resume continues the answer of a stream after the client accepts more bytes. For a call, it sends
// as much of the rest as the client accepts. For a request of the Handler, it wakes the goroutine
// that waits in Write.
func (c *conn) resume(s *stream) {
	if s.method == nil {
		c.opened.Broadcast()
		return
	}
	if !s.decided {
		return
	}
	for s.sent < len(s.Call.answer) {
		n := int(min(int64(len(s.Call.answer)-s.sent), c.window, s.window, int64(c.frame)))
		if n <= 0 {
			if c.window <= 0 && !s.waits {
				s.waits = true
				c.waiting = append(c.waiting, s.id)
			}
			return
		}
		_ = c.framer.WriteData(s.id, false, s.Call.answer[s.sent:s.sent+n])
		s.sent += n
		s.window -= int64(n)
		c.window -= int64(n)
	}
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: okTrailers, EndHeaders: true, EndStream: true})
	s.answered = true
	c.finish(s)
}

// abort ends a call with an error. It is for calls that were not passed to a Method.
func (c *conn) abort(s *stream, f failure) {
	c.trailersOnly(s, f)
	c.finish(s)
}

// trailersOnly ends a stream with a gRPC status and without a message.
func (c *conn) trailersOnly(s *stream, f failure) {
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: s.id, BlockFragment: c.encode(
			hpack.HeaderField{Name: ":status", Value: "200"}, hpack.HeaderField{Name: "content-type", Value: "application/grpc"},
			hpack.HeaderField{Name: "grpc-status", Value: strconv.Itoa(int(f.code))},
			hpack.HeaderField{Name: "grpc-message", Value: escape(f.reason)},
		), EndHeaders: true, EndStream: true,
	})
	s.answered = true
	if !s.received { // RFC 9113, section 8.1: this tells the client that it need not send the rest
		_ = c.framer.WriteRSTStream(s.id, http2.ErrCodeNo)
		c.ignore(s.id)
	}
}

// ignore records that later DATA frames of the stream id are valid and must be ignored. The call of
// the stream has ended or was never accepted, but the client may still be sending its message.
func (c *conn) ignore(id uint32) {
	if c.aborted == nil || len(c.aborted) > maxAborted {
		c.aborted = map[uint32]bool{}
	}
	c.aborted[id] = true
}

// reset ends a stream with an error.
func (c *conn) reset(id uint32, code http2.ErrCode) {
	_ = c.framer.WriteRSTStream(id, code)
	if s := c.streams[id]; s != nil {
		c.drop(s)
	}
}

// drop ends a stream because the client has reset it or the connection has ended.
func (c *conn) drop(s *stream) {
	s.answered = true
	c.unhold(s, s.held)
	delete(c.streams, s.id)
	switch {
	case s.method == nil:
		s.stop()
		s.changed.Broadcast()
		c.opened.Broadcast()
	case s.decided || !s.received: // otherwise the call is in a group, and the group calls finish later
		c.finish(s)
	}
}

// finish removes a call from the connection, and keeps its memory for later calls. The call must be
// answered, and no Method may use it.
func (c *conn) finish(s *stream) {
	c.unhold(s, s.held)
	delete(c.streams, s.id)
	c.running--
	header, part, answer := s.Header, s.part, s.Call.answer
	clear(header)
	*s = stream{}
	if cap(part) <= maxKept && cap(answer) <= maxKept {
		s.Header, s.part, s.Call.answer = header[:0], part[:0], answer[:0]
	}
	streams.Put(s)
}

// maxKept is the maximum size in bytes of a buffer that is kept for later calls.
const maxKept = 16 << 10

// encode returns an encoded block of headers. The block is only valid until the next call of
// encode.
func (c *conn) encode(fields ...hpack.HeaderField) []byte {
	c.block.b = c.block.b[:0]
	for _, f := range fields {
		_ = c.encoder.WriteField(f)
	}
	return c.first(c.block.b)
}

// first returns a block of headers in the form in which it is sent. It prefixes the first block of
// a connection with an update that sets the size of the dynamic table to 0. RFC 7541, section 4.2,
// requires this update if the client has a smaller table than the default.
func (c *conn) first(block []byte) []byte {
	if c.encoded {
		return block
	}
	c.encoded = true
	const sizeUpdate = 0x20
	return append([]byte{sizeUpdate}, block...)
}

// The encoded headers and trailers of answers with the status OK.
var okHeaders, okTrailers = func() (headers, trailers []byte) {
	var block output
	e := newEncoder(&block)
	_ = e.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = e.WriteField(hpack.HeaderField{Name: "content-type", Value: "application/grpc"})
	n := len(block.b)
	_ = e.WriteField(hpack.HeaderField{Name: "grpc-status", Value: "0"})
	return block.b[:n:n], block.b[n:]
}()

// escape encodes a text for the header grpc-message, as the gRPC protocol specifies.
func escape(text string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		if x := text[i]; x >= ' ' && x <= '~' && x != '%' {
			b.WriteByte(x)
		} else {
			b.Write([]byte{'%', hex[x>>4], hex[x&15]})
		}
	}
	return b.String()
}
