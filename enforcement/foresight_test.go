package enforcement_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
)

// drawSteering sets some things for a tenant of drawSubject, at an instant.
func drawSteering(t *rapid.T, s *enforcement.Subject, now int64) enforcement.SteeringSpec {
	spec := enforcement.SteeringSpec{Changed: map[string]int64{}}
	until := func() int64 { return now + rapid.Int64Range(-100_000, 6_000_000).Draw(t, "until") }
	policy := func() *enforcement.Rule { return rapid.SampledFrom(s.Plan.Rules).Draw(t, "policy") }
	for i := range rapid.IntRange(0, 5).Draw(t, "overrides") {
		r := policy()
		o := enforcement.Override{ID: fmt.Sprint("o", i), Policy: r.Policy, Revision: int64(10 + i), From: now, Until: until()}
		switch place := rapid.IntRange(0, 4).Draw(t, "place"); {
		case len(r.CountBy) == 0 || place == 0:
		case place == 1:
			o.Attribute, o.Value = "user", "u"
		case place == 2:
			o.Attribute, o.Prefix = "user", "u"
		case len(r.CountBy) == 2 && place == 3:
			o.Attribute, o.Prefix = "ip", rapid.SampledFrom([]string{"192.0.2.0/24", "2001:db8::/32"}).Draw(t, "network")
		case len(r.CountBy) == 2:
			o.Attribute, o.Value = "ip", "192.0.2.1"
		}
		if len(r.Limits) == 0 || rapid.Bool().Draw(t, "factored") {
			o.Factor = rapid.Int64Range(1, 3000).Draw(t, "factor")
		} else {
			o.Limits = []enforcement.OverrideLimit{{
				Name: "l0", Quota: rapid.Int64Range(-1, 9).Draw(t, "quota"), Burst: enforcement.Keep,
				Window: time.Duration(rapid.IntRange(0, 3000).Draw(t, "window")) * time.Millisecond,
			}}
		}
		spec.Overrides = append(spec.Overrides, o)
		spec.Changed[r.Policy] = o.Revision
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "blocks") {
		b := enforcement.Block{ID: fmt.Sprint("b", i), Policy: policy().Policy, Until: until()}
		if rule, _ := s.Plan.Rule(b.Policy); len(rule.CountBy) > 0 {
			b.Key = attributes("user", "u")
		}
		spec.Blocks = append(spec.Blocks, b)
	}
	entries := func(name string) (list []enforcement.ListEntry) {
		switch rapid.IntRange(0, 9).Draw(t, name) {
		case 0:
			list = append(list, enforcement.ListEntry{ID: name, Attribute: "user", Value: "v", Until: until()})
		case 1:
			list = append(list, enforcement.ListEntry{ID: name, Attribute: "ip", Value: "2001:db8::/32"})
		}
		return list
	}
	spec.Deny, spec.Allow = entries("deny"), entries("allow")
	return spec
}

// compiled is a tenant with what a spec leaves; faults are blocks of policies
// that do not refuse.
func compiled(s *enforcement.Subject, spec enforcement.SteeringSpec) *enforcement.Subject {
	steered := *s
	steered.Steering, _ = enforcement.CompileSteering(spec, s.Plan, s.PlanRevision)
	return &steered
}

// swept is a spec as it is after what has ended was removed.
func swept(spec enforcement.SteeringSpec, now int64) enforcement.SteeringSpec {
	left := enforcement.SteeringSpec{Deny: spec.Deny, Allow: spec.Allow, Blocks: spec.Blocks, Changed: map[string]int64{}}
	for policy, revision := range spec.Changed {
		left.Changed[policy] = revision
	}
	for _, o := range spec.Overrides {
		if now < o.Until {
			left.Overrides = append(left.Overrides, o)
		} else {
			left.Changed[o.Policy] = 100
		}
	}
	return left
}

