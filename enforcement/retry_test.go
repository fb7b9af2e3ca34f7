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

// drawExceptions draws exceptions for a tenant of drawSubject.
func drawExceptions(t *rapid.T, s *enforcement.Subject, now int64) enforcement.ExceptionSpec {
	spec := enforcement.ExceptionSpec{Changed: map[string]int64{}}
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

// compiled returns a tenant with those exceptions of spec that are valid. Blocks of policies
// that do not deny are invalid.
func compiled(s *enforcement.Subject, spec enforcement.ExceptionSpec) *enforcement.Subject {
	withExceptions := *s
	withExceptions.Exceptions, _ = enforcement.CompileExceptions(spec, s.Plan, s.PlanRevision)
	return &withExceptions
}

// endless returns a spec in which the overrides that apply now have no end.
func endless(spec enforcement.ExceptionSpec, now int64) enforcement.ExceptionSpec {
	spec.Overrides = slices.Clone(spec.Overrides)
	for i := range spec.Overrides {
		if o := &spec.Overrides[i]; now < o.Until {
			o.Until = now + 1000*second
		}
	}
	return spec
}

// overrideEnds reports whether an override ends after the time after, and until the time until.
func overrideEnds(spec enforcement.ExceptionSpec, after, until int64) bool {
	return slices.ContainsFunc(spec.Overrides, func(o enforcement.Override) bool { return after < o.Until && o.Until <= until })
}

// onlyCall is a limiter that may be called once, with at most a number of requests.
type onlyCall struct {
	enforcement.Limiter
	t        *rapid.T
	calls    int
	requests int // 0: any number
}

func (l *onlyCall) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	if l.calls++; l.calls > 1 || l.requests > 0 && len(requests) > l.requests {
		l.t.Fatalf("call %d with %d requests", l.calls, len(requests))
	}
	l.Limiter.Take(ctx, requests, outcomes)
}

// TestRetryAfterWithExceptions checks promise e: as long as no override ends and no other
// request comes, a denied check passes after its retry time and not a millisecond earlier,
// for any clock of the limiter. numbers_until is the first instant in that time at which an
// override or a block ends. Without it, the retry time is exact. A check takes one request
// of the limiter.

// Two differences are allowed. An override that ended before the denial and was not swept
// yet costs a bucket the fraction of a unit, so the check may pass earlier. While the
// limiter's clock is behind the start of an override, a bucket still refills at the former
// rate; here overrides start before both clocks.
func TestRetryAfterWithExceptions(t *testing.T) {
	t.Parallel()
	var waits, ends, blocked, never atomic.Int64
	world := func(t *rapid.T) {
		plain := drawSubject(t)
		now, skew := start, rapid.Int64Range(-2_000_000, 2_000_000).Draw(t, "skew")
		l := &onlyCall{Limiter: inprocess.New(inprocess.Config{Now: func() int64 { return now - skew }}), t: t, requests: 1}
		e := enforcement.NewEngine(l, enforcement.Config{Now: at(&now)})
		decide := func(s *enforcement.Subject, c enforcement.Check) *enforcement.Decision {
			l.calls = 0
			return decide(e, s, c)
		}
		for range rapid.IntRange(0, 5).Draw(t, "before") {
			now += rapid.Int64Range(0, 400_000).Draw(t, "elapsed")
			decide(plain, *drawCheck(t, enforcement.Enforce, enforcement.Force))
		}
		spec := drawExceptions(t, plain, now)
		for i := range spec.Overrides {
			spec.Overrides[i].From -= max(skew, 0)
		}
		s := compiled(plain, spec)
		for range 40 {
			now += rapid.Int64Range(0, 400_000).Draw(t, "elapsed")
			c := *drawCheck(t, enforcement.Enforce, enforcement.Enforce, enforcement.Force)
			c.Cost %= 4 // larger costs would seldom be possible
			d := decide(s, c)
			if want := firstEnd(s, d, now); d.NumbersUntil != want {
				t.Fatalf("%s\nnumbers until %d, want %d, now %d", why(d)+summary(d), d.NumbersUntil, want, now)
			}
			if d.NumbersUntil != 0 {
				ends.Add(1)
			}
			if d.RetryAfter == enforcement.Never && d.NumbersUntil != 0 {
				never.Add(1)
			}
			if d.RetryAfter <= 0 {
				continue
			}
			x := new(enforcement.Explanation)
			l.calls, l.requests = 0, 2
			e.Explain(context.Background(), s, &c, x)
			l.requests = 1
			if x.Decision.NumbersUntil != d.NumbersUntil || x.Decision.RetryAfter != d.RetryAfter {
				t.Fatalf("explained %s until %d", summary(&x.Decision), x.Decision.NumbersUntil)
			}
			until := []*enforcement.Subject{compiled(plain, endless(spec, now))}
			if d.NumbersUntil == 0 || d.Block != nil && d.NumbersUntil == d.Block.Until && !overrideEnds(spec, now, now+d.RetryAfter*1000) {
				until = append(until, s)
			}
			c.Mode = enforcement.Peek
			denied := now
			for _, s := range until {
				now = denied + d.RetryAfter*1000
				if after := decide(s, c); !after.Allowed {
					t.Fatalf("%s\nthen %s", summary(d), summary(after))
				}
				if now -= 1000; now < denied || ended(spec, denied) {
					continue
				}
				if before := decide(s, c); before.Allowed {
					t.Fatalf("%s\na millisecond before, after %d: %s", summary(d), now-denied, summary(before))
				}
			}
			now = denied
			waits.Add(1)
			if d.Reason == enforcement.ReasonBlocked {
				blocked.Add(1)
			}
		}
	}
	// One seed gives one set of cases, so another rapid.Check would repeat them. A case
	// has many worlds so that no kind of wait is missed by chance.
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			world(t)
		}
	})
	if waits.Load() == 0 || ends.Load() == 0 || blocked.Load() == 0 || never.Load() == 0 {
		t.Errorf("%d waits, %d with an end, %d of blocked keys, %d for ever", waits.Load(), ends.Load(), blocked.Load(), never.Load())
	}
}

