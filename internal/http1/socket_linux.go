//go:build linux && (amd64 || arm64)

package http1

import (
	"net"
	"syscall"
	"unsafe"
)

// A socket gives access to the file descriptor of a connection. Its system calls
// never wait, so they do not tell the scheduler that they begin: no other thread
// takes the processor over meanwhile, and the runtime's monitor thread sleeps.
// docs/adr/0026-system-calls-that-do-not-wait.md has the measurements.
type socket struct {
	raw  syscall.RawConn // nil: the connection is no socket
	peek func(fd uintptr)
	left bool // set by peek
}

func newSocket(c net.Conn) *socket {
	s := &socket{}
	if has, ok := c.(syscall.Conn); ok {
		s.raw, _ = has.SyscallConn()
	}
	s.peek = func(fd uintptr) {
		var b [1]byte
		n, err := transfer(syscall.SYS_RECVFROM, fd, b[:], syscall.MSG_PEEK)
		s.left = err == 0 && n == 0 || err != 0 && err != syscall.EAGAIN
	}
	return s
}

// Left reports whether the client has closed the connection. It does not wait, and
// reads nothing.
func (s *socket) Left() bool {
	return s.raw != nil && (s.raw.Control(s.peek) != nil || s.left)
}

// await calls step when the connection is opened and whenever bytes arrive, until
// step returns true. It returns false at once if the connection is no socket.
//
// The runtime reports only bytes that arrive after the last call began, so step
// must have read all bytes when it returns false.
func (s *socket) await(step func(fd uintptr) bool) bool {
	if s.raw == nil {
		return false
	}
	_ = s.raw.Read(step) // an error ends the connection, and so does its cause
	return true
}

// read reads what has arrived. If nothing has, wait is true. n is 0 at the end of
// the connection and after an error.
func (s *socket) read(fd uintptr, b []byte) (n int, wait bool) {
	n, err := transfer(syscall.SYS_RECVFROM, fd, b, 0)
	return n, err == syscall.EAGAIN
}

// write writes as much as the socket takes at once. It returns 0 after an error.
func (s *socket) write(fd uintptr, b []byte) int {
	n, _ := transfer(syscall.SYS_SENDTO, fd, b, syscall.MSG_NOSIGNAL)
	return n
}

// transfer calls recvfrom or sendto without an address and without waiting.
func transfer(call, fd uintptr, b []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, err := syscall.RawSyscall6(call, fd,
			uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags|syscall.MSG_DONTWAIT, 0, 0)
		if err == 0 {
			return int(n), 0
		}
		if err != syscall.EINTR {
			return 0, err
		}
	}
}
