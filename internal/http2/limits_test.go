package http2_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	fast "github.com/headgate/headgate/internal/http2"
)

// An answer is sent as far as the client's windows allow, and the rest when they open.
func TestFlowControl(t *testing.T) {
	t.Parallel()
	for _, path := range []string{echo, "/handler"} {
		text := strings.Repeat("0123456789", 7_000) // more than the window of the connection
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = w.Write(b)
			w.Header().Set("Grpc-Status", "0")
		})
		c := connect(t, start(t, &fast.Server{Handler: handler}), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10})
		c.open(1, path)
		for rest := message(text); len(rest) > 0; {
			n := min(len(rest), 16<<10)
			_ = c.WriteData(1, n == len(rest), rest[:n])
			rest = rest[n:]
		}
		c.call(3, path, "short")
		c.send()
		size := func() int { return len(c.all[1].text) + len(c.all[3].text) }
		c.read(func() bool { return size() >= 20 }) // ten bytes of each
		_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1_000_000})
		_ = c.WritePing(false, [8]byte{})
		c.send()
		c.read(func() bool { return size() >= 65535 && c.pongs == 1 })
		if size() != 65535 {
			t.Errorf("%s: %d bytes with a window of 65,535", path, size())
		}
		_ = c.WriteWindowUpdate(0, 1<<20)
		c.send()
		got := c.until(2)
		if got[1] != (outcome{string(message(text)), "0"}) || got[3] != (outcome{string(message("short")), "0"}) {
			t.Errorf("%s: %d bytes, %q; %+v", path, len(got[1].text), got[1].status, got[3])
		}
	}
}

// A client that does not open its windows loses its connection, and so does one that does not answer a ping, or that makes no call.
func TestLimitsOfTime(t *testing.T) {
	t.Parallel()
	short := limits
	short.Complete = 40 * time.Millisecond // the sweep runs often
	for name, change := range map[string]func(*fast.Limits){
		"closed window": func(l *fast.Limits) { l.Stall = time.Millisecond },
		"no answer to a ping": func(l *fast.Limits) {
			l.Ping, l.Stall = time.Millisecond, time.Millisecond
		},
		"no calls":   func(l *fast.Limits) { l.Idle, l.Stall = time.Millisecond, 10*time.Millisecond },
		"no preface": func(l *fast.Limits) { l.Begin = time.Millisecond },
	} {
		s := &fast.Server{Limits: short}
		change(&s.Limits)
		address := start(t, s)
		var from io.Reader
		if name == "no preface" {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			from = conn
		} else {
			c := connect(t, address, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			if name == "closed window" {
				c.call(1, echo, "x")
				c.send()
			}
			from = c.Conn
		}
		if _, err := io.Copy(io.Discard, from); err != nil && !errors.Is(err, net.ErrClosed) && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Parts of messages are bounded for a connection, for all connections together, and for all clients without a key. Complete messages are not
// affected.
func TestPartsAreBounded(t *testing.T) {
	t.Parallel()
	few := limits
	few.Parts = 160_000
	s := &fast.Server{Limits: few, Known: func(c *fast.Call) bool {
		_, n := c.Value("authorization")
		return n == 1
	}}
	address := start(t, s)
	part := append([]byte{0, 0, 0x0f, 0, 0}, make([]byte, 9_995)...)
	// hold sends parts of n calls, and returns how many of them failed.
	hold := func(c *client, n int, more ...string) (failed int) {
		before := c.ended
		for range n {
			c.next += 2
			c.open(c.next-1, echo, more...)
			_ = c.WriteData(c.next-1, false, part)
		}
		pongs := c.pongs + 1
		_ = c.WritePing(false, [8]byte{})
		c.send()
		c.read(func() bool { return c.pongs == pongs })
		return c.ended - before
	}
	a, b, other, stranger := connect(t, address), connect(t, address), connect(t, address), connect(t, address)
	if n := hold(a, 9, "authorization", "key"); n != 1 {
		t.Errorf("%d of 9 calls failed on a connection that may hold 8", n)
	}
	if n := hold(b, 8, "authorization", "key"); n != 0 {
		t.Errorf("%d calls of a second connection failed", n)
	}
	if n := hold(other, 1, "authorization", "key"); n != 1 {
		t.Errorf("%d calls failed while parts take all room", n)
	}
	if n := hold(stranger, 3); n != 2 {
		t.Errorf("%d of 3 calls without a key failed, which may hold 1 together", n)
	}
	for _, c := range []*client{other, stranger} {
		c.next += 2
		c.call(c.next-1, echo, strings.Repeat("x", 10_000))
		c.send()
		if got := c.until(c.ended + 1)[c.next-1]; got.status != "0" {
			t.Errorf("a complete message: %+v", got)
		}
	}
	_ = a.Conn.Close()
	for hold(other, 1, "authorization", "key") == 1 { // until the server has seen the end of a
		time.Sleep(time.Millisecond)
	}
}

// A request of the Handler gets its body when it is complete, and a stream gets each message when it is. A body that does not arrive in time
// is reset.
func TestBodiesArriveWhole(t *testing.T) {
	t.Parallel()
	short := limits
	short.Complete = 50 * time.Millisecond
	got := make(chan string, 10)
	s := &fast.Server{Limits: short, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b := make([]byte, 100)
		n, err := io.ReadAtLeast(r.Body, b, 1)
		got <- r.URL.Path + " " + string(b[:max(n-5, 0)+5][min(n, 5):n])
		_ = err
	})}
	c := connect(t, start(t, s))
	c.open(1, "/stream")
	_ = c.WriteData(1, false, message("hello")[:7])
	c.open(3, "/whole")
	_ = c.WriteData(3, false, message("world")[:7])
	_ = c.WriteData(3, true, message("world")[7:])
	c.send()
	if first := <-got; first != "/whole world" {
		t.Errorf("the first body is %q", first)
	}
	_ = c.WriteData(1, false, message("hello")[7:])
	c.send()
	if second := <-got; second != "/stream hello" {
		t.Errorf("the second body is %q", second)
	}
	c.open(5, "/whole")
	_ = c.WriteData(5, false, message("never")[:7])
	c.send()
	if o := c.read(func() bool { return c.all[5].status != "" })[5]; o.status != "CANCEL" {
		t.Errorf("a body that does not arrive: %+v", o)
	}
}

// A client whose decoder has no dynamic table reads all answers.
func TestClientWithoutADynamicTable(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, &fast.Server{}), http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
	c.ReadMetaHeaders.SetAllowedMaxDynamicTableSize(0)
	c.call(1, echo, "x")
	c.call(3, echo, "x", "fail", "no")
	c.call(5, "/handler", "x")
	c.send()
	raw := http2.NewFramer(nil, c.Conn)
	for {
		frame, err := raw.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f, ok := frame.(*http2.HeadersFrame); ok {
			if b := f.HeaderBlockFragment(); len(b) == 0 || b[0] != 0x20 {
				t.Errorf("the first headers are %x, want the update of the size to 0 first", b)
			}
			return
		}
	}
}

