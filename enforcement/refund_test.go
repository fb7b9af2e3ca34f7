package enforcement_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// refundable decides a refundable check of user u with some tokens.
func (w *reserving) refundable(tokens string, change ...func(*enforcement.Check)) *enforcement.Decision {
	c := asked("", "/a", "user", "u", "tokens", tokens)
	c.Refundable = true
	for _, f := range change {
		f(&c)
	}
	return decide(w.engine, w.s, c)
}

// refund refunds a decision and returns the result as a line.
func (w *reserving) refund(d *enforcement.Decision, key string) string {
	r, replayed, err := w.engine.RefundCheck(w.Context(), w.s, d.ID, key)
	if err != nil {
		return strings.ReplaceAll(fmt.Sprint(problem.Of(err), " ", err.Error()), decisionText(d.ID), "ID")
	}
	text := ""
	if replayed {
		text = "replayed "
	}
	for _, l := range r.Limits {
		text += fmt.Sprintf("%s.%s %d of %d ", l.Policy, l.Limit, l.Refunded, l.Charged)
	}
	return text + enforcement.Instant(r.RefundedAt).Format("05.000")
}

func decisionText(id [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

func TestRefundCheck(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	d := w.refundable("60")
	if want := w.clock.Now() + 60*second; !d.Allowed || d.RefundableUntil != want || d.Reservation != nil {
		t.Errorf("%v, refundable until %d, want %d", d.Allowed, d.RefundableUntil, want)
	}
	plain := decide(w.engine, w.s, asked("", "/a", "user", "u", "tokens", "10"))
	denied := w.refundable("60")
	if plain.RefundableUntil != 0 || denied.Allowed || denied.RefundableUntil != 0 {
		t.Errorf("plain %d, denied %v %d", plain.RefundableUntil, denied.Allowed, denied.RefundableUntil)
	}
	w.is(w.left(), "3 30", "charged")
	for what, other := range map[string]*enforcement.Decision{"plain": plain, "denied": denied, "unknown": {ID: [16]byte{1}}} {
		w.is(w.refund(other, "")[:9], "not found", what)
	}
	foreign := *w.s
	foreign.Number++
	if _, _, err := w.engine.RefundCheck(t.Context(), &foreign, d.ID, ""); !problem.Is(err, problem.NotFound) {
		t.Errorf("another tenant: %v", err)
	}
	w.is(w.left(), "3 30", "nothing is given back")

	w.clock.Advance(20 * time.Second)
	w.is(w.refund(d, "k"), "requests.l1 1 of 1 tokens.l2 60 of 60 20.000", "refunded")
	w.is(w.left(), "4 90", "given back")
	w.clock.Advance(10 * time.Second)
	w.is(w.refund(d, "k"), "replayed requests.l1 1 of 1 tokens.l2 60 of 60 20.000", "the same call again")
	for _, key := range []string{"", "other"} {
		w.is(w.refund(d, key), "conflict check ID was refunded at 2026-01-01T00:00:20.000Z; "+
			"policy requests, limit l1: 1 of 1 given back; policy tokens, limit l2: 60 of 60 given back", "again with the key "+key)
	}
	w.is(w.left(), "4 90", "once")
	if n := w.engine.ReservationCounts(); n.Refundable != 1 || n.Refunded != 1 || n.Created != 0 {
		t.Errorf("%+v", n)
	}
	if list, err := w.engine.Reservations(t.Context(), w.s, "", 10); err != nil || len(list) != 0 {
		t.Errorf("a refundable check is listed as a reservation: %v, %v", list, err)
	}
	if _, err := w.engine.Reservation(t.Context(), w.s, decisionText(d.ID)); !problem.Is(err, problem.NotFound) {
		t.Errorf("a refundable check is a reservation: %v", err)
	}
}

// Without a key, each call is another one.
func TestRefundWithoutAKey(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	d := w.refundable("60")
	w.is(w.refund(d, ""), "requests.l1 1 of 1 tokens.l2 60 of 60 00.000", "refunded")
	w.is(w.refund(d, "")[:8], "conflict", "again")
	w.is(w.left(), "5 100", "once")
}

// If a window has ended, its charge is kept. If all windows have ended, the refund is an error.
func TestRefundAfterTheWindow(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	w.s = subject(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{
		window(1, 5),
		limit("hour", 2, enforcement.FixedWindow, 50, time.Hour),
		limit("bucket", 3, enforcement.TokenBucket, 60, time.Minute),
	}})
	first, second := w.refundable("1"), w.refundable("1")
	w.clock.Advance(time.Minute)
	w.is(w.refund(first, ""), "p.l1 0 of 1 p.hour 1 of 1 p.bucket 0 of 1 00.000", "one window is open")
	w.clock.Advance(59 * time.Minute)
	late := "conflict check ID cannot be refunded: the windows that it charged ended at 2026-01-01T01:00:00.000Z; nothing was given back"
	w.is(w.refund(second, ""), late, "at the end")
	w.clock.Advance(time.Minute - time.Microsecond)
	w.is(w.refund(second, ""), late, "a minute later")
	w.clock.Advance(time.Microsecond)
	w.is(w.refund(second, "")[:9], "not found", "and later")
}

// A check can be refunded for at most a day.
func TestRefundOfALongWindow(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	w.s = subject(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{limit("week", 1, enforcement.FixedWindow, 5, 7*24*time.Hour)}})
	first, second := w.refundable("1"), w.refundable("1")
	w.is(enforcement.Instant(first.RefundableUntil).Format(enforcement.InstantLayout), "2026-01-02T00:00:00.000Z", "until")
	w.clock.Advance(24*time.Hour - time.Microsecond) // rounded to the next millisecond
	w.is(w.refund(first, ""), "p.week 1 of 1 00.000", "within a day")
	w.clock.Advance(time.Microsecond)
	w.is(w.refund(second, "")[:8], "conflict", "after a day")
}

