package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/servertest/process"
)

const (
	startPatience = 60 * time.Second
	stopPatience  = 15 * time.Second
)

// A child is a process that this command has started. On Linux, the kernel kills the process if
// this command is killed.
type child struct {
	name    string
	cmd     *exec.Cmd
	running *process.Running
	out     *transcript
}

// start starts a program. The program gets the environment variables in env, and those that all
// programs need.
func (b *bench) start(name string, env []string, program string, args ...string) (*child, error) {
	return b.startIn(b.folder, name, env, program, args...)
}

// startIn is like start, but the program runs in the given folder.
func (b *bench) startIn(folder, name string, env []string, program string, args ...string) (*child, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = folder
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.folder, "TMPDIR=" + b.folder}, env...)
	c := &child{name: name, cmd: cmd, out: newTranscript()}
	cmd.Stdout, cmd.Stderr = c.out, c.out
	var err error
	if c.running, err = process.Launch(cmd, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	b.children = append(b.children, c)
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// stop asks the process to end. After stopPatience, it kills the process. It returns when the
// process has ended.
func (c *child) stop() {
	c.running.SignalGroup(syscall.SIGTERM)
	select {
	case <-c.running.Done():
	case <-time.After(stopPatience):
		c.running.SignalGroup(syscall.SIGKILL)
		<-c.running.Done()
	}
}

// await waits until the output of the process matches re, and returns the first submatch. It
// returns an error if the process ends, or after startPatience.
func (c *child) await(re *regexp.Regexp) (string, error) {
	overdue := time.After(startPatience)
	for {
		text, changed := c.out.read()
		if m := re.FindStringSubmatch(text); m != nil {
			return m[1], nil
		}
		select {
		case <-changed:
		case <-c.running.Done():
			return "", fmt.Errorf("%s ended before it was ready: %v\n%s", c.name, c.running.Err(), text)
		case <-overdue:
			return "", fmt.Errorf("%s was not ready within %s\n%s", c.name, startPatience, text)
		}
	}
}

// listens waits until the process accepts connections at the address. It returns an error if
// the process ends, or after startPatience.
func (c *child) listens(address string) error {
	overdue := time.After(startPatience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-c.running.Done():
			text, _ := c.out.read()
			return fmt.Errorf("%s ended before it was ready: %v\n%s", c.name, c.running.Err(), text)
		case <-overdue:
			text, _ := c.out.read()
			return fmt.Errorf("%s did not listen on %s within %s\n%s", c.name, address, startPatience, text)
		}
	}
}

// A transcript stores the output of a process, up to maxTranscript bytes.
type transcript struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

const maxTranscript = 1 << 20

func newTranscript() *transcript { return &transcript{changed: make(chan struct{})} }

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.changed)
	t.changed = make(chan struct{})
	if t.text.Len() < maxTranscript {
		t.text.Write(p)
	}
	return len(p), nil
}

func (t *transcript) read() (string, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String(), t.changed
}
