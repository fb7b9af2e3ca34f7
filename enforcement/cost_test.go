package enforcement_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/strictjson"
)

// requestsAndTokens is a tenant with 3 requests and 1,000 tokens in ten seconds. A
// request without the attribute tokens costs 100 tokens.
func requestsAndTokens(t *testing.T) *enforcement.Subject {
	hundred := int64(100)
	return subject(t,
		enforcement.RuleSpec{Policy: "requests", Limits: []enforcement.RuleLimit{
			limit("l", 1, enforcement.FixedWindow, 3, 10*time.Second),
		}},
		enforcement.RuleSpec{Policy: "tokens", CostFrom: "tokens", Cost: &hundred, Limits: []enforcement.RuleLimit{
			limit("l", 2, enforcement.FixedWindow, 1000, 10*time.Second),
		}})
}

func costs(d *enforcement.Decision) (list []int64) {
	for _, l := range d.Limits {
		list = append(list, l.Cost)
	}
	return list
}

// One check charges each policy that policy's own cost. Either all policies are charged or
// none.
func TestCostOfEachPolicy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name              string
		cost              int64 // -1: the check has none
		tokens            string
		requests, tokens2 int64
	}{
		{"the attribute", -1, "700", 1, 700},
		{"the attribute before the cost of the check", 2, "700", 2, 700},
		{"the attribute 0", 2, "0", 2, 0},
		{"the cost of the check before that of the policy", 2, "", 2, 2},
		{"a cost of 1 that was sent", 1, "", 1, 1},
		{"the cost of the policy", -1, "", 1, 100},
	} {
		now := start
		e := enforcement.NewEngine(newCounters(), enforcement.Config{Now: at(&now)})
		check := enforcement.Check{Cost: c.cost}
		if c.cost < 0 {
			check.Cost, check.DefaultCost = 1, true
		}
		if c.tokens != "" {
			check.Attributes = attributes("tokens", c.tokens)
		}
		d := decide(e, requestsAndTokens(t), check)
		if got := costs(d); !d.Allowed || len(got) != 2 || got[0] != c.requests || got[1] != c.tokens2 {
			t.Errorf("%s: allowed %t, costs %v, want %d and %d", c.name, d.Allowed, got, c.requests, c.tokens2)
		}
		if left := d.Limits[1].Remaining; left != 1000-c.tokens2 {
			t.Errorf("%s: %d tokens are left", c.name, left)
		}
	}
}

// A check that exceeds the limit of tokens does not charge the limit of requests. Its retry
// time is that of the limit of tokens.
func TestCostsAreChargedTogether(t *testing.T) {
	t.Parallel()
	now := start
	e := enforcement.NewEngine(newCounters(), enforcement.Config{Now: at(&now)})
	s := requestsAndTokens(t)
	send := func(tokens string) *enforcement.Decision {
		return decide(e, s, enforcement.Check{Cost: 1, DefaultCost: true, Attributes: attributes("tokens", tokens)})
	}
	wantSummary(t, send("900"), "true ok retry 0 | requests true left 2 reset 10000 retry 0 | tokens true left 100 reset 10000 retry 0")
	wantSummary(t, send("101"), "false over_limit retry 10000 | requests true left 2 reset 10000 retry 0 | tokens false left 100 reset 10000 retry 10000")
	wantSummary(t, send("1001"), "false cost_exceeds_quota retry -1 | requests true left 2 reset 10000 retry 0 | tokens false left 100 reset 10000 retry -1")
	wantSummary(t, send("100"), "true ok retry 0 | requests true left 1 reset 10000 retry 0 | tokens true left 0 reset 10000 retry 0")
	wantSummary(t, send("0"), "true ok retry 0 | requests true left 0 reset 10000 retry 0 | tokens true left 0 reset 10000 retry 0")
}

func TestParseCost(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"0": 0, "1": 1, "1800": 1800, "2147483647": 2147483647} {
		if got, ok := enforcement.ParseCost(text); !ok || got != want {
			t.Errorf("%q is %d, %t", text, got, ok)
		}
	}
	for _, text := range []string{"", "-1", "+1", "01", "00", "1.5", "1e3", " 1", "1 ", "0x10", "2147483648", "9999999999", "18446744073709551617", "١"} {
		if got, ok := enforcement.ParseCost(text); ok {
			t.Errorf("%q is %d", text, got)
		}
	}
}

func TestCostFault(t *testing.T) {
	t.Parallel()
	s := requestsAndTokens(t)
	for text, fault := range map[string]bool{"": false, "5": false, "five": true, "-5": true, "2147483648": true} {
		c := enforcement.Check{Cost: 7, Attributes: attributes("tokens", text)}
		if name, message := s.CostFault(&c); (name == "tokens") != fault || (message != "") != fault {
			t.Errorf("%q: fault %q %q", text, name, message)
		}
	}
	for text, want := range map[string]int64{"": 7, "5": 7, "900": 900} {
		c := enforcement.Check{Cost: 7, Attributes: attributes("tokens", text)}
		if got := s.SentCost(&c); got != want {
			t.Errorf("%q: the caller sent the cost %d, want %d", text, got, want)
		}
	}
	none := enforcement.Subject{}
	c := enforcement.Check{Cost: 7, Attributes: attributes("tokens", "five")}
	if name, _ := none.CostFault(&c); name != "" || none.SentCost(&c) != 7 {
		t.Error("a tenant without a plan has costs")
	}
}

func TestValidateCost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ members, pointer string }{
		{``, ""},
		{`,"cost":0`, ""},
		{`,"cost":2147483647,"cost_from":"tokens"`, ""},
		{`,"cost":-1`, "/0/cost"},
		{`,"cost":2147483648`, "/0/cost"},
		{`,"cost_from":"ip"`, "/0/cost_from"},
		{`,"cost_from":"ip/64"`, "/0/cost_from"},
		{`,"cost_from":"user","count_by":["user"]`, "/0/cost_from"},
		{`,"cost_from":"` + strings.Repeat("x", 65) + `"`, "/0/cost_from"},
	} {
		text := `{"slug":"p","limits":[{"algorithm":"fixed_window","quota":1,"window":"1m"}]` + c.members + `}`
		var d strictjson.Decoder
		d.Reset(text, strictjson.MaxDepth)
		p := enforcement.ReadPolicy(&d, func(pointer, message string) { t.Errorf("%s: %s %s", text, pointer, message) })
		if err := d.End(); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		faults := enforcement.ValidatePolicies([]enforcement.Policy{p.Canonical()})
		switch {
		case c.pointer == "" && len(faults) > 0, c.pointer != "" && (len(faults) != 1 || faults[0].Pointer != c.pointer):
			t.Errorf("%s: faults %v, want one at %q", text, faults, c.pointer)
		}
	}
	one := int64(1)
	if p := (enforcement.Policy{Cost: &one}).Canonical(); p.Cost != nil {
		t.Error("a cost of 1 is not left out of the canonical form")
	}
	spec := enforcement.RuleSpec{Policy: "p", Cost: new(int64)}
	*spec.Cost = -1
	if _, err := enforcement.CompilePlan("p", 1, []enforcement.RuleSpec{spec}); err == nil || !strings.Contains(err.Error(), "cost") {
		t.Errorf("a cost of -1 compiles: %v", err)
	}
}
