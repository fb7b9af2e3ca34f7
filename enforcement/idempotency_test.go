package enforcement_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/limitertest"
)

// keyed returns a check with an idempotency key.
func keyed(key string, c enforcement.Check) enforcement.Check {
	c.IdempotencyKey = key
	return c
}

func peek(c enforcement.Check) enforcement.Check {
	c.Mode = enforcement.Peek
	return c
}

// result returns a decision as one line, with the effect of its idempotency key.
func result(d *enforcement.Decision) string {
	names := [...]string{"", "replayed ", "reused ", "too many keys "}
	return names[d.Idempotency] + summary(d)
}

// idempotent has an engine with a local limiter and a recorder.
type idempotent struct {
	*testing.T
	engine *enforcement.Engine
	shared *faulty
	clock  *limitertest.Clock
	heard  *recorded
	s      *enforcement.Subject
}

func newIdempotent(t *testing.T, cfg enforcement.Config) *idempotent {
	t.Helper()
	w := &idempotent{T: t, clock: limitertest.NewClock(), heard: new(recorded)}
	w.shared = &faulty{Limiter: inprocess.New(inprocess.Config{Now: w.clock.Now})}
	cfg.Recorder, cfg.Local = w.heard, inprocess.New(inprocess.Config{Now: w.clock.Now})
	cfg.Now = func() time.Time { return time.UnixMicro(w.clock.Now()) }
	w.engine = enforcement.NewEngine(w.shared, cfg)
	w.s = subject(t,
		enforcement.RuleSpec{Policy: "s", Path: "/a", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{window(3, 2)}},
		enforcement.RuleSpec{Policy: "p", Path: "/a", CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{window(1, 5), limit("log", 2, enforcement.SlidingWindowLog, 9, time.Minute)}},
	)
	return w
}

// left returns the remaining units of a user, by a peek.
func (w *idempotent) left() string {
	d := decide(w.engine, w.s, peek(asked("", "/a", "user", "u")))
	return fmt.Sprint(d.Limits[1].Remaining, " ", d.Limits[2].Remaining)
}

func TestIdempotentCheck(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *idempotent){
		"no change":  func(*idempotent) {},
		"later":      func(w *idempotent) { w.clock.Advance(9 * time.Minute) },
		"limit used": func(w *idempotent) { decide(w.engine, w.s, asked("", "/a", "user", "u")) },
		"suspended":  func(w *idempotent) { w.s.Suspended = true },
		"denied by list": func(w *idempotent) {
			w.s = addExceptions(w.T, w.s, enforcement.ExceptionSpec{Deny: []enforcement.ListEntry{{ID: "e", Attribute: "user", Value: "u"}}})
		},
		"allowed by list": func(w *idempotent) {
			w.s = addExceptions(w.T, w.s, enforcement.ExceptionSpec{Allow: []enforcement.ListEntry{{ID: "e", Attribute: "user", Value: "u"}}})
		},
		"blocked": func(w *idempotent) {
			w.s = addExceptions(w.T, w.s, enforcement.ExceptionSpec{Blocks: []enforcement.Block{{
				ID: "b", Policy: "p", Key: attributes("user", "u"), Until: w.clock.Now() + 3600*second,
			}}})
		},
		"override": func(w *idempotent) {
			w.s = addExceptions(w.T, w.s, enforcement.ExceptionSpec{Overrides: []enforcement.Override{{
				ID: "o", Policy: "p", Attribute: "user", Value: "u", Factor: 2000, Revision: 9, Until: w.clock.Now() + 3600*second,
			}}})
		},
		"other plan": func(w *idempotent) {
			w.s = subject(w.T, enforcement.RuleSpec{Policy: "q", Limits: []enforcement.RuleLimit{window(4, 1)}})
		},
		"no plan": func(w *idempotent) { w.s = &enforcement.Subject{Tenant: "acme", Number: 7, Home: "t07"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newIdempotent(t, enforcement.Config{})
			check := keyed("k", asked("", "/a", "user", "u"))
			check.Cost = 4
			first := decide(w.engine, w.s, check)
			want := "true ok retry 0 | s false left 2 reset 0 retry -1 | p.l1 true left 1 reset 60000 retry 0 | p.log true left 5 reset 60000 retry 0"
			if diff := cmp.Diff(want, result(first)); diff != "" {
				t.Fatal(diff)
			}
			change(w)
			heard := len(*w.heard)
			again := decide(w.engine, w.s, check)
			if !slices.Contains([]string{"no change", "later", "limit used", "blocked"}, name) {
				want = "true ok retry 0" // other limits apply now, or none
			}
			if diff := cmp.Diff("replayed "+want, result(again)); diff != "" {
				t.Error(diff)
			}
			if again.ID != first.ID {
				t.Errorf("another ID: %x, %x", first.ID, again.ID)
			}
			if len(*w.heard) != heard {
				t.Errorf("a repetition was recorded: %v", *w.heard)
			}
		})
	}
}

