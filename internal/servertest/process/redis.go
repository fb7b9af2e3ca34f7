package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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
	monitor  string // the part of the configuration that only a Sentinel has; "" for other servers

	mu     sync.Mutex
	server *Running
	log    *tail
}

// StartRedis starts a server and waits until it answers. The server stores nothing on
// disk, unless args, the arguments of redis-server, change that ("--appendonly", "yes").
func StartRedis(args ...string) (*Redis, error) {
	return startRedis(&Redis{password: secret(), args: args})
}

// StartPeer starts a server with the password of r: a replica of r, or another server of the same
// cluster.
func (r *Redis) StartPeer(args ...string) (*Redis, error) {
	return startRedis(&Redis{password: r.password, args: args})
}

// StartSentinel starts a Sentinel that monitors r under a name. r counts as down when quorum
// Sentinels agree. This takes a second.
func (r *Redis) StartSentinel(name string, quorum int) (*Redis, error) {
	monitor := fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d\nsentinel auth-pass %s %s\n", name, r.port, quorum, name, r.password) +
		fmt.Sprintf("sentinel down-after-milliseconds %s 1000\nsentinel failover-timeout %s 5000\n", name, name)
	return startRedis(&Redis{password: r.password, args: []string{"--sentinel"}, monitor: monitor})
}

// startRedis starts a server with the password and the arguments in r.
func startRedis(r *Redis) (_ *Redis, err error) {
	if r.program, err = Program("redis-server"); err != nil {
		return nil, err
	}
	if r.home, err = newHome(); err != nil {
		return nil, err
	}
	err = onFreePort(func(port int) error {
		r.port = port
		return r.Start()
	})
	if err != nil {
		r.home.remove()
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
	text := fmt.Sprintf("bind 127.0.0.1\nport %d\nrequirepass %s\ndir %s\ndaemonize no\n", r.port, r.password, r.home.path)
	if r.monitor == "" {
		text += fmt.Sprintf("masterauth %s\nsave \"\"\nappendonly no\n", r.password)
	}
	conf, err := r.home.write("redis.conf", text+r.monitor)
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

// ready reports whether the server answers and has loaded its data. Before, the server answers
// LOADING.
func (r *Redis) ready() bool {
	conn, err := net.DialTimeout("tcp", r.address(), time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := fmt.Fprintf(conn, "AUTH %s\r\nPING\r\n", r.password); err != nil {
		return false
	}
	replies := bufio.NewScanner(conn)
	for range 2 { // of AUTH and PING
		if !replies.Scan() {
			return false
		}
	}
	return replies.Text() == "+PONG"
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

// Runs reports whether the server was started and has not ended.
func (r *Redis) Runs() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.server != nil && !r.server.ended()
}

// Address returns the host and the port of the server.
func (r *Redis) Address() string { return r.address() }

// CLI runs redis-cli with arguments on the server, for example to reshard a cluster, and
// returns what it writes.
func (r *Redis) CLI(ctx context.Context, args ...string) (string, error) {
	program, err := Program("redis-cli")
	if err != nil {
		return "", err
	}
	cmd := r.home.command(ctx, program, args...)
	cmd.Env = append(cmd.Env, "REDISCLI_AUTH="+r.password)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("redis-cli %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// URL returns the server's URL.
func (r *Redis) URL() string { return fmt.Sprintf("redis://default:%s@%s", r.password, r.address()) }
