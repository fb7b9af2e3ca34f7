package metrics

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
)

// at is when decisions of tests are made.
var at = time.Date(2026, 11, 21, 9, 30, 15, 0, time.UTC)

// idAt makes ids of an instant; the last byte says whether what remains is looked at.
func idAt(when time.Time, n uint64, last byte) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:8], uint64(when.UnixMilli())<<16|0x7000)
	binary.BigEndian.PutUint64(id[8:], n<<8|1<<63)
	id[15] = last
	return id
}

// spec makes a policy with limits of so much a minute.
func spec(slug, path string, mode enforcement.PolicyMode, countBy []string, quotas ...int64) enforcement.RuleSpec {
	s := enforcement.RuleSpec{Policy: slug, Path: path, Mode: mode, CountBy: countBy}
	for i, quota := range quotas {
		window := time.Minute << i
		l := enforcement.Limit{Name: fmt.Sprint("l", i+1), Algorithm: enforcement.FixedWindow, Quota: quota, Window: window}
		s.Limits = append(s.Limits, enforcement.RuleLimit{Limit: l, Meter: l.Compile(1)})
	}
	return s
}

func compile(t testing.TB, specs ...enforcement.RuleSpec) *enforcement.Plan {
	t.Helper()
	cell := uint32(0)
	for i := range specs {
		for k := range specs[i].Limits {
			cell++
			specs[i].Limits[k].Cell = cell
		}
	}
	plan, err := enforcement.CompilePlan("pro", 3, specs)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// away is a limiter that cannot be reached.
type away struct{}

func (away) Take(_ context.Context, _ []enforcement.Request, outcomes []enforcement.Outcome) {
	for i := range outcomes {
		outcomes[i].Verdict, outcomes[i].Err = enforcement.Failed, enforcement.ErrNotReached
	}
}

// engineOf makes an engine whose decisions all are of the instant at.
func engineOf(l, local enforcement.Limiter, r enforcement.Recorder) *enforcement.Engine {
	var n atomic.Uint64
	return enforcement.NewEngine(l, enforcement.Config{
		Local: local, Recorder: r,
		Now:   func() time.Time { return at },
		NewID: func() [16]byte { i := n.Add(1); return idAt(at, i, byte(i)) },
	})
}

func fixedLimiter() enforcement.Limiter {
	return inprocess.New(inprocess.Config{Now: at.UnixMicro})
}

func decide(e *enforcement.Engine, s *enforcement.Subject, mode enforcement.Mode, path string, cost int64, attributes ...string) *enforcement.Decision {
	c := &enforcement.Check{Method: "GET", Path: path, Cost: cost, Mode: mode}
	for i := 0; i < len(attributes); i += 2 {
		c.Attributes = append(c.Attributes, enforcement.Attribute{Name: attributes[i], Value: attributes[i+1]})
	}
	d := new(enforcement.Decision)
	e.Decide(context.Background(), s, c, d)
	return d
}

// minute of the tests' instant.
const minute = 1_795_253_400

// of gives the counts of a row; none is all zero.
func (o *drained) of(tenant uint32, kind Kind, name string) Counts {
	if c := o.counts[CountKey{minute, tenant, kind, name}]; c != nil {
		return *c
	}
	return Counts{}
}

// sum of the fields that every decision is in once.
func (c *Counts) sum() int64 {
	return c.Allowed() + c.Limited() + c.OtherPolicy + c.Blocked + c.DeniedByList + c.MissingAttribute +
		c.DeniedUnmatched + c.Suspended + c.BatchRefused + c.Unavailable
}

func TestADecisionCountsForTenantRouteAndPolicies(t *testing.T) {
	t.Parallel()
	if at.Truncate(time.Minute).Unix() != minute {
		t.Fatal("the minute is another one")
	}
	denying := spec("needs-org", "/org/*", enforcement.PolicyEnforce, []string{"org"}, 5)
	denying.Missing = enforcement.MissingDeny
	plan := compile(t,
		spec("all", "", enforcement.PolicyEnforce, nil, 100),
		spec("per-user", "/a/{id}", enforcement.PolicyEnforce, []string{"user"}, 2, 100),
		spec("strict", "/a/*", enforcement.PolicyShadow, []string{"user"}, 1),
		spec("exempt", "/a/*", enforcement.PolicyEnforce, []string{"user"}),
		denying,
	)
	tenant := &enforcement.Subject{Tenant: "acme", Number: 7, Plan: plan}
	r := NewRecorder(Config{})
	e := engineOf(fixedLimiter(), nil, r)
	for range 3 {
		decide(e, tenant, enforcement.Enforce, "/a/1", 1, "user", "u1") // 2 pass; the second is one too many for strict
	}
	decide(e, tenant, enforcement.Enforce, "/a/1", 3, "user", "u2")  // never fits per-user
	decide(e, tenant, enforcement.Enforce, "/org/x", 1)              // org is missing
	decide(e, tenant, enforcement.Enforce, "/org/x", 1, "org", "o1") // passes
	decide(e, tenant, enforcement.Enforce, "/else", 4)               // passes
	decide(e, tenant, enforcement.Force, "/a/9", 5, "user", "u1")    // beyond every limit, but done
	decide(e, tenant, enforcement.Peek, "/a/9", 5, "user", "u1")     // counts nowhere
	got := r.drain()
	for _, c := range []struct {
		kind Kind
		name string
		want Counts
	}{
		{KindTotal, "", Counts{Requests: 8, OK: 5, OverLimit: 1, NeverFits: 1, MissingAttribute: 1, ShadowRefused: 1, Forced: 1, Cost: 12}},
		{KindRoute, "/a/*", Counts{Requests: 5, OK: 3, OverLimit: 1, NeverFits: 1, ShadowRefused: 1, Forced: 1, Cost: 7}},
		{KindRoute, "/org/*", Counts{Requests: 2, OK: 1, MissingAttribute: 1, Cost: 1}},
		{KindRoute, "*", Counts{Requests: 1, OK: 1, Cost: 4}},
		{KindPolicy, "all", Counts{Requests: 8, OK: 5, OtherPolicy: 3, Forced: 1, Cost: 12}},
		{KindPolicy, "per-user", Counts{Requests: 5, OK: 3, OverLimit: 1, NeverFits: 1, Forced: 1, Cost: 7}},
		{KindPolicy, "strict", Counts{Requests: 5, OK: 3, OtherPolicy: 2, ShadowRefused: 1, Forced: 1, Cost: 6}},
		{KindPolicy, "exempt", Counts{Requests: 5, OK: 3, OtherPolicy: 2, Forced: 1}},
		{KindPolicy, "needs-org", Counts{Requests: 2, OK: 1, MissingAttribute: 1, Cost: 1}},
	} {
		if have := got.of(7, c.kind, c.name); have != c.want {
			t.Errorf("%s %q:\n%+v, want\n%+v", c.kind, c.name, have, c.want)
		}
	}
	if again := r.drain(); len(again.counts) != 0 || len(again.sketches) != 0 || len(again.refusals) != 0 {
		t.Errorf("drained twice: %v", again.counts)
	}
	for tenant, want := range map[uint32]int{0: 0, 7: 9} {
		n := 0
		for key := range got.counts {
			if key.Tenant == tenant {
				n++
			}
		}
		if n != want {
			t.Errorf("tenant %d has %d rows, want %d", tenant, n, want)
		}
	}
	got.together()
	for key, c := range got.counts {
		if key.Tenant == 7 && got.of(0, key.Kind, key.Name) != *c || c.sum() != c.Requests {
			t.Errorf("%v: %+v", key, c)
		}
	}
}

func TestEveryReasonIsCounted(t *testing.T) {
	t.Parallel()
	closed := spec("closed", "/closed", enforcement.PolicyEnforce, nil, 1)
	closed.OnFailure = enforcement.OnFailureClosed
	open := spec("open", "/open", enforcement.PolicyEnforce, nil, 1)
	open.OnFailure = enforcement.OnFailureOpen
	plan := compile(t, spec("p", "/p", enforcement.PolicyEnforce, []string{"user"}, 1), closed, open, spec("seen", "/only", enforcement.PolicyShadow, nil, 1))
	compiled, faults := enforcement.CompileExceptions(enforcement.ExceptionSpec{
		Deny:   []enforcement.ListEntry{{ID: "d", Attribute: "user", Value: "bad"}},
		Allow:  []enforcement.ListEntry{{ID: "a", Attribute: "user", Value: "good"}},
		Blocks: []enforcement.Block{{ID: "b", Policy: "p", Key: []enforcement.Attribute{{Name: "user", Value: "held"}}, Until: at.Add(time.Hour).UnixMicro()}},
	}, plan, 1)
	if len(faults) != 0 {
		t.Fatal(faults)
	}
	for _, c := range []struct {
		name    string
		subject enforcement.Subject
		limiter enforcement.Limiter
		path    string
		user    string
		want    Counts
		policy  string
		own     Counts // of policy
	}{
		{"ok", enforcement.Subject{Plan: plan}, fixedLimiter(), "/p", "u", Counts{OK: 1, Cost: 1}, "p", Counts{OK: 1, Cost: 1}},
		{"no policy", enforcement.Subject{Plan: plan}, fixedLimiter(), "/x", "u", Counts{Unmatched: 1}, "", Counts{}},
		{"no plan", enforcement.Subject{}, fixedLimiter(), "/x", "u", Counts{Unmatched: 1}, "", Counts{}},
		{"only a shadow policy", enforcement.Subject{Plan: plan}, fixedLimiter(), "/only", "u", Counts{Unmatched: 1, Cost: 1}, "seen", Counts{Unmatched: 1, Cost: 1}},
		{"default deny", enforcement.Subject{Plan: plan, DenyUnmatched: true}, fixedLimiter(), "/x", "u", Counts{DeniedUnmatched: 1}, "", Counts{}},
		{"suspended", enforcement.Subject{Plan: plan, Suspended: true}, fixedLimiter(), "/p", "u", Counts{Suspended: 1}, "p", Counts{}},
		{"listed", enforcement.Subject{Plan: plan, Exceptions: compiled}, fixedLimiter(), "/p", "good", Counts{Listed: 1}, "p", Counts{}},
		{"denied", enforcement.Subject{Plan: plan, Exceptions: compiled}, fixedLimiter(), "/p", "bad", Counts{DeniedByList: 1}, "p", Counts{}},
		{"blocked", enforcement.Subject{Plan: plan, Exceptions: compiled}, fixedLimiter(), "/p", "held", Counts{Blocked: 1}, "p", Counts{Blocked: 1}},
		{"away, local", enforcement.Subject{Plan: plan}, away{}, "/p", "u", Counts{OK: 1, Degraded: 1, Local: 1, Cost: 1}, "p", Counts{OK: 1, Degraded: 1, Local: 1, Cost: 1}},
		{"away, open", enforcement.Subject{Plan: plan}, away{}, "/open", "u", Counts{OK: 1, Degraded: 1}, "open", Counts{OK: 1, Degraded: 1}},
		{"away, closed", enforcement.Subject{Plan: plan}, away{}, "/closed", "u", Counts{Unavailable: 1, Degraded: 1}, "closed", Counts{Unavailable: 1, Degraded: 1}},
	} {
		r := NewRecorder(Config{})
		s := c.subject
		s.Number = 3
		decide(engineOf(c.limiter, fixedLimiter(), r), &s, enforcement.Enforce, c.path, 1, "user", c.user)
		got := r.drain()
		c.want.Requests = 1
		if c.own != (Counts{}) {
			c.own.Requests = 1
		}
		if have := got.of(3, KindTotal, ""); have != c.want {
			t.Errorf("%s:\n%+v, want\n%+v", c.name, have, c.want)
		}
		if have := got.of(3, KindPolicy, c.policy); have != c.own {
			t.Errorf("%s, policy %s:\n%+v, want\n%+v", c.name, c.policy, have, c.own)
		}
		if reasons := got.of(3, KindTotal, ""); reasons.sum() != 1 {
			t.Errorf("%s is counted %d times", c.name, reasons.sum())
		}
	}
}

// A refused atomic batch counts the items that were refused only for others.
func TestItemsOfARefusedBatch(t *testing.T) {
	t.Parallel()
	plan := compile(t, spec("p", "", enforcement.PolicyEnforce, []string{"user"}, 1))
	s := &enforcement.Subject{Number: 3, Plan: plan}
	r := NewRecorder(Config{})
	items := make([]enforcement.BatchItem, 2)
	for i := range items {
		items[i] = enforcement.BatchItem{Subject: s, Decision: new(enforcement.Decision), Check: &enforcement.Check{
			Mode: enforcement.Enforce, Cost: int64(1 + i), Attributes: []enforcement.Attribute{{Name: "user", Value: fmt.Sprint(i)}},
		}}
	}
	engineOf(fixedLimiter(), nil, r).DecideBatch(t.Context(), items, true)
	got := r.drain()
	want := Counts{Requests: 2, NeverFits: 1, BatchRefused: 1}
	if have := got.of(3, KindTotal, ""); have != want {
		t.Errorf("%+v, want %+v", have, want)
	}
	if have := got.of(3, KindPolicy, "p"); have != want {
		t.Errorf("%+v, want %+v", have, want)
	}
}

func TestARefusalBelongsToTheLimitWithTheLongestRetry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		retry map[string]int64 // of refusing limits
		want  string
	}{
		{"one", map[string]int64{"b.l1": 5}, "b"},
		{"the longest", map[string]int64{"a.l1": 5, "b.l1": 7, "c.l1": 6}, "b"},
		{"never is longest", map[string]int64{"a.l1": 1 << 40, "b.l1": 1 << 41, "c.l1": enforcement.Never}, "c"},
		{"the first of equals", map[string]int64{"b.l1": 7, "c.l1": 7}, "b"},
		{"the first of nevers", map[string]int64{"b.l1": enforcement.Never, "c.l1": enforcement.Never}, "b"},
		{"not a shadow", map[string]int64{"s.l1": enforcement.Never, "a.l2": 1}, "a"},
	} {
		plan := compile(t, spec("s", "", enforcement.PolicyShadow, nil, 1), spec("a", "", "", nil, 1, 2), spec("b", "", "", nil, 1), spec("c", "", "", nil, 1))
		d := decide(engineOf(fixedLimiter(), nil, nil), &enforcement.Subject{Number: 1, Plan: plan}, enforcement.Enforce, "/x", 1)
		d.Allowed, d.Reason = false, enforcement.ReasonOverLimit
		for i := range d.Limits {
			l := &d.Limits[i]
			if retry, refuses := c.retry[l.Rule.Policy+"."+l.Limit.Name]; refuses {
				l.Allowed, l.RetryAfter = false, retry
			}
		}
		r := NewRecorder(Config{})
		r.Record(d)
		got := r.drain()
		for _, policy := range []string{"s", "a", "b", "c"} {
			want := Counts{Requests: 1, OtherPolicy: 1}
			if policy == c.want {
				want = Counts{Requests: 1, OverLimit: 1}
			}
			if have := got.of(1, KindPolicy, policy); have != want {
				t.Errorf("%s, policy %s: %+v, want %+v", c.name, policy, have, want)
			}
		}
		if len(got.refusals) != 1 || got.refusals[0].Policy != c.want {
			t.Errorf("%s: %+v", c.name, got.refusals)
		}
	}
}

