//go:build !quick

package redis_test

import (
	"os"
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

// sequences of each of the six mixes: 2,000 in all, a hundred thousand steps.
const sequences = 334

func TestSequences(t *testing.T) {
	t.Parallel()
	n := sequences
	if os.Getenv("HEADGATE_FUZZ_SEQUENCES") != "" {
		n = 0 // Sequences reads it
	}
	limitertest.Sequences(t, suiteFixture, n, 0)
}
