package usage_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// told returns an answer as text: policies, their keys, and their limits.
func told(u usage.Usage) string {
	var b strings.Builder
	for _, p := range u.Policies {
		fmt.Fprintf(&b, "%s %s pace %s more %v\n", p.Policy, p.Mode, pace(p.Pace), p.More)
		for _, k := range p.Keys {
			fmt.Fprintf(&b, "  %v", k.Attributes())
			if k.Redacted {
				b.WriteString(" redacted")
			}
			if k.Override != nil {
				b.WriteString(" override " + k.Override.Reason)
			}
			if k.Block != nil {
				b.WriteString(" block " + k.Block.Reason)
			}
			fmt.Fprintf(&b, " pace %s\n", pace(k.Pace))
			for _, l := range k.Limits {
				fmt.Fprintf(&b, "    %s %d used of %d, %d left, new in %v", l.Limit.Name, l.Used, l.Capacity, l.Remaining, l.ResetAfter)
				if l.ExhaustedAfter != nil {
					fmt.Fprintf(&b, ", used up in %v", *l.ExhaustedAfter)
				}
				b.WriteByte('\n')
			}
		}
	}
	return b.String()
}

func pace(p usage.Pace) string {
	if !p.Known {
		return "?"
	}
	return fmt.Sprintf("%.4g+%.4g of %.4g-%.4g over %v", p.PerMinute, p.RefusedPerMinute, p.Requests, p.Error, p.Over)
}

func wantTold(t *testing.T, u usage.Usage, err error, want string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(told(u)); got != strings.TrimSpace(want) {
		t.Errorf("told\n%s\nwant\n%s", got, want)
	}
}

// The usage of a tenant has every policy, from one call of the limiter that charges
// nothing. Exhausted keys are first.
func TestTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	shadow, off := policy("shadow", []string{"user"}, limit(enforcement.FixedWindow, 10, time.Hour)), policy("off", nil, limit(enforcement.FixedWindow, 7, time.Hour))
	shadow.Mode, off.Mode = enforcement.PolicyShadow, enforcement.PolicyOff
	w.tenant("acme", false,
		policy("all", nil, limit(enforcement.FixedWindow, 300, time.Hour), limit(enforcement.TokenBucket, 600, time.Minute)),
		policy("users", []string{"user"}, limit(enforcement.SlidingWindowLog, 100, time.Hour)),
		shadow, off, plans.Policy{Slug: "exempt", Match: plans.Match{Path: "/health"}, Replaces: []string{"all"}})
	for range 4 { // from 12:00:30 to 12:02:00
		w.send("acme", user("busy", 20))
		w.send("acme", user("calm", 2))
		w.pass(30 * time.Second)
	}
	w.flush()
	calls := w.calls.Load()
	u, err := w.Tenant(w.ctx, "acme")
	if w.calls.Load() != calls+1 {
		t.Errorf("the limiter was asked %d times", w.calls.Load()-calls)
	}
	// It is 12:02:30, and the first request was counted in the minute from 12:00 on.
	const want = `
all enforce pace 35.2+0 of 3.2-0 over 2m30s more false
  map[] pace 35.2+0 of 3.2-0 over 2m30s
    l1 88 used of 300, 212 left, new in 58m0s, used up in 5m56.25s
    l2 0 used of 600, 600 left, new in 0s
users enforce pace 35.2+0 of 3.2-0 over 2m30s more false
  map[user:busy] pace 17.6+0 of 1.6-0 over 2m30s
    l1 80 used of 100, 20 left, new in 59m30s, used up in 37.5s
  map[user:calm] pace 17.6+0 of 1.6-0 over 2m30s
    l1 8 used of 100, 92 left, new in 59m30s, used up in 5m0s
shadow shadow pace 3.2+3.2 of 3.2-0 over 2m30s more false
off off pace 0+0 of 0-0 over 2m30s more false
  map[] pace 0+0 of 0-0 over 2m30s
    l1 0 used of 7, 7 left, new in 0s
exempt enforce pace 0+0 of 0-0 over 2m30s more false
  map[] pace 0+0 of 0-0 over 2m30s`
	wantTold(t, u, err, want)
	if u.Tenant != "acme" || u.TenantID == "" || u.Plan != "acme" || u.PlanVersion != 1 || !u.At.Equal(w.clock()) || u.Policies[4].Path != "/health" {
		t.Errorf("%+v", u)
	}
	again, err := w.Tenant(w.ctx, u.TenantID)
	wantTold(t, again, err, want)

	one, err := w.Policy(w.ctx, "acme", "users")
	wantTold(t, one, err, told(usage.Usage{Policies: u.Policies[1:2]}))
	// What is not ranked is told when it is asked for; nobody knows its pace.
	key, err := w.Key(w.ctx, "acme", "shadow", map[string]string{"user": "calm"})
	wantTold(t, key, err, `
shadow shadow pace 3.2+3.2 of 3.2-0 over 2m30s more true
  map[user:calm] pace ?
    l1 8 used of 10, 2 left, new in 58m0s`)
}

