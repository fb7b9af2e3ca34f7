// Package envoy serves checks over two gRPC services of Envoy: RateLimitService, to which the filter ratelimit sends
// descriptors, and Authorization, to which the filter ext_authz sends requests. A check of these services has the same
// keys, policies, counters and counts as POST /v1/check.
package envoy
