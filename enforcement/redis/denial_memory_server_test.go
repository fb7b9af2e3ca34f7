//go:build !quick

package redis_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// A denied request is denied again without a call, until its limit admits it, its
// numbers change, or a second has passed.
func TestDenialsAreRemembered(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw := client(t, server.URL())
	now := int64(1_800_000_000_000_000)
	l := open(t, redis.Config{URL: server.URL(), Now: func() int64 { return now }})
	window := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 3, Window: 10 * time.Second}.Compile(1)
	ask := func(what string, r enforcement.Request, verdict enforcement.Verdict, calls int64) enforcement.Outcome {
		t.Helper()
		before := evalshas(t, raw)
		o := mustTake(t, l, r)
		if o.Verdict != verdict || evalshas(t, raw)-before != calls {
			t.Errorf("%s: %s with %d calls, want %s with %d", what, o.Verdict, evalshas(t, raw)-before, verdict, calls)
		}
		return o
	}
	one, two := request(charge(1, window, 1)), request(charge(1, window, 1), charge(2, perHour, 5))

	ask("the first", request(charge(1, window, 3)), enforcement.Granted, 1)
	first := ask("over the limit", one, enforcement.Refused, 1)
	now += 400_000
	again := ask("0.4 s later", one, enforcement.Refused, 0)
	if again.At != now || again.Charges[0].State.A != first.Charges[0].State.A || again.Charges[0].Fits {
		t.Errorf("from the memory %+v, from the server %+v", again, first)
	}
	ask("with another counter", two, enforcement.Refused, 1)
	ask("the same again", two, enforcement.Refused, 0)
	ask("peek", withMode(one, enforcement.Peek), enforcement.Refused, 1)
	ask("by other numbers", request(charge(1, enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 3, Window: 10 * time.Second}.Compile(2), 1)), enforcement.Refused, 1)
	ask("by the first numbers", one, enforcement.Refused, 1)
	now += 1_000_001
	ask("a second later", one, enforcement.Refused, 1)
	ask("and again", one, enforcement.Refused, 0)
	ask("refund", withMode(one, enforcement.Refund), enforcement.Granted, 1)
	ask("after a refund", one, enforcement.Granted, 1)
	ask("over the limit again: the grant left nothing", one, enforcement.Refused, 0)
	ask("reset", withMode(one, enforcement.Reset), enforcement.Granted, 1)
	ask("after a reset", request(charge(1, window, 3)), enforcement.Granted, 1)
	ask("over the limit after the reset", one, enforcement.Refused, 0)
	ask("force", withMode(one, enforcement.Force), enforcement.Granted, 1)
	now += 10_000_000
	ask("in the next window", one, enforcement.Granted, 1)
	if n := l.Status().Recalled; n != 5 {
		t.Errorf("%d answers from the memory, want 5", n)
	}
}

// Units that another node gives back are seen within a second.
func TestDenialsAreForgottenInTime(t *testing.T) {
	t.Parallel()
	url, prefix := servertest.Redis(t), newPrefix()
	now := int64(1_800_000_000_000_000)
	clock := func() int64 { return now }
	here, there := open(t, redis.Config{URL: url, Prefix: prefix, Now: clock}), open(t, redis.Config{URL: url, Prefix: prefix, Now: clock})
	r := request(charge(1, perHour, perHour.Quota))
	mustTake(t, here, r)
	if o := mustTake(t, here, r); o.Verdict != enforcement.Refused {
		t.Fatalf("%s", o.Verdict)
	}
	mustTake(t, there, withMode(r, enforcement.Reset))
	now += 1_000_000
	if o := mustTake(t, here, r); o.Verdict != enforcement.Refused {
		t.Errorf("within a second: %s; this test expects to see the stated bound", o.Verdict)
	}
	now++
	if o := mustTake(t, here, r); o.Verdict != enforcement.Granted {
		t.Errorf("after a second: %s", o.Verdict)
	}
}

func withMode(r enforcement.Request, m enforcement.Mode) enforcement.Request {
	r.Mode = m
	return r
}
