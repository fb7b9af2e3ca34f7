package snapshot_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// A exceptionsNode is the whole way from what people write to a decision, over
// SQLite and the in-process limiter, on one clock that stands until it is moved.
type exceptionsNode struct {
	*control
	r          *rand.Rand
	store      *store.Store
	exceptions *exceptions.Service
	engine     *enforcement.Engine
	now        atomic.Int64 // microseconds since the epoch
	names      []string     // of the tenants
	met        *met
}

// met is how often something was met, so that a run that shows nothing fails.
type met struct {
	allowed, denied, listed, blocked, overLimit, overridden, followed, crossed atomic.Int64
}

func (m *met) note(d *enforcement.Decision) {
	switch d.Reason {
	case enforcement.ReasonOK:
		m.allowed.Add(1)
	case enforcement.ReasonDeniedByList:
		m.denied.Add(1)
	case enforcement.ReasonAllowedByList:
		m.listed.Add(1)
	case enforcement.ReasonBlocked:
		m.blocked.Add(1)
	case enforcement.ReasonOverLimit:
		m.overLimit.Add(1)
	}
	if slices.ContainsFunc(d.Limits, func(l enforcement.LimitState) bool { return l.Override != nil }) {
		m.overridden.Add(1)
	}
}

// enough says whether each was met in so many cases.
func (m *met) enough(t *testing.T, cases uint64) {
	counts := []int64{
		m.allowed.Load(), m.denied.Load(), m.listed.Load(), m.blocked.Load(), m.overLimit.Load(), m.overridden.Load(),
		m.followed.Load(), m.crossed.Load(),
	}
	t.Logf("of %d: allowed, denied, listed, blocked, over a limit, overridden, followed, across an override's end: %v", cases, counts)
	if cases >= 1000 && slices.Min(counts) == 0 {
		t.Errorf("of %d requests none was of some kind: %v", cases, counts)
	}
}

