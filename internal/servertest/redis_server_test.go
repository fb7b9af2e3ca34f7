//go:build !quick

package servertest_test

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/servertest"
)

func client(t *testing.T, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	options.MaxRetries = -1
	options.DisableIdentity = true
	options.ReadTimeout = 30 * time.Second
	c := redis.NewClient(options)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestRedisIsShared(t *testing.T) {
	t.Parallel()
	key := rand.Text()
	if err := client(t, servertest.Redis(t)).Set(t.Context(), key, "v", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	got, err := client(t, servertest.Redis(t)).Get(t.Context(), key).Result()
	if err != nil || got != "v" {
		t.Errorf("read back %q, %v", got, err)
	}
}

func TestRedisProcessComesBackEmptyOnItsPort(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	url := server.URL()
	c := client(t, url)
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("a killed server answered")
	}
	server.Restart()
	if server.URL() != url {
		t.Errorf("URL changed from %s to %s", url, server.URL())
	}
	if err := client(t, url).Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("after a restart without persistence: %v, want redis.Nil", err)
	}
}

func TestRedisProcessPassesArgumentsOn(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	if err := client(t, server.URL()).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	server.Restart()
	got, err := client(t, server.URL()).Get(t.Context(), "k").Result()
	if err != nil || got != "v" {
		t.Errorf("after a restart with an append-only file: %q, %v", got, err)
	}
}

func TestPausedRedisAnswersOnlyAfterResume(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	c := client(t, server.URL())
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	answered := make(chan error, 1)
	go func() { answered <- c.Ping(t.Context()).Err() }()
	// A held server cannot answer, so this can only fail when it was not held.
	select {
	case err := <-answered:
		t.Errorf("a paused server answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	server.Resume()
	if err := <-answered; err != nil {
		t.Errorf("after Resume: %v", err)
	}
}

// The case the proxy is for: the server has counted, the client cannot know.
func TestProxyLosesTheReplyAfterRedisHasCounted(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		key := rand.Text()
		direct := client(t, servertest.Redis(t))
		proxy := servertest.StartProxy(t, servertest.Redis(t))
		through := client(t, proxy.URL())
		if err := through.Incr(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		happened := proxy.Lose(servertest.Loss{Request: "incr", Nth: 2, Silent: silent})
		if err := through.Incr(t.Context(), key).Err(); err != nil {
			t.Errorf("the first of two: %v", err)
		}
		answered := make(chan error, 1)
		go func() { answered <- through.Incr(t.Context(), key).Err() }()
		<-happened
		if silent {
			proxy.Cut() // so that this test need not wait for a deadline
		}
		if err := <-answered; err == nil {
			t.Error("the second of two was answered")
		}
		if n, err := direct.Get(t.Context(), key).Int(); err != nil || n != 3 {
			t.Errorf("redis counted %d, %v; want 3", n, err)
		}
		if err := direct.Del(t.Context(), key).Err(); err != nil {
			t.Error(err)
		}
	}
}
