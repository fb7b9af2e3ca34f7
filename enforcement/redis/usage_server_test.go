//go:build !quick

package redis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// Redis and the in-process limiter return the same usage of keys and the same time at which
// a pace uses it up, also for logs that are too long for a reply.
func TestUsage(t *testing.T) {
	t.Parallel()
	now := int64(1_700_000_000_000_000)
	clock := func() int64 { return now }
	shared := open(t, redis.Config{URL: servertest.Redis(t), Now: clock})
	patient := enforcement.Config{Now: func() time.Time { return time.UnixMicro(now) }}
	theirs, ours := enforcement.NewEngine(shared, patient), enforcement.NewEngine(inprocess.New(inprocess.Config{Now: clock}), patient)
	tenant := uint32(5000)
	rapid.Check(t, func(t *rapid.T) {
		tenant++
		s := keyedSubject(t, tenant)
		rule := s.Plan.Rules[0]
		keys := []enforcement.CountedKey{{Rule: rule}, {Rule: rule, Key: user("u")}, {Rule: rule, Key: user("v")}}
		for range rapid.SampledFrom([]int{10, 10, 200}).Draw(t, "charges") {
			now += rapid.Int64Range(0, 6_000_000).Draw(t, "elapsed")
			c := &enforcement.Check{Cost: rapid.Int64Range(0, 2).Draw(t, "cost"), Attributes: rapid.SampledFrom(keys).Draw(t, "key").Key, Mode: enforcement.Force}
			var d enforcement.Decision
			ours.Decide(t.Context(), s, c, &d)
			theirs.Decide(t.Context(), s, c, &d)
		}
		every := rapid.Int64Range(1, 60_000_000).Draw(t, "every")
		at, want, err := ours.KeyStates(t.Context(), s, keys)
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := theirs.KeyStates(t.Context(), s, keys)
		if err != nil {
			t.Fatal(err)
		}
		if said, is := holds(got, at, every), holds(want, at, every); said != is {
			t.Fatalf("Redis:\n%s\nthe other:\n%s", said, is)
		}
	})
}

func user(name string) []enforcement.Attribute {
	return []enforcement.Attribute{{Name: "user", Value: name}}
}

// keyedSubject has a policy that counts by user, with a limit of every algorithm.
func keyedSubject(t *rapid.T, tenant uint32) *enforcement.Subject {
	spec := enforcement.RuleSpec{Policy: "p", CountBy: []string{"user"}}
	for a := enforcement.FixedWindow; a <= enforcement.GCRA; a++ {
		l := enforcement.Limit{Name: limitName(a), Algorithm: a, Quota: rapid.Int64Range(3, 300).Draw(t, "quota"), Window: 10 * time.Minute}
		spec.Limits = append(spec.Limits, enforcement.RuleLimit{Limit: l, Cell: uint32(a), Meter: l.Compile(1)})
	}
	plan, err := enforcement.CompilePlan("p", 1, []enforcement.RuleSpec{spec})
	if err != nil {
		t.Fatal(err)
	}
	return &enforcement.Subject{Plan: plan, Number: tenant, Home: "t", PlanRevision: 1}
}

// holds is what keys hold.
func holds(held []enforcement.KeyState, at, every int64) string {
	var b strings.Builder
	for i := range held {
		for _, l := range held[i].Limits {
			m := l.Limit.Meter
			refused, ok := m.DeniedAfter(l.State, at, 1, every)
			fmt.Fprintf(&b, "%d %s: %d left, reset %d, refused %d %v, %d entries\n", i, l.Limit.Name, m.Left(l.State, at), m.ResetAfter(l.State, at), refused, ok, len(l.State.Log))
		}
	}
	return b.String()
}

// usedTenant has ten policies with three limits each, half of which count by so
// many users.
func usedTenant(t testing.TB, users int) (*enforcement.Subject, []enforcement.CountedKey) {
	t.Helper()
	algorithms := []enforcement.Algorithm{enforcement.FixedWindow, enforcement.SlidingWindowCounter, enforcement.GCRA}
	var specs []enforcement.RuleSpec
	for p := range 10 {
		spec := enforcement.RuleSpec{Policy: fmt.Sprint("p", p)}
		if p%2 == 1 {
			spec.CountBy = []string{"user"}
		}
		for i, a := range algorithms {
			l := enforcement.Limit{Name: fmt.Sprint("l", i), Algorithm: a, Quota: 1000, Window: time.Hour}
			spec.Limits = append(spec.Limits, enforcement.RuleLimit{Limit: l, Cell: uint32(len(specs)*3 + i + 1), Meter: l.Compile(1)})
		}
		specs = append(specs, spec)
	}
	plan, err := enforcement.CompilePlan("p", 1, specs)
	if err != nil {
		t.Fatal(err)
	}
	var keys []enforcement.CountedKey
	for _, r := range plan.Rules {
		if len(r.CountBy) == 0 {
			keys = append(keys, enforcement.CountedKey{Rule: r})
			continue
		}
		for u := range users {
			keys = append(keys, enforcement.CountedKey{Rule: r, Key: user(fmt.Sprint("u", u))})
		}
	}
	return &enforcement.Subject{Plan: plan, Number: 7, Home: "used", PlanRevision: 1}, keys
}

// The usage of a tenant takes one call of Redis, for any number of policies and keys.
func TestUsageIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw := client(t, server.URL())
	e := enforcement.NewEngine(open(t, redis.Config{URL: server.URL()}), enforcement.Config{})
	s, keys := usedTenant(t, 10)
	charge := func() {
		var d enforcement.Decision
		e.Decide(t.Context(), s, &enforcement.Check{Cost: 1, Attributes: user("u3")}, &d)
		if !d.Allowed || d.Degraded {
			t.Fatal("not charged")
		}
	}
	charge() // and the script is loaded
	if err := raw.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	_, held, err := e.KeyStates(t.Context(), s, keys)
	if err != nil {
		t.Fatal(err)
	}
	if stats := commandstats(t, raw); !strings.Contains(stats, "cmdstat_evalsha:calls=1,") || strings.Contains(stats, "cmdstat_set:") {
		t.Errorf("of %d limits Redis was asked as\n%s", 3*len(keys), stats)
	}
	used := 0
	for i := range held {
		for _, l := range held[i].Limits {
			used += int(1000 - l.Limit.Meter.Left(l.State, time.Now().UnixMicro()))
		}
	}
	if used != 30 {
		t.Errorf("%d units are used, want one of each limit", used)
	}
}

// BenchmarkUsage reads the usage of a tenant with ten policies of three limits each: of
// all, and of ten keys of each policy that counts by user.
func BenchmarkUsage(b *testing.B) {
	e := enforcement.NewEngine(open(b, redis.Config{URL: servertest.StartRedis(b).URL()}), enforcement.Config{})
	for _, users := range []int{1, 10} {
		s, keys := usedTenant(b, users)
		b.Run(fmt.Sprintf("%dx3", len(keys)), func(b *testing.B) {
			for b.Loop() {
				if _, _, err := e.KeyStates(b.Context(), s, keys); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