// With the same key, a check with any different value is an error.
func TestIdempotencyKeyReused(t *testing.T) {
	t.Parallel()
	w := newIdempotent(t, enforcement.Config{})
	first := keyed("k", asked("GET", "/a", "user", "u", "ip", "192.0.2.1"))
	decide(w.engine, w.s, first)
	left := w.left()
	for name, change := range map[string]func(c *enforcement.Check){
		"method":       func(c *enforcement.Check) { c.Method = "PUT" },
		"path":         func(c *enforcement.Check) { c.Path = "/a/" },
		"other path":   func(c *enforcement.Check) { c.Path = "/none" },
		"cost":         func(c *enforcement.Check) { c.Cost = 2 },
		"default cost": func(c *enforcement.Check) { c.DefaultCost = true },
		"mode":         func(c *enforcement.Check) { c.Mode = enforcement.Force },
		"lease":        func(c *enforcement.Check) { c.Lease = "job-1" },
		"lease ttl":    func(c *enforcement.Check) { c.LeaseTTL = time.Minute },
		"refundable":   func(c *enforcement.Check) { c.Refundable = true },
		"sent limit": func(c *enforcement.Check) {
			c.SentLimit = enforcement.SentLimit{Quota: 9, Window: time.Minute}
		},
		"value":    func(c *enforcement.Check) { c.Attributes = attributes("user", "v", "ip", "192.0.2.1") },
		"name":     func(c *enforcement.Check) { c.Attributes = attributes("uses", "u", "ip", "192.0.2.1") },
		"one less": func(c *enforcement.Check) { c.Attributes = attributes("user", "u") },
		"one more": func(c *enforcement.Check) { c.Attributes = attributes("user", "u", "ip", "192.0.2.1", "x", "") },
	} {
		c := first
		change(&c)
		if got := result(decide(w.engine, w.s, c)); got != "reused false  retry 0" {
			t.Errorf("%s: %s", name, got)
		}
	}
	other := first
	other.Attributes = attributes("ip", "192.0.2.1", "user", "u")
	if d := decide(w.engine, w.s, other); d.Idempotency != enforcement.Replayed {
		t.Errorf("attributes in another order: %s", result(d))
	}
	if got := w.left(); got != left {
		t.Errorf("left %s, then %s", left, got)
	}
	if got := fmt.Sprint(*w.heard); got != "[ok]" {
		t.Errorf("recorded %s", got)
	}
}

// Denials, peeks and checks without charges keep no key.
func TestIdempotencyKeyStaysNew(t *testing.T) {
	t.Parallel()
	w := newIdempotent(t, enforcement.Config{})
	much := keyed("k", asked("", "/a", "user", "u"))
	much.Cost = 6
	for range 2 {
		if got := decide(w.engine, w.s, much); got.Allowed || got.Idempotency != enforcement.NotRepeated {
			t.Errorf("denied: %s", result(got))
		}
		for _, c := range []enforcement.Check{peek(keyed("k", asked("", "/a", "user", "u"))), keyed("k", asked("", "/none"))} {
			if got := decide(w.engine, w.s, c); !got.Allowed || got.Idempotency != enforcement.NotRepeated {
				t.Errorf("allowed: %s", result(got))
			}
		}
	}
	c := keyed("k", asked("", "/a", "user", "u"))
	decide(w.engine, w.s, c)
	if d := decide(w.engine, w.s, peek(c)); d.Idempotency != enforcement.KeyReused {
		t.Errorf("a peek with the key of a charge: %s", result(d))
	}
	w.clock.Advance(enforcement.IdempotencyPeriod)
	if d := decide(w.engine, w.s, c); d.Idempotency != enforcement.NotRepeated || d.Limits[1].Remaining != 4 {
		t.Errorf("after the period: %s", result(d))
	}
}

