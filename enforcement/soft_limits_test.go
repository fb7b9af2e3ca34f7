package enforcement_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// softly returns a decision as text: whether it is allowed, its delay, whether the cheap answer is
// served, and for each limit whether it allows the check, its delay, and the units left.
func softly(d *enforcement.Decision) string {
	text := fmt.Sprintf("%v %s %d", d.Allowed, d.Reason, d.Delay)
	if d.ServeCheap {
		text += " cheap"
	}
	if d.Degraded {
		text += " degraded"
	}
	for i := range d.Limits {
		l := &d.Limits[i]
		text += fmt.Sprintf(" | %s %v %d left %d", l.Limit.HeaderName, l.Allowed, l.Delay, l.Remaining)
	}
	return text
}

func wantSoftly(t *testing.T, d *enforcement.Decision, want string) {
	t.Helper()
	if got := softly(d); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// softSpecs are policies of three classes, in an order that differs from that of their charges.
func softSpecs() []enforcement.RuleSpec {
	return []enforcement.RuleSpec{
		{Policy: "shadow", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{window(1, 1)}},
		{Policy: "delay", Mode: enforcement.PolicyDelay, DelayMS: 2500, Limits: []enforcement.RuleLimit{window(2, 3)}},
		{Policy: "enforce", Limits: []enforcement.RuleLimit{window(3, 5)}},
		{Policy: "degrade", Mode: enforcement.PolicyDegrade, Limits: []enforcement.RuleLimit{window(4, 2), window(5, 9)}},
	}
}

func TestSoftLimits(t *testing.T) {
	t.Parallel()
	l := newCounters()
	e := enforcement.NewEngine(l, enforcement.Config{})
	s := subject(t, softSpecs()...)
	check := func(mode enforcement.Mode, cost int64) *enforcement.Decision {
		return decide(e, s, enforcement.Check{Cost: cost, Mode: mode})
	}
	enforce, peek := enforcement.Enforce, enforcement.Peek
	wantSoftly(t, check(enforce, 1), "true ok 0 | shadow true 0 left 0 | delay true 0 left 2 | enforce true 0 left 4 | degrade.l4 true 0 left 1 | degrade.l5 true 0 left 8")
	wantSoftly(t, check(enforce, 1), "true ok 0 | shadow false 0 left 0 | delay true 0 left 1 | enforce true 0 left 3 | degrade.l4 true 0 left 0 | degrade.l5 true 0 left 7")
	// The request is over a limit of degrade. No limit of degrade is charged. All other policies are charged.
	wantSoftly(t, check(enforce, 1), "true ok 0 cheap | shadow false 0 left 0 | delay true 0 left 0 | enforce true 0 left 2 | degrade.l4 false 0 left 0 | degrade.l5 true 0 left 7")
	over := "true ok 2500 cheap | shadow false 0 left 0 | delay false 2500 left 0 | enforce true 0 left 1 | degrade.l4 false 0 left 0 | degrade.l5 true 0 left 7"
	wantSoftly(t, check(peek, 1), over)
	wantSoftly(t, check(enforce, 1), over)
	wantSoftly(t, check(enforce, 0), "true ok 0 | shadow true 0 left 0 | delay true 0 left 0 | enforce true 0 left 1 | degrade.l4 true 0 left 0 | degrade.l5 true 0 left 7")
	// A denial has neither a delay nor a mark, and charges no soft policy.
	wantSoftly(t, check(enforce, 2), "false over_limit 0 | shadow false 0 left 0 | delay false 0 left 0 | enforce false 0 left 1 | degrade.l4 false 0 left 0 | degrade.l5 true 0 left 7")
	// Forced work is done already. It is charged over the limits.
	wantSoftly(t, check(enforcement.Force, 2), "true ok 0 | shadow false 0 left 0 | delay false 0 left 0 | enforce false 0 left 0 | degrade.l4 false 0 left 0 | degrade.l5 true 0 left 5")
	for cell, want := range map[uint32]int64{2: 5, 4: 4, 5: 4} {
		for k, state := range l.states {
			if k.Cell == cell && state.A != want {
				t.Errorf("cell %d holds %d, want %d", cell, state.A, want)
			}
		}
	}
}

// A cost that never fits is served cheap too, and a quota of 0 lets nothing pass at once.
func TestSoftLimitThatNeverFits(t *testing.T) {
	t.Parallel()
	s := subject(t,
		enforcement.RuleSpec{Policy: "a", Mode: enforcement.PolicyDegrade, Limits: []enforcement.RuleLimit{window(1, 2)}},
		enforcement.RuleSpec{Policy: "b", Mode: enforcement.PolicyDelay, Limits: []enforcement.RuleLimit{window(2, 0)}},
	)
	e := enforcement.NewEngine(newCounters(), enforcement.Config{})
	wantSoftly(t, decide(e, s, enforcement.Check{Cost: 3}), "true ok 1000 cheap | a false 0 left 2 | b false 1000 left 0")
}

func TestSoftLimitsOfABatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		atomic bool
		costs  []int64
		want   []string
	}{
		{true, []int64{1, 1, 1, 1}, []string{"true false 0", "true false 0", "true true 0", "true true 2500"}},
		{false, []int64{1, 1, 1, 1}, []string{"true false 0", "true false 0", "true true 0", "true true 2500"}},
		{true, []int64{3, 1, 1, 1}, []string{"false false 0", "false false 0", "false false 0", "false false 0"}},
	} {
		e, s := enforcement.NewEngine(newCounters(), enforcement.Config{}), subject(t, softSpecs()...)
		var items []enforcement.BatchItem
		for _, cost := range c.costs {
			items = append(items, enforcement.BatchItem{Subject: s, Check: &enforcement.Check{Cost: cost}, Decision: new(enforcement.Decision)})
		}
		e.DecideBatch(context.Background(), items, c.atomic)
		for i := range items {
			d := items[i].Decision
			if got := fmt.Sprintf("%v %v %d", d.Allowed, d.ServeCheap, d.Delay); got != c.want[i] {
				t.Errorf("atomic %v, costs %v, item %d: %s, want %s", c.atomic, c.costs, i, got, c.want[i])
			}
		}
	}
}

