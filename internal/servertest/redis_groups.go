package servertest

import (
	"context"
	"strings"
	"testing"
	"time"
)

// A RedisCluster is a private Redis Cluster of one test. Its methods must be called from
// the goroutine of the test.
type RedisCluster struct {
	t       testing.TB
	Servers []*RedisProcess // the masters first
}

// StartCluster starts a cluster of three masters, each with a number of replicas. Each master has a
// third of the slots. If a master does not answer for a second, one of its replicas replaces it. If
// it has no replica, the other masters continue to serve their slots.
func StartCluster(t testing.TB, replicas int) *RedisCluster {
	t.Helper()
	args := []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no"}
	c := &RedisCluster{t: t, Servers: []*RedisProcess{StartRedis(t, args...).Prefer()}}
	create := []string{"--cluster", "create", c.Servers[0].Address()}
	for range 3*(replicas+1) - 1 {
		s := c.Servers[0].StartPeer(args...).Prefer()
		c.Servers = append(c.Servers, s)
		create = append(create, s.Address())
	}
	c.Servers[0].CLI(append(create, "--cluster-replicas", string(rune('0'+replicas)), "--cluster-yes")...)
	c.Await()
	return c
}

// Await waits until all running servers agree that the cluster serves all slots, and until each
// replica has its master.
func (c *RedisCluster) Await() {
	c.t.Helper()
	await(c.t, "the cluster is ready", c.settled)
}

// await returns when met returns true.
func await(t testing.TB, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !met(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func (c *RedisCluster) settled() bool {
	for _, s := range c.Servers {
		if !s.redis.Runs() {
			continue
		}
		info, err := s.redis.CLI(context.WithoutCancel(c.t.Context()), "-h", "127.0.0.1", "-p", s.port(), "cluster", "info")
		if err != nil || !strings.Contains(info, "cluster_state:ok") {
			return false
		}
		state, err := s.redis.CLI(context.WithoutCancel(c.t.Context()), "-h", "127.0.0.1", "-p", s.port(), "info", "replication")
		if err != nil || strings.Contains(state, "role:slave") && !strings.Contains(state, "master_link_status:up") {
			return false
		}
	}
	return true
}

// URL names all servers that run.
func (c *RedisCluster) URL() string {
	user, _, _ := strings.Cut(c.Servers[0].URL(), "@")
	var addresses []string
	for _, s := range c.Servers {
		if s.redis.Runs() {
			addresses = append(addresses, s.Address())
		}
	}
	return user + "@" + strings.Join(addresses, ",") + "?cluster=true"
}

// Reshard moves a number of slots and their keys from one master to another. It first waits until
// all servers agree on the owner of each slot, because redis-cli moves no slots before.
func (c *RedisCluster) Reshard(from, to *RedisProcess, slots string) error {
	c.t.Helper()
	await(c.t, "the servers of the cluster agree on its slots", func() bool {
		_, err := from.redis.CLI(context.WithoutCancel(c.t.Context()), "--cluster", "check", from.Address())
		return err == nil
	})
	_, err := from.redis.CLI(context.WithoutCancel(c.t.Context()), "--cluster", "reshard", from.Address(), "--cluster-yes",
		"--cluster-from", from.ID(), "--cluster-to", to.ID(), "--cluster-slots", slots)
	return err
}

// RedisSentinels is a master, a replica, and three Sentinels that replace the master.
type RedisSentinels struct {
	Master, Replica *RedisProcess
	Sentinels       []*RedisProcess
}

// StartSentinels starts a server with one replica and three Sentinels. A master that does
// not answer for a second is replaced.
func StartSentinels(t testing.TB) *RedisSentinels {
	t.Helper()
	g := &RedisSentinels{Master: StartRedis(t).Prefer()}
	host, port, _ := strings.Cut(g.Master.Address(), ":")
	g.Replica = g.Master.StartPeer("--replicaof", host, port).Prefer()
	for range 3 {
		s, err := g.Master.redis.StartSentinel("main", 2)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		g.Sentinels = append(g.Sentinels, &RedisProcess{t: t, redis: s})
	}
	await(t, "the Sentinels know each other and the replica", g.settled)
	return g
}

func (g *RedisSentinels) settled() bool {
	for _, s := range g.Sentinels {
		known, err := s.redis.CLI(context.WithoutCancel(s.t.Context()), "-h", "127.0.0.1", "-p", s.port(), "sentinel", "master", "main")
		if err != nil || !strings.Contains(known, "num-slaves\n1\n") || !strings.Contains(known, "num-other-sentinels\n2\n") {
			return false
		}
	}
	return true
}

// URL names the Sentinels.
func (g *RedisSentinels) URL() string {
	user, _, _ := strings.Cut(g.Master.URL(), "@")
	_, password, _ := strings.Cut(strings.TrimPrefix(user, "redis://"), ":")
	var addresses []string
	for _, s := range g.Sentinels {
		addresses = append(addresses, s.Address())
	}
	return user + "@" + strings.Join(addresses, ",") + "?master_name=main&sentinel_password=" + password
}

// StartPeer starts a server with the password of r: a replica, or another server of the cluster of
// r. The server stops at the end of the test.
func (r *RedisProcess) StartPeer(args ...string) *RedisProcess {
	r.t.Helper()
	peer, err := r.redis.StartPeer(args...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(peer.Close)
	return &RedisProcess{t: r.t, redis: peer}
}

// CLI runs redis-cli. If redis-cli fails, the test fails.
func (r *RedisProcess) CLI(args ...string) string {
	r.t.Helper()
	out, err := r.redis.CLI(context.WithoutCancel(r.t.Context()), args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// ID returns the name of the server in its cluster.
func (r *RedisProcess) ID() string {
	r.t.Helper()
	return strings.TrimSpace(r.CLI("-h", "127.0.0.1", "-p", r.port(), "cluster", "myid"))
}

// Address returns the host and the port of the server.
func (r *RedisProcess) Address() string { return r.redis.Address() }

func (r *RedisProcess) port() string {
	_, port, _ := strings.Cut(r.Address(), ":")
	return port
}
