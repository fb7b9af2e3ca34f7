//go:build !quick

package redis_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/limitertest"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// Keys of a full tenant share a window, and spend their grants after it.
func TestGrantsOnOverflow(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	l := open(t, redis.Config{URL: server.URL(), Keys: 100})
	running(t, l)
	m := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 10, Window: 24 * time.Hour}.Compile(1)
	fill(t, l, 7, 1, m, 100)
	limitertest.GrantsOnOverflow(t, l, 7, 1, request(keyed(7, 1, 1, m, 1)).Home, time.Now().UnixMicro())
	if n := l.Status().Mismatches; n > 0 {
		t.Errorf("%d requests were decided otherwise than by the reference", n)
	}
}
