package enforcement_test

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/strictjson"
)

func warned(name string, cell uint32, a enforcement.Algorithm, quota int64, percentages ...int64) enforcement.RuleLimit {
	l := limit(name, cell, a, quota, 10*time.Second)
	l.WarnAt, _ = enforcement.NewWarnAt(percentages)
	return l
}

// The decision with which a threshold is reached shows the threshold, and so does each later
// decision.
func TestNearLimit(t *testing.T) {
	t.Parallel()
	for _, a := range []enforcement.Algorithm{
		enforcement.FixedWindow, enforcement.SlidingWindowLog, enforcement.SlidingWindowCounter, enforcement.TokenBucket, enforcement.GCRA, enforcement.LeakyBucket,
	} {
		l := newCounters()
		e := enforcement.NewEngine(l, enforcement.Config{Now: at(&l.now)})
		s := subject(t, enforcement.RuleSpec{Policy: "p", Limits: []enforcement.RuleLimit{
			warned("a", 1, a, 10, 95, 50), warned("b", 2, a, 1000, 1), warned("c", 3, a, 1000),
		}},
			enforcement.RuleSpec{Policy: "shadow", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{warned("a", 4, a, 1000, 1)}})
		for _, step := range []struct {
			cost     int64
			whole    int
			each     []int
			denied   bool
			forceful bool
		}{
			{4, 0, []int{0, 0, 0, 0}, false, false},
			{1, 50, []int{50, 0, 0, 0}, false, false},
			{4, 50, []int{50, 0, 0, 0}, false, false},
			{1, 95, []int{95, 1, 0, 1}, false, false},
			{1, 95, []int{95, 1, 0, 1}, true, false},
			{5, 95, []int{95, 1, 0, 1}, false, true},
		} {
			check := enforcement.Check{Cost: step.cost}
			if step.forceful {
				check.Mode = enforcement.Force
			}
			d := decide(e, s, check)
			var each []int
			for i := range d.Limits {
				each = append(each, d.Limits[i].NearLimit())
			}
			if d.NearLimit() != step.whole || !slices.Equal(each, step.each) || d.Allowed == step.denied {
				t.Errorf("%v, cost %d: allowed %t, near %d, %v; want %d, %v", a, step.cost, d.Allowed, d.NearLimit(), each, step.whole, step.each)
			}
		}
	}
}

// A shadow policy does not set the threshold of the decision, a quota of 0 has none, and
// neither has a decision of a failure mode.
func TestNearLimitOfOthers(t *testing.T) {
	t.Parallel()
	l := newCounters()
	s := subject(t,
		enforcement.RuleSpec{Policy: "shadow", Mode: enforcement.PolicyShadow, Limits: []enforcement.RuleLimit{warned("l", 1, enforcement.FixedWindow, 1, 100)}},
		enforcement.RuleSpec{Policy: "none", Path: "/none", Limits: []enforcement.RuleLimit{warned("l", 2, enforcement.FixedWindow, 0, 1)}},
		enforcement.RuleSpec{Policy: "open", Path: "/open", OnFailure: enforcement.OnFailureLocal, Limits: []enforcement.RuleLimit{warned("l", 3, enforcement.FixedWindow, 1, 1)}})
	e := enforcement.NewEngine(l, enforcement.Config{Now: at(&l.now), Local: newCounters()})
	if d := decide(e, s, enforcement.Check{Cost: 1}); d.NearLimit() != 0 || d.Limits[0].NearLimit() != 100 {
		t.Errorf("a shadow policy: %d, %d", d.NearLimit(), d.Limits[0].NearLimit())
	}
	if d := decide(e, s, enforcement.Check{Cost: 1, Path: "/none"}); d.NearLimit() != 0 || d.Allowed {
		t.Errorf("a quota of 0: %d", d.NearLimit())
	}
	if d := decide(e, s, enforcement.Check{Cost: 1, Path: "/open"}); d.NearLimit() != 1 {
		t.Errorf("the shared limiter: %d", d.NearLimit())
	}
	e = enforcement.NewEngine(away{enforcement.Failed}, enforcement.Config{Now: at(&l.now), Local: newCounters()})
	if d := decide(e, s, enforcement.Check{Cost: 1, Path: "/open"}); d.NearLimit() != 0 || !d.Degraded {
		t.Errorf("a failure mode: %d, degraded %t", d.NearLimit(), d.Degraded)
	}
}

func TestReadWarnAt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		member, want string
		fault        bool
	}{
		{``, "", false},
		{`,"warn_at":[]`, "", false},
		{`,"warn_at":[95,80]`, "80, 95", false},
		{`,"warn_at":[1,2,99,100]`, "1, 2, 99, 100", false},
		{`,"warn_at":[0]`, "", true},
		{`,"warn_at":[101]`, "", true},
		{`,"warn_at":[-5,80]`, "", true},
		{`,"warn_at":[80,80]`, "", true},
		{`,"warn_at":[1,2,3,4,5]`, "", true},
		{`,"warn_at":[336]`, "", true}, // 80 modulo 256
	} {
		faults := 0
		var d strictjson.Decoder
		d.Reset(`{"slug":"p","limits":[{"algorithm":"fixed_window","quota":1,"window":"1m"`+c.member+`}]}`, strictjson.MaxDepth)
		p := enforcement.ReadPolicy(&d, func(pointer, message string) {
			if faults++; pointer != "/limits/0/warn_at" || message == "" {
				t.Errorf("%s: %s %s", c.member, pointer, message)
			}
		})
		if err := d.End(); err != nil {
			t.Fatal(err)
		}
		if got := p.Limits[0].WarnAt.String(); got != c.want || (faults == 1) != c.fault {
			t.Errorf("%s: %q, %d faults", c.member, got, faults)
		}
	}
	l := enforcement.Limit{Name: "l", Algorithm: enforcement.FixedWindow, Quota: 1, Window: time.Minute, WarnAt: enforcement.WarnAt{80, 95}}
	if text, err := l.MarshalJSON(); err != nil || string(text) != `{"name":"l","algorithm":"fixed_window","quota":1,"window":"1m","anchor":"first_hit","warn_at":[80,95]}` {
		t.Errorf("%s, %v", text, err)
	}
	for _, w := range []enforcement.WarnAt{{101}, {0, 5}, {5, 5}, {9, 5}, {5, 0, 7}} {
		if l.WarnAt = w; len(l.Validate()) != 1 {
			t.Errorf("%v is valid", w)
		}
	}
}