// A repetition with the same key gets the same decision. Only one of them can be refunded.
func TestRefundOfAnIdempotentCheck(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	key := func(c *enforcement.Check) { c.IdempotencyKey = "k" }
	first := w.refundable("60", key)
	again := w.refundable("60", key)
	if again.Idempotency != enforcement.Replayed || again.ID != first.ID || again.RefundableUntil != first.RefundableUntil || first.RefundableUntil == 0 {
		t.Errorf("%+v, the first %+v", again, first)
	}
	plain := w.refundable("60", key, func(c *enforcement.Check) { c.Refundable = false })
	if plain.Idempotency != enforcement.KeyReused {
		t.Errorf("the same check, not refundable: %+v", plain)
	}
	w.is(w.left(), "4 40", "charged once")
	w.is(w.refund(again, ""), "requests.l1 1 of 1 tokens.l2 60 of 60 00.000", "refunded")
	w.is(w.refund(first, "")[:8], "conflict", "once")
	w.is(w.left(), "5 100", "given back")
	if d := w.refundable("60", key); d.Idempotency != enforcement.Replayed || d.ID != first.ID {
		t.Errorf("a repetition after the refund: %+v", d)
	}
	w.is(w.left(), "5 100", "charges nothing")
}

// The number of records of a tenant is bounded. A refundable check above the bound charges nothing.
func TestRefundableBound(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{IdempotencyKeys: 3})
	forced := func(c *enforcement.Check) { c.Mode = enforcement.Force }
	for range 3 {
		if d := w.refundable("1"); !d.Allowed {
			t.Errorf("%+v", d)
		}
	}
	if d := w.refundable("1"); d.Allowed || d.Idempotency != enforcement.TooManyKeys || d.RetryAfter != 600_000 {
		t.Errorf("%+v", d)
	}
	w.is(w.left(), "2 97", "nothing is charged")
	if d := w.refundable("1", forced); !d.Allowed || d.RefundableUntil == 0 {
		t.Errorf("in mode force: %+v", d)
	}
	if d := decide(w.engine, w.s, asked("", "/a", "user", "u", "tokens", "1")); !d.Allowed {
		t.Errorf("a plain check: %+v", d)
	}

	// A record counts once for each 10 minutes of its storage time.
	w = newReserving(t, enforcement.Config{IdempotencyKeys: 15})
	w.s = subject(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{limit("hour", 1, enforcement.FixedWindow, 50, time.Hour)}})
	allowed := 0
	for range 5 {
		if w.refundable("1").Allowed {
			allowed++
		}
	}
	if allowed != 2 {
		t.Errorf("%d checks of an hour, want 2 for 15 units", allowed)
	}
}

