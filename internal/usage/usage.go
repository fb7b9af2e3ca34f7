package usage

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// Usage contains the usage of a tenant's quotas at one moment.
type Usage struct {
	TenantID string
	Tenant   string // slug
	// Plan is the slug of the plan. If the tenant has no plan, it is "", and Policies is empty.
	Plan        string
	PlanVersion int
	// At is the moment of the result, by the clock of the limiter. If no counter was read, it is by
	// the clock of this node.
	At time.Time
	// Policies contains the policies of the plan in their order, or only the requested policy.
	Policies []PolicyUsage
	// Counters is the number of live counters of the tenant. It is nil if the result is about one
	// policy, or if the number is unknown.
	Counters *Counters
}

// Counters is the number of live counters of a tenant in the limiter, and their maximum. Each limit
// has one counter for each key. With Redis, Live is an estimate.
type Counters struct {
	Live, Max int64
	Full      bool // new keys of each limit share one counter
}

// PolicyUsage is the usage of one policy, with some of its keys.
type PolicyUsage struct {
	Policy string // slug
	Mode   enforcement.PolicyMode
	// Methods, Path and Attributes are the conditions under which the policy applies to a request.
	// An empty one applies to every request.
	Methods    []string
	Path       string
	Attributes map[string]string
	// CountBy has the names of the attributes by which the policy counts. If it is empty, all
	// requests of the tenant have the same key.
	CountBy []string
	// Pace is the sum of the paces of all keys of the policy.
	Pace Pace
	// Keys has at most MaxKeys of the busiest keys of the last hour. The keys that are closest to
	// exhaustion come first. If the policy counts the whole tenant by one key, Keys has this key.
	// Keys of shadow policies are not ranked, so Keys is empty for them; Service.Key returns a
	// single one.
	Keys []KeyUsage
	// More says that the policy may have had further keys in the last hour.
	More bool
}

// MaxKeys is the largest number of keys in a PolicyUsage.
const MaxKeys = 10

// KeyUsage is the usage of the limits of a policy by one key.
type KeyUsage struct {
	// Key has a value for each element of CountBy, in the same order. It is empty if the policy
	// counts the whole tenant by one key.
	Key []enforcement.KeyPart
	// Redacted says that the values in Key are hashes, because the tenant redacts values. Then the
	// counters cannot be found, and Limits is empty.
	Redacted bool
	// Limits are the limits that are in force for this key, in the order of the policy.
	Limits []LimitUsage
	// Override and Block are those in force for this key now; nil if there is none.
	Override, Block *InForce
	Pace            Pace
}

// LimitUsage is the usage of one limit by one key.
type LimitUsage struct {
	// Limit is the limit in force: that of the plan, or that of an override.
	Limit enforcement.Limit
	// Window is the length of the window. For a calendar window, it is the length of the current
	// one.
	Window time.Duration
	// Capacity, Used and Remaining are in units. Capacity is Limit.Capacity. Used can exceed
	// Capacity, after a forced charge or after an override that lowered the limit. Remaining is
	// what can be charged now; it is at least 0.
	Capacity, Used, Remaining int64
	// ResetAfter is the time until the counter is as if unused, if no other request comes. It is 0
	// if that is so now.
	ResetAfter time.Duration
	// ResetsAt is the end of the current calendar window, in the time zone of the tenant. It is
	// zero for other limits, and if the counter is unused.
	ResetsAt time.Time
	// ExhaustedAfter is the time until this limit denies a request at the current pace; 0 means
	// now. It is nil if the limit never denies at this pace, or if the pace is unknown.
	ExhaustedAfter *time.Duration
}

// A Pace is the average usage per minute over the last minutes: the current minute and the four
// before it, from the first of them in which the tenant had requests. It is measured over at least
// one minute. All fields except Requests and Over are in units of cost.
//
// The pace of a policy is exact, except for denied requests: their cost is not recorded, so the
// pace uses the average cost of the allowed requests. For a key, only the number of requests is
// recorded, so the pace uses the same average cost. The last second may be missing, because nodes
// write counts once a second.
type Pace struct {
	// Known says that the pace can be computed. It is false for keys of a shadow policy, for keys
	// of a tenant that redacts values, and if more than half of the count may be wrong. Then the
	// other fields are 0.
	Known bool
	// PerMinute is the cost that was charged per minute. RefusedPerMinute is the cost that limits
	// denied per minute. A limit is used up at the sum of both. For a key, RefusedPerMinute
	// includes requests that blocks denied.
	PerMinute, RefusedPerMinute float64
	// Requests is the number of requests per minute that were charged, or that limits denied.
	Requests float64
	// Error is by how much the sum of PerMinute and RefusedPerMinute may be too high, because
	// rankings of keys are approximate.
	Error float64
	// Over is the length of the time over which the pace was measured.
	Over time.Duration
}

// InForce is an override or a block that is in force for a key.
type InForce struct {
	ID     string
	Reason string
	Until  time.Time
}

// Attributes returns the values of the key by attribute name, in the form of blocks and resets: the
// value of ip/64 has the name ip, and attributes that the key does not have are left out.
func (k *KeyUsage) Attributes() map[string]string {
	key := make(map[string]string, len(k.Key))
	for _, part := range k.Key {
		name := enforcement.CountedAttribute(part.Name)
		if _, whole := key[name]; part.Missing || whole && name != part.Name {
			continue // the address of ip includes ip/64
		}
		key[name] = part.Value
	}
	return key
}
