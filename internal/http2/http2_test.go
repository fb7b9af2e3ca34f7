package http2_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	fast "github.com/headgate/headgate/internal/http2"
)

const (
	echo  = "/test.Service/Echo"  // all calls of a connection that have arrived
	alone = "/test.Service/Alone" // one call
	limit = 1 << 20
)

// limits are limits that tests with a correct client do not reach.
var limits = fast.Limits{
	Message: limit, Parts: 64 << 20, Streams: 100, Complete: time.Minute, Begin: time.Minute, Stall: time.Minute, Ping: time.Minute, Idle: time.Minute,
}

// answerEcho answers a call with its message. Metadata of the call can ask for an error.
func answerEcho(c *fast.Call) {
	if reason, n := c.Value("fail"); n > 0 {
		c.Fail(codes.InvalidArgument, reason)
		return
	}
	c.Answer(func(b []byte) ([]byte, error) { return append(b, c.Message...), nil })
}

func serveEcho(_ context.Context, calls []*fast.Call) {
	for _, c := range calls {
		answerEcho(c)
	}
}

// start starts a server, which the end of the test shuts down.
func start(t testing.TB, s *fast.Server) (address string) {
	t.Helper()
	if s.Methods == nil {
		s.Methods = []fast.Method{{Path: echo, Together: true, Serve: serveEcho}, {Path: alone, Serve: serveEcho}}
	}
	if s.Handler == nil {
		s.Handler = http.NotFoundHandler()
	}
	if s.Limits.Message == 0 {
		s.Limits = limits
	}
	if s.Known == nil {
		s.Known = func(*fast.Call) bool { return true }
	}
	if s.Streams == nil {
		s.Streams = []string{"/stream"}
	}
	s.Logger = slog.New(slog.DiscardHandler)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// A client sends and reads frames.
type client struct {
	testing.TB
	net.Conn
	*http2.Framer
	out     bytes.Buffer // what send sends
	block   bytes.Buffer
	encoder *hpack.Encoder

	all        map[uint32]outcome
	ended      int // streams
	pongs      int
	next       uint32 // id of the next call of hold, plus 1
	lastServed uint32 // of GOAWAY
}

// connect opens a connection with settings, and reads the settings of the server.
func connect(t testing.TB, address string, settings ...http2.Setting) *client {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	c := &client{TB: t, Conn: conn, all: map[uint32]outcome{}}
	c.Framer = http2.NewFramer(&c.out, conn)
	c.encoder = hpack.NewEncoder(&c.block)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.out.WriteString(http2.ClientPreface)
	_ = c.WriteSettings(settings...)
	c.send()
	return c
}

// send sends the frames that were written.
func (c *client) send() {
	c.Helper()
	if _, err := c.Conn.Write(c.out.Bytes()); err != nil {
		c.Fatal(err)
	}
	c.out.Reset()
}

// open writes the headers of a call.
func (c *client) open(id uint32, path string, more ...string) {
	c.block.Reset()
	fields := append([]string{":method", "POST", ":scheme", "http", ":path", path, ":authority", "x", "content-type", "application/grpc", "te", "trailers"}, more...)
	for i := 0; i < len(fields); i += 2 {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndHeaders: true})
}

// message returns a message with the prefix of gRPC.
func message(text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

// call writes a call.
func (c *client) call(id uint32, path, text string, more ...string) {
	c.open(id, path, more...)
	_ = c.WriteData(id, true, message(text))
}

// An outcome is how a stream ended.
type outcome struct {
	text   string // the message
	status string // grpc-status, or the code of RST_STREAM or GOAWAY
}

// until reads frames until n streams of the connection have ended, or the connection has. Outcomes of the connection have the id 0.
func (c *client) until(n int) map[uint32]outcome {
	c.Helper()
	return c.read(func() bool { return c.ended >= n })
}

// read reads frames until enough returns true, or the connection has ended.
func (c *client) read(enough func() bool) map[uint32]outcome {
	c.Helper()
	for !enough() {
		frame, err := c.ReadFrame()
		if err != nil {
			if _, has := c.all[0]; !has {
				c.all[0] = outcome{status: err.Error()}
			}
			return c.all
		}
		id := frame.Header().StreamID
		o := c.all[id]
		switch f := frame.(type) {
		case *http2.DataFrame:
			o.text += string(f.Data())
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				if h.Name == "grpc-status" || h.Name == "grpc-message" {
					o.status = strings.TrimSpace(o.status + " " + h.Value)
				}
			}
			if f.StreamEnded() {
				c.ended++
			}
		case *http2.RSTStreamFrame:
			if o.status == "" {
				o.status = f.ErrCode.String()
				c.ended++
			}
		case *http2.GoAwayFrame:
			o.status = f.ErrCode.String()
			c.lastServed = f.LastStreamID
		case *http2.PingFrame:
			if f.IsAck() {
				c.pongs++
			} else {
				_ = c.WritePing(true, f.Data)
				c.send()
			}
			continue
		default:
			continue
		}
		c.all[id] = o
	}
	return c.all
}

