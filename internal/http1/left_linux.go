package http1

import (
	"errors"
	"net"
	"syscall"
)

// A peeker looks for the end of what the client sends.
type peeker struct {
	raw  syscall.RawConn // nil: the connection is no socket
	peek func(fd uintptr)
	left bool // set by peek
}

func newPeeker(c net.Conn) *peeker {
	p := &peeker{}
	if socket, ok := c.(syscall.Conn); ok {
		p.raw, _ = socket.SyscallConn()
	}
	p.peek = func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		p.left = err == nil && n == 0 || err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
	}
	return p
}

// Left reports whether the client has closed the connection. It does not wait, and
// reads nothing.
func (p *peeker) Left() bool {
	return p.raw != nil && (p.raw.Control(p.peek) != nil || p.left)
}
