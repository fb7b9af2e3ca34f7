package plans

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforcement"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	from := Sample().Content()
	to := Sample().Content()
	to.Name = "Starter 2"
	login := &to.Policies[0]
	login.Limits[0].Quota = 10
	login.Limits = append(login.Limits, enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 1, Window: time.Second, Burst: 5})
	login.Match.Attributes = map[string]string{"a/b": "<1>"}
	to.Policies[2].Limits[0].Burst = 0 // the quota
	to.Policies[3].Mode = enforcement.PolicyShadow
	to.Policies[1].Slug = "renamed"
	got, err := Compare(New(from), New(to))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	line := func(where string, c Change) {
		lines = append(lines, fmt.Sprintf("%s%s: %s → %s", where, c.Field, c.From, c.To))
	}
	for _, c := range got.Fields {
		line("", c)
	}
	for _, p := range got.Added {
		lines = append(lines, "+"+p.Slug)
	}
	for _, p := range got.Removed {
		lines = append(lines, "-"+p.Slug)
	}
	for _, p := range got.Changed {
		for _, c := range p.Fields {
			line(p.Slug, c)
		}
	}
	want := []string{
		`/name: "Starter" → "Starter 2"`,
		"+renamed",
		"-api-per-user",
		`login-per-ip/match/attributes/a~1b:  → "<1>"`,
		`login-per-ip/limits: ["l1"] → ["l1","l2"]`,
		`login-per-ip/limits/l1/quota: 5 → 10`,
		`login-per-ip/limits/l2/algorithm:  → "token_bucket"`,
		`login-per-ip/limits/l2/quota:  → 1`,
		`login-per-ip/limits/l2/window:  → "1s"`,
		`login-per-ip/limits/l2/burst:  → 5`,
		`search-per-user/limits/l1/burst: 20 → `,
		`tenant-total/mode: "enforce" → "shadow"`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if got.Reordered || got.Empty() {
		t.Errorf("reordered %v, empty %v", got.Reordered, got.Empty())
	}
}

func TestCompareOrder(t *testing.T) {
	t.Parallel()
	from, to := Sample().Content(), Sample().Content()
	to.Policies[0], to.Policies[1] = to.Policies[1], to.Policies[0]
	got, err := Compare(New(from), New(to))
	if err != nil || !got.Reordered || got.Empty() || len(got.Added)+len(got.Removed)+len(got.Changed) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCompareWithItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := validDocument().Draw(t, "a"), validDocument().Draw(t, "b")
		if d, err := Compare(New(a), New(a)); err != nil || !d.Empty() {
			t.Fatalf("%+v, %v", d, err)
		}
		d, err := Compare(New(a), New(b))
		if err != nil {
			t.Fatal(err)
		}
		if same := cmp.Equal(canonical(a), canonical(b)); same != d.Empty() {
			t.Fatalf("equal is %v, and the difference %+v", same, d)
		}
	})
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit enforcement.Limit
		want  string
	}{
		{enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 120, Window: time.Minute, Burst: 20}, "120 per minute, bursts of 20"},
		{enforcement.Limit{Algorithm: enforcement.LeakyBucket, Quota: 10, Window: time.Second, Burst: 30}, "10 per second, in a queue of 30, which waits up to 2.9 seconds"},
		{enforcement.Limit{Algorithm: enforcement.LeakyBucket, Quota: 10, Window: time.Second}, "10 per second, in a queue of 10, which waits up to 900 ms"},
		{enforcement.Limit{Algorithm: enforcement.LeakyBucket, Quota: 1, Window: time.Hour, Burst: 3}, "1 per hour, in a queue of 3, which waits up to 2 hours"},
		{enforcement.Limit{Algorithm: enforcement.LeakyBucket, Quota: 1, Window: time.Hour}, "1 per hour, in a queue of 1"},
		{enforcement.Limit{Algorithm: enforcement.GCRA, Quota: 1200, Window: time.Second}, "1,200 per second, bursts of 1,200"},
		{enforcement.Limit{Algorithm: enforcement.SlidingWindowLog, Quota: 5, Window: time.Minute}, "5 per minute, exact"},
		{enforcement.Limit{Algorithm: enforcement.SlidingWindowCounter, Quota: 5, Window: 24 * time.Hour, Anchor: enforcement.Clock}, "5 per day, sliding, by the clock"},
		{enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 999, Window: 90 * time.Second}, "999 per 90 seconds"},
		{enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 1000, Window: 48 * time.Hour, Anchor: enforcement.Clock}, "1,000 per 2 days, by the clock"},
		{enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 1, Window: time.Millisecond}, "1 per millisecond"},
		{enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 1_000_000_000_000, Window: 1500 * time.Millisecond}, "1,000,000,000,000 per 1,500 milliseconds"},
		{enforcement.Limit{Algorithm: enforcement.Concurrency, Quota: 20, Window: time.Minute}, "20 at the same time, each for up to 1 minute"},
		{enforcement.Limit{Algorithm: enforcement.Concurrency, Quota: 1, Window: 90 * time.Second}, "1 at the same time, each for up to 90 seconds"},
		{enforcement.Limit{Algorithm: enforcement.FixedWindow, Window: time.Minute}, "none: every request is denied"},
	} {
		if got := Describe(c.limit); got != c.want {
			t.Errorf("Describe(%+v) = %q, want %q", c.limit, got, c.want)
		}
	}
}