// ended reports whether an override had ended and was not swept.
func ended(spec enforcement.ExceptionSpec, now int64) bool {
	return slices.ContainsFunc(spec.Overrides, func(o enforcement.Override) bool { return o.Until <= now })
}

// firstEnd returns the expected value of NumbersUntil of a decision.
func firstEnd(s *enforcement.Subject, d *enforcement.Decision, now int64) (first int64) {
	if d.Allowed || d.Reason == enforcement.ReasonDeniedByList || d.Reason == enforcement.ReasonMissingAttribute {
		return 0
	}
	passes := now + d.RetryAfter*1000
	add := func(until int64) {
		if first == 0 || until < first {
			first = until
		}
	}
	for _, p := range enforcement.ExplainPolicies(s, d.Check, now) {
		o, enforced := p.Override, p.Applies && p.Rule.Mode == enforcement.PolicyEnforce && len(p.Rule.Limits) > 0
		if o != nil && enforced && (d.RetryAfter == enforcement.Never || o.Until <= passes) {
			add(o.Until)
		}
	}
	if d.Block != nil && (d.RetryAfter == enforcement.Never || d.Block.Until <= passes-1000) {
		add(d.Block.Until)
	}
	return first
}

// TestNumbersUntil has the cases of one denial.
func TestNumbersUntil(t *testing.T) {
	t.Parallel()
	plain := subject(t,
		enforcement.RuleSpec{Policy: "p", CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{limit("l", 1, enforcement.FixedWindow, 2, 10*time.Second)}},
		enforcement.RuleSpec{Policy: "s", CountBy: []string{"user"}, Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{limit("l", 2, enforcement.FixedWindow, 1, 10*time.Second)}})
	override := func(policy, user string, factor, until int64) enforcement.Override {
		return enforcement.Override{
			ID: user, Policy: policy, Attribute: "user", Value: user, Factor: factor, Revision: 2, From: start, Until: start + until,
		}
	}
	s := addExceptions(t, plain, enforcement.ExceptionSpec{
		Overrides: []enforcement.Override{
			override("p", "soon", 500, 10*second), override("p", "later", 500, 10*second+1), override("s", "shadow", 500, second),
			override("p", "never", 500, 100*second), override("p", "both", 500, 3*second),
		},
		Blocks: []enforcement.Block{
			{ID: "1", Policy: "p", Key: attributes("user", "brief"), Until: start + 5*second},
			{ID: "2", Policy: "p", Key: attributes("user", "long"), Until: start + 20*second},
			{ID: "3", Policy: "p", Key: attributes("user", "both"), Until: start + 20*second},
		},
	})
	for _, c := range []struct {
		user   string
		before int // units charged before the check
		cost   int64
		want   string
		until  int64
	}{
		{"soon", 1, 1, "false over_limit 10000", 10 * second},
		{"soon", 0, 1, "true ok 0", 0},
		{"later", 1, 1, "false over_limit 10000", 0},
		{"shadow", 2, 1, "false over_limit 10000", 0},
		{"other", 2, 1, "false over_limit 10000", 0},
		{"never", 0, 2, "false cost_exceeds_quota -1", 100 * second},
		{"other", 0, 3, "false cost_exceeds_quota -1", 0},
		{"brief", 0, 1, "false blocked 5000 block 1 policy p", 0},
		{"brief", 2, 1, "false blocked 10000 block 1 policy p", 5 * second},
		{"brief", 0, 3, "false blocked -1 block 1 policy p", 5 * second},
		{"long", 2, 1, "false blocked 20000 block 2 policy p", 0},
		{"both", 2, 1, "false blocked 20000 block 3 policy p", 3 * second},
	} {
		l := newCounters()
		e := enforcement.NewEngine(l, enforcement.Config{Now: at(&l.now)})
		check := asked("GET", "/", "user", c.user)
		check.Mode = enforcement.Force
		for range c.before {
			check.Cost = 1
			decide(e, s, check)
		}
		check.Mode, check.Cost = enforcement.Enforce, c.cost
		d := decide(e, s, check)
		until := c.until
		if until != 0 {
			until += start
		}
		if got := why(d); got != c.want || d.NumbersUntil != until {
			t.Errorf("%s after %d: %s until %d, want %s until %d", c.user, c.before, got, d.NumbersUntil-start, c.want, c.until)
		}
		if len(l.asked) != 1 {
			t.Errorf("%s: %d requests", c.user, len(l.asked))
		}
	}
}

