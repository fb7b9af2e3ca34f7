package enforcement_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/limitertest"
)

// places returns a concurrency limit with leases of a minute.
func places(cell uint32, quota int64) enforcement.RuleLimit {
	return limit("places", cell, enforcement.Concurrency, quota, time.Minute)
}

// holders has an engine whose shared limiter can be made unavailable.
type holders struct {
	*testing.T
	engine *enforcement.Engine
	shared *faulty
	clock  *limitertest.Clock
	s      *enforcement.Subject
}

func newHolders(t *testing.T, specs ...enforcement.RuleSpec) *holders {
	t.Helper()
	w := &holders{T: t, clock: limitertest.NewClock(), s: subject(t, specs...)}
	w.shared = &faulty{Limiter: inprocess.New(inprocess.Config{Now: w.clock.Now})}
	local := inprocess.New(inprocess.Config{Now: w.clock.Now})
	w.engine = enforcement.NewEngine(w.shared, enforcement.Config{
		Local: local, Memory: local, Nodes: 2, Now: func() time.Time { return time.UnixMicro(w.clock.Now()) },
	})
	return w
}

func (w *holders) check(lease string, attribute ...string) *enforcement.Decision {
	return decide(w.engine, w.s, enforcement.Check{Path: "/a", Cost: 1, Lease: lease, Attributes: attributes(attribute...)})
}

func (w *holders) release(lease string, attribute ...string) int64 {
	w.Helper()
	c := &enforcement.Check{Path: "/a", Lease: lease, Attributes: attributes(attribute...)}
	units, err := w.engine.Release(context.Background(), w.s, c)
	if err != nil {
		w.Fatal(err)
	}
	return units
}

