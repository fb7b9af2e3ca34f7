//go:build !quick

package redis_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/enforcement/limitertest"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/servertest"
)

// suiteFixture has no slack: Redis decides to the unit and the microsecond.
func suiteFixture(t *testing.T, c *limitertest.Clock) limitertest.Fixture {
	l := open(t, redis.Config{URL: servertest.Redis(t), Now: c.Now})
	t.Cleanup(func() {
		if s := l.Status(); s.Mismatches != 0 || s.Unreadable != 0 {
			t.Errorf("script and reference disagreed on %d requests, %d states were unreadable", s.Mismatches, s.Unreadable)
		}
	})
	return limitertest.Fixture{Limiter: l}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	limitertest.Run(t, suiteFixture)
}

func TestSequences(t *testing.T) {
	t.Parallel()
	limitertest.Sequences(t, suiteFixture, 0, 0)
}

// A cluster of one server holds all slots and the rules of all clusters: the
// keys of a call share a slot, and the client asks where it is.
func TestConformanceOnACluster(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t, "--cluster-enabled", "yes")
	raw := client(t, server.URL())
	if err := raw.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cluster is up", func() bool {
		return strings.Contains(raw.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	limitertest.Run(t, func(t *testing.T, c *limitertest.Clock) limitertest.Fixture {
		return limitertest.Fixture{Limiter: open(t, redis.Config{URL: server.URL() + "?cluster=true", Now: c.Now})}
	})
}
