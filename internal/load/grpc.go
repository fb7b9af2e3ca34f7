package load

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A GRPC is a client of unary gRPC calls on one connection, for several callers. It sends messages
// that are already encoded. It takes less processor time than the client of grpc-go, so that the
// server on the same machine has more. To save time, it sends the waiting calls of all callers with
// one system call, and reads their responses with one system call.
type GRPC struct {
	conn   net.Conn
	header []hpack.HeaderField

	mu      sync.Mutex
	framer  *http2.Framer // writes to out
	out     []byte
	block   []byte
	encoder *hpack.Encoder
	next    uint32
	waiting map[uint32]*GRPCCaller
	flusher bool  // if set, serve sends the waiting calls before it waits for frames
	err     error // the error that ended the connection; nil while the connection is open
}

// A GRPCCaller makes one call after another.
type GRPCCaller struct {
	conn    *GRPC
	ended   chan struct{} // one receive for each call
	message []byte
	status  string // grpc-status
	err     error
}

// Caller returns a new caller on the connection.
func (c *GRPC) Caller() *GRPCCaller { return &GRPCCaller{conn: c, ended: make(chan struct{}, 1)} }

// The windows for what servers send.
const (
	grpcStreamWindow     = 1 << 20
	grpcConnectionWindow = 1 << 30
)

// OpenGRPC opens a connection for calls of a method, such as /package.Service/Method. token is the API key, or "".
func OpenGRPC(ctx context.Context, address, method, token string) (*GRPC, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &GRPC{conn: conn, next: 1, waiting: map[uint32]*GRPCCaller{}, header: []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: method},
		{Name: ":authority", Value: address},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "user-agent", Value: "headgate-load"},
		{Name: "te", Value: "trailers"},
	}}
	if token != "" {
		c.header = append(c.header, hpack.HeaderField{Name: "authorization", Value: "Bearer " + token})
	}
	c.encoder = hpack.NewEncoder(writerFunc(func(b []byte) { c.block = append(c.block, b...) }))
	c.framer = http2.NewFramer(writerFunc(func(b []byte) { c.out = append(c.out, b...) }), nil)
	c.out = append(c.out, http2.ClientPreface...)
	err = errors.Join(
		c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: grpcStreamWindow}),
		c.framer.WriteWindowUpdate(0, grpcConnectionWindow-65535),
		c.flush(),
	)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	go c.serve()
	return c, nil
}

// A writerFunc is a Writer that cannot fail.
type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

// Close closes the connection. Open calls fail.
func (c *GRPC) Close() { _ = c.conn.Close() }

// flush sends the bytes in c.out. The caller holds c.mu, except before serve is running.
func (c *GRPC) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.conn.Write(c.out)
	c.out = c.out[:0]
	return err
}

// Call sends an encoded message with its prefix (see GRPCMessage), waits for the response, and returns its encoded message. The response is
// only valid until the next Call.
func (w *GRPCCaller) Call(message []byte) ([]byte, error) {
	c := w.conn
	w.message = w.message[:0]
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, c.err
	}
	id := c.next
	c.next += 2
	c.waiting[id] = w
	c.block = c.block[:0]
	for _, f := range c.header {
		_ = c.encoder.WriteField(f)
	}
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block, EndHeaders: true})
	_ = c.framer.WriteData(id, true, message)
	if !c.flusher {
		if err := c.flush(); err != nil {
			c.mu.Unlock()
			return nil, err
		}
	}
	c.mu.Unlock()
	<-w.ended
	switch b := w.message; {
	case w.err != nil:
		return nil, w.err
	case w.status != "0":
		return nil, fmt.Errorf("gRPC status %s", w.status)
	case len(b) < grpcPrefix || int(binary.BigEndian.Uint32(b[1:])) != len(b)-grpcPrefix:
		return nil, errors.New("the response is no message")
	default:
		return b[grpcPrefix:], nil
	}
}

// serve reads the responses until the connection ends.
func (c *GRPC) serve() {
	err := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	for _, w := range c.waiting {
		w.err = err
		w.ended <- struct{}{}
	}
	clear(c.waiting)
}

func (c *GRPC) read() error {
	buffered := bufio.NewReaderSize(c.conn, 64<<10)
	from := http2.NewFramer(io.Discard, buffered)
	from.SetReuseFrames()
	status := ""
	decoder := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == "grpc-status" {
			status = f.Value
		}
	})
	received := uint32(0)
	for {
		if buffered.Buffered() == 0 {
			runtime.Gosched() // lets the callers whose responses have arrived add their next calls first
			c.mu.Lock()
			err := c.flush()
			c.flusher = false
			c.mu.Unlock()
			if err != nil {
				return err
			}
		}
		frame, err := from.ReadFrame()
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.flusher = true
		switch f := frame.(type) {
		case *http2.HeadersFrame:
			status = ""
			if !f.HeadersEnded() {
				err = errors.New("headers in several frames")
			} else if _, err = decoder.Write(f.HeaderBlockFragment()); err == nil && f.StreamEnded() {
				c.ended(f.StreamID, status)
			}
		case *http2.DataFrame:
			received += f.Length
			if w := c.waiting[f.StreamID]; w != nil {
				w.message = append(w.message, f.Data()...)
			}
			if received >= grpcConnectionWindow/2 {
				err = c.framer.WriteWindowUpdate(0, received)
				received = 0
			}
		case *http2.RSTStreamFrame:
			c.ended(f.StreamID, f.ErrCode.String())
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = c.framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = c.framer.WritePing(true, f.Data)
			}
		case *http2.GoAwayFrame:
			err = fmt.Errorf("GOAWAY %s", f.ErrCode)
		}
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// ended ends the call of a stream.
func (c *GRPC) ended(id uint32, status string) {
	if w := c.waiting[id]; w != nil {
		delete(c.waiting, id)
		w.status = status
		w.ended <- struct{}{}
	}
}

// grpcPrefix is the size of the prefix of a gRPC message in bytes: 1 for the compression flag, and
// 4 for the length of the message.
const grpcPrefix = 5

// GRPCMessage returns an encoded message with its prefix.
func GRPCMessage(encoded []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(encoded))), encoded...) //nolint:gosec // a message of a few bytes
}