// An onlyCall is a limiter that may be asked once, and with logs, to settle one
// log by one set of numbers, unless those to come have a longer window.
type onlyCall struct {
	enforcement.Limiter
	t     *rapid.T
	calls int
	logs  bool
}

func (l *onlyCall) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	if l.calls++; l.calls > 1 {
		l.t.Fatalf("asked %d times", l.calls)
	}
	first, differs, longer := map[enforcement.Key]enforcement.Charge{}, map[enforcement.Key]bool{}, map[enforcement.Key]bool{}
	for _, r := range requests {
		for _, c := range r.Charges {
			if c.Meter.Algorithm != enforcement.SlidingWindowLog {
				continue
			}
			f, seen := first[c.Key]
			if !seen {
				first[c.Key], f = c, c
			}
			differs[c.Key] = differs[c.Key] || c.Meter != f.Meter || c.Rev != f.Rev
			longer[c.Key] = longer[c.Key] || c.Meter.Window > f.Meter.Window
		}
	}
	for key := range differs {
		if l.logs && differs[key] && !longer[key] {
			l.t.Fatalf("one log is asked for by several sets of numbers: %+v", requests)
		}
	}
	l.Limiter.Take(ctx, requests, outcomes)
}

// The retry time of a steered check is exact: then the same check passes if
// nobody else comes, and a millisecond before it does not, whether or not the
// sweep has removed what ended meanwhile, and whatever the limiter's clock shows.
//
// Two differences are allowed. What had ended before the refusal and was not
// swept yet costs a bucket the fraction of a unit, so that it may pass earlier
// until the sweep. And the sweep of an override that ends without touching this
// key raises the policy's revision for it too.
func TestRetryAfterOfASteeredDecision(t *testing.T) {
	t.Parallel()
	var waits, crossed, blocked, sweeps atomic.Int64
	worlds := func(t *rapid.T) {
		plain := drawSubject(t)
		now, skew := start, rapid.Int64Range(-2_000_000, 2_000_000).Draw(t, "skew")
		l := &onlyCall{Limiter: inprocess.New(inprocess.Config{Now: func() int64 { return now - skew }}), t: t, logs: true}
		e := enforcement.NewEngine(l, enforcement.Config{Timeout: time.Hour, Now: at(&now)})
		decide := func(e *enforcement.Engine, s *enforcement.Subject, c enforcement.Check) *enforcement.Decision {
			l.calls = 0
			return decide(e, s, c)
		}
		for range rapid.IntRange(0, 5).Draw(t, "before") {
			now += rapid.Int64Range(0, 400_000).Draw(t, "elapsed")
			decide(e, plain, *drawCheck(t, enforcement.Enforce, enforcement.Force))
		}
		spec := drawSteering(t, plain, now)
		s := compiled(plain, spec)
		for range 40 {
			now += rapid.Int64Range(0, 400_000).Draw(t, "elapsed")
			c := *drawCheck(t, enforcement.Enforce, enforcement.Enforce, enforcement.Force)
			c.Cost %= 4 // more would seldom be possible
			d := decide(e, s, c)
			if d.RetryAfter <= 0 {
				continue
			}
			x := new(enforcement.Explanation)
			l.calls = 0
			e.Explain(context.Background(), s, &c, x)
			explained := x.PassesAt
			if x.Decision.At != 0 { // by the limiter's clock
				explained += skew
			}
			c.Mode = enforcement.Peek
			refused := now
			for _, sweep := range []bool{false, true} {
				for _, passes := range []int64{refused + d.RetryAfter*1000, explained} {
					now = passes
					then, was := s, *d
					was.Limits = append([]enforcement.LimitState(nil), d.Limits...)
					if sweep {
						then = compiled(plain, swept(spec, now))
					}
					after := decide(e, then, c)
					if sweep && unrelated(spec, &was, after, refused, now) {
						continue
					}
					if !after.Allowed {
						t.Fatalf("swept %v: %s\nthen %s", sweep, summary(d), summary(after))
					}
					if now -= 1000; passes == explained {
						now = passes - 1
					}
					if sweep {
						sweeps.Add(1)
						then = compiled(plain, swept(spec, now))
					}
					if now < refused || ended(spec, refused) {
						continue
					}
					before := decide(e, then, c)
					if before.Allowed && !(sweep && unrelated(spec, &was, before, refused, now)) {
						t.Fatalf("swept %v: %s\nbefore its end, at %d: %s", sweep, summary(d), now-refused, summary(before))
					}
				}
			}
			now = refused
			waits.Add(1)
			if d.Reason == enforcement.ReasonBlocked {
				blocked.Add(1)
			}
			for _, o := range spec.Overrides {
				if refused < o.Until && o.Until <= refused+d.RetryAfter*1000 {
					crossed.Add(1)
					break
				}
			}
		}
	}
	for range 6 { // so that no case is missed by chance
		rapid.Check(t, worlds)
	}
	if waits.Load() == 0 || crossed.Load() == 0 || blocked.Load() == 0 || sweeps.Load() == 0 {
		t.Errorf("%d waits, %d over an override's end, %d of blocked keys, %d swept", waits.Load(), crossed.Load(), blocked.Load(), sweeps.Load())
	}
}

