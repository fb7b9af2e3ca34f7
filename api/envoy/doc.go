// Package envoy serves checks over three gRPC services of Envoy: RateLimitService, to which the filter ratelimit sends
// descriptors, Authorization, to which the filter ext_authz sends requests, and RateLimitQuotaService, from which the
// filter rate_limit_quota receives requests that it may allow. A check of these services has the same keys, policies,
// counters and counts as POST /v1/check.
package envoy
