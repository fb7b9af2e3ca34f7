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

// Parts of messages are bounded for all connections together. Complete messages are not affected.
func TestPartsAreBounded(t *testing.T) {
	t.Parallel()
	few := limits
	few.Parts = 100_000
	address := start(t, &fast.Server{Limits: few})
	a, b := connect(t, address), connect(t, address)
	part := append([]byte{0, 0, 0x0f, 0, 0}, make([]byte, 9_995)...)
	for id := uint32(1); id < 20; id += 2 {
		a.open(id, echo)
		_ = a.WriteData(id, false, part)
	}
	_ = a.WritePing(false, [8]byte{})
	a.send()
	a.read(func() bool { return a.pongs == 1 })
	b.open(1, echo)
	_ = b.WriteData(1, false, part)
	b.call(3, echo, strings.Repeat("x", 10_000))
	b.send()
	if got := b.until(2); !strings.HasPrefix(got[1].status, "8 ") || got[3].status != "0" {
		t.Errorf("while parts take all room: %q, %q", got[1].status, got[3].status)
	}
	_ = a.Conn.Close()
	for id := uint32(5); ; id += 2 { // until the server has seen the end of a
		b.open(id, echo)
		_ = b.WriteData(id, false, part)
		_ = b.WritePing(false, [8]byte{})
		b.send()
		pongs := b.pongs + 1
		if got := b.read(func() bool { return b.pongs == pongs }); got[id].status == "" {
			break
		}
		time.Sleep(time.Millisecond)
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
