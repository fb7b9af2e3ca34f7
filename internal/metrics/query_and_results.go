package metrics

import (
	"time"
)

// A Query selects the counts of a time range. From is rounded down and To is rounded up to
// whole steps. If To is in the future, the range ends with the current step.
type Query struct {
	Tenant uint32 // the tenant's number; 0: the sum over all tenants
	// slug; "" stands for all. At most one of Policy and Route may be set. Some queries support
	// only one of them, or neither.
	Policy   string
	Route    string
	From, To time.Time // after From, by at most 3 years
	// Step is the length of one point of the result. If Step is "", the query uses the finest step
	// for which the numbers of points and rows are within the bounds of the query.
	Step  Step
	Limit int // maximum number of elements of a ranking, at most 100; 0 stands for 10
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
	// More is set if further routes or policies, which are not in the list, may have counts in the
	// span.
	More bool
}

// A RouteTraffic contains the counts of one route or one policy.
type RouteTraffic struct {
	Name   string
	Total  Counts
	Points []Point // one point for each step of the span; only set for the first ten elements of RouteRanking.Routes
}

// A Measure says by which count a ranking orders tenants.
type Measure string

// The measures.
const (
	ByRequests Measure = "requests"
	ByLimited  Measure = "limited" // denials by limits
	// ByRate selects the tenants with the most denials by limits, and then orders these tenants by
	// their denial rate. It does not select by the rate, because tenants with very few requests
	// could then come first.
	ByRate Measure = "rate"
)

// TenantRanking ranks tenants. The counts of each listed tenant are exact.
type TenantRanking struct {
	Span
	Tenants []TenantTraffic
	// Floor is an upper bound of the count of every tenant that is not listed. The count is the
	// number of requests if the ranking is ByRequests, and otherwise the number of denials by
	// limits.
	Floor int64
}

// A TenantTraffic contains the counts of one tenant in a ranking.
type TenantTraffic struct {
	Tenant uint32
	Counts
}

// A KeyRanking selects which decisions are counted for each key.
type KeyRanking string

// The rankings of keys.
const (
	LimitedKeys KeyRanking = "limited" // denials by limits
	AllowedKeys KeyRanking = "allowed" // allowed decisions
)

// A TopKey is one key of a ranking with its count. Count is an estimate: the true count is at least
// Count-Error and at most Count.
type TopKey struct {
	Tenant uint32
	Policy string // slug
	// Names are the attributes in the policy's count_by. Values are the values of these attributes,
	// in the same order. An element of Missing is true if the requests did not have the attribute.
	// If Redacted is set, the values are hashes.
	Names    []string
	Values   []string
	Missing  []bool
	Redacted bool
	Count    int64
	Error    int64
	// The true number of allowed requests of the key is at least Allowed and at most AllowedMost.
	// For Trend, the span is divided into equal parts; Trend has the count of each part, oldest
	// first. Only LimitedAndAllowed sets these three fields, and only in its result limited.
	Allowed, AllowedMost int64
	Trend                []int64
}

// TopKeys lists the keys with the highest counts. Floor is an upper bound of the count of each
// key that is not listed.
type TopKeys struct {
	Span
	Keys  []TopKey
	Floor int64
	Total int64 // sum of the counts of all keys of all policies, including keys that are not listed
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
	Never         int64 // number of denials for which waiting does not help; they are not in Buckets; only RetryAfter sets it
	P50, P95, P99 int64 // upper bounds of the buckets that contain these quantiles; 0 without values
}

// Remaining has, for each policy, a histogram of the quota that was left at the time of the
// decisions.
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

// Latency has the durations of limiter calls in microseconds. Histogram covers all calls. Shared
// covers the calls of the limiter that all nodes share. On a single node without Redis, Shared
// covers the calls of the node's only limiter. Local covers the calls of the node's own limiter,
// which decides while the shared limiter is unavailable.
type Latency struct {
	Histogram
	Shared, Local Histogram
	Points        []LatencyPoint // over all calls; one point for each step of the span
}

// A Second contains the decisions that this node counted in one second.
type Second struct {
	At time.Time
	Counts
}
