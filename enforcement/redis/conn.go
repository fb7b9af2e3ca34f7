package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// patienceSlices is into how many parts a connection divides the time that it
// waits for an answer.
const patienceSlices = 5

// mostPatience bounds a wait on a machine that is short of processors, as a
// multiple of the patience.
const mostPatience = 20

// A conn bounds how long the server may take to answer, counted from the last
// write, in time in which this process could have seen the answer.
//
// The wait is divided into slices. A slice whose end this process notices on
// time counts in full. One that it notices late counts less, in the proportion
// of its length to the time that passed: this process waited for a processor, and
// a server on the same machine probably did too. Before it gives up, the
// connection reads what the kernel received meanwhile.
type conn struct {
	net.Conn
	patience time.Duration // for one answer
	silent   func()        // called once in a wait, after a number of slices
	after    int           // that number

	left  time.Duration // of patience, since the last write
	wrote time.Time
}

// Write starts the wait for an answer.
func (c *conn) Write(b []byte) (int, error) {
	c.left, c.wrote = c.patience, time.Now()
	// A deadline that has passed when the write begins fails it at once. This
	// process may stall in between for longer than patience.
	if err := c.Conn.SetWriteDeadline(c.wrote.Add(mostPatience * c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Read waits for the server within what is left of the patience.
func (c *conn) Read(b []byte) (int, error) {
	slice := c.patience / patienceSlices
	for {
		began := time.Now()
		last := c.left <= 0 || began.Sub(c.wrote) > mostPatience*c.patience
		wait := min(c.left, slice)
		if last {
			wait = slice / 10 // one more look: the answer may have arrived in a late slice
		}
		if err := c.Conn.SetReadDeadline(began.Add(wait)); err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			c.left -= min(time.Since(began), wait)
			return n, err
		}
		if last && time.Since(began) < 2*wait {
			return 0, err
		}
		if last {
			continue // this process stalled before it looked
		}
		before := c.left
		c.left -= max(time.Duration(float64(wait)*float64(wait)/float64(time.Since(began))), 1)
		if c.passed(before) < c.after && c.passed(c.left) >= c.after {
			c.silent()
		}
	}
}

// passed returns how many slices of the patience are used up when left remains.
func (c *conn) passed(left time.Duration) int {
	slice := c.patience / patienceSlices
	return int((c.patience - left + slice/4) / slice)
}

// The deadlines are the connection's own; those of the client are ignored.

func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// A plainConn is a conn without TLS. It lets the client look whether the server
// has closed the connection. Below TLS there is nothing to look at: bytes that
// wait there need not be an answer.
type plainConn struct {
	*conn
	raw syscall.Conn
}

// SyscallConn gives access to the socket.
func (c plainConn) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.raw.SyscallConn()
	return look{raw}, err
}

// A look reads from a connection whatever its deadline is: that of the last
// answer has passed when the client looks whether the server closed the
// connection meanwhile.
type look struct{ syscall.RawConn }

// Read calls f once, and does not wait.
func (l look) Read(f func(fd uintptr) (done bool)) error {
	return l.Control(func(fd uintptr) { f(fd) })
}

// dialer returns the function by which a client opens its connections.
// silent is called once in each wait in which the server sends nothing for a
// number of slices.
func dialer(config *tls.Config, patience time.Duration, after int, silent func()) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := net.Dialer{Timeout: mostPatience * patience / 2, KeepAlive: 5 * time.Minute}
		inner, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner, patience: patience, silent: silent, after: after, left: patience, wrote: time.Now()}
		if config == nil {
			if raw, ok := inner.(syscall.Conn); ok {
				return plainConn{c, raw}, nil
			}
			return c, nil
		}
		host := config
		if host.ServerName == "" {
			host = config.Clone()
			host.ServerName, _, _ = net.SplitHostPort(addr)
		}
		secure := tls.Client(inner, host)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = inner.Close()
			return nil, err
		}
		c.Conn = secure
		return c, nil
	}
}
