package process

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestMissingErrorNamesEachPackageOnceAndTheCommand(t *testing.T) {
	t.Parallel()
	err := &missingError{Needs: needs}
	want := "apt-get install -y --no-install-recommends gcc libc6-dev postgresql redis-server nginx chromium"
	if !strings.HasSuffix(err.Error(), want) {
		t.Errorf("message\n%s\ndoes not end in\n%s", err, want)
	}
	for _, n := range needs {
		if !strings.Contains(err.Error(), n.Program) {
			t.Errorf("message does not name %s:\n%s", n.Program, err)
		}
	}
}

func TestProgramPrefersPathAndNamesThePackageOfAnAbsentOne(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	mine := filepath.Join(dir, "redis-server")
	if err := os.WriteFile(mine, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := Program("redis-server"); err != nil || got != mine {
		t.Errorf("Program = %q, %v; want %q", got, err, mine)
	}
	if _, err := Program("no-such-program"); err == nil || errors.As(err, new(*missingError)) {
		t.Errorf("an unknown program: %v, want an error that names no package", err)
	}
}

// A caller that names its programs, such as make bench-peers, needs no others.
func TestOnlyNamedProgramsAreMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	folders := searched
	searched = nil
	t.Cleanup(func() { searched = folders })
	lack := missing([]string{"nginx"})
	if len(lack) != 1 || lack[0].Program != "nginx" {
		t.Errorf("missing(nginx) = %v, want only nginx", lack)
	}
	if all := missing(nil); len(all) != len(needs) {
		t.Errorf("missing() has %d programs, want %d", len(all), len(needs))
	}
	err := Provide(t.Context(), io.Discard, "nginx") // without apt-get in PATH
	var lacking *missingError
	if !errors.As(err, &lacking) || len(lacking.Needs) != 1 {
		t.Errorf("Provide(nginx) = %v, want an error that names only nginx", err)
	}
}

func TestVersionOfAPathIsItsNumber(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{
		"/usr/lib/postgresql/15/bin/initdb": 15,
		"/usr/pgsql-18/bin/initdb":          18,
		"/usr/bin/initdb":                   0,
	} {
		if got := version(path); got != want {
			t.Errorf("version(%s) = %d, want %d", path, got, want)
		}
	}
}

func TestSweepRemovesOnlyWhatNobodyHolds(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	folder := func(name string) (path string, lock *os.File) {
		path = filepath.Join(base, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		lock, err := os.Create(filepath.Join(path, lockName))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lock.Close() })
		return path, lock
	}
	held, lock := folder(homePrefix + "held")
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	left, _ := folder(homePrefix + "left")
	other, _ := folder("other")
	sweep(base)
	for path, want := range map[string]bool{held: true, left: false, other: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s exists: %t, want %t", filepath.Base(path), err == nil, want)
		}
	}
}

func TestLaunchReportsHowAProcessEnded(t *testing.T) {
	t.Parallel()
	r, err := Launch(exec.Command("sh", "-c", "exit 7"), syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	<-r.Done()
	var exit *exec.ExitError
	if !errors.As(r.Err(), &exit) || exit.ExitCode() != 7 {
		t.Errorf("ended with %v, want exit status 7", r.Err())
	}
	if err := r.signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal after the end: %v, want %v: its id may be another's by now", err, os.ErrProcessDone)
	}
}

func TestLaunchReportsAProgramThatIsNotThere(t *testing.T) {
	t.Parallel()
	if _, err := Launch(exec.Command(filepath.Join(t.TempDir(), "absent")), syscall.SIGKILL); err == nil {
		t.Error("no error")
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	t.Parallel()
	var log tail
	for range maxTailBytes {
		_, _ = log.Write([]byte("ab"))
	}
	_, _ = log.Write([]byte("end"))
	if got := log.String(); len(got) > maxTailBytes || !strings.HasSuffix(got, "abend") {
		t.Errorf("kept %d bytes, ending in %q", len(got), got[len(got)-10:])
	}
}
