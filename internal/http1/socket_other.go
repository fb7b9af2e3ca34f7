//go:build !linux || !(amd64 || arm64)

package http1

import "net"

// A socket does nothing on this operating system. This package reads and writes all connections
// with the methods of net.Conn.
type socket struct{}

func newSocket(net.Conn) *socket { return &socket{} }

// Left always returns false, because this operating system has no suitable system call. If the
// client has closed the connection, writing the response fails.
func (*socket) Left() bool { return false }

func (*socket) await(func(fd uintptr) bool) bool { return false }

func (*socket) read(uintptr, []byte) (n int, wait bool) { return 0, false }

func (*socket) write(uintptr, []byte) int { return 0 }
