package main

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/http1"
	"github.com/headgate/headgate/internal/retry"
)

// A connCaller reports whether the client of one connection has closed it. It implements
// enforcement.Caller.
type connCaller struct {
	stalls *stalls
	left   func() bool
	secure bool
}

// connContext adds a connCaller for c to the context of all requests of the connection.
func (s *stalls) connContext(ctx context.Context, c net.Conn) context.Context {
	t, secure := c.(*tls.Conn)
	if secure {
		c = t.NetConn()
	}
	return enforcement.WithCaller(ctx, &connCaller{stalls: s, left: http1.Left(c), secure: secure})
}

// Left reports whether the client has closed the connection. This costs a system call, so Left
// looks only for some time after a stall of the process, and returns false at other times. A TLS
// client sends a close message before it closes. If wait is true, Left therefore gives net/http
// some time to read this message and to cancel ctx.
func (c *connCaller) Left(ctx context.Context, wait bool) bool {
	if !c.stalls.recent() {
		return false
	}
	if !c.secure || !wait {
		return c.left()
	}
	return retry.Wait(ctx, closeWait) != nil || c.left()
}
