//go:build linux && (amd64 || arm64)

package http1

import (
	"net"
	"syscall"
	"unsafe"
)

// A socket gives access to the file descriptor of a connection. Its system calls never wait, and
// the Go scheduler is not told about them. Otherwise the Go runtime could give the processor to
// another thread during each call, and its monitor thread would stay awake.
// docs/adr/0026-system-calls-that-do-not-wait.md has the measurements.
type socket struct {
	raw  syscall.RawConn // nil if the connection is not a socket
	peek func(fd uintptr)
	left bool // set by peek if the client has closed the connection
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

// Left reports whether the client has closed the connection. It does not wait and consumes no
// bytes.
func (s *socket) Left() bool {
	return s.raw != nil && (s.raw.Control(s.peek) != nil || s.left)
}

// await calls step at once, and again whenever bytes arrive, until step returns true. If the
// connection is not a socket, await returns false without calling step.
//
// The runtime calls step again only for bytes that arrive after the start of the last call.
// Therefore step must read all bytes that have arrived before it returns false.
func (s *socket) await(step func(fd uintptr) bool) bool {
	if s.raw == nil {
		return false
	}
	_ = s.raw.Read(step) // after an error, the caller closes the connection anyway
	return true
}

// read reads the bytes that have arrived. If no bytes have arrived, wait is true. n is 0 at the end
// of the connection and after an error.
func (s *socket) read(fd uintptr, b []byte) (n int, wait bool) {
	n, err := transfer(syscall.SYS_RECVFROM, fd, b, 0)
	return n, err == syscall.EAGAIN
}

// write writes as many bytes as the socket accepts without waiting, and returns their number. It
// returns 0 after an error.
func (s *socket) write(fd uintptr, b []byte) int {
	n, _ := transfer(syscall.SYS_SENDTO, fd, b, syscall.MSG_NOSIGNAL)
	return n
}

// transfer makes the system call recvfrom or sendto, without an address. The call does not wait.
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
