package metrics

import (
	"time"
)

// A Query selects counts. From and To are widened to whole steps, and To is cut to the current
// step.
type Query struct {
	Tenant   uint32 // number; 0: all together
	Policy   string // slug; at most one of Policy and Route, where an answer can be of one
	Route    string
	From, To time.Time // To after From, by at most 3 years
	// Step of the points; "": the finest step that keeps the answer small.
	Step  Step
	Limit int // of rankings; 0: 10, and at most 100
}

// A Span is the time that an answer covers, in whole steps.
type Span struct {
	From, To time.Time
	Step     Step
}

// Traffic is decisions over time. Points has every step of the span.
type Traffic struct {
	Span
	Total  Counts
	Points []Point
}

// A Point is the counts of one step.
type Point struct {
	At time.Time
	Counts
}

// RouteRanking lists routes or policies, those with the most requests first.
type RouteRanking struct {
	Span
	Routes []RouteTraffic
	// More is set if there may be others.
	More bool
}

// A RouteTraffic is the counts of a route or a policy.
type RouteTraffic struct {
	Name   string
	Total  Counts
	Points []Point // of the first ten only: every step of the span
}

// A Measure ranks tenants.
type Measure string

// The measures.
const (
	ByRequests Measure = "requests"
	ByLimited  Measure = "limited" // refusals by limits
	// ByRate ranks the tenants with the most denials by limits by their denial rate. A tenant with
	// few requests does not hide one with many.
	ByRate Measure = "rate"
)

// TenantRanking has tenants, each with exact counts.
type TenantRanking struct {
	Span
	Tenants []TenantTraffic
	// Floor is the most requests (ByRequests) or denials by limits (ByLimited, ByRate) of a tenant
	// that is not listed.
	Floor int64
}

// A TenantTraffic is a tenant in a ranking.
type TenantTraffic struct {
	Tenant uint32
	Counts
}

// A KeyRanking ranks keys.
type KeyRanking string

// The rankings of keys.
const (
	LimitedKeys KeyRanking = "limited" // by refusals by limits
	AllowedKeys KeyRanking = "allowed" // by allowed decisions
)

// A TopKey is a key in a ranking. Its true number is from Count-Error to Count.
type TopKey struct {
	Tenant uint32
	Policy string // slug
	// Values of the policy's count_by, in its order. Missing marks those that the requests did not
	// have. Redacted values are hashes.
	Names    []string
	Values   []string
	Missing  []bool
	Redacted bool
	Count    int64
	Error    int64
}

// TopKeys is a ranking of keys. A key that is not listed has at most Floor.
type TopKeys struct {
	Span
	Keys  []TopKey
	Floor int64
	Total int64 // of all keys of all policies
}

// KeyTraffic is one key over time. The true numbers are from Count-Error to Count.
type KeyTraffic struct {
	Span
	Count, Error int64
	Points       []KeyPoint // every step of the span
}

// A KeyPoint is one key in one step.
type KeyPoint struct {
	At           time.Time
	Count, Error int64
}

// A Bucket of a histogram counts values above From and up to To.
type Bucket struct {
	From, To int64
	Count    int64
}

// A Histogram with quantiles, which are upper ends of buckets.
type Histogram struct {
	Span
	Buckets       []Bucket // without empty ones at both ends
	Count         int64
	Never         int64 // of retry_after: waiting does not help; not in Count
	P50, P95, P99 int64 // upper ends of their buckets; 0 without values
}

// Remaining says how much quota was left when decisions were made.
type Remaining struct {
	Span
	Policies []PolicyRemaining // by slug
}

// PolicyRemaining is a histogram of the remaining quota of a policy in percent, from a sample of
// its decisions. It has every bucket, each 5 wide; the first counts decisions with nothing left.
type PolicyRemaining struct {
	Policy  string
	Count   int64
	Buckets []Bucket
}

// LatencyPoint is the limiter's time in one step, in microseconds.
type LatencyPoint struct {
	At            time.Time
	Count         int64
	P50, P95, P99 int64
}

// Latency is the limiter's time in microseconds: of both limiters together, of the shared one (or
// the only one of a node), and of the local one that replaces it.
type Latency struct {
	Histogram
	Shared, Local Histogram
	Points        []LatencyPoint // of both together; every step of the span
}

// A Second is the counts of this node for one second.
type Second struct {
	At time.Time
	Counts
}
