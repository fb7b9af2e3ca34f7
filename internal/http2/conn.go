package http2

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	readBuffer = 32 << 10
	maxFrame   = 16 << 10 // maximum size of a frame that clients may send: the default of RFC 9113
	maxHeaders = 16 << 10 // maximum size of the headers of a request
	connWindow = 1 << 20  // maximum number of bytes that a client may send before the connection reads them
	// maxUnsent is the maximum number of bytes in conn.out, which wait until the client reads. The
	// bytes of messages are not limited by it, because the flow control of HTTP/2 limits them.
	maxUnsent = 1 << 20
	// maxNoise is the maximum of conn.noise, which counts the frames that are not part of a call,
	// such as PING, SETTINGS and WINDOW_UPDATE, and the calls that the client resets. A complete
	// call sets the count to 0. Each sweep subtracts a tenth of maxNoise.
	maxNoise = 10_000
	// maxWorkers is the maximum number of groups of calls of one connection that have a goroutine
	// at the same time. If all are in use, the goroutine that reads the connection passes the next
	// group to its Method itself. Meanwhile, the connection reads no further calls.
	maxWorkers = 8
	maxWindow  = 1<<31 - 1
	maxAborted = 1000
	// drainTimeout is how long a connection that drains waits for the client's answer to the ping.
	drainTimeout = time.Second
	allStreams   = 1<<31 - 1 // in a GOAWAY frame: the server will serve all open streams
)

// A conn is one connection.
type conn struct {
	net.Conn
	server  *Server
	from    netip.Addr
	tls     *tls.ConnectionState // nil without TLS
	socket  net.Conn             // the connection below TLS
	tracker idleTracker          // nil if the listener does not track idle connections
	ctx     context.Context      // parent of the contexts of the requests that the Handler serves
	cancel  context.CancelFunc

	// Only the goroutine of serve uses these.
	reader *bufio.Reader
	ready  []*group // groups of complete calls that are not passed to their Methods yet
	last   uint32   // the highest stream ID that the client has used
	unread int      // bytes of DATA frames that no WINDOW_UPDATE has reported as read yet

	workers atomic.Int32 // number of groups that a Method is deciding now

	mu       sync.Mutex
	room     sync.Cond     // signals that out has become shorter or that the connection is closed
	opened   sync.Cond     // signals that the client accepts more bytes, or that a stream has ended
	waiting  []uint32      // IDs of the streams whose answers wait because window is used up, the first to wait first
	framer   *http2.Framer // serve reads frames with it; with mu held, other goroutines write frames to out with it
	out      output
	encoder  *hpack.Encoder
	block    output
	encoded  bool               // a block of headers was already sent
	streams  map[uint32]*stream // the open streams
	running  uint32             // number of calls that are not answered, or that still run after a reset
	window   int64              // number of bytes that the client still accepts on the connection (flow control)
	initial  int64              // number of bytes that the client accepts on a new stream (flow control)
	frame    int                // maximum size of a frame that the client accepts
	goAway   uint32
	open     bool // the settings are in out
	noise    int
	held     int             // number of bytes that hold has counted for this connection: bytes of incomplete messages
	aborted  map[uint32]bool // IDs of streams whose DATA frames are ignored; see the method ignore
	draining bool
	drained  time.Time // when it began to drain
	closed   bool
	heard    bool      // set if a frame has arrived since the last sweep
	reads    time.Time // time of the last sweep that found heard set
	calls    time.Time // time of the last sweep that found an open call
	pinged   time.Time // when the unanswered ping was sent; zero if there is none
}

