package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Redis is a private Redis server. Its methods may be called from several
// goroutines.
type Redis struct {
	home     *home
	program  string
	password string
	port     int
	args     []string

	mu     sync.Mutex
	server *Running
	log    *tail
}

// StartRedis starts a server that keeps nothing on disk unless args, which are
// redis-server's own, say so ("--appendonly", "yes"). It returns once the
// server answers.
func StartRedis(args ...string) (*Redis, error) {
	program, err := Program("redis-server")
	if err != nil {
		return nil, err
	}
	h, err := newHome()
	if err != nil {
		return nil, err
	}
	r := &Redis{home: h, program: program, password: secret(), args: args}
	err = onFreePort(func(port int) error {
		r.port = port
		return r.Start()
	})
	if err != nil {
		h.remove()
		return nil, err
	}
	return r, nil
}

// Start starts the server again, after Stop or Kill, on the same port and
// folder.
func (r *Redis) Start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server != nil && !r.server.ended() {
		return errors.New("redis is running already")
	}
	// In a file, because a command line can be read by every user.
	conf, err := r.home.write("redis.conf", fmt.Sprintf(
		"bind 127.0.0.1\nport %d\nrequirepass %s\ndir %s\nsave \"\"\nappendonly no\ndaemonize no\n",
		r.port, r.password, r.home.path))
	if err != nil {
		return err
	}
	r.log = &tail{}
	cmd := r.home.command(context.Background(), r.program, append([]string{conf}, r.args...)...)
	cmd.Stdout, cmd.Stderr = r.log, r.log
	server, err := Launch(cmd, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("start %s: %w", r.program, err)
	}
	r.server = server
	if err := await(server, r.ready); err != nil {
		server.stop(syscall.SIGKILL)
		return fmt.Errorf("start %s: %w\n%s", r.program, err, r.log)
	}
	return nil
}

// ready asks the server itself; it says LOADING until its data is read.
func (r *Redis) ready() bool {
	conn, err := net.DialTimeout("tcp", r.address(), time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := fmt.Fprintf(conn, "AUTH %s\r\nPING\r\nQUIT\r\n", r.password); err != nil {
		return false
	}
	reply, err := io.ReadAll(conn)
	return err == nil && strings.Contains(string(reply), "+PONG")
}

func (r *Redis) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// Stop ends the server in its own order: what it keeps on disk is written.
func (r *Redis) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server.stop(syscall.SIGTERM)
}

// Kill ends the server as a power cut does.
func (r *Redis) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server.stop(syscall.SIGKILL)
}

// Close ends the server and removes its files.
func (r *Redis) Close() {
	r.Kill()
	r.home.remove()
}

// Pause holds the server: connections stay open and nothing answers.
func (r *Redis) Pause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.server.signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause redis: %w", err)
	}
	return nil
}

// Resume lets a paused server go on.
func (r *Redis) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.server.signal(syscall.SIGCONT)
}

// Prefer has the kernel run the server before other processes, so that it
// answers at once however busy the machine is. It needs the right to do so
// (root); without it the server keeps its priority.
func (r *Redis) Prefer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, r.server.pid, -20)
}

// URL is where the server is.
func (r *Redis) URL() string { return fmt.Sprintf("redis://default:%s@%s", r.password, r.address()) }