func TestIdempotencyKeysAreBounded(t *testing.T) {
	t.Parallel()
	w := newIdempotent(t, enforcement.Config{IdempotencyKeys: 2})
	check := func(key string) enforcement.Check { return keyed(key, asked("", "/a", "user", "u")) }
	for _, key := range []string{"1", "2", "1", "2"} {
		if d := decide(w.engine, w.s, check(key)); !d.Allowed {
			t.Fatal(key, result(d))
		}
	}
	w.clock.Advance(time.Second)
	if got := result(decide(w.engine, w.s, check("3"))); got != "too many keys false  retry 599000" {
		t.Errorf("a third key: %s", got)
	}
	if got := w.left(); got != "2 6" {
		t.Errorf("left %s", got)
	}
	if d := decide(w.engine, w.s, check("1")); d.Idempotency != enforcement.Replayed {
		t.Errorf("a known key: %s", result(d))
	}
	if d := decide(w.engine, w.s, asked("", "/a", "user", "u")); !d.Allowed {
		t.Errorf("no key: %s", result(d))
	}
	if d := decide(w.engine, w.s, peek(check("7"))); !d.Allowed || d.Idempotency != enforcement.NotRepeated || len(d.Limits) == 0 {
		t.Errorf("a peek, which needs no record: %s", result(d))
	}
	forced := check("4")
	forced.Mode = enforcement.Force
	if d := decide(w.engine, w.s, forced); !d.Allowed {
		t.Errorf("forced: %s", result(d))
	}
	much := check("5")
	much.Cost = 9
	if d := decide(w.engine, w.s, much); d.Reason != enforcement.ReasonCostExceedsQuota {
		t.Errorf("a limit denies too: %s", result(d))
	}
	items := []enforcement.BatchItem{
		{Subject: w.s, Check: new(keyed("6", asked("", "/a", "user", "v"))), Decision: new(enforcement.Decision)},
		{Subject: w.s, Check: new(asked("", "/a", "user", "v")), Decision: new(enforcement.Decision)},
	}
	w.engine.DecideBatch(context.Background(), items, true)
	for i := range items {
		if got := result(items[i].Decision); got != "too many keys false  retry 599000" {
			t.Errorf("check %d of an atomic batch: %s", i, got)
		}
	}
	other := *w.s
	other.Number = 8
	if d := decide(w.engine, &other, check("3")); !d.Allowed {
		t.Errorf("another tenant: %s", result(d))
	}
	w.shared.down = true
	for i, want := range []bool{true, true, false} {
		c := check(fmt.Sprint("local", i))
		if d := decide(w.engine, local(t), c); d.Allowed != want || !d.Degraded {
			t.Errorf("local %d: %s", i, result(d))
		}
	}
}

// The record of a batch has the states of all its limits. Its key counts more towards the bound
// than that of a single check.
func TestIdempotencyKeyOfALargeBatch(t *testing.T) {
	t.Parallel()
	l := newCounters()
	e := enforcement.NewEngine(l, enforcement.Config{})
	var limits []enforcement.RuleLimit
	for i := range uint32(8) {
		limits = append(limits, window(i+1, 1000))
	}
	s := subject(t, enforcement.RuleSpec{Policy: "p", Limits: limits})
	for checks, want := range map[int]int64{1: 1, 2: 2, 100: 100} {
		items := make([]enforcement.BatchItem, checks)
		for i := range items {
			items[i] = enforcement.BatchItem{Subject: s, Check: new(enforcement.Check{Cost: 1}), Decision: new(enforcement.Decision)}
		}
		items[0].Check.IdempotencyKey = "k"
		e.DecideBatch(context.Background(), items, true)
		c := l.asked[0].Charges[0]
		if c.Key.Cell != enforcement.IdempotencyCell || c.Cost != want || c.Meter.Quota != 100_000 {
			t.Errorf("%d checks: %+v", checks, c)
		}
		if !items[0].Decision.Allowed || items[0].Decision.Limits[0].Limit.Cell != 1 {
			t.Errorf("%d checks: %s", checks, summary(items[0].Decision))
		}
	}
}

