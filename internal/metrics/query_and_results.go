package metrics

import (
	"time"
)

// A Query selects the counts of a time range. From is rounded down and To is rounded up to
// whole steps. If To is in the future, the range ends with the current step.
type Query struct {
	Tenant   uint32 // the tenant's number; 0: the sum over all tenants
	Policy   string // slug; "": all. At most one of Policy and Route may be set. Some queries support only one of them or none.
	Route    string
	From, To time.Time // after From, by at most 3 years
	// Step is the length of one point of the result. If it is "", the query uses the finest
	// step whose number of points and rows is within the query's bounds.
	Step  Step
	Limit int // maximum number of rows of a ranking; 0: 10; at most 100
}

// A Span is the time range of a result. It consists of whole steps.
type Span struct {
	From, To time.Time
	Step     Step
}

// Traffic contains counts of decisions over time. Points has one element for every step of the
// span, oldest first.
type Traffic struct {
	Span
	Total  Counts
	Points []Point
}

// A Point contains the counts of one step.
type Point struct {
	At time.Time
	Counts
}

// RouteRanking lists routes or policies with their counts, the ones with the most requests first.
type RouteRanking struct {
	Span
	Routes []RouteTraffic
	// More is set if routes or policies that are not listed may have counts in the span.
	More bool
}

// A RouteTraffic contains the counts of one route or one policy.
type RouteTraffic struct {
	Name   string
	Total  Counts
	Points []Point // one for each step of the span; only set for the first ten elements of RouteRanking.Routes
}

// A Measure says by which count a ranking orders tenants.
type Measure string

// The measures.
const (
	ByRequests Measure = "requests"
	ByLimited  Measure = "limited" // denials by limits
	// ByRate selects the tenants with the most denials by limits and orders them by their
	// denial rate. It selects by the number of denials, because otherwise tenants with very few
	// requests could come first.
	ByRate Measure = "rate"
)

// TenantRanking ranks tenants. The counts of each listed tenant are exact.
type TenantRanking struct {
	Span
	Tenants []TenantTraffic
	// Floor is the most that a tenant that is not listed can have. It counts requests if the ranking is ByRequests,
	// and otherwise denials by limits.
	Floor int64
}

// A TenantTraffic contains the counts of one tenant in a ranking.
type TenantTraffic struct {
	Tenant uint32
	Counts
}

// A KeyRanking selects what is counted for each key.
type KeyRanking string

// The rankings of keys.
const (
	LimitedKeys KeyRanking = "limited" // denials by limits
	AllowedKeys KeyRanking = "allowed" // allowed decisions
)

// A TopKey is one key of a ranking with its count. Count may be too high by at most Error: the
// true count is at least Count-Error and at most Count.
type TopKey struct {
	Tenant uint32
	Policy string // slug
	// Names are the attributes in the policy's count_by. Values are their values in the same
	// order. An element of Missing is true if the requests did not have this attribute. If
	// Redacted is set, the values are hashes.
	Names    []string
	Values   []string
	Missing  []bool
	Redacted bool
	Count    int64
	Error    int64
	// The number of allowed requests of the key is at least Allowed and at most AllowedMost. Trend
	// divides the span into equal parts and has the count of each part, oldest first. Only
	// LimitedAndAllowed sets these fields, and only for the keys in its result limited.
	Allowed, AllowedMost int64
	Trend                []int64
}

// TopKeys lists the keys with the highest counts. Floor is an upper bound of the count of each
// key that is not listed.
type TopKeys struct {
	Span
	Keys  []TopKey
	Floor int64
	Total int64 // sum of the counts of all keys of all policies, also of keys that are not listed
}

// KeyTraffic contains the counts of one key over time. Each true count is at least Count-Error and
// at most Count.
type KeyTraffic struct {
	Span
	Count, Error int64
	Points       []KeyPoint // every step of the span
}

// A KeyPoint contains the counts of one key in one step.
type KeyPoint struct {
	At           time.Time
	Count, Error int64
}

// A Bucket contains the number of values in a histogram that are greater than From and at most To.
type Bucket struct {
	From, To int64
	Count    int64
}

// A Histogram contains the number of values in each bucket. A quantile is reported as the upper
// bound of the bucket that contains it.
type Histogram struct {
	Span
	Buckets       []Bucket // without the empty buckets at both ends
	Count         int64
	Never         int64 // denials for which waiting does not help; they are not in Buckets; only set by RetryAfter
	P50, P95, P99 int64 // upper bounds of their buckets; 0 without values
}

// Remaining shows for each policy how much quota was left at the time of its decisions.
type Remaining struct {
	Span
	Policies []PolicyRemaining // ordered by slug
}

// PolicyRemaining is a histogram of the remaining quota of one policy, in percent, from a sample of
// its decisions. It contains 21 buckets: the first counts decisions with no quota left, and each of
// the others is 5% wide.
type PolicyRemaining struct {
	Policy  string
	Count   int64
	Buckets []Bucket
}

// LatencyPoint summarizes the durations of the limiter calls in one step, in microseconds.
type LatencyPoint struct {
	At            time.Time
	Count         int64
	P50, P95, P99 int64
}

// Latency has the durations of limiter calls in microseconds. Histogram covers all calls.
// Shared covers the calls of the limiter that all nodes share; on a single node without Redis,
// this is its only limiter. Local covers the calls of the node's own limiter, which decides
// while the shared limiter is unavailable.
type Latency struct {
	Histogram
	Shared, Local Histogram
	Points        []LatencyPoint // of all calls; one for each step of the span
}

// A Second contains the decisions that this node counted in one second.
type Second struct {
	At time.Time
	Counts
}
