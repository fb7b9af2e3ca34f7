package load

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A sleeper sleeps more precisely than the timers of the Go runtime, which are rounded up to whole
// milliseconds while a process is idle. A sleeper waits for a timer of the kernel through the
// network poller of the Go runtime. Therefore the wait blocks neither a thread nor a processor.
type sleeper struct {
	fd   int
	file *os.File
}

func (s *sleeper) open() error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	s.fd, s.file = fd, os.NewFile(uintptr(fd), "timer")
	return nil
}

func (s *sleeper) sleep(d time.Duration) {
	timer := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if unix.TimerfdSettime(s.fd, 0, &timer, nil) != nil {
		time.Sleep(d)
		return
	}
	var expired [8]byte
	_, _ = s.file.Read(expired[:])
}

func (s *sleeper) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}