func TestKeysThatAreLimitedAndAllowed(t *testing.T) {
	t.Parallel()
	plan := compile(t, spec("all", "", "", nil, 9), spec("user", "/u", "", []string{"user"}, 3), spec("shadow", "", enforcement.PolicyShadow, []string{"user"}, 1))
	compiled, _ := enforcement.CompileExceptions(enforcement.ExceptionSpec{
		Blocks: []enforcement.Block{{ID: "b", Policy: "user", Key: []enforcement.Attribute{{Name: "user", Value: "u2"}}, Until: at.Add(time.Hour).UnixMicro()}},
	}, plan, 1)
	free, held := &enforcement.Subject{Number: 5, Plan: plan}, &enforcement.Subject{Number: 5, Plan: plan, Exceptions: compiled}
	r := NewRecorder(Config{})
	e := engineOf(fixedLimiter(), nil, r)
	for range 5 {
		decide(e, free, enforcement.Enforce, "/u", 1, "user", "u1") // 3 pass
	}
	for range 4 {
		decide(e, free, enforcement.Enforce, "/u", 1, "user", "u2") // 3 pass
	}
	for range 3 {
		decide(e, held, enforcement.Enforce, "/u", 1, "user", "u2") // blocked
	}
	for range 5 {
		decide(e, free, enforcement.Enforce, "/else", 1) // 3 pass; then all is over
	}
	got := r.drain()
	show := func(tenant uint32, name string) string {
		top := got.sketches[SketchKey{At: minute, Tenant: tenant, Name: name}].(*topKeys)
		var b strings.Builder
		for _, k := range top.top(0) {
			fmt.Fprintf(&b, "%d %s %v %d±%d; ", k.Tenant, k.Policy, k.Values, k.Count, k.Error)
		}
		return b.String()
	}
	for _, tenant := range []uint32{0, 5} {
		if have, want := show(tenant, SketchLimitedKeys), "5 user [u2] 4±0; 5 all [] 2±0; 5 user [u1] 2±0; "; have != want {
			t.Errorf("limited keys of %d: %s, want %s", tenant, have, want)
		}
		if have, want := show(tenant, SketchAllowedKeys), "5 user [u1] 3±0; 5 user [u2] 3±0; "; have != want {
			t.Errorf("allowed keys of %d: %s, want %s", tenant, have, want)
		}
	}
	if have, want := show(0, SketchBusyTenants), "5  [] 17±0; "; have != want {
		t.Errorf("busy tenants: %s", have)
	}
	if have, want := show(0, SketchLimitedTenants), "5  [] 5±0; "; have != want {
		t.Errorf("limited tenants: %s", have)
	}
	retry := got.sketches[SketchKey{At: minute, Name: SketchRetryAfter}].(*retryTimes)
	if retry.histogram.count() != 8 || retry.never != 0 {
		t.Errorf("retry times: %v", retry.histogram.buckets())
	}
}

