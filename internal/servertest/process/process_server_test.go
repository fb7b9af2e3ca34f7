//go:build linux && !quick

package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServersDieWithAKilledParent runs this test binary again as the parent.
func TestServersDieWithAKilledParent(t *testing.T) {
	t.Parallel()
	if os.Getenv("HEADGATE_TEST_PARENT") != "" {
		parent(t)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestServersDieWithAKilledParent$")
	cmd.Env = append(os.Environ(), "HEADGATE_TEST_PARENT=1")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	var servers, homes []string
	for len(servers) < 2 && lines.Scan() {
		address, home, _ := strings.Cut(lines.Text(), " ")
		servers, homes = append(servers, address), append(homes, home)
	}
	if len(servers) < 2 {
		t.Fatal("the parent started no servers")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	// Each connection is closed at once: Postgres waits for one that says nothing.
	deadline := time.Now().Add(30 * time.Second)
	for _, address := range servers {
		for conn, err := net.Dial("tcp", address); err == nil; conn, err = net.Dial("tcp", address) {
			_ = conn.Close()
			if time.Now().After(deadline) {
				t.Fatalf("%s still listens", address)
			}
			runtime.Gosched()
		}
	}
	removeLeft(t, homes)
}

// removeLeft sweeps, as the next start of a server does, until the folders are
// gone: a server that is just ending may still write to its own.
func removeLeft(t *testing.T, homes []string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for _, home := range homes {
		for {
			sweep(filepath.Dir(home))
			if _, err := os.Stat(home); errors.Is(err, os.ErrNotExist) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s was not swept", home)
			}
			runtime.Gosched()
		}
	}
}

// parent starts both servers, says where they are, and waits to be killed.
func parent(t *testing.T) {
	p, err := StartPostgres()
	if err != nil {
		t.Fatal(err)
	}
	r, err := StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("127.0.0.1:%d %s\n127.0.0.1:%d %s\n", p.port, p.home.path, r.port, r.home.path)
	select {}
}

func TestServersRunUnprivileged(t *testing.T) {
	t.Parallel()
	r, err := StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	info, err := os.Stat(fmt.Sprintf("/proc/%d", r.server.pid))
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid == 0 {
		t.Error("redis runs as root")
	}
}
