//go:build !quick

package redis_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// A node with older numbers does not know how long a bucket with later ones takes to fill. Its charge
// does not let the key expire early, because the bucket would then be full.
func TestOlderNumbersExpireLater(t *testing.T) {
	t.Parallel()
	prefix, counter := newPrefix(), key(5)
	l := open(t, redis.Config{URL: servertest.Redis(t), Prefix: prefix})
	limit := enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 10, Window: time.Hour}
	older := limit.Compile(1)
	limit.Burst, limit.CarryOver = 20, enforcement.CarryAdditive
	later := limit.Compile(2)
	later.Formers = []enforcement.Former{{Numbers: older.Numbers, Rev: 1, Until: 1, CarryOver: enforcement.CarryAdditive}}
	take := func(m *enforcement.Meter, cost int64) int64 {
		o := mustTake(t, l, request(enforcement.Charge{Key: counter, Meter: m, Rev: m.Rev, Cost: cost}))
		return m.Left(o.Charges[0].State, o.At)
	}
	take(older, 1)
	if left := take(later, 1); left != 18 {
		t.Fatalf("%d left, want 18", left)
	}
	if left := take(older, 1); left != 10 {
		t.Errorf("the older numbers have %d left, want their burst", left)
	}
	life := client(t, servertest.Redis(t)).PTTL(t.Context(), redis.KeyName(prefix, "07", &counter)).Val()
	if needs := later.ResetAfter(enforcement.State{Rev: 2, A: 17, T: 0}, 0); life < time.Duration(needs)*time.Microsecond {
		t.Errorf("the key lives for %s; the bucket needs %d µs to fill", life, needs)
	}
	if left := take(later, 0); left != 17 {
		t.Errorf("%d left, want 17", left)
	}
}
