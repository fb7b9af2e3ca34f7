package limitertest

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// grantIDs are the IDs of the grants of a tenant in a test.
var grantIDs = []string{"0190f5c4-7e1a-7b3c-8d2e-000000000001", "0190f5c4-7e1a-7b3c-8d2e-000000000002"}

// subject returns a tenant with policies that have one limit each: a fixed window of an hour.
func (w *harness) subject(rules ...enforcement.RuleSpec) *enforcement.Subject {
	w.Helper()
	plan, err := enforcement.CompilePlan("pro", 1, rules)
	if err != nil {
		w.Fatal(err)
	}
	return &enforcement.Subject{Tenant: "acme", Number: w.tenant, Home: homeOf(w.tenant), PlanRevision: 1, Plan: plan}
}

// hourly returns the only limit of a policy.
func hourly(cell uint32, quota int64) []enforcement.RuleLimit {
	l := fixedWindow(quota, time.Hour, enforcement.FirstHit)
	l.Name = fmt.Sprintf("l%d", cell)
	return []enforcement.RuleLimit{{Limit: l, Cell: cell, Meter: l.Compile(1)}}
}

// aDayLater is the end of the grants, a day after Start.
var aDayLater = Start + 24*time.Hour.Microseconds()

// topUp gives a tenant a grant for each policy in the list, with units until a day after Start. faults is the
// number of the grants that do not fit the plan.
func topUp(s *enforcement.Subject, units int64, policies ...string) (faults int) {
	var spec enforcement.ExceptionSpec
	for i, policy := range policies {
		r, _ := s.Plan.Rule(policy)
		spec.Grants = append(spec.Grants, enforcement.Grant{
			ID: grantIDs[i], Policy: policy, Limit: r.Limits[0].Name, Units: units, Revision: 2, From: Start, Until: aDayLater,
		})
	}
	made, list := enforcement.CompileExceptions(spec, s.Plan, 1)
	s.Exceptions = made
	return len(list)
}

// An engineOf decides checks of a tenant with the limiter under test. While away is set, this limiter does not
// answer.
type engineOf struct {
	*enforcement.Engine
	w    *harness
	s    *enforcement.Subject
	away bool
}

func (w *harness) engine(s *enforcement.Subject) *engineOf {
	e := &engineOf{w: w, s: s}
	e.Engine = enforcement.NewEngine(e, enforcement.Config{
		Now: func() time.Time { return time.UnixMicro(w.clock.Now()) }, Local: NewStore(w.clock.Now), Nodes: 2,
	})
	return e
}

// Take implements enforcement.Limiter.
func (e *engineOf) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	if !e.away {
		e.w.limiter.Take(ctx, requests, outcomes)
		return
	}
	for i := range outcomes {
		outcomes[i] = enforcement.Outcome{Verdict: enforcement.Failed, Err: enforcement.ErrNotReached}
	}
}

// passes returns how many of n checks pass, and the last decision.
func (e *engineOf) passes(n int, c enforcement.Check) (passed int, last *enforcement.Decision) {
	for range n {
		check, d := c, new(enforcement.Decision)
		e.Decide(context.Background(), e.s, &check, d)
		if last = d; d.Allowed {
			passed++
		}
	}
	return passed, last
}

// spends fails the test unless passed of n checks pass, and the first grant has left units after them.
func (e *engineOf) spends(n int, c enforcement.Check, passed int, left int64, what string) *enforcement.Decision {
	e.w.Helper()
	got, last := e.passes(n, c)
	of := enforcement.Grant{ID: grantIDs[0], Units: 4, Revision: 2, From: Start, Until: aDayLater}
	lefts, err := e.GrantsLeft(context.Background(), e.s, []enforcement.Grant{of})
	if err != nil {
		e.w.Fatal(err)
	}
	e.w.same([]any{got, lefts[0]}, []any{passed, left}, what)
	return last
}

