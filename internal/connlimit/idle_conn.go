package connlimit

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"
)

// evicted is the value of Conn.since after the Listener has closed the idle connection to make
// room for a new one.
const evicted = -1

// A Conn is a connection that a Listener accepted.
type Conn struct {
	net.Conn
	listener *Listener
	address  netip.Addr
	reserved bool

	since atomic.Int64 // time at which the connection became idle, in nanoseconds since the epoch; 0 while it serves a request
	used  atomic.Bool  // set when the connection has had a request

	writeEnd atomic.Int64 // deadline for writes, in nanoseconds since the epoch; 0 if there is none
}

// Idle records that the connection waits for a request. From then on, the Listener may close
// the connection to make room for another one.
func (c *Conn) Idle() { c.since.CompareAndSwap(0, time.Now().UnixNano()) }

// Busy records that a request has begun on the connection. It returns false if the Listener has
// already closed the connection to make room for another one.
func (c *Conn) Busy() bool {
	for {
		since := c.since.Load()
		if since == evicted {
			return false
		}
		if since == 0 || c.since.CompareAndSwap(since, 0) {
			c.used.Store(true)
			return true
		}
	}
}

// Reserved reports whether the connection belongs to the reserve. The Listener accepts such
// connections while all other connections are in use.
func (c *Conn) Reserved() bool { return c.reserved }

// Close closes the connection. From then on, the bounds of the Listener no longer count it.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.listener.remove(c)
	return err
}

// CloseWrite closes the sending direction of the connection. The client can still read the last
// response before the connection is closed.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SyscallConn returns the underlying socket.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := c.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