// Modes that are in force replace policies, count as a policy, deny for a missing attribute, and
// their keys can be blocked. Shadow and off do none of this.
func TestModesInForce(t *testing.T) {
	t.Parallel()
	for mode, inForce := range map[enforcement.PolicyMode]bool{
		enforcement.PolicyEnforce: true, enforcement.PolicyDegrade: true, enforcement.PolicyDelay: true, enforcement.PolicyShadow: false, enforcement.PolicyOff: false,
	} {
		if mode.InForce() != inForce || mode.Denies() != (mode == enforcement.PolicyEnforce) || mode.Counts() != (mode != enforcement.PolicyOff) ||
			mode.Soft() != (mode == enforcement.PolicyDegrade || mode == enforcement.PolicyDelay) {
			t.Errorf("%s: in force %v, denies %v, counts %v, soft %v", mode, mode.InForce(), mode.Denies(), mode.Counts(), mode.Soft())
		}
		e := enforcement.NewEngine(newCounters(), enforcement.Config{})
		s := subject(t,
			enforcement.RuleSpec{Policy: "a", Mode: mode, CountBy: []string{"user"}, Missing: enforcement.MissingDeny, Replaces: []string{"b"}, Limits: []enforcement.RuleLimit{window(1, 9)}},
			enforcement.RuleSpec{Policy: "b", Path: "/b", Limits: []enforcement.RuleLimit{window(2, 0)}},
		)
		check := enforcement.Check{Path: "/b", Cost: 1, Attributes: attributes("user", "u")}
		if d := decide(e, s, check); d.Allowed != inForce {
			t.Errorf("%s replaces a policy: %s", mode, summary(d))
		}
		check.Path, s.DenyUnmatched = "/a", true
		if d := decide(e, s, check); d.Allowed != inForce {
			t.Errorf("%s is a policy: %s", mode, summary(d))
		}
		s.DenyUnmatched = false
		if d := decide(e, s, enforcement.Check{Path: "/a", Cost: 1}); (d.Reason == enforcement.ReasonMissingAttribute) != inForce {
			t.Errorf("%s, a missing attribute: %s", mode, summary(d))
		}
		exceptions, faults := enforcement.CompileExceptions(enforcement.ExceptionSpec{Blocks: []enforcement.Block{
			{ID: "x", Policy: "a", Key: attributes("user", "u"), Until: time.Now().Add(time.Hour).UnixMicro()},
		}}, s.Plan, 1)
		if s.Exceptions = exceptions; len(faults) == 0 != inForce {
			t.Errorf("%s, a block: %v", mode, faults)
		}
		if d := decide(e, s, check); (d.Reason == enforcement.ReasonBlocked) != inForce {
			t.Errorf("%s, a blocked key: %s", mode, summary(d))
		}
	}
}

