//go:build faults

package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/servertest"
)

// redisDo sends a command to the Redis of a bench and fails the test if it fails.
func (b *faultBench) redisDo(args ...any) {
	b.Helper()
	if err := b.raw.Do(context.WithoutCancel(b.ctx), args...).Err(); err != nil {
		b.Fatalf("%v: %v", args, err)
	}
}

// repeat calls do at intervals while the fault lasts.
func (b *faultBench) repeat(every time.Duration, do func()) {
	b.during.Go(func() {
		for b.ctx.Err() == nil {
			do()
			select {
			case <-b.ctx.Done():
			case <-time.After(every):
			}
		}
	})
}

func heal(b *faultBench) { b.all((*servertest.Proxy).Heal) }

const (
	saysDegraded = "`degraded`"
	saysBreaker  = "`headgate_redis_breaker_open 1`"
	saysLost     = "Redis lost counts"
	saysRefuses  = "Redis has refused writes"
)

// redisFaults has the scenarios of section 5.1 of the design.
var redisFaults = []faultScenario{
	{
		goal: "F-R1", fault: "Redis is killed (-9) with AOF everysec and is back after 2 s", short: true, lasts: 2 * time.Second,
		redisArgs: []string{"--appendonly", "yes", "--appendfsync", "everysec"},
		begin:     func(b *faultBench) { b.redis.Kill() },
		end:       func(b *faultBench) { b.redis.Restart() },
		seen:      []string{saysDegraded},
	},
	{
		goal: "F-R2", fault: "Redis is killed without persistence and is back after 2 s", lasts: 4 * time.Second, losesCharges: true,
		begin: func(b *faultBench) {
			b.redis.Kill()
			await(time.Now().Add(2 * time.Second))
			b.redis.Restart()
		},
		seen: []string{saysDegraded, saysLost},
	},
	{
		goal: "F-R3", fault: "FLUSHALL", losesCharges: true,
		begin: func(b *faultBench) { b.redisDo("FLUSHALL") },
		seen:  []string{saysLost},
	},
	{
		goal: "F-R4", direct: true, fault: "SCRIPT FLUSH 100 times a second", exact: true,
		begin: func(b *faultBench) { b.repeat(10*time.Millisecond, func() { b.raw.ScriptFlush(b.ctx) }) },
	},
	{
		goal: "F-R5", fault: "Redis hangs (SIGSTOP)", short: true, lasts: 8 * time.Second,
		begin: func(b *faultBench) { b.redis.Pause() },
		end:   func(b *faultBench) { b.redis.Resume() },
		seen:  []string{saysDegraded, saysBreaker},
	},
	{
		goal: "F-R6", fault: "Redis' answers take 20 ms longer",
		begin: func(b *faultBench) { b.all(func(p *servertest.Proxy) { p.Delay(20 * time.Millisecond) }) },
		end:   heal,
		holds: func(_ *faultBench, m *faultMeasure) {
			if m.degraded > len(m.ledger)/100 {
				m.miss("no degraded answers")
			}
		},
	},
	{
		goal: "F-R6b/100ms", fault: "Redis' answers take 100 ms longer",
		begin: func(b *faultBench) { b.all(func(p *servertest.Proxy) { p.Delay(100 * time.Millisecond) }) },
		end:   heal, seen: []string{saysDegraded, saysBreaker},
	},
	{
		goal: "F-R6b/500ms", fault: "Redis' answers take 500 ms longer",
		begin: func(b *faultBench) { b.all(func(p *servertest.Proxy) { p.Delay(500 * time.Millisecond) }) },
		end:   heal, seen: []string{saysDegraded, saysBreaker},
	},
	{
		goal: "F-R7", fault: "all nodes are partitioned from Redis",
		begin: func(b *faultBench) { b.all((*servertest.Proxy).Blackhole) },
		end:   heal, seen: []string{saysDegraded, saysBreaker},
	},
	{
		goal: "F-R7b", fault: "one of three nodes is partitioned from Redis", short: true,
		begin: func(b *faultBench) { b.proxies[2].Blackhole() },
		end:   heal, seen: []string{saysDegraded, saysBreaker},
		holds: func(b *faultBench, m *faultMeasure) {
			degraded := 0
			for _, a := range m.ledger {
				if a.node != 2 && (a.degraded || a.status == 0) {
					degraded++
				}
			}
			if degraded > len(m.ledger)/100 {
				m.fail(b, "the other nodes give %d degraded answers", degraded)
			}
			others := slices.DeleteFunc(slices.Clone(m.ledger), func(a faultAnswer) bool { return a.node == 2 })
			m.notes = fmt.Sprintf("; p99 of the other nodes %.1f ms before and %.1f ms meanwhile",
				milli(quantile(others, m.start.Add(-faultAlone), m.start, 0.99)), milli(quantile(others, m.start, m.end, 0.99)))
			if most := b.narrow/3 + 2; m.over["local"] > most {
				m.fail(b, "local: a key exceeds its quota of %d by %d, want at most %d", b.narrow, m.over["local"], most)
			}
		},
	},
	{
		goal: "F-R8", fault: "1% of Redis' replies are lost after the execution, by reset and by silence", short: true,
		begin: func(b *faultBench) {
			for _, p := range b.proxies {
				b.during.Go(func() {
					for silent := false; b.ctx.Err() == nil; silent = !silent {
						select {
						case <-p.Lose(servertest.Loss{Request: "evalsha", Nth: 100, Silent: silent}):
						case <-b.ctx.Done():
						}
					}
				})
			}
		},
		end: heal,
	},
	{
		goal: "F-R9", direct: true, fault: "Redis' memory is full (noeviction)",
		begin: func(b *faultBench) {
			b.redisDo("CONFIG", "SET", "maxmemory-policy", "noeviction")
			b.redisDo("CONFIG", "SET", "maxmemory", "1mb")
		},
		end:  func(b *faultBench) { b.redisDo("CONFIG", "SET", "maxmemory", "0") },
		seen: []string{saysDegraded, saysRefuses},
	},
	{
		goal: "F-R10", direct: true, fault: "Redis may evict (maxmemory-policy is changed while nodes run)", lasts: 65 * time.Second, exact: true,
		begin: func(b *faultBench) { b.redisDo("CONFIG", "SET", "maxmemory-policy", "allkeys-lru") },
		end:   func(b *faultBench) { b.redisDo("CONFIG", "SET", "maxmemory-policy", "noeviction") },
		seen:  []string{"Redis may evict"},
	},
	{
		goal: "F-R11/READONLY", direct: true, fault: "Redis becomes a read-only replica",
		begin: func(b *faultBench) { b.redisDo("REPLICAOF", "127.0.0.1", "1") },
		end:   func(b *faultBench) { b.redisDo("REPLICAOF", "NO", "ONE") },
		seen:  []string{saysDegraded, saysRefuses},
	},
	{
		goal: "F-R11/NOREPLICAS", direct: true, fault: "Redis refuses writes for lack of replicas",
		begin: func(b *faultBench) { b.redisDo("CONFIG", "SET", "min-replicas-to-write", "1") },
		end:   func(b *faultBench) { b.redisDo("CONFIG", "SET", "min-replicas-to-write", "0") },
		seen:  []string{saysDegraded, saysRefuses},
	},
	{
		goal: "F-R11/BUSY", direct: true, fault: "a script of another client blocks Redis",
		begin: func(b *faultBench) {
			b.redisDo("CONFIG", "SET", "busy-reply-threshold", "200")
			go b.raw.Eval(context.WithoutCancel(b.ctx), "while true do end", nil) // until end kills the script
		},
		end: func(b *faultBench) {
			other := redisClient(b.T, b.redis.URL())
			eventually(b.T, "the script is killed", func() bool { return other.ScriptKill(b.Context()).Err() == nil })
		},
		seen: []string{saysDegraded},
	},
	{
		goal: "F-R12", fault: "failover to a replica that lags (3 s partition, `min-replicas-to-write 1`, lag 1)", lasts: 8 * time.Second, losesCharges: true, recovers: 5 * time.Second,
		begin: failover, seen: []string{saysDegraded, saysLost},
		holds: func(b *faultBench, m *faultMeasure) {
			if most := 2 * faultRate; m.lost > most {
				m.fail(b, "%d lost charges, want at most the %d of 2 s", m.lost, most)
			}
		},
	},
	{
		goal: "F-R13", direct: true, fault: "all connections to Redis are cut each second",
		begin: func(b *faultBench) {
			b.repeat(time.Second, func() { b.raw.ClientKillByFilter(b.ctx, "TYPE", "normal") })
		},
	},
	{
		goal: "F-R15/1KBs", fault: "Redis' replies come with 1 KB/s",
		begin: func(b *faultBench) {
			b.all(func(p *servertest.Proxy) { p.Trickle(100, 100*time.Millisecond) })
		},
		end: heal,
	},
	{
		goal: "F-R15/slices", fault: "Redis' replies come in slices of one byte",
		begin: func(b *faultBench) {
			b.all(func(p *servertest.Proxy) { p.Trickle(1, 10*time.Microsecond) })
		},
		end: heal,
	},
	{
		goal: "F-R15/cut", fault: "connections to Redis are cut after 20 bytes of replies", short: true,
		begin: func(b *faultBench) { b.all(func(p *servertest.Proxy) { p.CutAfter(20) }) },
		end:   heal, seen: []string{saysDegraded},
	},
	{
		goal: "F-R16/ACL", fault: "Redis' user loses EVALSHA",
		begin: func(b *faultBench) { b.redisDo("ACL", "SETUSER", "default", "-evalsha", "-eval") },
		end:   func(b *faultBench) { b.redisDo("ACL", "SETUSER", "default", "+@all") },
		seen:  []string{saysDegraded, saysRefuses},
	},
	{
		goal: "F-R16/password", fault: "Redis' password changes, then changes back",
		begin: func(b *faultBench) {
			b.redisDo("CONFIG", "SET", "requirepass", "another")
			b.redisDo("CLIENT", "KILL", "TYPE", "normal")
		},
		end: func(b *faultBench) {
			u, err := url.Parse(b.redis.URL())
			if err != nil {
				b.Fatal(err)
			}
			password, _ := u.User.Password()
			b.redisDo("CONFIG", "SET", "requirepass", password)
		},
		seen: []string{saysDegraded},
	},
	{goal: "F-R18", fault: "Redis is down when three nodes start, and comes 3 s later", run: redisDownAtStart},
}