// At a steady pace, the predicted time is that of the first denied request, within one
// interval and the rounding of a pace to the minutes over which it is measured. A limit
// that is predicted to last does so.
func TestWhenItIsUsedUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit enforcement.Limit
		every time.Duration
		cost  int64
		lasts bool
	}{
		"window":          {limit(enforcement.FixedWindow, 200, time.Hour), 3 * time.Second, 1, false},
		"window resets":   {limit(enforcement.FixedWindow, 30, time.Minute), 3 * time.Second, 1, true},
		"log":             {limit(enforcement.SlidingWindowLog, 150, time.Hour), 4 * time.Second, 1, false},
		"log moves on":    {limit(enforcement.SlidingWindowLog, 40, 2*time.Minute), 4 * time.Second, 1, true},
		"counter":         {limit(enforcement.SlidingWindowCounter, 130, 30*time.Minute), 5 * time.Second, 1, false},
		"counter fades":   {limit(enforcement.SlidingWindowCounter, 130, 5*time.Minute), 5 * time.Second, 1, true},
		"bucket":          {enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: 30, Window: time.Minute, Burst: 500}, 3 * time.Second, 3, false},
		"bucket refills":  {enforcement.Limit{Algorithm: enforcement.GCRA, Quota: 70, Window: time.Minute, Burst: 5}, 3 * time.Second, 3, true},
		"costs of a unit": {limit(enforcement.FixedWindow, 2000, time.Hour), 2 * time.Second, 7, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.tenant("acme", false, policy("all", nil, c.limit), policy("users", []string{"user"}, c.limit))
			w.pass(30 * time.Second) // the first of whole minutes
			for sent := time.Duration(0); sent < 6*time.Minute; sent += c.every {
				if !w.send("acme", user("u", c.cost)) {
					t.Fatal("refused too early")
				}
				w.pass(c.every)
			}
			w.flush()
			u, err := w.Tenant(w.ctx, "acme")
			w.must(err)
			asked, passed := w.clock(), 0
			for ; passed < 2000 && w.send("acme", user("u", c.cost)); passed++ {
				w.pass(c.every)
			}
			lasted := w.clock().Sub(asked)
			for _, p := range u.Policies {
				after := p.Keys[0].Limits[0].ExhaustedAfter
				if after == nil && (!c.lasts || passed < 2000) || after != nil && (c.lasts || (*after-lasted).Abs() > c.every+lasted/100) {
					t.Errorf("lasted %v:\n%s", lasted, told(u))
				}
			}
		})
	}
}

// A limit that denies is exhausted now. The pace includes denied requests, so that the next
// window is predicted too.
func TestRefusedRequestsAreInThePace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tenant("acme", false, policy("users", []string{"user"}, limit(enforcement.FixedWindow, 30, time.Minute)))
	w.pass(30 * time.Second)
	for range 240 { // one a second, of which each minute's first 30 pass
		w.send("acme", user("u", 1))
		w.pass(time.Second)
	}
	w.flush()
	w.pass(-15 * time.Second) // as if a clock were behind: the window is still used up
	u, err := w.Tenant(w.ctx, "acme")
	wantTold(t, u, err, `
users enforce pace 32+32 of 64-0 over 3m45s more false
  map[user:u] pace 32+32 of 64-0 over 3m45s
    l1 30 used of 30, 0 left, new in 15s, used up in 0s`)
	w.pass(16 * time.Second)
	u, err = w.Tenant(w.ctx, "acme")
	wantTold(t, u, err, `
users enforce pace 29.88+29.88 of 59.75-0 over 4m1s more false
  map[user:u] pace 29.88+29.88 of 59.75-0 over 4m1s
    l1 0 used of 30, 30 left, new in 0s, used up in 30.12501s`)
}