// While the limiter is unavailable, failure modes decide soft policies, and none of them denies.
func TestFailureModesOfSoftPolicies(t *testing.T) {
	t.Parallel()
	const o, l, c = enforcement.OnFailureOpen, enforcement.OnFailureLocal, enforcement.OnFailureClosed
	spec := func(degrade, delay enforcement.OnFailure) *enforcement.Subject {
		return subject(t,
			enforcement.RuleSpec{Policy: "delay", Mode: enforcement.PolicyDelay, DelayMS: 700, OnFailure: delay, Limits: []enforcement.RuleLimit{window(1, 4)}},
			enforcement.RuleSpec{Policy: "enforce", Limits: []enforcement.RuleLimit{window(2, 6)}},
			enforcement.RuleSpec{Policy: "degrade", Mode: enforcement.PolicyDegrade, OnFailure: degrade, Limits: []enforcement.RuleLimit{window(3, 2)}},
		)
	}
	for _, test := range []struct {
		degrade, delay enforcement.OnFailure
		want           [3]string // of three checks, with half of the quotas
	}{
		{o, o, [3]string{"true ok 0 degraded | enforce true 0 left 2", "true ok 0 degraded | enforce true 0 left 1", "true ok 0 degraded | enforce true 0 left 0"}},
		{l, o, [3]string{
			"true ok 0 degraded | enforce true 0 left 2 | degrade true 0 left 0", "true ok 0 cheap degraded | enforce true 0 left 1 | degrade false 0 left 0",
			"true ok 0 cheap degraded | enforce true 0 left 0 | degrade false 0 left 0",
		}},
		{c, l, [3]string{
			"true ok 0 cheap degraded | delay true 0 left 1 | enforce true 0 left 2", "true ok 0 cheap degraded | delay true 0 left 0 | enforce true 0 left 1",
			"true ok 700 cheap degraded | delay false 700 left 0 | enforce true 0 left 0",
		}},
		{o, c, [3]string{"true ok 700 degraded | enforce true 0 left 2", "true ok 700 degraded | enforce true 0 left 1", "true ok 700 degraded | enforce true 0 left 0"}},
	} {
		s, local := spec(test.degrade, test.delay), newCounters()
		e := enforcement.NewEngine(away{enforcement.Failed}, enforcement.Config{Local: local, Nodes: 2})
		for _, want := range test.want {
			wantSoftly(t, decide(e, s, enforcement.Check{Cost: 1}), want)
		}
		if d := decide(e, s, enforcement.Check{Cost: 1}); d.Allowed || d.ServeCheap || d.Delay != 0 {
			t.Errorf("over the enforced limit: %s", softly(d))
		}
		if d := decide(e, s, enforcement.Check{Cost: 1, Mode: enforcement.Force}); !d.Allowed || d.ServeCheap || d.Delay != 0 {
			t.Errorf("forced: %s", softly(d))
		}
	}
	// Without a local limiter, and with one that does not decide, soft policies decide as with closed.
	s := subject(t,
		enforcement.RuleSpec{Policy: "a", Mode: enforcement.PolicyDegrade, Limits: []enforcement.RuleLimit{window(1, 9)}},
		enforcement.RuleSpec{Policy: "b", Mode: enforcement.PolicyDelay, Limits: []enforcement.RuleLimit{window(2, 9)}},
	)
	for _, local := range []enforcement.Limiter{nil, away{enforcement.Failed}} {
		e := enforcement.NewEngine(away{enforcement.Failed}, enforcement.Config{Local: local})
		wantSoftly(t, decide(e, s, enforcement.Check{Cost: 1}), "true ok 1000 cheap degraded")
	}
}

