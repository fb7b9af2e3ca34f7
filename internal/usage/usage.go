package usage

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// Usage is the usage of a tenant's quotas at one time.
type Usage struct {
	TenantID string
	Tenant   string // slug
	// Plan is the slug of the plan. It is "" for a tenant without a plan, which has no
	// Policies.
	Plan        string
	PlanVersion int
	// At is the time of the result by the limiter's clock. If no counter was read, it is the time of this node's
	// clock.
	At time.Time
	// Policies contains the policies of the plan in their order, or only the requested policy.
	Policies []PolicyUsage
	// Counters is the number of live counters of the tenant. It is nil for a usage of one policy, and if the number is
	// unknown.
	Counters *Counters
}

// Counters is the number of live counters of a tenant in the limiter, and its bound. A counter is one limit for one
// key. With Redis, Live is an estimate.
type Counters struct {
	Live, Max int64
	Full      bool // new keys of each limit share one counter
}

// PolicyUsage is the usage of one policy, with some of its keys.
type PolicyUsage struct {
	Policy string // slug
	Mode   enforcement.PolicyMode
	// Methods, Path and Attributes are the conditions of the plan that a request must
	// match. Empty ones match every request.
	Methods    []string
	Path       string
	Attributes map[string]string
	// CountBy has the names that the policy counts by. If it is empty, the whole tenant
	// is one key.
	CountBy []string
	// Pace is the sum of the paces of all keys of the policy.
	Pace Pace
	// Keys has the busiest keys of the last hour, at most MaxKeys, or the one key of a
	// policy that counts the whole tenant. The keys that are closest to exhaustion come
	// first. Keys of shadow policies are not ranked, so the list is empty for them;
	// Service.Key returns a single one.
	Keys []KeyUsage
	// More is set if the policy may have had other keys in the last hour.
	More bool
}

// MaxKeys is the largest number of keys in a PolicyUsage.
const MaxKeys = 10

// KeyUsage is one counted key.
type KeyUsage struct {
	// Key has the values of CountBy, in its order. It is empty for the whole tenant.
	Key []enforcement.KeyPart
	// Redacted is set if the values in Key are hashes, because the tenant stores no
	// values. The counters cannot be read then, and Limits is empty.
	Redacted bool
	// Limits are in the order of the policy, with the numbers in force for this key.
	Limits []LimitUsage
	// Override and Block are in force for this key now; nil: none.
	Override, Block *InForce
	Pace            Pace
}

// LimitUsage is the usage of one limit by one key.
type LimitUsage struct {
	// Limit has the numbers in force: those of the plan or of an override.
	Limit enforcement.Limit
	// Window is the length of the window. A calendar window has that of the current one.
	Window time.Duration
	// Capacity, Used and Remaining are in units. Capacity is Limit.Capacity. Used may be
	// more than Capacity, after a forced charge or after an override that lowered the
	// limit. Remaining can be charged now; it is at least 0.
	Capacity, Used, Remaining int64
	// ResetAfter is the time until the counter is unused, if no other request comes. It is
	// 0 if the counter is unused now.
	ResetAfter time.Duration
	// ResetsAt is the end of an open calendar window, in the time zone of the tenant.
	// Otherwise it is zero.
	ResetsAt time.Time
	// ExhaustedAfter is the time until this limit denies the first request at the current
	// pace. 0 means now. nil means never, or that the pace is unknown.
	ExhaustedAfter *time.Duration
}

// A Pace is the usage per minute in the last minutes: the current minute and the
// four before it. It starts at the first of these minutes in which the tenant had
// requests, and covers at least a minute. All fields except Requests are in units
// of cost.
//
// The pace of a policy is exact except for the cost of denied requests, which is
// not recorded: the pace uses the average cost of the allowed requests. For keys,
// only requests are recorded: the pace uses the same average cost. The last second
// may be missing, because nodes write their counts once a second.
type Pace struct {
	// Known is set if the counts are sufficient. It is false for keys of a shadow policy,
	// for keys of a tenant that stores no values, and if more than half of the count may
	// be wrong. The other fields are then 0.
	Known bool
	// PerMinute was charged per minute. RefusedPerMinute was denied by limits per minute.
	// Their sum is the pace at which a limit is used up. For a key, RefusedPerMinute
	// includes requests that blocks denied.
	PerMinute, RefusedPerMinute float64
	// Requests is the number of requests per minute, charged or denied by limits.
	Requests float64
	// Error is how much less the sum of PerMinute and RefusedPerMinute may be, because
	// rankings of keys are approximate.
	Error float64
	// Over is the time that the pace is measured over.
	Over time.Duration
}

// InForce is an override or a block that is in force for a key.
type InForce struct {
	ID     string
	Reason string
	Until  time.Time
}

// Attributes returns the values of the key by attribute name, in the form of blocks and
// resets: the value of ip/64 has the name ip, and missing values are omitted.
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
