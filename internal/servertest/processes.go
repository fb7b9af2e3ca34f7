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

// StartRedis starts a server, waits until it answers, and stops it at the end of the test. Without
// args, the server loses its data at a restart. args are arguments of redis-server; with
// "--appendonly", "yes", "--appendfsync", "always", the server keeps its data.
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

// Kill stops the server without a shutdown, which simulates a power failure.
func (r *RedisProcess) Kill() { r.redis.Kill() }

// Stop shuts the server down.
func (r *RedisProcess) Stop() { r.redis.Stop() }

// Pause stops the processes of the server until [RedisProcess.Resume]. Connections stay open, and
// the kernel accepts new connections. The server does not answer.
func (r *RedisProcess) Pause() {
	r.t.Helper()
	if err := r.redis.Pause(); err != nil {
		r.t.Fatal(err)
	}
}

// Resume continues a paused server, which then answers the waiting requests.
func (r *RedisProcess) Resume() { r.redis.Resume() }

// Prefer raises the priority of the server, so that it answers quickly on a busy machine. If the
// tests do not run as root, Prefer has no effect. It is for tests that load the machine and need a
// healthy Redis. Prefer returns r.
func (r *RedisProcess) Prefer() *RedisProcess {
	r.redis.Prefer()
	return r
}

// Restart kills the server if it is running, and starts it again with the same port and folder.
// Restart waits until the server answers.
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

// StartPostgres creates a database cluster and starts a server, which takes a second or two. The
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
