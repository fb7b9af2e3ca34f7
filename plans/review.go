package plans

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

// A Review is what can be said of a draft before it is published.
type Review struct {
	// Faults are what Publish would refuse.
	Faults problem.Fields
	// Warnings are what it would take, and what its writer may not have meant.
	Warnings problem.Fields
	// Charges is the most that could fall on one request; MaxCharges may.
	// It is 0 while there are other faults.
	Charges int
}

// Inspect reviews a document that need not be saved, nor normalised.
func (s *Service) Inspect(d Document) Review {
	var r Review
	d = Normalise(d)
	if faults(&r.Faults, d); len(r.Faults) > 0 {
		return r
	}
	l := heaviest(d.Policies, s.work)
	r.Charges = l.charges
	if l.charges > MaxCharges {
		r.Faults.Add("/policies", "%s", tooHeavy(l))
	}
	warn(&r.Warnings, d)
	return r
}

func tooHeavy(l load) string {
	const named = 12
	policies := strings.Join(l.policies[:min(named, len(l.policies))], ", ")
	if more := len(l.policies) - named; more > 0 {
		policies += " and " + strconv.Itoa(more) + " more"
	}
	if !l.exact {
		return "so many policies overlap that it cannot be told whether more than " + strconv.Itoa(MaxCharges) +
			" limits could be charged for one request; narrow their matches: " + policies
	}
	return strconv.Itoa(l.charges) + " limits could be charged for one request, and " + strconv.Itoa(MaxCharges) +
		" is the most; narrow the matches of these policies, or let them replace one another: " + policies
}

func warn(f *problem.Fields, d Document) {
	if len(d.Policies) == 0 {
		f.Add("/policies", "the plan has no policy: it limits nothing")
	}
	rules := matchers(d.Policies)
	replaced := alwaysReplaced(rules)
	for i, p := range d.Policies {
		at := "/policies/" + strconv.Itoa(i)
		if p.Mode == enforcement.PolicyOff {
			f.Add(at+"/mode", "the policy is off: it does nothing")
			continue
		}
		if replaced[i] {
			f.Add(at, "another policy applies wherever this one does, and replaces it: it never counts")
		}
		if p.Mode == enforcement.PolicyShadow && len(p.Replaces) > 0 {
			f.Add(at+"/replaces", "a policy in shadow replaces nothing")
		}
		if len(p.CountBy) == 0 && p.Missing != enforcement.MissingShared {
			f.Add(at+"/missing", "has no effect without count_by")
		}
		for n, l := range p.Limits {
			warnLimit(f, at+"/limits/"+strconv.Itoa(n), l)
		}
	}
}

func warnLimit(f *problem.Fields, at string, l enforcement.Limit) {
	switch {
	case l.Quota == 0:
		f.Add(at+"/quota", "0 refuses every request that matches")
	case l.Algorithm == enforcement.FixedWindow:
		f.Add(at+"/algorithm", "a fixed_window may admit up to 2 × %s in a short time around the edge of two windows; sliding_window_counter does not", thousands(l.Quota))
	case l.Algorithm.Bucket() && l.Burst > l.Quota:
		f.Add(at+"/burst", "up to %s may pass in one window after a pause: the burst, and what flows in meanwhile", thousands(l.Burst+l.Quota))
	}
}
