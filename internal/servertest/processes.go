package servertest

import (
	"testing"

	"github.com/headgate/headgate/internal/servertest/process"
)

// A RedisProcess is a private Redis server of one test, for tests of failures. Methods
// that fail end the test, so call them from the goroutine of the test.
type RedisProcess struct {
	t     testing.TB
	redis *process.Redis
}

// StartRedis starts a server that answers when this returns, and ends with the
// test. It keeps nothing over a restart, unless args, which are redis-server's
// own, say so: "--appendonly", "yes", "--appendfsync", "always".
func StartRedis(t testing.TB, args ...string) *RedisProcess {
	t.Helper()
	r, err := process.StartRedis(args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return &RedisProcess{t: t, redis: r}
}

// URL stays the same over restarts.
func (r *RedisProcess) URL() string { return r.redis.URL() }

// Kill stops the server without a shutdown, as a power failure does.
func (r *RedisProcess) Kill() { r.redis.Kill() }

// Stop shuts the server down.
func (r *RedisProcess) Stop() { r.redis.Stop() }

// Pause stops the processes of the server until [RedisProcess.Resume]. Connections stay
// open, the kernel accepts new ones, and the server does not answer.
func (r *RedisProcess) Pause() {
	r.t.Helper()
	if err := r.redis.Pause(); err != nil {
		r.t.Fatal(err)
	}
}

// Resume continues a paused server, which then answers the waiting requests.
func (r *RedisProcess) Resume() { r.redis.Resume() }

// Prefer raises the priority of the server, so that it answers quickly on a busy machine.
// It has no effect if the tests do not run as root. It is for tests that load the machine
// and need a healthy Redis. It returns r.
func (r *RedisProcess) Prefer() *RedisProcess {
	r.redis.Prefer()
	return r
}

// Restart kills the server if it runs, and starts it on the same port and folder. It
// waits until the server answers.
func (r *RedisProcess) Restart() {
	r.t.Helper()
	r.redis.Kill()
	if err := r.redis.Start(); err != nil {
		r.t.Fatal(err)
	}
}

// A PostgresProcess is a private Postgres server of one test; see [RedisProcess].
type PostgresProcess struct {
	t        testing.TB
	postgres *process.Postgres
}

// StartPostgres creates a cluster, which takes a second or two, and starts a server. The
// server stops at the end of the test.
func StartPostgres(t testing.TB) *PostgresProcess {
	t.Helper()
	p, err := process.StartPostgres()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return &PostgresProcess{t: t, postgres: p}
}

// URL returns the URL of an empty database. It does not change at a restart.
func (p *PostgresProcess) URL() string { return p.postgres.URL() }

// Stop stops the server as a crash does. Committed data is kept.
func (p *PostgresProcess) Stop() { p.postgres.Stop() }

// Start starts a stopped server on the same port and data.
func (p *PostgresProcess) Start() {
	p.t.Helper()
	if err := p.postgres.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// Pause stops the processes of the server and its sessions until
// [PostgresProcess.Resume]. Connections stay open, and the server does not answer.
func (p *PostgresProcess) Pause() {
	p.t.Helper()
	if err := p.postgres.Pause(); err != nil {
		p.t.Fatal(err)
	}
}

// Resume continues a paused server.
func (p *PostgresProcess) Resume() { p.postgres.Resume() }
