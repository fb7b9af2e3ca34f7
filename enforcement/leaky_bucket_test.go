package enforcement_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// queue returns a leaky bucket that serves one unit a second.
func queue(name string, cell uint32, burst int64) enforcement.RuleLimit {
	return slowQueue(name, cell, 60, burst)
}

// slowQueue returns a leaky bucket with a quota per minute.
func slowQueue(name string, cell uint32, quota, burst int64) enforcement.RuleLimit {
	l := enforcement.Limit{Name: name, Algorithm: enforcement.LeakyBucket, Quota: quota, Window: time.Minute, Burst: burst}
	return enforcement.RuleLimit{Limit: l, Cell: cell, Meter: l.Compile(1), HeaderName: name}
}

// delays returns a decision as text: whether it is allowed, its delay, and for each limit the delay
// and the units left.
func delays(d *enforcement.Decision) string {
	text := fmt.Sprintf("%v %d", d.Allowed, d.Delay)
	for i := range d.Limits {
		l := &d.Limits[i]
		text += fmt.Sprintf(" | %s %v %d left %d", l.Limit.Name, l.Allowed, l.Delay, l.Remaining)
	}
	return text
}

func wantDelays(t *testing.T, d *enforcement.Decision, want string) {
	t.Helper()
	if got := delays(d); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Several limits: all are charged or none, and the longest delay counts. Those of shadow policies
// delay nobody.
func TestDelay(t *testing.T) {
	t.Parallel()
	w := newHolders(t,
		enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{queue("fast", 1, 4), slowQueue("slow", 2, 30, 3), window(3, 5)}},
		enforcement.RuleSpec{Policy: "s", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{slowQueue("shadow", 4, 6, 3), window(5, 2)}},
	)
	check := func(mode enforcement.Mode, cost int64) *enforcement.Decision {
		return decide(w.engine, w.s, enforcement.Check{Path: "/a", Cost: cost, Mode: mode})
	}
	enforce, peek := enforcement.Enforce, enforcement.Peek
	wantDelays(t, check(enforce, 1), "true 0 | fast true 0 left 3 | slow true 0 left 2 | l3 true 0 left 4 | shadow true 0 left 2 | l5 true 0 left 1")
	wantDelays(t, check(peek, 1), "true 2000 | fast true 1000 left 2 | slow true 2000 left 1 | l3 true 0 left 3 | shadow true 10000 left 1 | l5 true 0 left 0")
	wantDelays(t, check(enforce, 1), "true 2000 | fast true 1000 left 2 | slow true 2000 left 1 | l3 true 0 left 3 | shadow true 10000 left 1 | l5 true 0 left 0")
	wantDelays(t, check(enforce, 1), "true 4000 | fast true 2000 left 1 | slow true 4000 left 0 | l3 true 0 left 2 | shadow true 0 left 1 | l5 false 0 left 0")
	wantDelays(t, check(enforce, 1), "false 0 | fast true 0 left 1 | slow false 0 left 0 | l3 true 0 left 2 | shadow true 0 left 1 | l5 false 0 left 0")
	wantDelays(t, check(enforcement.Force, 1), "true 0 | fast true 0 left 0 | slow false 0 left 0 | l3 true 0 left 1 | shadow true 0 left 0 | l5 false 0 left 0")
}

func TestDelayOfTakeUpTo(t *testing.T) {
	t.Parallel()
	w := newHolders(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{queue("q", 1, 10)}})
	take := enforcement.Check{Path: "/a", Cost: 8, Mode: enforcement.TakeUpTo}
	wantDelays(t, decide(w.engine, w.s, take), "true 0 | q true 0 left 2")
	wantDelays(t, decide(w.engine, w.s, take), "true 8000 | q true 8000 left 0")
	wantDelays(t, decide(w.engine, w.s, take), "false 0 | q false 0 left 0")
}

// The checks of an atomic batch are served one after the other, as those of another batch are.
func TestDelaysOfABatch(t *testing.T) {
	t.Parallel()
	for _, atomic := range []bool{false, true} {
		w := newHolders(t, enforcement.RuleSpec{
			Policy: "p", CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{queue("q", 1, 10)},
		})
		var items []enforcement.BatchItem
		for i, user := range []string{"u", "u", "v", "u"} {
			items = append(items, enforcement.BatchItem{
				Subject: w.s, Decision: new(enforcement.Decision),
				Check: &enforcement.Check{Path: "/a", Cost: int64(1 + i), Attributes: attributes("user", user)},
			})
		}
		w.check("", "user", "u")
		w.engine.DecideBatch(context.Background(), items, atomic)
		for i, want := range []int64{1000, 2000, 0, 4000} {
			if d := items[i].Decision; !d.Allowed || d.Delay != want {
				t.Errorf("atomic %t, check %d: allowed %t, delay %d, want %d", atomic, i, d.Allowed, d.Delay, want)
			}
		}
		w.engine.DecideBatch(context.Background(), items, atomic)
		for i := range items {
			if d := items[i].Decision; atomic && (d.Allowed || d.Delay != 0) {
				t.Errorf("atomic %t, check %d of the second batch: allowed %t, delay %d", atomic, i, d.Allowed, d.Delay)
			}
		}
	}
}