// used returns the number of units that are charged to the window of policy i.
func (e *engineOf) used(i int) int64 {
	e.w.Helper()
	l := &e.s.Plan.Rules[i].Limits[0]
	key := enforcement.Key{Tenant: e.w.tenant, Cell: l.Cell}
	return e.w.take(e.w.request(enforcement.Peek, e.w.on(l.Meter, key, 0, 0)))[0].Charges[0].State.A
}

// grantEngineTests are the tests of grants together with what an Engine adds to a Limiter.
var grantEngineTests = []test{
	{"a policy in shadow or with another mode has no grants and leaves them alone", func(w *harness) {
		for _, mode := range []enforcement.PolicyMode{enforcement.PolicyShadow, enforcement.PolicyDegrade, enforcement.PolicyDelay} {
			w.renew()
			soft := enforcement.RuleSpec{Policy: "b", Mode: mode, Limits: hourly(2, 3)}
			s := w.subject(enforcement.RuleSpec{Policy: "a", Limits: hourly(1, 5)}, soft)
			w.same(topUp(s, 4, "a", "b"), 1, "the grant of b does not fit")
			e := w.engine(s)
			last := e.spends(7, enforcement.Check{Path: "/", Cost: 1}, 7, 2, string(mode)+": 5 of the window and 2 of the grant")
			w.same([]any{last.Limits[0].Remaining, last.Limits[1].Allowed, last.Limits[1].Remaining}, []any{2, false, 0}, "the limits of a and b")
			e.spends(7, enforcement.Check{Path: "/", Cost: 1}, 2, 0, "the rest")
			w.same(e.used(1), 3, "b counted only its quota")
		}
	}},
	{"a limit that the caller sends has no grants", func(w *harness) {
		s := w.subject(enforcement.RuleSpec{Policy: "a", Limits: hourly(1, 5)})
		w.same(topUp(s, 4, "a"), 0, "faults")
		e := w.engine(s)
		sent := enforcement.Check{Path: "/", Cost: 1, SentLimit: enforcement.SentLimit{Quota: 2, Window: time.Hour}}
		last := e.spends(9, sent, 2, 4, "the limit of the caller")
		w.same([]any{last.Limits[0].Remaining, last.RetryAfter != enforcement.Never}, []any{0, true}, "without the grant")
		e.spends(9, enforcement.Check{Path: "/", Cost: 2}, 4, 1, "8 of the 9 of the window and the grant")
	}},
	{"a share of the window spends no grants, and what it admitted is charged to the window", func(w *harness) {
		for mode, admitted := range map[enforcement.OnFailure]int{
			enforcement.OnFailureLocal: 5, enforcement.OnFailureOpen: 9, enforcement.OnFailureClosed: 0,
		} {
			w.renew()
			s := w.subject(enforcement.RuleSpec{Policy: "a", OnFailure: mode, Limits: hourly(1, 10)})
			topUp(s, 4, "a")
			e := w.engine(s)
			e.spends(11, enforcement.Check{Path: "/", Cost: 1}, 11, 3, string(mode)+": 10 of the window and 1 of the grant")
			e.away = true
			n, last := e.passes(9, enforcement.Check{Path: "/", Cost: 1})
			w.same([]any{n, last.Degraded}, []any{admitted, true}, string(mode)+": admitted without the limiter")
			e.away = false
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			if err := e.RunOutageJournal(ended); err != nil {
				w.Fatal(err)
			}
			w.same(e.used(0), 10+admitted, string(mode)+": the window afterwards")
			e.spends(4, enforcement.Check{Path: "/", Cost: 1}, 3, 0, string(mode)+": the grant is still there")
			w.clock.Advance(time.Hour)
			e.spends(11, enforcement.Check{Path: "/", Cost: 1}, 10, 0, string(mode)+": the next window")
		}
	}},
	{"a quota of 0 spends no grants, also if a check is forced", func(w *harness) {
		s := w.subject(enforcement.RuleSpec{Policy: "a", Limits: hourly(1, 0)}, enforcement.RuleSpec{Policy: "b", Limits: hourly(2, 5)})
		w.same(topUp(s, 4, "a"), 1, "the plan has the quota 0")
		spec := enforcement.ExceptionSpec{
			Grants: []enforcement.Grant{
				{ID: grantIDs[0], Policy: "b", Limit: "l2", Units: 4, Revision: 2, From: Start, Until: aDayLater},
			},
			Overrides: []enforcement.Override{{
				ID: grantIDs[1], Policy: "b", Limits: []enforcement.OverrideLimit{{Name: "l2", Quota: 0, Burst: enforcement.Keep}},
				Revision: 3, From: Start, Until: Start + time.Hour.Microseconds(),
			}},
			Changed: map[string]int64{"b": 3},
		}
		s = w.subject(s.Plan.Rules[1].RuleSpec)
		made, faults := enforcement.CompileExceptions(spec, s.Plan, 1)
		w.same(len(faults), 0, "faults")
		s.Exceptions = made
		e := w.engine(s)
		e.spends(2, enforcement.Check{Path: "/", Cost: 1}, 0, 4, "an override denies everything")
		e.spends(2, enforcement.Check{Path: "/", Cost: 2, Mode: enforcement.Force}, 2, 4, "forced")
	}},
}