// A connection that drains ends only after all answers are sent, also if the client reads them late.
func TestDrainSendsAllAnswers(t *testing.T) {
	t.Parallel()
	const calls = 6
	hold, entered := make(chan struct{}), make(chan struct{}, calls)
	s := &fast.Server{Methods: []fast.Method{{Path: alone, Serve: func(ctx context.Context, calls []*fast.Call) {
		entered <- struct{}{}
		<-hold
		serveEcho(ctx, calls)
	}}}}
	c := connect(t, start(t, s), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 2 << 20})
	_ = c.WriteWindowUpdate(0, 1<<30)
	text := strings.Repeat("x", 1_000_000)
	for id := uint32(1); id < 2*calls; id += 2 {
		c.open(id, alone)
		for rest := message(text); len(rest) > 0; {
			n := min(len(rest), 16<<10)
			_ = c.WriteData(id, n == len(rest), rest[:n])
			rest = rest[n:]
		}
		c.send()
	}
	for range calls {
		<-entered
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(context.Background()) }()
	c.read(func() bool { return c.lastServed == 2*calls-1 })
	close(hold)
	got := c.read(func() bool { return false })
	for id := uint32(1); id < 2*calls; id += 2 {
		if got[id] != (outcome{string(message(text)), "0"}) {
			t.Errorf("call %d: %d bytes, %q", id, len(got[id].text), got[id].status)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A client that sends frames that are of no use, or that breaks the protocol, loses its connection.
func TestBadClients(t *testing.T) {
	t.Parallel()
	for name, attack := range map[string]func(c *client){
		"ENHANCE_YOUR_CALM": func(c *client) {
			for range 20_000 {
				_ = c.WritePing(false, [8]byte{})
			}
		},
		"PROTOCOL_ERROR": func(c *client) { c.call(2, echo, "an even id") },
		"FLOW_CONTROL_ERROR": func(c *client) {
			_ = c.WriteWindowUpdate(0, 1<<31-1)
			_ = c.WriteWindowUpdate(0, 1<<31-1)
		},
		"FRAME_SIZE_ERROR": func(c *client) {
			c.open(1, echo)
			_ = c.WriteData(1, true, make([]byte, 20_000))
		},
		"COMPRESSION_ERROR": func(c *client) {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true})
		},
	} {
		c := connect(t, start(t, &fast.Server{}))
		attack(c)
		_, _ = c.Conn.Write(c.out.Bytes()) // the server may close the connection meanwhile
		c.out.Reset()
		if got := c.until(1)[0]; got.status != name && !strings.Contains(got.status, "reset by peer") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A connection has a maximum number of calls that run, also if the client resets them.
func TestCallsOfAConnectionAreBounded(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	var running, most atomic.Int64
	few := limits
	few.Streams = 5
	s := &fast.Server{Limits: few, Methods: []fast.Method{{Path: alone, Serve: func(ctx context.Context, calls []*fast.Call) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-hold
		running.Add(-1)
		serveEcho(ctx, calls)
	}}}}
	c := connect(t, start(t, s))
	for id := uint32(1); id < 41; id += 2 {
		c.call(id, alone, "x")
		c.send()
		if id < 11 {
			for running.Load() < int64(id+1)/2 {
				time.Sleep(time.Millisecond)
			}
			_ = c.WriteRSTStream(id, http2.ErrCodeCancel)
		}
	}
	c.send()
	got := c.until(15)
	close(hold)
	if most.Load() != 5 {
		t.Errorf("%d calls ran at once", most.Load())
	}
	for id := uint32(11); id < 41; id += 2 {
		if got[id].status != "REFUSED_STREAM" {
			t.Errorf("stream %d: %+v", id, got[id])
		}
	}
}
