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

// StartRedis starts a server and waits until it answers. The server stores nothing on
// disk, unless args, the arguments of redis-server, change that ("--appendonly", "yes").
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
	// The password is in a file, because every user can read a command line.
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

// ready reports whether the server answers. It answers LOADING until its data is read.
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

// Stop shuts the server down, which writes its data to disk.
func (r *Redis) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server.stop(syscall.SIGTERM)
}

// Kill stops the server without a shutdown, as a power failure does.
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

// Pause stops the process of the server. Connections stay open, and it does not answer.
func (r *Redis) Pause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.server.signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause redis: %w", err)
	}
	return nil
}

// Resume continues a paused server.
func (r *Redis) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.server.signal(syscall.SIGCONT)
}

// Prefer raises the priority of the server, so that it answers quickly on a busy machine.
// It needs root; without root, it has no effect.
func (r *Redis) Prefer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, r.server.pid, -20)
}

// URL returns the server's URL.
func (r *Redis) URL() string { return fmt.Sprintf("redis://default:%s@%s", r.password, r.address()) }