// Overrides and blocks are those in force for the key at this instant.
func TestWhatIsExceptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tenant("acme", false, policy("nets", []string{"ip/64"}, limit(enforcement.FixedWindow, 10, time.Hour)))
	ends := w.clock().Add(10 * time.Minute)
	override := func(o exceptions.NewOverride) {
		o.Policy, o.ExpiresAt = "nets", ends
		_, err := w.exceptions.CreateOverride(w.ctx, "acme", o)
		w.must(err)
	}
	override(exceptions.NewOverride{Factor: 2000, Reason: "all"})
	override(exceptions.NewOverride{Attribute: "ip", Prefix: "2001:db8::/48", Factor: 3000, Reason: "net"})
	override(exceptions.NewOverride{Attribute: "ip", Value: "192.0.2.1", Factor: 500, Reason: "one"})
	_, err := w.exceptions.CreateBlock(w.ctx, "acme", exceptions.NewBlock{Policy: "nets", Key: map[string]string{"ip": "2001:db8::7"}, Reason: "floods", ExpiresAt: ends.Add(time.Minute)})
	w.must(err)
	w.refresh()
	ask := func(key map[string]string) string {
		u, err := w.Key(w.ctx, "acme", "nets", key)
		w.must(err)
		_, lines, _ := strings.Cut(strings.TrimSpace(told(u)), "\n")
		return lines
	}
	for address, want := range map[string]string{
		"192.0.2.1":             "  map[ip:192.0.2.1] override one pace 0+0 of 0-0 over 4m30s\n    l1 0 used of 5, 5 left, new in 0s",
		"::ffff:192.0.2.2":      "  map[ip:192.0.2.2] override all pace 0+0 of 0-0 over 4m30s\n    l1 0 used of 20, 20 left, new in 0s",
		"2001:DB8::1":           "  map[ip:2001:db8::/64] override net block floods pace 0+0 of 0-0 over 4m30s\n    l1 0 used of 30, 30 left, new in 0s",
		"2001:db8::/64":         "  map[ip:2001:db8::/64] override net block floods pace 0+0 of 0-0 over 4m30s\n    l1 0 used of 30, 30 left, new in 0s",
		"2001:db8:0:1:ffff::42": "  map[ip:2001:db8:0:1::/64] override net pace 0+0 of 0-0 over 4m30s\n    l1 0 used of 30, 30 left, new in 0s",
	} {
		if got := ask(map[string]string{"ip": address}); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", address, got, want)
		}
	}
	if got, want := ask(nil), "  map[] override all pace 0+0 of 0-0 over 4m30s\n    l1 0 used of 20, 20 left, new in 0s"; got != want {
		t.Errorf("who sent none:\n%s", got)
	}
	w.now.Store(ends.UnixMicro()) // the instant itself is not in force any more
	if got := ask(map[string]string{"ip": "2001:db8::1"}); strings.Contains(got, "override") || !strings.Contains(got, "block floods") || !strings.Contains(got, "of 10,") {
		t.Errorf("after the override's end:\n%s", got)
	}
	w.pass(time.Minute)
	if got := ask(map[string]string{"ip": "2001:db8::1"}); strings.Contains(got, "block") {
		t.Errorf("after the block's end:\n%s", got)
	}
}