// A key has two blocks of policies without limits. The result has the end of the block that
// ends first, although the limiter is not called.
func TestNumbersUntilWithoutLimits(t *testing.T) {
	t.Parallel()
	plain := subject(t, enforcement.RuleSpec{Policy: "p"}, enforcement.RuleSpec{Policy: "q"})
	s := addExceptions(t, plain, enforcement.ExceptionSpec{Blocks: []enforcement.Block{
		{ID: "1", Policy: "p", Until: start + 5*second}, {ID: "2", Policy: "q", Until: start + 20*second},
	}})
	l := newCounters()
	d := decide(enforcement.NewEngine(l, enforcement.Config{Now: at(&l.now)}), s, asked("GET", "/"))
	if got := why(d); got != "false blocked 20000 block 1 policy p" || d.NumbersUntil != start+5*second || len(l.asked) != 0 {
		t.Errorf("%s until %d, %d requests", got, d.NumbersUntil-start, len(l.asked))
	}
}

// The retry time of an atomic batch is the time until all its checks pass together. The result
// of each check has the first end of an override of any of them.
func TestRetryAfterOfAExceptionsBatch(t *testing.T) {
	t.Parallel()
	now := start
	plain := subject(t,
		enforcement.RuleSpec{Policy: "a", Path: "/a", Limits: []enforcement.RuleLimit{limit("l", 1, enforcement.FixedWindow, 1, 10*time.Second)}},
		enforcement.RuleSpec{Policy: "b", Path: "/b", Limits: []enforcement.RuleLimit{limit("l", 2, enforcement.FixedWindow, 1, 40*time.Second)}})
	s := addExceptions(t, plain, enforcement.ExceptionSpec{Overrides: []enforcement.Override{
		{ID: "o", Policy: "b", Factor: 2000, Revision: 2, From: start, Until: start + 5*second},
	}})
	e := enforcement.NewEngine(newCounters(), enforcement.Config{Now: at(&now)})
	batch := func(s *enforcement.Subject) (a, b *enforcement.Decision) {
		a, b = new(enforcement.Decision), new(enforcement.Decision)
		e.DecideBatch(context.Background(), []enforcement.BatchItem{
			{Subject: s, Check: &enforcement.Check{Path: "/a", Cost: 1}, Decision: a},
			{Subject: s, Check: &enforcement.Check{Path: "/b", Cost: 1}, Decision: b},
		}, true)
		return a, b
	}
	if a, b := batch(s); !a.Allowed || !b.Allowed {
		t.Fatal(summary(a), summary(b))
	}
	a, b := batch(s)
	wantSummary(t, a, "false over_limit retry 10000 | a false left 0 reset 10000 retry 10000")
	wantSummary(t, b, "false batch_refused retry 10000 | b true left 1 reset 40000 retry 0")
	if a.NumbersUntil != start+5*second || b.NumbersUntil != start+5*second {
		t.Errorf("numbers until %d and %d", a.NumbersUntil-start, b.NumbersUntil-start)
	}
	// One check is blocked. The limits of the other checks still have their retry times.
	blocked := addExceptions(t, plain, enforcement.ExceptionSpec{Blocks: []enforcement.Block{{ID: "x", Policy: "a", Until: start + second}}})
	a, b = batch(blocked)
	wantSummary(t, a, "false blocked retry 10000")
	wantSummary(t, b, "false batch_refused retry 40000")
	if a.NumbersUntil != start+second || b.NumbersUntil != 0 {
		t.Errorf("numbers until %d and %d", a.NumbersUntil-start, b.NumbersUntil-start)
	}
}

