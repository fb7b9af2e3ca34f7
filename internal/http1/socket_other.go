//go:build !linux || !(amd64 || arm64)

package http1

import "net"

// A socket does nothing: the connection is read and written as a net.Conn.
type socket struct{}

func newSocket(net.Conn) *socket { return &socket{} }

// Left returns false: the write of the answer finds that the client has left.
func (*socket) Left() bool { return false }

func (*socket) await(func(fd uintptr) bool) bool { return false }

func (*socket) read(uintptr, []byte) (n int, wait bool) { return 0, false }

func (*socket) write(uintptr, []byte) int { return 0 }