// Shadow policies are refunded too, and what changed meanwhile counts.
func TestRefundAfterAChange(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	rules := []enforcement.RuleSpec{
		{Policy: "a", Limits: []enforcement.RuleLimit{window(1, 5)}},
		{Policy: "s", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{window(2, 5)}},
		{Policy: "leased", Consistency: enforcement.Leased, Limits: []enforcement.RuleLimit{limit("b", 3, enforcement.TokenBucket, 50, time.Hour)}},
	}
	w.s = subject(t, rules...)
	first, second, third := w.refundable("1"), w.refundable("1"), w.refundable("1")
	w.is(w.refund(first, ""), "a.l1 1 of 1 leased.b 0 of 1 s.l2 1 of 1 00.000", "a leased bucket keeps its charge")
	w.s = subject(t, rules[1:]...)
	w.is(w.refund(second, ""), "conflict check ID cannot be refunded: policy a, limit l1 is no longer in the plan of the tenant as it was charged, and "+
		"policy leased, limit b is a leased bucket, which keeps what it was charged; nothing was given back", "only a shadow policy is left")
	w.s = &enforcement.Subject{Tenant: "acme", Number: 7, Home: "t07"}
	w.is(w.refund(second, "")[:8], "conflict", "without a plan")
	w.s = subject(t, rules...)
	w.s.Suspended = true
	w.is(w.refund(third, ""), "a.l1 1 of 1 leased.b 0 of 1 s.l2 1 of 1 00.000", "of a suspended tenant")
}

// A refund does not release the places of a concurrency limit, because its lease holds them.
func TestRefundLeavesLeases(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	w.s = subject(t,
		enforcement.RuleSpec{Policy: "a", Limits: []enforcement.RuleLimit{window(1, 5)}},
		enforcement.RuleSpec{Policy: "c", Limits: []enforcement.RuleLimit{limit("c", 2, enforcement.Concurrency, 3, time.Hour)}},
	)
	d := w.refundable("1")
	if want := w.clock.Now() + 60*second; d.RefundableUntil != want || d.Lease == "" {
		t.Errorf("refundable until %d, want %d; lease %q", d.RefundableUntil, want, d.Lease)
	}
	w.clock.Advance(30 * time.Second)
	w.is(w.refund(d, ""), "a.l1 1 of 1 c.c 0 of 1 30.000", "refunded")
	peeked := decide(w.engine, w.s, peek(asked("", "/a")))
	w.is(fmt.Sprint(peeked.Limits[0].Remaining, " ", peeked.Limits[1].Remaining), "4 1", "left after another check")
}

// Without the limiter nothing is recorded, and a refund can be repeated.
func TestRefundWithoutTheLimiter(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	d := w.refundable("60")
	w.shared.down = true
	degraded := w.refundable("10")
	if !degraded.Allowed || !degraded.Degraded || degraded.RefundableUntil != 0 {
		t.Errorf("%+v", degraded)
	}
	w.is(w.refund(d, "k")[:11], "unavailable", "refund")
	w.shared.down = false
	w.is(w.refund(d, "k"), "requests.l1 1 of 1 tokens.l2 60 of 60 00.000", "repeated")
	w.is(w.refund(degraded, "")[:9], "not found", "the degraded one")
	w.is(w.left(), "5 100", "left")
}

// Peeks, denials and checks without limits cannot be refunded.
func TestNothingToRefund(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	x := new(enforcement.Explanation)
	c := asked("", "/a", "user", "u", "tokens", "1")
	c.Refundable = true
	w.engine.Explain(t.Context(), w.s, &c, x)
	peeked := decide(w.engine, w.s, peek(c))
	free := w.refundable("0", func(c *enforcement.Check) { c.Cost, c.DefaultCost = 0, false })
	w.s = &enforcement.Subject{Tenant: "acme", Number: 7, Home: "t07"}
	for what, d := range map[string]*enforcement.Decision{
		"explain": &x.Decision, "peek": peeked, "cost 0": free, "no plan": w.refundable("1"),
	} {
		if d.RefundableUntil != 0 || !d.Allowed {
			t.Errorf("%s: %+v", what, d)
		}
		if got := w.refund(d, ""); what != "cost 0" && got[:9] != "not found" || what == "cost 0" && got[:8] != "conflict" {
			t.Errorf("%s: %s", what, got)
		}
	}
}