// At most ten of many keys are in the answer, with a mark that there are more. Keys that
// were counted by other attributes and redacted keys are left out.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	users := policy("users", []string{"user"}, limit(enforcement.FixedWindow, 50, time.Hour))
	w.tenant("acme", false, users)
	w.tenant("hidden", true, users)
	for i := range 30 {
		for range i + 1 {
			w.send("acme", user(fmt.Sprint("u", i), 1))
		}
	}
	for range 3 {
		w.send("hidden", user("u", 1))
	}
	w.pass(time.Second)
	w.flush()
	u, err := w.Tenant(w.ctx, "acme")
	w.must(err)
	p := u.Policies[0]
	if len(p.Keys) != usage.MaxKeys || !p.More || p.Keys[0].Key[0].Value != "u29" || p.Keys[0].Limits[0].Used != 30 || p.Keys[9].Key[0].Value != "u20" {
		t.Errorf("%s", told(u))
	}
	// A key that nobody ranks was not there, while all that were are ranked.
	key, err := w.Key(w.ctx, "acme", "users", map[string]string{"user": "nobody"})
	wantTold(t, key, err, `
users enforce pace 465+0 of 465-0 over 1m0s more true
  map[user:nobody] pace 0+0 of 0-0 over 1m0s
    l1 0 used of 50, 50 left, new in 0s`)

	hidden, err := w.Tenant(w.ctx, "hidden")
	w.must(err)
	if k := hidden.Policies[0].Keys; len(k) != 1 || !k[0].Redacted || len(k[0].Limits) != 0 || k[0].Pace.Known || k[0].Key[0].Value == "u" {
		t.Errorf("%s", told(hidden))
	}
	named, err := w.Key(w.ctx, "hidden", "users", map[string]string{"user": "u"})
	wantTold(t, named, err, `
users enforce pace 3+0 of 3-0 over 1m0s more true
  map[user:u] pace ?
    l1 3 used of 50, 47 left, new in 59m59s`)

	// Counted by something else from now on: what was counted by user is no key of it.
	d := plans.Content{Name: "acme", Policies: []plans.Policy{policy("users", []string{"app"}, limit(enforcement.FixedWindow, 50, time.Hour))}}
	saved, err := w.plans.Plan(w.ctx, "acme")
	w.must(err)
	saved, err = w.plans.SaveDraft(w.ctx, "acme", plans.New(d), saved.DraftRevision)
	w.must(err)
	_, _, err = w.plans.Publish(w.ctx, "acme", plans.Publish{IfRevision: saved.DraftRevision})
	w.must(err)
	w.refresh()
	u, err = w.Tenant(w.ctx, "acme")
	wantTold(t, u, err, "users enforce pace 465+0 of 465-0 over 1m0s more false")
}

// Without its limiter, a node returns an error. Without counts, it returns what is left,
// and no pace.
func TestWithout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tenant("acme", false, policy("all", nil, limit(enforcement.FixedWindow, 5, time.Hour)), policy("users", []string{"user"}, limit(enforcement.FixedWindow, 5, time.Hour)))
	_, err := w.tenants.CreateTenant(w.ctx, "bare", tenants.Document{Name: "bare"})
	w.must(err)
	w.refresh()
	w.send("acme", user("u", 5))
	blind := usage.NewService(usage.Config{Snapshot: w.watcher.Current, Engine: w.engine, Now: w.clock})
	u, err := blind.Tenant(w.ctx, "acme")
	wantTold(t, u, err, `
all enforce pace ? more false
  map[] pace ?
    l1 5 used of 5, 0 left, new in 1h0m0s, used up in 0s
users enforce pace ? more true`)
	if err := blind.Reset(w.ctx, "acme", "all", nil, ""); !problem.Is(err, problem.Unavailable) {
		t.Errorf("a reset without the exceptions service: %v", err)
	}
	if u, err := w.Tenant(w.ctx, "bare"); err != nil || len(u.Policies) != 0 || u.Plan != "" || u.Tenant != "bare" {
		t.Errorf("without a plan: %+v, %v", u, err)
	}

	w.away.Store(true)
	for name, ask := range map[string]func() (usage.Usage, error){
		"tenant": func() (usage.Usage, error) { return w.Tenant(w.ctx, "acme") },
		"policy": func() (usage.Usage, error) { return w.Policy(w.ctx, "acme", "all") },
		"key":    func() (usage.Usage, error) { return w.Key(w.ctx, "acme", "users", nil) },
	} {
		u, err := ask()
		var p *problem.Problem
		if !errors.As(err, &p) || p.Kind != problem.Unavailable || p.Code != "limiter_unavailable" || len(u.Policies) != 0 {
			t.Errorf("%s: %v, %+v", name, err, u)
		}
	}
}

func TestWhatIsNoKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tenant("acme", false, policy("all", nil, limit(enforcement.FixedWindow, 5, time.Hour)), policy("nets", []string{"user", "ip/64"}, limit(enforcement.FixedWindow, 5, time.Hour)))
	for _, c := range []struct {
		policy string
		key    map[string]string
		at     string
	}{
		{"all", map[string]string{"user": "u"}, "/key/user"},
		{"nets", map[string]string{"user": ""}, "/key/user"},
		{"nets", map[string]string{"user": strings.Repeat("u", 1025)}, "/key/user"},
		{"nets", map[string]string{"user": "\xff"}, "/key/user"},
		{"nets", map[string]string{"a/b": "u"}, "/key/a~1b"},
		{"nets", map[string]string{"ip/64": "2001:db8::1"}, "/key/ip~164"},
		{"nets", map[string]string{"ip": "2001:db8::/48"}, "/key/ip"},
		{"nets", map[string]string{"ip": "somewhere"}, "/key/ip"},
	} {
		_, err := w.Key(w.ctx, "acme", c.policy, c.key)
		var p *problem.Problem
		if !errors.As(err, &p) || p.Kind != problem.Invalid || len(p.Fields) != 1 || p.Fields[0].Pointer != c.at {
			t.Errorf("%s %v: %v", c.policy, c.key, err)
		}
	}
	for _, err := range []error{
		second(w.Key(w.ctx, "acme", "nothing", nil)), second(w.Policy(w.ctx, "acme", "nothing")), second(w.Tenant(w.ctx, "nobody")), second(w.Key(w.ctx, "nobody", "all", nil)),
	} {
		if !problem.Is(err, problem.NotFound) {
			t.Errorf("%v, want NotFound", err)
		}
	}
}

func second(_ usage.Usage, err error) error { return err }

// A reset leaves its line before anything is forgotten, and then forgets one key.
func TestReset(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tenant("acme", false, policy("users", []string{"user"}, limit(enforcement.SlidingWindowLog, 5, time.Hour)))
	w.send("acme", user("u", 5))
	w.send("acme", user("v", 5))
	lines := func() int {
		list, err := w.store.AuditEntries(w.ctx, audit.Filter{Action: "counter.reset", Limit: 10})
		w.must(err)
		return len(list)
	}
	left := func(name string) int64 {
		u, err := w.Key(w.ctx, "acme", "users", map[string]string{"user": name})
		w.must(err)
		return u.Policies[0].Keys[0].Limits[0].Remaining
	}
	if err := w.Reset(w.ctx, "acme", "users", map[string]string{"ip": "u"}, ""); !problem.Is(err, problem.Invalid) || lines() != 0 {
		t.Errorf("no key of the policy: %v, %d lines", err, lines())
	}
	w.away.Store(true)
	if err := w.Reset(w.ctx, "acme", "users", map[string]string{"user": "u"}, ""); !problem.Is(err, problem.Unavailable) || lines() != 1 {
		t.Errorf("away: %v, %d lines", err, lines())
	}
	w.away.Store(false)
	if left("u") != 0 {
		t.Error("forgotten without a limiter")
	}
	w.must(w.Reset(w.ctx, "acme", "users", map[string]string{"user": "u"}, "locked out"))
	if left("u") != 5 || left("v") != 0 || lines() != 2 {
		t.Errorf("%d left of u, %d of v, %d lines", left("u"), left("v"), lines())
	}
	// What is published, and not known to this node yet, leaves no line.
	w.unknown("late", false, policy("other", nil, limit(enforcement.FixedWindow, 5, time.Hour)))
	if err := w.Reset(w.ctx, "late", "other", nil, ""); !problem.Is(err, problem.Unavailable) || lines() != 2 {
		t.Errorf("not known yet: %v, %d lines", err, lines())
	}
}
