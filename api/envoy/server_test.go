package envoy

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"net"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/headgate/headgate/internal/connlimit"
)

// A call whose message does not arrive ends, so that a client cannot hold the memory of many parts of
// messages.
func TestCallsWithoutAMessageEnd(t *testing.T) {
	t.Parallel()
	s := New(Config{Logger: slog.New(slog.DiscardHandler)})
	s.http2.Limits.Complete = 50 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(connlimit.Wrap(l, connlimit.Limits{Total: 10}, nil)) }()
	t.Cleanup(func() {
		_ = s.Shutdown(t.Context())
		<-served
	})
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = c.Write([]byte(http2.ClientPreface))
	must(err)
	to := http2.NewFramer(c, c)
	must(to.WriteSettings())
	const calls = 20
	part := make([]byte, 1000)
	binary.BigEndian.PutUint32(part[1:], maxMessage) // the length of the message, most of which never comes
	for i := range calls {
		path := []string{ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName, authv3.Authorization_Check_FullMethodName}[i%2]
		var head bytes.Buffer
		encoder := hpack.NewEncoder(&head)
		encoder.SetMaxDynamicTableSize(0)
		for _, field := range [][2]string{
			{":method", "POST"}, {":scheme", "http"}, {":authority", "headgate"}, {":path", path}, {"content-type", "application/grpc"}, {"te", "trailers"},
		} {
			must(encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1], Sensitive: true}))
		}
		must(to.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: head.Bytes(), EndHeaders: true}))
		must(to.WriteData(uint32(2*i+1), false, part))
	}
	ended := map[uint32]bool{}
	for len(ended) < calls {
		f, err := to.ReadFrame()
		if err != nil {
			t.Fatalf("%d of %d calls ended: %v", len(ended), calls, err)
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			ended[f.StreamID] = true
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				ended[f.StreamID] = true
			}
		}
	}
}
