package usage

import (
	"time"

	"github.com/headgate/headgate/enforcement"
)

// Usage contains how much of its quotas a tenant has used at one moment.
type Usage struct {
	TenantID string
	Tenant   string // slug
	// Plan is the slug of the plan. If the tenant has no plan, it is "", and Policies is empty.
	Plan        string
	PlanVersion int
	// At is the time of the result, by the clock of the limiter. If no counter was read, it is
	// by the clock of this node.
	At time.Time
	// Zone is the time zone of the tenant. It is never nil.
	Zone *time.Location
	// Policies contains the policies of the plan in their order, or only the requested policy.
	Policies []PolicyUsage
	// Counters contains the number of live counters of the tenant. It is nil if the result is
	// about one policy, or if the number is unknown.
	Counters *Counters
}

// Counters compares two numbers: how many live counters a tenant has in the limiter (Live), and how
// many it may have (Max). Each limit has one counter for each key. With Redis, Live is an estimate.
type Counters struct {
	Live, Max int64
	Full      bool // the maximum is reached; all new keys of a limit then share one counter
}

// PolicyUsage is the usage of one policy, with some of its keys.
type PolicyUsage struct {
	Policy string // slug
	Mode   enforcement.PolicyMode
	// Methods, Path and Attributes are the conditions under which the policy applies to a
	// request. A condition that is empty holds for every request.
	Methods    []string
	Path       string
	Attributes map[string]string
	// CountBy has the names of the attributes by which the policy counts. If it is empty, all
	// requests of the tenant have the same key.
	CountBy []string
	// Pace is the sum of the paces of all keys of the policy.
	Pace Pace
	// Keys contains the busiest keys of the last hour, at most MaxKeys. The keys that are closest
	// to exhaustion come first. If the policy counts the whole tenant by one key, Keys contains
	// this key. For a shadow policy with a count_by, Keys is empty, because its keys are not
	// ranked; Service.Key can return one of its keys.
	Keys []KeyUsage
	// More says that the policy may have had keys in the last hour that Keys does not contain.
	More bool
}

// MaxKeys is the maximum number of keys in PolicyUsage.Keys.
const MaxKeys = 10

// KeyUsage contains how much of a policy's limits one key has used.
type KeyUsage struct {
	// Key contains a value for each element of CountBy, in the same order. It is empty if the
	// policy counts the whole tenant by one key.
	Key []enforcement.KeyPart
	// Redacted says that the values in Key are hashes, because the tenant redacts values. The
	// counters of such a key cannot be found, so Limits is empty.
	Redacted bool
	// Limits are the limits that are in force for this key, in the order of the policy.
	Limits []LimitUsage
	// Override is the override that is in force for this key now, and Block is the block that is in
	// force. Each is nil if there is none.
	Override, Block *InForce
	Pace            Pace
}

// LimitUsage contains how much of one limit one key has used.
type LimitUsage struct {
	// Limit is the limit in force: the limit of the plan, or the limit of an override.
	Limit enforcement.Limit
	// Window is the length of the window. For a calendar window, it is the length of the current
	// window.
	Window time.Duration
	// RolledOver is the number of unused units of earlier windows that the current window has in
	// addition to its quota.
	RolledOver int64
	// Capacity, Used and Remaining are in units of cost. Capacity is the sum of Limit.Capacity and
	// RolledOver. Used can exceed Capacity after a forced charge, or after an override that lowered
	// the limit. Remaining is how much can be charged now; it is never below 0.
	Capacity, Used, Remaining int64
	// ResetAfter is the time until the counter has its full quota again, if no further request
	// arrives. It is 0 if the counter is unused now.
	ResetAfter time.Duration
	// ResetsAt is the end of the current calendar window, in the time zone of the tenant. It is
	// zero for limits without a calendar window, and if the counter is unused.
	ResetsAt time.Time
	// Holders are the leases of a concurrency limit, in the order in which they end. It is empty if
	// the key shares its counter with other keys, because the tenant has its maximum number of
	// counters.
	Holders []Holder
	// Grants are the grants that the limit can spend for the key, in the order in which it spends
	// them. Remaining includes the units that are left of the grants. Used does not include the
	// units that were spent from the grants.
	Grants []GrantLeft
	// ExhaustedAfter is the time until this limit denies a request at the current pace; 0 means
	// that it denies now. It is nil if the limit never denies at this pace, or if the pace is
	// unknown.
	ExhaustedAfter *time.Duration
}

// A GrantLeft is a grant with the number of units that are left of it.
type GrantLeft struct {
	ID          string
	Reason      string
	Units, Left int64
	Until       time.Time
}

// A Holder is a lease that holds places of a concurrency limit.
type Holder struct {
	Lease  string // ID with which RevokeLease can end the lease; see enforcement.LeaseText
	Places int64
	Until  time.Time // the end of the lease, by the clock of the limiter
}

// A Pace is the average usage per minute in the last minutes: the current minute and the four
// minutes before it. Minutes at the beginning of this time in which the tenant had no requests are
// left out. A pace is measured over at least one minute. All fields except Known, Requests and Over
// are in units of cost.
//
// The pace of a policy is exact except for denied requests, whose cost is not recorded. Each of
// them counts with the average cost of the allowed requests. For a key, only the number of requests
// is recorded. Each request of a key counts with the same average cost. The last second may be
// missing, because nodes write counts once a second.
type Pace struct {
	// Known says that the pace could be computed. Known is false for keys of a shadow policy, and
	// for keys of a tenant that redacts values. It is also false if more than half of the count may
	// be wrong. The other fields are then 0.
	Known bool
	// PerMinute is the charged cost per minute. RefusedPerMinute is the cost per minute of requests
	// that limits denied. The sum of both is the rate at which a limit is used up. For a key,
	// RefusedPerMinute also contains requests that blocks denied.
	PerMinute, RefusedPerMinute float64
	// Requests is the number of requests per minute that were charged or that limits denied.
	Requests float64
	// Error says by how much the sum of PerMinute and RefusedPerMinute may be too high, because
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

// Attributes returns the values of the key by attribute name, as blocks and resets contain
// them: the value of ip/64 has the name ip, and attributes that the requests do not have are
// left out.
func (k *KeyUsage) Attributes() map[string]string {
	key := make(map[string]string, len(k.Key))
	for _, part := range k.Key {
		name := enforcement.CountedAttribute(part.Name)
		if _, whole := key[name]; part.Missing || whole && name != part.Name {
			continue // the attribute ip has a more exact value than ip/64
		}
		key[name] = part.Value
	}
	return key
}