// The client of grpc-go gets the answers and the errors of both kinds of methods.
func TestClientOfGRPCGo(t *testing.T) {
	t.Parallel()
	conn, err := grpc.NewClient(start(t, &fast.Server{}), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(plain{}), grpc.MaxCallRecvMsgSize(2*limit)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var callers sync.WaitGroup
	for i := range 200 {
		callers.Go(func() {
			path := []string{echo, alone}[i%2]
			text := strings.Repeat(strconv.Itoa(i), []int{0, 1, 100, 20_000, 100_000}[i%5])
			var got string
			if err := conn.Invoke(ctx, path, &text, &got); err != nil || got != text {
				t.Errorf("%d: %d bytes of %d, %v", i, len(got), len(text), err)
			}
			const reason = "fields[1]: 100% \"wrong\", \n größer"
			err := conn.Invoke(metadata.AppendToOutgoingContext(ctx, "fail", "x"+reason[:21]), path, &text, &got)
			if s := status.Convert(err); s.Code() != codes.InvalidArgument || s.Message() != "x"+reason[:21] {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	callers.Wait()
	text, got := strings.Repeat("x", limit+1), ""
	if err := conn.Invoke(ctx, echo, &text, &got); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message above the limit: %v", err)
	}
}

// plain is a codec for strings.
type plain struct{}

func (plain) Name() string                       { return "proto" }
func (plain) Marshal(v any) ([]byte, error)      { return []byte(*v.(*string)), nil }
func (plain) Unmarshal(data []byte, v any) error { *v.(*string) = string(data); return nil }

// A Method gets the calls that have arrived together, without those that their client has reset or given up. A Method that takes one call
// gets each of them apart.
func TestCallsThatArriveTogether(t *testing.T) {
	t.Parallel()
	var sizes, single atomic.Int64
	together := make(chan int, 10)
	s := &fast.Server{Methods: []fast.Method{
		{Path: echo, Together: true, Serve: func(ctx context.Context, calls []*fast.Call) {
			together <- len(calls)
			sizes.Add(int64(len(calls)))
			serveEcho(ctx, calls)
		}},
		{Path: alone, Serve: func(ctx context.Context, calls []*fast.Call) {
			single.Add(int64(len(calls)))
			serveEcho(ctx, calls)
		}},
	}}
	c := connect(t, start(t, s))
	for id := uint32(1); id < 40; id += 2 {
		c.call(id, []string{echo, alone}[id/2%2], "m"+strconv.Itoa(int(id)))
	}
	c.call(41, echo, "reset")
	_ = c.WriteRSTStream(41, http2.ErrCodeCancel)
	c.call(43, echo, "late", "grpc-timeout", "0n")
	c.send()
	got := c.until(21)
	for id := uint32(1); id < 40; id += 2 {
		if want := (outcome{string(message("m" + strconv.Itoa(int(id)))), "0"}); got[id] != want {
			t.Errorf("stream %d: %+v", id, got[id])
		}
	}
	if got[43].status != "4 the%20deadline%20of%20the%20call%20has%20passed" && got[43].status != "4 the deadline of the call has passed" {
		t.Errorf("a call whose deadline has passed: %+v", got[43])
	}
	if n := <-together; n != 10 || sizes.Load() != 10 || single.Load() != 10 {
		t.Errorf("%d calls first, %d of %d together, %d alone", n, sizes.Load(), 10, single.Load())
	}
}

// A panic of a Method fails its calls and no other. A call whose Method does not answer fails.
func TestMethodsThatFail(t *testing.T) {
	t.Parallel()
	s := &fast.Server{Methods: []fast.Method{
		{Path: echo, Together: true, Serve: serveEcho},
		{Path: alone, Serve: func(_ context.Context, calls []*fast.Call) {
			if string(calls[0].Message) == "panic" {
				panic("of the test")
			}
		}},
	}, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("of the test") })}
	c := connect(t, start(t, s))
	c.call(1, alone, "panic")
	c.call(3, alone, "nothing")
	c.call(5, echo, "well")
	c.call(7, "/other", "")
	c.send()
	got := c.until(4)
	if got[1].status != "13 internal error" || got[3] != got[1] || got[5].status != "0" || got[7].status != "INTERNAL_ERROR" {
		t.Errorf("%+v", got)
	}
}

// Messages that are no single gRPC message fail their call. The Method does not get them.
func TestMalformedMessages(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, &fast.Server{}))
	wrong := map[uint32]string{}
	send := func(id uint32, want string, frames ...[]byte) {
		c.open(id, echo)
		for i, b := range frames {
			_ = c.WriteData(id, i == len(frames)-1, b)
		}
		wrong[id] = want
	}
	send(1, "13", nil)
	send(3, "13", []byte{0, 0, 0})
	send(5, "13", []byte{0, 0, 0, 0, 9, 'x'})
	send(7, "13", append(message("a"), message("b")...))
	send(9, "12", []byte{1, 0, 0, 0, 1, 'x'})
	send(11, "8", []byte{0, 0, 0x10, 0, 1})
	c.send()
	for id, o := range c.until(len(wrong)) {
		if code, _, _ := strings.Cut(o.status, " "); code != wrong[id] {
			t.Errorf("stream %d: %+v, want %s", id, o, wrong[id])
		}
	}
	c.open(13, echo)
	c.block.Reset()
	_ = c.encoder.WriteField(hpack.HeaderField{Name: "trailer-of-a-client", Value: "1"})
	_ = c.WriteData(13, false, message("with trailers"))
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 13, BlockFragment: c.block.Bytes(), EndHeaders: true, EndStream: true})
	c.send()
	if o := c.until(len(wrong) + 1)[13]; o.status != "0" {
		t.Errorf("a call that ends with trailers: %+v", o)
	}
}

