package plans

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// A Review is the result of inspecting a draft before its publication.
type Review struct {
	// Faults must be fixed before the draft can be published.
	Faults problem.Fields
	// Warnings are about values that are valid but may be mistakes.
	Warnings problem.Fields
	// Charges is the largest number of counters that one request can charge. If the draft has other
	// faults, this number is not computed, and Charges is 0.
	Charges int
}

// Inspect inspects a document, which may be a draft that is not stored.
func (s *Service) Inspect(d Document) Review {
	var r Review
	if r.Faults = d.faults(); len(r.Faults) > 0 {
		return r
	}
	l := heaviest(d.c.Policies, s.work)
	r.Charges = l.charges
	if l.charges > MaxCharges {
		r.Faults.Add("/policies", "%s", tooHeavy(l))
	}
	warn(&r.Warnings, d.c.Policies)
	return r
}

func tooHeavy(l load) string {
	const named = 12
	policies := strings.Join(l.policies[:min(named, len(l.policies))], ", ")
	if more := len(l.policies) - named; more > 0 {
		policies += " and " + strconv.Itoa(more) + " more"
	}
	if !l.exact {
		return "too many policies overlap to check that one request is charged to at most " + strconv.Itoa(MaxCharges) +
			" limits; narrow their matches: " + policies
	}
	return "one request could be charged to " + strconv.Itoa(l.charges) + " limits, and the most is " + strconv.Itoa(MaxCharges) +
		"; narrow the matches of these policies, or let them replace one another: " + policies
}

func warn(f *problem.Fields, policies []Policy) {
	if len(policies) == 0 {
		f.Add("/policies", "the plan has no policies, so it limits nothing")
	}
	rules := matchers(policies)
	replaced := alwaysReplaced(rules)
	for i, p := range policies {
		at := "/policies/" + strconv.Itoa(i)
		if !p.Mode.Counts() {
			f.Add(at+"/mode", "the policy is off and has no effect")
			continue
		}
		if replaced[i] {
			f.Add(at, "another policy always applies together with this one and replaces it, so this one never counts")
		}
		if !p.Mode.InForce() && len(p.Replaces) > 0 {
			f.Add(at+"/replaces", "a policy in shadow does not replace others")
		}
		if p.UselessDelay() { // the draft was saved before Validate rejected such delays
			f.Add(at+"/delay_ms", "has no effect in mode %s", p.Mode)
		}
		if len(p.CountBy) == 0 && p.Missing != enforcement.MissingShared {
			f.Add(at+"/missing", "has no effect without count_by")
		}
		for n, l := range p.Limits {
			warnLimit(f, at+"/limits/"+strconv.Itoa(n), l)
		}
	}
}

// longLease is a time to live of leases. A draft with a longer one gets a warning.
const longLease = time.Hour

// longDelay is a delay of a leaky bucket. A draft with a longer maximum delay gets a warning.
const longDelay = 30 * time.Second

func warnLimit(f *problem.Fields, at string, l enforcement.Limit) {
	switch {
	case l.Quota == 0:
		f.Add(at+"/quota", "0 denies every request that matches")
	case l.Algorithm == enforcement.FixedWindow:
		f.Add(at+"/algorithm", "a fixed_window can allow up to 2 × %s within a short time around the boundary of two windows; "+
			"sliding_window_counter does not", thousands(l.Quota))
	case l.Algorithm == enforcement.Concurrency && l.Window > longLease:
		f.Add(at+"/window", "a holder that crashes keeps its place for up to %s, unless its checks state a shorter time to live",
			lasting(l.Window))
	case l.Algorithm == enforcement.LeakyBucket:
		if wait := l.LongestDelay(); wait > longDelay.Microseconds() {
			f.Add(at+"/burst", "a request can wait up to %s before the middleware of an SDK serves it", lastingMicros(wait))
		}
	case l.Algorithm.Bucket() && l.Burst > l.Quota:
		f.Add(at+"/burst", "up to %s can pass in one window after a pause: the burst plus the refill", thousands(l.Burst+l.Quota))
	}
}