func TestLease(t *testing.T) {
	t.Parallel()
	w := newHolders(t, enforcement.RuleSpec{Policy: "jobs", CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{places(1, 2), window(2, 5)}})
	d := w.check("first", "user", "u")
	wantSummary(t, d, "true ok retry 0 | jobs.places true left 1 reset 60000 retry 0 | jobs.l2 true left 4 reset 60000 retry 0")
	if d.Lease != "first" {
		t.Errorf("lease %q", d.Lease)
	}
	own := w.check("", "user", "u")
	if own.Lease != uuid.UUID(own.ID).String() {
		t.Errorf("lease %q of decision %x", own.Lease, own.ID)
	}
	w.clock.Set(w.clock.Now() + 10_000_000)
	d = w.check("third", "user", "u")
	wantSummary(t, d, "false over_limit retry 50000 | jobs.places false left 0 reset 50000 retry 50000 | jobs.l2 true left 3 reset 50000 retry 0")
	if d.Lease != "" {
		t.Errorf("a denied check has the lease %q", d.Lease)
	}
	wantSummary(t, w.check("first", "user", "u"),
		"true ok retry 0 | jobs.places true left 0 reset 60000 retry 0 | jobs.l2 true left 2 reset 50000 retry 0")
	if n := w.release(own.Lease, "user", "v"); n != 0 {
		t.Errorf("released %d places of another key", n)
	}
	for want := int64(1); want >= 0; want-- {
		if n := w.release(own.Lease, "user", "u"); n != want {
			t.Errorf("released %d, want %d", n, want)
		}
	}
	w.clock.Set(w.clock.Now() + 60_000_000)
	if n := w.release("first", "user", "u"); n != 0 {
		t.Errorf("released %d places of a lease that has ended", n)
	}
	if got, want := w.engine.LeaseCounts(), (enforcement.LeaseCounts{Held: 3, Released: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A lease has the time to live that the check sets. A check of policies without a concurrency
// limit has no lease.
func TestLeaseTimeToLive(t *testing.T) {
	t.Parallel()
	w := newHolders(t, enforcement.RuleSpec{Policy: "jobs", Limits: []enforcement.RuleLimit{places(1, 1)}})
	d := decide(w.engine, w.s, enforcement.Check{Path: "/a", Cost: 1, LeaseTTL: 1500 * time.Millisecond})
	wantSummary(t, d, "true ok retry 0 | jobs true left 0 reset 1500 retry 0")
	wantSummary(t, w.check("b"), "false over_limit retry 1500 | jobs false left 0 reset 1500 retry 1500")
	w.clock.Set(w.clock.Now() + 1_500_000)
	wantSummary(t, w.check("b"), "true ok retry 0 | jobs true left 0 reset 60000 retry 0")
	if d := decide(w.engine, w.s, enforcement.Check{Path: "/a", Lease: "b"}); d.Lease != "" {
		t.Errorf("a check of cost 0 has the lease %q", d.Lease)
	}
}

// A release ends the lease on all policies that match, also if their mode changed meanwhile.
func TestReleaseOfEveryPolicy(t *testing.T) {
	t.Parallel()
	spec := func(mode enforcement.PolicyMode) []enforcement.RuleSpec {
		return []enforcement.RuleSpec{
			{Policy: "enforced", Path: "/a", Limits: []enforcement.RuleLimit{places(1, 3)}},
			{Policy: "changed", Path: "/*", Mode: mode, Limits: []enforcement.RuleLimit{places(2, 3)}},
			{Policy: "other", Path: "/other", Limits: []enforcement.RuleLimit{places(3, 3)}},
		}
	}
	for _, was := range []enforcement.PolicyMode{enforcement.PolicyEnforce, enforcement.PolicyShadow} {
		for _, now := range []enforcement.PolicyMode{enforcement.PolicyEnforce, enforcement.PolicyShadow, enforcement.PolicyOff} {
			w := newHolders(t, spec(was)...)
			w.check("x")
			w.s = subject(t, spec(now)...)
			if n := w.release("x"); n != 2 {
				t.Errorf("from %s to %s: released %d places, want 2", was, now, n)
			}
		}
	}
}

// The checks of an atomic batch hold their places under one lease: that of the first.
func TestLeaseOfAtomicBatch(t *testing.T) {
	t.Parallel()
	w := newHolders(t, enforcement.RuleSpec{Policy: "jobs", Limits: []enforcement.RuleLimit{places(1, 3)}})
	batch := func(lease string, n int) (out []*enforcement.Decision) {
		var items []enforcement.BatchItem
		for range n {
			d := new(enforcement.Decision)
			items = append(items, enforcement.BatchItem{Subject: w.s, Check: &enforcement.Check{Path: "/a", Cost: 1, Lease: lease}, Decision: d})
			out = append(out, d)
		}
		w.engine.DecideBatch(context.Background(), items, true)
		return out
	}
	first := batch("", 2)
	if first[0].Lease != uuid.UUID(first[0].ID).String() || first[1].Lease != first[0].Lease {
		t.Errorf("leases %q and %q of %x", first[0].Lease, first[1].Lease, first[0].ID)
	}
	if d := batch("b", 2); d[0].Allowed || d[1].Allowed || d[0].Lease != "" {
		t.Errorf("a batch of 2 with 1 place free: %s", summary(d[0]))
	}
	if n := w.release(first[0].Lease); n != 2 {
		t.Errorf("released %d places", n)
	}
	if d := batch("b", 3); !d[2].Allowed {
		t.Errorf("all places are free: %s", summary(d[2]))
	}
}

// A repetition of an idempotent check has the lease of the first one.
func TestLeaseOfIdempotentCheck(t *testing.T) {
	t.Parallel()
	w := newHolders(t, enforcement.RuleSpec{Policy: "jobs", Limits: []enforcement.RuleLimit{places(1, 3)}})
	ask := func(lease string) *enforcement.Decision {
		return decide(w.engine, w.s, keyed("k", enforcement.Check{Path: "/a", Cost: 1, Lease: lease}))
	}
	first, again := ask(""), ask("")
	if first.Lease == "" || again.Idempotency != enforcement.Replayed || again.Lease != first.Lease {
		t.Errorf("lease %q, then %q", first.Lease, again.Lease)
	}
	if d := ask("other"); d.Idempotency != enforcement.KeyReused {
		t.Errorf("another lease is another request: %v", d.Idempotency)
	}
	if n := w.release(again.Lease); n != 1 {
		t.Errorf("released %d places", n)
	}
}

// While the shared limiter is unavailable, this node has its share of the free places. A lease
// from that time can be released on this node, also when the shared limiter is available again.
func TestLeaseWhileLimiterIsAway(t *testing.T) {
	t.Parallel()
	w := newHolders(t, enforcement.RuleSpec{Policy: "jobs", Limits: []enforcement.RuleLimit{places(1, 6)}})
	w.check("a")
	w.check("b") // 4 are free, 2 for each of 2 nodes
	w.shared.down = true
	var allowed []bool
	for _, id := range []string{"c", "d", "e"} {
		allowed = append(allowed, w.check(id).Allowed)
	}
	if !slices.Equal(allowed, []bool{true, true, false}) {
		t.Errorf("allowed %v", allowed)
	}
	if n := w.release("c"); n != 1 {
		t.Errorf("released %d places", n)
	}
	if d := w.check("e"); !d.Allowed || !d.Degraded || d.Lease != "e" {
		t.Errorf("%s, lease %q", summary(d), d.Lease)
	}
	if _, err := w.engine.Release(context.Background(), w.s, &enforcement.Check{Path: "/a", Lease: "a"}); err == nil {
		t.Error("a lease in the shared limiter was released while that is away")
	}
	w.shared.down = false
	if n := w.release("d"); n != 1 {
		t.Errorf("released %d places", n)
	}
	if n := w.release("a"); n != 1 {
		t.Errorf("released %d places", n)
	}
}

// A blocked check holds nothing. A forced one holds its place beyond the quota.
func TestLeaseOfBlockedAndForced(t *testing.T) {
	t.Parallel()
	w := newHolders(t, enforcement.RuleSpec{Policy: "jobs", Limits: []enforcement.RuleLimit{places(1, 1)}})
	plain := w.s
	w.s = addExceptions(t, plain, enforcement.ExceptionSpec{
		Blocks: []enforcement.Block{{ID: "b", Policy: "jobs", Until: w.clock.Now() + 60_000_000}},
	})
	if d := w.check("a"); d.Allowed || d.Lease != "" {
		t.Errorf("%s, lease %q", summary(d), d.Lease)
	}
	w.s = plain
	wantSummary(t, w.check("b"), "true ok retry 0 | jobs true left 0 reset 60000 retry 0")
	d := decide(w.engine, w.s, enforcement.Check{Path: "/a", Cost: 1, Lease: "c", Mode: enforcement.Force})
	wantSummary(t, d, "true ok retry 0 | jobs false left 0 reset 60000 retry 0")
	if d.Lease != "c" || w.release("c") != 1 {
		t.Errorf("lease %q", d.Lease)
	}
}

func TestLeaseID(t *testing.T) {
	t.Parallel()
	id := "0197c5d6-0000-7000-8000-00000000002a"
	if got := enforcement.LeaseID(id); uuid.UUID(got).String() != id {
		t.Errorf("%s became %x", id, got)
	}
	seen := map[[16]byte]string{}
	for _, text := range []string{id, "123456789012345", "1234567890123456", "a\x00", strings.Repeat("a", 200), "0197C5D6-0000-7000-8000-00000000002A", id[:35], id + " ", "a", "A", "", "0197c5d6x0000-7000-8000-00000000002a"} {
		got := enforcement.LeaseID(text)
		if other, known := seen[got]; known {
			t.Errorf("%q and %q are one lease", text, other)
		}
		seen[got] = text
		shown := enforcement.LeaseText(got)
		if short := text != "" && len(text) <= 15; (short || text == id) != (shown == text) {
			t.Errorf("%q is shown as %q", text, shown)
		}
		if enforcement.LeaseID(shown) != got {
			t.Errorf("%q is shown as %q, which is another lease", text, shown)
		}
	}
}

// A UUID that has the same form as the ID of a short text is treated as a text.
func TestLeaseIDOfMarkedUUID(t *testing.T) {
	t.Parallel()
	short := enforcement.LeaseID("job-42")
	marked := uuid.UUID(short).String()
	if got := enforcement.LeaseID(marked); got == short || enforcement.LeaseID(enforcement.LeaseText(got)) != got {
		t.Errorf("%s became %x, and job-42 is %x", marked, got, short)
	}
}

func FuzzLeaseID(f *testing.F) {
	f.Add("job-42", "0197c5d6-0000-7000-8000-00000000002a")
	f.Add("", "6a6f622d-3432-0000-f600-000000000000")
	f.Fuzz(func(t *testing.T, a, b string) {
		if x, y := enforcement.LeaseID(a), enforcement.LeaseID(b); x == y && a != b && enforcement.LeaseText(x) != a && enforcement.LeaseText(x) != b {
			t.Errorf("%q and %q are one lease", a, b)
		}
		if x := enforcement.LeaseID(a); enforcement.LeaseID(enforcement.LeaseText(x)) != x {
			t.Errorf("%q is shown as %q", a, enforcement.LeaseText(x))
		}
	})
}

// Leases that this node granted while the shared limiter was unavailable are charged there
// later, under the same IDs and for the rest of their time to live. Then their holders can
// renew and release them.
func TestLeasesAreChargedLater(t *testing.T) {
	t.Parallel()
	w := newHolders(t, enforcement.RuleSpec{Policy: "jobs", Limits: []enforcement.RuleLimit{places(1, 6)}})
	w.check("before")
	w.shared.down = true
	for _, id := range []string{"released", "kept"} {
		if d := w.check(id); !d.Allowed || !d.Degraded {
			t.Errorf("%s: %s", id, summary(d))
		}
	}
	w.clock.Set(w.clock.Now() + 10_000_000)
	if d := w.check("kept"); !d.Allowed || !d.Degraded {
		t.Errorf("renewed: %s", summary(d))
	}
	w.release("released")
	if got := w.engine.OutageJournal(); got.Keys != 1 {
		t.Errorf("%+v", got)
	}
	w.clock.Set(w.clock.Now() + 20_000_000)
	w.shared.down = false
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.engine.RunOutageJournal(ended); err != nil { // one attempt to charge
		t.Fatal(err)
	}
	if got := w.engine.OutageJournal(); got.Keys != 0 || got.Charged != 1 {
		t.Errorf("%+v", got)
	}
	// "before" ends 60 s after the start, and "kept" 70 s.
	wantSummary(t, decide(w.engine, w.s, enforcement.Check{Path: "/a", Lease: "x"}), "true ok retry 0 | jobs true left 4 reset 40000 retry 0")
	w.s = subject(t, enforcement.RuleSpec{Policy: "jobs", Limits: []enforcement.RuleLimit{places(1, 6)}})
	if n := w.release("kept"); n != 1 {
		t.Errorf("released %d places", n)
	}
	wantSummary(t, decide(w.engine, w.s, enforcement.Check{Path: "/a", Lease: "x"}), "true ok retry 0 | jobs true left 5 reset 30000 retry 0")
}
