package enforcement_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// chargeOutageJournal makes one attempt to charge the journal of an engine.
func chargeOutageJournal(e *enforcement.Engine) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = e.RunOutageJournal(ctx) // makes a last attempt and returns
}

// leftShared returns the remaining units in the shared limiter for the only limit of a subject.
func leftShared(t *testing.T, e *enforcement.Engine, s *enforcement.Subject) int64 {
	t.Helper()
	d := decide(e, s, enforcement.Check{Cost: 0, Mode: enforcement.Peek})
	if d.Degraded || len(d.Limits) != 1 {
		t.Fatalf("the shared limiter does not decide: %s", summary(d))
	}
	return d.Limits[0].Remaining
}

// Checks that the failure modes allowed are charged once when the shared limiter is available
// again. For each algorithm, the result is the same as without the outage.
func TestOutageJournalIsChargedOnReturn(t *testing.T) {
	t.Parallel()
	for _, a := range []enforcement.Algorithm{
		enforcement.FixedWindow, enforcement.SlidingWindowLog, enforcement.SlidingWindowCounter, enforcement.TokenBucket, enforcement.GCRA, enforcement.LeakyBucket,
	} {
		for _, mode := range []enforcement.OnFailure{enforcement.OnFailureLocal, enforcement.OnFailureOpen} {
			s := subject(t, enforcement.RuleSpec{
				Policy: "a", OnFailure: mode, Limits: []enforcement.RuleLimit{limit("l", 1, a, 100, 100*time.Hour)},
			})
			e, shared, _, clock := newFault(1)
			admits(t, e, s, false, 30)
			shared.down = true
			if n := admits(t, e, s, true, 20); n != 20 {
				t.Fatalf("%s, %s: %d of 20 admitted while the limiter is away", a, mode, n)
			}
			chargeOutageJournal(e)
			if j := e.OutageJournal(); j.Keys != 1 || j.Charged != 0 || j.Dropped != 0 {
				t.Errorf("%s, %s: journal %+v while the limiter is away", a, mode, j)
			}
			clock.Advance(time.Second)
			shared.down = false
			for range 2 {
				chargeOutageJournal(e)
				if left := leftShared(t, e, s); left != 50 {
					t.Errorf("%s, %s: %d of 100 left after 30 and 20, want 50", a, mode, left)
				}
			}
			if j := e.OutageJournal(); j != (enforcement.OutageJournalState{Charged: 20}) {
				t.Errorf("%s, %s: journal %+v, want 20 charged", a, mode, j)
			}
		}
	}
}

// The journal charges only units that still count: not those of a window that has ended, and
// not those that a bucket has refilled meanwhile.
func TestOutageJournalForgetsEndedWindows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		algorithm enforcement.Algorithm
		after     time.Duration
		left      int64
	}{
		{enforcement.FixedWindow, time.Hour, 100},
		{enforcement.SlidingWindowLog, time.Hour, 100},
		{enforcement.SlidingWindowCounter, 2 * time.Hour, 100},
		{enforcement.SlidingWindowCounter, 90 * time.Minute, 75}, // half of 30 and 20 has faded
		{enforcement.TokenBucket, time.Hour, 100},
		{enforcement.TokenBucket, 30 * time.Minute, 100}, // 50 used, 50 refilled
		{enforcement.TokenBucket, 15 * time.Minute, 75},
		{enforcement.LeakyBucket, 15 * time.Minute, 75},
	} {
		s := subject(t, enforcement.RuleSpec{Policy: "a", Limits: []enforcement.RuleLimit{limit("l", 1, c.algorithm, 100, time.Hour)}})
		e, shared, _, clock := newFault(1)
		admits(t, e, s, false, 30)
		shared.down = true
		admits(t, e, s, true, 20)
		clock.Advance(c.after)
		shared.down = false
		chargeOutageJournal(e)
		if left := leftShared(t, e, s); left != c.left {
			t.Errorf("%s, %s later: %d left, want %d", c.algorithm, c.after, left, c.left)
		}
		if j := e.OutageJournal(); j.Keys != 0 || j.Dropped != 0 {
			t.Errorf("%s, %s later: journal %+v", c.algorithm, c.after, j)
		}
	}
}