func newConn(s *Server, accepted net.Conn) *conn {
	now := time.Now()
	c := &conn{
		Conn: accepted, server: s, socket: accepted, streams: map[uint32]*stream{}, window: 65535, initial: 65535, frame: maxFrame,
		goAway: allStreams, reads: now, calls: now,
	}
	c.room.L, c.opened.L = &c.mu, &c.mu
	c.tracker, _ = accepted.(idleTracker)
	if at, ok := accepted.RemoteAddr().(*net.TCPAddr); ok {
		c.from = at.AddrPort().Addr()
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// serve reads and handles frames until the connection ends.
func (c *conn) serve() {
	defer c.server.remove(c)
	defer c.end()
	if !c.begin() {
		return
	}
	for {
		frame, err := c.framer.ReadFrame()
		if err == nil {
			c.mu.Lock()
			err = c.receive(frame)
			c.mu.Unlock()
		}
		if err != nil && !c.failed(frame, err) {
			return
		}
		if len(c.ready) < maxTogether && c.more() {
			continue
		}
		c.decide()
		if !c.rest() {
			return
		}
	}
}

// begin does the TLS handshake, reads the preface of HTTP/2, and sends the settings of the server.
// It returns false if the connection must end.
func (c *conn) begin() bool {
	_ = c.SetDeadline(time.Now().Add(c.server.Limits.Begin))
	if c.server.secure != nil {
		secure := tls.Server(c.Conn, c.server.secure)
		if secure.Handshake() != nil {
			return false
		}
		state := secure.ConnectionState()
		if state.NegotiatedProtocol != http2.NextProtoTLS {
			return false
		}
		c.mu.Lock()
		c.Conn, c.tls = secure, &state
		c.mu.Unlock()
	}
	c.reader = bufio.NewReaderSize(c.Conn, readBuffer)
	c.framer = http2.NewFramer(&c.out, c.reader)
	c.framer.SetReuseFrames()
	c.framer.SetMaxReadFrameSize(maxFrame)
	c.framer.MaxHeaderListSize = maxHeaders
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.encoder = newEncoder(&c.block)
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.reader, preface); err != nil || string(preface) != http2.ClientPreface {
		return false
	}
	_ = c.SetDeadline(time.Time{})
	c.mu.Lock()
	c.open = true
	_ = c.framer.WriteSettings(c.server.settings()...)
	_ = c.framer.WriteWindowUpdate(0, connWindow-65535)
	c.mu.Unlock()
	c.flush()
	return true
}

// newEncoder returns an encoder that never uses the dynamic table. Therefore the encoded blocks do
// not depend on each other and can be sent in any order.
func newEncoder(to *output) *hpack.Encoder {
	e := hpack.NewEncoder(to)
	e.SetMaxDynamicTableSize(0)
	_ = e.WriteField(hpack.HeaderField{Name: "x"}) // this first block contains the size update; conn.first writes that update instead
	to.b = to.b[:0]
	return e
}

// An idleTracker is a connection whose listener tracks which connections are idle, as in package http1.
type idleTracker interface {
	Idle()
	Busy() bool
}

// more reports whether the read buffer contains a whole frame.
func (c *conn) more() bool {
	const header = 9
	if c.reader.Buffered() < header {
		return false
	}
	b, _ := c.reader.Peek(header)
	if http2.FrameType(b[3]) == http2.FrameHeaders && !http2.Flags(b[4]).Has(http2.FlagHeadersEndHeaders) {
		return false // ReadFrame also reads the CONTINUATION frames that follow this frame
	}
	return c.reader.Buffered() >= header+int(b[0])<<16+int(b[1])<<8+int(b[2])
}

// failed handles an error that occurred while a frame was read or handled. It returns false if the
// connection must end.
func (c *conn) failed(frame http2.Frame, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ofStream http2.StreamError
	if errors.As(err, &ofStream) {
		c.last = max(c.last, ofStream.StreamID)
		c.reset(ofStream.StreamID, ofStream.Code)
		c.noise++
		if c.noise <= maxNoise {
			return true
		}
		err = http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	var code http2.ErrCode
	var ofConn http2.ConnectionError
	switch {
	case errors.As(err, &ofConn):
		code = http2.ErrCode(ofConn)
	case errors.Is(err, http2.ErrFrameTooLarge):
		code = http2.ErrCodeFrameSize
	default: // for example, the client has closed the connection
		return false
	}
	_ = c.framer.WriteGoAway(c.last, code, nil)
	c.write()
	return false
}

// end closes the connection and ends all its requests.
func (c *conn) end() {
	c.mu.Lock()
	c.closed = true
	for _, s := range c.streams {
		c.drop(s)
	}
	c.room.Broadcast()
	c.mu.Unlock()
	c.decide() // groups that were not passed to a Method yet must still release their calls
	c.cancel()
	_ = c.Close()
}

// rest writes everything in c.out before the connection waits for further frames. If another
// goroutine is writing and c.out is too long, rest waits. It returns false if the connection must
// end.
func (c *conn) rest() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write()
	if c.running == 0 && c.tracker != nil && !c.closed {
		c.tracker.Idle()
	}
	for len(c.out.b) > maxUnsent && !c.closed { // another goroutine writes
		c.room.Wait()
	}
	return !c.closed && !c.done()
}

// done reports whether a connection that drains can be closed: it has no open call and has sent all
// answers.
func (c *conn) done() bool {
	return c.draining && c.goAway != allStreams && c.running == 0 && len(c.out.b) == 0 && !c.out.writing
}

// idle is called after calls have ended. If the connection drains and is done, idle ends serve.
// Otherwise, if the connection has no open call, idle reports it to the listener as idle.
func (c *conn) idle() {
	switch {
	case c.done():
		_ = c.socket.SetReadDeadline(past) // ends serve
	case c.running == 0 && c.tracker != nil:
		c.tracker.Idle()
	}
}

// drain tells the client not to open new calls, and sends a ping. When the client answers the ping,
// the connection has received all calls that the client opened before it read this message. If the
// connection has not sent its settings yet, drain closes it.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		_ = c.socket.Close()
		return
	}
	if c.draining {
		return
	}
	c.beginDrain(time.Now())
	go c.flush() // in a goroutine, because a client that does not read would delay the drain of other connections
}