// A repetition has the delay of the first decision, also if a block denies other checks now.
func TestDelayOfARepetition(t *testing.T) {
	t.Parallel()
	w := newIdempotent(t, enforcement.Config{})
	w.s = subject(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{queue("q", 1, 10)}})
	decide(w.engine, w.s, asked("", "/a"))
	decide(w.engine, w.s, asked("", "/a"))
	check := keyed("k", asked("", "/a"))
	wantDelays(t, decide(w.engine, w.s, check), "true 2000 | q true 2000 left 7")
	w.clock.Advance(1500 * time.Millisecond)
	decide(w.engine, w.s, asked("", "/a"))
	wantDelays(t, decide(w.engine, w.s, check), "true 2000 | q true 2000 left 7")
	w.s = addExceptions(t, w.s, enforcement.ExceptionSpec{Blocks: []enforcement.Block{{ID: "b", Policy: "p", Until: w.clock.Now() + 3600*second}}})
	wantDelays(t, decide(w.engine, w.s, check), "true 2000 | q true 2000 left 7")
	wantDelays(t, decide(w.engine, w.s, asked("", "/a")), "false 0")
}

// A reservation waits as a check does. Its settle gives the room in the queue back.
func TestDelayOfAReservation(t *testing.T) {
	t.Parallel()
	w := newHolders(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{queue("q", 1, 10)}})
	w.check("")
	reserve := enforcement.Check{Path: "/a", Cost: 5, Reservation: &enforcement.CheckReservation{ID: "r", Life: time.Minute}}
	wantDelays(t, decide(w.engine, w.s, reserve), "true 1000 | q true 1000 left 4")
	wantDelays(t, decide(w.engine, w.s, reserve), "true 1000 | q true 1000 left 4")
	two := int64(2)
	change := enforcement.ReservationChange{ID: "r", State: enforcement.ReservationSettled, Cost: &two}
	if _, _, err := w.engine.ChangeReservation(context.Background(), w.s, &change); err != nil {
		t.Fatal(err)
	}
	wantDelays(t, w.check(""), "true 3000 | q true 3000 left 6")
}

// An override can make the queue longer or shorter. Neither changes the delay of a request, which
// depends only on the requests before it.
func TestDelayWithAnOverride(t *testing.T) {
	t.Parallel()
	w := newHolders(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{queue("q", 1, 4)}})
	w.check("")
	w.check("")
	plan := w.s
	w.s = addExceptions(t, plan, enforcement.ExceptionSpec{Overrides: []enforcement.Override{{
		ID: "o", Policy: "p", Revision: 9, From: w.clock.Now(), Until: w.clock.Now() + 3600*second,
		Limits: []enforcement.OverrideLimit{{Name: "q", Quota: enforcement.Keep, Burst: 100}},
	}}})
	wantDelays(t, w.check(""), "true 2000 | q true 2000 left 97")
	w.s = plan
	wantDelays(t, w.check(""), "true 3000 | q true 3000 left 0")
}

// Without the shared limiter, a node serves its share: the queue that it knows, at its part of the
// rate. The outage journal queues what was admitted.
func TestDelayWithoutTheLimiter(t *testing.T) {
	t.Parallel()
	w := newHolders(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{queue("q", 1, 10)}})
	for range 4 {
		w.check("")
	}
	w.shared.down = true
	wantDelays(t, w.check(""), "true 4000 | q true 4000 left 2") // half of the room, half of the rate
	wantDelays(t, w.check(""), "true 6000 | q true 6000 left 1")
	w.check("")
	wantDelays(t, w.check(""), "false 0 | q false 0 left 0")
	w.shared.down = false
	chargeOutageJournal(w.engine)
	wantDelays(t, w.check(""), "true 7000 | q true 7000 left 2")
}

// What denies one request of a full queue denies later ones until its retry time.
func TestRetryAfterOfAFullQueue(t *testing.T) {
	t.Parallel()
	w := newHolders(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{queue("q", 1, 3)}})
	for range 3 {
		w.check("")
	}
	d := w.check("")
	wantSummary(t, d, "false over_limit retry 1000 | p false left 0 reset 3000 retry 1000")
	w.clock.Advance(999 * time.Millisecond)
	wantSummary(t, w.check(""), "false over_limit retry 1 | p false left 0 reset 2001 retry 1")
	w.clock.Advance(time.Millisecond)
	wantDelays(t, w.check(""), "true 2000 | q true 2000 left 0")
}

func TestLongestDelay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit enforcement.Limit
		want  time.Duration
	}{
		{enforcement.Limit{Algorithm: enforcement.LeakyBucket, Quota: 10, Window: time.Second, Burst: 30}, 2900 * time.Millisecond},
		{enforcement.Limit{Algorithm: enforcement.LeakyBucket, Quota: 10, Window: time.Second}, 900 * time.Millisecond},
		{enforcement.Limit{Algorithm: enforcement.LeakyBucket, Quota: 10, Window: time.Second, Burst: 1}, 0},
		{enforcement.Limit{Algorithm: enforcement.LeakyBucket, Window: time.Second, Burst: 5}, 0},
		{enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 10, Window: time.Second, Burst: 30}, 0},
	} {
		if got := c.limit.LongestDelay(); got != c.want.Microseconds() {
			t.Errorf("%+v: %d µs, want %s", c.limit, got, c.want)
		}
	}
}
