// Package envoy serves checks over three gRPC services of Envoy. The filter ratelimit sends descriptors to
// RateLimitService. The filter ext_authz sends requests to Authorization. The filter rate_limit_quota gets from
// RateLimitQuotaService numbers of requests that it may allow. A check of these services has the same keys, policies,
// counters and counts as POST /v1/check.
package envoy