// beginDrain sends a GOAWAY frame, which announces the end of the connection, and a PING. The caller holds c.mu.
func (c *conn) beginDrain(now time.Time) {
	c.draining, c.drained = true, now
	_ = c.framer.WriteGoAway(allStreams, http2.ErrCodeNo, nil)
	_ = c.framer.WritePing(false, drainPing)
}

// endDrain tells the client which calls the server still serves. It ends the contexts of the
// requests that the Handler serves.
func (c *conn) endDrain() {
	if c.goAway != allStreams {
		return
	}
	c.goAway = c.last
	_ = c.framer.WriteGoAway(c.last, http2.ErrCodeNo, nil)
	for _, s := range c.streams {
		if s.method == nil {
			s.stop()
		}
	}
}

// past is a time in the past. A deadline with this time ends a read at once.
var past = time.Unix(1, 0)

// The data of pings.
var (
	drainPing = [8]byte{'d', 'r', 'a', 'i', 'n'}
	idlePing  = [8]byte{'i', 'd', 'l', 'e'}
)

// receive handles a frame. The caller holds c.mu. If the error is a StreamError, the caller ends
// the stream. After any other error, it ends the connection.
func (c *conn) receive(frame http2.Frame) error {
	c.heard = true
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		return c.headers(f)
	case *http2.DataFrame:
		if err := c.data(f); err != nil || len(f.Data()) > 0 || f.StreamEnded() {
			return err
		}
	case *http2.WindowUpdateFrame:
		if err := c.windowUpdate(f); err != nil {
			return err
		}
	case *http2.RSTStreamFrame:
		if f.StreamID > c.last {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		if s := c.streams[f.StreamID]; s != nil {
			c.drop(s)
		}
	case *http2.SettingsFrame:
		if err := c.settings(f); err != nil {
			return err
		}
	case *http2.PingFrame:
		if f.IsAck() {
			c.pong(f)
		} else {
			_ = c.framer.WritePing(true, f.Data)
		}
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.noise++
	if c.noise > maxNoise {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}

// pong handles the answer to a ping.
func (c *conn) pong(f *http2.PingFrame) {
	c.pinged = time.Time{}
	if f.Data == drainPing && c.draining {
		c.endDrain()
	}
}

// headers handles a HEADERS frame. It opens a stream. If the stream is already open, the frame
// contains the trailers of the client, and headers ends the request.
func (c *conn) headers(f *http2.MetaHeadersFrame) error {
	s := c.streams[f.StreamID]
	switch {
	case s != nil && s.received:
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeStreamClosed}
	case s != nil && f.StreamEnded(): // trailers of the client
		return c.complete(s)
	case s != nil:
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
	case f.StreamID%2 == 0:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case f.StreamID <= c.last:
		return http2.ConnectionError(http2.ErrCodeStreamClosed)
	}
	c.last = f.StreamID
	switch {
	case !wellFormed(f):
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
	case f.StreamID > c.goAway:
		c.ignore(f.StreamID) // the client will repeat this call on another connection
		return nil
	case f.Truncated:
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeEnhanceYourCalm}
	case c.running >= c.server.Limits.Streams:
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeRefusedStream}
	}
	if c.running == 0 && c.tracker != nil && !c.tracker.Busy() {
		return net.ErrClosed // the listener has closed the connection
	}
	s = c.add(f)
	if f.StreamEnded() {
		return c.complete(s)
	}
	return nil
}

