package enforcement_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
)

// taken decides a check in mode TakeUpTo of user u, and returns the result as a line.
func (w *reserving) taken(tokens string, change ...func(*enforcement.Check)) string {
	c := asked("", "/a", "user", "u", "tokens", tokens)
	c.Mode = enforcement.TakeUpTo
	for _, f := range change {
		f(&c)
	}
	d := decide(w.engine, w.s, c)
	text := fmt.Sprintf("%v %s taken %d retry %d", d.Allowed, d.Reason, d.Taken, d.RetryAfter)
	for _, l := range d.Limits {
		text += fmt.Sprintf(" | %s %v cost %d left %d", l.Rule.Policy, l.Allowed, l.Cost, l.Remaining)
	}
	if d.Idempotency == enforcement.Replayed {
		text = "replayed " + text
	}
	return text
}

func TestTakeUpTo(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	w.is(w.taken("60"), "true ok taken 60 retry 0 | requests true cost 1 left 4 | tokens true cost 60 left 40", "all of it")
	w.is(w.taken("80"), "true ok taken 40 retry 0 | requests true cost 1 left 3 | tokens true cost 40 left 0", "what is left")
	w.is(w.taken("80"), "false over_limit taken 0 retry 60000 | requests true cost 1 left 3 | tokens false cost 80 left 0", "nothing is left")
	w.is(w.left(), "3 0", "a denial charges nothing")
	w.is(w.taken("0"), "true ok taken 1 retry 0 | requests true cost 1 left 2 | tokens true cost 0 left 0", "no tokens")

	// The limit of requests decides: 2 of 8 are left, so a quarter of the tokens is charged.
	w = newReserving(t, enforcement.Config{})
	many := func(c *enforcement.Check) { c.Cost, c.DefaultCost = 8, false }
	for range 3 {
		w.taken("1")
	}
	w.is(w.taken("50", many), "true ok taken 12 retry 0 | requests true cost 2 left 0 | tokens true cost 12 left 85", "a quarter")
	w.is(w.taken("50", many), "false over_limit taken 0 retry 60000 | requests false cost 8 left 0 | tokens true cost 50 left 85", "no request is left")
}

// If the cost is above the quota, the whole quota is charged. Only with a quota of 0 can
// nothing ever be charged.
func TestTakeUpToAboveTheQuota(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	w.is(w.taken("2147483647"), "true ok taken 100 retry 0 | requests true cost 1 left 4 | tokens true cost 100 left 0", "the quota")
	w.s = subject(t, enforcement.RuleSpec{Policy: "none", Limits: []enforcement.RuleLimit{window(1, 0)}})
	w.is(w.taken("1"), "false cost_exceeds_quota taken 0 retry -1 | none false cost 1 left 0", "never")
}

func TestTakeUpToWithoutLimits(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	seven := func(c *enforcement.Check) { c.Cost, c.DefaultCost = 7, false }
	w.s = subject(t, enforcement.RuleSpec{Policy: "s", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{window(1, 5)}})
	w.is(w.taken("1", seven), "true no_policy taken 7 retry 0 | s true cost 7 left 0", "only a shadow policy, which takes what it has")
	w.is(w.taken("1", seven), "true no_policy taken 7 retry 0 | s false cost 7 left 0", "and then denies")
	w.s = &enforcement.Subject{Tenant: "acme", Number: 7, Home: "t07"}
	w.is(w.taken("1", seven), "true no_policy taken 7 retry 0", "no plan")
}

// Soft and shadow policies count what the enforced limits allowed, and show it.
func TestTakeUpToOfSoftPolicies(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	ten := func(c *enforcement.Check) { c.Cost, c.DefaultCost, c.IdempotencyKey = 10, false, "" }
	specs := func(enforced int64) *enforcement.Subject {
		return subject(t,
			enforcement.RuleSpec{Policy: "cheap", Mode: enforcement.PolicyDegrade, Limits: []enforcement.RuleLimit{window(1, 20)}},
			enforcement.RuleSpec{Policy: "later", Mode: enforcement.PolicyDelay, Limits: []enforcement.RuleLimit{window(2, 7)}},
			enforcement.RuleSpec{Policy: "hard", Limits: []enforcement.RuleLimit{window(3, enforced)}},
			enforcement.RuleSpec{Policy: "trial", Mode: enforcement.PolicyShadow, CostFrom: "tokens", Limits: []enforcement.RuleLimit{window(4, 1000)}},
		)
	}
	w.s = specs(14)
	w.is(w.taken("30", ten), "true ok taken 10 retry 0 | cheap true cost 10 left 10 | later true cost 10 left 0 | hard true cost 10 left 4 | trial true cost 30 left 970", "all of it")
	key := func(c *enforcement.Check) { ten(c); c.IdempotencyKey = "k" }
	second := "true ok taken 4 retry 0 | cheap true cost 4 left 6 | later false cost 4 left 0 | hard true cost 4 left 0 | trial true cost 12 left 958"
	w.is(w.taken("30", key), second, "what is left")
	w.is(w.taken("30", key), "replayed "+second, "a repetition")
	w.is(w.taken("30", ten), "false over_limit taken 0 retry 60000 | cheap true cost 10 left 6 | later false cost 10 left 0 | hard false cost 10 left 0 | trial true cost 30 left 958", "a denial")
}