// A bucket that refills during the outage is charged exactly for what it admitted.
func TestOutageJournalOfARefillingBucket(t *testing.T) {
	t.Parallel()
	s := subject(t, enforcement.RuleSpec{
		Policy: "a", Limits: []enforcement.RuleLimit{limit("l", 1, enforcement.TokenBucket, 100, 100*time.Second)},
	})
	e, shared, _, clock := newFault(1)
	if n := admits(t, e, s, false, 200); n != 100 {
		t.Fatalf("%d admitted", n)
	}
	shared.down = true
	for range 50 { // one unit per second, as many as the bucket refills
		clock.Advance(time.Second)
		if n := admits(t, e, s, true, 2); n != 1 {
			t.Fatalf("%d admitted in a second", n)
		}
	}
	shared.down = false
	chargeOutageJournal(e)
	if left := leftShared(t, e, s); left != 0 {
		t.Errorf("%d left of an empty bucket whose refill was spent during the outage", left)
	}
}

// The journal contains only checks that were allowed and not charged.
func TestWhatIsNotInTheOutageJournal(t *testing.T) {
	t.Parallel()
	rule := func(mode enforcement.OnFailure) enforcement.RuleSpec {
		return enforcement.RuleSpec{
			Policy: "a", OnFailure: mode, Limits: []enforcement.RuleLimit{limit("l", 1, enforcement.FixedWindow, 10, time.Hour)},
		}
	}
	for _, c := range []struct {
		name    string
		mode    enforcement.OnFailure
		verdict enforcement.Verdict
		check   enforcement.Check
		keys    int
	}{
		{"not sent", enforcement.OnFailureLocal, enforcement.Failed, enforcement.Check{Cost: 1}, 1},
		{"too late", enforcement.OnFailureLocal, enforcement.Fenced, enforcement.Check{Cost: 1}, 1},
		{"sent and not answered", enforcement.OnFailureLocal, enforcement.Unknown, enforcement.Check{Cost: 1}, 0},
		{"sent and not answered, open", enforcement.OnFailureOpen, enforcement.Unknown, enforcement.Check{Cost: 1}, 0},
		{"denied", enforcement.OnFailureLocal, enforcement.Failed, enforcement.Check{Cost: 11}, 0},
		{"peek", enforcement.OnFailureLocal, enforcement.Failed, enforcement.Check{Cost: 1, Mode: enforcement.Peek}, 0},
		{"cost 0", enforcement.OnFailureOpen, enforcement.Failed, enforcement.Check{}, 0},
		{"closed", enforcement.OnFailureClosed, enforcement.Failed, enforcement.Check{Cost: 1}, 0},
		{"closed, forced", enforcement.OnFailureClosed, enforcement.Failed, enforcement.Check{Cost: 1, Mode: enforcement.Force}, 1},
	} {
		e := enforcement.NewEngine(away{c.verdict}, enforcement.Config{Local: newCounters()})
		decide(e, subject(t, rule(c.mode)), c.check)
		if j := e.OutageJournal(); j.Keys != c.keys || j.Dropped != 0 {
			t.Errorf("%s: journal %+v, want %d keys", c.name, j, c.keys)
		}
	}
}

// losing is a limiter that charges, but reports that it does not know whether it did.
type losing struct{ enforcement.Limiter }

func (l losing) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	l.Limiter.Take(ctx, requests, outcomes)
	for i := range outcomes {
		outcomes[i].Verdict = enforcement.Unknown
	}
}

// If a charge from the journal was sent and the reply was lost, it is not sent again.
func TestOutageJournalChargesAtMostOnce(t *testing.T) {
	t.Parallel()
	s := subject(t, enforcement.RuleSpec{Policy: "a", Limits: []enforcement.RuleLimit{limit("l", 1, enforcement.FixedWindow, 100, time.Hour)}})
	e, shared, _, _ := newFault(1)
	shared.down = true
	admits(t, e, s, true, 20)
	inner := shared.Limiter
	shared.down, shared.Limiter = false, losing{inner}
	chargeOutageJournal(e)
	shared.Limiter = inner
	chargeOutageJournal(e)
	if left := leftShared(t, e, s); left != 80 {
		t.Errorf("%d left after a lost reply, want 80", left)
	}
	if j := e.OutageJournal(); j != (enforcement.OutageJournalState{Dropped: 20}) {
		t.Errorf("journal %+v, want 20 dropped", j)
	}
}