// ended tells whether an override had ended and was not swept.
func ended(spec enforcement.SteeringSpec, now int64) bool {
	for _, o := range spec.Overrides {
		if o.Until <= now {
			return true
		}
	}
	return false
}

// unrelated tells whether the sweep raised the revision of a policy whose
// numbers for the key are the same as when it was refused.
func unrelated(spec enforcement.SteeringSpec, was, is *enforcement.Decision, refused, now int64) bool {
	for _, o := range spec.Overrides {
		if now < o.Until {
			continue
		}
		for i := range is.Limits {
			before, after := was.Limits[i].Override, is.Limits[i].Override
			same := before == nil && after == nil || before != nil && after != nil && before.ID == after.ID
			if is.Limits[i].Rule.Policy == o.Policy && same {
				return true
			}
		}
	}
	return false
}

// An atomic batch waits until all of it passes at once, also over the end of an
// override that lets one of its checks pass now.
func TestRetryAfterOfASteeredBatch(t *testing.T) {
	t.Parallel()
	now := start
	plain, err := enforcement.CompilePlan("p", 1, []enforcement.RuleSpec{
		{Policy: "a", Path: "/a", Limits: []enforcement.RuleLimit{limit("l", 1, enforcement.FixedWindow, 1, 10*time.Second)}},
		{Policy: "b", Path: "/b", Limits: []enforcement.RuleLimit{limit("l", 2, enforcement.FixedWindow, 1, 40*time.Second)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := compiled(&enforcement.Subject{Plan: plain, Number: 1, Home: "t"}, enforcement.SteeringSpec{Overrides: []enforcement.Override{
		{ID: "o", Policy: "b", Factor: 2000, Revision: 2, From: start, Until: start + 5*second},
	}})
	l := newCounters()
	e := enforcement.NewEngine(l, enforcement.Config{Now: at(&now)})
	batch := func() (a, b *enforcement.Decision) {
		a, b = new(enforcement.Decision), new(enforcement.Decision)
		e.DecideBatch(context.Background(), []enforcement.BatchItem{
			{Subject: s, Check: &enforcement.Check{Path: "/a", Cost: 1}, Decision: a},
			{Subject: s, Check: &enforcement.Check{Path: "/b", Cost: 1}, Decision: b},
		}, true)
		return a, b
	}
	if a, b := batch(); !a.Allowed || !b.Allowed {
		t.Fatal(summary(a), summary(b))
	}
	a, b := batch()
	wantSummary(t, a, "false over_limit retry 10000 | a false left 0 reset 10000 retry 10000")
	wantSummary(t, b, "false batch_refused retry 40000 | b true left 1 reset 40000 retry 0")
}

// A batch is the same as its checks one after the other, also in what refused
// ones are told to wait over the end of an override.
func TestABatchIsASequence(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plain, now := drawSubject(t), start
		clock := inprocess.Config{Now: func() int64 { return now }}
		l := &onlyCall{Limiter: inprocess.New(clock), t: t}
		patient := enforcement.Config{Timeout: time.Hour, Now: at(&now)}
		together, alone := enforcement.NewEngine(l, patient), enforcement.NewEngine(inprocess.New(clock), patient)
		s := compiled(plain, drawSteering(t, plain, now))
		for range 10 {
			now += rapid.Int64Range(0, 900_000).Draw(t, "elapsed")
			var items []enforcement.BatchItem
			for range rapid.IntRange(1, 5).Draw(t, "checks") {
				items = append(items, enforcement.BatchItem{
					Subject:  rapid.SampledFrom([]*enforcement.Subject{s, s, plain}).Draw(t, "subject"),
					Check:    drawCheck(t, enforcement.Enforce, enforcement.Enforce, enforcement.Peek, enforcement.Force),
					Decision: new(enforcement.Decision),
				})
			}
			l.calls = 0
			together.DecideBatch(context.Background(), items, false)
			for i, item := range items {
				d := decide(alone, item.Subject, *item.Check)
				if got, want := why(item.Decision)+summary(item.Decision), why(d)+summary(d); got != want {
					t.Fatalf("check %d of %d: %s\nalone: %s", i+1, len(items), got, want)
				}
			}
		}
	})
}

// What an atomic batch waits for together is exact: then all of it passes if
// nobody else comes, and a millisecond before it does not. That an entry of an
// allow list ends meanwhile is not looked at.
func TestRetryAfterOfSteeredBatches(t *testing.T) {
	t.Parallel()
	var waits atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		plain, now := drawSubject(t), start
		l := &onlyCall{Limiter: inprocess.New(inprocess.Config{Now: func() int64 { return now }}), t: t, logs: true}
		e := enforcement.NewEngine(l, enforcement.Config{Timeout: time.Hour, Now: at(&now)})
		spec := drawSteering(t, plain, now)
		spec.Allow = nil
		s := compiled(plain, spec)
		var checks []*enforcement.Check
		ask := func(mode enforcement.Mode) (list []*enforcement.Decision) {
			var items []enforcement.BatchItem
			for _, c := range checks {
				check := *c
				check.Mode = mode
				list = append(list, new(enforcement.Decision))
				items = append(items, enforcement.BatchItem{Subject: s, Check: &check, Decision: list[len(list)-1]})
			}
			l.calls = 0
			e.DecideBatch(context.Background(), items, true)
			return list
		}
		passes := func() bool {
			return !slices.ContainsFunc(ask(enforcement.Peek), func(d *enforcement.Decision) bool { return !d.Allowed })
		}
		for range 30 {
			now += rapid.Int64Range(0, 400_000).Draw(t, "elapsed")
			checks = checks[:0]
			for range rapid.IntRange(2, 4).Draw(t, "checks") {
				c := drawCheck(t, enforcement.Enforce)
				c.Cost %= 4
				checks = append(checks, c)
			}
			decided, refused := ask(enforcement.Enforce), now
			at := slices.IndexFunc(decided, func(d *enforcement.Decision) bool { return d.Reason == enforcement.ReasonBatchRefused })
			if at < 0 || decided[at].RetryAfter <= 0 {
				continue
			}
			retry := decided[at].RetryAfter
			if now = refused + retry*1000; !passes() {
				t.Fatalf("%s: does not pass", summary(decided[at]))
			}
			if now -= 1000; now > refused && !ended(spec, refused) && passes() {
				t.Fatalf("%s: passes before", summary(decided[at]))
			}
			waits.Add(1)
			now = refused
		}
	})
	if waits.Load() == 0 {
		t.Error("nothing waited")
	}
}

