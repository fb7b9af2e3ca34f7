package servertest

import (
	"testing"

	"github.com/headgate/headgate/internal/servertest/process"
)

// A RedisProcess is one test's own Redis server, for tests of what happens when
// it goes away. Methods that can fail end the test, so call them from the
// test's own goroutine.
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

// Kill ends the server as a power cut does.
func (r *RedisProcess) Kill() { r.redis.Kill() }

// Stop ends the server in its own order.
func (r *RedisProcess) Stop() { r.redis.Stop() }

// Pause holds the server: connections stay open, new ones are made by the
// kernel, and nothing answers until [RedisProcess.Resume].
func (r *RedisProcess) Pause() {
	r.t.Helper()
	if err := r.redis.Pause(); err != nil {
		r.t.Fatal(err)
	}
}

// Resume lets a paused server go on; what was sent meanwhile is then answered.
func (r *RedisProcess) Resume() { r.redis.Resume() }

// Prefer lets the server answer at once however busy the machine is, where the
// tests have the right (root) to raise its priority. It is for tests that load
// the machine and assert what happens while Redis is well. It returns r.
func (r *RedisProcess) Prefer() *RedisProcess {
	r.redis.Prefer()
	return r
}

// Restart kills the server if it runs, and starts it on the same port and
// folder. It answers when this returns.
func (r *RedisProcess) Restart() {
	r.t.Helper()
	r.redis.Kill()
	if err := r.redis.Start(); err != nil {
		r.t.Fatal(err)
	}
}

// A PostgresProcess is one test's own Postgres server; see [RedisProcess].
type PostgresProcess struct {
	t        testing.TB
	postgres *process.Postgres
}

// StartPostgres makes a cluster, which takes a second or two, and starts a
// server that ends with the test.
func StartPostgres(t testing.TB) *PostgresProcess {
	t.Helper()
	p, err := process.StartPostgres()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return &PostgresProcess{t: t, postgres: p}
}

// URL is an empty database; it stays the same over restarts.
func (p *PostgresProcess) URL() string { return p.postgres.URL() }

// Stop ends the server as a crash does. What was committed is kept.
func (p *PostgresProcess) Stop() { p.postgres.Stop() }

// Start starts a stopped server on the same port and data.
func (p *PostgresProcess) Start() {
	p.t.Helper()
	if err := p.postgres.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// Pause holds the server and its sessions: connections stay open and nothing
// answers until [PostgresProcess.Resume].
func (p *PostgresProcess) Pause() {
	p.t.Helper()
	if err := p.postgres.Pause(); err != nil {
		p.t.Fatal(err)
	}
}

// Resume lets a paused server go on.
func (p *PostgresProcess) Resume() { p.postgres.Resume() }