func TestWhatRemainsIsSampled(t *testing.T) {
	t.Parallel()
	plan := compile(t, spec("p", "", "", nil, 40, 80))
	r := NewRecorder(Config{})
	e := engineOf(fixedLimiter(), nil, r)
	for range 64 { // 1 of 16 is looked at: with 24 and 8 left of 40, then twice with nothing
		decide(e, &enforcement.Subject{Number: 5, Plan: plan}, enforcement.Enforce, "/", 1)
	}
	got := r.drain()
	want := remainingCounts{0: 2, 4: 1, 12: 1}
	for _, tenant := range []uint32{0, 5} {
		have := got.sketches[SketchKey{At: minute, Tenant: tenant, Name: SketchRemaining}].(remainingShares)
		if *have["p"] != want {
			t.Errorf("tenant %d: %v, want %v", tenant, have["p"], want)
		}
	}
}

func TestLatencyIsDrainedOnce(t *testing.T) {
	t.Parallel()
	now := at
	r := NewRecorder(Config{Now: func() time.Time { return now }})
	shared, local := r.InstrumentLimiter(away{}), r.InstrumentLocal(away{})
	for i := range 5 {
		shared.Take(t.Context(), nil, nil)
		if i%2 == 0 {
			local.Take(t.Context(), nil, nil)
		}
	}
	key := SketchKey{At: minute, Name: SketchLatency}
	first := r.drain().sketches[key].(*latencies)
	if first.shared.count() != 5 || first.local.count() != 3 {
		t.Errorf("%d shared, %d local", first.shared.count(), first.local.count())
	}
	if again := r.drain().sketches[key]; again != nil {
		t.Errorf("drained twice: %v", again)
	}
}

