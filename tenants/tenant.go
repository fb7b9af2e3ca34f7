// Package tenants manages tenants, which are the customers of the operator, and all API keys:
// those of tenants and those of the operator.
//
// Callers use a Service, which validates changes. A Store stores tenants and keys, and writes
// the audit log. The package does not depend on HTTP, SQL or limiters. The limits of a tenant
// come from its plan; see package plans.
package tenants

import "time"

// Status says whether a tenant is active or suspended.
type Status string

// The statuses. While a tenant is suspended, its checks are denied, and its keys can only read.
const (
	Active    Status = "active"
	Suspended Status = "suspended"
)

// NoPolicy says how a check is decided if no policy matches it.
type NoPolicy string

// The values of NoPolicy.
const (
	Allow NoPolicy = "allow"
	Deny  NoPolicy = "deny"
)

// A Document contains the fields of a tenant that an administrator sets. PUT /v1/tenants/{tenant}
// accepts it, and GET shows it as the member "tenant".
type Document struct {
	Name             string   // 1 to 200 characters
	Status           Status   // default active
	Plan             string   // slug of a published plan; empty for none
	TimeZone         string   // IANA name, default UTC
	BillingAnchorDay int      // 1 to 31, default 1
	NoPolicy         NoPolicy // default allow
	RedactValues     bool     // do not store the attribute values of denied checks
	RouteOptional    bool     // checks may leave out method and path; the wire has the opposite value as require_route
	MaxKeys          int64    // maximum number of live counters in Redis, from MinKeys to MostKeys; 0: the setting of the node applies
	SampleAllowed    uint32   // one in this many allowed requests is recorded with its explanation, at most MaxSample; 0: none
	NoTrace          bool     // do not record requests for previews of drafts
}

// A Tenant is a customer of the operator, with its own keys, counters and members.
type Tenant struct {
	ID   string // UUIDv7
	Slug string // never changes
	// Number identifies the tenant in counter keys. It is allocated once and never reused.
	Number uint32
	// Home is the hash tag in the Redis keys of all counters of the tenant. In a Redis cluster, the
	// hash tag puts these counters on the same node. The default is one of 64 tags, computed from
	// Number.
	Home string
	Document
	// PlanID is the ID of the plan whose slug is Document.Plan; "" if the tenant has no plan.
	PlanID string
	// PlanRevision is the revision at which the tenant's plan last changed to another plan.
	PlanRevision int64
	// Revision is the revision of the last change of the tenant. The API uses it as the ETag.
	Revision  int64
	CreatedAt time.Time
	UpdatedAt time.Time
}
