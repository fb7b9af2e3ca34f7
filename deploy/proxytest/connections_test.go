package proxytest

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// countConnections returns an address that passes connections on to another address, and the number of connections
// that sent something.
func countConnections(t *testing.T, to string) (address string, connections *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	connections = new(atomic.Int64)
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = from.Close() }()
				first := make([]byte, 1)
				if _, err := io.ReadFull(from, first); err != nil {
					return // a check of the health
				}
				connections.Add(1)
				onward, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer func() { _ = onward.Close() }()
				if _, err := onward.Write(first); err != nil {
					return
				}
				go func() { _, _ = io.Copy(from, onward); _ = from.Close() }()
				_, _ = io.Copy(onward, from)
			}()
		}
	}()
	return l.Addr().String(), connections
}

// A gateway keeps its connections to Headgate, because a new one for each check costs more than the check.
func TestRecipesKeepConnections(t *testing.T) {
	for _, g := range gateways {
		if g.Name == "Apache" {
			continue // LuaSocket makes a connection for each check, as docs/gateways.md says
		}
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			headgate, services, upstream := freeAddress(t), freeAddress(t), upstreamOf(t)
			key := startHeadgate(t, headgate, services)
			if g.GRPC {
				headgate = services
			}
			counted, connections := countConnections(t, headgate)
			url := g.serve(t, counted, upstream, key)
			const requests = 20
			for i := range requests {
				if a, text := send(t, url+"/v1/items", "x"); a.StatusCode != 200 {
					t.Fatalf("%d: %d %q", i, a.StatusCode, text)
				}
			}
			before := connections.Load()
			if before < 1 || before > requests/4 {
				t.Errorf("%d requests made %d connections to Headgate", requests, before)
			}
			for i := range requests {
				if a, text := send(t, url+"/v1/login", "x"); (a.StatusCode == 429) != (i >= 5) {
					t.Fatalf("%d: %d %q", i, a.StatusCode, text)
				}
			}
			if n := connections.Load() - before; n > requests/4 {
				t.Errorf("%d requests, most of them denied, made %d connections to Headgate", requests, n)
			}
		})
	}
}