// TestNothingIsLostOrCountedTwice records from many goroutines while a drainer
// runs all the time; the sums are those of a plain ledger, row by row.
func TestNothingIsLostOrCountedTwice(t *testing.T) {
	t.Parallel()
	const goroutines, tenants, each = 64, 40, 400
	plans := []*enforcement.Plan{
		compile(t, spec("all", "", "", nil, 1_000_000), spec("user", "/u/*", "", []string{"user"}, 3), spec("ip", "/*", enforcement.PolicyShadow, []string{"ip"}, 2)),
		compile(t, spec("all", "", "", nil, 500), spec("user", "/u/*", "", []string{"user"}, 5)),
	}
	r := NewRecorder(Config{})
	ledger := &ledger{counts: map[CountKey]*Counts{}, keys: map[string]int64{}}
	sum := &drained{counts: map[CountKey]*Counts{}, sketches: map[SketchKey]sketch{}}
	stop := make(chan struct{})
	var drainer, recorders sync.WaitGroup
	drainer.Go(func() {
		for {
			sum.gather(r.drain())
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	var n atomic.Uint64
	for g := range goroutines {
		recorders.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 3))
			e := enforcement.NewEngine(inprocess.New(inprocess.Config{}), enforcement.Config{
				Recorder: both{r, ledger},
				NewID: func() [16]byte { // spread over three minutes
					return idAt(at.Add(time.Duration(random.IntN(180))*time.Second), n.Add(1), 1)
				},
			})
			for range each {
				number := uint32(1 + random.IntN(tenants))
				s := &enforcement.Subject{Tenant: fmt.Sprint("t", number), Number: number, Plan: plans[random.IntN(2)], Suspended: number%9 == 0}
				path := []string{"/u/1", "/x", "/u/2/3"}[random.IntN(3)]
				mode := enforcement.Enforce
				if random.IntN(10) == 0 {
					mode = enforcement.Force
				}
				decide(e, s, mode, path, random.Int64N(3), "user", fmt.Sprint("u", random.IntN(4)), "ip", "192.0.2.1")
			}
		})
	}
	recorders.Wait()
	close(stop)
	drainer.Wait()
	sum.gather(r.drain())
	if len(sum.counts) != len(ledger.counts) {
		t.Errorf("%d rows, want %d", len(sum.counts), len(ledger.counts))
	}
	for key, want := range ledger.counts {
		if have := sum.counts[key]; have == nil || *have != *want {
			t.Fatalf("%v: %+v, want %+v", key, have, want)
		}
	}
	keys := map[string]int64{}
	for key, s := range sum.sketches {
		if top, ok := s.(*topKeys); ok && key.Tenant != 0 && key.Name == SketchLimitedKeys {
			for _, k := range top.top(0) {
				if k.Error != 0 {
					t.Errorf("%v: %v", key, k)
				}
				keys[fmt.Sprint(key.At, k.Tenant, k.Policy, k.Values)] += k.Count
			}
		}
	}
	if !maps.Equal(keys, ledger.keys) {
		t.Errorf("limited keys:\n%v, want\n%v", keys, ledger.keys)
	}
	counted := 0.0
	for _, m := range scrape(t, r)["headgate_decisions_total"].Metric {
		counted += m.GetCounter().GetValue()
	}
	if counted != goroutines*each || sum.folded != 0 {
		t.Errorf("%v decisions in the scrape, %d folded", counted, sum.folded)
	}
}

