package main

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/http1"
	"github.com/headgate/headgate/internal/retry"
)

// A connCaller reports whether the client of one connection has left. It implements
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

// Left reports whether the client closed the connection. A TLS client sends a close message
// first, so the socket has unread bytes: Left waits until net/http reads them and cancels ctx.
func (c *connCaller) Left(ctx context.Context, wait bool) bool {
	if !c.stalls.recent() {
		return false
	}
	if !c.secure || !wait {
		return c.left()
	}
	return retry.Wait(ctx, closeWait) != nil || c.left()
}
