package process

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The environment variables with the URLs of the shared servers.
const (
	DatabaseVariable = "HEADGATE_TEST_DATABASE_URL"
	RedisVariable    = "HEADGATE_TEST_REDIS_URL"
)

const (
	// startDeadline is the maximum time for the start of a server. It is long, because initdb and
	// the first start may share two processors with a compiler.
	startDeadline = 60 * time.Second
	// stopDeadline is the time that a server may take to shut down.
	stopDeadline = 20 * time.Second
	pollInterval = 10 * time.Millisecond
)

// A Running is an operating system process that can be waited for.
type Running struct {
	pid  int
	done chan struct{} // closed when Wait for the process has returned
	err  error         // the result of the process; valid after done is closed
}

// Launch starts cmd in a new process group, so that an interrupt from the terminal reaches only the
// tests and not their servers.
//
// The operating system thread that starts the child stays alive until the child has ended. Linux
// sends the death signal to the child when this thread ends, not when the whole process ends.
func Launch(cmd *exec.Cmd, onParentDeath syscall.Signal) (*Running, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	dieWithParent(cmd.SysProcAttr, onParentDeath)

	r := &Running{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			r.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		r.err = cmd.Wait()
		close(r.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Running) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Done returns a channel that is closed when the process has ended and its result is available.
func (r *Running) Done() <-chan struct{} { return r.done }

// Err returns the error with which the process ended, or nil for exit status 0. It is valid after
// Done is closed.
func (r *Running) Err() error { return r.err }

// SignalGroup sends sig to the process and to all that it started.
func (r *Running) SignalGroup(sig syscall.Signal) {
	if !r.ended() {
		_ = syscall.Kill(-r.pid, sig)
	}
}

// signal sends sig to the process. It does nothing if the process has ended.
func (r *Running) signal(sig syscall.Signal) error {
	if r.ended() {
		return os.ErrProcessDone
	}
	return syscall.Kill(r.pid, sig)
}

// stop sends sig to the process. If the process does not end in time, stop kills it.
func (r *Running) stop(sig syscall.Signal) {
	_ = r.signal(sig)
	_ = r.signal(syscall.SIGCONT) // a stopped process reacts to other signals only after SIGCONT
	select {
	case <-r.done:
	case <-time.After(stopDeadline):
		_ = r.signal(syscall.SIGKILL)
		<-r.done
	}
}

// A home is the folder of one server. The process that owns the folder holds a lock on it. After
// the process has died, the lock is free, and sweep removes the folder.
type home struct {
	path string
	lock *os.File
	// cred is the unprivileged user that owns the folder; nil for the current user.
	cred *syscall.Credential
}

const (
	homePrefix = "headgate-servers-"
	lockName   = "lock"
)

func newHome() (*home, error) {
	cred, err := unprivileged()
	if err != nil {
		return nil, err
	}
	base := tempDir(cred)
	sweep(base)
	// The folder gets its final name only after it is locked. Otherwise sweep in another process
	// could remove it.
	fresh, err := os.MkdirTemp(base, "headgate-new-")
	if err != nil {
		return nil, err
	}
	h := &home{path: filepath.Join(base, homePrefix+strings.TrimPrefix(filepath.Base(fresh), "headgate-new-")), cred: cred}
	h.lock, err = os.OpenFile(filepath.Join(fresh, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(h.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil && cred != nil {
		err = os.Chown(fresh, int(cred.Uid), int(cred.Gid))
	}
	if err == nil {
		err = os.Rename(fresh, h.path)
	}
	if err != nil {
		_ = os.RemoveAll(fresh)
		if h.lock != nil {
			_ = h.lock.Close()
		}
		return nil, fmt.Errorf("make a folder for a server: %w", err)
	}
	return h, nil
}

// write makes a file that only the server's user can read.
func (h *home) write(name, text string) (string, error) {
	path := filepath.Join(h.path, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", err
	}
	if h.cred != nil {
		if err := os.Chown(path, int(h.cred.Uid), int(h.cred.Gid)); err != nil {
			return "", err
		}
	}
	return path, nil
}

func (h *home) remove() {
	_ = os.RemoveAll(h.path)
	_ = h.lock.Close()
}

// command returns a command that runs as the folder's owner in the folder. Its environment
// has no settings of the caller's databases.
func (h *home) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = h.path // the server's user may have no access to the caller's folder
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.path, "TMPDIR=" + h.path, "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: h.cred}
	return cmd
}

// sweep removes the folders whose owners have died. The servers of these owners have ended too. An
// owner that is alive holds the lock of its folder.
func sweep(base string) {
	left, _ := filepath.Glob(filepath.Join(base, homePrefix+"*"))
	for _, path := range left {
		lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR, 0)
		if err != nil {
			continue // the folder belongs to another user, or another process is removing it now
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(path)
		}
		_ = lock.Close()
	}
}

// tempDir returns the system's folder for temporary files. It returns /tmp if the owner of
// the data cannot use that folder, for example the private one of root.
func tempDir(cred *syscall.Credential) string {
	base := os.TempDir()
	if cred == nil {
		return base
	}
	for dir := base; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return "/tmp"
		}
		if dir == filepath.Dir(dir) {
			return base
		}
	}
}

// freePort returns an unused loopback port. The port is below the range that the kernel
// uses for outgoing connections. Otherwise a client that dials while its server is down
// could get this port as its local port and connect to itself.
func freePort() (int, error) {
	const low, high = 15000, 32000
	for range 200 {
		port := low + mathrand.IntN(high-low)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		_ = l.Close()
		return port, nil
	}
	return 0, errors.New("no free loopback port between 15000 and 32000")
}

// onFreePort calls start with a free port. If start fails, onFreePort tries another port, because
// another process may have taken the port before start listened on it.
func onFreePort(start func(port int) error) error {
	var last error
	for range 5 {
		port, err := freePort()
		if err != nil {
			return err
		}
		last = start(port)
		if last == nil || !strings.Contains(strings.ToLower(last.Error()), "address already in use") {
			return last
		}
	}
	return last
}

// await polls until ready returns true, the process ends, or the deadline passes.
func await(r *Running, ready func() bool) error {
	deadline := time.NewTimer(startDeadline)
	defer deadline.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if ready() {
			return nil
		}
		select {
		case <-r.done:
			return fmt.Errorf("it ended before it was ready: %w", orExited(r.err))
		case <-deadline.C:
			return fmt.Errorf("it was not ready after %s", startDeadline)
		case <-tick.C:
		}
	}
}

func orExited(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

func secret() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails since Go 1.24
	return hex.EncodeToString(b)
}

// A tail keeps the last lines of a server's log for the error message.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const maxTailBytes = 16 << 10

var _ io.Writer = (*tail)(nil)

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p)
	if over := t.buf.Len() - maxTailBytes; over > 0 {
		t.buf.Next(over)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.buf.String())
}
