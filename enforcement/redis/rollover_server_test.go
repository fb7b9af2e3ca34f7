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

// rollingMonth is a limit of a calendar month whose unused units are rolled over.
var rollingMonth = enforcement.Limit{
	Name: "l1", Algorithm: enforcement.FixedWindow, Quota: 1_000, Window: enforcement.Month.Longest(), Period: enforcement.Month,
	Anchor: enforcement.ByCalendar, MaxRollover: 500,
}

// After a loss of the data of Redis, a counter of the last month is restored, and what was left of it
// is rolled over. After another loss, the counter is restored with what was rolled over.
func TestRolledOverUnitsAreRestored(t *testing.T) {
	t.Parallel()
	url, prefix, counter := servertest.Redis(t), newPrefix(), key(3)
	raw := client(t, url)
	now := time.Now()
	plan := rollingMonth.Compile(1)
	m := plan.In(nil, now.UnixMicro())
	month, _ := m.Calendar.Window(enforcement.Month, time.Monday, now)
	before, _ := m.Calendar.Window(enforcement.Month, time.Monday, month.Add(-1))
	rows := func(s enforcement.State, at int64) []enforcement.Stored {
		return []enforcement.Stored{{Key: counter, Algorithm: m.Algorithm, State: s, At: at, Ends: s.T + m.Life(), Home: "07"}}
	}
	j := &stored{states: rows(plan.In(nil, before.UnixMicro()).Charge(enforcement.State{}, 1, before.UnixMicro(), 700), month.UnixMicro()-1)}
	l := open(t, redis.Config{URL: url, Prefix: prefix, Durable: true})
	restoring(t, l, j)
	l.Restored(t.Context())
	charge := func(cost int64, want enforcement.Verdict, wantLeft int64) enforcement.State {
		t.Helper()
		o := take(t.Context(), l, request(enforcement.Charge{Key: counter, Meter: m, Rev: 1, Cost: cost}))
		if o.Verdict != want {
			t.Fatalf("a charge of %d: %s, %v; want %s", cost, o.Verdict, o.Err, want)
		}
		if want == enforcement.Lost {
			return enforcement.State{}
		}
		if left := m.Left(o.Charges[0].State, o.At); left != wantLeft {
			t.Fatalf("%d left after a charge of %d, want %d", left, cost, wantLeft)
		}
		return o.Charges[0].State
	}
	charge(1_301, enforcement.Refused, 1_300)
	state := charge(600, enforcement.Granted, 700)

	j.set(rows(state, now.UnixMicro()))
	raw.Del(t.Context(), marker(prefix), redis.KeyName(prefix, "07", &counter))
	charge(1, enforcement.Lost, 0)
	l.Restored(t.Context())
	charge(701, enforcement.Refused, 700)
	charge(700, enforcement.Granted, 0)
	charge(1, enforcement.Refused, 0)
	if s := l.Status(); s.Mismatches != 0 {
		t.Errorf("%+v", s)
	}
}

// A key is kept for the windows in which its counter has an effect.
func TestKeysThatRollOverAreKept(t *testing.T) {
	t.Parallel()
	url, prefix, counter := servertest.Redis(t), newPrefix(), key(4)
	l := open(t, redis.Config{URL: url, Prefix: prefix})
	m := rollingMonth.Compile(1).In(nil, time.Now().UnixMicro())
	o := mustTake(t, l, request(enforcement.Charge{Key: counter, Meter: m, Rev: 1, Cost: 1}))
	life := client(t, url).PTTL(t.Context(), redis.KeyName(prefix, "07", &counter)).Val()
	needs := time.Duration(m.UnusedAfter(&o.Charges[0].State, o.At)) * time.Microsecond
	if life < needs || life > needs+time.Minute || needs < 12*28*24*time.Hour {
		t.Errorf("the key lives for %s, want %s", life, needs)
	}
}

// Nothing is rolled over to an overflow counter.
func TestOverflowCountersRollNothingOver(t *testing.T) {
	t.Parallel()
	url, prefix := servertest.Redis(t), newPrefix()
	clock := limitertest.NewClock()
	l := open(t, redis.Config{URL: url, Prefix: prefix, Now: clock.Now})
	if err := client(t, url).Set(t.Context(), prefix+"{07}\x07F", "1", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	plan := rollingMonth.Compile(1)
	for month := range 3 {
		clock.Set(time.Date(2026, time.Month(3+month), 5, 0, 0, 0, 0, time.UTC).UnixMicro())
		m := plan.In(nil, clock.Now())
		o := mustTake(t, l, request(enforcement.Charge{Key: key(6), Meter: m, Rev: 1, Cost: 100}))
		if left := m.Left(o.Charges[0].State, o.At); !o.Charges[0].Shared || left != 900 {
			t.Errorf("month %d: shared %t, %d left, want 900", month, o.Charges[0].Shared, left)
		}
	}
	if n := l.Status().Mismatches; n != 0 {
		t.Errorf("script and reference disagreed on %d requests", n)
	}
}