// gather adds what came later.
func (o *drained) gather(later *drained) {
	for key, counts := range later.counts {
		o.add(key, counts)
	}
	for key, s := range later.sketches {
		o.absorb(key, s)
	}
	o.refusals = append(o.refusals, later.refusals...)
	o.folded += later.folded
}

// both passes each decision to two recorders.
type both [2]enforcement.Recorder

func (b both) Record(d *enforcement.Decision) {
	b[0].Record(d)
	b[1].Record(d)
}

// A ledger counts decisions as the comments of Counts say, with a lock and
// without haste.
type ledger struct {
	mu     sync.Mutex
	counts map[CountKey]*Counts
	keys   map[string]int64 // limited, by minute, tenant, policy and values
}

func (l *ledger) Record(d *enforcement.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seconds := millisecondsOf(d.ID) / 1000
	row := func(kind Kind, name string) *Counts {
		key := CountKey{seconds - seconds%60, d.Subject.Number, kind, name}
		if l.counts[key] == nil {
			l.counts[key] = new(Counts)
		}
		return l.counts[key]
	}
	owner := ""
	if !d.Allowed && (d.Reason == enforcement.ReasonOverLimit || d.Reason == enforcement.ReasonCostExceedsQuota) {
		refusing := slices.Clone(d.Limits)
		refusing = slices.DeleteFunc(refusing, func(l enforcement.LimitState) bool { return l.Allowed || l.Rule.Mode != enforcement.PolicyEnforce })
		slices.SortStableFunc(refusing, compareRetry)
		owner = refusing[0].Rule.Policy
		var values []string
		for _, part := range refusing[0].Rule.KeyOf(d.Check, nil) {
			values = append(values, part.Value)
		}
		l.keys[fmt.Sprint(seconds-seconds%60, d.Subject.Number, owner, values)]++
	}
	for _, c := range []*Counts{row(KindTotal, ""), row(KindRoute, d.Route)} {
		l.decision(c, d, d.Reason, d.Limits)
	}
	for rule := range d.Applied {
		limits := slices.DeleteFunc(slices.Clone(d.Limits), func(l enforcement.LimitState) bool { return l.Rule != rule })
		reason := d.Reason
		if owner != "" && owner != rule.Policy {
			reason = "other policy"
		}
		l.decision(row(KindPolicy, rule.Policy), d, reason, limits)
	}
}