func TestTakeUpToIsIdempotent(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	key := func(c *enforcement.Check) { c.IdempotencyKey = "k" }
	first := w.taken("150", key)
	w.is(first, "true ok taken 100 retry 0 | requests true cost 1 left 4 | tokens true cost 100 left 0", "the first")
	w.is(w.taken("150", key), "replayed "+first, "the repetition")
	w.s = subject(t, enforcement.RuleSpec{Policy: "other", Limits: []enforcement.RuleLimit{window(9, 5)}})
	w.is(w.taken("150", key), "replayed true ok taken 100 retry 0", "with another plan")
}

// Without the shared limiter, this node's share is charged. It is charged to the shared limiter
// later.
func TestTakeUpToWithoutTheLimiter(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	w.shared.down = true
	w.is(w.taken("150"), "true ok taken 150 retry 0", "open policies allow all")

	clock := w.clock
	w.engine = enforcement.NewEngine(w.shared, enforcement.Config{
		Now: func() time.Time { return time.UnixMicro(clock.Now()) }, Local: inprocess.New(inprocess.Config{Now: clock.Now}), Nodes: 2,
	})
	w.s = subject(t,
		enforcement.RuleSpec{Policy: "local", OnFailure: enforcement.OnFailureLocal, Limits: []enforcement.RuleLimit{window(1, 10)}},
		enforcement.RuleSpec{Policy: "open", CostFrom: "tokens", OnFailure: enforcement.OnFailureOpen, Limits: []enforcement.RuleLimit{window(2, 100)}},
	)
	eight := func(c *enforcement.Check) { c.Cost, c.DefaultCost = 8, false }
	w.is(w.taken("16", eight), "true ok taken 10 retry 0 | local true cost 5 left 0", "5 of 8 are this node's share")
	w.is(w.taken("16", eight), "false over_limit taken 0 retry 60000 | local false cost 8 left 0", "nothing is left of it")
	w.s = subject(t,
		enforcement.RuleSpec{Policy: "hard", OnFailure: enforcement.OnFailureLocal, Limits: []enforcement.RuleLimit{window(5, 6)}},
		enforcement.RuleSpec{Policy: "soft", Mode: enforcement.PolicyDegrade, OnFailure: enforcement.OnFailureLocal, Limits: []enforcement.RuleLimit{window(6, 100)}},
	)
	w.is(w.taken("1", eight), "true ok taken 3 retry 0 | hard true cost 3 left 0 | soft true cost 3 left 47", "a soft policy counts the share of this node too")
}

func TestShares(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	number := func(most int64) int64 {
		if r.IntN(2) == 0 {
			most = min(most, 20)
		}
		return r.Int64N(most) + 1
	}
	for range 100_000 {
		most := number(enforcement.MaxCost)
		cost, left := number(most), number(1<<52)-2
		n := enforcement.UnitsFor(left, cost, most)
		share := enforcement.ShareOf(cost, n, most)
		want := new(big.Int).Mul(big.NewInt(cost), big.NewInt(n))
		want.Add(want, big.NewInt(most-1)).Div(want, big.NewInt(most))
		if n < 0 || n > most || share != want.Int64() || share > max(left, 0) {
			t.Fatalf("cost %d of %d, left %d: %d units, share %d, want %s", cost, most, left, n, share, want)
		}
		if n < most && enforcement.ShareOf(cost, n+1, most) <= left {
			t.Fatalf("cost %d of %d, left %d: %d units, and one more fits", cost, most, left, n)
		}
	}
}