// Shutdown answers the open calls, refuses new ones, and returns when the last is answered.
func TestShutdown(t *testing.T) {
	t.Parallel()
	entered, hold := make(chan struct{}), make(chan struct{})
	s := &fast.Server{Methods: []fast.Method{{Path: alone, Serve: func(ctx context.Context, calls []*fast.Call) {
		close(entered)
		<-hold
		serveEcho(ctx, calls)
	}}}}
	address := start(t, s)
	c, idle := connect(t, address), connect(t, address)
	_ = idle.WritePing(false, [8]byte{})
	idle.send()
	idle.read(func() bool { return idle.pongs == 1 })
	c.call(1, alone, "x")
	c.send()
	<-entered
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(context.Background()) }()
	if got := idle.until(1)[0]; got.status != "NO_ERROR" { // read answers the ping
		t.Errorf("an idle connection: %+v", got)
	}
	c.read(func() bool { return c.lastServed == 1 })
	c.call(3, alone, "after")
	c.send()
	select {
	case err := <-ended:
		t.Fatalf("Shutdown returned while a call was open: %v", err)
	default:
	}
	close(hold)
	if got := c.until(2); got[1].status != "0" || got[3] != (outcome{}) {
		t.Errorf("%+v", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Error("the listener is open after Shutdown")
	}
}

// The client of golang.org/x/net reads and writes bodies of requests that the Handler serves, with trailers.
func TestHandler(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/nothing":
			http.Error(w, "no", http.StatusTeapot)
			return
		case "/wait":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(left)
			return
		}
		w.Header().Set("Trailer", "X-Declared")
		w.Header().Set("X-Method", r.Method+" "+r.Host+" "+r.Header.Get("X-Own"))
		w.WriteHeader(http.StatusAccepted)
		w.(http.Flusher).Flush()
		n, _ := io.Copy(w, r.Body)
		w.Header().Set("X-Declared", strconv.FormatInt(n, 10))
		w.Header().Set(http.TrailerPrefix+"X-Late", "yes")
	})
	address := start(t, &fast.Server{Handler: handler})
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	body := strings.Repeat(string(message(strings.Repeat("0123456789", 1_000))), 500)
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+address+"/stream", strings.NewReader(body))
	r.Header.Set("X-Own", "1")
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil || string(got) != body || response.StatusCode != http.StatusAccepted || response.Header.Get("X-Method") != "PUT "+address+" 1" {
		t.Errorf("%d bytes, %v, %d, %v", len(got), err, response.StatusCode, response.Header)
	}
	if response.Trailer.Get("X-Declared") != strconv.Itoa(len(body)) || response.Trailer.Get("X-Late") != "yes" {
		t.Errorf("trailers %v", response.Trailer)
	}
	r, _ = http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/nothing", nil)
	if response, err = transport.RoundTrip(r); err != nil || response.StatusCode != http.StatusTeapot {
		t.Errorf("%v, %v", response, err)
	}
	_ = response.Body.Close()
	// The context of a request ends when its client resets the stream.
	pipe, _ := io.Pipe()
	r, _ = http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/wait", pipe)
	if response, err = transport.RoundTrip(r); err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	select {
	case <-left:
	case <-time.After(time.Minute):
		t.Error("the context of a request did not end")
	}
}

// No bytes of a client make the server panic, or keep it from ending.
func FuzzFrames(f *testing.F) {
	var valid bytes.Buffer
	c := &client{Framer: http2.NewFramer(&valid, nil)}
	c.encoder = hpack.NewEncoder(&c.block)
	_ = c.WriteSettings()
	c.call(1, echo, "hello")
	c.open(3, "/handler")
	_ = c.WriteData(3, false, message("part"))
	_ = c.WriteRSTStream(3, http2.ErrCodeCancel)
	_ = c.WriteWindowUpdate(0, 100)
	f.Add(valid.Bytes())
	f.Add([]byte{})
	address := start(f, &fast.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })})
	f.Fuzz(func(t *testing.T, b []byte) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = conn.Write(append([]byte(http2.ClientPreface), b...))
		_ = conn.(*net.TCPConn).CloseWrite()
		if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(fmt.Sprint(err), "timeout") {
			t.Errorf("the connection did not end: %v", err)
		}
	})
}