// If a tenant sends a million new keys, only its own bound is reached. Other tenants are not
// affected.
func TestAMillionIdempotencyKeys(t *testing.T) {
	t.Parallel()
	limiter := inprocess.New(inprocess.Config{Now: limitertest.NewClock().Now})
	e := enforcement.NewEngine(limiter, enforcement.Config{})
	s := subject(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{window(1, 1<<30)}})
	other := *s
	other.Number = 8
	granted := 0
	var d enforcement.Decision
	for i := range 1_000_000 {
		e.Decide(t.Context(), s, &enforcement.Check{Cost: 1, IdempotencyKey: strconv.Itoa(i)}, &d)
		switch {
		case d.Allowed:
			granted++
		case d.Idempotency != enforcement.TooManyKeys:
			t.Fatalf("key %d: %s", i, result(&d))
		}
		if i%10_000 == 0 {
			if e.Decide(t.Context(), &other, &enforcement.Check{Cost: 1, IdempotencyKey: strconv.Itoa(i)}, &d); !d.Allowed {
				t.Fatalf("another tenant, key %d: %s", i, result(&d))
			}
		}
	}
	live, _ := limiter.KeysOf(s.Number, 0)
	if granted != 100_000 || live != 100_002 { // including the counters of the limit and of the keys
		t.Errorf("%d keys were granted; the tenant has %d counters", granted, live)
	}
}

// local returns a subject whose policy has the failure mode local.
func local(t *testing.T) *enforcement.Subject {
	return subject(t, enforcement.RuleSpec{
		Policy: "p", Path: "/a", OnFailure: enforcement.OnFailureLocal, CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{window(1, 5)},
	})
}

// While the shared limiter is unavailable, the local limiter keeps the keys.
func TestIdempotentFallback(t *testing.T) {
	t.Parallel()
	w := newIdempotent(t, enforcement.Config{})
	w.s, w.shared.down = local(t), true
	c := keyed("k", asked("", "/a", "user", "u"))
	first := decide(w.engine, w.s, c)
	again := decide(w.engine, w.s, c)
	if diff := cmp.Diff("true ok retry 0 degraded | p true left 4 reset 60000 retry 0", result(first)); diff != "" {
		t.Error(diff)
	}
	if result(again) != "replayed "+result(first) || again.ID != first.ID {
		t.Errorf("again: %s", result(again))
	}
	other := c
	other.Cost = 2
	if d := decide(w.engine, w.s, other); d.Idempotency != enforcement.KeyReused || len(d.Limits) > 0 {
		t.Errorf("another check: %s", result(d))
	}
	if d := decide(w.engine, w.s, peek(asked("", "/a", "user", "u"))); d.Limits[0].Remaining != 3 {
		t.Errorf("left: %s", result(d))
	}
	open := subject(t, enforcement.RuleSpec{Policy: "p", Path: "/a", OnFailure: enforcement.OnFailureOpen, Limits: []enforcement.RuleLimit{window(1, 5)}})
	closed := subject(t, enforcement.RuleSpec{Policy: "p", Path: "/a", OnFailure: enforcement.OnFailureClosed, Limits: []enforcement.RuleLimit{window(1, 5)}})
	for range 2 {
		if d := decide(w.engine, open, keyed("open", asked("", "/a"))); !d.Allowed || !d.Degraded || d.Idempotency != enforcement.NotRepeated {
			t.Errorf("open: %s", result(d))
		}
		if d := decide(w.engine, closed, keyed("closed", asked("", "/a"))); d.Reason != enforcement.ReasonLimiterUnavailable || d.Idempotency != enforcement.NotRepeated {
			t.Errorf("closed: %s", result(d))
		}
	}
	if got := fmt.Sprint(*w.heard); got != "[ok ok limiter_unavailable ok limiter_unavailable]" {
		t.Errorf("recorded %s", got)
	}
}

// While the shared limiter is unavailable, a repetition has the lease of the first decision, which holds
// the places.
func TestIdempotentFallbackOfALease(t *testing.T) {
	t.Parallel()
	w := newIdempotent(t, enforcement.Config{})
	w.s = subject(t, enforcement.RuleSpec{
		Policy: "p", Path: "/a", OnFailure: enforcement.OnFailureLocal, Limits: []enforcement.RuleLimit{places(1, 2)},
	})
	w.shared.down = true
	first := decide(w.engine, w.s, keyed("k", asked("", "/a")))
	again := decide(w.engine, w.s, keyed("k", asked("", "/a")))
	if first.Lease == "" || again.Idempotency != enforcement.Replayed || again.Lease != first.Lease || again.ID != first.ID {
		t.Errorf("the first decision has the lease %q, the repetition %q", first.Lease, again.Lease)
	}
}

