package enforcement_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// When the shared limiter is available again, it has the keys of checks that the local limiter charged: a
// repetition on any node gets the decision, and is charged once in all.
func TestIdempotencyKeysOfAnOutage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(c *enforcement.Check)
		rule   enforcement.RuleLimit
		left   int64 // after the decisions with the key
	}{
		"a check":    {func(*enforcement.Check) {}, window(1, 5), 4},
		"force":      {func(c *enforcement.Check) { c.Mode, c.Cost = enforcement.Force, 3 }, window(1, 5), 2},
		"refundable": {func(c *enforcement.Check) { c.Refundable = true }, window(1, 5), 4},
		"a place":    {func(*enforcement.Check) {}, places(1, 2), 1},
	} {
		for _, journal := range []string{"charged", "not charged before the repetition"} {
			w := newIdempotent(t, enforcement.Config{})
			w.s = subject(t, enforcement.RuleSpec{
				Policy: "p", Path: "/a", OnFailure: enforcement.OnFailureLocal, CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{c.rule},
			})
			other := enforcement.NewEngine(w.shared, enforcement.Config{Now: func() time.Time { return time.UnixMicro(w.clock.Now()) }})
			w.shared.down = true
			check := keyed("k", asked("", "/a", "user", "u"))
			c.change(&check)
			first := decide(w.engine, w.s, check)
			if n := w.engine.OutageJournal().Keys; n != 2 {
				t.Errorf("%s: the journal has %d keys, want a counter and an idempotency key", name, n)
			}
			w.shared.down = false
			if journal == "charged" {
				chargeOutageJournal(w.engine)
			}
			again := decide(w.engine, w.s, check)
			chargeOutageJournal(w.engine)
			elsewhere := decide(other, w.s, check)
			for node, d := range map[string]*enforcement.Decision{"the same node": again, "another node": elsewhere} {
				if d.Idempotency != enforcement.Replayed || d.ID != first.ID || !d.Allowed || d.Degraded || d.Lease != first.Lease || d.RefundableUntil != 0 {
					t.Errorf("%s, %s, %s: %s, lease %q; the first was %s, lease %q", name, journal, node, result(d), d.Lease, result(first), first.Lease)
				}
			}
			changed := check
			changed.Cost += 7
			if d := decide(other, w.s, changed); d.Idempotency != enforcement.KeyReused {
				t.Errorf("%s: another check with the key: %s", name, result(d))
			}
			if d := decide(w.engine, w.s, peek(asked("", "/a", "user", "u"))); d.Limits[0].Remaining != c.left-1 { // a peek shows what is left after it
				t.Errorf("%s, %s: %s", name, journal, result(d))
			}
			if j := w.engine.OutageJournal(); j.Keys != 0 || j.Dropped != 0 {
				t.Errorf("%s: journal %+v", name, j)
			}
		}
	}
}

// A key of an outage counts 10 minutes, also in the journal. A lost reply does not lose it, and a denied
// check leaves none.
func TestIdempotencyKeysOfALongOutage(t *testing.T) {
	t.Parallel()
	w := newIdempotent(t, enforcement.Config{})
	w.s, w.shared.down = local(t), true
	decide(w.engine, w.s, keyed("old", asked("", "/a", "user", "u")))
	w.clock.Advance(enforcement.IdempotencyPeriod)
	late := decide(w.engine, w.s, keyed("late", asked("", "/a", "user", "u")))
	big := keyed("big", asked("", "/a", "user", "u"))
	big.Cost = 6
	if d := decide(w.engine, w.s, big); d.Allowed {
		t.Errorf("more than the quota: %s", result(d))
	}
	w.shared.down = false
	kept := w.shared.Limiter
	w.shared.Limiter = losing{kept} // the record is stored, but the reply is lost
	chargeOutageJournal(w.engine)
	w.shared.Limiter = kept
	chargeOutageJournal(w.engine)
	if j := w.engine.OutageJournal(); j.Keys != 0 {
		t.Errorf("journal %+v", j)
	}
	if d := decide(w.engine, w.s, keyed("late", asked("", "/a", "user", "u"))); d.Idempotency != enforcement.Replayed || d.ID != late.ID {
		t.Errorf("the key of the end of the outage: %s", result(d))
	}
	for _, key := range []string{"old", "big"} {
		if d := decide(w.engine, w.s, keyed(key, asked("", "/a", "user", "u"))); d.Idempotency != enforcement.NotRepeated {
			t.Errorf("%s: %s", key, result(d))
		}
	}
}
