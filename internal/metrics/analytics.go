package metrics

import (
	"time"
)

// What can be asked of the counts: the answers that api and web show.

// A Query says of whom and of when. From and To are widened to whole steps, and
// To is cut to the step that is now.
type Query struct {
	Tenant   uint32 // number; 0: all together
	Policy   string // slug; at most one of Policy and Route, where an answer can be of one
	Route    string
	From, To time.Time // To after From, by at most 3 years
	// Step of the points; "": the finest that keeps an answer small.
	Step  Step
	Limit int // of rankings; 0: 10, and at most 100
}

// A Span is the time that an answer is about, in whole steps.
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

// RouteRanking has routes, or policies, with the most requests first.
type RouteRanking struct {
	Span
	Routes []RouteTraffic
	// More tells that there are, or may be, others.
	More bool
}

// A RouteTraffic is a route or a policy with its counts, over the span and by step.
type RouteTraffic struct {
	Name   string
	Total  Counts
	Points []Point // of the first ten only: every step of the span
}

// A Measure is what tenants are ranked by.
type Measure string

// The measures.
const (
	ByRequests Measure = "requests"
	ByLimited  Measure = "limited" // refusals by limits
	// ByRate ranks those with the most refusals by limits by what these are of
	// their requests: few of few do not hide many of many.
	ByRate Measure = "rate"
)

// TenantRanking has tenants, each with exact counts.
type TenantRanking struct {
	Span
	Tenants []TenantTraffic
	// Floor: a tenant that is not there has at most so many requests or, by
	// limited and by rate, refusals by limits; or it comes later in the ranking.
	Floor int64
}

// A TenantTraffic is a tenant in a ranking.
type TenantTraffic struct {
	Tenant uint32
	Counts
}

// A KeyRanking is what keys are ranked by.
type KeyRanking string

// The rankings of keys.
const (
	LimitedKeys KeyRanking = "limited" // by refusals by limits
	AllowedKeys KeyRanking = "allowed" // by allowed decisions
)

// A TopKey is a key in a ranking. The true number is within Count-Error and Count.
type TopKey struct {
	Tenant uint32
	Policy string // slug
	// Values of the policy's count_by, in its order; Missing tells which were not
	// sent. Redacted values are a hash.
	Names    []string
	Values   []string
	Missing  []bool
	Redacted bool
	Count    int64
	Error    int64
}

// TopKeys is a ranking of keys. What is not in it has at most Floor.
type TopKeys struct {
	Span
	Keys  []TopKey
	Floor int64
	Total int64 // of all keys of all policies
}

// KeyTraffic is one key over time. The true numbers are within Count-Error and
// Count; a key that is not among the top ones of a time may have none of it.
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

// A Bucket of a histogram: values above From and up to To, in its unit.
type Bucket struct {
	From, To int64
	Count    int64
}

// A Histogram with the quantiles read from its buckets.
type Histogram struct {
	Span
	Buckets       []Bucket // without empty ones at both ends
	Count         int64
	Never         int64 // of retry_after: waiting does not help; not in Count
	P50, P95, P99 int64 // upper ends of their buckets; 0 without values
}

// Remaining says how much of its quota was left when decisions were made.
type Remaining struct {
	Span
	Policies []PolicyRemaining // by slug
}

// PolicyRemaining is a histogram of what remained of a policy's quota, in
// percent, of a sample of its decisions. It has every bucket, each 5 wide; the
// first is that nothing was left.
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

// Latency is the limiter's time in microseconds: of both limiters together, of
// the one that all nodes share (or that a node alone has), and of the one that
// stands in for it.
type Latency struct {
	Histogram
	Shared, Local Histogram
	Points        []LatencyPoint // of both together; every step of the span
}

// A Second is what this node decided in one second.
type Second struct {
	At time.Time
	Counts
}