// failover starts a replica that lags, kills the primary, and promotes the replica. The proxies
// then connect to the new primary, as if a DNS name had moved.
func failover(b *faultBench) {
	link := servertest.StartProxy(b.T, b.redis.URL())
	through, err := url.Parse(link.URL())
	if err != nil {
		b.Fatal(err)
	}
	password, _ := through.User.Password()
	replica := servertest.StartRedis(b.T, "--replicaof", through.Hostname()+" "+through.Port(), "--masterauth", password, "--repl-diskless-sync-delay", "0")
	second := redisClient(b.T, replica.URL()).Conn()
	defer second.Close()
	eventually(b.T, "the replica follows", func() bool {
		return strings.Contains(second.Info(b.Context(), "replication").Val(), "master_link_status:up")
	})
	b.redisDo("CONFIG", "SET", "min-replicas-max-lag", "1")
	b.redisDo("CONFIG", "SET", "min-replicas-to-write", "1")
	link.Blackhole()
	await(time.Now().Add(3 * time.Second))
	b.redis.Kill()
	if err := second.Do(b.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		b.Fatal(err)
	}
	if err := second.ConfigSet(b.Context(), "requirepass", password).Err(); err != nil { // that of the nodes
		b.Fatal(err)
	}
	b.all(func(p *servertest.Proxy) { p.Retarget(b.T, replica.URL()) })
}

