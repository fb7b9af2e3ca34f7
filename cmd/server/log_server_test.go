//go:build !quick

package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/servertest"
)

// A log output that blocks does not block checks, even if Redis is unavailable and every check
// logs something. It does not prevent the process from ending.
func TestBlockedLogBlocksNoCheck(t *testing.T) {
	t.Parallel()
	redis := servertest.StartRedis(t)
	reader, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer stderr.Close()
	settings := map[string]string{
		"HEADGATE_ADDR": "127.0.0.1:0", "HEADGATE_REDIS_URL": redis.URL(), "HEADGATE_BOOTSTRAP_KEY": bootstrap,
		"HEADGATE_DATABASE_URL": "sqlite://" + t.TempDir() + "/headgate.db", "HEADGATE_LOG_LEVEL": "debug",
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, out: newOutput(), logs: newOutput(), stop: cancel, stopped: make(chan error, 1)}
	p := program{getenv: func(name string) string { return settings[name] }, stdin: strings.NewReader(""), stdout: r.out, stderr: stderr}
	go func() { r.stopped <- p.run(ctx, []string{"serve"}) }()
	t.Cleanup(func() { r.end() })
	r.origin = r.await(r.out, servesAt)[1]

	check := func() int {
		return call(t, bootstrap, "POST", r.origin+"/v1/check", `{"tenant": "demo", "method": "POST", "path": "/v1/login", "attributes": {"ip": "203.0.113.9"}}`).status
	}
	if status := check(); status != http.StatusOK {
		t.Fatalf("with Redis: %d", status)
	}
	// A write beyond the capacity of the pipe blocks all writes until the end.
	go func() { _, _ = stderr.Write(make([]byte, 1<<20)) }()
	redis.Stop()
	for range 8 {
		if status := check(); status != http.StatusOK && status != http.StatusTooManyRequests {
			t.Errorf("with a full log pipe and no Redis: %d", status)
		}
	}
	if err := r.end(); err != nil {
		t.Errorf("the node ended with %v", err)
	}
}

// A node whose standard output and standard error are a pipe that is full, or whose reader
// has ended, serves checks and stops at SIGTERM with the exit code 0.
func TestStandardStreamsThatFail(t *testing.T) {
	t.Parallel()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for name, prepare := range map[string]func(t *testing.T, reader, writer *os.File){
		"closed": func(_ *testing.T, reader, _ *os.File) { _ = reader.Close() },
		"full":   func(t *testing.T, _, writer *os.File) { fill(t, writer) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			defer writer.Close()
			prepare(t, reader, writer)
			addr := freeAddr(t)
			node := exec.Command(path, "serve")
			node.Env = []string{
				"HEADGATE_ADDR=" + addr, "HEADGATE_BOOTSTRAP_KEY=" + bootstrap, "HEADGATE_METRICS_PUBLIC=true",
				"HEADGATE_DATABASE_URL=" + sqliteIn(t.TempDir()), "HEADGATE_SHUTDOWN_DELAY=0s",
			}
			node.Stdout, node.Stderr = writer, writer
			node.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := node.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- node.Wait() }()
			await := func() error {
				select {
				case err := <-ended:
					ended <- err
					return err
				case <-time.After(patience):
					return errors.New("the node did not end")
				}
			}
			t.Cleanup(func() {
				_ = node.Process.Kill() // it may have ended
				_ = await()
			})
			origin := "http://" + addr
			eventually(t, "the node is ready", func() bool {
				if len(ended) > 0 {
					t.Fatalf("the node ended: %v", await())
				}
				a, err := tryCall(t.Context(), "", "GET", origin+"/readyz", "")
				return err == nil && a.status == http.StatusOK
			})
			const check = `{"tenant": "demo", "method": "POST", "path": "/v1/login", "attributes": {"ip": "203.0.113.9"}}`
			call(t, bootstrap, "POST", origin+"/v1/check", check).want(t, http.StatusOK)
			eventually(t, "dropped lines are counted", func() bool {
				metrics := call(t, "", "GET", origin+"/metrics", "").want(t, http.StatusOK)
				return name == "full" || regexp.MustCompile(`(?m)^headgate_log_lines_dropped_total [1-9]`).MatchString(metrics.body)
			})
			if err := node.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := await(); err != nil {
				t.Errorf("after SIGTERM: %v", err)
			}
		})
	}
}

// fill writes to a pipe until it is full.
func fill(t *testing.T, pipe *os.File) {
	t.Helper()
	fd := int(pipe.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for err := error(nil); !errors.Is(err, syscall.EAGAIN); {
		if _, err = syscall.Write(fd, make([]byte, 4096)); err != nil && !errors.Is(err, syscall.EAGAIN) {
			t.Fatal(err)
		}
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
}
