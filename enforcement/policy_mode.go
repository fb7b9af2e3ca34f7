package enforcement

import (
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// A PolicyMode says what a policy does with requests that are over one of its limits.
type PolicyMode string

// The modes. A new mode needs a value here, in policyModes, and in the methods below.
const (
	// PolicyEnforce denies requests that are over a limit.
	PolicyEnforce PolicyMode = "enforce"
	// PolicyDegrade allows requests that are over a limit, and marks them with
	// Decision.ServeCheap.
	PolicyDegrade PolicyMode = "degrade"
	// PolicyDelay allows requests that are over a limit after Policy.DelayMS.
	PolicyDelay PolicyMode = "delay"
	// PolicyShadow counts the requests that are over a limit, and changes no decision.
	PolicyShadow PolicyMode = "shadow"
	// PolicyOff turns the policy off.
	PolicyOff PolicyMode = "off"
)

// policyModes has all modes. The first one is the default.
var policyModes = []string{
	string(PolicyEnforce), string(PolicyDegrade), string(PolicyDelay), string(PolicyShadow), string(PolicyOff),
}

// Counts reports whether the limits of a policy in this mode are charged.
func (m PolicyMode) Counts() bool { return m != PolicyOff }

// Denies reports whether a limit of a policy in this mode denies requests.
func (m PolicyMode) Denies() bool { return m == PolicyEnforce }

// Soft reports whether a policy in this mode allows requests that are over a limit, and says so
// in the decision.
func (m PolicyMode) Soft() bool { return m == PolicyDegrade || m == PolicyDelay }

// InForce reports whether a policy in this mode affects decisions. Only such a policy replaces other
// policies, counts as a match for DenyUnmatched, and denies because of a block or of missing: deny.
func (m PolicyMode) InForce() bool { return m.Denies() || m.Soft() }

// A chargeClass says in which step of a request the charges of a policy are decided.
type chargeClass uint8

const (
	chargedTogether   chargeClass = iota // enforced policies: all their charges are made, or none
	chargedSeparately                    // soft policies: after the enforced charges, for each policy separately
	chargedInShadow                      // shadow policies: as soft ones
	chargeClasses
)

func (m PolicyMode) class() chargeClass {
	switch {
	case m.Denies():
		return chargedTogether
	case m.Soft():
		return chargedSeparately
	}
	return chargedInShadow
}

// A classSet is a set of charge classes, as bits.
type classSet uint8

func (s *classSet) add(c chargeClass) { *s |= 1 << c }

func (s classSet) has(c chargeClass) bool { return s&(1<<c) != 0 }

// inForce reports whether the set has the class of a mode that is in force.
func (s classSet) inForce() bool { return s.has(chargedTogether) || s.has(chargedSeparately) }

// Bounds of the delay of a policy in mode delay, in milliseconds.
const (
	DefaultPolicyDelay = 1_000
	MaxPolicyDelay     = 60_000
)

const policyDelayRange = "must be from 1 to 60000 milliseconds"

// Delay returns how long a request that is over a limit of the policy waits if the mode is delay.
func (p *Policy) Delay() time.Duration {
	return time.Duration(policyDelay(p.DelayMS)) * time.Millisecond
}

// policyDelay returns a delay in milliseconds with its default filled in.
func policyDelay(ms int64) int64 {
	if ms == 0 {
		return DefaultPolicyDelay
	}
	return ms
}

// UselessDelay reports whether the policy has a valid delay that its mode never uses. In the modes shadow
// and off, a delay is not useless, because the policy may get the mode delay later.
func (p *Policy) UselessDelay() bool {
	return p.DelayMS != 0 && len(p.validateDelay()) == 0 && (p.Mode.Denies() || p.Mode == PolicyDegrade)
}

// validateDelay returns the errors of the field delay_ms.
func (p *Policy) validateDelay() (f problem.Fields) {
	if p.DelayMS < 0 || p.DelayMS > MaxPolicyDelay {
		f.Add("/delay_ms", policyDelayRange)
	}
	return f
}
