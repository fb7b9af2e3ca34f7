package metrics

import (
	"time"
)

// What can be asked of the counts: the answers that api and web show.

// A Query says of whom and of when. From and To are widened to whole steps.
type Query struct {
	Tenant   uint32 // number; 0: all together
	Policy   string // slug; at most one of Policy and Route
	Route    string
	From, To time.Time
	// Step of the points; "": the finest that keeps an answer small.
	Step  Step
	Limit int // of rankings; 0: 10
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

// A RouteTraffic is a route or a policy with its counts, over the span and by step.
type RouteTraffic struct {
	Name   string
	Total  Counts
	Points []Point // of the first routes only; empty for the others
}

// A TenantTraffic is a tenant in a ranking.
type TenantTraffic struct {
	Tenant uint32
	Counts
}

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
	Total int64 // of all keys
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

// LatencyPoint is the limiter's time in one step, in microseconds.
type LatencyPoint struct {
	At            time.Time
	Count         int64
	P50, P95, P99 int64
}

// Latency is the limiter's time.
type Latency struct {
	Histogram
	Points []LatencyPoint
}

// A Second is what this node decided in one second.
type Second struct {
	At time.Time
	Counts
}
