package enforcement_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
)

// sentSubject has a tenant-wide policy and a more specific one with two limits.
func sentSubject(t *testing.T) *enforcement.Subject {
	t.Helper()
	return subject(t,
		enforcement.RuleSpec{Policy: "all", Limits: []enforcement.RuleLimit{window(1, 100)}},
		enforcement.RuleSpec{
			Policy: "login", Path: "/login", CountBy: []string{"user"},
			Limits: []enforcement.RuleLimit{limit("bucket", 2, enforcement.TokenBucket, 2, time.Minute), window(3, 10)},
		},
		enforcement.RuleSpec{Policy: "shadow", Path: "/login", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{window(4, 1)}},
	)
}

func sentCheck(user string, quota int64, window time.Duration) enforcement.Check {
	c := asked("GET", "/login", "user", user)
	c.SentLimit = enforcement.SentLimit{Quota: quota, Window: window}
	return c
}

// left returns the remaining units of each enforced limit of a decision.
func left(d *enforcement.Decision) (text string) {
	for _, l := range d.Limits {
		if l.Rule.Mode == enforcement.PolicyEnforce {
			text += fmt.Sprintf("%s %d/%d ", l.Limit.HeaderName, l.Remaining, l.Limit.Quota)
		}
	}
	return text
}

// A limit in a call replaces the limits of the most specific policy. It has its own counter for
// each length of the window. Another quota uses the same counter.
func TestSentLimit(t *testing.T) {
	t.Parallel()
	now, s := start, sentSubject(t)
	e := enforcement.NewEngine(inprocess.New(inprocess.Config{Now: func() int64 { return now }}), enforcement.Config{Now: at(&now)})
	for i, step := range []struct {
		check enforcement.Check
		want  string
	}{
		{asked("GET", "/login", "user", "u"), "all 99/100 login.bucket 1/2 login.l3 9/10 "},
		{sentCheck("u", 3, time.Minute), "all 98/100 login 2/3 "},
		{sentCheck("u", 3, time.Minute), "all 97/100 login 1/3 "},
		{sentCheck("u", 5, time.Minute), "all 96/100 login 2/5 "},
		{sentCheck("u", 3, time.Minute), "all 96/100 login 0/3 "}, // denied: all three are used
		{sentCheck("u", 1, time.Hour), "all 95/100 login 0/1 "},
		{sentCheck("v", 3, time.Minute), "all 94/100 login 2/3 "},
		{sentCheck("v", 0, time.Minute), "all 94/100 login 0/0 "}, // denied
		{asked("GET", "/login", "user", "u"), "all 93/100 login.bucket 0/2 login.l3 8/10 "},
		{asked("GET", "/login", "user", "u"), "all 93/100 login.bucket 0/2 login.l3 8/10 "}, // denied
	} {
		if got := left(decide(e, s, step.check)); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	now += 60 * second // windows start at multiples of their length
	if got, want := left(decide(e, s, sentCheck("u", 3, time.Minute))), "all 99/100 login 2/3 "; got != want {
		t.Errorf("in the next window: %s, want %s", got, want)
	}
	r, _ := s.Plan.Rule("login")
	c := sentCheck("u", 1, time.Hour)
	if err := e.Reset(context.Background(), s, r, r.PartitionOf(&c)); err != nil {
		t.Fatal(err)
	}
	if got, want := left(decide(e, s, c)), "all 98/100 login 0/1 "; got != want {
		t.Errorf("after a reset: %s, want %s", got, want)
	}
}

// Lists, blocks, the tenant's status and overrides come before a sent limit.
func TestSentLimitComesAfterExceptions(t *testing.T) {
	t.Parallel()
	now, plain := start, sentSubject(t)
	later := start + 1000*second
	s := addExceptions(t, plain, enforcement.ExceptionSpec{
		Deny:   []enforcement.ListEntry{{ID: "d", Attribute: "user", Value: "denied"}},
		Allow:  []enforcement.ListEntry{{ID: "a", Attribute: "user", Value: "allowed"}},
		Blocks: []enforcement.Block{{ID: "b", Policy: "login", Key: attributes("user", "blocked"), Until: later}},
		Overrides: []enforcement.Override{{
			ID: "o", Policy: "login", Attribute: "user", Value: "overridden", Revision: 2, Until: later,
			Limits: []enforcement.OverrideLimit{{Name: "bucket", Quota: 7, Burst: enforcement.Keep}},
		}},
	})
	e := enforcement.NewEngine(inprocess.New(inprocess.Config{Now: func() int64 { return now }}), enforcement.Config{Now: at(&now)})
	for user, want := range map[string]string{
		"denied": "false denied_by_list ", "allowed": "true allowed_by_list ", "blocked": "false blocked ",
		"overridden": "true ok all 98/100 login.bucket 6/7 login.l3 9/10 ", "u": "true ok all 99/100 login 8/9 ",
	} {
		e := e
		if user == "u" { // the counter of the tenant must not depend on the order of the map
			e = enforcement.NewEngine(inprocess.New(inprocess.Config{Now: func() int64 { return now }}), enforcement.Config{Now: at(&now)})
		}
		d := decide(e, s, sentCheck(user, 9, time.Hour))
		if user == "overridden" {
			d = decide(e, s, sentCheck(user, 9, time.Hour))
			want = "true ok all 98/100 login.bucket 5/7 login.l3 8/10 "
		}
		if got := fmt.Sprintf("%v %s %s", d.Allowed, d.Reason, left(d)); got != want {
			t.Errorf("%s: %s, want %s", user, got, want)
		}
	}
	// TakesSentLimit is false only if no policy has limits to replace, and policies decide.
	for path, want := range map[string]bool{"/login": true, "/none": false} {
		only := *s
		only.Plan = subject(t, enforcement.RuleSpec{Policy: "login", Path: "/login", Limits: []enforcement.RuleLimit{window(3, 1)}}).Plan
		c, listed := asked("GET", path, "user", "u"), asked("GET", path, "user", "denied")
		if got := only.TakesSentLimit(&c, now); got != want || !only.TakesSentLimit(&listed, now) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

// While the shared limiter is away, this node's share of a sent limit decides.
func TestShareOfASentLimit(t *testing.T) {
	t.Parallel()
	now, s := start, sentSubject(t)
	local := inprocess.New(inprocess.Config{Now: func() int64 { return now }})
	e := enforcement.NewEngine(away{enforcement.Failed}, enforcement.Config{Local: local, Nodes: 2, Now: at(&now)})
	for i, want := range []bool{true, true, false} { // half of 3, rounded up
		if d := decide(e, s, sentCheck("u", 3, time.Hour)); d.Allowed != want || !d.Degraded {
			t.Errorf("check %d: %s", i, summary(d))
		}
	}
}

// Headgate keeps a bounded number of these limits compiled. More limits use the same counters.
func TestManySentLimits(t *testing.T) {
	t.Parallel()
	now, s := start, sentSubject(t)
	e := enforcement.NewEngine(inprocess.New(inprocess.Config{Now: func() int64 { return now }}), enforcement.Config{Now: at(&now)})
	for i := range int64(90) {
		if d := decide(e, s, sentCheck("u", 1000+i, time.Hour)); !d.Allowed || d.Limits[1].Remaining != 1000+i-i-1 {
			t.Fatalf("check %d: %s", i, summary(d))
		}
	}
}

// The counters of a plan never have the numbers of counters for limits in calls.
func TestCellsOfPlansAreNotThoseOfSentLimits(t *testing.T) {
	t.Parallel()
	_, err := enforcement.CompilePlan("pro", 1, []enforcement.RuleSpec{{Policy: "p", Limits: []enforcement.RuleLimit{window(1<<28, 1)}}})
	if err == nil {
		t.Error("no error")
	}
}
