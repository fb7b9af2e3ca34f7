package connlimit

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"
)

// evicted is since of a connection that the Listener closed.
const evicted = -1

// A Conn is a connection of a Listener.
type Conn struct {
	net.Conn
	listener *Listener
	address  netip.Addr
	reserved bool

	since atomic.Int64 // when it began to wait for a request, in nanoseconds; 0: a request is under way
	used  atomic.Bool  // it had a request
}

// Idle marks that the connection waits for a request: it may be closed for another.
func (c *Conn) Idle() { c.since.CompareAndSwap(0, time.Now().UnixNano()) }

// Busy marks that a request has begun. It returns false if the connection was closed
// for another.
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

// Reserved reports whether the connection is one of the reserve.
func (c *Conn) Reserved() bool { return c.reserved }

// Close closes the connection and counts it out.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.listener.remove(c)
	return err
}

// CloseWrite closes the sending side, so that the client reads the last answer
// before the connection ends.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SyscallConn returns the socket.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := c.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
