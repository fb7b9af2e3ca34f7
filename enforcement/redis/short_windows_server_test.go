//go:build !quick

package redis_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// countedAfter is the longest time for which a key counts after its window has ended. docs/operations.md names it.
const countedAfter = 1<<20*time.Microsecond + time.Millisecond

// Keys of a window that is shorter than a second take memory of Redis for one more second, and
// count for at most 1.05 s after their window. So a tenant that makes fewer new keys in this time
// than its bound is never denied because of the bound, and no key that Redis keeps is left out for
// longer than the rounding of an interval.
func TestKeysOfShortWindows(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw, prefix := client(t, server.URL()), newPrefix()
	const bound, users, window = 1000, 800, 100 * time.Millisecond
	l := open(t, redis.Config{URL: server.URL(), Prefix: prefix, Keys: bound, Denials: -1})
	running(t, l)
	now := func() time.Time { return raw.Time(t.Context()).Val() }
	m := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 10, Window: window}.Compile(1)
	for round := range 4 {
		requests, outcomes := make([]enforcement.Request, users), make([]enforcement.Outcome, users)
		for i := range requests {
			requests[i] = request(keyed(7, 1, users*round+i, m, 1))
		}
		l.Take(t.Context(), requests, outcomes)
		for i := range outcomes {
			if outcomes[i].Verdict != enforcement.Granted || outcomes[i].Charges[0].State.A != 1 {
				t.Fatalf("round %d, user %d: %s, %+v: users share a counter", round, i, outcomes[i].Verdict, outcomes[i].Charges)
			}
		}
		end := now()
		eventually(t, "the keys no longer count", func() bool { return now().Sub(end) > window+countedAfter })
	}

	// A few keys are not reported to Redis. They stop counting too.
	before := now()
	few := keyed(8, 1, 1, m, 1)
	mustTake(t, l, request(few))
	after := now()
	name := redis.KeyName(prefix, "07", &few.Key)
	expires := time.UnixMilli(raw.PExpireTime(t.Context(), name).Val().Milliseconds())
	if expires.Before(before.Add(time.Second)) || expires.After(after.Add(window+time.Second+3*time.Millisecond)) {
		t.Errorf("the key expires %s after its check, want one second and the rest of its window", expires.Sub(before))
	}
	eventually(t, "the key no longer counts", func() bool { return now().Sub(after) > window+countedAfter })
	if k, err := l.KeysOf(t.Context(), "07", 8, []uint32{1}, 0); err != nil || k.Live != 0 {
		t.Errorf("%+v, %v: a key whose window has ended counts", k, err)
	}
}
