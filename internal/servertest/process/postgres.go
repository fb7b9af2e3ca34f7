package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// A Postgres is a private Postgres server. Its methods may be called from
// several goroutines.
type Postgres struct {
	home     *home
	program  string
	password string
	port     int

	mu     sync.Mutex
	server *Running
	log    *tail
	paused []int // process ids held by Pause
}

const postgresUser = "headgate"

// StartPostgres creates a cluster, starts a server on it, and waits until the server
// accepts connections.
func StartPostgres() (*Postgres, error) {
	initdb, err := Program("initdb")
	if err != nil {
		return nil, err
	}
	program, err := Program("postgres")
	if err != nil {
		return nil, err
	}
	h, err := newHome()
	if err != nil {
		return nil, err
	}
	p := &Postgres{home: h, program: program, password: secret()}
	if err := p.initialise(initdb); err != nil {
		h.remove()
		return nil, err
	}
	err = onFreePort(func(port int) error {
		p.port = port
		return p.Start()
	})
	if err != nil {
		h.remove()
		return nil, err
	}
	return p, nil
}

func (p *Postgres) data() string { return filepath.Join(p.home.path, "data") }

func (p *Postgres) initialise(initdb string) error {
	pwfile, err := p.home.write("password", p.password+"\n")
	if err != nil {
		return err
	}
	// With this locale, strings have the same order on every machine, and every Unicode character
	// can be stored.
	locale := "C"
	if runtime.GOOS == "linux" {
		locale = "C.UTF-8"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*startDeadline)
	defer cancel()
	cmd := p.home.command(ctx, initdb,
		"--pgdata="+p.data(), "--username="+postgresUser, "--pwfile="+pwfile,
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale="+locale, "--no-sync")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return os.Remove(pwfile)
}

// Start starts the server again, after Stop, on the same port and data.
func (p *Postgres) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil && !p.server.ended() {
		return errors.New("postgres is running already")
	}
	p.log = &tail{}
	cmd := p.home.command(context.Background(), p.program,
		"-D", p.data(), "-p", strconv.Itoa(p.port), "-h", "127.0.0.1",
		"-c", "unix_socket_directories=", // no Unix socket, because its path could be too long
		"-c", "max_connections=200",
		// These options keep the data after a crash of the server. They may lose data after a crash
		// of the machine, which tests do not need to survive.
		"-c", "fsync=off", "-c", "full_page_writes=off",
		"-c", "max_wal_size=256MB", "-c", "shared_buffers=64MB",
		"-c", "log_min_messages=warning", "-c", "log_min_error_statement=panic")
	cmd.Stdout, cmd.Stderr = p.log, p.log
	// SIGQUIT is an immediate shutdown that includes the children.
	server, err := Launch(cmd, syscall.SIGQUIT)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.program, err)
	}
	p.server, p.paused = server, nil
	if err := await(server, p.ready); err != nil {
		server.stop(syscall.SIGQUIT)
		return fmt.Errorf("start %s: %w\n%s", p.program, err, p.log)
	}
	return nil
}

// ready reads the eighth line of postmaster.pid, as pg_ctl --wait does. The first line is
// the process ID, which distinguishes this start from the previous one.
func (p *Postgres) ready() bool {
	text, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	return len(lines) >= 8 && strings.TrimSpace(lines[0]) == strconv.Itoa(p.server.pid) &&
		strings.TrimSpace(lines[7]) == "ready"
}

// Stop stops the server immediately, like a crash. Open transactions are lost. The next Start
// recovers the data.
func (p *Postgres) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resume()
	p.server.stop(syscall.SIGQUIT)
}

// Close ends the server and removes its files.
func (p *Postgres) Close() {
	p.Stop()
	p.home.remove()
}

// Pause stops the processes of the server and its sessions. Connections stay open, and
// the server does not answer.
func (p *Postgres) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The postmaster is stopped first, so that it starts no further session.
	if err := p.server.signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause postgres: %w", err)
	}
	p.paused = append(p.paused, p.server.pid)
	sessions, err := children(p.server.pid)
	if err != nil {
		p.resume()
		return fmt.Errorf("pause postgres: %w", err)
	}
	for _, pid := range sessions {
		if syscall.Kill(pid, syscall.SIGSTOP) == nil {
			p.paused = append(p.paused, pid)
		}
	}
	return nil
}

// Resume continues a paused server.
func (p *Postgres) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resume()
}

// resume continues the sessions before the postmaster. A stopped postmaster does not wait for its
// ended children, so the kernel cannot give their process IDs to other processes before resume
// signals them.
func (p *Postgres) resume() {
	for i := len(p.paused) - 1; i >= 0; i-- {
		_ = syscall.Kill(p.paused[i], syscall.SIGCONT)
	}
	p.paused = nil
}

// URL returns the URL of the server's maintenance database.
func (p *Postgres) URL() string {
	return fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/postgres?sslmode=disable", postgresUser, p.password, p.port)
}

// children returns the process IDs of the children of parent from /proc.
func children(parent int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // it ended meanwhile
		}
		// The format is "pid (name) state ppid". The name may contain spaces and parentheses.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