// GrantsOnOverflow tests grants of keys that share an overflow counter. Before the call, the tenant must have its
// maximum number of keys, and no key may share the overflow counter of cell yet. now returns the time by the clock
// of the limiter. home is the home of the tenant.
func GrantsOnOverflow(w interface {
	Helper()
	Errorf(format string, args ...any)
}, l enforcement.Limiter, tenant, cell uint32, home string, now int64,
) {
	w.Helper()
	m := fixedWindow(10, 24*time.Hour, enforcement.FirstHit).Compile(1)
	g := enforcement.GrantMeter(7, now-time.Hour.Microseconds(), now+24*time.Hour.Microseconds(), 1)
	take := func(mode enforcement.Mode, cost int64, keys ...byte) *enforcement.Outcome {
		r := enforcement.Request{Mode: mode, Home: home}
		for _, k := range keys {
			window := enforcement.Key{Tenant: tenant, Cell: cell, Partition: [16]byte{255, k}}
			grant := enforcement.Key{Tenant: tenant, Cell: enforcement.GrantCell, Partition: [16]byte{9}}
			r.Charges = append(r.Charges, enforcement.Charge{Key: window, Meter: m, Rev: 1, Cost: cost},
				enforcement.Charge{Key: grant, Meter: g, Rev: 1, Grant: true})
		}
		o := make([]enforcement.Outcome, 1)
		l.Take(context.Background(), []enforcement.Request{r}, o)
		return &o[0]
	}
	for i, step := range []struct {
		mode         enforcement.Mode
		cost         int64
		keys         []byte
		granted      bool
		window, left int64 // of the overflow counter and of the grant, afterwards
	}{
		{enforcement.Enforce, 7, []byte{1}, true, 3, 7},
		{enforcement.Enforce, 5, []byte{2}, true, 0, 5},     // 3 of the window that all keys share, and 2 of the grant
		{enforcement.Enforce, 6, []byte{3}, false, 0, 5},    // 5 are left
		{enforcement.Enforce, 3, []byte{4, 5}, false, 0, 5}, // 6 together
		{enforcement.Enforce, 2, []byte{4, 5}, true, 0, 1},
		{enforcement.TakeUpTo, 9, []byte{6}, true, 0, 0},
		{enforcement.Enforce, 1, []byte{7}, false, 0, 0},
	} {
		o := take(step.mode, step.cost, step.keys...)
		if (o.Verdict == enforcement.Granted) != step.granted || !o.Charges[0].Shared || o.Charges[1].Shared {
			w.Errorf("step %d: %s, %v, shared %+v", i, o.Verdict, o.Err, o.Charges)
		}
		p := take(enforcement.Peek, 0, 200)
		window, left := m.Remaining(p.Charges[0].State, p.At), g.Remaining(p.Charges[1].State, p.At)
		if window != step.window || left != step.left {
			w.Errorf("step %d: %d and %d left, want %d and %d", i, window, left, step.window, step.left)
		}
	}
}
