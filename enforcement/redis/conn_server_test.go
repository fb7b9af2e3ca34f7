//go:build !quick

package redis_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// A connection that was idle for longer than a slice of the patience is used
// again, also with TLS. One that the server closed is not.
func TestIdleConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	server := servertest.StartRedis(t)
	secure, roots, accepted := serveTLS(t, server.URL())
	proxy := servertest.StartProxy(t, server.URL())
	for name, c := range map[string]struct {
		config      redis.Config
		connections func() int
	}{
		"tcp": {redis.Config{URL: proxy.URL(), Timeout: timeout}, proxy.Connections},
		"tls": {redis.Config{URL: secure, Timeout: timeout, TLS: &tls.Config{RootCAs: roots, ServerName: "example.com"}}, func() int { return int(accepted.Load()) }},
	} {
		l := open(t, c.config) // it does not run, because calls in the background open connections too
		eventually(t, "a first decision", func() bool {
			return take(t.Context(), l, request(charge(1, perHour, 1))).Verdict == enforcement.Granted
		})
		before := c.connections()
		const rounds = 5
		for range rounds {
			idle := time.Now().Add(timeout / 4)
			eventually(t, "the deadline of the last answer passes", func() bool { return time.Now().After(idle) })
			if o := take(t.Context(), l, request(charge(1, perHour, 1))); o.Verdict != enforcement.Granted {
				t.Errorf("%s: %s: %v", name, o.Verdict, o.Err)
			}
		}
		if n := c.connections() - before; n != 0 { // without reuse, each round opens a connection
			t.Errorf("%s: %d more connections were opened in %d rounds", name, n, rounds)
		}
	}

	direct := open(t, redis.Config{URL: server.URL()}) // a proxy would pass the end of a connection on later
	mustTake(t, direct, request(charge(1, perHour, 1)))
	if err := client(t, server.URL()).ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	if o := take(t.Context(), direct, request(charge(1, perHour, 1))); o.Verdict != enforcement.Granted {
		t.Errorf("after the server closed the connections: %s: %v", o.Verdict, o.Err)
	}
}

// serveTLS passes TLS connections on to a server. It returns the URL, the roots
// that sign its certificate for example.com, and how many connections it accepted.
func serveTLS(t *testing.T, server string) (secure string, roots *x509.CertPool, accepted *atomic.Int64) {
	t.Helper()
	certified := httptest.NewTLSServer(nil) // for its certificate
	certificates, pool := certified.TLS.Certificates, x509.NewCertPool()
	pool.AddCert(certified.Certificate())
	certified.Close()
	behind, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	target := behind.Host
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificates})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	accepted = new(atomic.Int64)
	go func() {
		for {
			outer, err := listener.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			inner, err := net.Dial("tcp", target)
			if err != nil {
				_ = outer.Close()
				continue
			}
			go func() { _, _ = io.Copy(inner, outer); _ = inner.Close() }()
			go func() { _, _ = io.Copy(outer, inner); _ = outer.Close() }()
		}
	}()
	behind.Scheme, behind.Host = "rediss", listener.Addr().String()
	return behind.String(), pool, accepted
}