// wellFormed reports whether the headers are valid for a request of HTTP/2.
func wellFormed(f *http2.MetaHeadersFrame) bool {
	if f.HasPriority() && f.Priority.StreamDep == f.StreamID {
		return false
	}
	for _, name := range [...]string{"method", "scheme", "path"} {
		if f.PseudoValue(name) == "" {
			return false
		}
	}
	for _, h := range f.RegularFields() {
		switch h.Name {
		case "te":
			if h.Value != "trailers" {
				return false
			}
		case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
			return false
		}
	}
	return true
}

// data handles a DATA frame. It adds the bytes of the frame to the message of the stream.
func (c *conn) data(f *http2.DataFrame) error {
	c.unread += int(f.Length)
	if c.unread > connWindow {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	if c.unread >= connWindow/2 {
		_ = c.framer.WriteWindowUpdate(0, uint32(c.unread)) //nolint:gosec // at most connWindow
		c.unread = 0
	}
	s := c.streams[f.StreamID]
	switch {
	case s == nil && f.StreamID > c.last:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case s == nil && c.aborted[f.StreamID]:
		return nil
	case s == nil || s.received: // if s is nil, the client sent the frame before it noticed that the stream had ended
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeStreamClosed}
	}
	s.body += int64(len(f.Data()))
	if s.method == nil {
		if err := c.pass(s, f); err != nil {
			return err
		}
	} else if !c.collect(s, f) {
		return nil
	}
	if f.StreamEnded() {
		return c.complete(s)
	}
	return nil
}

// sweepStreams ends calls whose messages have not arrived in time. It returns true if the client
// has not read an answer for longer than Limits.Stall.
func (c *conn) sweepStreams(now time.Time) (stalled bool) {
	limits := &c.server.Limits
	for _, s := range c.streams {
		if s.method == nil {
			if !s.received && !s.streams && now.Sub(s.began) > limits.Complete {
				c.reset(s.id, http2.ErrCodeCancel)
			}
			continue
		}
		if !s.received && now.Sub(s.began) > limits.Complete {
			c.abort(s, errIncomplete)
			continue
		}
		stalled = stalled || !s.ready.IsZero() && now.Sub(s.ready) > limits.Stall
	}
	return stalled
}

// sweep applies the limits of time.
func (c *conn) sweep(now time.Time) {
	limits := &c.server.Limits
	c.mu.Lock()
	defer c.mu.Unlock()
	stalled := c.sweepStreams(now) || !c.pinged.IsZero() && now.Sub(c.pinged) > limits.Stall
	if c.running > 0 {
		c.calls = now
	}
	if c.heard {
		c.heard, c.reads = false, now
	}
	c.noise = max(0, c.noise-maxNoise/10)
	switch {
	case !c.open: // begin has its own deadline
		return
	case stalled:
		c.closed = true
		_ = c.socket.Close()
		return
	case !c.draining && now.Sub(c.calls) > limits.Idle:
		c.beginDrain(now)
	case c.draining && now.Sub(c.drained) > drainTimeout:
		c.endDrain()
	case c.pinged.IsZero() && now.Sub(c.reads) > limits.Ping:
		_ = c.framer.WritePing(false, idlePing)
		c.pinged = now
	}
	c.idle()
	if len(c.out.b) > 0 && !c.out.writing {
		go c.flush() // in a goroutine, because a client that does not read would stop the sweep
	}
}

// add adds the stream of new headers.
func (c *conn) add(f *http2.MetaHeadersFrame) *stream {
	s := streams.Get().(*stream)
	s.conn, s.id, s.window, s.began = c, f.StreamID, c.initial, time.Now()
	s.From = c.from
	s.Header = append(s.Header[:0], f.RegularFields()...)
	s.declared = -1
	if text, n := s.Value("content-length"); n > 0 {
		if s.declared, _ = strconv.ParseInt(text, 10, 64); n > 1 || text == "" || s.declared < 0 {
			s.declared = -2 // equal to no size
		}
	}
	s.method = c.methodOf(f, s)
	c.streams[s.id] = s
	c.running++
	if s.method == nil {
		c.request(s, f)
	}
	return s
}

// methodOf returns the Method that serves a request, or nil if the Handler serves it.
func (c *conn) methodOf(f *http2.MetaHeadersFrame, s *stream) *Method {
	if f.PseudoValue("method") != http.MethodPost {
		return nil
	}
	path := f.PseudoValue("path")
	for i := range c.server.Methods {
		if m := &c.server.Methods[i]; m.Path == path && s.usual() {
			return m
		}
	}
	return nil
}

// length returns the size of a gRPC message in bytes, which is in the prefix of the message.
func length(prefix []byte) int { return int(binary.BigEndian.Uint32(prefix[1:])) }