// A batch has the same results as its checks one after the other, including retry times.
func TestABatchIsASequence(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plain, now := drawSubject(t), start
		clock := inprocess.Config{Now: func() int64 { return now }}
		l := &onlyCall{Limiter: inprocess.New(clock), t: t}
		cfg := enforcement.Config{Now: at(&now)}
		together, alone := enforcement.NewEngine(l, cfg), enforcement.NewEngine(inprocess.New(clock), cfg)
		s := compiled(plain, drawExceptions(t, plain, now))
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
				got, want := why(item.Decision)+summary(item.Decision), why(d)+summary(d)
				if got != want || item.Decision.NumbersUntil != d.NumbersUntil {
					t.Fatalf("check %d of %d: %s\nalone: %s", i+1, len(items), got, want)
				}
			}
		}
	})
}

// TestRetryAfterOfExceptionsBatches checks promise e of atomic batches: as long as no
// override ends, all of a batch passes after the wait of its items that are denied
// with the others, and not a millisecond earlier. That an entry of an allow list
// ends in that time is not looked at.
func TestRetryAfterOfExceptionsBatches(t *testing.T) {
	t.Parallel()
	var waits atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		plain, now := drawSubject(t), start
		l := &onlyCall{Limiter: inprocess.New(inprocess.Config{Now: func() int64 { return now }}), t: t, requests: 1}
		e := enforcement.NewEngine(l, enforcement.Config{Now: at(&now)})
		spec := drawExceptions(t, plain, now)
		spec.Allow = nil
		s := compiled(plain, spec)
		var checks []*enforcement.Check
		ask := func(s *enforcement.Subject, mode enforcement.Mode) (list []*enforcement.Decision) {
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
		passes := func(s *enforcement.Subject) bool {
			return !slices.ContainsFunc(ask(s, enforcement.Peek), func(d *enforcement.Decision) bool { return !d.Allowed })
		}
		for range 30 {
			now += rapid.Int64Range(0, 400_000).Draw(t, "elapsed")
			checks = checks[:0]
			for range rapid.IntRange(2, 4).Draw(t, "checks") {
				c := drawCheck(t, enforcement.Enforce)
				c.Cost %= 4
				checks = append(checks, c)
			}
			decided, denied := ask(s, enforcement.Enforce), now
			at := slices.IndexFunc(decided, func(d *enforcement.Decision) bool { return d.Reason == enforcement.ReasonBatchRefused })
			if at < 0 || decided[at].RetryAfter <= 0 {
				continue
			}
			until := []*enforcement.Subject{compiled(plain, endless(spec, now))}
			if decided[at].NumbersUntil == 0 {
				until = append(until, s)
			}
			for _, s := range until {
				if now = denied + decided[at].RetryAfter*1000; !passes(s) {
					t.Fatalf("%s: does not pass", summary(decided[at]))
				}
				if now -= 1000; now > denied && !ended(spec, denied) && passes(s) {
					t.Fatalf("%s: passes before", summary(decided[at]))
				}
			}
			waits.Add(1)
			now = denied
		}
	})
	if waits.Load() == 0 {
		t.Error("no batch waited")
	}
}
