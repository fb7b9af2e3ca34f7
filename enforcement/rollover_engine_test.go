package enforcement_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/limitertest"
)

// A month ends while the shared limiter is away. What the node admitted before that reduces what is rolled
// over: it is charged to the next month when the shared limiter is back.
func TestOutageAcrossTheEndOfAMonthWithRollover(t *testing.T) {
	t.Parallel()
	c := limitertest.NewClock()
	shared, local := &faulty{Limiter: inprocess.New(inprocess.Config{Now: c.Now})}, inprocess.New(inprocess.Config{Now: c.Now})
	e := enforcement.NewEngine(shared, enforcement.Config{
		Local: local, Memory: local, Nodes: 1, Now: func() time.Time { return time.UnixMicro(c.Now()) },
	})
	monthly := enforcement.Limit{
		Name: "l", Algorithm: enforcement.FixedWindow, Quota: 100, Window: enforcement.Month.Longest(), Period: enforcement.Month,
		Anchor: enforcement.ByCalendar, MaxRollover: 60,
	}
	s := subject(t, enforcement.RuleSpec{Policy: "a", Limits: []enforcement.RuleLimit{{Limit: monthly, Cell: 1, Meter: monthly.Compile(1)}}})
	at := func(month time.Month, day int) { c.Set(time.Date(2026, month, day, 0, 0, 0, 0, time.UTC).UnixMicro()) }
	at(3, 10)
	admits(t, e, s, false, 30)
	shared.down = true
	admits(t, e, s, true, 20)
	at(4, 2)
	if n := admits(t, e, s, true, 200); n != 150 {
		t.Errorf("%d admitted in the outage, want the quota of 100 and 50 that were left", n)
	}
	at(5, 2)
	shared.down = false
	chargeOutageJournal(e)
	if left := leftShared(t, e, s); left != 100 {
		t.Errorf("%d left, want 100: nothing was left of April", left)
	}
}
