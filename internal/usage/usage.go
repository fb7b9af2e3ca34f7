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

// A Pace is how fast something was charged in the last minutes: in the minute that
// is now and the four before it, or from the first of these in which anything of the
// tenant was counted; but over a minute at the least. All but Requests is in units of
// cost.
//
// Of a policy it is exact, but for the cost of what was refused, which nobody kept:
// such a request is taken to cost what one that passed costs on average. Of keys
// requests are counted, and each is taken to cost that. The last second may be
// missing, as every node writes down once a second what it counted.
type Pace struct {
	// Known: enough was counted to tell. It is false for keys of a shadow policy and
	// of a tenant that keeps no values, and where more than half may be wrong.
	// Otherwise the rest is 0.
	Known bool
	// PerMinute is what was charged a minute, and RefusedPerMinute what would have
	// been if limits had not refused it: both together are the pace at which a limit
	// is used up. Of a key what blocks refused is in it.
	PerMinute, RefusedPerMinute float64
	// Requests a minute, charged or refused by limits.
	Requests float64
	// Error is by how much less both together may be: top keys are counted with an
	// error.
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
		name := attributeOf(part.Name)
		if _, whole := key[name]; part.Missing || whole && name != part.Name {
			continue // of ip and ip/64 the address says both
		}
		key[name] = part.Value
	}
	return key
}