// redisDownAtStart: nodes start without Redis, are ready, and follow the failure modes.
func redisDownAtStart(t *testing.T) faultRow {
	s := faultScenario{}
	b := newFaultBench(t, &s)
	b.redis.Kill()
	var row faultRow
	for i, node := range b.cluster.nodes {
		_ = node.command.Process.Kill()
		<-node.ended
		began := time.Now()
		again := launch(t, b.settings[i]).serving()
		row.measure = fmt.Sprintf("a node serves %s after its start; `open` 200, `local` 200, `closed` 503", time.Since(began).Round(10*time.Millisecond))
		b.cluster.nodes[i] = again
		ready := call(t, "", "GET", again.origin+"/readyz?verbose", "").want(t, 200)
		if !strings.Contains(ready.body, `"degraded":true`) {
			t.Errorf("a node without Redis says %s", ready.body)
		}
		for mode, status := range map[string]int{"open": 200, "local": 200, "closed": 503} {
			a := call(t, bootstrap, "POST", again.origin+"/v1/check", faultKey{mode: mode, user: 1}.check()).want(t, status)
			says(t, a, `"degraded":true`)
		}
	}
	row.seen = "`/readyz` 200 with `degraded`"
	await(time.Now().Add(3 * time.Second))
	b.redis.Restart()
	began := time.Now()
	for _, node := range b.cluster.nodes {
		eventually(t, "checks are normal", func() bool {
			a := call(t, bootstrap, "POST", node.origin+"/v1/check", faultKey{mode: "closed", user: 1}.check())
			return a.status == 200 && strings.Contains(a.body, `"degraded":false`)
		})
	}
	row.recovery = fmt.Sprintf("%.1f s", time.Since(began).Seconds())
	return row
}
