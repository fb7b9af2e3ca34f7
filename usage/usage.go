package usage

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// Usage is what a tenant has left at an instant.
type Usage struct {
	TenantID string
	Tenant   string // slug
	// Plan is its slug, "" for a tenant without one; it then has no Policies.
	Plan        string
	PlanVersion int
	// At is the instant of the answer by the clock of the limiter; by this node's
	// when there was nothing to ask the limiter.
	At time.Time
	// Policies has every policy of the plan, in its order, or those asked for.
	Policies []PolicyUsage
}

// PolicyUsage is one policy with the keys that are shown of it.
type PolicyUsage struct {
	Policy string // slug
	Mode   enforcement.PolicyMode
	// Methods, Path and Attributes are what a request must match, as the plan has
	// them; none: everything.
	Methods    []string
	Path       string
	Attributes map[string]string
	// CountBy has the names that the policy counts by; none: the whole tenant is
	// one key.
	CountBy []string
	// Pace is that of all keys of the policy together.
	Pace Pace
	// Keys of the policy, those closest to being used up first: the one key of a
	// policy that counts the whole tenant, else the busiest of the last hour, at
	// most MaxKeys. What a shadow policy counts by keys is not ranked, so it shows
	// none; Key tells of one that is known.
	Keys []KeyUsage
	// More: the policy had other keys in the last hour, or may have had.
	More bool
}

// MaxKeys is how many keys of one policy are shown at most.
const MaxKeys = 10

// KeyUsage is one counted key.
type KeyUsage struct {
	// Key has the places of CountBy, in their order; empty for the whole tenant.
	Key []enforcement.KeyPart
	// Redacted: the values in Key are hashes, as the tenant keeps no values. What
	// the key holds is then not known, and Limits is empty.
	Redacted bool
	// Limits in the order of the policy, with the numbers in force for this key.
	Limits []LimitUsage
	// Override and Block are in force for this key at this instant; nil: none.
	Override, Block *InForce
	Pace            Pace
}

// LimitUsage is what one limit holds for one key.
type LimitUsage struct {
	// Limit has the numbers in force, an override's included.
	Limit enforcement.Limit
	// Capacity is the most that can be used at once: the quota, of a bucket its
	// burst. Used is what is not left of it; it may be more than Capacity, when
	// usage was forced or an override made the limit smaller. Remaining is what can
	// be charged now, never negative. All in units.
	Capacity, Used, Remaining int64
	// ResetAfter is when the limit is as new if nothing else comes; 0: it is.
	ResetAfter time.Duration
	// ExhaustedAfter is when a request is first refused by this limit at the
	// present pace; 0: now; nil: never, or the pace is not known.
	ExhaustedAfter *time.Duration
}

// A Pace is how fast something was charged in the last minutes.
type Pace struct {
	// Known: enough was counted to tell. Otherwise the rest is 0.
	Known bool
	// PerMinute is in units of cost, of allowed requests only. Requests is how many
	// requests a minute these were.
	PerMinute, Requests float64
	// Error is by how much less PerMinute may be: top keys are counted with an error.
	Error float64
	// Over is the time that it was measured over.
	Over time.Duration
}

// InForce is an override or a block that holds for a key.
type InForce struct {
	ID     string
	Reason string
	Until  time.Time
}

// Attributes are the values of the key by the name of the attribute, as blocks and
// resets take them: ip/64 is of the attribute ip, and what was not sent is left out.
func (k *KeyUsage) Attributes() map[string]string {
	key := make(map[string]string, len(k.Key))
	for _, part := range k.Key {
		name := part.Name
		if name == "ip/64" {
			name = "ip"
		}
		if !part.Missing {
			key[name] = part.Value
		}
	}
	return key
}