// What soft policies admitted while the limiter was away is charged afterwards, without what was over
// their limits.
func TestOutageJournalOfSoftPolicies(t *testing.T) {
	t.Parallel()
	w := newHolders(t,
		enforcement.RuleSpec{Policy: "a", Mode: enforcement.PolicyDegrade, Limits: []enforcement.RuleLimit{window(1, 10)}},
		enforcement.RuleSpec{Policy: "b", Mode: enforcement.PolicyDegrade, OnFailure: enforcement.OnFailureOpen, Limits: []enforcement.RuleLimit{window(2, 10)}},
		enforcement.RuleSpec{Policy: "c", Mode: enforcement.PolicyDegrade, OnFailure: enforcement.OnFailureClosed, Limits: []enforcement.RuleLimit{window(3, 10)}},
	)
	check := enforcement.Check{Path: "/a", Cost: 1}
	decide(w.engine, w.s, check)
	w.shared.down = true
	cheap := 0
	for range 7 {
		check := check
		if d := decide(w.engine, w.s, check); !d.Allowed || !d.ServeCheap {
			t.Errorf("closed: %s", softly(d))
		} else if len(d.Limits) != 1 {
			t.Errorf("local: %s", softly(d))
		} else if !d.Limits[0].Allowed {
			cheap++
		}
	}
	if cheap != 2 { // half of the 9 units that were left, rounded up, are 5
		t.Errorf("%d of 7 are over the local share, want 2", cheap)
	}
	w.shared.down = false
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.engine.RunOutageJournal(ctx); err != nil {
		t.Fatal(err)
	}
	check.Mode = enforcement.Peek
	wantSoftly(t, decide(w.engine, w.s, check), "true ok 0 | a true 0 left 3 | b true 0 left 1 | c true 0 left 8")
}

// A refund returns what soft policies were charged, and nothing for those whose limits were exceeded.
func TestRefundOfSoftPolicies(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	w.s = subject(t,
		enforcement.RuleSpec{Policy: "soft", Mode: enforcement.PolicyDegrade, Limits: []enforcement.RuleLimit{window(1, 1)}},
		enforcement.RuleSpec{Policy: "hard", Limits: []enforcement.RuleLimit{window(2, 5)}},
		enforcement.RuleSpec{Policy: "shadow", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{window(3, 5)}},
	)
	first, second := w.refundable("0"), w.refundable("0")
	w.is(fmt.Sprint(first.ServeCheap, second.ServeCheap), "false true", "marks")
	for d, want := range map[*enforcement.Decision]string{first: "hard.l2 1 of 1 soft.l1 1 of 1 shadow.l3 1 of 1 ", second: "hard.l2 1 of 1 shadow.l3 1 of 1 "} {
		if got := w.refund(d, ""); !strings.HasPrefix(got, want) {
			t.Errorf("refunded %s, want %s", got, want)
		}
	}
	only := subject(t, enforcement.RuleSpec{Policy: "soft", Mode: enforcement.PolicyDegrade, Limits: []enforcement.RuleLimit{window(1, 1)}})
	w.s = only
	if d := w.refundable("0"); d.ServeCheap || d.RefundableUntil == 0 {
		t.Errorf("within the limit: %s, refundable until %d", softly(d), d.RefundableUntil)
	}
	if d := w.refundable("0"); !d.ServeCheap || d.RefundableUntil != 0 {
		t.Errorf("over the limit: %s, refundable until %d", softly(d), d.RefundableUntil)
	}
}

// A repetition has the mark and the delay of the first decision.
func TestSoftLimitsOfARepetition(t *testing.T) {
	t.Parallel()
	w := newIdempotent(t, enforcement.Config{})
	w.s = subject(t, softSpecs()...)
	check := keyed("k", enforcement.Check{Path: "/a", Cost: 4})
	want := "true ok 2500 cheap | shadow false 0 left 1 | delay false 2500 left 3 | enforce true 0 left 1 | degrade.l4 false 0 left 2 | degrade.l5 true 0 left 9"
	wantSoftly(t, decide(w.engine, w.s, check), want)
	if d := decide(w.engine, w.s, check); d.Idempotency != enforcement.Replayed {
		t.Errorf("repeated: %v", d.Idempotency)
	} else {
		wantSoftly(t, d, want)
	}
}

// Soft policies of a plan with a durable limit make the request durable. Shadow policies do not.
func TestDurableSoftLimit(t *testing.T) {
	t.Parallel()
	for mode, want := range map[enforcement.PolicyMode]bool{
		enforcement.PolicyEnforce: true, enforcement.PolicyDegrade: true, enforcement.PolicyDelay: true, enforcement.PolicyShadow: false,
	} {
		l := newCounters()
		s := subject(t, enforcement.RuleSpec{Policy: "a", Mode: mode, Limits: []enforcement.RuleLimit{limit("l", 1, enforcement.FixedWindow, 9, 24*time.Hour)}})
		decide(enforcement.NewEngine(l, enforcement.Config{}), s, enforcement.Check{Cost: 1})
		if got := l.asked[0].Durable(); got != want {
			t.Errorf("%s: durable is %v", mode, got)
		}
	}
}