func newExceptionsNode(t *testing.T, r *rand.Rand, m *met) *exceptionsNode {
	t.Helper()
	n := &exceptionsNode{r: r, met: m}
	n.now.Store(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).UnixMicro() + r.Int64N(60_000_000))
	clock := func() time.Time { return time.UnixMicro(n.now.Load()) }
	s, err := store.Open(t.Context(), store.Config{URL: "sqlite://" + filepath.Join(t.TempDir(), "h.db"), Timeout: time.Minute, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.store = s
	n.control = &control{
		plans: plans.NewService(s, plans.Config{}), tenants: tenants.NewService(s, tenants.Config{Now: clock}),
		watcher: snapshot.NewWatcher(s, snapshot.Config{Timeout: time.Minute, Now: clock, Logger: slog.New(slog.DiscardHandler)}),
	}
	n.exceptions = exceptions.NewService(s, n.tenants, n.plans, exceptions.Config{Now: clock})
	n.engine = enforcement.NewEngine(inprocess.New(inprocess.Config{Now: n.now.Load}), enforcement.Config{Now: clock})
	return n
}

// found plans two plans and three tenants.
func (n *exceptionsNode) found(t *testing.T) {
	t.Helper()
	for _, slug := range []string{"free", "pro"} {
		if _, err := n.plans.CreatePlan(t.Context(), slug, plans.New(n.document())); err != nil {
			t.Fatal(err)
		}
		n.publishDraft(t, slug)
	}
	for i, plan := range []string{"free", "pro", "pro"} {
		d := tenants.Document{Name: "T", Plan: plan}
		if n.r.IntN(3) == 0 {
			d.NoPolicy = tenants.Deny
		}
		if n.r.IntN(12) == 0 {
			d.Status = tenants.Suspended
		}
		slug := fmt.Sprintf("t%d", i)
		if _, err := n.tenants.CreateTenant(t.Context(), slug, d); err != nil {
			t.Fatal(err)
		}
		n.names = append(n.names, slug)
	}
	n.current(t)
}

func (n *exceptionsNode) publishDraft(t *testing.T, slug string) {
	t.Helper()
	p, err := n.plans.Plan(t.Context(), slug)
	if err == nil {
		_, _, err = n.plans.Publish(t.Context(), slug, plans.Publish{IfRevision: p.DraftRevision})
	}
	if err != nil && !problem.Is(err, problem.Conflict) { // nothing changed
		t.Fatal(err)
	}
}

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// document is a plan at random: of few paths, values and units, so that its
// policies meet.
func (n *exceptionsNode) document() plans.Content {
	d := plans.Content{Name: "Plan"}
	for i := range 1 + n.r.IntN(4) {
		p := plans.Policy{
			Slug:     fmt.Sprintf("p%d", i),
			Match:    plans.Match{Path: oneOf(n.r, "*", "*", "/a/*", "/a/{id}", "/b")},
			CountBy:  oneOf(n.r, nil, []string{"user"}, []string{"user"}, []string{"ip"}, []string{"ip/64"}, []string{"user", "ip/64"}, []string{"region", "user"}),
			Missing:  oneOf(n.r, enforcement.MissingShared, enforcement.MissingShared, enforcement.MissingShared, enforcement.MissingSkip, enforcement.MissingSkip, enforcement.MissingDeny),
			Mode:     oneOf(n.r, enforcement.PolicyEnforce, enforcement.PolicyEnforce, enforcement.PolicyEnforce, enforcement.PolicyShadow, enforcement.PolicyOff),
			Replaces: nil,
		}
		if i == 0 { // so that few requests are none of the plan's business
			p.Match.Path, p.Missing, p.Mode = "*", enforcement.MissingShared, enforcement.PolicyEnforce
		}
		if i > 0 && n.r.IntN(4) == 0 {
			p.Match.Methods = []string{"GET"}
		}
		if i > 0 && n.r.IntN(4) == 0 {
			p.Match.Attributes = map[string]string{"region": "eu"}
		}
		if i > 0 && n.r.IntN(4) == 0 {
			p.Replaces = []string{fmt.Sprintf("p%d", n.r.IntN(i))}
		}
		for k := range n.r.IntN(2) + 1 - len(p.Replaces)*n.r.IntN(2) {
			p.Limits = append(p.Limits, n.limit(fmt.Sprintf("l%d", k)))
		}
		d.Policies = append(d.Policies, p)
	}
	return d
}

func (n *exceptionsNode) limit(name string) enforcement.Limit {
	l := enforcement.Limit{
		Name: name, Algorithm: enforcement.Algorithm(1 + n.r.IntN(5)), Quota: 1 + n.r.Int64N(6),
		Window: oneOf(n.r, time.Second, 5*time.Second, 7777*time.Millisecond, time.Minute),
	}
	switch {
	case l.Algorithm.Bucket() && n.r.IntN(2) == 0:
		l.Burst = 1 + n.r.Int64N(9)
	case l.Algorithm.Windowed() && n.r.IntN(2) == 0:
		l.Anchor = enforcement.Clock
	}
	return l
}

var (
	users     = []string{"ann", "anton", "bob", "Bob"}
	addresses = []string{"10.0.0.1", "10.0.7.9", "2001:db8::1", "2001:db8::2", "2001:db8:1::9"}
	networks  = []string{"10.0.0.0/8", "10.0.0.0/16", "10.0.0.1", "2001:db8::/32", "2001:db8::/64"}
)

// end is an instant in the next few minutes.
func (n *exceptionsNode) end() time.Time {
	return time.UnixMicro(n.now.Load()).Add(time.Duration(1+n.r.IntN(120_000)) * time.Millisecond)
}

// edit makes one random edit of an operator. A rejection by the plan is a valid result.
func (n *exceptionsNode) edit(t *testing.T) (done string) {
	t.Helper()
	ctx, tenant := t.Context(), oneOf(n.r, n.names...)
	defer func() { n.current(t) }()
	subject, _ := n.watcher.Current().Subject(tenant)
	rule := oneOf(n.r, subject.Plan.Rules...)
	var err error
	switch n.r.IntN(14) {
	case 0:
		slug := oneOf(n.r, "free", "pro")
		var p plans.Plan
		if p, err = n.plans.Plan(ctx, slug); err == nil {
			if _, err = n.plans.SaveDraft(ctx, slug, plans.New(n.document()), p.DraftRevision); err == nil {
				n.publishDraft(t, slug)
			}
		}
		done = "publish " + slug
	case 1:
		_, err = n.store.EndExpired(ctx, time.UnixMicro(n.now.Load()), 100)
		done = "end what has ended"
	case 2:
		var list []exceptions.Override
		if list, err = n.exceptions.Overrides(ctx, tenant, exceptions.Filter{}); err == nil && len(list) > 0 {
			err = n.exceptions.DeleteOverride(ctx, tenant, oneOf(n.r, list...).ID)
		}
		done = "end an override of " + tenant
	case 3:
		e := exceptions.NewEntry{List: oneOf(n.r, exceptions.Deny, exceptions.Allow), Attribute: "user", Value: oneOf(n.r, users...)}
		if n.r.IntN(2) == 0 {
			e.Attribute, e.Value = "ip", oneOf(n.r, networks[2:]...)
		}
		e.ExpiresAt = n.end()
		_, err = n.exceptions.CreateEntry(ctx, tenant, e)
		done = fmt.Sprintf("list %+v of %s", e, tenant)
	case 4, 5:
		b := exceptions.NewBlock{Policy: rule.Policy, Reason: "r", Key: n.key(rule), ExpiresAt: n.end()}
		_, err = n.exceptions.CreateBlock(ctx, tenant, b)
		done = fmt.Sprintf("block %+v of %s", b, tenant)
	default:
		o := n.override(rule)
		_, err = n.exceptions.CreateOverride(ctx, tenant, o)
		done = fmt.Sprintf("override %+v of %s", o, tenant)
	}
	if err != nil {
		if !problem.Is(err, problem.Invalid) && !problem.Is(err, problem.Conflict) {
			t.Fatalf("%s: %v", done, err)
		}
		return ""
	}
	return done
}

// values lists the values of the attributes by which a policy may count.
var values = map[string][]string{"user": users, "ip": addresses, "ip/64": addresses, "region": {"eu", "us"}}

// key is one of a policy's, mostly with a value in each place.
func (n *exceptionsNode) key(rule *enforcement.Rule) map[string]string {
	key := map[string]string{}
	for _, by := range rule.CountBy {
		if n.r.IntN(8) > 0 {
			key[strings.TrimSuffix(by, "/64")] = oneOf(n.r, values[by]...)
		}
	}
	return key
}

func (n *exceptionsNode) override(rule *enforcement.Rule) exceptions.NewOverride {
	o := exceptions.NewOverride{Policy: rule.Policy, Reason: "r", ExpiresAt: n.end()}
	if len(rule.CountBy) > 0 && n.r.IntN(4) > 0 {
		by := oneOf(n.r, rule.CountBy...)
		o.Attribute = strings.TrimSuffix(by, "/64")
		switch {
		case n.r.IntN(2) == 0:
			o.Value = oneOf(n.r, values[by]...)
		case o.Attribute == "ip":
			o.Prefix = oneOf(n.r, networks...)
		default:
			o.Prefix = oneOf(n.r, "a", "an", "ann", "b", "e")
		}
	}
	if n.r.IntN(2) == 0 {
		o.Factor = oneOf[int64](n.r, 1, 500, 1500, 3000)
		return o
	}
	l := enforcement.OverrideLimit{Name: fmt.Sprintf("l%d", n.r.IntN(2)), Quota: n.r.Int64N(9), Burst: enforcement.Keep}
	if n.r.IntN(3) == 0 {
		l.Window = oneOf(n.r, time.Second, 3*time.Second, 30*time.Second)
	}
	o.Limits = []enforcement.OverrideLimit{l}
	return o
}

func (n *exceptionsNode) check() enforcement.Check {
	c := enforcement.Check{
		Method: oneOf(n.r, "GET", "POST", ""), Path: oneOf(n.r, "/a/x", "/a/x/y", "/b", "/a", ""),
		Cost: oneOf[int64](n.r, 1, 1, 1, 2, 3, 0), Mode: enforcement.Enforce,
	}
	if n.r.IntN(5) > 0 {
		c.Attributes = append(c.Attributes, enforcement.Attribute{Name: "user", Value: oneOf(n.r, users...)})
	}
	if n.r.IntN(4) > 0 {
		ip, text, err := enforcement.CanonicalIP(oneOf(n.r, addresses...))
		if err != nil {
			panic(err)
		}
		c.IP = ip
		c.Attributes = append(c.Attributes, enforcement.Attribute{Name: "ip", Value: text})
	}
	if n.r.IntN(2) == 0 {
		c.Attributes = append(c.Attributes, enforcement.Attribute{Name: "region", Value: oneOf(n.r, "eu", "us")})
	}
	if n.r.IntN(20) == 0 {
		c.Mode = enforcement.Force
	}
	return c
}

// pass moves the clock.
func (n *exceptionsNode) pass() {
	switch n.r.IntN(16) {
	case 0:
		n.now.Add(n.r.Int64N(20_000_000))
	case 1, 2:
		n.now.Add(n.r.Int64N(2_000_000))
	case 3, 4, 5, 6, 7:
		n.now.Add(n.r.Int64N(100_000))
	}
}

// swept returns the snapshot after ended rows were removed, as nodes do within about a
// second. Before that, the counters of an ended override may lose the fraction of a unit.
func (n *exceptionsNode) swept(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	s := n.watcher.Current()
	now := time.UnixMicro(n.now.Load())
	if end := s.NextEnd(); end.IsZero() || end.After(now) {
		return s
	}
	if _, err := n.store.EndExpired(t.Context(), now, 1000); err != nil {
		t.Fatal(err)
	}
	if s = n.current(t); !s.NextEnd().IsZero() && !s.NextEnd().After(now) {
		t.Fatalf("something that ended at %s is still there", s.NextEnd())
	}
	return s
}

func (n *exceptionsNode) decide(t *testing.T, s *enforcement.Subject, c enforcement.Check, mode enforcement.Mode) *enforcement.Decision {
	c.Mode = mode
	var d enforcement.Decision
	n.engine.Decide(t.Context(), s, &c, &d)
	return &d
}

// Explain, a peek, and the check agree for random requests to random tenants with random
// plans and exceptions. A denied request passes at the instant that Explain returns, and
// not a millisecond before. HEADGATE_FUZZ_SEQUENCES, by default 2000, is the number of
// requests, and HEADGATE_FUZZ_SEED their seed.
func TestExplainAgreesWithDecide(t *testing.T) {
	t.Parallel()
	const aNode = 100 // requests
	cases, seed := snapshot.Setting(t, "HEADGATE_FUZZ_SEQUENCES", 2000), snapshot.Setting(t, "HEADGATE_FUZZ_SEED", rand.Uint64())
	var m met
	t.Cleanup(func() { m.enough(t, cases) })
	for i := range (cases + aNode - 1) / aNode {
		t.Run(fmt.Sprintf("node %d", i), func(t *testing.T) {
			t.Parallel()
			n := newExceptionsNode(t, rand.New(rand.NewPCG(seed, i)), &m)
			n.found(t)
			var history []string
			for range 20 {
				history = append(history, n.edit(t))
			}
			for k := range aNode {
				n.pass()
				if n.r.IntN(8) == 0 {
					history = append(history, n.edit(t))
				}
				s := n.swept(t)
				if s.ProblemCount() != 0 {
					t.Fatalf("request %d: what the services took is a problem: %v", k, s.Problems())
				}
				subject, _ := s.Subject(oneOf(n.r, n.names...))
				c := n.check()
				if err := n.agree(t, subject, c); err != nil {
					t.Fatalf("request %d, %+v of %s: %v\nafter %q\nreplay with HEADGATE_FUZZ_SEED=%d HEADGATE_FUZZ_SEQUENCES=%d",
						k, c, subject.Tenant, err, history, seed, (i+1)*aNode)
				}
			}
		})
	}
}

func (n *exceptionsNode) agree(t *testing.T, s *enforcement.Subject, c enforcement.Check) error {
	if c.Mode == enforcement.Force {
		n.decide(t, s, c, enforcement.Force) // only puts the counters where others cannot
		return nil
	}
	var x, again enforcement.Explanation
	n.engine.Explain(t.Context(), s, &c, &x)
	n.engine.Explain(t.Context(), s, &c, &again)
	if err := sameExplanation(&x, &again); err != nil {
		return fmt.Errorf("explained twice: %w", err)
	}
	peek := n.decide(t, s, c, enforcement.Peek)
	if err := sameStatus(&x.Decision, peek); err != nil {
		return fmt.Errorf("a peek: %w", err)
	}
	if !slices.Equal(x.Decision.Limits, peek.Limits) {
		return fmt.Errorf("a peek: limits %+v, explained %+v", peek.Limits, x.Decision.Limits)
	}
	if err := sameHoldings(&x, peek); err != nil {
		return err
	}
	n.met.note(peek)
	if !peek.Allowed && n.r.IntN(2) == 0 {
		return n.passes(t, s, c, &x)
	}
	d := n.decide(t, s, c, enforcement.Enforce)
	if err := sameStatus(&x.Decision, d); err != nil {
		return fmt.Errorf("the check: %w", err)
	}
	if !slices.Equal(peek.Limits, d.Limits) {
		return fmt.Errorf("the check: limits %+v, a peek said %+v", d.Limits, peek.Limits)
	}
	return nil
}

func sameStatus(x, d *enforcement.Decision) error {
	if x.Allowed != d.Allowed || x.Reason != d.Reason || x.RetryAfter != d.RetryAfter || x.NumbersUntil != d.NumbersUntil || x.Missing != d.Missing || x.Policy != d.Policy ||
		x.List != d.List || x.Block != d.Block || x.Route != d.Route {
		return fmt.Errorf("allowed %t, %s, retry %d, list %v, block %v; explained %t, %s, retry %d, list %v, block %v",
			d.Allowed, d.Reason, d.RetryAfter, d.List, d.Block, x.Allowed, x.Reason, x.RetryAfter, x.List, x.Block)
	}
	if a, b := slices.Collect(x.Applied), slices.Collect(d.Applied); !slices.Equal(a, b) {
		return fmt.Errorf("other policies apply")
	}
	return nil
}

func sameExplanation(x, y *enforcement.Explanation) error {
	if err := sameStatus(&x.Decision, &y.Decision); err != nil {
		return err
	}
	if x.PassesAt != y.PassesAt || len(x.Policies) != len(y.Policies) {
		return fmt.Errorf("passes at %d, then at %d", x.PassesAt, y.PassesAt)
	}
	for i := range x.Policies {
		p, q := x.Policies[i], y.Policies[i]
		if p.Why != q.Why || p.Override != q.Override || p.Block != q.Block || !reflect.DeepEqual(p.Limits, q.Limits) {
			return fmt.Errorf("policy %s is %+v, then %+v", p.Rule.Policy, p, q)
		}
	}
	return nil
}

// sameHoldings compares an explanation with a peek: the policies that apply, and the states
// of their limits.
func sameHoldings(x *enforcement.Explanation, peek *enforcement.Decision) error {
	var applying []*enforcement.Rule
	for i := range x.Policies {
		p := &x.Policies[i]
		if p.Applies {
			applying = append(applying, p.Rule)
		}
		if p.Applies && !p.Matches {
			return fmt.Errorf("policy %s applies without matching", p.Rule.Policy)
		}
		if p.Matches && len(p.Limits) != len(p.Rule.Limits) {
			return fmt.Errorf("policy %s matches with %d of %d limits", p.Rule.Policy, len(p.Limits), len(p.Rule.Limits))
		}
		for _, now := range p.Limits {
			k := slices.IndexFunc(peek.Limits, func(l enforcement.LimitState) bool { return l.Rule == p.Rule && l.Limit.Name == now.Limit.Name })
			if k < 0 {
				continue // it matches, and does not apply; or nothing asked the limiter
			}
			l := &peek.Limits[k]
			if held := now.Remaining - l.Cost; charged(peek, l) && l.Remaining != held || !charged(peek, l) && l.Remaining != now.Remaining ||
				l.Limit != now.Limit || l.Override != p.Override {
				return fmt.Errorf("limit %s of %s holds %+v by %v, a peek says %+v", l.Limit.Name, p.Rule.Policy, now, p.Override, *l)
			}
		}
	}
	if want := slices.Collect(peek.Applied); !slices.Equal(applying, want) {
		return fmt.Errorf("%d policies are said to apply, of the decision %d", len(applying), len(want))
	}
	return nil
}

// charged reports whether a check charges a limit: all enforced ones or none,
// and then those of each shadow policy.
func charged(d *enforcement.Decision, l *enforcement.LimitState) bool {
	if !d.Allowed {
		return false
	}
	for i := range d.Limits {
		if other := &d.Limits[i]; other.Rule == l.Rule && !other.Allowed {
			return false
		}
	}
	return true
}

// passes follows a denial to the instant at which it would pass if no other came,
// unless the numbers behind it end before.
func (n *exceptionsNode) passes(t *testing.T, s *enforcement.Subject, c enforcement.Check, x *enforcement.Explanation) error {
	now := n.now.Load()
	if x.PassesAt == enforcement.Never {
		return nil
	}
	if x.PassesAt <= now {
		return fmt.Errorf("refused, but passes at %d, now is %d", x.PassesAt, now)
	}
	if until := x.Decision.NumbersUntil; until != 0 {
		if until <= now || until > x.PassesAt {
			return fmt.Errorf("passes at %d, and the numbers end at %d, now is %d", x.PassesAt, until, now)
		}
		n.met.crossed.Add(1)
		return nil // other numbers decide then
	}
	n.met.followed.Add(1)
	if before := x.PassesAt - 1000; before > now {
		n.now.Store(before)
		if d := n.decide(t, s, c, enforcement.Peek); d.Allowed {
			return fmt.Errorf("passes a millisecond before the %d µs in which it should; refused by %s: %+v", x.PassesAt-now, x.Decision.Reason, x.Decision.Limits)
		}
	}
	n.now.Store(x.PassesAt)
	if d := n.decide(t, s, c, enforcement.Peek); !d.Allowed {
		return fmt.Errorf("does not pass after the %d µs in which it should, for %s in %d ms: %+v; refused by %s: %+v",
			x.PassesAt-now, d.Reason, d.RetryAfter, d.Limits, x.Decision.Reason, x.Decision.Limits)
	}
	return nil
}