// The journal is bounded. Entries above the bound are counted, and a log takes little
// memory.
func TestOutageJournalIsBounded(t *testing.T) {
	t.Parallel()
	s := subject(t, enforcement.RuleSpec{
		Policy: "a", CountBy: []string{"user"}, OnFailure: enforcement.OnFailureOpen,
		Limits: []enforcement.RuleLimit{limit("l", 1, enforcement.SlidingWindowLog, 10_000, time.Hour)},
	})
	shared := &faulty{Limiter: newCounters(), down: true}
	e := enforcement.NewEngine(shared, enforcement.Config{OutageJournalKeys: 2})
	user := func(name string) enforcement.Check {
		return enforcement.Check{Cost: 1, Attributes: []enforcement.Attribute{{Name: "user", Value: name}}}
	}
	for _, name := range []string{"a", "b", "c", "c"} {
		for range 1000 {
			decide(e, s, user(name))
		}
	}
	if j := e.OutageJournal(); j.Keys != 2 || j.Dropped != 2000 {
		t.Errorf("journal %+v, want 2 keys, 2,000 dropped", j)
	}
	shared.down = false
	chargeOutageJournal(e)
	if j := e.OutageJournal(); j != (enforcement.OutageJournalState{Charged: 2000, Dropped: 2000}) {
		t.Errorf("journal %+v after the return", j)
	}
}

// Admissions during the charging of the journal are not lost.
func TestOutageJournalRestoresWhatFailed(t *testing.T) {
	t.Parallel()
	s := subject(t, enforcement.RuleSpec{Policy: "a", Limits: []enforcement.RuleLimit{limit("l", 1, enforcement.FixedWindow, 100, time.Hour)}})
	e, shared, _, _ := newFault(1)
	shared.down = true
	for range 5 {
		admits(t, e, s, true, 4)
		chargeOutageJournal(e)
	}
	shared.down = false
	chargeOutageJournal(e)
	if left := leftShared(t, e, s); left != 80 {
		t.Errorf("%d left after 5 times 4, want 80", left)
	}
}

// A check in mode TakeUpTo charges soft policies too: with what it took, as the shared limiter does.
func TestOutageJournalOfTakeUpTo(t *testing.T) {
	t.Parallel()
	rule := func(policy string, cell uint32, mode enforcement.PolicyMode, a enforcement.Algorithm, quota int64) enforcement.RuleSpec {
		return enforcement.RuleSpec{
			Policy: policy, Mode: mode, OnFailure: enforcement.OnFailureLocal, Limits: []enforcement.RuleLimit{limit("l", cell, a, quota, 100*time.Hour)},
		}
	}
	for _, c := range []struct {
		hard int64 // quota of the enforced policy; its share of a node is the half
		want []int64
		what string
	}{
		{1000, []int64{970, 970, 970, 10}, "30 taken; of the last policy, the third check found nothing left"},
		{24, []int64{12, 988, 988, 18}, "12 taken"},
	} {
		s := subject(t,
			rule("hard", 1, enforcement.PolicyEnforce, enforcement.FixedWindow, c.hard),
			rule("soft", 2, enforcement.PolicyDegrade, enforcement.FixedWindow, 1000),
			rule("later", 3, enforcement.PolicyDelay, enforcement.TokenBucket, 1000),
			rule("small", 4, enforcement.PolicyDegrade, enforcement.FixedWindow, 30),
		)
		e, shared, _, _ := newFault(2)
		shared.down = true
		for range 3 {
			decide(e, s, enforcement.Check{Cost: 10, Mode: enforcement.TakeUpTo})
		}
		shared.down = false
		chargeOutageJournal(e)
		var left []int64
		for _, l := range decide(e, s, enforcement.Check{Cost: 0, Mode: enforcement.Peek}).Limits {
			left = append(left, l.Remaining)
		}
		if !slices.Equal(left, c.want) {
			t.Errorf("hard %d: %d left, want %d: %s", c.hard, left, c.want, c.what)
		}
	}
}