// compareRetry puts the longer time to wait first.
func compareRetry(a, b enforcement.LimitState) int {
	switch {
	case longer(a.RetryAfter, b.RetryAfter):
		return -1
	case longer(b.RetryAfter, a.RetryAfter):
		return 1
	}
	return 0
}

func (l *ledger) decision(c *Counts, d *enforcement.Decision, reason enforcement.Reason, limits []enforcement.LimitState) {
	c.Requests++
	switch reason {
	case enforcement.ReasonOK:
		c.OK++
	case enforcement.ReasonNoPolicy:
		c.Unmatched++
	case enforcement.ReasonOverLimit:
		c.OverLimit++
	case enforcement.ReasonCostExceedsQuota:
		c.NeverFits++
	case enforcement.ReasonTenantSuspended:
		c.Suspended++
	case "other policy":
		c.OtherPolicy++
	}
	forced := d.Check.Mode == enforcement.Force
	if forced {
		c.Forced++
	}
	if !d.Allowed {
		return
	}
	charged := false
	shadow := false
	for _, limit := range limits {
		charged = charged || forced || limit.Allowed || limit.Rule.Mode == enforcement.PolicyEnforce
		shadow = shadow || !limit.Allowed && limit.Rule.Mode == enforcement.PolicyShadow
	}
	if charged {
		c.Cost += d.Check.Cost
	}
	if shadow && !forced {
		c.ShadowRefused++
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	plan := compile(t, spec("all", "", "", nil, 1<<30), spec("user", "/u/*", "", []string{"user"}, 1<<30), spec("ip", "/u/*", "", []string{"ip"}, 3))
	s := &enforcement.Subject{Tenant: "acme", Number: 1, Plan: plan}
	e := engineOf(fixedLimiter(), nil, nil)
	allowed := decide(e, s, enforcement.Enforce, "/u/1", 1, "user", "u1", "ip", "192.0.2.1")
	refused := decide(e, s, enforcement.Enforce, "/u/1", 9, "user", "u1", "ip", "192.0.2.1")
	if !allowed.Allowed || refused.Allowed {
		t.Fatal("the decisions are other ones")
	}
	r := NewRecorder(Config{Tenants: []string{"acme"}})
	for range commonRefusals {
		r.Record(refused) // until no more are kept
	}
	for name, d := range map[string]*enforcement.Decision{"allowed": allowed, "refused": refused} {
		// A shard's first decision makes its rows; there are a few shards.
		for range 1_000 {
			r.Record(d)
		}
		if n := testing.AllocsPerRun(1_000, func() { r.Record(d) }); n != 0 {
			t.Errorf("%s: Record allocates %v times", name, n)
		}
	}
}

// longer reports whether one wait is longer than another. Never is the longest.
func longer(a, b int64) bool {
	return b != enforcement.Never && (a == enforcement.Never || a > b)
}

// A request over a soft limit counts as allowed. The policy and the tenant count it as over a limit
// too, and Prometheus by the mode.
func TestSoftLimitsCount(t *testing.T) {
	t.Parallel()
	plan := compile(t, spec("cheap", "", enforcement.PolicyDegrade, nil, 1), spec("slow", "", enforcement.PolicyDelay, nil, 2), spec("seen", "", enforcement.PolicyShadow, nil, 3))
	r := NewRecorder(Config{})
	e := engineOf(fixedLimiter(), nil, r)
	for range 4 {
		decide(e, &enforcement.Subject{Tenant: "acme", Number: 7, Plan: plan}, enforcement.Enforce, "/", 1)
	}
	got := r.drain()
	for name, want := range map[string]Counts{
		"cheap": {Requests: 4, OK: 4, ShadowRefused: 3, Cost: 1}, "slow": {Requests: 4, OK: 4, ShadowRefused: 2, Cost: 2}, "seen": {Requests: 4, OK: 4, ShadowRefused: 1, Cost: 3},
	} {
		if have := got.of(7, KindPolicy, name); have != want {
			t.Errorf("%s: %+v, want %+v", name, have, want)
		}
	}
	if have, want := got.of(7, KindTotal, ""), (Counts{Requests: 4, OK: 4, ShadowRefused: 3, Cost: 3}); have != want {
		t.Errorf("total: %+v, want %+v", have, want)
	}
	all := new(totals)
	for i := range r.shards {
		all.add(&r.shards[i].tallies)
	}
	if all.degrade != 3 || all.delay != 2 || all.shadow != 1 {
		t.Errorf("counters: degrade %d, delay %d, shadow %d", all.degrade, all.delay, all.shadow)
	}
}
