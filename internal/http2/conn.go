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
	connWindow = 1 << 20  // bytes that a client may send before the connection has read them
	// maxUnsent is the maximum number of bytes that wait until the client reads. The bytes of messages do not count: they
	// have the flow control of HTTP/2.
	maxUnsent = 1 << 20
	// maxNoise is the maximum number of frames that carry no part of a call, such as PING, SETTINGS and WINDOW_UPDATE, and of calls that
	// the client resets. A complete call sets the count to 0, and a tenth of it is forgotten in each sweep.
	maxNoise = 10_000
	// maxWorkers is the maximum number of groups of calls of one connection that are decided at the same time. The next group is
	// decided by the goroutine that reads, so that the connection reads no more calls meanwhile.
	maxWorkers = 8
	maxWindow  = 1<<31 - 1
	maxAborted = 1000
	// drainTimeout is how long a connection that drains waits for the answer to its ping.
	drainTimeout = time.Second
	allStreams   = 1<<31 - 1 // in a GOAWAY frame: all open streams will be served
)

// A conn is one connection.
type conn struct {
	net.Conn
	server  *Server
	from    netip.Addr
	tls     *tls.ConnectionState // nil without TLS
	socket  net.Conn             // the connection below TLS
	tracker idleTracker          // nil if the listener does not track idle connections
	ctx     context.Context      // of the requests that the Handler serves
	cancel  context.CancelFunc

	// Only the goroutine of serve uses these.
	reader *bufio.Reader
	ready  []*group // the complete calls that have not been passed to their Methods
	last   uint32   // the highest id of a stream
	unread int      // bytes of DATA frames that were not added to the client's window again

	workers atomic.Int32 // the groups of calls that are decided now

	mu       sync.Mutex
	room     sync.Cond     // signals that out has become shorter
	opened   sync.Cond     // signals that a window of the client has become larger, or that a stream has ended
	waiting  []uint32      // ids of the streams whose answers wait for the window of the connection, first come first
	framer   *http2.Framer // its reading side belongs to serve; it writes to out
	out      output
	encoder  *hpack.Encoder
	block    output
	encoded  bool               // a block of headers was sent
	streams  map[uint32]*stream // the open streams
	running  uint32             // the calls that are not answered, and those that still run after a reset
	window   int64              // bytes that the client accepts on the connection
	initial  int64              // bytes that the client accepts on a new stream
	frame    int                // maximum size of a frame that the client accepts
	goAway   uint32
	open     bool // the settings are in out
	noise    int
	held     int             // bytes of messages of which a part has arrived
	aborted  map[uint32]bool // calls whose messages the client may still send; see ignore
	draining bool
	drained  time.Time // when it began to drain
	closed   bool
	heard    bool      // a frame has arrived since the last sweep
	reads    time.Time // the last sweep at which heard was set
	calls    time.Time // when the connection was last without an open call
	pinged   time.Time // when the ping without an answer was sent; zero if there is none
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

// serve reads from the connection until it ends.
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

// begin makes the handshake of TLS, reads the preface, and sends the settings. It returns false if the connection must end.
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

// newEncoder returns an encoder that never uses the dynamic table, so that blocks can be encoded in any order.
func newEncoder(to *output) *hpack.Encoder {
	e := hpack.NewEncoder(to)
	e.SetMaxDynamicTableSize(0)
	_ = e.WriteField(hpack.HeaderField{Name: "x"}) // with the change of the size, which conn.first writes
	to.b = to.b[:0]
	return e
}

// An idleTracker is a connection whose listener tracks which connections are idle, as in package http1.
type idleTracker interface {
	Idle()
	Busy() bool
}

// more reports whether a whole frame has arrived.
func (c *conn) more() bool {
	const header = 9
	if c.reader.Buffered() < header {
		return false
	}
	b, _ := c.reader.Peek(header)
	if http2.FrameType(b[3]) == http2.FrameHeaders && !http2.Flags(b[4]).Has(http2.FlagHeadersEndHeaders) {
		return false // ReadFrame also reads the frames that continue it
	}
	return c.reader.Buffered() >= header+int(b[0])<<16+int(b[1])<<8+int(b[2])
}

// failed handles an error of a frame. It returns false if the connection must end.
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
	default: // the client has closed the connection
		return false
	}
	_ = c.framer.WriteGoAway(c.last, code, nil)
	c.write()
	return false
}

// end ends all requests of a connection that is closed.
func (c *conn) end() {
	c.mu.Lock()
	c.closed = true
	for _, s := range c.streams {
		c.drop(s)
	}
	c.room.Broadcast()
	c.mu.Unlock()
	c.decide() // the calls that no Method has are forgotten
	c.cancel()
	_ = c.Close()
}

// rest sends what waits, before the connection waits for further frames. If the client does not read, rest waits until it does. It
// returns false if the connection must end.
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

// done reports whether the connection drains, has no open call, and has sent all answers.
func (c *conn) done() bool {
	return c.draining && c.goAway != allStreams && c.running == 0 && len(c.out.b) == 0 && !c.out.writing
}

// idle is called after calls have ended. It closes a connection that drains.
func (c *conn) idle() {
	switch {
	case c.done():
		_ = c.socket.SetReadDeadline(past) // ends serve
	case c.running == 0 && c.tracker != nil:
		c.tracker.Idle()
	}
}

// drain tells the client not to open new calls, and sends a ping. When the client answers the ping, it has opened all calls that it opened
// before it knew. A connection that has not sent its settings is closed.
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
	go c.flush() // a client that does not read must not hold up the others
}

// beginDrain announces the end of the connection. The caller holds c.mu.
func (c *conn) beginDrain(now time.Time) {
	c.draining, c.drained = true, now
	_ = c.framer.WriteGoAway(allStreams, http2.ErrCodeNo, nil)
	_ = c.framer.WritePing(false, drainPing)
}

// endDrain tells the client which calls are the last. The requests that the Handler serves end.
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

// receive handles a frame. The caller holds c.mu. A StreamError ends a stream, and each other error the connection.
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

// headers opens a stream, or ends the request of an open one.
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
		c.ignore(f.StreamID) // the client opens it again on another connection
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

// wellFormed reports whether headers are those of a request of HTTP/2.
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

// data adds the bytes of a frame to the message of its stream.
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
	case s == nil || s.received: // without a stream: frames that were on the way when it ended
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

// sweepStreams ends the calls whose messages do not arrive in time. It reports whether the client does not read an answer.
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
		go c.flush() // a client that does not read must not stop the sweep
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

// length returns the size of the message that the prefix of a gRPC message announces.
func length(prefix []byte) int { return int(binary.BigEndian.Uint32(prefix[1:])) }
