//go:build !quick

package redis_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// A server that answers and refuses writes is reachable, and the status has its
// answer, also without any check. When it takes writes again, the status is clear.
func TestRefusedWritesAreTold(t *testing.T) {
	t.Parallel()
	for code, fault := range map[string]struct {
		begin, end func(context.Context, *goredis.Client) error
	}{
		"READONLY": {
			func(ctx context.Context, c *goredis.Client) error { return c.ReplicaOf(ctx, "127.0.0.1", "1").Err() },
			func(ctx context.Context, c *goredis.Client) error { return c.ReplicaOf(ctx, "NO", "ONE").Err() },
		},
		"OOM":        configured("maxmemory", "1", "0"),
		"NOREPLICAS": configured("min-replicas-to-write", "1", "0"),
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			server := servertest.StartRedis(t)
			raw := client(t, server.URL())
			l := open(t, redis.Config{URL: server.URL()})
			running(t, l)
			if s := l.Status(); !s.Refusal.Since.IsZero() {
				t.Fatalf("before the fault: %+v", s.Refusal)
			}
			began := time.Now()
			if err := fault.begin(t.Context(), raw); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the status has the refusal", func() bool { return !l.Status().Refusal.Since.IsZero() })
			s := l.Status()
			if s.Refusal.Code != code || !strings.Contains(s.Refusal.Answer, code) || !s.Reachable || s.Refusal.Since.Before(began) {
				t.Errorf("%+v, reachable %t", s.Refusal, s.Reachable)
			}
			take(t.Context(), l, request(charge(1, perHour, 1)))
			if now := l.Status().Refusal.Since; !now.Equal(s.Refusal.Since) {
				t.Errorf("since %s, then %s", s.Refusal.Since, now)
			}
			if err := fault.end(t.Context(), raw); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the status is clear", func() bool { return l.Status().Refusal == redis.Refusal{} })
			mustTake(t, l, request(charge(1, perHour, 1)))
			if s := l.Status(); s.Losses != 0 {
				t.Errorf("a loss is reported: %s", s.Loss)
			}
		})
	}
}

func configured(name, begin, end string) (fault struct {
	begin, end func(context.Context, *goredis.Client) error
},
) {
	fault.begin = func(ctx context.Context, c *goredis.Client) error { return c.ConfigSet(ctx, name, begin).Err() }
	fault.end = func(ctx context.Context, c *goredis.Client) error { return c.ConfigSet(ctx, name, end).Err() }
	return fault
}

// The call of a check notes a refusal at once, without Run.
func TestRefusedCallIsTold(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw, l := client(t, server.URL()), open(t, redis.Config{URL: server.URL()})
	if err := raw.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	take(t.Context(), l, request(charge(1, perHour, 1)))
	if s := l.Status(); s.Refusal.Code != "NOREPLICAS" || !s.Reachable {
		t.Errorf("%+v, reachable %t", s.Refusal, s.Reachable)
	}
}

// A server that lost its data is noticed without a check, once by each node, and
// all nodes agree on the data that it has then.
func TestLostDataIsNoticed(t *testing.T) {
	t.Parallel()
	flush := func(t *testing.T, _ *servertest.RedisProcess, raw *goredis.Client) {
		if err := raw.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	restart := func(_ *testing.T, s *servertest.RedisProcess, _ *goredis.Client) { s.Restart() }
	for name, test := range map[string]struct {
		args []string
		lose func(*testing.T, *servertest.RedisProcess, *goredis.Client)
		says string
	}{
		"flushed":      {nil, flush, "was emptied (FLUSHALL, FLUSHDB) and has none"},
		"empty":        {nil, restart, "restarted, or another server took its place and has none"},
		"an old dump":  {nil, restart, "and has no counts after 20"},
		"nothing lost": {[]string{"--appendonly", "yes", "--appendfsync", "always"}, restart, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.StartRedis(t, test.args...)
			raw, prefix := client(t, server.URL()), newPrefix()
			var log bytes.Buffer
			first := open(t, redis.Config{URL: server.URL(), Prefix: prefix, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			second := open(t, redis.Config{URL: server.URL(), Prefix: prefix})
			if name != "empty" {
				if err := raw.Save(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
			}
			stop := runUntil(t, first)
			running(t, second)
			marker := func() (all string) {
				for _, key := range raw.Keys(t.Context(), prefix+"{00}m?*").Val() {
					all += raw.Get(t.Context(), key).Val() + "\n"
				}
				return all
			}
			saved := marker()
			eventually(t, "more pulses", func() bool { return marker() != saved && first.Status().Epoch == second.Status().Epoch })
			before := first.Status()

			test.lose(t, server, raw)
			if test.says == "" {
				for range 4 { // so that each node has had its turn
					saved = marker()
					eventually(t, "pulses go on", func() bool { return marker() != saved })
				}
				stop()
				if s := first.Status(); s.Losses != 0 || s.Epoch != before.Epoch {
					t.Errorf("a loss is reported: %s", s.Loss)
				}
				return
			}
			eventually(t, "both nodes notice it", func() bool { return first.Status().Losses > 0 && second.Status().Losses > 0 })
			eventually(t, "both nodes know the new data", func() bool { return first.Status().Epoch == second.Status().Epoch })
			stop()
			after := first.Status()
			if after.Losses != 1 || second.Status().Losses != 1 || after.Epoch == before.Epoch {
				t.Errorf("%d and %d losses, epoch %s after %s", after.Losses, second.Status().Losses, after.Epoch, before.Epoch)
			}
			if text := after.Loss.String(); !strings.Contains(text, test.says) {
				t.Errorf("%q, want %q", text, test.says)
			}
			if n := strings.Count(log.String(), "redis lost data"); n != 1 {
				t.Errorf("%d lines in the log:\n%s", n, log.String())
			}
			late := open(t, redis.Config{URL: server.URL(), Prefix: prefix})
			if !late.Expect(after.Epoch) || late.Status().Losses != 0 {
				t.Error("a node that starts later reports a loss of data that it was told of")
			}
			if !late.Expect(before.Epoch) || late.Status().Losses != 1 {
				t.Error("a node that starts later does not notice that Redis has other data than was recorded")
			}
		})
	}
}

// runUntil runs the Limiter's probes until the function is called.
func runUntil(t *testing.T, l *redis.Limiter) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	ended := false
	stop = func() {
		if cancel(); !ended {
			<-done
		}
		ended = true
	}
	t.Cleanup(stop)
	return stop
}
