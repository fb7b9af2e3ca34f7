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

// patienceSlices is the number of slices into which a connection divides its answer timeout.
const patienceSlices = 5

// mostPatience bounds the wall-clock time of one wait, as a multiple of the answer timeout.
// This second bound is needed because the answer timeout does not count the time in which this
// process did not run, which can be long on an overloaded machine.
const mostPatience = 20

// A conn is a connection to Redis that bounds the time until the server answers. The time
// counts from the last write. Time in which this process did not run does not count.
//
// The wait is divided into slices. A slice counts in full if this process runs again exactly
// at its end. If the process runs later, it waited for a processor, and a server on the same
// machine probably waited too. The slice then counts less: its length, multiplied by its
// length, divided by the time that passed. Before a timeout, the connection reads once more
// what the kernel has already received.
type conn struct {
	net.Conn
	patience time.Duration // timeout of one answer
	silent   func()        // called once in a wait, when the number of slices in after has passed
	after    int

	left    time.Duration // unused part of patience since the last write
	wrote   time.Time
	listens bool // reads wait without a timeout: the client waits for messages of a Sentinel
}

// Write starts the wait for an answer.
func (c *conn) Write(b []byte) (int, error) {
	c.left, c.wrote = c.patience, time.Now()
	// This process may stall here, before the write, for longer than patience. The write deadline
	// is much later, so that such a stall does not make the write fail.
	if err := c.Conn.SetWriteDeadline(c.wrote.Add(mostPatience * c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Read waits for data from the server, for as long as the answer timeout allows. c.left is the
// part of the timeout that is left since the last write.
func (c *conn) Read(b []byte) (int, error) {
	if c.listens {
		return c.Conn.Read(b)
	}
	slice := c.patience / patienceSlices
	for {
		began := time.Now()
		last := c.left <= 0 || began.Sub(c.wrote) > mostPatience*c.patience
		wait := min(c.left, slice)
		if last {
			wait = slice / 10 // one last read, because the answer may have arrived in a slice that ended late
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
			continue // this process stalled before the last read
		}
		before := c.left
		c.left -= max(time.Duration(float64(wait)*float64(wait)/float64(time.Since(began))), 1)
		if c.passed(before) < c.after && c.passed(c.left) >= c.after {
			c.silent()
		}
	}
}

// passed returns how many slices of the timeout have passed when the time left is left.
func (c *conn) passed(left time.Duration) int {
	slice := c.patience / patienceSlices
	return int((c.patience - left + slice/4) / slice)
}

// SetReadDeadline ignores the deadlines of the client, because the connection sets its own.
// The client sets no deadline for calls. On a connection that listens to a Sentinel for a new
// master, it sets the zero time, which means that reads wait without a timeout.
func (c *conn) SetReadDeadline(t time.Time) error {
	if c.listens = t.IsZero(); c.listens {
		return c.Conn.SetReadDeadline(t)
	}
	return nil
}

// The methods below do nothing, because the connection sets its own deadlines.

func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// A plainConn is a conn without TLS. It gives the client access to the socket, so that the
// client can check whether the server has closed the connection. A TLS connection does not
// have this check, because bytes that wait below TLS are not always part of an answer.
type plainConn struct {
	*conn
	raw syscall.Conn
}

// SyscallConn returns the socket. The client reads from it to check whether the server
// closed the connection.
func (c plainConn) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.raw.SyscallConn()
	return look{raw}, err
}

// A look is a raw socket whose Read ignores the connection's deadline. The client uses it to
// check for a closed connection. At that time, the deadline of the last answer may have
// passed.
type look struct{ syscall.RawConn }

// Read calls f once, and does not wait.
func (l look) Read(f func(fd uintptr) (done bool)) error {
	return l.Control(func(fd uintptr) { f(fd) })
}

// dialer returns the function with which a client opens its connections. patience is the
// answer timeout of each connection. While a connection waits for an answer, it calls silent
// once, when the number of slices in after has passed.
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