// Nothing is asked about the time ahead where it cannot matter.
func TestForesightOnlyWhereItMatters(t *testing.T) {
	t.Parallel()
	plain := subject(t,
		enforcement.RuleSpec{Policy: "p", Path: "/p", Limits: []enforcement.RuleLimit{limit("l", 1, enforcement.FixedWindow, 5, 10*time.Second)}},
		enforcement.RuleSpec{Policy: "s", Path: "/s", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{limit("l", 2, enforcement.FixedWindow, 5, 10*time.Second)}})
	for name, c := range map[string]struct {
		override enforcement.Override
		check    enforcement.Check
		requests int
	}{
		"far":             {enforcement.Override{Policy: "p", Factor: 2000, Until: start + 21*second}, enforcement.Check{Path: "/p", Cost: 1}, 1},
		"near":            {enforcement.Override{Policy: "p", Factor: 2000, Until: start + 20*second}, enforcement.Check{Path: "/p", Cost: 1}, 3},
		"never until far": {enforcement.Override{Policy: "p", Factor: 200, Until: start + 100*second}, enforcement.Check{Path: "/p", Cost: 2}, 3},
		"peek":            {enforcement.Override{Policy: "p", Factor: 2000, Until: start + second}, enforcement.Check{Path: "/p", Cost: 1, Mode: enforcement.Peek}, 3},
		"force":           {enforcement.Override{Policy: "p", Factor: 2000, Until: start + second}, enforcement.Check{Path: "/p", Cost: 1, Mode: enforcement.Force}, 1},
		"ended":           {enforcement.Override{Policy: "p", Factor: 2000, Until: start}, enforcement.Check{Path: "/p", Cost: 1}, 2},
		"elsewhere":       {enforcement.Override{Policy: "p", Factor: 2000, Until: start + second}, enforcement.Check{Path: "/s", Cost: 1}, 1},
		"shadow":          {enforcement.Override{Policy: "s", Factor: 2000, Until: start + second}, enforcement.Check{Path: "/s", Cost: 1}, 1},
	} {
		c.override.ID, c.override.Revision, c.override.From = "o", 2, start
		l := newCounters()
		e := enforcement.NewEngine(l, enforcement.Config{Now: at(&l.now)})
		decide(e, steer(t, plain, enforcement.SteeringSpec{Overrides: []enforcement.Override{c.override}}), c.check)
		if l.calls != 1 || len(l.asked) != c.requests {
			t.Errorf("%s: %d requests in %d calls, want %d", name, len(l.asked), l.calls, c.requests)
		}
	}
}

// When nobody answers about the time ahead, the numbers in force do.
func TestRetryAfterWithoutForesight(t *testing.T) {
	t.Parallel()
	l := newCounters()
	lost := false
	e := enforcement.NewEngine(limiterFunc(func(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
		l.Take(ctx, requests, outcomes)
		if lost {
			away{enforcement.Unknown}.Take(ctx, requests[1:], outcomes[1:])
		}
	}), enforcement.Config{Now: at(&l.now)})
	plain := subject(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{limit("l", 1, enforcement.FixedWindow, 1, 10*time.Second)}})
	s := compiled(plain, enforcement.SteeringSpec{Overrides: []enforcement.Override{
		{ID: "o", Policy: "p", Limits: []enforcement.OverrideLimit{{Name: "l", Quota: enforcement.Keep, Window: 20 * time.Second}}, Revision: 2, From: start, Until: start + 15*second},
	}})
	check := enforcement.Check{Cost: 1}
	decide(e, s, check)
	lost = true
	wantSummary(t, decide(e, s, check), "false over_limit retry 20000 | p false left 0 reset 20000 retry 20000")
	lost = false
	wantSummary(t, decide(e, s, check), "false over_limit retry 15000 | p false left 0 reset 20000 retry 15000")
}
