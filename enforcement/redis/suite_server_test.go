//go:build !quick

package redis_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/enforcement/limitertest"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// scripted runs a suite twice: with the scripts that the limiter chooses, and with
// take.lua only and without denial memory. It fails unless each of these scripts
// decided some calls.
func scripted(t *testing.T, suite func(*testing.T, limitertest.Factory)) {
	for _, only := range []bool{false, true} {
		name := "chosen"
		if only {
			name = "take"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var take, batch, single atomic.Int64
			t.Cleanup(func() {
				t.Logf("calls of take.lua %d, batch.lua %d, single.lua %d", take.Load(), batch.Load(), single.Load())
				if take.Load() == 0 || (batch.Load() == 0) != only || (single.Load() == 0) != only {
					t.Error("a script decided nothing, or was called against the choice")
				}
			})
			suite(t, func(t *testing.T, c *limitertest.Clock) limitertest.Fixture {
				config := redis.Config{URL: servertest.Redis(t), Now: c.Now}
				if only {
					config.Denials = -1
				}
				l := open(t, config)
				if only {
					redis.TakeOnly(l)
				}
				t.Cleanup(func() {
					if s := l.Status(); s.Mismatches != 0 || s.Unreadable != 0 {
						t.Errorf("script and reference disagreed on %d requests, %d states were unreadable", s.Mismatches, s.Unreadable)
					}
					a, b, c := redis.ScriptCalls(l)
					take.Add(a)
					batch.Add(b)
					single.Add(c)
				})
				return limitertest.Fixture{Limiter: l}
			})
		})
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	scripted(t, limitertest.Run)
}

func TestExtremes(t *testing.T) {
	t.Parallel()
	limitertest.Extremes(t, func(t *testing.T, c *limitertest.Clock) limitertest.Fixture {
		return limitertest.Fixture{Limiter: open(t, redis.Config{URL: servertest.Redis(t), Now: c.Now})}
	})
}

func TestSequences(t *testing.T) {
	t.Parallel()
	scripted(t, func(t *testing.T, factory limitertest.Factory) { limitertest.Sequences(t, factory, 0, 0) })
}

// agreeing returns a limiter. The test fails if a script and the reference functions disagree.
func agreeing(t *testing.T, c *limitertest.Clock) limitertest.Fixture {
	l := open(t, redis.Config{URL: servertest.Redis(t), Now: c.Now})
	t.Cleanup(func() {
		if s := l.Status(); s.Mismatches != 0 || s.Unreadable != 0 {
			t.Errorf("script and reference disagreed on %d requests, %d states were unreadable", s.Mismatches, s.Unreadable)
		}
	})
	return limitertest.Fixture{Limiter: l}
}

// Only take.lua decides reservations.
func TestReservations(t *testing.T) {
	t.Parallel()
	limitertest.Reservations(t, agreeing)
}

// A cluster of one server holds all slots and the rules of all clusters: the
// keys of a call share a slot, and the client asks where it is.
func TestConformanceOnACluster(t *testing.T) {
	t.Parallel()
	url := startCluster(t)
	factory := func(t *testing.T, c *limitertest.Clock) limitertest.Fixture {
		return limitertest.Fixture{Limiter: open(t, redis.Config{URL: url, Now: c.Now})}
	}
	limitertest.Run(t, factory)
	t.Run("Reservations", func(t *testing.T) { limitertest.Reservations(t, factory) })
}

// startCluster starts a cluster of one server and returns its URL.
func startCluster(t *testing.T) string {
	t.Helper()
	server := servertest.StartRedis(t, "--cluster-enabled", "yes").Prefer()
	raw := client(t, server.URL())
	if err := raw.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cluster is up", func() bool {
		return strings.Contains(raw.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	return server.URL() + "?cluster=true"
}

func TestReservationSequences(t *testing.T) {
	t.Parallel()
	limitertest.ReservationSequences(t, agreeing, 0, 0)
}
