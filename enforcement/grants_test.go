package enforcement_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

const grantID = "0190f5c4-7e1a-7b3c-8d2e-000000000001"

// topUp gives the tenant a grant of 10 units of limit l1 of policy p, from now until a time after now.
func (w *reserving) topUp(until time.Duration) {
	w.Helper()
	made, faults := enforcement.CompileExceptions(enforcement.ExceptionSpec{Grants: []enforcement.Grant{{
		ID: grantID, Policy: "p", Limit: "l1", Units: 10, Revision: 1, From: w.clock.Now(), Until: w.clock.Now() + until.Microseconds(),
	}}}, w.s.Plan, 1)
	if len(faults) > 0 {
		w.Fatal(faults)
	}
	w.s.Exceptions = made
}

// topped returns a tenant with a window of 5 a minute, of which all but left units are used, and a grant.
func topped(t *testing.T, left int64, until time.Duration) *reserving {
	w := newReserving(t, enforcement.Config{})
	w.s = subject(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{window(1, 5)}})
	if left < 5 {
		decide(w.engine, w.s, enforcement.Check{Path: "/a", Cost: 5 - left})
	}
	w.topUp(until)
	return w
}

func three(c *enforcement.Check) { c.Cost, c.DefaultCost = 3, false }

// A check can be refunded until the last of what it charged ends: the window, or the grant.
func TestRefundableUntilTheGrantEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		left         int64 // of the window, before the check
		grant, until time.Duration
		what         string
	}{
		{0, 30 * time.Second, 30 * time.Second, "only the grant, which ends before the window"},
		{0, 2 * time.Minute, 2 * time.Minute, "only the grant, which ends after the window"},
		{1, 30 * time.Second, time.Minute, "both"},
		{5, 30 * time.Second, time.Minute, "only the window"},
		{5, 2 * time.Minute, time.Minute, "only the window, which ends before the grant"},
	} {
		w := topped(t, c.left, c.grant)
		d := w.refundable("0", three)
		if want := w.clock.Now() + c.until.Microseconds(); !d.Allowed || d.RefundableUntil != want {
			t.Errorf("%s: %v, refundable for %v, want %v", c.what, d.Allowed, time.Duration(d.RefundableUntil-w.clock.Now())*time.Microsecond, c.until)
		}
		w.clock.Advance(c.until - time.Microsecond)
		if got := w.refund(d, ""); got[:4] != "p.l1" {
			t.Errorf("%s: a refund before the end: %s", c.what, got)
		}
	}
}

// If only a grant was charged, the error of a late refund says what happened to the grant.
func TestRefundToAGrantThatIsGone(t *testing.T) {
	t.Parallel()
	const charged = "conflict check ID cannot be refunded: grant " + grantID + ", which it charged 3 units, "
	w := topped(t, 0, 30*time.Second)
	d := w.refundable("0", three)
	w.clock.Advance(30 * time.Second)
	w.is(w.refund(d, ""), charged+"ended at 2026-01-01T00:00:30.000Z; nothing was given back", "it ended")
	w.s.Exceptions = nil // the sweeper deletes what has ended
	w.is(w.refund(d, ""), charged+"ended at 2026-01-01T00:00:30.000Z; nothing was given back", "it ended, and was deleted")

	w = topped(t, 0, 2*time.Minute)
	d, second := w.refundable("0", three), w.refundable("0", three)
	grants := w.s.Exceptions
	w.s.Exceptions = nil
	w.is(w.refund(d, ""), charged+"was voided; nothing was given back", "it was voided")
	w.s.Exceptions = grants
	w.is(w.refund(d, ""), "p.l1 3 of 3 00.000", "the refusal changed nothing")

	w.s = subject(t, enforcement.RuleSpec{Policy: "p", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{window(1, 5)}})
	w.is(w.refund(second, ""), charged+"has no effect with the plan that is in force now; nothing was given back", "the plan changed")
}

// If a window and a grant were charged and both have ended, the error names both.
func TestRefundAfterTheWindowAndTheGrant(t *testing.T) {
	t.Parallel()
	w := topped(t, 1, 30*time.Second)
	d, second := w.refundable("0", three), w.refundable("0", three)
	w.clock.Advance(40 * time.Second)
	w.is(w.refund(second, "")[:8], "conflict", "only the grant was charged")
	w.is(w.refund(d, ""), "p.l1 1 of 3 40.000", "the window is open")

	w = topped(t, 1, 30*time.Second)
	d = w.refundable("0", three)
	w.clock.Advance(time.Minute)
	w.is(w.refund(d, ""), "conflict check ID cannot be refunded: the windows that it charged ended at 2026-01-01T00:01:00.000Z, and grant "+grantID+
		", which it charged 2 units, ended at 2026-01-01T00:00:30.000Z; nothing was given back", "both ended")
}
