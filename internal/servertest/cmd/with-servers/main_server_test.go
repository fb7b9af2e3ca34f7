//go:build !quick

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/servertest"
	"github.com/headgate/headgate/internal/servertest/process"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// given names two servers that this test started, as a user would.
func given(t *testing.T) {
	t.Helper()
	t.Setenv(process.DatabaseVariable, servertest.Postgres(t))
	t.Setenv(process.RedisVariable, servertest.Redis(t))
}

func TestCommandGetsItsOwnServersWhichEndWithIt(t *testing.T) {
	t.Setenv(process.DatabaseVariable, "")
	t.Setenv(process.RedisVariable, "")
	tmp, err := os.MkdirTemp("", "with-servers-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	// Not t.TempDir: the unprivileged user has to get in.
	if err := os.Chmod(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	var stdout, stderr bytes.Buffer
	code, err := run(t.Context(), []string{"sh", "-c", "env; exit 3"}, &stdout, &stderr)
	if err != nil || code != 3 {
		t.Fatalf("code %d, %v; want the command's own 3\n%s", code, err, &stderr)
	}
	for _, want := range []string{process.DatabaseVariable + "=postgres://", process.RedisVariable + "=redis://"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the command's environment lacks %q", want)
		}
	}
	for _, want := range []string{"PostgreSQL", "Redis server v="} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &stderr)
		}
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "headgate-servers-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestCommandUsesTheServersThatAreNamed(t *testing.T) {
	given(t)
	var stdout, stderr bytes.Buffer
	code, err := run(t.Context(), []string{"env"}, &stdout, &stderr)
	if err != nil || code != 0 {
		t.Fatalf("code %d, %v", code, err)
	}
	if want := process.DatabaseVariable + "=" + os.Getenv(process.DatabaseVariable) + "\n"; !strings.Contains(stdout.String(), want) {
		t.Errorf("the command did not get the database that was named")
	}
	if !strings.Contains(stderr.String(), "named by "+process.DatabaseVariable) {
		t.Errorf("the log does not say where the database is from:\n%s", &stderr)
	}
	if strings.Contains(stderr.String(), "@") {
		t.Errorf("the log shows a password:\n%s", &stderr)
	}
}

func TestAnUnreachableServerIsRefusedBeforeTheCommand(t *testing.T) {
	given(t)
	t.Setenv(process.RedisVariable, "redis://127.0.0.1:1")
	marker := filepath.Join(t.TempDir(), "ran")
	var stdout, stderr bytes.Buffer
	code, err := run(t.Context(), []string{"touch", marker}, &stdout, &stderr)
	if err == nil || code == 0 || !strings.Contains(err.Error(), process.RedisVariable) {
		t.Errorf("code %d, %v; want an error that names %s", code, err, process.RedisVariable)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the command ran all the same")
	}
}

func TestSignalReachesTheCommandAndItsCodeIsPassedOn(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "with-servers")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	given(t)
	for _, c := range []struct {
		script string
		want   int
	}{
		{`trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done`, 9},
		{`echo ready; exec sleep 300`, 128 + int(syscall.SIGTERM)},
	} {
		cmd := exec.Command(binary, "--", "sh", "-c", c.script)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		overdue := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		if _, err := stdout.Read(make([]byte, 16)); err != nil {
			t.Errorf("wait for the command: %v", err)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
		overdue.Stop()
		if got := cmd.ProcessState.ExitCode(); got != c.want {
			t.Errorf("%s: exit code %d, want %d", c.script, got, c.want)
		}
	}
}