// An atomic batch has the key of its first check.
func TestIdempotentAtomicBatch(t *testing.T) {
	t.Parallel()
	w := newIdempotent(t, enforcement.Config{})
	decideAll := func(checks ...enforcement.Check) (all []string, ids [][16]byte) {
		var items []enforcement.BatchItem
		for i := range checks {
			items = append(items, enforcement.BatchItem{Subject: w.s, Check: &checks[i], Decision: new(enforcement.Decision)})
		}
		w.engine.DecideBatch(context.Background(), items, true)
		for i := range items {
			all, ids = append(all, result(items[i].Decision)), append(ids, items[i].Decision.ID)
		}
		return all, ids
	}
	user := func(name string, cost int64) enforcement.Check {
		c := asked("", "/a", "user", name)
		c.Cost = cost
		return c
	}
	denied, _ := decideAll(keyed("k", user("u", 3)), user("v", 6))
	if len(*w.heard) != 2 || strings.Contains(denied[0], "replayed") {
		t.Errorf("denied: %v", denied)
	}
	first, ids := decideAll(keyed("k", user("u", 3)), user("v", 2), asked("", "/none"))
	left := w.left()
	again, ids2 := decideAll(keyed("k", user("u", 3)), user("v", 2), asked("", "/none"))
	for i := range first {
		first[i] = "replayed " + first[i]
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Error(diff)
	}
	for i := range ids2 {
		if ids2[i][6]>>4 != 7 || ids2[i][8]>>6 != 2 || i > 0 && ids2[i] == ids2[0] {
			t.Errorf("ID %d: %x", i, ids2[i])
		}
	}
	_, ids3 := decideAll(keyed("k", user("u", 3)), user("v", 2), asked("", "/none"))
	if ids2[0] != ids[0] || fmt.Sprint(ids2) != fmt.Sprint(ids3) {
		t.Errorf("IDs %x, %x, %x", ids, ids2, ids3)
	}
	for _, checks := range [][]enforcement.Check{
		{keyed("k", user("u", 3))},
		{keyed("k", user("u", 3)), user("v", 2), asked("", "/none"), asked("", "/none")},
		{keyed("k", user("v", 2)), user("u", 3), asked("", "/none")},
	} {
		got, _ := decideAll(checks...)
		for i := range got {
			if got[i] != "reused false  retry 0" {
				t.Errorf("another batch of %d: %v", len(checks), got)
			}
		}
	}
	w.s.Suspended = true
	if got, _ := decideAll(keyed("k", user("u", 3)), user("v", 2), asked("", "/none")); got[0] != "replayed true ok retry 0" || got[2] != "replayed true ok retry 0" {
		t.Errorf("suspended: %v", got)
	}
	w.s.Suspended = false
	if got := w.left(); got != left {
		t.Errorf("left %s, then %s", left, got)
	}
	if len(*w.heard) != 5 {
		t.Errorf("recorded %v", *w.heard)
	}
}

// A repetition after the middle or the end of a calendar window has the limits of the first decision.
func TestIdempotencyAcrossCalendarWindows(t *testing.T) {
	t.Parallel()
	berlin, err := enforcement.NewCalendar("Europe/Berlin", 15)
	if err != nil {
		t.Fatal(err)
	}
	for _, period := range []enforcement.Period{enforcement.Day, enforcement.Week, enforcement.Month, enforcement.Quarter, enforcement.Year} {
		w := newIdempotent(t, enforcement.Config{})
		l := enforcement.Limit{Name: "l", Algorithm: enforcement.FixedWindow, Quota: 5, Window: period.Longest(), Period: period, Anchor: period.DefaultAnchor()}
		w.s = subject(t, enforcement.RuleSpec{Policy: "p", Path: "/a", Limits: []enforcement.RuleLimit{{Limit: l, Cell: 1, Meter: l.Compile(1)}}})
		w.s.Calendar = berlin
		start, end := berlin.Window(period, time.Monday, time.UnixMicro(w.clock.Now()))
		for _, at := range []time.Time{start.Add(end.Sub(start) / 2), end} {
			w.clock.Set(at.Add(-time.Minute).UnixMicro())
			check := keyed(at.String(), asked("", "/a"))
			first := decide(w.engine, w.s, check)
			w.clock.Set(at.Add(time.Minute).UnixMicro())
			again := decide(w.engine, w.s, check)
			if result(again) != "replayed "+result(first) || len(again.Limits) != 1 {
				t.Errorf("%s at %s: %s, then %s", period, at, result(first), result(again))
			}
		}
		// Another calendar is another limit.
		w.s.Calendar = nil
		if d := decide(w.engine, w.s, keyed(end.String(), asked("", "/a"))); d.Idempotency != enforcement.Replayed || len(d.Limits) != 0 {
			t.Errorf("%s in another zone: %s", period, result(d))
		}
	}
}
