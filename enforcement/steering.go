package enforcement

import "time"

// What was set for one tenant beside its plan: lists, blocks and overrides.
// Each is asked in this order, and the first that speaks is heard:
//
//	deny list       403 denied_by_list
//	allow list      passes, charges nothing, asks no limiter
//	block           429 blocked, of one key of one policy
//	override        other numbers for a policy: an exact value (the newest of
//	                several), then the longest prefix, then all keys
//	plan
//
// A tenant that has none of them pays nothing: Subject.Steering is nil.

// A SteeringSpec is what people set, in their words. It must have been
// validated (steering.Service); CompileSteering reports what it cannot use.
type SteeringSpec struct {
	Deny, Allow []ListEntry
	Blocks      []Block
	Overrides   []Override
	// Changed says of a policy's slug at which revision an override of it last
	// began, changed or ended for this tenant: counters written before are
	// converted once.
	Changed map[string]int64
}

// A ListEntry is one value of a deny or an allow list.
type ListEntry struct {
	ID        string // UUID
	Attribute string // name
	// Value is exact, or for ip an address or a network in canonical form.
	Value  string
	Reason string
	Until  int64 // microseconds since the epoch, excluded; 0: without an end
}

// A Block refuses one key of one policy until an instant.
type Block struct {
	ID     string // UUID
	Policy string // slug
	// Key has the values of the policy's count_by; one that is not there is the
	// place of a missing value. An ip is canonical.
	Key    []Attribute
	Reason string
	Until  int64 // microseconds since the epoch, excluded
}

// An Override gives one policy other numbers, for all keys of the tenant or for
// those with one value, or with values that begin alike.
type Override struct {
	ID     string // UUID
	Policy string // slug
	// Attribute is one of the policy's count_by; "": all keys. Otherwise either
	// Value or Prefix is set. A Prefix of ip is a network in canonical form.
	Attribute, Value, Prefix string
	// Factor multiplies every quota and burst, in thousandths, rounded down, but
	// a quota above 0 stays at least 1; 0: Limits say.
	Factor int64
	Limits []OverrideLimit
	// Revision at which it came into force; the higher one is the newer.
	Revision    int64
	From, Until int64 // microseconds since the epoch; Until is excluded
	Reason      string
}

// Keep in a number of an OverrideLimit leaves the plan's.
const Keep int64 = -1

// An OverrideLimit is other numbers for one limit; its other limits stay.
type OverrideLimit struct {
	Name   string        // of the limit
	Quota  int64         // or Keep
	Burst  int64         // buckets: or Keep; 0: as the quota
	Window time.Duration // 0: the plan's
}

// MaxFactor bounds Override.Factor: a thousandfold, in thousandths.
const MaxFactor = 1_000_000

// A SteeringFault is a part of a SteeringSpec that cannot be used with a plan:
// it has no effect, and everything else goes on.
type SteeringFault struct {
	ID  string // of the entry, block or override
	Err error
}

// A Steering is a SteeringSpec compiled for one plan. It is immutable.
type Steering struct{ spec SteeringSpec }
